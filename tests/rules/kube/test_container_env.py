"""A container's environment is computed as Kubernetes computes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.kube.pod import Environment, Literals, environment, expand, expand_all, references

SECRET = {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}

entries = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["A", "B", "C"])},
        optional={
            "value": st.sampled_from(["x", "$(A)", "$$(A)", "$(B)-$(C)", "$(", ""]),
            "valueFrom": st.just({"a": 1}),
        },
    ),
    max_size=6,
)


@pytest.mark.parametrize(
    ("given_entries", "known", "unknown"),
    [
        ([], {}, set()),
        ([{"name": "A", "value": "1"}], {"A": "1"}, set()),
        ([{"name": "A"}], {"A": ""}, set()),
        ([{"name": "A", "value": None}], {"A": ""}, set()),
        ([{"name": "A", **SECRET}], {}, {"A"}),
        ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], {"A": "2"}, set()),
        ([{"name": "A", "value": "1"}, {"name": "A", **SECRET}], {}, {"A"}),
        ([{"name": "A", **SECRET}, {"name": "A", "value": "1"}], {"A": "1"}, set()),
        (
            [{"name": "A", "value": "12.4"}, {"name": "B", "value": "cuda>=$(A)"}],
            {"A": "12.4", "B": "cuda>=12.4"},
            set(),
        ),
        ([{"name": "B", "value": "cuda>=$(A)"}, {"name": "A", "value": "12.4"}], {"A": "12.4"}, {"B"}),
        ([{"name": "A", **SECRET}, {"name": "B", "value": "cuda>=$(A)"}], {}, {"A", "B"}),
        ([{"name": "A", "value": "1"}, {"name": "B", "value": "$$(A)"}], {"A": "1", "B": "$(A)"}, set()),
        ([{"name": "A", "value": "$HOME and $(unclosed"}], {"A": "$HOME and $(unclosed"}, set()),
        ([{"name": "A", "value": 12.4}], {}, {"A"}),
        ([None, "A", {"value": "1"}, {"name": 1, "value": "1"}], {}, set()),
    ],
)
def test_entries_become_variables(given_entries: list[Any], known: dict[str, str], unknown: set[str]) -> None:
    """The last entry of a name is used; a value of valueFrom, or one that refers to it, is unknown."""
    assert Environment(known, frozenset(unknown)) == environment(given_entries)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("--dtype=$(DTYPE)", "--dtype=half"),
        ("$(DTYPE)$(DTYPE)", "halfhalf"),
        ("$(OTHER)", "$(OTHER)"),
        ("$$(DTYPE)", "$(DTYPE)"),
        ("$(A$$(DTYPE)", "$(A$$(DTYPE)"),
        ("$(echo $(DTYPE))", "$(echo $(DTYPE))"),
        ("$DTYPE ${DTYPE} $(date +%s)", "$DTYPE ${DTYPE} $(date +%s)"),
        ("cost: 5$", "cost: 5$"),
        ("$(EMPTY)", ""),
    ],
)
def test_arguments_are_expanded_as_by_the_kubelet(text: str, expanded: str) -> None:
    """Unknown references stay unchanged; shell variables are left to the shell."""
    assert expanded == expand(text, {"DTYPE": "half", "EMPTY": ""})


def test_references_are_those_of_the_kubelet_and_of_shells() -> None:
    """Of all texts; a name that the shell would look up in a command substitution is one, too."""
    texts = ["--dtype=$(DTYPE)", "$A ${B:-$C} ${D}", "$$(E) $1 $ plain", "F"]

    assert {"DTYPE", "A", "B", "C", "D"} == references(texts)


def test_variables_too_long_to_start_a_program_are_unknown() -> None:
    """Forty entries that double each other would be a terabyte; those before the limit are known."""
    doubling = [{"name": f"V{at}", "value": f"$(V{at - 1})" * 2} for at in range(1, 41)]
    result = environment([{"name": "V0", "value": "x"}, *doubling, {"name": "LAST", "value": "1"}])

    assert ("x" * 2**19, "1") == (result.known["V19"], result.known["LAST"])
    assert "V40" in result.unknown
    assert sum(map(len, result.known.values())) < 3 * 2**20


def test_arguments_are_expanded_up_to_the_limit_of_a_program_start() -> None:
    """A thousand of 100 KB would be 100 MB; the rest stays unexpanded."""
    expanded = expand_all(["$(A)"] * 1000 + ["b"], {"A": "x" * 10**5})

    assert ("x" * 10**5, "$(A)", "b") == (expanded[0], expanded[-2], expanded[-1])
    assert sum(map(len, expanded)) < 3 * 2**20


@given(entries)
def test_a_variable_is_either_known_or_unknown(given_entries: list[dict[str, Any]]) -> None:
    """Every name of an entry is in one of the sets."""
    result = environment(given_entries)

    assert not result.known.keys() & result.unknown
    assert {entry["name"] for entry in given_entries} == result.known.keys() | result.unknown


@given(st.text(), st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3))
def test_a_text_without_a_dollar_sign_is_unchanged(text: str, known: dict[str, str]) -> None:
    """Expansion never raises and changes nothing else."""
    assert expand(text, known) == text or "$" in text


def test_literals_are_plain_values() -> None:
    """What refers to something else is unknown at admission."""
    entries: list[dict[str, Any]] = [
        {"name": "PLAIN", "value": "2"},
        {"name": "EMPTY"},
        {"name": "UNKNOWN", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}},
        {"name": "REFERENCE", "value": "$(PLAIN)"},
        {"name": "NUMBER", "value": 1},
    ]
    names = [entry["name"] for entry in entries]
    variables = Literals(dict(zip(names, entries, strict=True)))

    expected = {"PLAIN": "2", "EMPTY": ""}
    assert [expected, expected, 5] == [
        dict(variables.items()),
        {name: value for name in [*names, "ABSENT"] if (value := variables.get(name)) is not None},
        len(variables),
    ]
