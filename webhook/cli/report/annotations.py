"""Findings at lines of files, in the formats of CI systems: SARIF, workflow commands of GitHub, Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from rules import Language
from rules.text.printable import printable, printable_json
from webhook.cli.terminal.vocabulary import LEVELS, MORE_FINDINGS, heading

# Rows of a table: GitHub shows a summary of 1 MiB at most.
_MOST_ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class Annotation:
    """A finding. level: error, warning or notice. line and column start at 1.

    file: empty for an object of a cluster. subject: the object, as namespace/kind/name, if there is one.
    """

    level: str
    code: str
    file: str
    line: int
    column: int
    message: str
    subject: str = ""

    @property
    def text(self) -> str:
        """The message, with control characters escaped."""
        return printable(self.message, "\n")


def github(found: Sequence[Annotation]) -> str:
    """Workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions."""

    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def escaped_property(text: str) -> str:
        return escaped(text).replace(":", "%3A").replace(",", "%2C")

    return "\n".join(
        f"::{each.level} file={escaped_property(each.file)},line={each.line},col={each.column},"
        f"title={escaped_property(each.code)}::{escaped(each.text)}"
        for each in found
    )


def sarif(found: Sequence[Annotation], tool: str, codes: Mapping[str, str]) -> str:
    """SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/. codes: each code and its description."""
    places = {code: index for index, code in enumerate(codes)}
    results: list[dict[str, Any]] = [
        {
            "ruleId": each.code,
            "ruleIndex": places[each.code],
            "level": {"notice": "note"}.get(each.level, each.level),
            "message": {"text": each.text},
            "locations": [_location(each)],
        }
        for each in found
    ]
    driver = {
        "name": tool,
        "version": version("gpugate"),
        "rules": [{"id": code, "shortDescription": {"text": about or code}} for code, about in codes.items()],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        # Columns are counted in characters; the default unit is UTF-16 code units.
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return printable_json(json.dumps(document, ensure_ascii=False, indent=2))


def _location(each: Annotation) -> dict[str, Any]:
    """Return the place in a file, and the object, of which one is known."""
    found: dict[str, Any] = {}
    if each.file:
        found["physicalLocation"] = {
            "artifactLocation": {"uri": _uri(each.file)},
            "region": {"startLine": each.line, "startColumn": each.column},
        }
    if each.subject:
        found["logicalLocations"] = [{"fullyQualifiedName": each.subject, "kind": "object"}]
    return found


def _uri(file: str) -> str:
    """Return the URI of a file: relative if its path is."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")


def markdown(found: Sequence[Annotation], tool: str, summary: str, language: Language) -> str:
    """Return a summary for a job or a pull request: a line, and a table of the first findings."""
    lines = [f"### {tool}", "", summary]
    if found:
        columns = [heading(name, language) for name in ("level", "source", "finding", "rule")]
        lines += ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for each in found[:_MOST_ROWS]:
        level = LEVELS[each.level].in_language(language)
        source = f"{each.file}:{each.line}" if each.file else each.subject
        cells = (level, source, each.text, each.code)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    if len(found) > _MOST_ROWS:
        lines += ["", MORE_FINDINGS.in_language(language).format(count=len(found) - _MOST_ROWS)]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Return a text as the cell of a table: nothing in it is markup."""
    for character in "\\`*_[]|~#":
        text = text.replace(character, f"\\{character}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;").replace("\n", "<br>")
