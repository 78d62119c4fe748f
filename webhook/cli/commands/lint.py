"""`gpugate lint`: all errors and warnings in rule files, with their positions."""

from __future__ import annotations

import sys
from time import time

import click

from rules import Language, RuleSet
from rules.lint.rule_set_checks import lint
from webhook.cli.inputs.cluster_source import NO_CLUSTER, ClusterSource
from webhook.cli.inputs.completers import RULE_PATH
from webhook.cli.inputs.files import NO_RULES, RuleSource, load_inventory
from webhook.cli.inputs.options import (
    cluster_options,
    language_option,
    namespace_option,
    nodes_option,
    quiet_option,
)
from webhook.cli.report.lint_report import FORMATS, report
from webhook.cli.terminal.console import print_summary, print_warning

FOUND = 1
WARNED = 3


@click.command()
@click.argument("paths", nargs=-1, type=RULE_PATH, metavar="[PATH]...")
@click.option("-o", "--output", type=click.Choice(list(FORMATS)), default="text", show_default=True)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warn"]),
    default="error",
    show_default=True,
    help="warn: exit status 3 if there are only warnings.",
)
@click.option(
    "--rules",
    "rule_paths",
    multiple=True,
    type=RULE_PATH,
    metavar="PATH",
    help="Rules that are in force together with those to check: file, folder or URL, or builtin; may be "
    "repeated. A rule of the same name replaces them.  [default: the rules of the named cluster, or builtin]",
)
@nodes_option
@namespace_option
@cluster_options
@quiet_option
@language_option
def command(
    paths: tuple[str, ...],
    output: str,
    fail_on: str,
    rule_paths: tuple[str, ...],
    node_paths: tuple[str, ...],
    rules_namespace: str,
    cluster: ClusterSource,
    lang: str,
) -> None:
    """Check rule files and folders; without PATH, the rules of the cluster or the built-in rules.

    PATH may be a URL, or builtin for the built-in rules. Reports every error as file:line:column, with the
    expected value and a suggestion. A warning marks a rule that is valid but probably not as intended. Rules
    are checked against each other and against --rules. Other objects in the files are skipped. With --nodes
    or --context, node profiles are compared with present nodes.

    \b
    Examples:
      gpugate lint my-rules/
      gpugate lint my-rules/ -o github
      gpugate lint team-a/ --rules builtin --rules common/
      gpugate lint my-rules/ --context production
      kustomize build rules/ | gpugate lint -
    """
    source = RuleSource(rules_namespace, cluster)
    sources = list(source.sources(paths))
    # As kubectl plugin, too, files are not compared with a cluster unless it is named.
    compared = NO_CLUSTER if paths and not cluster.named else cluster
    inventory = load_inventory(node_paths, compared)
    others = (
        RuleSource(rules_namespace, compared).load(rule_paths).rules if paths or rule_paths else RuleSet()
    )
    loaded = lint(sources, time(), rules_namespace, inventory, others)
    language = Language(lang)
    made = report(loaded, list(dict.fromkeys(name for name, _ in sources)), language)
    if text := FORMATS[output](made):
        click.echo(text)
    if output == "text":
        print_summary(made.summary)
    if loaded.errors:
        sys.exit(FOUND)
    empty = not any(loaded.rules)
    if empty:
        none = NO_RULES.in_language(language)
        print_warning(f"{', '.join(paths)}: {none}" if paths else source.no_rules(language), language)
    sys.exit(WARNED if (empty or loaded.warnings) and fail_on == "warn" else 0)
