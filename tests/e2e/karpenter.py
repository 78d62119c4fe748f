"""Karpenter with its KWOK provider, which adds Node objects without machines; what the machines do; a record.

The KWOK controller does not stand in for the machines: it leaves the taints on their nodes.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from kubernetes.client import CoreV1Api
from kubernetes.client.exceptions import ApiException

from certs.kubernetes_api import Conflict, NotFound
from rules.nodes.inventory_document import inventory_of
from tests.e2e.assets import build
from tests.e2e.daemon import Daemon, reserve_port
from webhook.cluster.client import ClusterApi
from webhook.cluster.reflector import Applied, Change, Deleted, Listed, Reflector
from webhook.cluster.resource import NODES, PODS, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tests.e2e.cluster import ControlPlane
    from tests.e2e.manifests import Object

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
GPU_NAME: Final = "karpenter.k8s.aws/instance-gpu-name"
# A startup taint of the node pools, which keeps pods off a new node until its kubelet removes it.
STARTING: Final = "example.com/starting"
# The KWOK provider writes the name of the NodeClaim here.
_CLAIM: Final = "kubernetes.io/hostname"
# Beginnings of labels that tell of GPUs and drivers.
_GPU_LABELS: Final = ("nvidia", "cuda", "gpugate.dev/")
_NODE_CLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
_EVENTS: Final = "/api/v1/events"
_READY: Final = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
_GONE: Final = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
_CLASS: Final = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
}


def missing() -> bool:
    """Return whether Karpenter is not built."""
    return not (build.karpenter() / "karpenter").is_file()


def instance_type(name: str, price: float, gpu: str) -> Object:
    """Return an instance type with one GPU. price: of an hour. gpu: its name, as on AWS."""
    labels = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "a", GPU_NAME: gpu}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "offerings": [{"Price": price, "Available": True, "Requirements": requirements}],
        "resources": {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "nvidia.com/gpu": "1"},
    }


def node_pool(name: str, *types: str, labels: Mapping[str, str] | None = None) -> Object:
    """Return a NodePool of at most eight nodes. types: of instances; default: all. labels: of its nodes."""
    allowed = [{"key": INSTANCE_TYPE, "operator": "In", "values": list(types)}] if types else []
    node = {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": allowed,
        "startupTaints": [{"key": STARTING, "effect": "NoSchedule"}],
        "expireAfter": "Never",
    }
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "1h",
        "budgets": [{"nodes": "100%"}],
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"metadata": {"labels": labels or {}}, "spec": node},
            "limits": {"cpu": "64"},
            "disruption": disruption,
        },
    }


@contextmanager
def karpenter(cluster: ControlPlane, types: list[Object], folder: Path) -> Iterator[None]:
    """Run Karpenter in a cluster while the block runs. types: of instances. folder: for its log."""
    definitions = [f"--filename={path}" for path in sorted(build.karpenter().glob("*.yaml"))]
    cluster.kubectl("create", *definitions)
    cluster.kubectl("wait", "customresourcedefinitions", "--all", "--for=condition=Established")
    cluster.kubectl("create", "-f", "-", input=json.dumps(_CLASS))
    offered = folder / "instance-types.json"
    offered.write_text(json.dumps(types))
    with reserve_port() as metrics, reserve_port() as health:
        port = health.getsockname()[1]
        settings = {
            "KUBECONFIG": cluster.kubeconfig,
            "INSTANCE_TYPES_FILE_PATH": offered,
            "SYSTEM_NAMESPACE": "kube-system",
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": metrics.getsockname()[1],
            "HEALTH_PROBE_PORT": port,
            "LOG_LEVEL": "debug",
            "BATCH_IDLE_DURATION": "200ms",  # pods that are created together are one batch
            "BATCH_MAX_DURATION": "1s",
        }
        given = [f"{name}={value}" for name, value in settings.items()]
        program = str(build.karpenter() / "karpenter")
        daemon = Daemon(["env", *given, program], port, "/readyz", None, folder / "karpenter.log")
        daemon.start()
        try:
            yield
        finally:
            daemon.stop()


class _Watching:
    """Watches of a cluster, as administrator; a context manager."""

    def __init__(self, cluster: ControlPlane, watched: Mapping[str, Callable[[Object], None]]) -> None:
        """Pass each new or changed object at a path to a consumer; of a deleted one nothing."""
        self._api = ClusterApi.of_kubeconfig(str(cluster.kubeconfig))
        self._consumers = [
            (Reflector(self._api, Resource(path.rpartition("/")[2], path)), consume)
            for path, consume in watched.items()
        ]

    def __enter__(self) -> Self:
        for reflector, consume in self._consumers:
            reflector.start(_each(consume))
        return self

    def __exit__(self, *_: object) -> None:
        for reflector, _consume in self._consumers:
            reflector.stop()
        self._api.close()


def _each(consume: Callable[[Object], None]) -> Callable[[Change], None]:
    def on_change(change: Change) -> None:
        match change:
            case Listed(objects):
                for watched in objects:
                    consume(watched)
            case Applied(watched):
                consume(watched)
            case Deleted():
                pass

    return on_change


class Machines(_Watching):
    """A kubelet on each node that Karpenter adds, and GPU Feature Discovery.

    Nodes get ready, bound pods run, deleted pods end. labels: by instance type. early: whether a node has its
    labels before it takes a pod; otherwise it gets them once a pod is bound to it.
    """

    def __init__(self, cluster: ControlPlane, labels: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(cluster, {NODES: self._on_node, PODS: self._on_pod})
        self.labels, self.early = labels, False
        self._pods = CoreV1Api(self._api.client)

    def stop(self, claims: list[str]) -> None:
        """Stop the machines of NodeClaims: before Karpenter deletes their nodes, it does not drain those."""
        for node in self._api.list(NODES)[0]:
            if node["metadata"]["labels"].get(_CLAIM) in claims:
                path = f"{NODES}/{node['metadata']['name']}/status"
                self._patch(path, ("/status/conditions", [_GONE]))

    def _on_node(self, node: Object) -> None:
        metadata, taints = node["metadata"], node["spec"].get("taints", [])
        if self.early:
            self._label(node)
        if "conditions" not in node["status"]:
            self._patch(f"{NODES}/{metadata['name']}/status", ("/status/conditions", [_READY]))
        rest = [taint for taint in taints if taint["key"] != STARTING]
        if len(rest) < len(taints):
            # Of this version of the node only: Karpenter changes the taints, too.
            version = ("/metadata/resourceVersion", metadata["resourceVersion"])
            self._patch(f"{NODES}/{metadata['name']}", version, ("/spec/taints", rest))

    def _on_pod(self, pod: Object) -> None:
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if not node:
            return
        if "deletionTimestamp" in metadata:
            try:
                self._pods.delete_namespaced_pod(
                    metadata["name"], metadata["namespace"], grace_period_seconds=0
                )
            except ApiException as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
        elif pod["status"]["phase"] == "Pending":
            with suppress(NotFound):
                self._label(self._api.get(f"{NODES}/{node}"))
            started = [
                ("/status/phase", "Running"),
                ("/status/conditions/-", {"type": "Ready", "status": "True"}),
            ]
            self._patch(f"{path}/status", *started)

    def _label(self, node: Object) -> None:
        metadata = node["metadata"]
        missing = (
            self.labels.get(metadata["labels"].get(INSTANCE_TYPE), {}).items() - metadata["labels"].items()
        )
        if missing:
            added = [(f"/metadata/labels/{key.replace('/', '~1')}", value) for key, value in sorted(missing)]
            self._patch(f"{NODES}/{metadata['name']}", *added)

    def _patch(self, path: str, *added: tuple[str, Any]) -> None:
        """Set fields of an object; nothing if it is gone, or changed since: then there is another event."""
        with suppress(NotFound, Conflict):
            self._api.patch(path, [{"op": "add", "path": at, "value": value} for at, value in added])


class Reported(NamedTuple):
    """An Event. about: the name of the object."""

    about: str
    reason: str
    message: str


class Record(_Watching):
    """What Karpenter does, from watches.

    known: labels of GPUs, with their values, that nodes may have. events: all.
    """

    def __init__(self, cluster: ControlPlane, known: Iterable[tuple[str, str]]) -> None:
        super().__init__(cluster, {_NODE_CLAIMS: self._on_claim, NODES: self._read, _EVENTS: self._on_event})
        self._known = set(known)
        self._unexpected: set[tuple[str, str]] = set()
        self._claims: dict[str, None] = {}
        self._before = 0
        self.events: list[Reported] = []

    @property
    def claims(self) -> list[str]:
        """The names of the NodeClaims since `restart`, in order, also of those that were deleted."""
        return list(self._claims)[self._before :]

    def restart(self) -> None:
        """Start with no NodeClaims."""
        self._before = len(self._claims)

    def unexpected(self) -> set[tuple[str, str]]:
        """Return the labels of NodeClaims and Nodes that gpugate cannot read or that are not known, once."""
        labels = self._unexpected - self._known
        self._known |= labels
        return labels

    def _on_claim(self, claim: Object) -> None:
        self._claims.setdefault(claim["metadata"]["name"])
        self._read({"kind": "Node", "metadata": claim["metadata"]})

    def _read(self, node: Object) -> None:
        labels = node["metadata"].get("labels", {}).items()
        unreadable = {(problem.key, problem.value) for problem in inventory_of(node).problems()}
        self._unexpected |= unreadable | {label for label in labels if label[0].startswith(_GPU_LABELS)}

    def _on_event(self, event: Object) -> None:
        about = event["involvedObject"].get("name", "")
        self.events.append(Reported(about, event["reason"], event.get("message", "")))
