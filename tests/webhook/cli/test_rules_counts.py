"""`gpugate rules --metrics`: rules with their counters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from prometheus_client import generate_latest

from rules import Inventory
from tests.support.builders import DEVICE, injection_rule, loaded, resource_rule
from tests.support.command import gpugate
from tests.support.webhooks import body, pod
from webhook.admission.handler import AdmissionHandler
from webhook.telemetry import metrics

# Names of this file's own: all tests of a run count in one registry.
RULES = (
    resource_rule(name="cf-crl-counted-device", validations=[{"expression": "value <= 8"}]),
    injection_rule({"hostIPC": True}, name="counted-injection"),
    injection_rule({"hostIPC": True}, name="never-counted", match={"namespaces": {"include": ["other"]}}),
)


def _rules(folder: Path, *arguments: str | Path) -> Result:
    """List the rules, written to a folder."""
    for number, text in enumerate(RULES):
        (folder / f"{number}.yaml").write_text(text, "utf-8")
    return gpugate("rules", "--rules", folder, *arguments)


@pytest.fixture
def exposed(tmp_path: Path) -> Path:
    """Handle three reviews, one of them denied, with a stale rule; return the file of metrics."""
    gate = AdmissionHandler(loaded(*RULES))
    gate.set_rules(loaded(*RULES), frozenset({"counted-injection"}))
    gate.answer("validate", body(pod({DEVICE: 1})))
    for count in (1, 9):
        gate.answer("mutate", body(pod({DEVICE: count})))
    path = tmp_path / "metrics.txt"
    path.write_bytes(metrics.exposition(Inventory(), ()))
    gate.set_rules(loaded(*RULES))
    return path


def test_each_rule_has_its_matches_and_violations(exposed: Path, tmp_path: Path) -> None:
    """The sum of several replicas; 0 for a rule that never matched."""
    folder = tmp_path / "rules"
    folder.mkdir()
    result = _rules(folder, "--metrics", exposed, "--metrics", exposed, "-o", "json")
    rules: list[dict[str, Any]] = json.loads(result.stdout)["rules"]

    assert {
        "cf-crl-counted-device": ("enabled", 6, 2),
        "counted-injection": ("stale", 4, 0),
        "never-counted": ("enabled", 0, 0),
    } == {rule["name"]: (rule["state"], rule["matched"], rule["found"]) for rule in rules}


def test_the_table_has_the_counts_after_the_action(exposed: Path, tmp_path: Path) -> None:
    """No counts without metrics."""
    folder = tmp_path / "rules"
    folder.mkdir()
    with_counts, without = (
        _rules(folder, *options).stdout.splitlines()[0].split() for options in (("--metrics", exposed), ())
    )

    assert ["ACTION", "MATCHED", "VIOLATIONS"] == with_counts[3:6]
    assert without == [name for name in with_counts if name not in ("MATCHED", "VIOLATIONS")]


def test_the_stale_metric_of_a_rule_is_removed_when_the_rule_is_valid(exposed: Path) -> None:
    """A fixed rule is not stale."""
    assert 'gpugate_rule_stale{rule="counted-injection"} 1.0' in exposed.read_text("utf-8")
    assert b'gpugate_rule_stale{rule="counted-injection"}' not in generate_latest(metrics.REGISTRY)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not in the Prometheus text format"), ("up 1\n", "contains no metrics of gpugate")],
)
def test_other_metrics_are_reported(tmp_path: Path, text: str, message: str) -> None:
    """With the file's name."""
    path = tmp_path / "metrics.txt"
    path.write_text(text, "utf-8")
    result = _rules(tmp_path, "--metrics", path)

    assert (2, True) == (result.exit_code, f"{path}: {message}" in result.stderr)
