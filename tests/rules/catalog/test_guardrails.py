"""The guardrails: all are off, each is in a set, and a pod that satisfies all of them is admitted."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml

from rules.decision.policy import Policy, compile_policy
from rules.schema.loader import load_rules
from tests.support.builders import container, decision, pod
from tests.support.chart import MANIFESTS, SCHEMA
from tests.support.paths import ROOT

FOLDER = ROOT / "rules/catalog/guardrails"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if "kind: ConfigMap" in path.read_text("utf-8"))
SETS = ("baseline", "namespaces", "placement", "training")
OTHERS = ("pgpu/gpu.yaml", "pgpu/compatibility.yaml")
GUARDED: dict[str, Any] = {
    "restartPolicy": "Never",
    "activeDeadlineSeconds": 3600,
    "runtimeClassName": "nvidia",
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
}
MAIN = container(
    {"nvidia.com/gpu": "2", "memory": "64Gi", "cpu": "8"},
    env=[{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
    volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}],
)


@cache
def _policy(*others: str, enabled: bool = True) -> Policy:
    """Return the policy of the guardrails and other files of the catalogue."""
    paths = [*FILES, *(ROOT / "rules/catalog" / name for name in (*OTHERS, *others))]
    texts = [(path.name, path.read_text("utf-8")) for path in paths]
    if enabled:
        texts = [(name, text.replace('enabled: "false"', 'enabled: "true"')) for name, text in texts]
    read = load_rules(texts)
    assert [] == [str(error) for error in read.errors]
    return compile_policy(read.rules)


def test_a_pod_that_satisfies_all_of_them_has_no_violation_and_no_warning() -> None:
    """Not of NVIDIA_DRIVER_CAPABILITIES either, which a guardrail suggests."""
    answer = decision(_policy(), pod(MAIN, **GUARDED))

    assert (True, (), ()) == (answer.allowed, answer.violations, answer.warning_lines)


@pytest.mark.parametrize("lacking", GUARDED)
def test_each_field_of_the_pod_is_demanded_by_one(lacking: str) -> None:
    """Without it, the pod is denied; restartPolicy is none, as servers need no deadline."""
    spec = {name: value for name, value in GUARDED.items() if name != lacking}
    answer = decision(_policy(), pod(MAIN, **spec))

    assert (1 if lacking != "restartPolicy" else 0) == len(answer.violations)


def test_memory_that_an_injection_rule_mounts_satisfies_the_guardrail() -> None:
    """Validations are of the pod as it will be stored."""
    spec = {name: value for name, value in GUARDED.items() if name != "volumes"}
    document = pod({key: value for key, value in MAIN.items() if key != "volumeMounts"}, **spec)
    injected = _policy("injection/shared-memory.yaml")

    assert [False, True] == [
        decision(policy, document, mutating=True).allowed for policy in (_policy(), injected)
    ]


def test_disabled_ones_are_not_even_looked_up() -> None:
    """They cost nothing."""
    plan = _policy(enabled=False).plan_for(("nvidia.com/gpu",))

    assert ["cf-crl-pgpu-gpu"] == [rule.name for rule in plan.resources]


def test_each_rule_is_in_a_set_that_a_component_and_the_chart_have() -> None:
    """By its label; it is disabled."""
    labels = [yaml.safe_load(path.read_text("utf-8"))["metadata"]["labels"] for path in FILES]
    chart = json.loads(SCHEMA.read_text("utf-8"))["properties"]["rules"]["properties"]["guardrails"]

    assert {*SETS} == {label["gpugate.dev/guardrails"] for label in labels}
    assert {*SETS} == {path.name for path in (MANIFESTS / "components/guardrails").iterdir()}
    assert [*SETS] == chart["items"]["enum"]
    assert {"false"} == {label["features.cpaas.io/enabled"] for label in labels}
