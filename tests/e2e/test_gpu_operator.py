"""The mode of container runtimes follows GPU Operator's settings on a real API server.

The operator does not run: its objects are written by the test, and only gpugate reads them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from rules import Loaded
from rules.nodes.gpu_operator import (
    CLUSTER_POLICY,
    GROUP,
    PLURAL,
    VERSIONS,
    managed_label,
    toolkit_daemon_set,
)
from tests.e2e.cluster import ControlPlane
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node
from tests.support.node_builders import GPU, gfd
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import connect
from webhook.cluster.inventory_sync import InventorySync

# Seconds in which a change of the cluster is in force.
LIVE_S: Final = 5.0
NAME: Final = "of-gpu-operator"
DEFINITION: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"kind": CLUSTER_POLICY, "plural": PLURAL, "singular": CLUSTER_POLICY.lower()},
        "scope": "Cluster",
        "versions": [
            {
                "name": VERSIONS[0],
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}

_LABELS: Final = {"app": toolkit_daemon_set()}
DAEMON_SET: Final = json.dumps(
    {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": toolkit_daemon_set()},
        "spec": {
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {"labels": _LABELS},
                "spec": {"containers": [{"name": "toolkit", "image": "example.com/toolkit:v1.17.8"}]},
            },
        },
    }
)


def policy(toolkit: str, *, cdi: bool) -> str:
    """Return a ClusterPolicy, as JSON."""
    spec = {"cdi": {"enabled": cdi, "default": False}, "toolkit": {"enabled": True, "version": toolkit}}
    metadata = {"name": "cluster-policy"}
    document = {
        "apiVersion": f"{GROUP}/{VERSIONS[0]}",
        "kind": CLUSTER_POLICY,
        "metadata": metadata,
        "spec": spec,
    }
    return json.dumps(document)


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield a cluster with the kind ClusterPolicy and a node that GPU Operator manages."""
    definition = json.dumps(DEFINITION)
    control_plane.kubectl("apply", "-f", "-", input=definition)
    control_plane.kubectl("wait", "crd", DEFINITION["metadata"]["name"], "--for=condition=Established")
    labels = gfd("12.2") | {managed_label(): "true"}
    control_plane.kubectl("create", "-f", "-", input=node(NAME, labels, {GPU: "8", "pods": "110"}))
    yield control_plane
    control_plane.kubectl("delete", "node", NAME)
    control_plane.kubectl("delete", "-f", "-", input=definition)


def listed(cluster: ControlPlane) -> Any:
    """Return the container runtime of the node, as `gpugate nodes` prints it."""
    command = [sys.executable, "-m", "webhook", "nodes", "--kubeconfig", str(cluster.kubeconfig)]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, check=True)
    (of_node,) = [
        node_class for node_class in json.loads(done.stdout)["classes"] if NAME in node_class["nodes"]
    ]
    return of_node["runtime"]


def test_the_mode_of_nodes_follows_the_operators_objects(cluster: ControlPlane, namespace: str) -> None:
    """In the server within seconds, and in the command line at once."""
    cluster.kubectl("apply", "-f", "-", input=policy("v1.17.8-ubuntu20.04", cdi=False))
    handler = AdmissionHandler(Loaded())
    sync = InventorySync(connect(str(cluster.kubeconfig), None), handler)

    def mode() -> str:
        inventory = handler.snapshot.inventory
        (node_class,) = inventory.classes(inventory.named(NAME))
        return node_class.capabilities.runtime.mode.value

    sync.start()
    try:
        eventually(lambda: not sync.awaited)
        older = mode(), listed(cluster)
        cluster.kubectl("apply", "-f", "-", input=policy("v1.18.0", cdi=True))
        eventually(lambda: mode() == "cdi", LIVE_S)
        newer = listed(cluster)
        cluster.kubectl("delete", PLURAL, "--all")
        eventually(lambda: mode() == "unknown", LIVE_S)
        cluster.kubectl("create", "-n", namespace, "-f", "-", input=DAEMON_SET)
        eventually(lambda: mode() == "legacy", LIVE_S)
        installed = listed(cluster)
        cluster.kubectl("delete", "-n", namespace, "daemonset", toolkit_daemon_set())
        eventually(lambda: mode() == "unknown", LIVE_S)
    finally:
        sync.stop()

    told = {"loadsCompat": True, "source": "ClusterPolicy cluster-policy"}
    assert ("legacy", {"mode": "legacy", "toolkit": "1.17.8"} | told) == older
    assert {"mode": "cdi", "toolkit": "1.18.0"} | told == newer
    daemon_set = f"DaemonSet {toolkit_daemon_set()}"
    assert {"mode": "legacy", "toolkit": "1.17.8", "loadsCompat": True, "source": daemon_set} == installed
    assert listed(cluster) is None
