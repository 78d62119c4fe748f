"""`gpugate rules`: the rules and their state: enabled, disabled, expired, stale or invalid.

Counters of each rule are read from the metrics of running webhooks.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from time import time
from typing import Final

import click
from msgspec import Struct, field

from rules import Language, Loaded, RuleSet
from rules.decision.exemptions import exempted
from rules.model.rule import (
    CompatibilityRule,
    Exemption,
    InjectionRule,
    NodeProfile,
    ResourceRule,
    Rule,
    exclusive_key,
)
from rules.text.i18n import Message
from webhook.cli.inputs.completers import RULE
from webhook.cli.inputs.files import read_path
from webhook.cli.inputs.options import (
    cluster_options,
    files_option,
    language_option,
    namespace_option,
    output_option,
    quiet_option,
    rules_in_force_option,
)
from webhook.cli.inputs.row_filter import filter_option, filtered, named
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import (
    BadInputError,
    first_of,
    print_document,
    print_error,
    print_line,
    print_warning,
    show_table,
)
from webhook.cli.terminal.vocabulary import EXEMPT_PODS, EXEMPTION_SCOPE, REPLACED_BY, RULE_NOUN

# Names of samples in webhook/telemetry/metrics.py; importing that module for a listing would be slow.
_MATCHES: Final = "gpugate_rule_matches_total"
_VIOLATIONS: Final = "gpugate_rule_violations_total"
_STALE: Final = "gpugate_rule_stale"
_NO_METRICS: Final = Message("{name}: not in the Prometheus text format: {why}")


class Counts(Struct, frozen=True):
    """Counters of rules, by their names."""

    matches: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    stale: frozenset[str] = frozenset()  # rules whose last valid version is active


def read_counts(paths: Iterable[str]) -> Counts:
    """Return the sums of the counters in files, each with `/metrics` of one webhook; `-` is stdin.

    Raises BadInputError for a file that cannot be read or does not contain metrics of gpugate.
    """
    from prometheus_client.parser import text_string_to_metric_families

    sums: dict[str, Counter[str]] = {_MATCHES: Counter(), _VIOLATIONS: Counter(), _STALE: Counter()}
    for name, text in (source for path in paths for source in read_path(path)):
        try:
            samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        except ValueError as error:
            raise BadInputError(_NO_METRICS.having(name=name, why=error)) from None
        if not any(sample.name.startswith("gpugate_") for sample in samples):
            raise BadInputError(Message("{name}: contains no metrics of gpugate", name=name))
        for sample in samples:
            if sample.name in sums:
                sums[sample.name][sample.labels["rule"]] += int(sample.value)
    return Counts(sums[_MATCHES], sums[_VIOLATIONS], frozenset(+sums[_STALE]))


INVALID = 1
_WIDE = ("about", "note", "source")
_COLOURS = {"enabled": "green", "disabled": "dim", "expired": "yellow", "stale": "yellow", "refused": "red"}


@click.command()
@click.argument("names", nargs=-1, type=RULE, metavar="[NAME]...")
@rules_in_force_option
@filter_option
@output_option("text", "wide", "name", "json", "yaml")
@files_option("--metrics", help="File that contains /metrics of a replica, - for stdin; may be repeated.")
@cluster_options
@namespace_option
@quiet_option
@language_option
@with_session
def command(
    names: tuple[str, ...],
    filters: tuple[str, ...],
    output: str,
    metrics: tuple[str, ...],
    session: Session,
) -> None:
    """List the rules in files and folders or in a cluster; without both, the built-in rules.

    NAME is the name of a rule, or a glob. An invalid rule is listed, too, with its error on stderr and exit
    status 1. With -o wide, NOTE shows which rule replaces a disabled one, and scope and expiry of exemptions.
    With --metrics, MATCHED is the number of reviews that the rule matched (two for each pod) and VIOLATIONS
    the number of its violations; for a stale rule, the last valid version is active and the listed version is
    not.

    \b
    Examples:
      gpugate rules
      gpugate rules 'cf-crl-hami-*' -o wide
      gpugate rules --filter 'kind=resource,state!=enabled,resources=nvidia.com/*'
      gpugate rules --rules my-rules/ -o json
      gpugate rules --context production
      kubectl get --raw /api/v1/namespaces/gpugate/services/https:gpugate:https/proxy/metrics |
        gpugate rules --context production --metrics -
      gpugate rules new resource --name acme --folder my-rules
    """
    counts = read_counts(metrics) if metrics else None
    loaded, language = session.read_rules(session.rule_paths), session.language
    if not (session.rule_paths or loaded.errors or any(loaded.rules)):
        print_warning(session.no_rules(), language)
    all_rows = _rows(loaded, language, time())
    chosen = frozenset(named(names, [row["name"] for row in all_rows], RULE_NOUN))
    selected = [_with_counts(row, counts) for row in all_rows if row["name"] in chosen]
    rows = filtered(filters, selected, _cells)
    if output in ("json", "yaml"):
        print_document({"rules": rows}, output)
    elif output == "name":
        for row in rows:
            print_line(f"configmap/{row['name']}")
    else:
        wide = output == "wide"
        table = [_cells(row) if wide else _short(_cells(row)) for row in rows]
        show_table(table, language, wide=wide, state=_COLOURS)
    for error in loaded.errors:
        print_error(error.located)
    sys.exit(INVALID if loaded.errors else 0)


def _cells(row: Mapping[str, str | int]) -> dict[str, str]:
    return {name: str(value) for name, value in row.items()}


def _short(cells: Mapping[str, str]) -> dict[str, str]:
    """Return the cells of a row in the table without -o wide."""
    short = {name: cell for name, cell in cells.items() if name not in _WIDE}
    return short | {"resources": first_of(short["resources"].split(", "))}


def _rows(loaded: Loaded, language: Language, now: float) -> list[dict[str, str]]:
    rows = [_row(rule, loaded.rules, language, now) for rule in loaded.rules]
    rows += [
        {
            "name": error.rule or "(unknown)",
            "kind": "",
            "state": "refused",
            "action": "",
            "resources": "",
            "about": error.text.in_language(language),
            "note": "",
            "source": str(error.location),
        }
        for error in loaded.errors
    ]
    return sorted(rows, key=lambda row: (row["source"], row["name"]))


def _with_counts(row: Mapping[str, str], counts: Counts | None) -> dict[str, str | int]:
    """Return a row with the counters of the rule after its action."""
    if counts is None:
        return {**row}
    name = row["name"]
    counters = {"matched": counts.matches[name], "found": counts.violations[name]}
    state = {"state": "stale"} if name in counts.stale else {}
    first = {field: row[field] for field in ("name", "kind", "state", "action")}
    return first | state | counters | {field: row[field] for field in row if field not in first}


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
        case NodeProfile():
            kind, resources = "profile", ", ".join(name for name, _ in rule.resources)
        case _:
            kind = "images"
    return {
        "name": rule.name,
        "kind": kind,
        "state": _state(rule, now),
        "action": action,
        "resources": resources,
        "about": rule.description.in_language(language),
        "note": _note(rule, rules, language, now),
        "source": str(rule.location),
    }


def _state(rule: Rule, now: float) -> str:
    if isinstance(rule, Exemption) and rule.enabled and rule.expires <= now:
        return "expired"
    return "enabled" if rule.enabled else "disabled"


def _note(rule: Rule, rules: RuleSet, language: Language, now: float) -> str:
    """Return scope and expiry of an exemption, the replacement of a disabled rule, or a rule's exemptions."""
    match rule:
        case Exemption():
            scope = EXEMPTION_SCOPE.in_language(language)
            return scope.format(until=rule.until, rules=", ".join(rule.rules))
        case ResourceRule(enabled=False):
            return ", ".join(
                REPLACED_BY.having(rule=other.name, key=rule.key).in_language(language)
                for other in rules.resources
                if other.enabled and rule.key == exclusive_key(other) == exclusive_key(rule)
            )
        case InjectionRule() | CompatibilityRule() | ResourceRule():
            exemptions = [
                exemption.name
                for exemption in rules.exemptions
                if exemption.enabled and exemption.expires > now and exempted(exemption, (rule,))
            ]
            words = EXEMPT_PODS.in_language(language)
            return words.format(exemptions=", ".join(exemptions)) if exemptions else ""
    return ""
