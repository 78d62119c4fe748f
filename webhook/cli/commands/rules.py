"""`gpugate rules`: what is in force, what is switched off, what was refused."""

from __future__ import annotations

import json
import sys
from time import time

import click

from rules import Language, Loaded, RuleSet
from rules.decision.exemptions import exempted
from rules.model.rule import CompatibilityRule, Exemption, InjectionRule, ResourceRule, Rule
from webhook.cli.input.files import RuleSource
from webhook.cli.input.options import cluster_options, language_option, namespace_option
from webhook.cli.input.rule_metrics import Counts, read_counts
from webhook.cli.output.console import show_table

REFUSED = 1
_COLOURS = {"enabled": "green", "disabled": "dim", "expired": "yellow", "stale": "yellow", "refused": "red"}


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--metrics",
    multiple=True,
    metavar="FILE",
    help="What a gate has counted: its /metrics, - for stdin; one for each replica.",
)
@cluster_options
@namespace_option
@language_option
def command(
    paths: tuple[str, ...],
    output: str,
    kubeconfig: str | None,
    context: str | None,
    rules_namespace: str,
    lang: str,
    metrics: tuple[str, ...],
) -> None:
    """List the rules in files and folders, or of a cluster; with neither, the rules that ship.

    A rule that was refused for a mistake is listed with the mistake, and makes the exit status 1. NOTE says
    what else bears on a rule: which one rules the resource of one that is switched off, until when an
    exemption holds. With --metrics, MATCHED is in how many reviews it held (a pod is reviewed twice), FOUND
    how many violations; a stale rule is in force as it was before the mistake that is listed.

    \b
    Examples:
      gpugate rules
      gpugate rules my-rules/ -o json
      gpugate rules --context production
      kubectl get --raw /api/v1/namespaces/gpugate/services/https:gpugate:https/proxy/metrics |
        gpugate rules --context production --metrics -
      gpugate rules new --kind resource --key vendor.com/device
    """
    counts = read_counts(metrics) if metrics else None
    loaded = RuleSource(rules_namespace, kubeconfig, context).load(paths)
    rows = [_counted(row, counts) for row in _rows(loaded, Language(lang), time())]
    if output == "json":
        click.echo(json.dumps({"rules": rows}, ensure_ascii=False))
    else:
        show_table([{name: str(value) for name, value in row.items()} for row in rows], state=_COLOURS)
    sys.exit(REFUSED if loaded.errors else 0)


def _rows(loaded: Loaded, language: Language, now: float) -> list[dict[str, str]]:
    rows = [_row(rule, loaded.rules, language, now) for rule in loaded.rules]
    rows += [
        {
            "name": error.rule or "(unknown)",
            "kind": "",
            "state": "refused",
            "resources": "",
            "action": "",
            "about": error.message,
            "note": "",
            "source": str(error.location),
        }
        for error in loaded.errors
    ]
    return sorted(rows, key=lambda row: (row["source"], row["name"]))


def _counted(row: dict[str, str], counts: Counts | None) -> dict[str, str | int]:
    """Return a row with what gates have counted, before the place of the rule."""
    if counts is None:
        return {**row}
    name, place = row["name"], {"source": row["source"]}
    counted = {"matched": counts.matches[name], "found": counts.violations[name]}
    state = {"state": "stale"} if name in counts.stale else {}
    return {field: value for field, value in row.items() if field not in place} | state | counted | place


def _row(rule: Rule, rules: RuleSet, language: Language, now: float) -> dict[str, str]:
    action, resources = "", ""
    match rule:
        case ResourceRule():
            kind, resources, action = "resource", rule.key, rule.action.value
        case InjectionRule():
            kind, resources, action = "injection", ", ".join(rule.match.resources), rule.action.value
        case CompatibilityRule():
            kind, resources, action = "compatibility", ", ".join(rule.match.resources), rule.action.value
        case Exemption():
            kind, action = "exemption", "exempt"
        case _:
            kind = "images"
    return {
        "name": rule.name,
        "kind": kind,
        "state": _state(rule, now),
        "resources": resources,
        "action": action,
        "about": rule.description.in_language(language),
        "note": _note(rule, rules, now),
        "source": str(rule.location),
    }


def _state(rule: Rule, now: float) -> str:
    if isinstance(rule, Exemption) and rule.enabled and rule.expires <= now:
        return "expired"
    return "enabled" if rule.enabled else "disabled"


def _note(rule: Rule, rules: RuleSet, now: float) -> str:
    """Return what else bears on a rule: until when it holds, and for what; what holds in its place."""
    match rule:
        case Exemption():
            return f"until {rule.until} from {', '.join(rule.rules)}"
        case ResourceRule(enabled=False):
            return ", ".join(
                f"{other.name} is in force for {rule.key}"
                for other in rules.resources
                if other.enabled and other.key == rule.key
            )
        case InjectionRule() | CompatibilityRule() | ResourceRule():
            exemptions = [
                exemption.name
                for exemption in rules.exemptions
                if exemption.enabled and exemption.expires > now and exempted(exemption, (rule,))
            ]
            return f"some pods are exempt by {', '.join(exemptions)}" if exemptions else ""
    return ""
