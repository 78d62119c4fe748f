"""Differences between node profiles and their present nodes."""

from __future__ import annotations

from typing import Any

import pytest

from rules.lint.profile_differences import differences_of_rules, members, profile_differences
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames
from tests.support.builders import loaded
from tests.support.node_builders import (
    A100,
    H100,
    T4,
    compatibility_rule,
    gfd,
    inventory,
    node,
    node_profile,
    nodes,
)

PRODUCT = "nvidia.com/gpu.product"
CLUSTER = inventory(
    nodes(2, "h100", gfd("13.0", H100, pool="a")),
    node("old", gfd("12.2", H100, pool="a")),
    node("unlabelled", {"pool": "a"}),
    node("other", gfd("11.4", T4, pool="b")),
)


def differences(cluster: Inventory, *texts: str) -> list[tuple[str, str, str, str, list[str]]]:
    """Return the differences of profiles, with the names of the nodes."""
    read = profile_differences(loaded(*texts).rules.profiles, cluster, LabelNames())
    return [(*difference[:4], cluster.names(difference.nodes)) for difference in read]


def test_a_fact_that_present_nodes_report_otherwise_is_a_difference() -> None:
    """Only of nodes that match, and only what both state."""
    profile = node_profile(product=H100[0], cuda="13.0", computeCapability="9.0", driver="580.95")

    assert [("profile", "cuda", "13.0", "12.2", ["old"])] == differences(CLUSTER, profile)
    assert [] == differences(
        CLUSTER, node_profile(memory=1), node_profile(name="b", enabled="false", cuda="9")
    )


def test_equal_reports_of_several_classes_are_one_difference() -> None:
    """The nodes of the pool have two drivers, but one product."""
    stated = {"product": A100[0], "computeCapability": "8.0"}
    every = ["h100-0", "h100-1", "old"]

    assert [
        ("profile", "product", A100[0], H100[0], every),
        ("profile", "computeCapability", "8.0", "9.0", every),
    ] == differences(CLUSTER, node_profile(**stated))


@pytest.mark.parametrize(
    ("stated", "reported", "expected"),
    [
        (A100[0], f"{A100[0]}-SHARED", 0),
        (A100[0], f"{A100[0]}-MIG-1g.5gb", 0),
        ("A100-SXM4-80GB", A100[0], 0),
        ("NVIDIA-A100-SXM4-40GB", A100[0], 1),
        ("Prototype", "Prototype", 0),
        ("Prototype", "Prototype-2", 1),
    ],
)
def test_labels_of_the_same_model_do_not_differ(stated: str, reported: str, expected: int) -> None:
    """With MIG or time slicing, a label has a suffix; another memory is another model."""
    cluster = inventory(node("n", {PRODUCT: reported, "pool": "a"}))

    assert expected == len(differences(cluster, node_profile(product=stated)))


def test_a_node_belongs_to_a_profile_if_it_has_all_its_labels() -> None:
    """With their values."""
    match: dict[str, Any] = {"nodeLabels": {"pool": "a", PRODUCT: H100[0]}}
    (profile,) = loaded(node_profile(match=match)).rules.profiles

    assert ["h100-0", "h100-1", "old"] == CLUSTER.names(members(profile, CLUSTER))


def test_the_differences_of_rules_are_by_the_labels_that_these_read() -> None:
    """By each rule's labels, each difference once; without rules, by the labels of the built-in ones."""
    cluster = inventory(node("a", gfd("12.2", T4, pool="a") | {"own": "12.4"}))
    own = compatibility_rule(name="own", labels={"cuda": ["own"]})
    both = [compatibility_rule(), compatibility_rule(name="b"), own, node_profile(cuda="13.0")]

    def reported(*texts: str) -> list[str]:
        return [
            differences_of_rule.reported
            for differences_of_rule in differences_of_rules(loaded(*texts).rules, cluster)
        ]

    assert ["12.2"] == reported(node_profile(cuda="13.0"))
    assert ["12.2", "12.4"] == reported(*both)
    assert [] == reported(own)
