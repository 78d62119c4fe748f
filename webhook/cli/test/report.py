"""Reports of rule tests, in formats for people and for CI systems."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

import click

from rules import Language, RuleError
from rules.text.i18n import Joined
from rules.text.printable import printable, printable_json
from webhook.cli.report.junit import xml
from webhook.cli.terminal.console import counted
from webhook.cli.terminal.vocabulary import (
    FAILED,
    INVALID_FILES,
    LEGEND,
    NO_CASES,
    NOT_SELECTED,
    PASSED,
    PATCH_WRITTEN,
    PATCHES_WRITTEN,
    TEST_SUMMARY,
)
from webhook.cli.test.comparison import ACTUAL, BOTH, EXPECTED
from webhook.cli.test.runner import CaseResult, FileResult

_COLOURS: Final = {EXPECTED: "red", ACTUAL: "green", BOTH: None}


def text_of(tested: FileResult, language: Language) -> str:
    """Return the line of a file, followed by its failed cases. `errors_of` returns its errors."""
    counts = (
        (PASSED, len(tested.results) - tested.failed),
        (FAILED, tested.failed),
        (NOT_SELECTED, tested.skipped),
        (PATCH_WRITTEN if tested.written == 1 else PATCHES_WRITTEN, tested.written),
    )
    parts = [text.having(count=count) for text, count in counts if count]
    summary = Joined(", ", parts or [NO_CASES]).in_language(language)
    bad = bool(tested.failed or tested.errors)
    mark = click.style("✗" if bad else "✓", fg="red" if bad else "green", bold=True)
    lines = [f"{mark} {tested.file}: {summary}"]
    for result in tested.results:
        lines += _failure(result, styled=True) if result.differences else ()
    return "\n".join(lines)


def summary_of(files: Sequence[FileResult], language: Language) -> str:
    """Return the last line of the text report."""
    cases, failed = sum(len(tested.results) for tested in files), sum(tested.failed for tested in files)
    invalid = sum(bool(tested.errors) for tested in files)
    counts = [(PASSED, cases - failed), (FAILED, failed)] + [(INVALID_FILES, invalid)] * bool(invalid)
    results = Joined(", ", [text.having(count=count, files=counted(count, "file")) for text, count in counts])
    summary = TEST_SUMMARY.having(
        cases=counted(cases, "case"), files=counted(len(files), "file"), results=results
    )
    return summary.in_language(language) + (LEGEND.in_language(language) if failed else "")


def errors_of(files: Sequence[FileResult]) -> list[RuleError]:
    """Return all errors in tests and rules, each once."""
    return list({str(error): error for tested in files for error in tested.errors}.values())


def _failure(result: CaseResult, *, styled: bool) -> Iterator[str]:
    """Yield the lines that describe a failed case."""
    location = result.case.location
    title = f"{location.file}:{location.line}: {result.case.name}"
    yield f"    {click.style('✗', fg='red')} {click.style(printable(title), bold=True)}" if styled else title
    for difference in result.differences:
        yield f"        {printable(difference.key)}"
        for mark, text in difference.lines:
            line = printable(f"{mark} {text}", "\n").replace("\n", f"\n{' ' * 12}")
            yield f"          {click.style(line, fg=_COLOURS[mark]) if styled else line}"


def json_of(files: Sequence[FileResult]) -> str:
    """Return one JSON object with all cases, errors and counts."""
    cases = [
        {
            "file": tested.file,
            "line": result.case.location.line,
            "name": result.case.name,
            "passed": not result.differences,
            "seconds": round(result.seconds, 6),
            "differences": [
                {
                    "what": difference.key,
                    "expected": difference.marked(EXPECTED),
                    "found": difference.marked(ACTUAL),
                }
                for difference in result.differences
            ],
        }
        for tested in files
        for result in tested.results
    ]
    errors = [
        {
            "file": error.location.file,
            "line": error.location.line,
            "column": error.location.column,
            "path": error.path,
            "message": error.message,
        }
        for error in errors_of(files)
    ]
    failed = sum(tested.failed for tested in files)
    counts = {"files": len(files), "passed": len(cases) - failed, "failed": failed}
    counts |= {"notChosen": sum(tested.skipped for tested in files), "errors": len(errors)}
    return printable_json(
        json.dumps({"cases": cases, "errors": errors, "summary": counts}, ensure_ascii=False)
    )


def junit_of(files: Sequence[FileResult]) -> str:
    """Return JUnit XML with a suite for each file; an error in a test or a rule is a case with an error."""
    suites = ET.Element("testsuites", name="gpugate test")
    for tested in files:
        facts: dict[str, Any] = {
            "name": tested.file,
            "file": tested.file,
            "tests": len(tested.results) + len(tested.errors),
            "failures": tested.failed,
            "errors": len(tested.errors),
            "skipped": 0,
            "time": f"{sum(result.seconds for result in tested.results):.6f}",
        }
        suite = ET.SubElement(suites, "testsuite", {name: str(fact) for name, fact in facts.items()})
        for result in tested.results:
            case = _testcase(suite, tested.file, result.case.name, result.case.location.line, result.seconds)
            if result.differences:
                keys = ", ".join(difference.key for difference in result.differences)
                failure = ET.SubElement(
                    case, "failure", type="difference", message=f"not as expected: {keys}"
                )
                failure.text = "\n".join(_failure(result, styled=False))
        for error in tested.errors:
            case = _testcase(suite, error.location.file, error.path or "document", error.location.line, 0)
            ET.SubElement(case, "error", type="error", message=error.message).text = str(error)
    return xml(suites)


def _testcase(suite: ET.Element, file: str, name: str, line: int, seconds: float) -> ET.Element:
    facts = {"name": name, "classname": file, "file": file, "line": str(line), "time": f"{seconds:.6f}"}
    return ET.SubElement(suite, "testcase", facts)


MACHINE_FORMATS: Final[dict[str, Callable[[Sequence[FileResult]], str]]] = {
    "json": json_of,
    "junit": junit_of,
}
