"""Label constraints: sets of nodes by their facts."""

from __future__ import annotations

import pytest

from rules.affinity.label_constraints import (
    CUDA,
    DRIVER,
    PRODUCT,
    LabelConstraint,
    both,
    like,
    shortened,
)
from rules.affinity.version_range import VersionRange
from rules.nodes.node_capabilities import NodeCapabilities

NEW = VersionRange((12, 4))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (frozenset({"a", "b"}), frozenset({"b", "c"}), [{PRODUCT: frozenset({"b"})}]),
        (frozenset({"a"}), frozenset({"b"}), []),
        (frozenset({"a"}), None, []),
        (None, None, [{PRODUCT: None}]),
    ],
)
def test_nodes_of_two_constraints_have_a_product_that_both_name(
    one: frozenset[str] | None, other: frozenset[str] | None, expected: LabelConstraint
) -> None:
    """Or no product, if both require that."""
    assert expected == both([{PRODUCT: one}], [{PRODUCT: other}])


def test_a_fact_that_only_one_constraint_names_is_kept() -> None:
    """The other says nothing of it."""
    products = frozenset({"a"})

    assert [{CUDA: NEW, PRODUCT: products}] == both([{CUDA: NEW}], [{PRODUCT: products}])


def test_adjacent_ranges_are_one() -> None:
    """The end of a range is not in it, so that the next one may begin there; a gap stays."""
    below, above = VersionRange((12, 0), (12, 4)), VersionRange((12, 4), (13, 0))
    later = VersionRange((13, 1), (13, 2))

    assert [{CUDA: VersionRange((12, 0), (13, 0))}, {CUDA: later}] == shortened(
        [{CUDA: above}, {CUDA: below}, {CUDA: later}]
    )


def test_nodes_like_one_have_its_driver_branch_or_exactly_its_driver() -> None:
    """Exactly, if another driver of the branch is not meant; never the next branch or patch."""
    meant = NodeCapabilities(cuda=(12, 2), driver="535.104.05", product="Tesla-T4")
    other = NodeCapabilities(cuda=(12, 2), driver="535.54.03", product="Tesla-T4")
    elsewhere = NodeCapabilities(cuda=(12, 2), driver="535.54.03", product="Tesla-V100-SXM2-32GB")
    gpu = {CUDA: VersionRange(), PRODUCT: frozenset({"Tesla-T4"})}
    branch, exact = VersionRange((535, 0), (536, 0)), VersionRange((535, 104, 5), (535, 104, 6))

    assert [gpu | {DRIVER: branch}] == like([meant]) == like([meant], [elsewhere])
    assert [gpu | {DRIVER: exact}] == like([meant], [other])
