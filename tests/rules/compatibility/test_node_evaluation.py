"""What is remembered of nodes holds for these nodes, these rules and these needs alone."""

from __future__ import annotations

import sys

import pytest
from rules.compatibility.fitness import fitness

from rules.compatibility.node_evaluation import node_evaluator
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.builders import pod as pod_of
from tests.support.builders import policy
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


def test_a_node_that_joins_or_leaves_is_seen_by_the_next_decision() -> None:
    """By turns, with the same pod."""
    document = gpu_pod(cuda_image("12.4"))
    clusters = [inventory(OLD), inventory(OLD, NEW), inventory(OLD)]
    clusters.append(clusters[0].with_node(NEW))
    clusters.append(clusters[-1].without_node("new"))

    assert [False, True, False, True, False] == [
        judged(shipped(), cluster, document).allowed for cluster in clusters
    ]


def test_an_edited_rule_judges_the_same_nodes_anew() -> None:
    """A rule that keeps its name is another one all the same."""
    document, cluster = gpu_pod(cuda_image("12.4")), inventory(OLD)
    policies = [policy(compatibility_rule(noFittingNode=action)) for action in ("deny", "warn")]
    found = [judged(policies[at], cluster, document) for at in (0, 1, 0)]

    assert [(False, 0), (True, 1), (False, 0)] == [(each.allowed, len(each.warnings)) for each in found]


def test_what_is_said_of_a_container_is_said_of_that_one() -> None:
    """By its name and its place, whichever came before."""
    cluster = inventory(OLD)
    image, fine = cuda_image("12.4"), cuda_image("11.4")
    pods = [
        pod_of(gpu_container(image, name="a")),
        pod_of(gpu_container(fine, name="x"), gpu_container(image, name="a")),
        pod_of(gpu_container(image, name="b")),
    ]
    found = [judged(shipped(), cluster, document) for document in pods]

    assert [0, 1, 0] == [int(each.violations[0].path[len("spec.containers[")]) for each in found]
    assert ["'a'", "'a'", "'b'"] == [each.message.partition("fits container ")[2][:3] for each in found]


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
def test_a_resource_that_no_node_offers_sorts_out_none_beside_one_that_some_do(
    names: tuple[str, ...], count: int
) -> None:
    """Asked for alone it sorts out all."""
    cluster = inventory(nodes(2, "whole", {}, **{GPU: "8"}), nodes(3, "shared", {}, **{VCUDA_CORE: "8"}))

    assert count == node_evaluator(cluster).offering(names).bit_count()


def test_of_other_nodes_other_resources_are_remembered() -> None:
    """The offers of one inventory are not those of the next."""
    clusters = [inventory(node("a", {}, **{GPU: "8"})), inventory(node("a", {}, **{VCUDA_CORE: "8"}))]

    assert [1, 0, 1] == [node_evaluator(clusters[at]).offering((GPU,)) for at in (0, 1, 0)]


def test_a_pod_of_many_containers_is_judged_and_not_remembered() -> None:
    """Seventeen are more than one keeps."""
    cluster = inventory(NEW)
    image = cuda_image("12.4")
    many = [gpu_container(image, name=f"c{at}") for at in range(17)]
    landscape = node_evaluator(cluster)
    kept = landscape.judge.__self__  # type: ignore[attr-defined]
    allowed = [judged(shipped(), cluster, pod_of(*many[:count])).allowed for count in (17, 16)]

    assert ([True, True], [16]) == (allowed, [len(asked.demands) for asked in kept])


def cluster_of(kinds: int) -> Inventory:
    """Return an inventory of so many kinds of nodes: they differ by the version of a driver of one branch."""
    labels = [gfd("11.4") | {"nvidia.com/cuda.driver-version.full": f"470.82.{at}"} for at in range(kinds)]
    return inventory([node(f"n{at}", each) for at, each in enumerate(labels)])


def test_containers_are_judged_by_what_they_see_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for nodes that differ in what no need of theirs is about."""
    asked: list[NodeCapabilities] = []

    def counted(
        terms: SharingPolicy, needs: GpuRequirements, capabilities: NodeCapabilities
    ) -> tuple[CheckResult, ...]:
        asked.append(capabilities)
        return fitness(terms, needs, capabilities)

    monkeypatch.setattr("rules.compatibility.node_evaluation.fitness", counted)
    decision = judged(shipped(), cluster_of(50), gpu_pod(cuda_image("12.4")))

    assert (1, 1) == (len(asked), decision.message.count("470.82.10 "))


def test_what_a_pod_that_no_node_fits_costs_grows_as_its_containers_do() -> None:
    """And not as their pairs: a pod of 600 would keep others waiting for seconds."""

    def calls(containers: int) -> int:
        images = [f"nvidia/cuda:12.4.0-base-{containers}-{at}" for at in range(containers)]
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

    calls(1)  # what is read once

    assert calls(160) < 5 * calls(40)
