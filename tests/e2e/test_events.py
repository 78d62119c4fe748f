"""A denial as it is shown in events, which the ReplicaSet controller of Kubernetes writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster import assets
from tests.e2e.installed import TEAM, Installed
from tests.e2e.serve_process import eventually
from tests.support.builders import resource_rule

DEVICE = "events.example.com/device"


@contextmanager
def replicaset_controller(installed: Installed, log: Path) -> Iterator[None]:
    """Run the controller while the block runs."""
    command = [str(assets() / "replicaset-controller"), f"--kubeconfig={installed.cluster.kubeconfig}"]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()


def test_one_line_of_an_event_shows_the_first_violation_with_its_fix(
    installed: Installed, tmp_path: Path
) -> None:
    """`kubectl get events` cuts a message at its first newline."""
    cluster, labels = installed.cluster, {"app": "events"}
    limits = {DEVICE: "2"}
    container = {"name": "main", "image": "a", "resources": {"limits": limits}}
    replicas = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "events"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    cluster.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(replicas))
    checks = [{"expression": "value <= 1", "messageEn": "at most one"}]
    rule = resource_rule(DEVICE, group="events", validations=checks)
    cluster.kubectl("apply", "-f", "-", input=rule)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}}
    document = json.dumps(pod | {"spec": {"containers": [container]}})
    eventually(lambda: "denied by gpugate" in installed.refusal(document))

    with replicaset_controller(installed, tmp_path / "controller.log"):
        cluster.kubectl("scale", "-n", TEAM, "replicaset/events", "--replicas=1")
        shown: list[str] = []

        def reported() -> bool:
            table = cluster.kubectl("get", "events", "-n", TEAM).stdout
            shown[:] = [line for line in table.splitlines() if "replicaset/events" in line]
            return bool(shown)

        eventually(reported)
    cluster.kubectl("delete", "-n", TEAM, "replicaset/events")
    cluster.kubectl("delete", "-f", "-", input=rule)

    path = f"spec.containers[0].resources.limits[{DEVICE}]"
    assert f"Pod denied by gpugate: container 'main', {path}: found 2, expected at most one" in shown[0]
    assert "; use a value that satisfies the rule [rule cf-crl-events-device]" in shown[0]
