"""The control plane of the end-to-end tests is real: admission, defaults, scheduling, restart."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.cluster import assets

if TYPE_CHECKING:
    from tests.e2e.cluster import ControlPlane

VCUDA = "tencent.com/vcuda-core"


def pod(name: str, limits: dict[str, str], selector: dict[str, str] | None = None) -> str:
    """Return a Pod of one container, as JSON."""
    container = {"name": "main", "image": "example.com/train:1", "resources": {"limits": limits}}
    spec = {"containers": [container], "nodeSelector": selector or {}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def node(name: str, labels: dict[str, str], resources: dict[str, str]) -> str:
    """Return a ready Node with these resources, as JSON."""
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    metadata = {"name": name, "labels": labels}
    return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})


def created(control_plane: ControlPlane, document: str, *flags: str) -> dict[str, Any]:
    """Create an object and return it as the API server stored it."""
    stored: dict[str, Any] = json.loads(
        control_plane.kubectl("create", "-f", "-", "-o", "json", *flags, input=document).stdout
    )
    return stored


def test_the_api_server_reports_the_version_of_its_binary(control_plane: ControlPlane) -> None:
    """At /version."""
    binary = subprocess.run(
        [assets() / "kube-apiserver", "--version"], capture_output=True, text=True, check=True
    )
    answered = json.loads(control_plane.kubectl("get", "--raw", "/version").stdout)

    assert binary.stdout.strip() == f"Kubernetes {answered['gitVersion']}"


def test_a_client_that_does_not_trust_the_ca_gets_no_connection(control_plane: ControlPlane) -> None:
    """The certificate is issued by the CA of the control plane."""
    address = urlsplit(control_plane.url)
    trusting = ssl.create_default_context(cadata=control_plane.ca_pem.decode())
    doubting = ssl.create_default_context()

    def version_of_tls(context: ssl.SSLContext) -> str | None:
        with (
            socket.create_connection((address.hostname, address.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=address.hostname) as secure,
        ):
            return secure.version()

    assert version_of_tls(trusting) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        version_of_tls(doubting)


def test_a_user_without_a_role_may_not_create_pods(control_plane: ControlPlane) -> None:
    """Only kubernetes-admin may do everything."""
    question = ("auth", "can-i", "create", "pods")

    assert control_plane.kubectl(*question).stdout == "yes\n"
    assert control_plane.kubectl(*question, "--as=somebody", check=False).stdout == "no\n"


def test_limits_are_copied_into_absent_requests(control_plane: ControlPlane, namespace: str) -> None:
    """The API server fills in the requests of an extended resource before any webhook sees the pod."""
    stored = created(control_plane, pod("vcuda", {VCUDA: "20"}), "-n", namespace)

    assert stored["spec"]["containers"][0]["resources"] == {
        "limits": {VCUDA: "20"},
        "requests": {VCUDA: "20"},
    }


def test_the_scheduler_binds_a_pod_to_the_matching_node(control_plane: ControlPlane, namespace: str) -> None:
    """Two nodes have the resource, and the label selects one; a node without the resource gets no pod."""
    if not control_plane.schedules:
        pytest.skip(f"no kube-scheduler in {assets()}: envtest has none, `make e2e-assets` builds one")
    offered = {"cpu": "8", "memory": "64Gi", "pods": "110", VCUDA: "400"}
    plain = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    label = "nvidia.com/cuda.driver-version.full"
    created(control_plane, node("old-driver", {label: "470.57.02"}, offered))
    created(control_plane, node("new-driver", {label: "550.54.14"}, offered))
    created(control_plane, node("no-gpu", {label: "550.54.14"}, plain))
    try:
        created(control_plane, pod("fits", {VCUDA: "20"}, {label: "550.54.14"}), "-n", namespace)
        created(control_plane, pod("too-big", {VCUDA: "500"}), "-n", namespace)
        control_plane.kubectl(
            "wait", "pod/fits", "-n", namespace, "--for=condition=PodScheduled", "--timeout=30s"
        )
        control_plane.kubectl(
            "wait", "pod/too-big", "-n", namespace, "--for=condition=PodScheduled=false", "--timeout=30s"
        )
        pods = json.loads(control_plane.kubectl("get", "pods", "-n", namespace, "-o", "json").stdout)["items"]

        assert {p["metadata"]["name"]: p["spec"].get("nodeName") for p in pods} == {
            "fits": "new-driver",
            "too-big": None,
        }
    finally:
        control_plane.kubectl("delete", "node", "old-driver", "new-driver", "no-gpu")


def test_a_killed_api_server_comes_back_with_its_port_and_data(
    control_plane: ControlPlane, namespace: str
) -> None:
    """After kill -9 there is no answer; after the restart the same URL serves the same objects."""
    before = created(control_plane, pod("survivor", {VCUDA: "20"}), "-n", namespace)["metadata"]["uid"]

    control_plane.kill_apiserver()
    refused = control_plane.kubectl("get", "namespaces", check=False)
    control_plane.restart_apiserver()
    after = control_plane.kubectl(
        "get", "pod", "survivor", "-n", namespace, "-o", "jsonpath={.metadata.uid}"
    ).stdout

    assert refused.returncode == 1
    assert "was refused" in refused.stderr
    assert after == before
