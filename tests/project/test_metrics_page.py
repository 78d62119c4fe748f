"""The pages that list what the code has: metrics and alerts, and the errors of MPS."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

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


def test_the_configuration_of_alertmanager_sends_each_alert_to_a_receiver_that_it_defines() -> None:
    """By name and severity, the only labels that all alerts have."""
    page = text_of("docs/metrics.md")
    configuration = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    receivers = {receiver["name"] for receiver in configuration["receivers"]}
    alerts = re.findall(r"^\| `(\w+)` \| (critical|warning) \|", page, re.MULTILINE)

    assert len(alerts) > 10
    sent = {(severity, _receiver(configuration["route"], name, severity)) for name, severity in alerts}
    assert {("critical", "gpu-on-call"), ("warning", "gpu-platform")} == sent
    assert {receiver for _, receiver in sent} < receivers
    assert {_receiver(configuration["route"], "Other", "critical")} < receivers


def _receiver(route: dict[str, Any], name: str, severity: str) -> str:
    """Return the receiver of the first route all of whose matchers match an alert."""
    labels = {"alertname": name, "severity": severity}
    for child in route["routes"]:
        matchers = [re.fullmatch(r'(\w+) =~? "(.+)"', matcher) for matcher in child["matchers"]]
        if all(match and re.fullmatch(match[2], labels[match[1]]) for match in matchers):
            return str(child["receiver"])
    return str(route["receiver"])


@pytest.mark.parametrize(("page", "language"), [("docs/mps.md", "en"), ("docs/zh/mps.md", "zh")])
def test_the_page_of_mps_has_every_error_of_mps(page: str, language: str) -> None:
    """With the cause and fix of the facts."""
    rows = [row for row in read_table("errors") if "Mps" in row["runtime"]]

    assert len(rows) >= 6
    for row in rows:
        line = f"| {row['code']} | `{row['message']}` | {row['cause'][language]} | {row['fix'][language]} |"
        assert line in text_of(page).splitlines()
