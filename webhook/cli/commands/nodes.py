"""`gpugate nodes`: what the nodes offer, and which of their labels cannot be read."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from rules.nodes.node_capabilities import NodeCapabilities, Problem
from rules.report.matrix import dotted, sort_key
from webhook.cli.input.node_source import NodeSource, node_options
from webhook.cli.output.console import UNKNOWN, show_table

# Problems on stderr. One publisher's mistake is on every node, so the first say it all.
_MOST_PROBLEMS: Final = 10


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@node_options
def command(output: str, nodes: NodeSource) -> None:
    """List what nodes offer, equal ones as one class, from files or a cluster.

    Labels that cannot be read are told on stderr; what they would tell is unknown, `-`.

    \b
    Examples:
      gpugate nodes --context production
      kubectl get nodes -o yaml | gpugate nodes --nodes -
      gpugate nodes --nodes nodes.yaml -o json | jq -r '.classes[] | select(.cuda == null) | .nodes[]'
    """
    inventory, labels = nodes.inventory(), nodes.labels()
    classes = sorted(inventory.classes(inventory.everything, labels), key=lambda each: sort_key(each.offer))
    unread = inventory.problems(labels)
    if output == "json":
        found = [_facts(each.offer) | {"nodes": sorted(inventory.names(each.members))} for each in classes]
        problems = [
            {"node": problem.node, "label": problem.key, "value": problem.value} for problem in unread
        ]
        click.echo(json.dumps({"classes": found, "problems": problems}, ensure_ascii=False))
        return
    show_table([_row(each.offer, each.members.bit_count()) for each in classes])
    _report(unread)


def _facts(offer: NodeCapabilities) -> dict[str, Any]:
    return {
        "product": offer.product,
        "driver": offer.driver,
        "cuda": dotted(offer.cuda),
        "compute": dotted(offer.compute_capability),
        "memoryMiB": offer.memory_mib,
        "mig": offer.mig_strategy,
        "slices": offer.mig_devices or None,
        "sharing": offer.sharing_strategy,
        "mode": offer.device_mode,
    }


def _row(offer: NodeCapabilities, nodes: int) -> dict[str, str]:
    facts = _facts(offer)
    memory, slices = facts.pop("memoryMiB"), facts.pop("slices")
    facts["memory"] = None if memory is None else f"{memory}Mi"
    facts["mig"] = ", ".join(filter(None, [facts["mig"], "slices" if slices else None]))
    columns = ("product", "driver", "cuda", "compute", "memory", "mig", "sharing", "mode")
    return {"nodes": str(nodes)} | {name: str(facts[name] or UNKNOWN) for name in columns}


def _report(problems: tuple[Problem, ...]) -> None:
    """Say on stderr what cannot be read."""
    head = click.style("warning:", fg="yellow")
    for node, label, value in problems[:_MOST_PROBLEMS]:
        text = f"node {node!r:.80}: label {label!r:.80} cannot be read: {value!r:.80}"
        click.echo(f"{head} {text}", err=True)
    if len(problems) > _MOST_PROBLEMS:
        more = len(problems) - _MOST_PROBLEMS
        click.echo(f"{head} {more} more cannot be read; -o json lists all", err=True)
