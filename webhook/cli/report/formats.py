"""The formats of a report that programs read, by their names in `--output`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final

from webhook.cli.report.model import Report


def _writer(module: str, function: str) -> Callable[[Report], str]:
    """Return a function of a module beside this one, which is imported when the function is called."""

    def write(report: Report) -> str:
        text: str = getattr(import_module(f"webhook.cli.report.{module}"), function)(report)
        return text

    return write


FORMATS: Final = {
    "html": _writer("html", "html"),
    "sarif": _writer("annotations", "sarif"),
    "junit": _writer("junit", "junit"),
    "github": _writer("annotations", "github"),
    "markdown": _writer("annotations", "markdown"),
    "policyreport": _writer("policy_reports", "policy_reports_yaml"),
    "openreports": _writer("policy_reports", "open_reports_yaml"),
}
# Those that need no cluster.
CI_FORMATS: Final = ("sarif", "junit", "github", "markdown")
