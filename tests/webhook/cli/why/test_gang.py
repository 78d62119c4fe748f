"""The gang of a pod that is not scheduled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running

PODS: Final = "/api/v1/namespaces/ml/pods"
EVENTS: Final = "/api/v1/namespaces/ml/events"
JOBS: Final = "/apis/batch/v1/namespaces/ml/jobs"
GROUP: Final = "/apis/scheduling.k8s.io/v1beta1/namespaces/ml/podgroups"
DENIED: Final = (
    'Error creating: admission webhook "validate.gpugate.dev" denied the request: Pod denied by gpugate: x'
)
WAITS: Final = "minCount (3) cannot be satisfied: 1 scheduled, 0 remaining"


def _pod(name: str, message: str = "", *, node: str = "", job: str = "", **fields: Any) -> dict[str, Any]:
    """Return a pod of gang train. message: of the scheduler. node: where it is."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "creationTimestamp": "2026-01-01T00:00:05Z"}
    if job:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}
        metadata["ownerReferences"] = [owner]
    spec = {
        "containers": [{"name": "main", "image": "busybox"}],
        "schedulingGroup": {"podGroupName": "train"},
    }
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    status = {"phase": "Pending", "conditions": [condition] if message else []}
    return {
        "metadata": metadata,
        "spec": spec | ({"nodeName": node} if node else {}),
        "status": status,
    } | fields


def _cluster(*pods: dict[str, Any], minimum: int = 3, **policy: Any) -> FakeApi:
    """Return a cluster with pods and their PodGroup."""
    fake = FakeApi()
    fake.serve("batch", "v1", Job="jobs")
    fake.serve("scheduling.k8s.io", "v1beta1", PodGroup="podgroups", Workload="workloads")
    policy = policy or {"gang": {"minCount": minimum}}
    fake.put(GROUP, {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"schedulingPolicy": policy}})
    for pod in pods:
        fake.put(PODS, pod)
    return fake


def _deny(fake: FakeApi, job: str, time: str = "2026-01-01T00:00:09Z") -> None:
    """Write a Job whose last pod was denied."""
    fake.put(JOBS, {"metadata": {"name": job, "namespace": "ml", "uid": job}, "spec": {}})
    about = {"kind": "Job", "name": job, "namespace": "ml", "uid": job}
    event = {"metadata": {"name": "a"}, "involvedObject": about, "reason": "FailedCreate", "message": DENIED}
    fake.put(EVENTS, event | {"lastTimestamp": time})


def _causes(fake: FakeApi, tmp_path: Path, *words: str, pod: str = "train-0") -> list[tuple[str, str, str]]:
    """Return name, certainty and text of the causes of a pod."""
    with running(fake):
        config = fake.kubeconfig(tmp_path)
        result = gpugate("why", "--kubeconfig", config, "-n", "ml", pod, "-o", "json", *words)
    return [
        (cause["name"], cause["certainty"], cause["cause"]) for cause in json.loads(result.stdout)["causes"]
    ]


def test_a_member_that_gpugate_denies_is_the_cause_for_which_the_others_wait(tmp_path: Path) -> None:
    """The scheduler says nothing of a gang that is not complete."""
    fake = _cluster(_pod("train-0", job="train"), _pod("train-1", job="train"))
    _deny(fake, "train")
    text = (
        "gang train (2 pods) waits for the pods of Job/train: its pods are denied: Pod denied by gpugate: x"
    )

    assert [("denied-by-gpugate", "certain", text)] == _causes(fake, tmp_path)
    assert [
        "组（gang）train（2 个 Pod）正在等待 Job/train 的 Pod：它的 Pod 被拒绝：Pod denied by gpugate: x"
    ] == [text for _, _, text in _causes(fake, tmp_path, "--lang", "zh")]


@pytest.mark.parametrize(
    ("members", "time"), [(3, "2026-01-01T00:00:09Z"), (2, "2026-01-01T00:00:04Z")], ids=["complete", "over"]
)
def test_a_denial_that_is_over_is_no_cause(members: int, time: str, tmp_path: Path) -> None:
    """All members exist, or the controller has created a pod since."""
    fake = _cluster(*(_pod(f"train-{number}", job="train") for number in range(members)))
    _deny(fake, "train", time)

    assert "denied-by-gpugate" not in [name for name, *_ in _causes(fake, tmp_path)]


def test_without_the_right_to_read_the_pod_group_a_denial_is_only_likely(tmp_path: Path) -> None:
    """How many pods the gang requires is unknown, and said to be."""
    fake = _cluster(_pod("train-0", job="train"))
    fake.statuses[f"{GROUP}/train"] = 403
    _deny(fake, "train")
    with running(fake):
        said = gpugate("why", "--kubeconfig", fake.kubeconfig(tmp_path), "-n", "ml", "train-0").stdout

    assert "likely: gang train (1 pod) waits for the pods of Job/train: its pods are denied" in said
    assert f"– cannot get {GROUP}/train: 403" in said


def test_members_that_do_not_exist_are_said_to_be_missing(tmp_path: Path) -> None:
    """Also without an event."""
    text = "gang train has 1 of the 3 pods that it requires, which wait for the others"

    assert [("gang-incomplete", "certain", text)] == _causes(_cluster(_pod("train-0")), tmp_path)


def test_a_member_without_a_node_is_named_with_its_cause(tmp_path: Path) -> None:
    """To the pod that waits; a pod with a cause of its own has only this."""
    short = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    fake = _cluster(_pod("train-0", WAITS), _pod("train-1", WAITS), _pod("train-2", short))
    own = "no node that the pod selects has enough free nvidia.com/gpu"
    text = f"gang train (2 pods) waits for pod train-2: {own}"

    assert [("insufficient-resource", "certain", text)] == _causes(fake, tmp_path)
    assert [("insufficient-resource", "certain", own)] == _causes(fake, tmp_path, pod="train-2")


def test_what_the_scheduler_says_of_a_gang_is_the_cause_if_no_member_has_another(tmp_path: Path) -> None:
    """For example, while pods are preempted."""
    fake = _cluster(*(_pod(f"train-{number}", WAITS) for number in range(3)))

    assert ["gang-waits"] == [name for name, *_ in _causes(fake, tmp_path)]


def test_a_group_that_is_not_scheduled_as_a_gang_makes_no_pod_wait(tmp_path: Path) -> None:
    """The policy `basic`; nor does a pod that has a node wait."""
    assert [] == _causes(_cluster(_pod("train-0"), basic={}), tmp_path)
    assert [] == _causes(_cluster(_pod("train-0", node="gpu-1")), tmp_path)


@pytest.mark.parametrize(
    ("group", "field", "key"),
    [
        ("scheduling.x-k8s.io", "labels", "scheduling.x-k8s.io/pod-group"),
        ("scheduling.volcano.sh", "annotations", "scheduling.k8s.io/group-name"),
        ("scheduling.run.ai", "annotations", "pod-group-name"),
    ],
)
def test_gangs_of_other_schedulers_are_read_by_their_labels_and_annotations(
    group: str, field: str, key: str, tmp_path: Path
) -> None:
    """Coscheduling, Volcano and KAI."""
    pod = _pod("train-0")
    del pod["spec"]["schedulingGroup"]
    pod["metadata"][field] = {key: "train"}
    fake = _cluster(pod)
    fake.serve(group, "v1", PodGroup="podgroups")
    path = f"/apis/{group}/v1/namespaces/ml/podgroups"
    fake.put(path, {"metadata": {"name": "train", "namespace": "ml"}, "spec": {"minMember": 2}})

    assert ["gang-incomplete"] == [name for name, *_ in _causes(fake, tmp_path)]
