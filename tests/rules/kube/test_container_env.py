"""A container's environment is what Kubernetes makes of its entries."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.kube.container_env import Environment, environment, expand, expand_all

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
    """The last of a name counts; a value from elsewhere, or that refers to one, is unknown."""
    assert Environment(known, frozenset(unknown)) == environment(given_entries)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("--dtype=$(DTYPE)", "--dtype=half"),
        ("$(DTYPE)$(DTYPE)", "halfhalf"),
        ("$(OTHER)", "$(OTHER)"),
        ("$$(DTYPE)", "$(DTYPE)"),
        ("$DTYPE ${DTYPE} $(date +%s)", "$DTYPE ${DTYPE} $(date +%s)"),
        ("cost: 5$", "cost: 5$"),
        ("$(EMPTY)", ""),
    ],
)
def test_arguments_are_expanded_as_the_kubelet_does(text: str, expanded: str) -> None:
    """What is not known stays as it is; a shell's own variables are the shell's."""
    assert expanded == expand(text, {"DTYPE": "half", "EMPTY": ""})


def test_variables_that_double_each_other_are_unknown_where_no_program_could_start() -> None:
    """Forty short entries would be a terabyte; what stands before the bound is known."""
    doubling = [{"name": f"V{at}", "value": f"$(V{at - 1})" * 2} for at in range(1, 41)]
    result = environment([{"name": "V0", "value": "x"}, *doubling, {"name": "LAST", "value": "1"}])

    assert ("x" * 2**19, "1") == (result.known["V19"], result.known["LAST"])
    assert "V40" in result.unknown
    assert sum(map(len, result.known.values())) < 3 * 2**20


def test_arguments_are_expanded_as_far_as_a_program_could_start() -> None:
    """A thousand of 100 KB would be 100 MB; the rest stays as it is written."""
    expanded = expand_all(["$(A)"] * 1000 + ["b"], {"A": "x" * 10**5})

    assert ("x" * 10**5, "$(A)", "b") == (expanded[0], expanded[-2], expanded[-1])
    assert sum(map(len, expanded)) < 3 * 2**20


@given(entries)
def test_a_variable_is_known_or_unknown_and_never_both(given_entries: list[dict[str, Any]]) -> None:
    """And every name that an entry has is one of them."""
    result = environment(given_entries)

    assert not result.known.keys() & result.unknown
    assert {entry["name"] for entry in given_entries} == result.known.keys() | result.unknown


@given(st.text(), st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3))
def test_a_text_without_a_dollar_sign_is_itself(text: str, known: dict[str, str]) -> None:
    """Expansion never fails, and touches nothing else."""
    assert expand(text, known) == text or "$" in text
