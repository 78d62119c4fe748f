"""Node selectors, compared with a reference implementation of the documentation."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings

from rules.kube.node_selector_term import parse_term
from rules.nodes.inventory_document import inventory_of
from rules.nodes.node_selector import candidates, matching
from tests.support import reference_selector as reference
from tests.support.laws import EXAMPLES

LABELS = {
    "east": {"zone": "east", "rack": "7", "cores": "64"},
    "west": {"zone": "west", "cores": "many"},
    "bare": {},
}
INVENTORY = inventory_of(
    [
        {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {"nvidia.com/gpu": "0" if name == "bare" else "8"}},
        }
        for name, labels in LABELS.items()
    ]
)


def matched(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> set[str]:
    """Return the names that one term matches."""
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return set(INVENTORY.names(matching(INVENTORY, [term])))


def expression(key: Any, operator: Any, *values: Any) -> dict[str, Any]:
    """Return a node selector requirement."""
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


@settings(max_examples=3 * EXAMPLES)
@given(reference.clusters, reference.pod_specs)
def test_the_index_finds_the_same_nodes_as_the_reference(
    cluster: list[reference.Node], spec: dict[str, Any]
) -> None:
    """For any nodes and any selector, valid or not."""
    inventory = inventory_of(cluster)
    before = deepcopy(spec)

    expected = {node["metadata"]["name"] for node in cluster if reference.may_go(node, spec)}
    assert set(inventory.names(candidates(inventory, spec))) == expected
    assert spec == before


@given(reference.junk)
def test_any_json_instead_of_terms_does_not_raise(terms: Any) -> None:
    """Mutating webhooks run before the API server validates."""
    assert matching(INVENTORY, terms) == 0 or isinstance(terms, list)


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ["east"], {"east"}),
        ("In", ["east", "west"], {"east", "west"}),
        ("NotIn", ["east"], {"west", "bare"}),
        ("Exists", [], {"east", "west"}),
        ("DoesNotExist", [], {"bare"}),
    ],
)
def test_an_operator_selects_by_the_label_value(operator: str, values: list[str], expected: set[str]) -> None:
    """NotIn and DoesNotExist match nodes without the label."""
    assert matched(expression("zone", operator, *values)) == expected


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("Gt", "63", {"east"}),
        ("Gt", "64", set()),
        ("Lt", "65", {"east"}),
        ("Lt", "64", set()),
        ("Gt", "063", {"east"}),
        ("Gt", "9223372036854775807", set()),
    ],
)
def test_gt_and_lt_compare_numbers_and_ignore_other_values(
    operator: str, value: str, expected: set[str]
) -> None:
    """The bound itself does not match, nor does a label that is not a number."""
    assert matched(expression("cores", operator, value)) == expected


@pytest.mark.parametrize(
    "bad",
    [
        expression("cores", "Gt", "-1"),
        expression("cores", "Gt", "1", "2"),
        expression("cores", "Lt", "9223372036854775808"),
        expression("cores", "Gt"),
        expression("zone", "NotIn"),
        expression("zone", "Exists", "east"),
        expression("zone", "in", "east"),
        expression("zone", "NotIn", "no value"),
        expression("zone", "NotIn", 7),
        expression("no key", "DoesNotExist"),
        {"key": "zone", "operator": "NotIn", "values": "west"},
        {"key": "zone"},
        None,
    ],
)
def test_a_term_with_an_invalid_expression_matches_nothing(bad: Any) -> None:
    """Even together with an expression that matches every node."""
    assert matched(bad, expression("absent", "DoesNotExist")) == set()


def test_expressions_and_fields_of_a_term_must_all_hold() -> None:
    """Terms are ORed, their expressions are ANDed."""
    field = expression("metadata.name", "In", "east")

    assert matched(expression("zone", "Exists"), fields=(field,)) == {"east"}
    assert matched(expression("zone", "In", "west"), fields=(field,)) == set()


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (expression("metadata.name", "In", "bare"), {"bare"}),
        (expression("metadata.name", "NotIn", "bare"), {"east", "west"}),
        (expression("metadata.name", "In", "east", "west"), set()),
        (expression("metadata.name", "NotIn", "No Name"), set()),
        (expression("metadata.name", "Exists"), set()),
        (expression("metadata.namespace", "NotIn", "x"), set()),
    ],
)
def test_fields_match_the_name_by_one_value_only(field: dict[str, Any], expected: set[str]) -> None:
    """The scheduler supports In and NotIn of metadata.name."""
    assert matched(fields=(field,)) == expected


@pytest.mark.parametrize(
    "terms", [[], [{}], [{"matchExpressions": [], "matchFields": []}], [None], None, "east"]
)
def test_no_terms_and_empty_terms_match_no_node(terms: Any) -> None:
    """An empty term is not a term without conditions."""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}

    assert candidates(INVENTORY, {"affinity": {"nodeAffinity": required}}) == 0


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"east", "west", "bare"}),
        ({"nodeName": ""}, {"east", "west", "bare"}),
        ({"nodeName": "west"}, {"west"}),
        ({"nodeName": "gone"}, set()),
        ({"nodeSelector": {"zone": "east"}}, {"east"}),
        ({"nodeSelector": {"zone": "east", "rack": "8"}}, set()),
        ({"nodeSelector": {"zone": 7}}, set()),
        ({"nodeSelector": {"zone": "east"}, "nodeName": "west"}, {"west"}),
        ({"affinity": None}, {"east", "west", "bare"}),
        ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}, set()),
    ],
)
def test_node_name_selector_and_affinity_must_all_match(spec: dict[str, Any], expected: set[str]) -> None:
    """An absent, null or empty field matches every node, except an affinity without terms."""
    assert set(INVENTORY.names(candidates(INVENTORY, spec))) == expected


def test_equal_values_of_other_types_are_different_expressions() -> None:
    """In Python 1 and True are equal; label values are strings only."""
    terms = [{"matchExpressions": [expression("n", "In", value)]} for value in ("1", 1, True, ["1"], "1")]
    inventory = inventory_of([{"metadata": {"name": "one", "labels": {"n": "1"}}}])

    assert [1, 0, 0, 0, 1] == [matching(inventory, [term]).bit_count() for term in terms]


def test_a_long_expression_is_not_cached() -> None:
    """A pod can contain one of a megabyte."""
    values = [f"v{at}" for at in range(1000)]
    term = {"matchExpressions": [expression("n", "In", *values)]}
    inventory = inventory_of([{"metadata": {"name": "one", "labels": {"n": "v999"}}}])

    assert [1, 1] == [matching(inventory, [term]).bit_count() for _ in range(2)]
    (first,), (second,) = parse_term(term) or (), parse_term(term) or ()

    assert first == second
    assert first is not second
