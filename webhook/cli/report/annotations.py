"""Findings at lines of files, in the formats of CI systems: SARIF, workflow commands of GitHub, Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import accumulate, chain, takewhile
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from rules import Language
from rules.text.i18n import Message
from rules.text.printable import printable, printable_json
from rules.text.yaml_document import Location
from webhook.cli.report.changes import changes_line
from webhook.cli.report.model import RenderedFinding, Report, Target
from webhook.cli.report.rule_pages import address_of, page_of
from webhook.cli.terminal.vocabulary import LEVELS, MORE_CHANGES, MORE_FINDINGS, MORE_WORKLOADS, heading

# Characters of a report: those of `lint` and `preview` are one comment, of which GitHub takes 65,536.
_MOST_CHARACTERS: Final = 32_000
_MOST_ROWS: Final = 200  # of a table, and lines of a change
_LAST_LINES: Final = 200  # characters of the lines that say how much more there is


def github(report: Report) -> str:
    """Workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions."""

    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def escaped_property(text: str) -> str:
        return escaped(text).replace(":", "%3A").replace(",", "%2C")

    return "\n".join(
        f"::{finding.level} file={escaped_property(place.file)},line={place.line or 1},"
        f"col={place.column or 1},title={escaped_property(finding.code)}::{escaped(_text(target, finding))}"
        for target, finding, place in _located(report)
        if place
    )


def sarif(report: Report) -> str:
    """SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/."""
    located = list(_located(report))
    codes = report.codes or {finding.code: finding.code for _, finding, _ in located}
    indexes = {code: index for index, code in enumerate(codes)}
    results: list[dict[str, Any]] = [
        {
            "ruleId": finding.code,
            "ruleIndex": indexes[finding.code],
            "level": {"notice": "note"}.get(finding.level, finding.level),
            "message": {"text": _text(target, finding)},
            "locations": [_location(target, place)],
        }
        for target, finding, place in located
    ]
    driver = {
        "name": report.tool,
        "version": version("gpugate"),
        "rules": [
            {"id": code, "shortDescription": {"text": about}} | _help(code) for code, about in codes.items()
        ],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        # Columns are counted in characters; the default unit is UTF-16 code units.
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return printable_json(json.dumps(document, ensure_ascii=False, indent=2))


def _help(code: str) -> dict[str, Any]:
    """Return where a built-in rule is explained; `helpUri` is an absolute address."""
    page = page_of(code)
    text: dict[str, Any] = {"help": {"text": page}} if page else {}
    return text | {"helpUri": page} if address_of(code) else text


def _location(target: Target, place: Location | None) -> dict[str, Any]:
    """Return the place in a file, and the object, of which one is known."""
    location: dict[str, Any] = {}
    if place:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": _uri(place.file)},
            "region": {"startLine": place.line or 1, "startColumn": place.column or 1},
        }
    if target.reference:
        location["logicalLocations"] = [{"fullyQualifiedName": target.title, "kind": "object"}]
    return location


def _uri(file: str) -> str:
    """Return the URI of a file: relative if its path is."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")


def markdown(report: Report) -> str:
    """Return a summary for a job or a pull request: its lines, the first findings, and the first changes."""
    located, language = list(_located(report)), report.language
    lines = [f"### {report.tool}", "", report.summary, *(_cell(printable(note)) for note in report.notes)]
    if steps := (plan := report.plan()).steps:
        fixes = plan._replace(steps=tuple(step._replace(fix=_cell(step.fix)) for step in steps))
        lines += ["", plan.heading(language), "", *map(str.strip, fixes.numbered(language))]
    if report.changes is not None:
        lines += ["", changes_line(report.changes, language)]
    for columns, cells, more in (
        (("workload", "before", "after"), _cells_of_changes(report), MORE_WORKLOADS),
        (
            ("level", "source", "finding", "rule"),
            [_cells(report, *finding) for finding in located],
            MORE_FINDINGS,
        ),
    ):
        rows = [[f"| {' | '.join(map(_cell, row))} |"] for row in cells]
        if rows:
            headings = [heading(name, language) for name in columns]
            lines += ["", f"| {' | '.join(headings)} |", "|---" * len(columns) + "|"]
        lines += _first(rows[:_MOST_ROWS], lines, len(rows), more, language)
    changes = [_change_block(target) for target in report.targets if target.change]
    lines += _first(changes, lines, len(changes), MORE_CHANGES, language)
    return "\n".join(lines)


def _first(
    parts: Sequence[list[str]], above: Iterable[str], count: int, more: Message, language: Language
) -> list[str]:
    """Return the lines of the first parts that a report has room for, and how many more there are.

    above: the lines of the report so far. count: of all parts.
    """
    room = _MOST_CHARACTERS - _LAST_LINES - _size(above)
    sizes = accumulate(map(_size, parts))
    fitting = list(takewhile(lambda item: item[1] <= room, zip(parts, sizes, strict=True)))
    left = count - len(fitting)
    last = ["", more.having(count=left).in_language(language)] if left else []
    return [*chain.from_iterable(part for part, _ in fitting), *last]


def _size(lines: Iterable[str]) -> int:
    """Return the characters of lines, with their ends."""
    return sum(len(line) + 1 for line in lines)


def _cells_of_changes(report: Report) -> list[tuple[str, ...]]:
    rows = (change.row(report.language) for change in report.changes or ())
    return [tuple(printable(cell, "\n") for cell in row.values()) for row in rows]


def _cells(
    report: Report, target: Target, finding: RenderedFinding, place: Location | None
) -> tuple[str, ...]:
    level = LEVELS[finding.level].in_language(report.language)
    source = f"{place.file}:{place.line or 1}" if place else target.title
    return level, source, _text(target, finding), finding.code


def _change_block(target: Target) -> list[str]:
    """Return the lines that show the change of an object, as a block that nothing in it can end."""
    change = printable(target.change, "\n").splitlines()
    if len(change) > _MOST_ROWS:
        change = [*change[:_MOST_ROWS], "…"]
    # A fence ends a block only if it is as long as the first.
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", target.change))])
    title = _cell(printable(f"{target.title}: {target.result}"))
    return ["", f"**{title}**", "", f"{fence}diff", *change, fence]


def _cell(text: str) -> str:
    """Return a text as the cell of a table: nothing in it is markup, mentions a person or refers to an issue.

    GitHub looks for mentions in the rendered text, so that only a space between ends one: without a width.
    """
    for character in "\\`*_[]|~#":
        text = text.replace(character, f"\\{character}")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", "<br>")
    return re.sub("[@#]", r"\g<0>&#8203;", text)


def _located(report: Report) -> Iterator[tuple[Target, RenderedFinding, Location | None]]:
    """Yield the findings of which the summary does not say everything, each with its place in a file."""
    for target in report.targets:
        for finding in target.findings:
            if not finding.in_summary:
                yield target, finding, finding.place or target.place


def _text(target: Target, finding: RenderedFinding) -> str:
    """Return the object and the message, with control characters escaped."""
    return printable(": ".join(filter(None, (target.title, finding.message))), "\n")
