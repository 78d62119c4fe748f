"""`gpugate rules`: what is in force, what is switched off, what was refused."""

from __future__ import annotations

import json
import sys

import click

from rules.load import Loaded
from rules.model import CompatibilityRule, InjectionRule, Language, ResourceRule, Rule
from webhook.cli.inputs import RuleSource, cluster_options, language_option, namespace_option
from webhook.cli.table import show_table

REFUSED = 1
_COLOURS = {"enabled": "green", "disabled": "dim", "refused": "red"}


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
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
) -> None:
    """List the rules in files and folders, or of a cluster; with neither, the rules that ship.

    A rule that was refused for a mistake is listed with the mistake, and makes the exit status 1.

    \b
    Examples:
      gpugate rules
      gpugate rules my-rules/ -o json
      gpugate rules --context production
    """
    loaded = RuleSource(rules_namespace, kubeconfig, context).load(paths)
    rows = _rows(loaded, Language(lang))
    if output == "json":
        click.echo(json.dumps({"rules": rows}, ensure_ascii=False))
    else:
        show_table(rows, state=_COLOURS)
    sys.exit(REFUSED if loaded.errors else 0)


def _rows(loaded: Loaded, language: Language) -> list[dict[str, str]]:
    rows = [_row(rule, language) for rule in loaded.rules]
    rows += [
        {
            "name": error.rule or "(unknown)",
            "kind": "",
            "state": "refused",
            "resources": "",
            "action": "",
            "about": error.message,
            "source": str(error.location),
        }
        for error in loaded.errors
    ]
    return sorted(rows, key=lambda row: (row["source"], row["name"]))


def _row(rule: Rule, language: Language) -> dict[str, str]:
    action, resources = "", ""
    match rule:
        case ResourceRule():
            kind, resources, action = "resource", rule.key, rule.action.value
        case InjectionRule():
            kind, resources, action = "injection", ", ".join(rule.match.resources), rule.action.value
        case CompatibilityRule():
            kind, resources, action = "compatibility", ", ".join(rule.match.resources), rule.action.value
        case _:
            kind = "images"
    return {
        "name": rule.name,
        "kind": kind,
        "state": "enabled" if rule.enabled else "disabled",
        "resources": resources,
        "action": action,
        "about": rule.description.in_language(language),
        "source": str(rule.location),
    }
