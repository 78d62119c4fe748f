"""Pods of the tests on real nodes, and what becomes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.e2e.node.real_cluster import BOX, GPU, RealCluster
from tests.e2e.serve_process import eventually


class Outcome(NamedTuple):
    """What became of a pod: Running, or why it does not run.

    reason: of the container, such as StartError, or of the pod. message: of the kubelet or the runtime.
    """

    reason: str
    message: str = ""


def pod(
    name: str,
    gpus: int = 0,
    *,
    image: str = BOX,
    command: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Return a Pod of one container, which waits for ever without a command. spec: further fields."""
    container: dict[str, Any] = {"name": "main", "image": image, "imagePullPolicy": "Never"}
    if command:
        container["command"] = list(command)
    if gpus:
        container["resources"] = {"limits": {GPU: str(gpus)}}
    container["env"] = [{"name": key, "value": value} for key, value in (env or {}).items()]
    ends = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    spec = {"containers": [container], **ends, **spec}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": spec,
    }


@contextmanager
def created(real: RealCluster, *pods: dict[str, Any], namespace: str = "default") -> Iterator[list[Outcome]]:
    """Create pods; yield what became of them, in the same order. They are gone after the block."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(pods)}
    names = [pod_object["metadata"]["name"] for pod_object in pods]
    real.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(items))
    outcomes: dict[str, Outcome] = {}

    def all_decided() -> bool:
        shown = json.loads(real.kubectl("get", "pods", "-n", namespace, "-o", "json").stdout)["items"]
        for shown_pod in shown:
            if outcome := outcome_of(shown_pod):
                outcomes[shown_pod["metadata"]["name"]] = outcome
        return all(name in outcomes for name in names)

    try:
        eventually(all_decided)
        yield [outcomes[name] for name in names]
    finally:
        real.kubectl("delete", "pods", "-n", namespace, *names, "--ignore-not-found")


def outcome_of(shown: Mapping[str, Any]) -> Outcome | None:
    """Return what became of a pod by its status; None while that is open."""
    status = shown.get("status", {})
    for container in status.get("containerStatuses", []):
        state = container["state"]
        if "running" in state:
            return Outcome("Running")
        if "terminated" in state:
            return Outcome(state["terminated"]["reason"], state["terminated"].get("message", ""))
        waiting = state.get("waiting", {})
        if waiting.get("reason", "ContainerCreating") != "ContainerCreating":
            return Outcome(waiting["reason"], waiting.get("message", ""))
    if status.get("phase") == "Failed":
        return Outcome(status.get("reason", "Failed"), status.get("message", ""))
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return Outcome("Unschedulable", condition["message"])
    return None


def gpus_in(real: RealCluster, name: str, namespace: str = "default") -> list[int]:
    """Return which GPUs a running pod has, by their device files."""
    listed = real.kubectl("exec", "-n", namespace, name, "--", "ls", "/dev").stdout
    return sorted(int(number) for number in re.findall(r"^nvidia(\d+)$", listed, re.MULTILINE))
