"""Node writer: what it writes to a node, and what it keeps; e2e tests the same with a real API server."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from msgspec.structs import replace

from certs.kubernetes_api import Conflict, KubernetesError
from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from rules.nodes.runtime_modes import RuntimeMode
from tests.support.memory import Memory
from webhook.agent.container_toolkit import ContainerToolkit
from webhook.agent.labels import CUDA_LABELS, FACTS, metadata_of
from webhook.agent.metrics import REGISTRY
from webhook.agent.node_writer import MANAGER, NodeWriter
from webhook.agent.nvml_probe import Gpu, Probe

NODE = "/api/v1/nodes/gpu-1"
EVENTS = "/api/v1/namespaces/default/events"
T4 = Probe(
    DriverVersion.parse("535.129.03"),
    CudaVersion(12, 2),
    (Gpu("Tesla T4", "GPU-1", ComputeCapability(7, 5), 15360),),
)
UPGRADED = replace(T4, driver=DriverVersion.parse("580.95.05"), cuda=CudaVersion(13, 0))
LABELS = metadata_of(T4).labels
MODE, VERSION = "gpugate.dev/container-runtime-mode", "gpugate.dev/container-toolkit-version"


class Cluster(Memory):
    """An API server with one node, on which each manager owns the labels that it has set last."""

    def __init__(self) -> None:
        super().__init__()
        self.put(NODE, {"metadata": {"name": "gpu-1", "uid": "1", "labels": {}}})

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        node_labels: dict[str, str] = self.objects[NODE]["metadata"]["labels"]
        return node_labels

    def apply(self, path: str, document: dict[str, Any], manager: str) -> None:
        """Apply labels and annotations for a manager; its fields that are not in the document are removed."""
        self._called("APPLY", path)
        metadata = self.get(path)["metadata"]
        if document["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise Conflict("409 the object has been modified")
        for name in ("labels", "annotations"):
            self._own(metadata, name, document["metadata"][name], manager)
        self.put(path, {"metadata": metadata})

    def label(self, manager: str = "kubectl-label", **labels: str) -> None:
        """Set labels as `kubectl label --overwrite` does, with - for _."""
        metadata = self.objects[NODE]["metadata"]
        own = {key.replace("_", "-"): value for key, value in labels.items()}
        self._own(metadata, "labels", own, manager, keep=True)
        self.put(NODE, {"metadata": metadata})

    @staticmethod
    def _own(
        metadata: dict[str, Any], name: str, values: dict[str, str], manager: str, *, keep: bool = False
    ) -> None:
        entries = metadata.setdefault("managedFields", [])
        if all(entry["manager"] != manager for entry in entries):
            entries.append({"manager": manager, "fieldsV1": {"f:metadata": {}}})
        present = metadata.setdefault(name, {})
        fields = {
            entry["manager"]: entry["fieldsV1"]["f:metadata"].setdefault(f"f:{name}", {}) for entry in entries
        }
        for key in [] if keep else [key.removeprefix("f:") for key in fields[manager]]:
            if key not in values:
                del fields[manager][f"f:{key}"]
                if not any(f"f:{key}" in owned for owned in fields.values()):
                    del present[key]
        for key, value in values.items():
            for other, owned in fields.items():
                if other != manager and present.get(key) != value:
                    owned.pop(f"f:{key}", None)
            fields[manager][f"f:{key}"] = {}
            present[key] = value


def writer(cluster: Cluster, *, take_over: bool = False) -> NodeWriter:
    """Return the writer of a newly started agent."""
    return NodeWriter(cluster, "gpu-1", take_over=take_over)


def events(cluster: Cluster) -> list[tuple[str, str]]:
    """Return (reason, message) of each Event."""
    items = [event for path, event in cluster.objects.items() if path.startswith(EVENTS)]
    return [(item["reason"], item["message"]) for item in items]


def contradictions() -> set[tuple[str, str]]:
    """Return (reason, fact) of each series at 1; all other possible series are at 0."""
    (metric,) = [family for family in REGISTRY.collect() if family.name == "gpugate_agent_contradictions"]
    assert 1 + len(FACTS) == len(metric.samples)
    assert {sample.value for sample in metric.samples} <= {0, 1}
    return {(sample.labels["reason"], sample.labels["fact"]) for sample in metric.samples if sample.value}


def published() -> float:
    """Return the time of the last publication, in seconds since the epoch."""
    value = REGISTRY.get_sample_value("gpugate_agent_publish_timestamp_seconds")
    assert value is not None
    return value


def test_labels_are_written_once_and_again_when_somebody_changes_them() -> None:
    """If the labels are correct, nothing is written."""
    cluster = Cluster()
    agent = writer(cluster)
    agent.publish(T4)
    agent.publish(T4)
    cluster.label(**{"gpugate.dev/gpu.count": "8"})
    agent.publish(T4)

    assert LABELS == cluster.labels
    assert 2 == sum(call.startswith("APPLY") for call in cluster.calls)
    assert [] == events(cluster)


@pytest.mark.parametrize(
    ("engine", "labels"),
    [("containerd://2.1.5", {MODE: "legacy", VERSION: "1.17.8"}), ("cri-o://1.33.4", {})],
)
def test_the_mode_of_the_container_runtime_is_written_unless_hooks_may_be_used(
    engine: str, labels: dict[str, str]
) -> None:
    """CRI-O may call NVIDIA's hook, which has its own mode."""
    cluster = Cluster()
    cluster.objects[NODE]["status"] = {"nodeInfo": {"containerRuntimeVersion": engine}}
    writer(cluster).publish(replace(T4, toolkit=ContainerToolkit(RuntimeMode.LEGACY, "1.17.8")))

    assert {**LABELS, **labels} == cluster.labels


def test_outdated_labels_are_removed_and_labels_of_others_stay() -> None:
    """First the driver is upgraded, then it is removed."""
    cluster = Cluster()
    cluster.label(zone="a", accelerator="t4")
    agent = writer(cluster)
    agent.publish(replace(T4, mps=("/run/nvidia/mps",)))
    agent.publish(UPGRADED)
    upgraded = dict(cluster.labels)
    agent.publish(None)

    assert {"zone": "a", "accelerator": "t4", **metadata_of(UPGRADED).labels} == upgraded
    assert {"zone": "a", "accelerator": "t4"} == cluster.labels


def test_a_cuda_label_with_another_owner_stays_when_the_driver_is_removed() -> None:
    """Both own it, so it stays as long as one of them applies it."""
    cluster = Cluster()
    cluster.label(cuda_major_version="12")
    agent = writer(cluster)
    agent.publish(T4)
    agent.publish(None)

    assert {"cuda-major-version": "12"} == cluster.labels
    assert [] == events(cluster)


@pytest.mark.parametrize("already", [False, True])
def test_cuda_labels_with_other_values_of_another_owner_stay_and_cause_an_event(*, already: bool) -> None:
    """Neither label is set, because half a version is wrong; also if the agent had set both before."""
    cluster = Cluster()
    agent = writer(cluster)
    if already:
        agent.publish(T4)
    cluster.label(cuda_major_version="11")
    agent.publish(T4)
    agent.publish(T4)

    assert {"cuda-major-version": "11"} == {
        key: cluster.labels[key] for key in CUDA_LABELS if key in cluster.labels
    }
    assert {
        key: value for key, value in LABELS.items() if key not in CUDA_LABELS
    }.items() <= cluster.labels.items()
    ((reason, message),) = events(cluster)
    assert "CudaLabelsContested" == reason
    assert message.startswith("the driver has CUDA 12.2, but another owner has set cuda-major-version=11; ")


def test_an_upgrade_does_not_overwrite_a_shared_cuda_label() -> None:
    """The other owner requires 12, so the agent does not set 13."""
    cluster = Cluster()
    cluster.label(cuda_major_version="12", cuda_minor_version="2")
    agent = writer(cluster)
    agent.publish(T4)
    agent.publish(UPGRADED)

    assert ["12", "2"] == [cluster.labels[key] for key in CUDA_LABELS]
    assert ["CudaLabelsContested"] == [reason for reason, _ in events(cluster)]


def test_take_over_overwrites_cuda_labels_without_an_event() -> None:
    """The operator has chosen the owner."""
    cluster = Cluster()
    cluster.label(cuda_major_version="11", cuda_minor_version="0")
    writer(cluster, take_over=True).publish(T4)

    assert LABELS == cluster.labels
    assert [] == events(cluster)


def test_a_label_without_a_known_owner_belongs_to_another_owner() -> None:
    """For example if an API server removes managedFields."""
    cluster = Cluster()
    cluster.labels["cuda-major-version"] = "11"
    writer(cluster).publish(T4)

    assert "11" == cluster.labels["cuda-major-version"]


def test_a_contradiction_of_gpu_feature_discovery_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """By an Event and a log line; a restarted agent logs it again and writes no second Event."""
    cluster = Cluster()
    cluster.label("gpu-feature-discovery", **{"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"})
    agent = writer(cluster)
    with caplog.at_level(logging.WARNING):
        agent.publish(T4)
        agent.publish(T4)
        writer(cluster).publish(T4)
    message = "product: the labels of GPU Feature Discovery have Tesla-V100-SXM2-16GB, NVML reports Tesla-T4"

    assert [("DiscoveryLabelsDiffer", message)] == events(cluster)
    assert [f"node gpu-1: {message}"] * 2 == caplog.messages


def test_the_metric_has_each_contradiction_while_it_lasts() -> None:
    """By reason of the Event and by fact; without a driver there is none."""
    cluster = Cluster()
    agent = writer(cluster)
    seen = []
    for others in (
        {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB", "nvidia.com/gpu.memory": "16384"},
        {"nvidia.com/gpu.product": "Tesla-T4", "cuda_major_version": "11"},
        {"nvidia.com/gpu.memory": "15360", "cuda_major_version": "12"},
    ):
        cluster.label("another", **others)
        agent.publish(T4)
        seen.append(contradictions())
    cluster.label("another", **{"nvidia.com/gpu.memory": "1"})
    agent.publish(T4)
    seen.append(contradictions())
    agent.publish(None)

    assert [
        {("DiscoveryLabelsDiffer", "product"), ("DiscoveryLabelsDiffer", "memory in MiB")},
        {("DiscoveryLabelsDiffer", "memory in MiB"), ("CudaLabelsContested", "driver CUDA")},
        set(),
        {("DiscoveryLabelsDiffer", "memory in MiB")},
    ] == seen
    assert set() == contradictions()


def test_the_time_of_a_publication_is_a_metric_and_a_failure_does_not_change_it() -> None:
    """It is updated even if there is nothing to write."""
    cluster = Cluster()
    agent = writer(cluster)
    agent.publish(T4)
    first = published()
    agent.publish(T4)
    second = published()

    def fail(*_: str) -> None:
        raise KubernetesError("the API server does not answer")

    cluster.before = fail
    with pytest.raises(KubernetesError):
        agent.publish(T4)

    assert time.time() - 60 < first < second == published()


def test_a_node_that_changes_between_read_and_write_is_read_again() -> None:
    """As a kubelet that writes its status changes it; a label that somebody sets then is not overwritten."""
    cluster = Cluster()

    def meanwhile(*_: str) -> None:
        if len(cluster.calls) == 2:  # after the read
            cluster.label(cuda_major_version="11")

    cluster.before = meanwhile
    writer(cluster).publish(T4)

    others = {key: value for key, value in LABELS.items() if key not in CUDA_LABELS}
    assert others | {"cuda-major-version": "11"} == cluster.labels


def test_a_node_that_changes_at_each_write_is_a_conflict() -> None:
    """After five attempts."""
    cluster = Cluster()

    def meanwhile(method: str, _: str) -> None:
        if method == "APPLY":
            cluster.label(other="x")

    cluster.before = meanwhile
    with pytest.raises(Conflict):
        writer(cluster).publish(T4)

    assert 5 == cluster.calls.count("APPLY gpu-1")


def test_a_failed_event_does_not_prevent_labels(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is logged."""
    cluster = Cluster()
    cluster.label(cuda_major_version="11")

    def forbidden(method: str, path: str) -> None:
        del path
        if method == "POST":
            raise KubernetesError("POST: 403 forbidden")

    cluster.before = forbidden
    with caplog.at_level(logging.WARNING):
        writer(cluster).publish(T4)

    assert "1" == cluster.labels["gpugate.dev/gpu.count"]
    assert "cannot write an Event on gpu-1: POST: 403 forbidden" == caplog.messages[-1]


def test_the_agent_has_its_own_field_manager() -> None:
    """`kubectl get node --show-managed-fields` shows it."""
    cluster = Cluster()
    writer(cluster).publish(T4)

    assert [MANAGER] == [entry["manager"] for entry in cluster.objects[NODE]["metadata"]["managedFields"]]
