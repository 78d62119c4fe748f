"""A report as one HTML file: what would fix most, findings by team, what was not checked, and the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rules import Action, Language
from rules.model.check_result import level_of
from rules.text.i18n import Message
from webhook.cli.matrix.matrix import LEVEL_LABELS, Cell, Footnotes, Table, footnotes, letters
from webhook.cli.report.html_page import (
    Html,
    Section,
    cell,
    element,
    join,
    message_cell,
    page,
    row_heading,
    table,
)
from webhook.cli.report.model import DENY, EFFECTS, NOT_CHECKED, WARN, Report
from webhook.cli.terminal.console import counted
from webhook.cli.terminal.vocabulary import ACTIONS

# Rows of a table; a browser shows some thousand at once.
_MOST_ROWS: Final = 2000

_EVALUATED: Final = Message("workloads evaluated")
_DENIED: Final = Message("would be denied")
_WARNED: Final = Message("with warnings only")
_PARTLY: Final = Message("not fully checked")
_FIXES: Final = Message("What would fix most")
_FIXES_ABOUT: Final = Message("Fixes of denials. A workload is freed if this fix is all that it needs.")
_FIX: Final = Message("Fix")
_FREES: Final = Message("Workloads freed")
_HELPS: Final = Message("Workloads that need more")
_RULE: Final = Message("Rule")
_FINDINGS: Final = Message("Findings by team")
_IN_NAMESPACE: Final = Message("Namespace {namespace}")
_FINDINGS_OF: Final = Message("Findings in namespace {namespace}")
_OWNER: Final = Message("Workload")
_ACTION: Final = Message("Action")
_OBJECTS: Final = Message("Objects")
_FINDING: Final = Message("Finding")
_NO_FINDINGS: Final = Message("Nothing was found in what was checked.")
_NO_DENIALS: Final = Message("Nothing is denied.")
_NOT_CHECKED: Final = Message("Not checked")
_NOT_CHECKED_ABOUT: Final = Message("Parts of objects of which nothing is known: they may or may not run.")
_REASON: Final = Message("Reason")
_ALL_CHECKED: Final = Message("Everything was checked.")
_MATRIX: Final = Message("CUDA runtimes and nodes")
_NO_MATRIX: Final = Message("No node has GPU labels.")
_NODES: Final = Message(" ({nodes})")
_RUNTIME: Final = Message("Runtime")
_SOURCES: Final = Message("Rules and nodes")
_MORE: Final = Message("{count} more rows are left out (use -o json to list all)")


class _Row(NamedTuple):
    action: str
    owner: str
    rule: str
    message: str


def html(report: Report) -> str:
    """Return an HTML document."""
    language = report.language
    denied, warned, unchecked = (
        {each.team for each in report.targets if each.messages(effect)}
        for effect in (DENY, WARN, NOT_CHECKED)
    )
    numbers = {
        _EVALUATED: len({each.team for each in report.targets}),
        _DENIED: len(denied),
        _WARNED: len(warned - denied),
        _PARTLY: len(unchecked),
    }
    counts = [
        element("li", element("strong", str(number)), label.in_language(language))
        for label, number in numbers.items()
    ]
    introduction = [element("p", report.summary), element("ul", *counts, class_="counts")]
    sections = [
        Section("fixes", _FIXES.in_language(language), list(_fixes(report))),
        Section("findings", _FINDINGS.in_language(language), list(_findings(report))),
        Section("not-checked", _NOT_CHECKED.in_language(language), list(_not_checked(report))),
        Section("matrix", _MATRIX.in_language(language), list(_matrix(report.tables, language))),
        Section("sources", _SOURCES.in_language(language), list(_sources(report))),
    ]
    return page(report.title, language, introduction, sections).rstrip("\n")


def _fixes(report: Report) -> Iterator[Html]:
    language, fixes = report.language, report.fixes()
    if not fixes:
        yield element("p", _NO_DENIALS.in_language(language))
        return
    headings = [each.in_language(language) for each in (_FIX, _RULE, _FREES, _HELPS)]
    rows = [
        [
            row_heading(fix.text, "text"),
            cell(fix.rule),
            cell(str(fix.frees), "number"),
            cell(str(fix.helps), "number"),
        ]
        for fix in fixes
    ]
    yield from _bounded(_FIXES_ABOUT.in_language(language), headings, rows, language)


def _findings(report: Report) -> Iterator[Html]:
    language = report.language
    headings = [each.in_language(language) for each in (_OWNER, _ACTION, _OBJECTS, _RULE, _FINDING)]
    empty = True
    for namespace, targets in report.by_namespace().items():
        counted = Counter(
            row
            for each in targets
            for row in dict.fromkeys(
                _Row(found.effect, each.owner, found.rule, found.message)
                for found in each.findings
                if found.effect != NOT_CHECKED
            )
        )
        if not counted:
            continue
        empty = False
        rows = [
            [
                row_heading(row.owner),
                cell(ACTIONS[Action(row.action)].in_language(language), row.action),
                cell(str(number), "number"),
                cell(row.rule),
                message_cell(row.message),
            ]
            for row, number in sorted(
                counted.items(), key=lambda item: (EFFECTS.index(item[0].action), item[0][1:])
            )
        ]
        yield element("h3", _IN_NAMESPACE.in_language(language).format(namespace=namespace))
        caption = _FINDINGS_OF.in_language(language).format(namespace=namespace)
        yield from _bounded(caption, headings, rows, language)
    if empty:
        yield element("p", _NO_FINDINGS.in_language(language))


def _not_checked(report: Report) -> Iterator[Html]:
    language, found = report.language, report.not_checked()
    if not found:
        yield element("p", _ALL_CHECKED.in_language(language))
        return
    headings = [each.in_language(language) for each in (_REASON, _OBJECTS)]
    rows = [[row_heading(reason, "text"), cell(str(number), "number")] for reason, number in found.items()]
    yield from _bounded(_NOT_CHECKED_ABOUT.in_language(language), headings, rows, language)


def _sources(report: Report) -> Iterator[Html]:
    facts = (
        each for item in report.facts.items() for each in (element("dt", item[0]), element("dd", item[1]))
    )
    yield element("dl", *facts)
    for note in report.notes:
        yield element("p", note)


def _bounded(
    caption: str, headings: Sequence[str], rows: Sequence[Sequence[Html]], language: Language
) -> Iterator[Html]:
    """Yield a table of the first rows, and how many are left out."""
    yield table(caption, headings, rows[:_MOST_ROWS])
    if left_out := len(rows[_MOST_ROWS:]):
        yield element("p", _MORE.in_language(language).format(count=left_out))


def _matrix(tables: Sequence[Table], language: Language) -> Iterator[Html]:
    """Yield a table that a screen reader reads cell by cell, which a picture is not."""
    if not tables:
        yield element("p", _NO_MATRIX.in_language(language))
        return
    notes = footnotes(tables)
    for one in tables:
        headings = [_RUNTIME.in_language(language)]
        for column in one.columns:
            count = int(column.facts["nodes"] or 0)
            nodes = _NODES.having(nodes=counted(count, "node"))
            headings.append(f"{column.name(language)}{nodes.in_language(language)}")
        rows = [
            [row_heading(f"CUDA {cuda}"), *(_level(each, notes, language) for each in cells)]
            for cuda, cells in one.rows()
        ]
        yield table(one.title.in_language(language), headings, rows, "matrix")
    legend = (f"{each.mark} {each.text.in_language(language)}" for each in LEVEL_LABELS.values())
    yield element("p", "   ".join(legend), class_="dim")
    shown = []
    for note in dict.fromkeys(notes.values()):
        reason, error = note.reason.in_language(language), note.error.in_language(language)
        dim = element("span", f" {error}", class_="dim") if error else ""
        shown += [element("dt", note.letter), element("dd", reason, dim)]
    if shown:
        yield element("dl", *shown)


def _level(found: Cell, notes: Footnotes, language: Language) -> Html:
    """Return a cell: the mark with the letters of its footnotes, and for screen readers its words."""
    level, raised = level_of(found), letters(found, notes)
    label = LEVEL_LABELS[level]
    seen = element("span", f"{label.mark}{raised}", aria_hidden="true")
    heard = element(
        "span", " ".join(filter(None, (label.text.in_language(language), raised))), class_="hidden"
    )
    return cell(join((seen, heard)), level.name.lower())
