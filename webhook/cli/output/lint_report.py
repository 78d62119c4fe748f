"""Reports of errors in rule files, in formats for people and for CI systems."""

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

from rules import Language, Loaded, RuleError
from rules.schema.errors import Code
from webhook.cli.output.vocabulary import LEVELS

# The description of each code; docs/ci.md has the same.
ABOUT: Final[dict[Code, str]] = {
    Code.NOT_YAML: "The text is not valid YAML or exceeds a limit",
    Code.DUPLICATE_KEY: "A key occurs twice in an object",
    Code.UNKNOWN_KEY: "A key is unknown",
    Code.MISSING_KEY: "A required key is missing",
    Code.WRONG_TYPE: "A value has the wrong type",
    Code.WRONG_VALUE: "A value is not allowed for its key",
    Code.BAD_EXPRESSION: "A CEL expression does not compile or uses an unknown name",
    Code.BAD_LABEL: "A label of the rule is missing or invalid",
    Code.BAD_NAME: "The name of a resource rule does not begin with cf-crl-",
    Code.WRONG_NAMESPACE: "A rule is outside the rules namespace",
    Code.CONFLICT: "Two rules have the same name or the same resource",
    Code.TOO_LARGE: "A ConfigMap is larger than Kubernetes stores or gpugate reads",
    Code.NEVER_MATCHES: "A rule or one of its patterns cannot match anything",
    Code.NEVER_SATISFIED: "A requirement cannot be satisfied by any container",
    Code.NO_EFFECT: "A value has no effect",
    Code.MISSPELT_RESOURCE: "A resource matches no rule, but its name is similar to the key of a rule",
    Code.HALF_GROUP: "A rule is disabled while other rules of its group are enabled",
    Code.MIXED_LABELS: "The older and the newer spelling of a label have different values",
    Code.ODD_NAME: "The name of a resource rule does not end with its key",
    Code.NO_NAMESPACE: "A rule has no namespace, so it may be applied to a namespace where it has no effect",
    Code.MISSING_VOLUME: "A mounted volume is not injected by any rule",
    Code.COMPETING_VALUES: "Two rules set different values for a variable of the same containers",
    Code.EXPIRED: "An exemption has expired",
    Code.EXEMPTS_NOTHING: "An exemption does not match any rule",
    Code.EXEMPTS_EVERYONE: "An exemption applies to every pod",
    Code.CONTRADICTION: "A node profile contradicts itself, its product, another profile, or present nodes",
    Code.NOTHING_KNOWN: "A node profile states nothing that decides which images run",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One error or warning; `level` says which."""

    level: str
    error: RuleError
    language: Language

    @property
    def message(self) -> str:
        """The text on one line, with the path in the document and without the position in the file."""
        text = ": ".join(filter(None, (self.error.path, self.error.text.in_language(self.language))))
        return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


@dataclass(frozen=True, slots=True)
class Report:
    """The names of the files, and the findings in them."""

    files: Sequence[str]
    found: Sequence[Finding]
    language: Language = Language.EN


def report(loaded: Loaded, files: Sequence[str], language: Language) -> Report:
    """Return the findings of loaded rules in the order of files and lines; language: of the messages."""
    found = [Finding("error", error, language) for error in loaded.errors]
    found += [Finding("warning", error, language) for error in loaded.warnings]

    def place(finding: Finding) -> tuple[int, int, int]:
        location = finding.error.location
        return files.index(location.file), location.line, location.column

    return Report(files, sorted(found, key=place), language)


def _text(report: Report) -> str:
    levels = {
        level: click.style(LEVELS[level].in_language(report.language), fg=colour, bold=True)
        for level, colour in (("error", "red"), ("warning", "yellow"))
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
                    "message": finding.error.text.in_language(report.language),
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
        # Columns are counted in characters; the default unit is UTF-16 code units.
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(document, ensure_ascii=False, indent=2)


def _uri(file: str) -> str:
    """Return the URI of a file: relative if its path is."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")


def _junit(report: Report) -> str:
    """JUnit XML with a test case for each file: errors are failures, warnings are output."""
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
