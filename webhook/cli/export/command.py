"""`gpugate export`: converts resource rules to admission policies of the API server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from rules.model.rule import CompatibilityRule, Exemption, Rule
from rules.schema.errors import reason_of
from rules.text.i18n import Message, located, os_error_text
from rules.text.yaml_document import SourceError
from webhook.cli.export.policies import ExportError, export
from webhook.cli.export.static_manifests import StaticManifests, static_manifests
from webhook.cli.inputs.completers import FILE, RULE_PATH
from webhook.cli.inputs.files import BAD_INPUT, read_file
from webhook.cli.inputs.objects import objects_in
from webhook.cli.inputs.options import language_option, namespace_option, output_option
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import (
    BadInputError,
    print_document,
    print_error,
    print_json,
    print_note,
    print_warning,
)
from webhook.cli.terminal.usage_errors import UsageError
from webhook.cli.terminal.vocabulary import (
    CONVERTED,
    NO_COMPATIBILITY,
    NO_EXEMPTIONS,
    NOT_CONVERTED,
    ONLY_RESOURCE_RULES,
)
from webhook.yaml_output import dump_yaml


def _https_url(_context: click.Context, _option: click.Parameter, url: str) -> str:
    """Return the URL; raises click.BadParameter if it is not https."""
    if url and not url.startswith("https://"):
        raise click.BadParameter(f"{url!r} is not an https URL")
    return url


@click.command()
@click.argument("paths", nargs=-1, type=RULE_PATH, metavar="[PATH]...")
@click.option(
    "--static",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write the policies as files that the API server reads at start (Kubernetes 1.37), and print its"
    " admission configuration.",
)
@click.option(
    "--manifests",
    multiple=True,
    type=FILE,
    metavar="PATH",
    help="With --static: also the policies and webhook configurations in this file; may be repeated.",
)
@click.option(
    "--webhook-url",
    metavar="URL",
    default="",
    callback=_https_url,
    help="With --manifests: address of the webhook instead of its Service, without the path.",
)
@click.option(
    "--webhook-ca",
    type=click.Path(path_type=Path),
    help="With --manifests: file that contains the PEM CA of the webhook's certificate.",
)
@output_option("yaml", "json")
@namespace_option
@language_option
@with_session
def command(
    paths: tuple[str, ...],
    folder: Path | None,
    manifests: tuple[str, ...],
    webhook_url: str,
    webhook_ca: Path | None,
    output: str,
    session: Session,
) -> None:
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
      gpugate export my-rules/ --static /etc/kubernetes/gpugate > admission.yaml
    """
    if manifests and folder is None:
        raise UsageError(Message("--manifests requires --static"))
    if (webhook_url or webhook_ca) and not manifests:
        raise UsageError(Message("--webhook-url and --webhook-ca require --manifests"))
    ca_pem = read_file(webhook_ca) if webhook_ca else b""
    loaded, language = session.read_rules(paths), session.language
    for error in loaded.errors:
        print_error(error.located)
    if loaded.errors:
        sys.exit(BAD_INPUT)  # an incomplete rule set would deny or allow the wrong pods
    try:
        exported = export(loaded.rules.resources, language)
    except ExportError as error:
        print_error(reason_of(error))
        sys.exit(BAD_INPUT)
    others = [rule for rule in loaded.rules if rule.enabled and rule not in loaded.rules.resources]
    for rule, reason in (*exported.omitted, *((rule.name, _why_omitted(rule)) for rule in others)):
        print_warning(NOT_CONVERTED.having(rule=rule, reason=reason))
    if folder is not None:
        objects = [*exported.objects, *_objects(manifests)]
        _write(static_manifests(objects, webhook_url, ca_pem), folder, output)
        return
    if output == "json":
        document = {"apiVersion": "v1", "kind": "List", "items": exported.objects}
        print_json(document)
        return
    for manifest in exported.objects:
        click.echo(f"---\n{dump_yaml(manifest)}", nl=False)


def _objects(paths: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of manifests. Raises BadInputError."""
    for path in paths:
        for entry in objects_in(path):
            if isinstance(entry, SourceError):
                raise BadInputError(entry.text)
            place, value = entry
            if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
                raise BadInputError(Message("{place}: not a Kubernetes object", place=place))
            yield value


def _write(static: StaticManifests, folder: Path, output: str) -> None:
    """Write the files, print the configuration of the API server, and say what is not in the files."""
    for name, reason in static.omitted:
        print_warning(NOT_CONVERTED.having(rule=name, reason=reason))
    for name, note in static.notes:
        print_note(CONVERTED.having(name=name, note=note))
    try:
        configuration = static.write(folder)
    except OSError as error:
        raise BadInputError(located(folder, os_error_text(error))) from None
    print_document(configuration, output)


def _why_omitted(rule: Rule) -> Message:
    """Return why a rule of another kind is not converted."""
    if isinstance(rule, CompatibilityRule):
        return NO_COMPATIBILITY
    return NO_EXEMPTIONS if isinstance(rule, Exemption) else ONLY_RESOURCE_RULES
