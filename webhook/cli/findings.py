"""Mistakes in rule files, in the formats that people and CI systems read."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import groupby
from typing import Any, Final
from xml.etree import ElementTree as ET

import click

from rules.error import RuleError
from rules.load import Loaded


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake (level `error`) or doubt (`warning`)."""

    level: str
    error: RuleError

    @property
    def message(self) -> str:
        """The text with the path in the document, without the place in the file."""
        return f"{self.error.path}: {self.error.message}" if self.error.path else self.error.message


def findings(loaded: Loaded) -> list[Finding]:
    """Return the findings of a load by file and line."""
    found = [Finding("error", error) for error in loaded.errors]
    found += [Finding("warning", error) for error in loaded.warnings]
    place = [(finding.error.location.file, finding.error.location.line) for finding in found]
    return [finding for _, finding in sorted(zip(place, found, strict=True), key=lambda pair: pair[0])]


def _text(found: Sequence[Finding]) -> str:
    levels = {
        name: click.style(name, fg=fg, bold=True) for name, fg in (("error", "red"), ("warning", "yellow"))
    }
    return "\n".join(
        f"{finding.error.location}: {levels[finding.level]}: {finding.message}" for finding in found
    )


def _json(found: Sequence[Finding]) -> str:
    return json.dumps(
        {
            "findings": [
                {
                    "level": finding.level,
                    "file": finding.error.location.file,
                    "line": finding.error.location.line,
                    "column": finding.error.location.column,
                    "rule": finding.error.rule,
                    "path": finding.error.path,
                    "message": finding.error.message,
                }
                for finding in found
            ]
        },
        ensure_ascii=False,
    )


def _github(found: Sequence[Finding]) -> str:
    """Workflow commands: https://docs.github.com/actions/reference/workflow-commands-for-github-actions."""

    def escaped(text: str) -> str:
        return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

    def escaped_property(text: str) -> str:
        return escaped(text).replace(":", "%3A").replace(",", "%2C")

    lines = []
    for finding in found:
        place = finding.error.location
        where = f"file={escaped_property(place.file)},line={place.line or 1},col={place.column or 1}"
        lines.append(f"::{finding.level} {where}::{escaped(finding.message)}")
    return "\n".join(lines)


def _sarif(found: Sequence[Finding]) -> str:
    """SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/."""
    results: list[dict[str, Any]] = [
        {
            "ruleId": finding.level,
            "level": finding.level,
            "message": {"text": finding.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": finding.error.location.file},
                        "region": {
                            "startLine": finding.error.location.line or 1,
                            "startColumn": finding.error.location.column or 1,
                        },
                    }
                }
            ],
        }
        for finding in found
    ]
    driver = {
        "name": "gpugate lint",
        "version": version("gpugate"),
        "rules": [
            {"id": "error", "shortDescription": {"text": "The rule cannot be put into force"}},
            {"id": "warning", "shortDescription": {"text": "The rule may not do what was meant"}},
        ],
    }
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _junit(found: Sequence[Finding]) -> str:
    """JUnit XML, a test case for each file with findings, or one that passed."""
    suite = ET.Element("testsuite", name="gpugate lint", failures=str(len(found)))
    for file, group in groupby(found, key=lambda finding: finding.error.location.file):
        case = ET.SubElement(suite, "testcase", name=file, classname="gpugate.lint")
        for finding in group:
            failure = ET.SubElement(case, "failure", type=finding.level, message=finding.message)
            failure.text = f"{finding.error.location}: {finding.message}"
    if not found:
        ET.SubElement(suite, "testcase", name="all rule files", classname="gpugate.lint")
    suite.set("tests", str(len(suite)))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)


FORMATS: Final[dict[str, Callable[[Sequence[Finding]], str]]] = {
    "text": _text,
    "json": _json,
    "sarif": _sarif,
    "junit": _junit,
    "github": _github,
}
