"""Reports of errors in rule files, in formats for people and for CI systems."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree as ET

import click

from rules import Language, Loaded, RuleError
from rules.schema.errors import Code
from rules.text.printable import printable, printable_json
from webhook.cli.report.annotations import Annotation, github, markdown, sarif
from webhook.cli.terminal.console import counted
from webhook.cli.terminal.vocabulary import LEVELS, LINT_SUMMARY

_TOOL: Final = "gpugate lint"

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
    Code.MIXED_LABELS: "The older and the newer spelling of a label have different values",
    Code.ODD_NAME: "The name of a resource rule does not end with its key",
    Code.NO_NAMESPACE: "A rule has no namespace, so it may be applied to a namespace where it has no effect",
    Code.MISSING_VOLUME: "A mounted volume is not injected by any rule",
    Code.COMPETING_VALUES: "Two rules set different values for the same field, variable, label or volume",
    Code.EXPIRED: "An exemption has expired",
    Code.EXEMPTS_NOTHING: "An exemption does not match any rule",
    Code.EXEMPTS_EVERYONE: "An exemption applies to every pod",
    Code.EXEMPTS_ANY_TENANT: "An exemption without namespaces, which any tenant can claim",
    Code.CONTRADICTION: "A node profile contradicts itself, its product, another profile, or present nodes; "
    "or a validation contradicts its message",
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
        return printable(text)


@dataclass(frozen=True, slots=True)
class Report:
    """The names of the files, the findings in them, and their numbers in one line."""

    files: Sequence[str]
    found: Sequence[Finding]
    language: Language
    summary: str


def report(loaded: Loaded, files: Sequence[str], language: Language) -> Report:
    """Return the findings of loaded rules in the order of files and lines; language: of the messages."""
    found = [Finding("error", error, language) for error in loaded.errors]
    found += [Finding("warning", error, language) for error in loaded.warnings]

    def place(finding: Finding) -> tuple[int, int, int]:
        location = finding.error.location
        return files.index(location.file), location.line, location.column

    counts = (sum(1 for _ in loaded.rules), len(loaded.errors), len(loaded.warnings))
    nouns = map(counted, counts, ("valid rule", "error", "warning"))
    summary = LINT_SUMMARY.in_language(language).format(*counts, *nouns)
    return Report(files, sorted(found, key=place), language, summary)


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
    text = json.dumps(
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
    return printable_json(text)


def _annotations(report: Report) -> list[Annotation]:
    return [
        Annotation(
            found.level,
            found.error.code.value,
            found.error.location.file,
            found.error.location.line or 1,
            found.error.location.column or 1,
            found.message,
        )
        for found in report.found
    ]


def _github(report: Report) -> str:
    return github(_annotations(report))


def _sarif(report: Report) -> str:
    return sarif(_annotations(report), _TOOL, {code.value: about for code, about in ABOUT.items()})


def _markdown(report: Report) -> str:
    return markdown(_annotations(report), _TOOL, report.summary, report.language)


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
    "markdown": _markdown,
}
