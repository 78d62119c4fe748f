"""`gpugate why` on a real API server and scheduler; without a kubelet, a test writes what one reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.e2e.cluster import ControlPlane, assets, missing
from tests.support.paths import ROOT

Object = dict[str, Any]

GPU: Final = "nvidia.com/gpu"


def _pod(name: str, gpus: int, **spec: Any) -> Object:
    container = {"name": "main", "image": "example.com/train:1", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a cluster with a scheduler and a node of four GPUs; a pod has taken three of them."""
    binaries = assets()
    if missing(binaries) or not (binaries / "kube-scheduler").is_file():
        pytest.skip("no kube-scheduler: run `make e2e-assets`")
    with ControlPlane(binaries, tmp_path_factory.mktemp("why"), scheduler=True) as found:
        found.kubectl("create", "namespace", "ml")
        found.kubectl("create", "serviceaccount", "default", "-n", "ml", check=False)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}
        found.kubectl("create", "-f", "-", input=json.dumps(node))
        amounts = {GPU: "4", "cpu": "8", "memory": "32Gi", "pods": "20"}
        ready = {"type": "Ready", "status": "True"}
        status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
        found.kubectl("patch", "node", "gpu-1", "--subresource=status", "-p", json.dumps(status))
        found.kubectl("taint", "node", "gpu-1", "node.kubernetes.io/not-ready-", check=False)
        found.kubectl("create", "-n", "ml", "-f", "-", input=json.dumps(_pod("first", 3)))
        found.kubectl("wait", "-n", "ml", "pod/first", "--for=condition=PodScheduled", "--timeout=30s")
        yield found


def _why(cluster: ControlPlane, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "webhook", "why", "-n", "ml", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "spec", "causes"),
    [
        ("too-many", {}, ["insufficient-resource"]),
        ("elsewhere", {"nodeSelector": {"pool": "none"}}, ["node-affinity"]),
    ],
)
def test_a_pod_that_is_not_scheduled_has_the_cause_that_the_scheduler_names(
    name: str, spec: Object, causes: list[str], cluster: ControlPlane
) -> None:
    """By its condition and its event."""
    cluster.kubectl("create", "-n", "ml", "-f", "-", input=json.dumps(_pod(name, 2, **spec)))
    unscheduled = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable"
    cluster.kubectl("wait", "-n", "ml", f"pod/{name}", f"--for={unscheduled}", "--timeout=30s")
    done = _why(cluster, name, "-o", "json")
    found = json.loads(done.stdout)

    assert (1, causes) == (done.returncode, [each["name"] for each in found["causes"]]), done.stderr
    assert "condition PodScheduled" == found["causes"][0]["evidence"][0]["place"]


def test_what_a_kubelet_reports_is_a_cause_and_a_log_that_cannot_be_read_is_said(
    cluster: ControlPlane,
) -> None:
    """No kubelet answers on the node."""
    ended = {"reason": "OOMKilled", "exitCode": 137}
    state = {
        "name": "main",
        "image": "example.com/train:1",
        "imageID": "",
        "ready": False,
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    status = {"status": {"phase": "Running", "containerStatuses": [state]}}
    cluster.kubectl("patch", "pod", "first", "-n", "ml", "--subresource=status", "-p", json.dumps(status))
    done = _why(cluster, "pod/first")

    assert 1 == done.returncode, done.stderr
    assert "certain: the container used more memory (RAM) than its limit" in done.stdout
    assert "– cannot read the log of container 'main': " in done.stdout


def test_a_pod_that_does_not_exist_is_reported_as_kubectl_does(cluster: ControlPlane) -> None:
    """Except for the hint which file could replace the cluster."""
    expected = cluster.kubectl("get", "pod", "-n", "ml", "none", check=False).stderr.strip()
    done = _why(cluster, "none")

    assert (2, True) == (done.returncode, expected in done.stderr)
