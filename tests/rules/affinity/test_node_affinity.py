"""Injected node affinity: which nodes it admits, and what it leaves of the user's own."""

from __future__ import annotations

from typing import Any

import pytest

from rules.affinity.node_affinity import Requirement, conjoin, inject, prefer
from rules.affinity.version_range import VersionRange, version_requirement
from rules.kube.node_selector_term import MatchExpression
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.nodes.label_families import LabelNames, Version
from tests.support.reference_selector import with_required

NAMES = LabelNames()
MAJOR, MINOR = "cuda-major-version", "cuda-minor-version"
PLAIN = inventory_of({"metadata": {"name": "one", "labels": {MAJOR: "12", MINOR: "4"}}})

Term = dict[str, Any]


def term(*expressions: tuple[str, str, str] | tuple[str, str]) -> Term:
    """Return a nodeSelectorTerm of (key, operator, values separated by spaces)."""
    entries = [
        dict(zip(("key", "operator", "values"), expression, strict=False)) for expression in expressions
    ]
    return {
        "matchExpressions": [
            {**entry, "values": entry["values"].split()} if "values" in entry else entry for entry in entries
        ]
    }


def cuda(
    at_least: Version = (0, 0), below: Version | None = None, inventory: Inventory = PLAIN
) -> Requirement:
    """Return the requirement of a CUDA version."""
    return version_requirement(VersionRange(at_least, below), NAMES.cuda, inventory)


@pytest.mark.parametrize(
    ("at_least", "below", "expected"),
    [
        ((12, 4), None, [term((MAJOR, "In", "12"), (MINOR, "Gt", "3")), term((MAJOR, "Gt", "12"))]),
        ((12, 0), None, [term((MAJOR, "Gt", "11"))]),
        ((12, 4), (13, 0), [term((MAJOR, "In", "12"), (MINOR, "Gt", "3"))]),
        ((12, 0), (13, 0), [term((MAJOR, "In", "12"))]),
        ((0, 0), (12, 4), [term((MAJOR, "Lt", "12")), term((MAJOR, "In", "12"), (MINOR, "Lt", "4"))]),
        ((0, 0), (12, 0), [term((MAJOR, "Lt", "12"))]),
        ((12, 1), (12, 4), [term((MAJOR, "In", "12"), (MINOR, "Gt", "0"), (MINOR, "Lt", "4"))]),
        (
            (11, 8),
            (14, 1),
            [
                term((MAJOR, "In", "11"), (MINOR, "Gt", "7")),
                term((MAJOR, "Gt", "11"), (MAJOR, "Lt", "14")),
                term((MAJOR, "In", "14"), (MINOR, "Lt", "1")),
            ],
        ),
        ((12, 4), (12, 4), [{}]),
        ((0, 0), None, None),
    ],
)
def test_a_version_range_becomes_a_few_terms(
    at_least: Version, below: Version | None, expected: list[Term] | None
) -> None:
    """An empty range: a term that matches nothing. No bounds: nothing is required."""
    assert inject({}, cuda(at_least, below)) == expected


def test_each_label_family_constrains_only_the_nodes_that_carry_it() -> None:
    """A node with 11.8 in the first family is not admitted by the labels of a later one."""
    later = ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor")
    inventory = inventory_of(
        [
            {"metadata": {"name": "old", "labels": {MAJOR: "11", MINOR: "8", later[0]: "12", later[1]: "4"}}},
            {"metadata": {"name": "new", "labels": {later[0]: "12", later[1]: "4"}}},
        ]
    )

    assert inject({}, cuda((12, 0), None, inventory)) == [
        term((MAJOR, "Gt", "11")),
        term((later[0], "Gt", "11"), (MAJOR, "DoesNotExist")),
    ]


def test_a_version_in_one_label_is_required_by_listing_the_values_of_nodes() -> None:
    """Label values have no order as versions, so those in the range are listed."""
    key = "nvidia.com/cuda.runtime-version.full"
    inventory = inventory_of(
        [
            {"metadata": {"name": f"n{at}", "labels": {key: text}}}
            for at, text in enumerate(["12.4", "12.10", "11.8"])
        ]
    )

    assert inject({}, cuda((12, 4), None, inventory)) == [term((key, "In", "12.10 12.4"))]


def test_a_major_is_required_in_every_spelling_that_nodes_have() -> None:
    """In compares texts, and 012 is 12 too."""
    inventory = inventory_of({"metadata": {"name": "one", "labels": {MAJOR: "012", MINOR: "04"}}})

    assert inject({}, cuda((12, 4), (13, 0), inventory)) == [
        term((MAJOR, "In", "012 12"), (MINOR, "Gt", "3"))
    ]


def test_no_version_is_required_if_no_node_reports_one() -> None:
    """A cluster without labels must not become one without pods."""
    assert inject({}, cuda((12, 4), None, inventory_of({"metadata": {"name": "unlabelled"}}))) is None


def test_every_term_of_the_user_is_joined_with_every_term_of_the_requirement() -> None:
    """The cross product, fields and unknown members kept."""
    field = {"key": "metadata.name", "operator": "In", "values": ["one"]}
    user = [term(("zone", "In", "a")), {"matchFields": [field], "newer": 1}]

    assert conjoin(user, [term((MAJOR, "In", "12"), (MINOR, "Gt", "3")), term((MAJOR, "Gt", "12"))]) == [
        term(("zone", "In", "a"), (MAJOR, "In", "12"), (MINOR, "Gt", "3")),
        term(("zone", "In", "a"), (MAJOR, "Gt", "12")),
        {"matchFields": [field], "newer": 1, **term((MAJOR, "In", "12"), (MINOR, "Gt", "3"))},
        {"matchFields": [field], "newer": 1, **term((MAJOR, "Gt", "12"))},
    ]


@pytest.mark.parametrize(
    "empty", [{}, {"matchExpressions": []}, {"matchExpressions": None, "matchFields": []}, None]
)
def test_an_empty_term_still_matches_nothing(empty: Any) -> None:
    """With an expression added, it would match nodes that the pod could not use before."""
    assert inject(with_required({}, [empty]), cuda((12, 4))) is None
    assert inject(with_required({}, [empty, term(("zone", "In", "a"))]), cuda((12, 0))) == [
        empty,
        term(("zone", "In", "a"), (MAJOR, "Gt", "11")),
    ]


@pytest.mark.parametrize(
    "implying",
    [
        term((MAJOR, "Gt", "12")),
        term((MAJOR, "Gt", "13")),
        term((MAJOR, "In", "13 14")),
        term((MAJOR, "In", "11 13"), (MAJOR, "NotIn", "11")),
        term((MAJOR, "In", "12"), (MINOR, "Gt", "5")),
        term((MAJOR, "In", "12"), (MINOR, "In", "4 5")),
        term((MAJOR, "In", "12 13"), (MAJOR, "Lt", "13"), (MINOR, "Gt", "3")),
    ],
)
def test_what_a_term_implies_is_not_added(implying: Term) -> None:
    """The user's term is stricter already."""
    assert inject(with_required({}, [implying]), cuda((12, 4))) is None


@pytest.mark.parametrize(
    ("user", "added"),
    [
        (term(("zone", "In", "a")), term(("zone", "Exists"))),
        (term(("zone", "In", "a")), term(("zone", "NotIn", "b"))),
        (term(("zone", "NotIn", "a b")), term(("zone", "NotIn", "b"))),
        (term(("zone", "Exists")), term(("zone", "Exists"))),
        (term(("cores", "Gt", "4")), term(("cores", "Exists"))),
        (term(("cores", "Lt", "4")), term(("cores", "Exists"))),
        (term(("cores", "Gt", "4")), term(("cores", "NotIn", "4 many"))),
        (term(("cores", "Lt", "4")), term(("cores", "Lt", "4"))),
        (term(("cores", "Lt", "4")), term(("cores", "Lt", "5"))),
        (
            term(("cores", "In", "3 13"), ("cores", "Gt", "2"), ("cores", "Gt", "9")),
            term(("cores", "Gt", "10")),
        ),
        (
            term(("cores", "In", "3 13"), ("cores", "Lt", "20"), ("cores", "Lt", "9")),
            term(("cores", "Lt", "5")),
        ),
        (term(("zone", "DoesNotExist")), term(("zone", "NotIn", "a"))),
        (term(("zone", "DoesNotExist")), term(("zone", "DoesNotExist"))),
    ],
)
def test_implication_is_found_between_all_operators(user: Term, added: Term) -> None:
    """An expression that holds wherever the term does is not added."""
    assert conjoin([user], [added]) == [user]


@pytest.mark.parametrize(
    ("user", "added"),
    [
        (term(("zone", "NotIn", "a")), term(("zone", "Exists"))),
        (term(("zone", "Exists")), term(("zone", "In", "a"))),
        (term(("zone", "In", "a b")), term(("zone", "In", "a"))),
        (term(("zone", "NotIn", "a")), term(("zone", "NotIn", "a b"))),
        (term(("cores", "Gt", "4")), term(("cores", "Gt", "5"))),
        (term(("cores", "Lt", "5")), term(("cores", "Lt", "4"))),
        (term(("cores", "Exists")), term(("rack", "Exists"))),
    ],
)
def test_what_is_not_implied_is_added(user: Term, added: Term) -> None:
    """After the user's own expressions."""
    joined = {"matchExpressions": [*user["matchExpressions"], *added["matchExpressions"]]}

    assert conjoin([user], [added]) == [joined]


def test_only_terms_that_can_match_are_joined() -> None:
    """Between 4 and 6 there is a number, between 4 and 5 there is none."""
    user = term(("cores", "Gt", "4"))
    wide, narrow, free = (
        term(expression) for expression in (("cores", "Lt", "6"), ("cores", "Lt", "5"), ("zone", "Exists"))
    )

    assert conjoin([user], [wide, free]) == [
        term(("cores", "Gt", "4"), ("cores", "Lt", "6")),
        term(("cores", "Gt", "4"), ("zone", "Exists")),
    ]
    assert conjoin([user], [narrow, free]) == [term(("cores", "Gt", "4"), ("zone", "Exists"))]

    absent = term(("cores", "DoesNotExist"))
    assert conjoin([absent], [term(("cores", "Exists")), free]) == [
        term(("cores", "DoesNotExist"), ("zone", "Exists"))
    ]


@pytest.mark.parametrize(
    "impossible",
    [
        term(("zone", "In", "a"), ("zone", "In", "b")),
        term(("zone", "In", "a"), ("zone", "DoesNotExist")),
        term(("zone", "In", "a"), ("zone", "NotIn", "a")),
    ],
)
@pytest.mark.parametrize("added", [("zone", "Exists"), ("zone", "In", "c"), ("zone", "Gt", "1")])
def test_an_impossible_term_of_the_user_implies_every_expression_on_its_label(
    impossible: Term, added: tuple[str, str]
) -> None:
    """No node can satisfy it, so nothing is added."""
    assert conjoin([impossible], [term(added)]) == [impossible]


def test_if_all_joined_terms_are_impossible_only_the_first_is_kept() -> None:
    """One is enough to match no node."""
    user = term(("zone", "In", "a"))

    assert conjoin([user], [term(("zone", "In", "b")), term(("zone", "DoesNotExist"))]) == [
        term(("zone", "In", "a"), ("zone", "In", "b"))
    ]
    assert conjoin(None, [term(("zone", "Exists"), ("zone", "DoesNotExist")), user]) == [user]


def test_terms_that_add_the_same_expressions_are_joined_once() -> None:
    """The user's term implies the first expression of both."""
    user = term(("zone", "In", "a"))
    added = [term(("zone", "In", f"a {other}"), ("cores", "Exists")) for other in "bc"]

    assert conjoin([user], added) == [term(("zone", "In", "a"), ("cores", "Exists"))]


def test_a_label_and_a_field_of_the_same_name_are_independent() -> None:
    """An expression on the label implies nothing about the field."""
    label = term(("metadata.name", "In", "one"))
    field = {"matchFields": label["matchExpressions"]}

    assert conjoin([label], [field]) == [{**label, **field}]


def test_a_list_that_can_match_nothing_becomes_an_empty_term() -> None:
    """The API server denies a list without terms."""
    assert conjoin([term(("zone", "Exists"))], [{}]) == [{}]
    assert conjoin(None, []) == [{}]


@pytest.mark.parametrize("malformed", [[], {}, "zone", 5])
def test_malformed_terms_of_the_user_stay_as_they_are(malformed: Any) -> None:
    """The API server denies them after admission."""
    assert conjoin(malformed, [term(("zone", "Exists"))]) == malformed


def test_only_what_is_missing_of_a_term_is_added() -> None:
    """The major is fixed by the user, or by the pod's nodeSelector; the other term contradicts it."""
    fixed = term((MAJOR, "In", "12"))

    assert inject(with_required({}, [fixed]), cuda((12, 4))) == [
        term((MAJOR, "In", "12"), (MINOR, "Gt", "3"))
    ]
    assert inject({"nodeSelector": {MAJOR: "12"}}, cuda((12, 4))) == [term((MINOR, "Gt", "3"))]
    assert inject({"nodeSelector": {MAJOR: "13"}}, cuda((12, 4))) is None
    assert inject({"nodeSelector": {MAJOR: 13}}, cuda((12, 0))) == [term((MAJOR, "Gt", "11"))]


def test_a_term_that_contradicts_the_requirement_stays_and_matches_nothing() -> None:
    """It is the user's; removing it would hide what they requested."""
    old, free = term((MAJOR, "Lt", "12")), term(("zone", "In", "a"))

    assert inject(with_required({}, [old, free]), cuda((12, 0))) == [
        term((MAJOR, "Lt", "12"), (MAJOR, "Gt", "11")),
        term(("zone", "In", "a"), (MAJOR, "Gt", "11")),
    ]


def test_preferred_terms_are_added_once() -> None:
    """A preference to avoid an unstable gap of majors, without forbidding it."""
    requirement = cuda((0, 0), (14, 0))
    entry = {"weight": 50, "preference": term((MAJOR, "Lt", "14"))}
    other = {**entry, "weight": 1}

    def preferring(*entries: dict[str, Any]) -> dict[str, Any]:
        return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [*entries]}}}

    assert prefer({}, requirement, 50) == [entry]
    assert prefer(preferring(other), requirement, 50) == [entry]
    assert prefer(preferring(other, entry), requirement, 50) == []
    assert prefer({"affinity": None}, Requirement(), 50) == []


@pytest.mark.timeout(20)
def test_a_malicious_selector_takes_time_linear_in_its_length() -> None:
    """Mutating webhooks run before the API server validates; 3 MB of expressions must not block it."""
    numbers = [str(number) for number in range(100_000)]
    user = {
        "matchExpressions": [
            *({"key": MAJOR, "operator": "NotIn", "values": [number]} for number in numbers[:5_000]),
            *({"key": MAJOR, "operator": "Gt", "values": [number]} for number in numbers[:5_000]),
            {"key": MAJOR, "operator": "In", "values": numbers},
        ]
    }
    spec = with_required(
        {"nodeSelector": dict.fromkeys(numbers, "")}, [user, *[term(("zone", "Exists"))] * 8_000]
    )
    joined = inject(spec, cuda((0, 0), (6_000, 0)))

    assert len(joined) == 8_001
    assert all(joined_term["matchExpressions"][-1]["values"] == ["6000"] for joined_term in joined)


def test_terms_that_come_last_do_not_multiply_the_clauses_of_many_containers() -> None:
    """A pod with twenty different requirements would have 3^20 terms."""
    clause = tuple((MatchExpression("matchExpressions", f"key-{at}", "Exists"),) for at in range(3))
    last = ((MatchExpression("matchExpressions", "type", "In", ("a",)),),)

    assert Requirement((clause,) * 20).or_else(last) == Requirement(((*clause, *last),) * 20)
    assert [10] == [
        len(joined_clause) for joined_clause in Requirement((clause, clause)).or_else(last).clauses
    ]
