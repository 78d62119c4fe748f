"""More than one replica of a GPU that is shared by MPS or time-slicing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import container, pod, policy, warning_texts
from tests.support.node_builders import (
    A100,
    GPU,
    T4,
    Node,
    admitted_to,
    compatibility_rule,
    cuda_image,
    decided,
    gfd,
    inventory,
    judged,
    node,
    targets,
)

STRATEGY = "nvidia.com/gpu.sharing-strategy"
SHARED = "nvidia.com/gpu.shared"
MPS = {STRATEGY: "mps"}
TIME_SLICED = {STRATEGY: "time-slicing"}


def t4(name: str, labels: dict[str, str], resource: str = GPU) -> Node:
    """Return a node with replicas of T4, and these labels of their sharing."""
    return node(name, gfd("12.4", ("Tesla-T4-SHARED", "7.5")) | labels, **{resource: "20"})


def asking(number: int, resource: str = GPU, **further: str) -> Any:
    """Return a pod whose container requests so many replicas, with shared memory, which several GPUs need."""
    limits = {resource: str(number), **further}
    mount = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
    volume = {"name": "shm", "emptyDir": {"medium": "Memory"}}
    return pod(container(limits, limits, image=cuda_image("12.4"), **mount), volumes=[volume])


@pytest.mark.parametrize("resource", [GPU, SHARED])
def test_20_of_a_gpu_shared_by_mps_are_denied_and_the_fix_passes(resource: str) -> None:
    """The complaint: nvidia.com/gpu: 20 for two whole GPUs ends in UnexpectedAdmissionError."""
    cluster = [t4("mps", MPS, resource)]
    decision = decided(cluster, asking(20, resource))

    assert not decision.allowed
    (violation,) = decision.violations
    assert (
        f"the container requests several {resource}; its GPUs are shared by MPS, and a container gets one "
        f"{resource}" in violation.reason.en
    )
    assert f"request 1 {resource}, or use nodes whose GPUs are not shared" in violation.fix.en
    assert ("policy", True) == (violation.basis, "checks.sharedGpuCount" in violation.fix.en)
    fixed = decided(cluster, asking(1, resource))
    assert (True, ()) == (fixed.allowed, warning_texts(fixed))


@pytest.mark.parametrize("resource", [GPU, SHARED])
@pytest.mark.parametrize("labels", [TIME_SLICED, {}])
def test_2_of_a_time_sliced_gpu_are_warned_about_and_the_fix_passes(
    labels: dict[str, str], resource: str
) -> None:
    """Older versions of GPU Feature Discovery have the product with -SHARED, but not the strategy."""
    cluster = [t4("sliced", labels, resource)]
    decision = decided(cluster, asking(2, resource))

    (warning,) = warning_texts(decision)
    assert (True, ()) == (decision.allowed, decision.patch[1:])
    assert "may be one GPU" in warning
    assert f"request 1 {resource}" in warning
    assert () == warning_texts(decided(cluster, asking(1, resource)))


def test_the_pod_goes_to_nodes_whose_gpus_are_not_shared() -> None:
    """If there is one with enough GPUs; a pod with one replica goes anywhere."""
    cluster = [t4("mps", MPS), t4("sliced", TIME_SLICED), t4("old", {})]
    cluster += [node("whole", gfd("12.4", T4) | {STRATEGY: "none"}), node("plain", gfd("12.4", A100))]

    assert ["whole", "plain"] == admitted_to(cluster, asking(2))
    assert ["mps", "sliced", "old", "whole", "plain"] == admitted_to(cluster, asking(1))


def test_affinity_prefers_an_unknown_result_to_a_certain_refusal() -> None:
    """Of time-slicing and MPS, it admits time-slicing."""
    cluster = [t4("mps", MPS), t4("sliced", TIME_SLICED)]
    decision = decided(cluster, asking(2))

    assert (1, ["sliced"]) == (len(warning_texts(decision)), targets(cluster, asking(2), decision))


def test_virtual_gpus_are_not_replicas_of_the_device_plugin() -> None:
    """HAMi has a device plugin of its own; two of its GPUs are on two cards."""
    assert decided([t4("mps", MPS)], asking(2, **{"nvidia.com/gpumem": "4096"})).allowed


@pytest.mark.parametrize(
    ("effect", "by_mps", "by_time_slicing"),
    [("deny", (False, 0), (True, 1)), ("warn", (True, 1), (True, 1)), ("off", (True, 0), (True, 0))],
)
def test_the_rule_sets_the_effect(
    effect: str, by_mps: tuple[bool, int], by_time_slicing: tuple[bool, int]
) -> None:
    """Time-slicing is never denied: the limit is a setting that no label has."""
    rule = policy(compatibility_rule(checks={"sharedGpuCount": effect}))
    decisions = [judged(rule, inventory(t4("one", labels)), asking(2)) for labels in (MPS, TIME_SLICED)]

    assert [by_mps, by_time_slicing] == [
        (decision.allowed, len(warning_texts(decision)) if decision.allowed else 0) for decision in decisions
    ]


def test_a_dry_run_is_counted_and_says_nothing() -> None:
    """And changes no affinity."""
    rule = policy(compatibility_rule(checks={"sharedGpuCount": "dryrun"}))
    decision = judged(rule, inventory(t4("mps", MPS)), asking(2))

    assert (True, (), 1) == (decision.allowed, warning_texts(decision), len(decision.violations))


@pytest.mark.parametrize("quantity", ["x", "1", "0", "1e0"])
def test_one_replica_or_an_unreadable_number_is_no_finding(quantity: str) -> None:
    """The rule of the resource reports a number that cannot be read."""
    limits = {GPU: quantity}
    document = pod(container(limits, limits, image=cuda_image("12.4")))

    assert "MPS" not in decided([t4("mps", MPS)], document).denial.en


def together(*resources: str, **spec: Any) -> Any:
    """Return a pod whose containers request one replica each."""
    limits: list[dict[str, str]] = [{resource: "1"} for resource in resources]
    image = cuda_image("12.4")
    return pod(
        *(container(limit, limit, image=image, name=f"c{at}") for at, limit in enumerate(limits)), **spec
    )


@pytest.mark.parametrize("resource", [GPU, SHARED])
@pytest.mark.parametrize("labels", [TIME_SLICED, {}])
def test_two_containers_with_one_replica_each_may_get_one_gpu(labels: dict[str, str], resource: str) -> None:
    """Once for the pod; where it may run is not changed."""
    cluster = [t4("sliced", labels, resource), node("whole", gfd("12.4"), **{resource: "8"})]
    decision = decided(cluster, together(resource, resource))

    (warning,) = warning_texts(decision)
    assert (True, ["sliced", "whole"]) == (
        decision.allowed,
        targets(cluster, together(resource, resource), decision),
    )
    assert f"2 containers request {resource}: time-slicing may give them one GPU" in warning
    assert "use nodes whose GPUs are not shared" in warning
    fixed = together(resource, resource, nodeSelector={"kubernetes.io/hostname": "whole"})
    cluster[1] = node("whole", gfd("12.4") | {"kubernetes.io/hostname": "whole"}, **{resource: "8"})
    assert () == warning_texts(decided(cluster, fixed))


@pytest.mark.parametrize(
    ("labels", "document"),
    [
        (TIME_SLICED, together(GPU)),
        (TIME_SLICED, together(GPU, "cpu")),
        (TIME_SLICED, together("cpu", initContainers=together(GPU, GPU)["spec"]["containers"])),
        (MPS, together(GPU, GPU)),
        ({STRATEGY: "none"}, together(GPU, GPU)),
    ],
)
def test_containers_that_do_not_share_memory_without_a_limit_are_no_finding(
    labels: dict[str, str], document: Any
) -> None:
    """One container, init containers one after the other, and MPS, which divides the memory."""
    product = "Tesla-T4" if labels.get(STRATEGY) == "none" else "Tesla-T4-SHARED"
    cluster = [node("one", gfd("12.4", (product, "7.5")) | labels, **{GPU: "20"})]

    assert not [text for text in warning_texts(decided(cluster, document)) if "may give them one GPU" in text]


def test_the_rule_turns_it_off() -> None:
    """By the same setting."""
    rule = policy(compatibility_rule(checks={"sharedGpuCount": "off"}))

    assert () == warning_texts(judged(rule, inventory(t4("one", TIME_SLICED)), together(GPU, GPU)))
