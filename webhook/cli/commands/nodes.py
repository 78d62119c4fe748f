"""`gpugate nodes`: the capabilities of nodes, and labels with unsupported values."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from rules import Inventory, Language
from rules.model.rule import NodeProfile
from rules.nodes.node_capabilities import NodeCapabilities, Problem
from rules.report.matrix import dotted, sort_key
from rules.report.profile_differences import ProfileDifference, members, profile_differences
from webhook.cli.input.node_source import NodeSource, node_options
from webhook.cli.input.options import language_option
from webhook.cli.output.console import UNKNOWN, print_warning, show_table
from webhook.cli.output.vocabulary import MORE_DIFFERENCES, MORE_UNREADABLE, PROFILE_DIFFERS, UNREADABLE_LABEL

# Maximum number of problems on stderr. A faulty label publisher affects every node in the same way.
_MAX_PROBLEMS: Final = 10


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@node_options
@language_option
def command(output: str, nodes: NodeSource, lang: str) -> None:
    """List the GPU capabilities of nodes in files or a cluster, grouped by equal capabilities.

    Labels with unsupported values are listed on stderr; the capability is unknown then, `-`. Nodes that an
    autoscaler may add are listed with the profile in the rules that describes them, and a profile that its
    present nodes contradict is reported on stderr.

    \b
    Examples:
      gpugate nodes --context production
      kubectl get nodes -o yaml | gpugate nodes --nodes -
      gpugate nodes --nodes nodes.yaml -o json | jq -r '.classes[] | select(.cuda == null) | .nodes[]'
    """
    inventory, labels, language = nodes.inventory(), nodes.labels(), Language(lang)
    profiles = nodes.profiles()
    differences = tuple(profile_differences(profiles, inventory, labels))
    classes = sorted(
        inventory.classes(inventory.everything, labels), key=lambda each: sort_key(each.capabilities)
    )
    unreadable = inventory.problems(labels)
    if output == "json":
        found = [
            _facts(each.capabilities)
            | {
                "nodes": sorted(inventory.names(each.members)),
                "notReady": sorted(inventory.names(each.members & inventory.not_ready)),
            }
            for each in classes
        ]
        problems = [
            {"node": problem.node, "label": problem.key, "value": problem.value} for problem in unreadable
        ]
        document = {
            "classes": found,
            "profiles": [_profile(each, inventory, differences) for each in profiles],
            "problems": problems,
        }
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    rows = [_row(each.capabilities, str(each.members.bit_count())) for each in classes]
    if inventory.not_ready:
        for row, each in zip(rows, classes, strict=True):
            row["not ready"] = str((each.members & inventory.not_ready).bit_count())
    if profiles:
        rows = [row | {"state": "present", "profile": UNKNOWN} for row in rows]
        rows += [
            dict.fromkeys(rows[0], UNKNOWN)
            | _row(each.capabilities, UNKNOWN)
            | {"state": _state(each), "profile": each.name}
            for each in profiles
        ]
    show_table(rows, language)
    _show_problems(unreadable, language)
    _show_differences(differences, inventory, language)


def _facts(capabilities: NodeCapabilities) -> dict[str, Any]:
    return {
        "product": capabilities.product,
        "driver": capabilities.driver,
        "cuda": dotted(capabilities.cuda),
        "compute": dotted(capabilities.gpu_capability),
        "memoryMiB": capabilities.gpu_memory_mib,
        "mig": capabilities.mig_strategy,
        "slices": capabilities.mig_devices or None,
        "sharing": capabilities.sharing_strategy,
        "mode": capabilities.device_mode,
    }


def _row(capabilities: NodeCapabilities, nodes: str) -> dict[str, str]:
    facts = _facts(capabilities)
    memory, slices = facts.pop("memoryMiB"), facts.pop("slices")
    facts["memory"] = None if memory is None else f"{memory}Mi"
    facts["mig"] = ", ".join(filter(None, [facts["mig"], "slices" if slices else None]))
    columns = ("product", "driver", "cuda", "compute", "memory", "mig", "sharing", "mode")
    return {"nodes": nodes} | {name: str(facts[name] or UNKNOWN) for name in columns}


def _state(profile: NodeProfile) -> str:
    return "may come" if profile.can_scale else "cannot come"


def _profile(
    profile: NodeProfile, inventory: Inventory, differences: tuple[ProfileDifference, ...]
) -> dict[str, Any]:
    """Return a profile, its present nodes, and what these report otherwise."""
    return _facts(profile.capabilities) | {
        "profile": profile.name,
        "state": _state(profile),
        "resources": dict(profile.resources),
        "labelsAtCreation": dict(profile.labels),
        "nodes": sorted(inventory.names(members(profile, inventory))),
        "differences": [
            {
                "fact": each.fact,
                "stated": each.stated,
                "reported": each.reported,
                "nodes": sorted(inventory.names(each.nodes)),
            }
            for each in differences
            if each.profile == profile.name
        ],
    }


def _show_differences(
    differences: tuple[ProfileDifference, ...], inventory: Inventory, language: Language
) -> None:
    """Print on stderr what present nodes report otherwise than their profile."""
    for each in differences[:_MAX_PROBLEMS]:
        facts = each._asdict() | {"count": each.nodes.bit_count(), "node": min(inventory.names(each.nodes))}
        print_warning(PROFILE_DIFFERS.in_language(language).format_map(facts), language)
    if len(differences) > _MAX_PROBLEMS:
        print_warning(MORE_DIFFERENCES.in_language(language).format(count=len(differences) - _MAX_PROBLEMS))


def _show_problems(problems: tuple[Problem, ...], language: Language) -> None:
    """Print labels with unsupported values on stderr."""
    for node, label, value in problems[:_MAX_PROBLEMS]:
        facts = {"node": f"{node!r:.80}", "label": f"{label!r:.80}", "value": f"{value!r:.80}"}
        print_warning(UNREADABLE_LABEL.in_language(language).format_map(facts))
    if len(problems) > _MAX_PROBLEMS:
        print_warning(MORE_UNREADABLE.in_language(language).format(count=len(problems) - _MAX_PROBLEMS))
