"""What to do first: fixes, and the workloads that they free."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import Language
from rules.model.finding import Basis, Finding
from rules.model.rule import Action
from rules.text.i18n import Message
from webhook.cli.report.model import fix_of
from webhook.cli.report.plan import Step, plan


def test_a_workload_with_two_causes_is_freed_by_both_fixes_only() -> None:
    """One fix of each is no plan; a pair that frees many is better than a single that frees one."""
    needs = [{"a", "b"}] * 4 + [{"c"}]

    made = plan(needs)

    assert (Step("a", 4), Step("b", 4), Step("c", 1)) == made.steps
    assert (5, 5) == (made.frees, made.of)


def test_a_plan_names_the_workloads_that_each_fix_concerns() -> None:
    """Those that need another fix, too, are not counted as freed."""
    made = plan([{"a"}, {"a"}, {"a", "b", "c", "d"}])

    assert (Step("a", 3),) == made.steps
    assert [
        "Fix this 1 thing, and 2 of 3 denied workloads can be admitted:",
        "  1. a (3 workloads)",
    ] == made.lines(Language.EN)


@pytest.mark.parametrize("needs", [[], [{"", "a"}], [set("abcd")]], ids=["none", "unknown", "too many"])
def test_without_fixes_that_free_a_workload_there_is_no_plan(needs: list[set[str]]) -> None:
    """None is denied, no fix is known for a cause, or one workload needs more than a plan has."""
    assert [] == plan(needs).lines(Language.EN)


@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1, max_size=4), max_size=30))
def test_a_plan_frees_what_it_says_and_something_if_three_fixes_can(needs: list[set[str]]) -> None:
    """By counting again, and by trying all sets of three fixes."""
    made = plan(needs)
    chosen = {step.fix for step in made.steps}
    counts = Counter(map(frozenset, needs))

    def freed(fixes: set[str]) -> int:
        return sum(number for needed, number in counts.items() if needed <= fixes)

    best = max(freed({*fixes}) for fixes in combinations("abcdef", 3))
    assert made.frees == freed(chosen)
    assert len(chosen) == len(made.steps) <= 3
    assert bool(made.frees) == bool(best)


@pytest.mark.parametrize(
    ("path", "fix", "text"),
    [
        ("spec.containers[0].resources.limits[a.com/b]", "", "a.com/b: expected 100 or less"),
        ("spec.containers[0].resources.limits[a.com/b]", "use 2", "a.com/b: use 2"),
        ("spec.containers[0].resources.limits[a.com/b]", "remove a.com/b", "remove a.com/b"),
        ("spec.containers[0].env[0].value", "change X", "change X"),
    ],
)
def test_a_fix_names_the_resource_and_says_what_to_do(path: str, fix: str, text: str) -> None:
    """Without one it is what the rule expects, which is equal for all wrong values."""
    cause = Message("found {actual}, expected {expected}", actual="150", expected="100 or less")
    finding = Finding("rule", Action.DENY, path, fix=Message(fix), cause=cause, basis=Basis.POLICY)

    assert text == fix_of(finding).en
