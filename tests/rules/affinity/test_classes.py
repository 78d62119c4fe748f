"""Terms that distinguish the nodes that fit: which labels they keep, and how many terms there are."""

from __future__ import annotations

from typing import Any

from rules.affinity.classes import MOST_TERMS, Split, distinguishing
from rules.kube.node_selector_term import Clause
from rules.nodes.inventory_document import inventory_of
from rules.nodes.node_selector import admitted

FACTS = [["minor", "major"], ["product"], ["mode"]]


def split(fit: list[dict[str, str]], unfit: list[dict[str, str]]) -> Split:
    """Return nodes of these labels that fit, and others that do not."""
    nodes = [{"metadata": {"name": f"n{at}", "labels": labels}} for at, labels in enumerate([*fit, *unfit])]
    fitting = (1 << len(fit)) - 1
    inventory = inventory_of(nodes)
    return Split(inventory, fitting, inventory.everything ^ fitting)


def node(version: str, product: str = "a", **labels: str) -> dict[str, str]:
    """Return the labels of a node."""
    major, minor = version.split(".")
    return {"major": major, "minor": minor, "product": product} | labels


def entries(terms: Clause) -> list[dict[str, Any]]:
    """Return terms as key: operator and values."""
    return [
        {expression.key: (expression.operator, *expression.values) for expression in term} for term in terms
    ]


def test_labels_that_come_first_are_left_out_first() -> None:
    """So that a pod that waits while drivers change is not bound to their versions."""
    nodes = split([node("12.2", "a"), node("12.4", "b")], [node("12.6", "c")])

    assert [{"product": ("In", "a", "b")}] == entries(distinguishing(nodes, FACTS))


def test_the_last_part_of_a_version_never_stands_without_those_before_it() -> None:
    """The minor version 2 alone would admit CUDA 11.2."""
    nodes = split([node("12.2")], [node("12.4")])

    assert [{"minor": ("In", "2"), "major": ("In", "12")}] == entries(distinguishing(nodes, FACTS))


def test_a_label_that_only_unfit_nodes_have_must_not_exist() -> None:
    """And nothing is required if there is no unfit node."""
    assert [{"mode": ("DoesNotExist",)}] == entries(
        distinguishing(split([node("12.2")], [node("12.2", mode="vgpu")]), FACTS)
    )
    assert [{}] == entries(distinguishing(split([node("12.2")], []), FACTS))


def test_of_numbers_of_which_greater_ones_fit_the_least_is_the_bound() -> None:
    """Or a lesser one that is known to fit; unless a greater one does not."""
    facts, fit = [["memory"]], [{"memory": "40"}, {"memory": "80"}]

    assert [{"memory": ("Gt", "39")}] == entries(
        distinguishing(split(fit, [{"memory": "20"}]), facts, (), {"memory": 99})
    )
    assert [{"memory": ("Gt", "29")}] == entries(
        distinguishing(split(fit, [{"memory": "20"}]), facts, (), {"memory": 30})
    )
    assert [{"memory": ("In", "40", "80")}] == entries(
        distinguishing(split(fit, [{"memory": "60"}]), facts, (), {"memory": 99})
    )


def test_instead_of_too_many_terms_one_has_all_values() -> None:
    """It admits all nodes that fit."""
    numbers = range(MOST_TERMS + 1)
    nodes = split(
        [{"x": str(at), "y": str(at)} for at in numbers], [{"x": str(at), "y": str(at + 1)} for at in numbers]
    )
    terms = distinguishing(nodes, [["x"], ["y"]])

    assert 1 == len(terms)
    assert nodes.fit == nodes.fit & admitted(nodes.inventory, terms)


def test_a_label_that_vanished_for_now_is_not_required() -> None:
    """The node that lacks it while its driver is replaced is told by its other labels."""
    nodes = split([node("12.2", "a")], [node("12.2", "b")])
    terms = distinguishing(nodes._replace(lost=(("product",), nodes.fit)), [["product"], ["mode"]])

    assert [{"product": ("DoesNotExist",)}] == entries(terms)
