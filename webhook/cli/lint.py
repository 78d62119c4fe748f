"""`gpugate lint`: every mistake in rule files, with its place."""

from __future__ import annotations

import sys

import click

from webhook.cli.findings import FORMATS, findings
from webhook.cli.inputs import RuleSource, namespace_option

FOUND = 1
WARNED = 3


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("-o", "--output", type=click.Choice(list(FORMATS)), default="text", show_default=True)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warn"]),
    default="error",
    show_default=True,
    help="warn: exit 3 where there are only warnings.",
)
@namespace_option
def command(paths: tuple[str, ...], output: str, fail_on: str, rules_namespace: str) -> None:
    """Check rule files and folders; with no PATH, the rules that ship.

    Every mistake of every file is reported as file:line:column, with what was expected and what may have been
    meant. Other objects in the files are passed over.

    \b
    Examples:
      gpugate lint my-rules/
      gpugate lint my-rules/ -o github
      kustomize build rules/ | gpugate lint -
    """
    loaded = RuleSource(rules_namespace).load(paths)
    found = findings(loaded)
    text = FORMATS[output](found)
    if text:
        click.echo(text)
    if output == "text":
        count = sum(1 for _ in loaded.rules)
        errors, warnings = len(loaded.errors), len(loaded.warnings)
        click.echo(f"{count} sound rules, {errors} errors, {warnings} warnings", err=True)
    if loaded.errors:
        sys.exit(FOUND)
    sys.exit(WARNED if loaded.warnings and fail_on == "warn" else 0)
