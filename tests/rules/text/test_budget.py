"""A budget of steps: what is within it passes, the first step past it does not."""

from __future__ import annotations

import pytest

from rules.text.bounded_cache import MOST_STEPS, Budget, OverBudgetError


def test_all_steps_of_a_budget_can_be_spent() -> None:
    """At once or one after the other."""
    budget = Budget()
    budget.spend(MOST_STEPS - 1)
    budget.spend(1)

    assert MOST_STEPS == budget.spent


def test_the_first_step_past_a_budget_is_an_error_that_names_the_bound() -> None:
    """Steps are not taken back."""
    budget = Budget()
    with pytest.raises(OverBudgetError, match="more than 150,000 steps"):
        budget.spend(MOST_STEPS + 1)

    with pytest.raises(OverBudgetError):
        budget.spend(0)
