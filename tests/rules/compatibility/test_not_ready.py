"""Nodes that are not ready: they are no reason to deny, and offer nothing now."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools.document import DeclaredPools, NodePool
from tests.support.builders import warning_texts
from tests.support.node_builders import (
    A100,
    GPU,
    H100,
    T4,
    Node,
    cuda_image,
    decided,
    gfd,
    gpu_pod,
    inventory,
    judged,
    legacy,
    node,
    requiring,
    shipped,
    targets,
)

READY = {"type": "Ready", "status": "True"}
# What is different on a node that may come back: status and spec.
STATES: dict[str, dict[str, Any]] = {
    "a driver upgrade: the device plugin reports no GPU": {
        "status": {"allocatable": {GPU: "0"}, "capacity": {GPU: "8"}, "conditions": [READY]}
    },
    "the device plugin is not there, but that of the network is": {
        "status": {"allocatable": {"rdma/hca": "1"}, "conditions": [READY]}
    },
    "the device plugin is not there yet": {"status": {"allocatable": {"cpu": "96"}, "conditions": [READY]}},
    "the node is not ready": {
        "status": {"allocatable": {GPU: "8"}, "conditions": [{"type": "Ready", "status": "Unknown"}]}
    },
    "the node is cordoned": {"spec": {"unschedulable": True}},
}

POOL = "karpenter.sh/nodepool"
OLD_POOL = NodePool("old", "NodePool", ((POOL, "old"),), capabilities=NodeCapabilities(cuda=(11, 4)))
NEW_POOL = NodePool("new", "NodePool", ((POOL, "new"),), capabilities=NodeCapabilities(cuda=(12, 4)))


def with_pool(cluster: list[Node], pool: NodePool) -> Inventory:
    """Return the inventory of nodes and a pool."""
    return inventory(cluster).with_pools(DeclaredPools((pool,), frozenset({"NodePool"})))


def in_state(name: str, labels: dict[str, str], state: str) -> Node:
    """Return a node in one of these states."""
    return node(name, labels) | STATES[state]


@pytest.mark.parametrize("state", STATES)
def test_a_node_that_may_come_back_is_no_reason_to_deny(state: str) -> None:
    """Its driver may be another one then; the warning names its GPU."""
    old = node("old", gfd("11.4", T4))
    document = gpu_pod(cuda_image("12.4"))

    assert not decided([old], document).allowed
    decision = decided([old, in_state("upgrading", gfd("11.4", A100), state)], document)
    assert (True, ()) == (decision.allowed, decision.patch)
    warning = (
        "gpugate: container 'main': no ready node is compatible; nodes that are not ready may be "
        "(1 × NVIDIA-A100-SXM4-80GB, CUDA 11.4); the pod stays Pending until one of them is ready "
        "[rule compatibility-pgpu]"
    )
    assert (warning,) == warning_texts(decision)


@pytest.mark.parametrize("state", STATES)
def test_the_driver_of_a_node_that_may_come_back_may_be_another_one(state: str) -> None:
    """Also where a variable requires it, not a CUDA version."""
    (old,), away = legacy(node("old", gfd("12.2", T4))), in_state("upgrading", gfd("12.2", A100), state)
    document = requiring(NVIDIA_REQUIRE_CUDA="driver>=550")

    assert not decided([old], document).allowed
    decision = decided([old, away], document)
    assert (True, True) == (decision.allowed, "nodes that are not ready may be" in warning_texts(decision)[0])


@pytest.mark.parametrize("state", STATES)
def test_a_gpu_that_can_never_run_the_pod_does_not_count_when_it_comes_back(state: str) -> None:
    """A driver changes, the compute capability of a T4 does not."""
    document = gpu_pod("vllm/vllm-openai:v0.8.4", "--dtype=bfloat16")
    t4s = [node("ready", gfd("12.4", T4)), in_state("upgrading", gfd("12.4", T4), state)]

    assert not decided(t4s, document).allowed
    assert decided([*t4s, in_state("h100", gfd("11.4", H100), state)], document).allowed


@pytest.mark.parametrize("state", STATES)
def test_a_node_that_is_not_ready_offers_nothing_now(state: str) -> None:
    """And is listed as such."""
    nodes = inventory(in_state("away", gfd("12.4"), state), node("ready", gfd("12.4")))

    assert ["ready"] == nodes.names(nodes.nodes_offering(GPU))
    assert ["away"] == nodes.names(nodes.nodes_recovering(GPU)) == nodes.names(nodes.recovering)


def test_a_node_without_gpus_is_not_awaited() -> None:
    """Nothing says that it ever had one."""
    nodes = inventory(node("cpu", {}, cpu="8"))

    assert 0 == nodes.nodes_recovering(GPU) == nodes.recovering


@pytest.mark.parametrize("state", STATES)
def test_a_compatible_ready_node_decides_as_if_the_other_were_not_there(state: str) -> None:
    """Affinity admits the ready one, and the other if its labels fit by then."""
    cluster = [node("new", gfd("12.4")), in_state("upgrading", gfd("11.4", A100), state)]
    document = gpu_pod(cuda_image("12.4"))
    decision = decided(cluster, document)

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    assert ["new"] == targets(cluster, document, decision)


def test_a_bound_pod_is_checked_on_its_node_whatever_its_state_is() -> None:
    """It runs there; `audit` checks it."""
    cordoned = in_state("old", gfd("11.4"), "the node is cordoned")

    assert not decided([cordoned], gpu_pod(cuda_image("12.4"), nodeName="old")).allowed


@pytest.mark.parametrize("state", STATES)
def test_a_node_that_may_come_back_is_no_reason_to_deny_where_pools_do_not_fit(state: str) -> None:
    """With or without another node."""
    document = gpu_pod(cuda_image("12.4"))
    away, old = in_state("upgrading", gfd("12.4", A100), state), node("old", gfd("11.4", T4))

    for cluster in ([away], [away, old]):
        decision = judged(shipped(), with_pool(cluster, OLD_POOL), document)
        assert (True, (), 1) == (decision.allowed, decision.patch, len(warning_texts(decision)))
    assert not judged(shipped(), with_pool([], OLD_POOL), document).allowed


@pytest.mark.parametrize("state", STATES)
def test_a_pool_that_fits_is_brought_although_a_node_may_come_back(state: str) -> None:
    """A pod without affinity would go to the ready node, or bring the cheapest one."""
    document = gpu_pod(cuda_image("12.4"))
    cluster = [in_state("upgrading", gfd("12.4", A100), state), node("old", gfd("11.4", T4))]
    decision = judged(shipped(), with_pool(cluster, NEW_POOL), document)

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    assert ["no node is compatible now; an autoscaler can add one: NodePool new"] == [
        note.en for note in decision.notes
    ]
    assert [] == targets(cluster, document, decision)


@pytest.mark.parametrize("state", STATES)
def test_affinity_keeps_a_pod_from_a_node_that_may_come_back_and_does_not_fit(state: str) -> None:
    """Although an autoscaler is present, and all ready nodes and all pools fit."""
    document = gpu_pod(cuda_image("12.4"))
    ready = node("new", gfd("12.4", A100))
    for version, injected in (("11.4", True), ("12.4", False)):
        away = in_state("away", gfd(version, T4), state)
        decision = judged(shipped(), with_pool([ready, away], NEW_POOL), document)

        assert (True, injected) == (decision.allowed, bool(decision.patch))
        assert (["new"] if injected else ["new", "away"]) == targets([ready, away], document, decision)
