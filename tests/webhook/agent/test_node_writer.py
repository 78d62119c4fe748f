"""What the agent writes to its node, and what it leaves alone; a real API server holds the same in e2e."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import pytest

from certs.kubernetes_api import Conflict, KubernetesError
from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from tests.support.memory import Memory
from webhook.agent.labels import CUDA_LABELS, FACTS, told_by
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
LABELS = told_by(T4).labels


class Cluster(Memory):
    """An API server with one node, on which each manager owns the labels that it set last."""

    def __init__(self) -> None:
        super().__init__()
        self.put(NODE, {"metadata": {"name": "gpu-1", "uid": "1", "labels": {}}})

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        found: dict[str, str] = self.objects[NODE]["metadata"]["labels"]
        return found

    def apply(self, path: str, document: dict[str, Any], manager: str) -> None:
        """Take the labels and annotations as this manager's; what it does not name any more goes."""
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
        mine = {key.replace("_", "-"): value for key, value in labels.items()}
        self._own(metadata, "labels", mine, manager, keep=True)
        self.put(NODE, {"metadata": metadata})

    @staticmethod
    def _own(
        metadata: dict[str, Any], name: str, values: dict[str, str], manager: str, *, keep: bool = False
    ) -> None:
        entries = metadata.setdefault("managedFields", [])
        if all(each["manager"] != manager for each in entries):
            entries.append({"manager": manager, "fieldsV1": {"f:metadata": {}}})
        present = metadata.setdefault(name, {})
        fields = {
            each["manager"]: each["fieldsV1"]["f:metadata"].setdefault(f"f:{name}", {}) for each in entries
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


def publisher(cluster: Cluster, *, take_over: bool = False) -> NodeWriter:
    """Return a newly started agent of the node."""
    return NodeWriter(cluster, "gpu-1", take_over=take_over)


def events(cluster: Cluster) -> list[tuple[str, str]]:
    """Return (reason, message) of each Event."""
    found = [each for path, each in cluster.objects.items() if path.startswith(EVENTS)]
    return [(each["reason"], each["message"]) for each in found]


def contradictions() -> set[tuple[str, str]]:
    """Return (reason, fact) of each that the metric has at 1; the others that there may be are at 0."""
    (metric,) = [each for each in REGISTRY.collect() if each.name == "gpugate_agent_contradictions"]
    assert 1 + len(FACTS) == len(metric.samples)
    assert {each.value for each in metric.samples} <= {0, 1}
    return {(each.labels["reason"], each.labels["fact"]) for each in metric.samples if each.value}


def published() -> float:
    """Return when labels were last right, in seconds since the epoch."""
    value = REGISTRY.get_sample_value("gpugate_agent_publish_timestamp_seconds")
    assert value is not None
    return value


def test_labels_are_written_once_and_again_when_somebody_changes_them() -> None:
    """An agent that finds all as it should be writes nothing."""
    cluster = Cluster()
    agent = publisher(cluster)
    agent.publish(T4)
    agent.publish(T4)
    cluster.label(**{"gpugate.dev/gpu.count": "8"})
    agent.publish(T4)

    assert LABELS == cluster.labels
    assert 2 == sum(call.startswith("APPLY") for call in cluster.calls)
    assert [] == events(cluster)


def test_what_no_longer_holds_goes_and_what_others_set_stays() -> None:
    """First a driver that is upgraded, then one that is gone."""
    cluster = Cluster()
    cluster.label(zone="a", accelerator="t4")
    agent = publisher(cluster)
    agent.publish(replace(T4, mps=("/run/nvidia/mps",)))
    agent.publish(UPGRADED)
    upgraded = dict(cluster.labels)
    agent.publish(None)

    assert {"zone": "a", "accelerator": "t4", **told_by(UPGRADED).labels} == upgraded
    assert {"zone": "a", "accelerator": "t4"} == cluster.labels


def test_a_cuda_label_that_another_set_to_the_same_value_stays_when_the_agent_withdraws() -> None:
    """Both own it, so it is there as long as one of them wants it."""
    cluster = Cluster()
    cluster.label(cuda_major_version="12")
    agent = publisher(cluster)
    agent.publish(T4)
    agent.publish(None)

    assert {"cuda-major-version": "12"} == cluster.labels
    assert [] == events(cluster)


@pytest.mark.parametrize("already", [False, True])
def test_cuda_labels_that_another_has_otherwise_are_left_and_said(*, already: bool) -> None:
    """Neither of the two is set: half a version is a wrong one. Also where the agent had set both before."""
    cluster = Cluster()
    agent = publisher(cluster)
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
    assert message.startswith("the driver has CUDA 12.2, and somebody else set cuda-major-version=11; ")


def test_an_upgrade_does_not_take_a_cuda_label_that_another_shares() -> None:
    """What somebody else wants at 12 is not the agent's to make 13."""
    cluster = Cluster()
    cluster.label(cuda_major_version="12", cuda_minor_version="2")
    agent = publisher(cluster)
    agent.publish(T4)
    agent.publish(UPGRADED)

    assert ["12", "2"] == [cluster.labels[key] for key in CUDA_LABELS]
    assert ["CudaLabelsContested"] == [reason for reason, _ in events(cluster)]


def test_an_agent_that_takes_over_sets_them_and_says_nothing() -> None:
    """The operator has decided who is right."""
    cluster = Cluster()
    cluster.label(cuda_major_version="11", cuda_minor_version="0")
    publisher(cluster, take_over=True).publish(T4)

    assert LABELS == cluster.labels
    assert [] == events(cluster)


def test_a_label_without_a_known_owner_is_anothers() -> None:
    """As on an API server that strips managedFields."""
    cluster = Cluster()
    cluster.labels["cuda-major-version"] = "11"
    publisher(cluster).publish(T4)

    assert "11" == cluster.labels["cuda-major-version"]


def test_a_contradiction_of_discovery_is_said_once_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    """By an Event and a line of the log; a restarted agent logs it anew and writes no second Event."""
    cluster = Cluster()
    cluster.label("gpu-feature-discovery", **{"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"})
    agent = publisher(cluster)
    with caplog.at_level(logging.WARNING):
        agent.publish(T4)
        agent.publish(T4)
        publisher(cluster).publish(T4)
    message = "product: the labels of GPU Feature Discovery say Tesla-V100-SXM2-16GB, NVML says Tesla-T4"

    assert [("DiscoveryLabelsDiffer", message)] == events(cluster)
    assert [f"node gpu-1: {message}"] * 2 == caplog.messages


def test_a_contradiction_is_in_the_metric_as_long_as_it_lasts() -> None:
    """Each by the reason of its Event and by what it is about; without a driver there is none."""
    cluster = Cluster()
    agent = publisher(cluster)
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


def test_the_time_of_labels_that_are_right_is_told_and_that_of_a_failure_is_not() -> None:
    """Also where there is nothing to write."""
    cluster = Cluster()
    agent = publisher(cluster)
    agent.publish(T4)
    first = published()
    agent.publish(T4)
    second = published()

    def away(*_: str) -> None:
        raise KubernetesError("the API server does not answer")

    cluster.before = away
    with pytest.raises(KubernetesError):
        agent.publish(T4)

    assert time.time() - 60 < first < second == published()


def test_a_node_that_changes_between_look_and_write_is_a_conflict() -> None:
    """So that a label which somebody sets at that moment is not overwritten unseen."""
    cluster = Cluster()

    def meanwhile(*_: str) -> None:
        if len(cluster.calls) == 2:  # after the look
            cluster.label(cuda_major_version="11")

    cluster.before = meanwhile
    with pytest.raises(Conflict):
        publisher(cluster).publish(T4)

    assert {"cuda-major-version": "11"} == cluster.labels


def test_an_event_that_cannot_be_written_does_not_keep_labels_from_being_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is in the log as well."""
    cluster = Cluster()
    cluster.label(cuda_major_version="11")

    def forbidden(method: str, path: str) -> None:
        del path
        if method == "POST":
            raise KubernetesError("POST: 403 forbidden")

    cluster.before = forbidden
    with caplog.at_level(logging.WARNING):
        publisher(cluster).publish(T4)

    assert "1" == cluster.labels["gpugate.dev/gpu.count"]
    assert "no Event was written on gpu-1: POST: 403 forbidden" == caplog.messages[-1]


def test_the_manager_is_the_agents_own() -> None:
    """`kubectl get node --show-managed-fields` names it."""
    cluster = Cluster()
    publisher(cluster).publish(T4)

    assert [MANAGER] == [each["manager"] for each in cluster.objects[NODE]["metadata"]["managedFields"]]
