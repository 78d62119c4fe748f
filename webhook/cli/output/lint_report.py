"""Mistakes in rule files, in the formats that people and CI systems read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from xml.etree import ElementTree as ET

import click

from rules import Loaded, RuleError
from rules.schema.errors import Code

# What each code is about; docs/ci.md has the same.
ABOUT: Final[dict[Code, str]] = {
    Code.NOT_YAML: "The text is no YAML, or more of it than a reader takes",
    Code.DUPLICATE_KEY: "A key stands twice in an object",
    Code.UNKNOWN_KEY: "A key that rules do not have",
    Code.MISSING_KEY: "A key that rules must have",
    Code.WRONG_TYPE: "A value of another type than its key wants",
    Code.WRONG_VALUE: "A value that its key does not take",
    Code.BAD_EXPRESSION: "A CEL expression that does not compile or names what is not there",
    Code.BAD_LABEL: "A label that says what a rule is, is missing or wrong",
    Code.BAD_NAME: "A resource rule's name does not begin with cf-crl-",
    Code.WRONG_NAMESPACE: "A rule outside the namespace in which rules live",
    Code.CONFLICT: "Two rules of the same name, or for the same resource",
    Code.NEVER_MATCHES: "A rule or one of its patterns that nothing can match",
    Code.NEVER_SATISFIED: "A demand that no container can fulfil",
    Code.NO_EFFECT: "A value that nothing makes use of",
    Code.MISSPELT_RESOURCE: "A resource that no rule is for, spelt almost as one that a rule is for",
    Code.HALF_GROUP: "A rule that is off while others of its group are on",
    Code.MIXED_LABELS: "The older and the newer spelling of a label disagree",
    Code.ODD_NAME: "A resource rule's name does not end in its key",
    Code.MISSING_VOLUME: "A mount of a volume that no rule brings",
    Code.COMPETING_VALUES: "Two rules give a variable of the same containers different values",
    Code.EXPIRED: "An exemption that has expired",
    Code.EXEMPTS_NOTHING: "An exemption that names no rule",
    Code.EXEMPTS_EVERYONE: "An exemption of every pod",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake (level `error`) or doubt (`warning`)."""

    level: str
    error: RuleError

    @property
    def message(self) -> str:
        """The text on one line with the path in the document, without the place in the file."""
        text = f"{self.error.path}: {self.error.message}" if self.error.path else self.error.message
        return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


@dataclass(frozen=True, slots=True)
class Report:
    """What was read, by the names of files, and what was found in them."""

    files: Sequence[str]
    found: Sequence[Finding]


def report(loaded: Loaded, files: Sequence[str]) -> Report:
    """Return the findings of a load in the order of the files, and of the lines in them."""
    found = [Finding("error", error) for error in loaded.errors]
    found += [Finding("warning", error) for error in loaded.warnings]

    def place(finding: Finding) -> tuple[int, int, int]:
        location = finding.error.location
        return files.index(location.file), location.line, location.column

    return Report(files, sorted(found, key=place))


def _text(report: Report) -> str:
    levels = {
        name: click.style(name, fg=fg, bold=True) for name, fg in (("error", "red"), ("warning", "yellow"))
    }
    return "\n".join(
        f"{finding.error.location}: {levels[finding.level]}: {finding.message} [{finding.error.code}]"
        for finding in report.found
    )


def _json(report: Report) -> str:
    return json.dumps(
        {
            "findings": [
                {
                    "level": finding.level,
                    "code": finding.error.code.value,
                    "file": finding.error.location.file,
                    "line": finding.error.location.line,
                    "column": finding.error.location.column,
                    "rule": finding.error.rule,
                    "path": finding.error.path,
                    "message": finding.error.message,
                }
                for finding in report.found
            ]
        },
        ensure_ascii=False,
    )


def _github(report: Report) -> str:
    """Workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions."""

    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def escaped_property(text: str) -> str:
        return escaped(text).replace(":", "%3A").replace(",", "%2C")

    lines = []
    for finding in report.found:
        place = finding.error.location
        where = f"file={escaped_property(place.file)},line={place.line or 1},col={place.column or 1}"
        where += f",title={finding.error.code}"
        lines.append(f"::{finding.level} {where}::{escaped(finding.message)}")
    return "\n".join(lines)


def _sarif(report: Report) -> str:
    """SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/."""
    codes = list(ABOUT)
    results: list[dict[str, Any]] = [
        {
            "ruleId": finding.error.code.value,
            "ruleIndex": codes.index(finding.error.code),
            "level": finding.level,
            "message": {"text": finding.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(finding.error.location.file)},
                        "region": {
                            "startLine": finding.error.location.line or 1,
                            "startColumn": finding.error.location.column or 1,
                        },
                    }
                }
            ],
        }
        for finding in report.found
    ]
    driver = {
        "name": "gpugate lint",
        "version": version("gpugate"),
        "rules": [{"id": code.value, "shortDescription": {"text": about}} for code, about in ABOUT.items()],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        # Columns count characters; without this they would count UTF-16 units.
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _uri(file: str) -> str:
    """Return a file's URI: relative to where it was named from, or of its own."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")


def _junit(report: Report) -> str:
    """JUnit XML, a test case for each file; one with errors has failed, warnings are its output."""
    suite = ET.Element("testsuite", name="gpugate lint")
    failures = 0
    for file in report.files:
        case = ET.SubElement(suite, "testcase", name=file, classname="gpugate.lint")
        for finding in report.found:
            if finding.error.location.file != file:
                continue
            line = f"{finding.error.location}: {finding.message}"
            if finding.level == "error":
                code = finding.error.code.value
                ET.SubElement(case, "failure", type=code, message=finding.message).text = line
            else:
                ET.SubElement(case, "system-out").text = line
        failures += case.find("failure") is not None
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(failures))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


FORMATS: Final[dict[str, Callable[[Report], str]]] = {
    "text": _text,
    "json": _json,
    "sarif": _sarif,
    "junit": _junit,
    "github": _github,
}
