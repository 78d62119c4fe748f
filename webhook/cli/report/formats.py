"""The formats of a report that programs read, by their names in `--output`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from webhook.cli.report.annotations import github, markdown, sarif
from webhook.cli.report.html_report import html
from webhook.cli.report.junit import junit
from webhook.cli.report.model import Report
from webhook.cli.report.policy_reports import open_reports, policy_reports
from webhook.yaml_output import dump_yaml


def _documents(documents: Iterable[dict[str, Any]]) -> str:
    return "".join(f"---\n{dump_yaml(each)}" for each in documents).rstrip("\n")


FORMATS: Final[dict[str, Callable[[Report], str]]] = {
    "html": html,
    "sarif": sarif,
    "junit": junit,
    "github": github,
    "markdown": markdown,
    "policyreport": lambda report: _documents(policy_reports(report)),
    "openreports": lambda report: _documents(open_reports(report)),
}
# Those that need no cluster.
CI_FORMATS: Final = ("sarif", "junit", "github", "markdown")
