"""Injected node affinity: which nodes it admits, and what it leaves of the user's own."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames, Version
from rules.nodes.node_affinity import Requirement, conjoin, inject, prefer
from rules.nodes.version_range import VersionRange
from tests.support.reference_selector import with_required

NAMES = LabelNames()
MAJOR, MINOR = "cuda-major-version", "cuda-minor-version"
PLAIN = Inventory.of({"metadata": {"name": "one", "labels": {MAJOR: "12", MINOR: "4"}}})

Term = dict[str, Any]


def term(*expressions: tuple[str, str, str] | tuple[str, str]) -> Term:
    """Return a nodeSelectorTerm of (key, operator, values separated by spaces)."""
    entries = [dict(zip(("key", "operator", "values"), each, strict=False)) for each in expressions]
    return {
        "matchExpressions": [
            {**entry, "values": entry["values"].split()} if "values" in entry else entry for entry in entries
        ]
    }


def cuda(
    at_least: Version = (0, 0), below: Version | None = None, inventory: Inventory = PLAIN
) -> Requirement:
    """Return the requirement of a CUDA version."""
    return Requirement.of_version(VersionRange(at_least, below), NAMES.cuda, inventory)


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
def test_an_interval_of_versions_is_a_few_terms(
    at_least: Version, below: Version | None, expected: list[Term] | None
) -> None:
    """No version inside: a term that matches nothing. No bounds: nothing is required."""
    assert inject({}, cuda(at_least, below)) == expected


def test_the_same_major_is_an_interval_that_ends_at_the_next() -> None:
    """For virtual GPUs, which need runtime and driver of one major."""
    assert VersionRange.same_major((12, 4)) == VersionRange((12, 4), (13, 0))


def test_mixed_families_are_each_held_to_the_nodes_on_which_they_speak() -> None:
    """A node that tells 11.8 in the first family is not admitted by what a later one says."""
    later = ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor")
    inventory = Inventory.of(
        [
            {"metadata": {"name": "old", "labels": {MAJOR: "11", MINOR: "8", later[0]: "12", later[1]: "4"}}},
            {"metadata": {"name": "new", "labels": {later[0]: "12", later[1]: "4"}}},
        ]
    )

    assert inject({}, cuda((12, 0), None, inventory)) == [
        term((MAJOR, "Gt", "11")),
        term((later[0], "Gt", "11"), (MAJOR, "DoesNotExist")),
    ]


def test_a_version_in_one_label_is_required_by_the_texts_that_nodes_have() -> None:
    """Texts have no order, so those that fit are listed."""
    key = "nvidia.com/cuda.runtime-version.full"
    inventory = Inventory.of(
        [
            {"metadata": {"name": f"n{at}", "labels": {key: text}}}
            for at, text in enumerate(["12.4", "12.10", "11.8"])
        ]
    )

    assert inject({}, cuda((12, 4), None, inventory)) == [term((key, "In", "12.10 12.4"))]


def test_a_major_is_required_in_every_spelling_that_nodes_have() -> None:
    """In compares texts, and 012 is 12 too."""
    inventory = Inventory.of({"metadata": {"name": "one", "labels": {MAJOR: "012", MINOR: "04"}}})

    assert inject({}, cuda((12, 4), (13, 0), inventory)) == [
        term((MAJOR, "In", "012 12"), (MINOR, "Gt", "3"))
    ]


def test_where_no_node_tells_a_version_none_is_required() -> None:
    """A cluster without labels must not become one without pods."""
    assert inject({}, cuda((12, 4), None, Inventory.of({"metadata": {"name": "silent"}}))) is None


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
    """With an expression put in, it would match nodes to which the pod could not go before."""
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
    """The user was stricter already."""
    assert inject(with_required({}, [implying]), cuda((12, 4))) is None


@pytest.mark.parametrize(
    ("user", "added"),
    [
        (term(("zone", "In", "a")), term(("zone", "Exists"))),
        (term(("zone", "In", "a")), term(("zone", "NotIn", "b"))),
        (term(("zone", "NotIn", "a b")), term(("zone", "NotIn", "b"))),
        (term(("cores", "Gt", "4")), term(("cores", "Exists"))),
        (term(("cores", "Gt", "4")), term(("cores", "NotIn", "4 many"))),
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
def test_implication_is_seen_between_all_operators(user: Term, added: Term) -> None:
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
    """Behind what stands there."""
    joined = {"matchExpressions": [*user["matchExpressions"], *added["matchExpressions"]]}

    assert conjoin([user], [added]) == [joined]


def test_only_terms_that_can_match_are_joined() -> None:
    """Between 4 and 6 there is a number, between 4 and 5 there is none."""
    user = term(("cores", "Gt", "4"))
    wide, narrow, free = (
        term(each) for each in (("cores", "Lt", "6"), ("cores", "Lt", "5"), ("zone", "Exists"))
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


def test_what_can_match_nothing_becomes_an_empty_term() -> None:
    """A list without terms would be refused by the API server."""
    assert conjoin([term(("zone", "Exists"))], [{}]) == [{}]
    assert conjoin(None, []) == [{}]


def test_only_what_is_missing_of_a_term_is_added() -> None:
    """The major is fixed by the user, or by the pod's nodeSelector; the other term contradicts it."""
    fixed = term((MAJOR, "In", "12"))

    assert inject(with_required({}, [fixed]), cuda((12, 4))) == [
        term((MAJOR, "In", "12"), (MINOR, "Gt", "3"))
    ]
    assert inject({"nodeSelector": {MAJOR: "12"}}, cuda((12, 4))) == [term((MINOR, "Gt", "3"))]
    assert inject({"nodeSelector": {MAJOR: "13"}}, cuda((12, 4))) is None


def test_a_term_that_contradicts_the_requirement_stays_and_matches_nothing() -> None:
    """It is the user's; without it, what they asked for could not be seen."""
    old, free = term((MAJOR, "Lt", "12")), term(("zone", "In", "a"))

    assert inject(with_required({}, [old, free]), cuda((12, 0))) == [
        term((MAJOR, "Lt", "12"), (MAJOR, "Gt", "11")),
        term(("zone", "In", "a"), (MAJOR, "Gt", "11")),
    ]


def test_preferred_terms_are_offered_once() -> None:
    """To steer away from an unstable gap of majors without forbidding it."""
    requirement = cuda((0, 0), (14, 0))
    entry = {"weight": 50, "preference": term((MAJOR, "Lt", "14"))}
    other = {**entry, "weight": 1}

    def standing(*entries: dict[str, Any]) -> dict[str, Any]:
        return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [*entries]}}}

    assert prefer({}, requirement, 50) == [entry]
    assert prefer(standing(other), requirement, 50) == [entry]
    assert prefer(standing(other, entry), requirement, 50) == []
    assert prefer({"affinity": None}, Requirement(), 50) == []


@pytest.mark.timeout(20)
def test_a_hostile_selector_costs_no_more_than_its_length() -> None:
    """Mutating webhooks run before the API server validates; 3 MB of expressions must not stop the gate."""
    numbers = [str(number) for number in range(100_000)]
    user = {
        "matchExpressions": [
            *({"key": MAJOR, "operator": "NotIn", "values": [number]} for number in numbers[:5_000]),
            *({"key": MAJOR, "operator": "Gt", "values": [number]} for number in numbers[:5_000]),
            {"key": MAJOR, "operator": "In", "values": numbers},
        ]
    }
    spec = with_required(
        {"nodeSelector": dict.fromkeys(numbers, "")}, [user, *[term(("zone", "Exists"))] * 10_000]
    )
    joined = inject(spec, cuda((0, 0), (6_000, 0)))

    assert len(joined) == 10_001
    assert all(each["matchExpressions"][-1]["values"] == ["6000"] for each in joined)
