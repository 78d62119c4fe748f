"""Clusters in which an autoscaler may add nodes: verdicts, and node affinity that does not keep them out."""

from __future__ import annotations

from typing import Any

import pytest

from rules import compile_policy, load_rules
from rules.decision.policy import Policy
from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools.document import DeclaredPools, NodePool
from tests.support.builders import warning_texts
from tests.support.node_builders import (
    A100,
    H100,
    T4,
    V100,
    compatibility_rule,
    cuda_image,
    decided,
    gfd,
    gpu_pod,
    inventory,
    judged,
    node,
    targets,
)

TYPE = "node.kubernetes.io/instance-type"
CUDA_12_4 = gpu_pod(cuda_image("12.4"))


def added(name: str, instance_type: str, labels: dict[str, str]) -> Any:
    """Return a node that Karpenter has added."""
    return node(name, labels | {"karpenter.sh/nodepool": "gpu", TYPE: instance_type})


def policy(**rule: Any) -> Policy:
    """Return the policy of one rule for whole GPUs."""
    loaded = load_rules([("r.yaml", compatibility_rule(**rule))])
    assert not loaded.errors
    return compile_policy(loaded.rules)


def terms(patch: Any) -> list[dict[str, Any]]:
    """Return the terms of the injected affinity."""
    (operation,) = patch
    affinity = operation["value"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(affinity["nodeSelectorTerms"])


@pytest.mark.parametrize(
    ("setting", "autoscaled", "allowed"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"noFittingNode": "auto"}, True, True),
        ({"noFittingNode": "deny"}, True, False),
        ({"noFittingNode": "warn"}, False, True),
    ],
)
def test_no_compatible_node_is_a_warning_where_an_autoscaler_may_add_one(
    setting: dict[str, str], autoscaled: bool, allowed: bool
) -> None:
    """Unless the rule forces the one or the other."""
    old = added("old", "t4", gfd("12.2", T4)) if autoscaled else node("old", gfd("12.2", T4))
    decision = judged(policy(**setting), inventory(old), CUDA_12_4)

    assert (allowed, int(allowed)) == (decision.allowed, len(warning_texts(decision)))


def test_an_autoscaler_does_not_help_a_pod_that_is_bound_to_its_node() -> None:
    """Unless the rule only warns."""
    cluster = inventory(added("old", "t4", gfd("12.2", T4)))
    bound = gpu_pod(cuda_image("12.4"), nodeName="old")

    assert [False, True, True] == [
        judged(policy(**rule), cluster, bound).allowed
        for rule in ({}, {"noFittingNode": "warn"}, {"enforcementAction": "warn"})
    ]


def test_nothing_is_injected_where_an_autoscaler_is_and_every_candidate_fits() -> None:
    """It adds no node for labels that it does not know."""
    fits = added("new", "a100", gfd("12.4", A100))

    assert () == decided([fits], CUDA_12_4).patch
    assert decided([node("new", gfd("12.4", A100))], CUDA_12_4).patch


def test_the_last_term_of_affinity_are_the_instance_types_whose_nodes_all_fit() -> None:
    """Karpenter knows them of a node that does not exist yet; it tries the terms in their order."""
    cluster = [
        added("t4", "t4", gfd("12.2", T4)),
        added("a100", "a100", gfd("12.4", A100)),
        added("mixed-old", "mixed", gfd("12.2", A100)),
        added("mixed-new", "mixed", gfd("12.4", A100)),
        added("unlabelled", "a100", {}),
    ]
    decision = decided(cluster, CUDA_12_4)

    *_, last = terms(decision.patch)
    assert {"matchExpressions": [{"key": TYPE, "operator": "In", "values": ["a100"]}]} == last
    # The price: an unlabelled node of such a type is admitted.
    assert ["a100", "mixed-new", "unlabelled"] == targets(cluster, CUDA_12_4, decision)


def test_a_second_run_adds_nothing_to_the_affinity_of_the_first() -> None:
    """Although the last term has none of the others' labels."""
    cluster = [added("t4", "t4", gfd("12.2", T4)), added("a100", "a100", gfd("12.4", A100))]
    spec = {"affinity": decided(cluster, CUDA_12_4).patch[0]["value"]}

    assert () == decided(cluster, gpu_pod(cuda_image("12.4"), **spec)).patch


def test_no_affinity_is_injected_where_an_autoscaler_is_and_compatibility_is_unknown() -> None:
    """A term for missing labels lets Karpenter add nodes without end."""
    cluster = [added("unlabelled", "a100", {}), added("t4", "t4", gfd("12.2", T4))]
    decision = decided(cluster, CUDA_12_4)

    assert (True, ()) == (decision.allowed, decision.patch)


@pytest.mark.parametrize(
    ("setting", "autoscaled", "by_type"),
    [("auto", True, True), ("auto", False, False), ("byInstanceType", False, True), ("none", True, False)],
)
def test_new_nodes_are_admitted_as_the_rule_sets_it(setting: str, autoscaled: bool, by_type: bool) -> None:
    """In any cluster, or in none."""
    cluster = [added("t4", "t4", gfd("12.2", T4)), added("a100", "a100", gfd("12.4", A100))]
    if not autoscaled:
        for document in cluster:
            del document["metadata"]["labels"]["karpenter.sh/nodepool"]
    decision = judged(policy(newNodes=setting), inventory(cluster), CUDA_12_4)

    assert by_type is (TYPE in str(decision.patch))


def test_the_instance_type_of_a_pool_that_does_not_fit_is_no_way_in() -> None:
    """Its image has an older driver than the present nodes of that type."""
    cluster = [added("t4", "t4", gfd("12.2", T4)), added("a100", "a100", gfd("12.4", A100))]
    old = NodePool("old", "NodePool", ((TYPE, "a100"),), capabilities=NodeCapabilities(cuda=(12, 2)))
    for pools, by_type in (((), True), ((old,), False), ((old._replace(can_scale=False),), True)):
        nodes = inventory(cluster).with_pools(DeclaredPools(pools, frozenset({"NodePool"})))

        assert by_type is (TYPE in str(judged(policy(), nodes, CUDA_12_4).patch))


UNKNOWN_H100 = NodePool(
    "gpu", "NodePool", (("karpenter.sh/nodepool", "gpu"),), capabilities=NodeCapabilities(product=H100[0])
)


def with_pools(*cluster: Any, types: tuple[str, ...] = ()) -> Inventory:
    """Return the inventory of nodes and of a NodePool of these instance types; none for any."""
    labels = UNKNOWN_H100.labels
    pools = tuple(UNKNOWN_H100._replace(labels=(*labels, (TYPE, type_))) for type_ in types) or (
        UNKNOWN_H100,
    )
    return inventory(list(cluster)).with_pools(DeclaredPools(pools, frozenset({"NodePool"})))


def test_a_pool_whose_driver_is_unknown_stays_open_after_one_node_fits() -> None:
    """As before there was one: an unknown fact allows. Each type of the pool, not only that of its nodes."""
    static = node("h100", gfd("12.8", H100))
    of_pool = added("h100", "p5.48xlarge", gfd("12.8", H100))
    of_types = ("p5.4xlarge", "p5.48xlarge")

    for nodes, types in (
        (with_pools(static), ["any"]),
        (with_pools(of_pool), ["any"]),
        (with_pools(of_pool, types=of_types), [*of_types]),
    ):
        decision = judged(policy(), nodes, CUDA_12_4)
        values_by_key = [
            {
                expression["key"]: expression["values"][0]
                for expression in term["matchExpressions"]
                if "values" in expression
            }
            for term in terms(decision.patch)
        ]

        assert () == warning_texts(decision)
        assert types == [term.get(TYPE, "any") for term in values_by_key if "karpenter.sh/nodepool" in term]
        assert [] == [term for term in values_by_key if [*term] == [TYPE]]
        assert ["an autoscaler may add nodes: NodePool gpu (NVIDIA-H100-80GB-HBM3)"] == [
            note.en for note in decision.notes
        ]


def test_a_pool_with_an_incompatible_node_and_an_unknown_driver_is_kept_out_with_a_warning() -> None:
    """Its next node may be like that."""
    cluster = [node("h100", gfd("12.8", H100)), added("old", "", gfd("12.2", H100))]
    decision = judged(policy(), with_pools(*cluster), CUDA_12_4)

    assert "karpenter.sh/nodepool" not in str(decision.patch)
    (warning,) = warning_texts(decision)
    assert "NodePool gpu (NVIDIA-H100-80GB-HBM3) has incompatible nodes now" in warning


def test_affinity_keeps_out_a_pool_whose_gpu_is_below_the_floor_of_the_image() -> None:
    """Its nodes are created with the labels of their GPU; no present node has such an old one."""
    cluster = [added("old", "a100", gfd("12.2", A100)), added("new", "a100", gfd("13.0", A100))]
    labels = gfd("13.0", V100)
    facts = NodeCapabilities(cuda=(13, 0), driver="580.65.06", compute_capability=(7, 0))
    pools = (NodePool("v100", "NodePool", tuple(labels.items()), capabilities=facts),)
    nodes = inventory(cluster).with_pools(DeclaredPools(pools, frozenset({"NodePool"})))
    document = gpu_pod(cuda_image("13.0"))
    decision = judged(policy(), nodes, document)

    assert ["new"] == targets([*cluster, node("coming", labels)], document, decision)


def test_a_note_says_which_nodes_an_autoscaler_may_add() -> None:
    """By the type of those that fit; or that it adds none."""
    fits, misfits = added("new", "a100.xlarge", gfd("12.4", A100)), added("old", "t4.xlarge", gfd("11.4", T4))
    untyped = node("new", gfd("12.4", A100) | {"karpenter.sh/nodepool": "gpu"})

    assert ["an autoscaler may add nodes: a100.xlarge"] == notes(fits, misfits)
    assert ["adds no node for this pod" in note for note in notes(untyped, misfits)] == [True]
    assert [] == notes(fits)
    assert [] == notes(node("new", gfd("12.4", A100)), node("old", gfd("11.4", T4)))


def notes(*cluster: Any) -> list[str]:
    """Return the notes on a pod that needs CUDA 12.4."""
    return [note.en for note in decided(list(cluster), CUDA_12_4).notes]
