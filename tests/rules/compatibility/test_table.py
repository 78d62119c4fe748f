"""The table of verdicts, row by row: ready nodes, nodes that may come back, pools, signs of an autoscaler.

Laws over random inventories: tests/laws/test_inventory_laws.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from rules.model.decision import Decision
from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools import AUTOSCALER_STATUS, KARPENTER, declared_pools
from rules.nodes.pools.document import DeclaredPools, NodePool
from tests.support.builders import warning_texts
from tests.support.node_builders import (
    A100,
    COMPUTE,
    H100,
    T4,
    Node,
    cuda_image,
    gfd,
    gpu_pod,
    inventory,
    judged,
    node,
    shipped,
    targets,
)

POOL = "karpenter.sh/nodepool"
# No T4 runs it.
NEEDY = gpu_pod(cuda_image("12.4"), metadata={"name": "train", "annotations": {COMPUTE: "8.0"}})
NEW, OLD = node("new", gfd("13.0", H100)), node("old", gfd("12.2", T4))
CORDONED = {"spec": {"unschedulable": True}}
MAY_RETURN = node("a100", gfd("11.4", A100)) | CORDONED
CANNOT_RETURN = node("t4", gfd("12.4", T4)) | CORDONED


def pool(name: str, **facts: Any) -> NodePool:
    """Return a NodePool with these facts."""
    return NodePool(name, KARPENTER, ((POOL, name),), capabilities=NodeCapabilities(**facts))


FITS = pool("fits", product=H100[0], cuda=(13, 0), driver="580.65.06")
MAY_FIT = pool("may-fit", product=H100[0])
MISFIT = pool("misfit", product=T4[0], cuda=(13, 0))


def cluster(*entries: Node | NodePool) -> Inventory:
    """Return the inventory of nodes and pools; all NodePools are among them."""
    pools = tuple(entry for entry in entries if isinstance(entry, NodePool))
    nodes = [entry for entry in entries if not isinstance(entry, NodePool)]
    return inventory(nodes).with_pools(DeclaredPools(pools, frozenset({KARPENTER} if pools else ())))


def terms(decision: Decision) -> list[Any]:
    """Return the injected terms; none if nothing is injected."""
    if not decision.patch:
        return []
    affinity = decision.patch[0]["value"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(affinity["nodeSelectorTerms"])


def in_pool(name: str) -> dict[str, Any]:
    """Return the term of a pool."""
    return {"matchExpressions": [{"key": POOL, "operator": "In", "values": [name]}]}


EXACT = terms(judged(shipped(), cluster(NEW, OLD), NEEDY))


@pytest.mark.parametrize("others", [[], [CANNOT_RETURN], [MISFIT], [CANNOT_RETURN, MISFIT]])
def test_if_some_ready_nodes_fit_and_no_other_may_affinity_admits_exactly_them(others: list[Any]) -> None:
    """The first row."""
    decision = judged(shipped(), cluster(NEW, OLD, *others), NEEDY)

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    assert ["new"] == targets([NEW, OLD], NEEDY, decision)
    assert EXACT == terms(decision)


@pytest.mark.parametrize(
    ("others", "last"),
    [
        ([MAY_RETURN], []),
        ([MAY_FIT], [in_pool("may-fit")]),
        ([MAY_FIT, MISFIT], [in_pool("may-fit")]),
        ([FITS], [in_pool("fits")]),
        ([FITS, MAY_FIT, MISFIT], [in_pool("fits")]),
        ([FITS, MAY_RETURN], [in_pool("fits")]),
    ],
)
def test_if_some_ready_nodes_fit_and_others_may_the_last_term_is_of_pools_that_fit_or_else_may(
    others: list[Any], last: list[Any]
) -> None:
    """The second row: the terms of the first, and one of labels at creation."""
    decision = judged(shipped(), cluster(NEW, OLD, *others), NEEDY)

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    assert [*EXACT, *last] == terms(decision)


@pytest.mark.parametrize(
    "entries",
    [[OLD], [CANNOT_RETURN], [MAY_RETURN], [OLD, MAY_RETURN], [OLD, MISFIT], [OLD, MAY_FIT], [MISFIT]],
)
def test_if_no_ready_node_fits_but_a_pool_does_it_is_named_and_required(entries: list[Any]) -> None:
    """The third row."""
    decision = judged(shipped(), cluster(*entries, FITS), NEEDY)

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    (note,) = decision.notes
    assert "an autoscaler can add one: NodePool fits (NVIDIA-H100-80GB-HBM3)" in note.en
    free = not any(entry in (OLD, MISFIT) for entry in entries)  # there is nothing to keep the pod from
    assert ([] if free else [in_pool("fits")]) == terms(decision)


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([MAY_FIT], "NodePool may-fit (NVIDIA-H100-80GB-HBM3) may bring one"),
        ([OLD, MAY_FIT], "NodePool may-fit (NVIDIA-H100-80GB-HBM3) may bring one"),
        ([OLD, CANNOT_RETURN, MAY_FIT], "NodePool may-fit (NVIDIA-H100-80GB-HBM3) may bring one"),
        ([MAY_RETURN], "no ready node offers nvidia.com/gpu"),
        ([MAY_RETURN, MISFIT], "no ready node offers nvidia.com/gpu"),
        ([OLD, MAY_RETURN], "nodes that are not ready may be (1 × NVIDIA-A100-SXM4-80GB, CUDA 11.4)"),
        ([OLD, MAY_RETURN, MAY_FIT, MISFIT], "nodes that are not ready may be"),
    ],
)
def test_if_no_ready_node_fits_but_another_may_there_is_one_warning_and_no_affinity(
    entries: list[Any], told: str
) -> None:
    """The fourth row."""
    decision = judged(shipped(), cluster(*entries), NEEDY)

    assert (True, ()) == (decision.allowed, decision.patch)
    (warning,) = warning_texts(decision)
    assert told in warning


@pytest.mark.parametrize(
    "entries", [[OLD], [OLD, CANNOT_RETURN], [OLD, MISFIT], [OLD, CANNOT_RETURN, MISFIT], [MISFIT]]
)
def test_if_no_node_fits_nor_can_come_the_pod_is_denied_and_told_of_the_pools(entries: list[Any]) -> None:
    """The fifth row."""
    decision = judged(shipped(), cluster(*entries), NEEDY)

    assert not decision.allowed
    assert (MISFIT in entries) is ("NodePool misfit (Tesla-T4): compute capability 7.5" in decision.denial.en)


@pytest.mark.parametrize(
    "declared",
    [
        declared_pools({}, unreadable=[KARPENTER]),
        declared_pools({AUTOSCALER_STATUS.name: [{}]}),
        DeclaredPools((MISFIT,), frozenset({KARPENTER}), frozenset({AUTOSCALER_STATUS.name})),
    ],
    ids=["NodePools that cannot be read", "cluster-autoscaler", "cluster-autoscaler beside Karpenter"],
)
def test_if_no_node_fits_and_an_autoscaler_declares_nothing_there_is_one_warning_and_no_affinity(
    declared: DeclaredPools,
) -> None:
    """The sixth row."""
    decision = judged(shipped(), inventory(OLD).with_pools(declared), NEEDY)

    assert (True, (), 1) == (decision.allowed, decision.patch, len(warning_texts(decision)))


def test_the_labels_of_karpenter_on_a_node_are_a_sign_unless_its_pools_are_declared() -> None:
    """The sixth row, and the fifth."""
    labelled = node("old", gfd("12.2", T4) | {POOL: "gone"})
    unknown = judged(shipped(), inventory(labelled), NEEDY)
    declared = judged(shipped(), cluster(labelled, MISFIT), NEEDY)

    assert (True, (), 1, False) == (
        unknown.allowed,
        unknown.patch,
        len(warning_texts(unknown)),
        declared.allowed,
    )


@pytest.mark.parametrize(
    "out", [FITS._replace(can_scale=False), FITS._replace(resources=())], ids=["cannot grow", "offers no GPU"]
)
def test_a_pool_that_is_no_candidate_has_no_part_in_the_verdict(out: NodePool) -> None:
    """As if it were not declared."""
    assert not judged(shipped(), cluster(OLD, out), NEEDY).allowed
    assert EXACT == terms(judged(shipped(), cluster(NEW, OLD, out), NEEDY))


# What its nodes get from GPU Feature Discovery after the driver in their image is replaced.
DECLARED, WRITTEN = gfd("12.8", H100, **{POOL: "h100"}), gfd("13.0", H100, **{POOL: "h100"})


def declared(labels: dict[str, str]) -> NodePool:
    """Return a NodePool that fits, with these labels of its nodes."""
    return FITS._replace(labels=tuple(labels.items()))


def test_a_term_of_a_pool_leaves_out_labels_of_gpu_and_driver_which_nodes_may_write_anew() -> None:
    """Else a node with a newer driver is of no use, and the autoscaler adds the next one."""
    new = node("comes", WRITTEN)
    decision = judged(shipped(), cluster(OLD, MISFIT, declared(DECLARED)), NEEDY)

    assert [in_pool("h100")] == terms(decision)
    assert ["comes"] == targets([OLD, new], NEEDY, decision)


@pytest.mark.parametrize(
    "other",
    [
        node("before", gfd("11.8", H100, **{POOL: "h100"})),
        node("unlabelled", {POOL: "h100"}),
        MISFIT._replace(labels=((POOL, "h100"), ("nvidia.com/gpu.product", T4[0]))),
        MAY_FIT._replace(labels=((POOL, "h100"),)),
    ],
    ids=["older node", "unlabelled node", "pool that does not fit", "pool that may fit"],
)
def test_they_stay_if_without_them_the_term_admits_what_may_not_fit(other: Node | NodePool) -> None:
    """A node that is there, or that may be added."""
    after = cluster(node("ready", gfd("13.0", H100)), OLD, other, declared(DECLARED))
    term = terms(judged(shipped(), after, NEEDY))[-1]

    assert DECLARED == {expression["key"]: expression["values"][0] for expression in term["matchExpressions"]}


def test_they_stay_if_a_pool_has_no_other_labels() -> None:
    """Such as a ResourceFlavor of a product."""
    labels = {"nvidia.com/gpu.product": H100[0]}
    (term,) = terms(judged(shipped(), cluster(OLD, declared(labels)), NEEDY))

    assert labels == {expression["key"]: expression["values"][0] for expression in term["matchExpressions"]}
