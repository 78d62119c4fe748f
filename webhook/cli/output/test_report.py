"""Results of rule tests, in the formats that people and CI systems read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET

import click

from rules import RuleError
from rules.ruletest.comparison import BOTH, EXPECTED, FOUND
from webhook.cli.output.console import counted
from webhook.cli.ruletest.runner import FileResult, Result

_COLOURS: Final = {EXPECTED: "red", FOUND: "green", BOTH: None}


def text_of(tested: FileResult) -> str:
    """Return a file's line, and below it each case that is not as expected; mistakes are told elsewhere."""
    counts = [
        (len(tested.results) - tested.failed, "passed"),
        (tested.failed, "failed"),
        (tested.left_out, "not chosen"),
        (tested.written, f"patch{'es' * (tested.written != 1)} written"),
    ]
    told = ", ".join(f"{count} {what}" for count, what in counts if count) or "nothing run"
    bad = bool(tested.failed or tested.mistakes)
    mark = click.style("✗" if bad else "✓", fg="red" if bad else "green", bold=True)
    lines = [f"{mark} {tested.file}: {told}"]
    for result in tested.results:
        lines += _failure(result, styled=True) if result.differences else ()
    return "\n".join(lines)


def summary_of(files: Sequence[FileResult]) -> str:
    """Return the last line for people."""
    cases, failed = sum(len(each.results) for each in files), sum(each.failed for each in files)
    mistaken = sum(bool(each.mistakes) for each in files)
    parts = [f"{cases - failed} passed", f"{failed} failed"]
    parts += [f"{counted(mistaken, 'file')} with mistakes"] if mistaken else []
    legend = "; - expected, + found" if failed else ""
    return f"{counted(cases, 'case')} in {counted(len(files), 'file')}: {', '.join(parts)}{legend}"


def mistakes_of(files: Sequence[FileResult]) -> list[RuleError]:
    """Return all mistakes, those of rules that several files are about once."""
    return list({str(error): error for each in files for error in each.mistakes}.values())


def _failure(result: Result, *, styled: bool) -> Iterator[str]:
    """Yield the lines that say what is not as expected of a case."""
    location = result.case.location
    title = f"{location.file}:{location.line}: {result.case.name}"
    yield f"    {click.style('✗', fg='red')} {click.style(title, bold=True)}" if styled else title
    for difference in result.differences:
        yield f"        {difference.what}"
        for mark, text in difference.lines:
            line = f"{mark} {text}".replace("\n", f"\n{' ' * 12}")
            yield f"          {click.style(line, fg=_COLOURS[mark]) if styled else line}"


def json_of(files: Sequence[FileResult]) -> str:
    """Return one object with every case, every mistake and the counts."""
    cases = [
        {
            "file": each.file,
            "line": result.case.location.line,
            "name": result.case.name,
            "passed": not result.differences,
            "seconds": round(result.seconds, 6),
            "differences": [
                {
                    "what": difference.what,
                    "expected": difference.marked(EXPECTED),
                    "found": difference.marked(FOUND),
                }
                for difference in result.differences
            ],
        }
        for each in files
        for result in each.results
    ]
    errors = [
        {
            "file": error.location.file,
            "line": error.location.line,
            "column": error.location.column,
            "path": error.path,
            "message": error.message,
        }
        for error in mistakes_of(files)
    ]
    failed = sum(each.failed for each in files)
    counts = {"files": len(files), "passed": len(cases) - failed, "failed": failed}
    counts |= {"notChosen": sum(each.left_out for each in files), "errors": len(errors)}
    return json.dumps({"cases": cases, "errors": errors, "summary": counts}, ensure_ascii=False)


def junit_of(files: Sequence[FileResult]) -> str:
    """Return JUnit XML, a suite for each file; a mistake is a case with an error."""
    suites = ET.Element("testsuites", name="gpugate test")
    for each in files:
        facts: dict[str, Any] = {
            "name": each.file,
            "file": each.file,
            "tests": len(each.results) + len(each.mistakes),
            "failures": each.failed,
            "errors": len(each.mistakes),
            "skipped": 0,
            "time": f"{sum(result.seconds for result in each.results):.6f}",
        }
        suite = ET.SubElement(suites, "testsuite", {name: str(fact) for name, fact in facts.items()})
        for result in each.results:
            case = _testcase(suite, each.file, result.case.name, result.case.location.line, result.seconds)
            if result.differences:
                what = ", ".join(difference.what for difference in result.differences)
                failure = ET.SubElement(
                    case, "failure", type="difference", message=f"not as expected: {what}"
                )
                failure.text = "\n".join(_failure(result, styled=False))
        for error in each.mistakes:
            case = _testcase(suite, error.location.file, error.path or "document", error.location.line, 0)
            ET.SubElement(case, "error", type="mistake", message=error.message).text = str(error)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True)


def _testcase(suite: ET.Element, file: str, name: str, line: int, seconds: float) -> ET.Element:
    facts = {"name": name, "classname": file, "file": file, "line": str(line), "time": f"{seconds:.6f}"}
    return ET.SubElement(suite, "testcase", facts)


MACHINE_FORMATS: Final[dict[str, Callable[[Sequence[FileResult]], str]]] = {
    "json": json_of,
    "junit": junit_of,
}
