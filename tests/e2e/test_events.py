"""Pods that Kubernetes's own controllers create: their changes, and denials as events show them."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.e2e.installed import TEAM, VCUDA_CORE, VCUDA_MEMORY, Installed
from tests.e2e.serve_process import eventually
from tests.support.builders import resource_rule

DEVICE: Final = "events.example.com/device"
# How to make a workload create pods, and not; the kind of the object that creates them.
_STARTS: Final[dict[str, tuple[dict[str, Any], dict[str, Any], str]]] = {
    "Deployment": ({"replicas": 1}, {"replicas": 0}, "replicaset"),
    "StatefulSet": ({"replicas": 1}, {"replicas": 0}, "statefulset"),
    "Job": ({"suspend": False}, {"suspend": True}, "job"),
}


def _workload(kind: str, name: str, limits: dict[str, str], spec: dict[str, Any]) -> str:
    """Return a workload of one container with limits."""
    labels = {"app": name}
    container = {"name": "main", "image": "a", "resources": {"limits": limits}}
    pod: dict[str, Any] = {"containers": [container]}
    if kind == "Job":
        pod["restartPolicy"] = "Never"
    else:
        spec = {**spec, "selector": {"matchLabels": labels}}
    return json.dumps(
        {
            "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {**spec, "template": {"metadata": {"labels": labels}, "spec": pod}},
        }
    )


@pytest.mark.usefixtures("controllers")
@pytest.mark.parametrize("kind", _STARTS)
def test_a_pod_of_a_controller_is_completed_like_any_other(installed: Installed, kind: str) -> None:
    """Nothing of it is written by the test."""
    cluster, name = installed.cluster, f"completed-{kind}".lower()
    starts, _, _ = _STARTS[kind]
    cluster.kubectl("create", "-n", TEAM, "-f", "-", input=_workload(kind, name, {VCUDA_MEMORY: "8"}, starts))
    pods: list[dict[str, Any]] = []

    def created() -> bool:
        shown = cluster.kubectl("get", "pods", "-n", TEAM, "-l", f"app={name}", "-o", "json").stdout
        pods[:] = json.loads(shown)["items"]
        return bool(pods)

    eventually(created)
    cluster.kubectl("delete", "-n", TEAM, f"{kind}/{name}")

    assert [{VCUDA_MEMORY: "8", VCUDA_CORE: "20"}] == [
        pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods
    ]


@pytest.mark.usefixtures("controllers")
@pytest.mark.parametrize("kind", _STARTS)
def test_one_line_of_an_event_shows_the_first_violation_with_its_fix(installed: Installed, kind: str) -> None:
    """`kubectl get events` cuts a message at its first newline. The workload is older than the rule."""
    cluster, name = installed.cluster, f"denied-{kind}".lower()
    starts, waits, creator = _STARTS[kind]
    cluster.kubectl("create", "-n", TEAM, "-f", "-", input=_workload(kind, name, {DEVICE: "2"}, waits))
    checks = [{"expression": "value <= 1", "messageEn": "at most one"}]
    rule = resource_rule(DEVICE, group="events", validations=checks)
    cluster.kubectl("apply", "-f", "-", input=rule)
    asks = _workload("Job", "asks", {DEVICE: "2"}, {"suspend": True})
    eventually(lambda: "denied by gpugate" in installed.refusal(asks))
    change = json.dumps({"spec": starts})
    cluster.kubectl("patch", "-n", TEAM, f"{kind}/{name}", "--type=merge", "-p", change)
    shown: list[str] = []

    def reported() -> bool:
        table = cluster.kubectl("get", "events", "-n", TEAM, "--field-selector=reason=FailedCreate").stdout
        shown[:] = [line for line in table.splitlines() if f"{creator}/{name}" in line]
        return bool(shown)

    eventually(reported)
    cluster.kubectl("delete", "-n", TEAM, f"{kind}/{name}")
    cluster.kubectl("delete", "-f", "-", input=rule)
    eventually(lambda: not installed.refusal(asks))  # or the next kind's workload is denied

    path = f"spec.containers[0].resources.limits[{DEVICE}]"
    assert f"Pod denied by gpugate: container 'main', {path}: found 2, expected at most one" in shown[0]
    assert "expected at most one [rule cf-crl-events-device]" in shown[0]
