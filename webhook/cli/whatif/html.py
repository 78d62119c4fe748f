"""The result of `whatif` as one HTML file: workloads that change by namespace, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules import Language
from rules.text.i18n import Message
from webhook.cli.report.html_page import Html, Section, cell, element, page, row_heading, table
from webhook.cli.terminal.vocabulary import heading, value
from webhook.cli.whatif.compare import Effect, Runs, WhatIf, WorkloadChange, rows

_MOST_ROWS: Final = 2000  # of a table; a browser shows some thousand at once
_TITLE: Final = Message("What a change does to workloads")
_REASONS: Final = Message("Reasons")
_REASONS_ABOUT: Final = Message("Workloads by effect and reason")
_WORKLOADS: Final = Message("Workloads by namespace")
_IN: Final = Message("Namespace {namespace}")
_NOTHING: Final = Message("No workload changes.")
_CHANGES: Final = Message("Changes")
_NODES: Final = Message("Compatible nodes before and after")
_MORE: Final = Message("{count} more rows are left out (use -o json to list all)")
# The colour of an effect is that of the action of a finding.
_STYLES: Final = {
    Effect.BREAKS: "deny",
    Effect.UNKNOWN: "dryrun",
    Effect.FEWER_NODES: "warn",
    Effect.WARNS: "warn",
}


def html(result: WhatIf, summary: str, language: Language) -> str:
    """Return an HTML document. summary: the first line of the text output."""
    counts = [
        element("li", element("strong", str(result.count(effect))), _word(effect, language))
        for effect in Effect
        if effect not in (Effect.UNCHANGED, Effect.MORE_NODES)
    ]
    introduction = [element("p", summary), element("ul", *counts, class_="counts")]
    sections = [
        Section("changes", _CHANGES.in_language(language), list(_changes(result, language))),
        Section("reasons", _REASONS.in_language(language), list(_reasons(result, language))),
        Section("workloads", _WORKLOADS.in_language(language), list(_workloads(result, language))),
    ]
    return page(_TITLE.in_language(language), language, introduction, sections)


def _changes(result: WhatIf, language: Language) -> Iterator[Html]:
    yield element("ul", *(element("li", each.text.in_language(language)) for each in result.changes))


def _reasons(result: WhatIf, language: Language) -> Iterator[Html]:
    if not result.by_reason:
        yield element("p", _NOTHING.in_language(language))
        return
    headings = [heading(each, language) for each in ("reason", "effect", "workloads")]
    cells = [
        [row_heading(reason, "text"), _effect(effect, language), cell(str(number), "number")]
        for effect, reason, number in result.by_reason
    ]
    yield table(_REASONS_ABOUT.in_language(language), headings, cells)


def _workloads(result: WhatIf, language: Language) -> Iterator[Html]:
    headings = [heading(each, language) for each in ("workload", "effect")]
    headings += [_NODES.in_language(language), heading("to move", language), heading("reason", language)]
    by_namespace: dict[str, list[WorkloadChange]] = {}
    for each in rows(result, wide=True):
        by_namespace.setdefault(each.subject.namespace, []).append(each)
    if not by_namespace:
        yield element("p", _NOTHING.in_language(language))
    for namespace, found in sorted(by_namespace.items()):
        name = _IN.in_language(language).format(namespace=namespace)
        yield element("h3", name)
        cells = [
            [
                row_heading(each.subject.owner),
                _effect(each.effect, language),
                cell(f"{_number(each.before)} → {_number(each.after)}"),
                cell(str(each.after.moving), "number"),
                cell("; ".join(one.line for one in each.reasons), "text"),
            ]
            for each in found
        ]
        yield table(name, headings, cells[:_MOST_ROWS])
        if left_out := len(cells[_MOST_ROWS:]):
            yield element("p", _MORE.in_language(language).format(count=left_out))


def _effect(effect: Effect, language: Language) -> Html:
    return cell(_word(effect, language), _STYLES.get(effect, ""))


def _word(effect: Effect, language: Language) -> str:
    return value("effect", effect.value, language)


def _number(runs: Runs) -> str:
    return "–" if runs.nodes is None else str(len(runs.nodes))
