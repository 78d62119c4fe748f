"""`gpugate lint`: every mistake in rule files, with its place."""

from __future__ import annotations

import sys
from time import time

import click

from rules import lint
from webhook.cli.input.files import NO_RULES, RuleSource
from webhook.cli.input.options import namespace_option
from webhook.cli.output.console import counted, warn
from webhook.cli.output.lint_report import FORMATS, report

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
    meant; warnings are for what loads, and may not do what was meant. Rules are checked against each other,
    so name all that are applied together. Other objects in the files are passed over.

    \b
    Examples:
      gpugate lint my-rules/
      gpugate lint my-rules/ -o github
      kustomize build rules/ | gpugate lint -
    """
    texts = list(RuleSource(rules_namespace).texts(paths))
    loaded = lint(texts, time(), rules_namespace)
    text = FORMATS[output](report(loaded, list(dict.fromkeys(name for name, _ in texts))))
    if text:
        click.echo(text)
    if output == "text":
        count = sum(1 for _ in loaded.rules)
        errors, warnings = len(loaded.errors), len(loaded.warnings)
        counts = ((count, "sound rule"), (errors, "error"), (warnings, "warning"))
        click.echo(", ".join(counted(number, noun) for number, noun in counts), err=True)
    if loaded.errors:
        sys.exit(FOUND)
    empty = not any(loaded.rules)
    if empty:
        warn(f"{', '.join(paths)}: {NO_RULES}")
    sys.exit(WARNED if (empty or loaded.warnings) and fail_on == "warn" else 0)
