"""`gpugate export`: resource rules as policies that the API server evaluates itself."""

from __future__ import annotations

import json
import sys

import click

from rules import Language
from rules.model.rule import Exemption, Rule
from rules.report.validating_admission_policy import ExportError, export
from webhook.cli.input.files import BAD_INPUT, RuleSource
from webhook.cli.input.options import language_option, namespace_option
from webhook.cli.output.console import complain
from webhook.yaml_output import dump_yaml


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@namespace_option
@language_option
def command(paths: tuple[str, ...], output: str, rules_namespace: str, lang: str) -> None:
    """Write resource rules as policies of the API server; with no PATH, the rules that ship.

    The API server evaluates them in process: no webhook, for clusters that want none. They judge pods at
    creation only, and answer each refusal with one fixed message. Other kinds of rules have no such form;
    what is left out is told on stderr. docs/export.md has the limits. For Kubernetes 1.36 or newer.

    \b
    Examples:
      gpugate export my-rules/ | kubectl apply -f -
      gpugate export my-rules/ -o json | jq '.items[].kind'
      kubectl delete -f <(gpugate export my-rules/)
    """
    loaded = RuleSource(rules_namespace).load(paths)
    for error in loaded.errors:
        complain(str(error))
    if loaded.errors:
        sys.exit(BAD_INPUT)  # half a rule set as policy would refuse or let pass what nobody meant
    try:
        exported = export(loaded.rules.resources, Language(lang))
    except ExportError as error:
        complain(str(error))
        sys.exit(BAD_INPUT)
    others = [rule for rule in loaded.rules if rule.enabled and rule not in loaded.rules.resources]
    left = [*exported.left, *((rule.name, _why_left(rule)) for rule in others)]
    for rule, reason in left:
        click.echo(f"{click.style('left out:', fg='yellow')} {rule}: {reason}", err=True)
    if output == "json":
        document = {"apiVersion": "v1", "kind": "List", "items": exported.objects}
        click.echo(json.dumps(document, ensure_ascii=False))
        return
    for each in exported.objects:
        click.echo(f"---\n{dump_yaml(each)}", nl=False)


def _why_left(rule: Rule) -> str:
    if isinstance(rule, Exemption):
        return "policies know no exemptions, and judge the pods that it spares"
    return "only resource rules have such a form"
