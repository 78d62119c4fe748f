"""Cached evaluations of nodes are of these nodes, these rules and these requirements only."""

from __future__ import annotations

import sys

import pytest

from rules.compatibility.checks import check_on_node
from rules.compatibility.node_evaluation import node_evaluator
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.builders import pod as pod_of
from tests.support.builders import policy, warning_texts
from tests.support.node_builders import (
    GPU,
    T4,
    VCUDA_CORE,
    compatibility_rule,
    cuda_image,
    gfd,
    gpu_container,
    gpu_pod,
    inventory,
    judged,
    node,
    nodes,
    shipped,
)

OLD = node("old", gfd("11.4", T4))
NEW = node("new", gfd("12.4", T4))


def test_a_node_that_joins_or_leaves_counts_in_the_next_decision() -> None:
    """Alternately, with the same pod."""
    document = gpu_pod(cuda_image("12.4"))
    clusters = [inventory(OLD), inventory(OLD, NEW), inventory(OLD)]
    clusters.append(clusters[0].with_node(NEW))
    clusters.append(clusters[-1].without_node("new"))

    assert [False, True, False, True, False] == [
        judged(shipped(), cluster, document).allowed for cluster in clusters
    ]


def test_an_edited_rule_evaluates_the_same_nodes_again() -> None:
    """A rule that keeps its name is a different rule after an edit."""
    document, cluster = gpu_pod(cuda_image("12.4")), inventory(OLD)
    policies = [policy(compatibility_rule(noFittingNode=action)) for action in ("deny", "warn")]
    decisions = [judged(policies[at], cluster, document) for at in (0, 1, 0)]

    assert [(False, 0), (True, 1), (False, 0)] == [
        (decision.allowed, len(warning_texts(decision))) for decision in decisions
    ]


def test_a_message_names_the_container_of_this_pod() -> None:
    """Name and path, also if an equal container of another pod was evaluated before."""
    cluster = inventory(OLD)
    image, fine = cuda_image("12.4"), cuda_image("11.4")
    pods = [
        pod_of(gpu_container(image, name="a")),
        pod_of(gpu_container(fine, name="x"), gpu_container(image, name="a")),
        pod_of(gpu_container(image, name="b")),
    ]
    decisions = [judged(shipped(), cluster, document) for document in pods]

    assert [0, 1, 0] == [int(decision.violations[0].path[len("spec.containers[")]) for decision in decisions]
    assert ["'a'", "'a'", "'b'"] == [
        decision.denial.en.partition("compatible with container ")[2][:3] for decision in decisions
    ]


@pytest.mark.parametrize(
    ("names", "count"),
    [
        ((), 5),
        ((GPU,), 2),
        ((GPU, VCUDA_CORE), 0),
        (("absent.example.com/device",), 0),
        ((GPU, "absent.example.com/device"), 2),
    ],
)
def test_a_resource_that_no_node_offers_excludes_no_node_if_another_resource_is_offered(
    names: tuple[str, ...], count: int
) -> None:
    """Requested alone it excludes all."""
    cluster = inventory(nodes(2, "whole", {}, **{GPU: "8"}), nodes(3, "shared", {}, **{VCUDA_CORE: "8"}))

    assert count == node_evaluator(cluster).offering(names).bit_count()


def test_resources_are_those_of_the_current_inventory() -> None:
    """Not those of the one before."""
    clusters = [inventory(node("a", {}, **{GPU: "8"})), inventory(node("a", {}, **{VCUDA_CORE: "8"}))]

    assert [1, 0, 1] == [node_evaluator(clusters[at]).offering((GPU,)) for at in (0, 1, 0)]


def test_the_result_of_a_pod_of_many_requirements_is_not_cached() -> None:
    """Of seventeen and more."""
    cluster = inventory(node("new", gfd("12.4", T4), **{GPU: "17"}))
    many = [gpu_container(f"team/app:cuda12.4-{at}", name=f"c{at}") for at in range(17)]
    evaluator = node_evaluator(cluster, shipped().prospects)
    cached = evaluator.evaluate.__self__  # type: ignore[attr-defined]
    allowed = [judged(shipped(), cluster, pod_of(*many[:count])).allowed for count in (17, 16)]

    assert ([True, True], [16]) == (allowed, [len(evaluation.required) for evaluation in cached])


def test_equal_containers_are_evaluated_once() -> None:
    """Whatever their names are."""
    cluster = inventory(NEW)
    document = pod_of(*[gpu_container(cuda_image("12.4"), name=f"c{at}") for at in range(3)])
    cached = node_evaluator(cluster, shipped().prospects).evaluate.__self__  # type: ignore[attr-defined]
    judged(shipped(), cluster, document)

    assert [1] == [len(evaluation.required) for evaluation in cached]


def cluster_of(kinds: int) -> Inventory:
    """Return an inventory of so many kinds of nodes, which differ in the version of the driver."""
    labels = [gfd("11.4") | {"nvidia.com/cuda.driver-version.full": f"470.82.{at}"} for at in range(kinds)]
    return inventory([node(f"n{at}", label) for at, label in enumerate(labels)])


def test_nodes_of_equal_capabilities_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten nodes of five kinds; another decision on the same requirements checks none."""
    checked: list[NodeCapabilities] = []

    def counting(
        policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> tuple[CheckResult, ...]:
        checked.append(node)
        return check_on_node(policy, requirements, node)

    monkeypatch.setattr("rules.compatibility.node_evaluation.check_on_node", counting)
    labels = [gfd("11.4") | {"nvidia.com/cuda.driver-version.full": f"470.82.{at % 5}"} for at in range(10)]
    cluster = inventory([node(f"n{at}", label) for at, label in enumerate(labels)])
    for name in ("main", "other"):
        assert not judged(shipped(), cluster, pod_of(gpu_container(cuda_image("12.4"), name=name))).allowed

    assert 5 == len(checked)


def test_the_cost_of_a_denial_grows_linearly_with_the_containers() -> None:
    """Not with their pairs: a pod of 600 would block others for seconds."""

    def calls(containers: int) -> int:
        images = [f"team/app:cuda12.4-{containers}-{at}" for at in range(containers)]
        document = pod_of(*[gpu_container(image, name=f"c{at}") for at, image in enumerate(images)])
        cluster = cluster_of(30)
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        try:
            assert not judged(shipped(), cluster, document).allowed
        finally:
            sys.setprofile(None)
        return count

    calls(1)  # fills caches of tables

    assert calls(160) < 5 * calls(40)


def test_a_resource_that_no_node_offers_is_reported_of_the_container_that_requests_it() -> None:
    """Also if the containers before and after it share their requirements."""
    image, absent = cuda_image("12.4"), {"nvidia.com/gpumem": "4"}
    rule = compatibility_rule(match={"resources": [GPU, "nvidia.com/gpumem"]})
    document = pod_of(
        gpu_container(image, name="a"),
        gpu_container(cuda_image("11.8"), name="b", limits=absent),
        gpu_container(image, name="c"),
    )
    decision = judged(policy(rule), inventory(NEW), document)

    assert ["container 'b'"] == [line.split(": ")[1] for line in warning_texts(decision)]
