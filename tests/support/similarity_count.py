"""How many pairs of names are compared by their similarity."""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher

import pytest


def comparisons(call: Callable[[], object], patch: pytest.MonkeyPatch) -> int:
    """Return how many pairs of strings a call compares, by any function that uses difflib."""
    compared = []
    quick = SequenceMatcher.real_quick_ratio  # each comparison begins with it

    def counted(matcher: SequenceMatcher[str]) -> float:
        compared.append(matcher)
        return quick(matcher)

    with patch.context() as context:
        context.setattr(SequenceMatcher, "real_quick_ratio", counted)
        call()
    return len(compared)
