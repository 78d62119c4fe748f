"""`gpugate lint`: all errors and warnings in rule files, with their positions."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from time import time
from typing import Final

import click

from rules import Language, Loaded, RuleError, RuleSet
from rules.lint.rule_set_checks import lint
from rules.schema.errors import Code
from rules.text.printable import printable
from rules.text.yaml_document import Location
from webhook.cli.inputs.cluster_source import NO_CLUSTER
from webhook.cli.inputs.completers import RULE_PATH
from webhook.cli.inputs.options import (
    cluster_options,
    facts_option,
    fail_on_warning_option,
    language_option,
    namespace_option,
    nodes_option,
    output_option,
    quiet_option,
    rules_option,
)
from webhook.cli.inputs.session import NO_RULES, Session, with_session
from webhook.cli.report.formats import CI_FORMATS, FORMATS
from webhook.cli.report.junit import junit_of_files
from webhook.cli.report.model import DENY, WARN, RenderedFinding, Report, Target
from webhook.cli.terminal.console import counted, print_json, print_summary, print_warning
from webhook.cli.terminal.vocabulary import LEVELS, LINT_SUMMARY

FOUND = 1
WARNED = 3

_FORMATS: Final = {name: FORMATS[name] for name in CI_FORMATS} | {"junit": junit_of_files}
_COLOURS: Final = {"error": "red", "warning": "yellow"}
# The description of each code; docs/ci.md has the same.
ABOUT: Final[dict[Code, str]] = {
    Code.NOT_YAML: "The text is not valid YAML or exceeds a limit",
    Code.DUPLICATE_KEY: "A key occurs twice in an object",
    Code.UNKNOWN_KEY: "A key is unknown",
    Code.MISSING_KEY: "A required key is missing",
    Code.WRONG_TYPE: "A value has the wrong type",
    Code.WRONG_VALUE: "A value is not allowed for its key",
    Code.BAD_EXPRESSION: "A CEL expression does not compile, or has an unknown name or a wrong type",
    Code.BAD_LABEL: "A label of the rule is missing or invalid",
    Code.BAD_NAME: "The name of a resource rule does not begin with cf-crl-",
    Code.WRONG_NAMESPACE: "A rule is outside the rules namespace",
    Code.CONFLICT: "Two rules have the same name or the same resource",
    Code.TOO_LARGE: "A ConfigMap is larger than Kubernetes stores or gpugate reads",
    Code.NEVER_MATCHES: "A rule or one of its patterns cannot match anything",
    Code.NEVER_SATISFIED: "A requirement cannot be satisfied by any container",
    Code.UNTESTED_KEY: "An expression looks up a key that a pod may not have, and does not test it",
    Code.NO_EFFECT: "A value has no effect",
    Code.MISSPELT_RESOURCE: "A resource matches no rule, but its name is similar to the key of a rule",
    Code.HALF_GROUP: "A rule is disabled while other rules of its group are enabled",
    Code.MIXED_LABELS: "Labels of a rule have the older and the newer spelling, maybe with different values",
    Code.ODD_NAME: "The name of a resource rule does not end with its key, or has no word before it",
    Code.NO_NAMESPACE: "A rule has no namespace, so it may be applied to a namespace where it has no effect",
    Code.MISSING_VOLUME: "A mounted volume is not injected by any rule",
    Code.COMPETING_VALUES: "Two rules set different values for the same field, variable, label or volume",
    Code.EXPIRED: "An exemption has expired",
    Code.EXEMPTS_NOTHING: "An exemption does not match any rule",
    Code.EXEMPTS_EVERYONE: "An exemption applies to every pod",
    Code.EXEMPTS_ANY_TENANT: "An exemption without namespaces, which any tenant can claim",
    Code.CONTRADICTION: "A node profile contradicts itself, its product, another profile, or present nodes; "
    "or the range of a validation is not that of its message",
    Code.NOTHING_KNOWN: "A node profile states nothing that decides which images run",
    Code.UNKNOWN_VERSION: "An image catalogue has a CUDA version that no known toolkit has",
}


@click.command()
@click.argument("paths", nargs=-1, type=RULE_PATH, metavar="[PATH]...")
@output_option("text", "json", *_FORMATS)
@fail_on_warning_option
@rules_option(
    "Rules that are in force together with those to check: file, folder or URL, or builtin; may be "
    "repeated. A rule of the same name replaces them.  [default: the rules of the named cluster, or builtin]"
)
@nodes_option
@facts_option
@namespace_option
@cluster_options
@quiet_option
@language_option
@with_session
def command(paths: tuple[str, ...], output: str, fail_on: str, session: Session) -> None:
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
    sources, language = list(session.sources(paths)), session.language
    # Files are compared only with a cluster that an option selects, also by the kubectl plugin.
    unnamed = paths and not session.cluster.named
    compared = replace(session, cluster=NO_CLUSTER) if unnamed else session
    inventory = compared.inventory
    # The files to check are not compared with themselves: of two rules for one resource, neither is loaded.
    in_force = tuple(path for path in session.rule_paths if path not in paths)
    has_others = in_force or (paths and not session.rule_paths)
    others = compared.read_rules(in_force).rules if has_others else RuleSet()
    with_facts = session.with_facts(others)
    loaded = lint(sources, time(), session.rules_namespace, inventory, with_facts)
    files = list(dict.fromkeys(name for name, _ in sources))
    report = _report(loaded, files, language)
    if output == "json":
        print_json({"findings": [_facts(*pair, language) for pair in _sorted(loaded, files)]})
    elif text := _text(report) if output == "text" else _FORMATS[output](report):
        click.echo(text)
    if output == "text":
        print_summary(report.summary)
    if loaded.errors:
        sys.exit(FOUND)
    empty = not any(loaded.rules)
    if empty:
        none = NO_RULES.in_language(language)
        print_warning(f"{', '.join(paths)}: {none}" if paths else session.no_rules(), language)
    sys.exit(WARNED if (empty or loaded.warnings) and fail_on == "warn" else 0)


def _sorted(loaded: Loaded, files: Sequence[str]) -> list[tuple[str, RuleError]]:
    """Return errors and warnings with their effects, by file and line."""
    pairs = [(DENY, error) for error in loaded.errors] + [(WARN, error) for error in loaded.warnings]
    places = {file: number for number, file in enumerate(files)}

    def place(pair: tuple[str, RuleError]) -> tuple[int, int, int]:
        location = pair[1].location
        return places[location.file], location.line, location.column

    return sorted(pairs, key=place)


def _report(loaded: Loaded, files: Sequence[str], language: Language) -> Report:
    """Return the report of the findings in each file."""
    counts = (sum(1 for _ in loaded.rules), len(loaded.errors), len(loaded.warnings))
    rules, errors, warnings = map(counted, counts, ("valid rule", "error", "warning"))
    by_file: dict[str, list[RenderedFinding]] = {file: [] for file in files}
    for effect, error in _sorted(loaded, files):
        message = printable(": ".join(filter(None, (error.path, error.text.in_language(language)))))
        by_file[error.location.file].append(
            RenderedFinding(effect, error.code.value, message, place=error.location)
        )
    return Report(
        "gpugate lint",
        LINT_SUMMARY.having(rules=rules, errors=errors, warnings=warnings).in_language(language),
        language,
        tuple(Target("", Location(file), tuple(findings)) for file, findings in by_file.items()),
        codes={code.value: about for code, about in ABOUT.items()},
    )


def _text(report: Report) -> str:
    levels = {
        level: click.style(LEVELS[level].in_language(report.language), fg=colour, bold=True)
        for level, colour in _COLOURS.items()
    }
    return "\n".join(
        f"{finding.place}: {levels[finding.level]}: {finding.message} [{finding.code}]"
        for target in report.targets
        for finding in target.findings
    )


def _facts(effect: str, error: RuleError, language: Language) -> dict[str, str | int]:
    """Return an error or warning for JSON."""
    return {
        "level": RenderedFinding(effect, "", "").level,
        "code": error.code.value,
        "file": error.location.file,
        "line": error.location.line,
        "column": error.location.column,
        "rule": error.rule,
        "path": error.path,
        "message": error.text.in_language(language),
    }
