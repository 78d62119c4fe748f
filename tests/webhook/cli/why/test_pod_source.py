"""Lines about a pod: of its status, its events and its logs."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.cli.why.failures import Source
from webhook.cli.why.pod_source import PodFacts

EARLY, LATE = "2026-01-01T00:00:01Z", "2026-01-01T00:00:09Z"


def _pod(phase: str = "Pending", node: str = "gpu-1", **status: Any) -> dict[str, Any]:
    spec = {"containers": [], "nodeName": node} if node else {"containers": []}
    return {"metadata": {"name": "a"}, "spec": spec, "status": {"phase": phase, **status}}


def _texts(pod: dict[str, Any], *events: dict[str, Any]) -> list[str]:
    return [line.text for line in PodFacts(pod, events=list(events)).statements()]


@pytest.mark.parametrize(
    ("time", "is_read"),
    [
        ({"lastTimestamp": EARLY}, False),
        ({"lastTimestamp": None, "eventTime": EARLY}, False),
        ({"lastTimestamp": EARLY, "series": {"lastObservedTime": LATE}}, True),
        ({"lastTimestamp": LATE}, True),
        ({}, True),
    ],
)
def test_an_event_from_before_the_last_start_of_a_container_is_not_read(
    time: dict[str, Any], is_read: bool
) -> None:
    """What kept the pod from its start is over then."""
    state = {"name": "main", "lastState": {"terminated": {"startedAt": "2026-01-01T00:00:05Z"}}}
    event = {"reason": "Failed", "message": 'no runtime for "nvidia" is configured'} | time

    assert is_read is bool(_texts(_pod("Running", containerStatuses=[state]), event))
    assert _texts(_pod("Pending"), event)


@pytest.mark.parametrize(
    ("phase", "status", "node", "expected"),
    [
        ("Pending", "False", "gpu-1", ["PodReadyToStartContainers False"]),
        ("Pending", "True", "gpu-1", []),
        ("Pending", "False", "", []),
        ("Failed", "False", "gpu-1", []),
        ("Succeeded", "False", "gpu-1", []),
    ],
)
def test_a_missing_sandbox_is_said_of_a_pod_that_has_a_node_and_has_not_ended(
    phase: str, status: str, node: str, expected: list[str]
) -> None:
    """The sandbox of a pod that has ended is taken away."""
    condition = {"type": "PodReadyToStartContainers", "status": status}

    assert expected == _texts(_pod(phase, node, conditions=[condition]))


def test_the_scheduling_gates_of_a_pod_are_read_by_name() -> None:
    """The message of the condition does not have them."""
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/quota"}]
    message = "Scheduling is blocked due to non-empty scheduling gates"
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
    pod = _pod("Pending", conditions=[condition]) | {"spec": {"schedulingGates": gates}}

    assert ["SchedulingGated kueue.x-k8s.io/admission, example.com/quota"] == _texts(pod)


def test_devices_that_are_reported_as_unhealthy_are_read_with_the_message() -> None:
    """Not those of which the health is unknown: many drivers report none."""
    devices = [
        {"resourceID": "GPU-0", "health": "Healthy"},
        {"resourceID": "GPU-1", "health": "Unhealthy"},
        {"resourceID": "GPU-2", "health": "Unknown"},
    ]
    of_claim = [{"resourceID": "gpu.nvidia.com/a/gpu-3", "health": "Unhealthy", "message": "Xid 79"}]
    resources = [
        {"name": "nvidia.com/gpu", "resources": devices},
        {"name": "claim:gpu/one", "resources": of_claim},
        {"name": "none", "resources": None},
        None,
    ]
    state = {"name": "main", "allocatedResourcesStatus": resources}

    assert [
        "allocatedResourcesStatus nvidia.com/gpu GPU-1 Unhealthy",
        "allocatedResourcesStatus claim:gpu/one gpu.nvidia.com/a/gpu-3 Unhealthy Xid 79",
    ] == _texts(_pod("Running", containerStatuses=[state]))


@pytest.mark.parametrize(
    ("reason", "source"), [("Error", Source.LOG), ("OOMKilled", Source.LOG), ("StartError", Source.STATUS)]
)
def test_a_termination_message_is_a_log_unless_the_container_runtime_wrote_it(
    reason: str, source: Source
) -> None:
    """With terminationMessagePolicy: FallbackToLogsOnError it is the end of the log."""
    ended = {"reason": reason, "exitCode": 1, "message": "a\nunsatisfied condition: cuda>=12.8"}
    state = {"name": "main", "state": {"terminated": ended}}
    lines = PodFacts(_pod("Failed", containerStatuses=[state])).statements()

    assert [source] == [line.source for line in lines if "unsatisfied" in line.text]
