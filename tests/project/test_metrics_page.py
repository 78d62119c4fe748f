"""The pages that list what the code has: metrics and alerts, and the errors of MPS."""

from __future__ import annotations

import pytest

from rules.cuda.tables import read_table
from tests.support.metrics_page import PAGES, metrics_page
from tests.support.pages import text_of
from tests.support.paths import ROOT


@pytest.mark.parametrize("language", PAGES)
def test_the_page_has_all_metrics_and_alerts(language: str, request: pytest.FixtureRequest) -> None:
    """`--update-golden` writes it again."""
    page, written = PAGES[language], metrics_page(language)
    if request.config.getoption("--update-golden"):
        page.write_text(written, "utf-8")

    assert page.read_text("utf-8") == written


def test_the_page_has_every_alert_of_the_chart() -> None:
    """Whichever way it is installed."""
    files = [*(ROOT / "manifests/monitoring").glob("*.yaml")]
    names = [
        line.split(": ")[1]
        for path in files
        for line in path.read_text("utf-8").splitlines()
        if "- alert: " in line
    ]

    assert {"GpugateNoRules", "GpugateFactsOld"} < set(names)
    assert [] == [name for name in names if f"| `{name}` | " not in text_of("docs/metrics.md")]


@pytest.mark.parametrize(("page", "language"), [("docs/mps.md", "en"), ("docs/zh/mps.md", "zh")])
def test_the_page_of_mps_has_every_error_of_mps(page: str, language: str) -> None:
    """With the cause and fix of the facts."""
    rows = [row for row in read_table("errors") if "Mps" in row["runtime"]]

    assert len(rows) >= 6
    for row in rows:
        line = f"| {row['code']} | `{row['message']}` | {row['cause'][language]} | {row['fix'][language]} |"
        assert line in text_of(page).splitlines()
