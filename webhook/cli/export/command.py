"""`gpugate export`: converts resource rules to admission policies of the API server."""

from __future__ import annotations

import sys

import click

from rules.model.rule import CompatibilityRule, Exemption, Rule
from rules.schema.errors import reason_of
from rules.text.i18n import Message
from webhook.cli.export.policies import ExportError, export
from webhook.cli.inputs.completers import RULE_PATH
from webhook.cli.inputs.files import BAD_INPUT
from webhook.cli.inputs.options import language_option, namespace_option, output_option
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import print_error, print_json, print_warning
from webhook.cli.terminal.vocabulary import (
    NO_COMPATIBILITY,
    NO_EXEMPTIONS,
    NOT_CONVERTED,
    ONLY_RESOURCE_RULES,
)
from webhook.yaml_output import dump_yaml


@click.command()
@click.argument("paths", nargs=-1, type=RULE_PATH, metavar="[PATH]...")
@output_option("yaml", "json")
@namespace_option
@language_option
@with_session
def command(paths: tuple[str, ...], output: str, session: Session) -> None:
    """Convert resource rules to admission policies of the API server; without PATH, the built-in rules.

    The output are ValidatingAdmissionPolicies and MutatingAdmissionPolicies, which the API server evaluates
    in process, without a webhook. They check pods at creation only, and each rule has one fixed message.
    Rules of other kinds cannot be converted; whatever is not converted is listed on stderr. docs/export.md
    has the limits. Requires Kubernetes 1.36 or newer.

    \b
    Examples:
      gpugate export my-rules/ | kubectl apply -f -
      gpugate export my-rules/ -o json | jq '.items[].kind'
      kubectl delete -f <(gpugate export my-rules/)
    """
    loaded, language = session.read_rules(paths), session.language
    for error in loaded.errors:
        print_error(error.line(language), language)
    if loaded.errors:
        sys.exit(BAD_INPUT)  # an incomplete rule set would deny or allow the wrong pods
    try:
        exported = export(loaded.rules.resources, language)
    except ExportError as error:
        print_error(reason_of(error).in_language(language), language)
        sys.exit(BAD_INPUT)
    others = [rule for rule in loaded.rules if rule.enabled and rule not in loaded.rules.resources]
    for rule, reason in (*exported.omitted, *((rule.name, _why_omitted(rule)) for rule in others)):
        print_warning(NOT_CONVERTED.having(rule=rule, reason=reason))
    if output == "json":
        document = {"apiVersion": "v1", "kind": "List", "items": exported.objects}
        print_json(document)
        return
    for manifest in exported.objects:
        click.echo(f"---\n{dump_yaml(manifest)}", nl=False)


def _why_omitted(rule: Rule) -> Message:
    """Return why a rule of another kind is not converted."""
    if isinstance(rule, CompatibilityRule):
        return NO_COMPATIBILITY
    return NO_EXEMPTIONS if isinstance(rule, Exemption) else ONLY_RESOURCE_RULES
