"""The formats of a report that programs read, by their names in `--output`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from webhook.cli.report.annotations import Annotation, github, markdown, sarif
from webhook.cli.report.junit import Case, junit
from webhook.cli.report.policy_reports import open_reports, policy_reports
from webhook.cli.report.report_model import Evaluated, Report
from webhook.yaml_output import dump_yaml

_LEVELS: Final = {"deny": "error", "warn": "warning", "dryrun": "notice"}
_WARNING_CODE: Final = "warning"  # of a warning without a rule
_NOT_CHECKED_CODE: Final = "not-checked"
_TOOL: Final = "gpugate audit"


def _sarif(report: Report) -> str:
    found = list(_annotations(report))
    return sarif(found, _TOOL, {each.code: "" for each in found})


def _github(report: Report) -> str:
    return github([each for each in _annotations(report) if each.file])


def _markdown(report: Report) -> str:
    summary = "\n".join((report.summary, *report.notes))
    return markdown(list(_annotations(report)), _TOOL, summary, report.language)


def _junit(report: Report) -> str:
    return junit(map(_case, report.objects), _TOOL)


def _policy_reports(report: Report) -> str:
    return _documents(policy_reports(report))


def _open_reports(report: Report) -> str:
    return _documents(open_reports(report))


def _documents(documents: list[dict[str, Any]]) -> str:
    return "".join(f"---\n{dump_yaml(each)}" for each in documents).rstrip("\n")


def _annotations(report: Report) -> Iterator[Annotation]:
    """Yield what was found and what was not checked, at the lines of the objects if these are of files."""
    for each in report.objects:
        file, _, line = each.source.rpartition(":")
        for level, code, message in _messages(each):
            yield Annotation(level, code, file, int(line or 0), 1, f"{each.title}: {message}", each.title)


def _messages(each: Evaluated) -> Iterator[tuple[str, str, str]]:
    for found in each.findings:
        yield _LEVELS[found.action], found.rule or _WARNING_CODE, found.message
    for line in each.not_checked:
        yield "notice", _NOT_CHECKED_CODE, line


def _case(each: Evaluated) -> Case:
    """Return an object as a test case of its file, or of its namespace."""
    return Case(
        each.source.rpartition(":")[0] or each.namespace,
        each.source or f"{each.namespace}.{each.kind}",
        each.title,
        tuple(found.message for found in each.findings if found.action == "deny"),
        tuple(found.message for found in each.findings if found.action == "warn"),
        each.not_checked,
    )


FORMATS: Final[dict[str, Callable[[Report], str]]] = {
    "sarif": _sarif,
    "junit": _junit,
    "github": _github,
    "markdown": _markdown,
    "policyreport": _policy_reports,
    "openreports": _open_reports,
}
