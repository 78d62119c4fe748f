"""The known name that a misspelt one may be meant to be, searched for within a bound.

To compare two similar names takes up to 0.1 ms, too long for thousands of names of one object.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Final

# Different names of one object that are compared with known ones: 20 ms with the built-in rules.
MOST_COMPARED: Final = 16


class Comparisons:
    """The names of one object that are compared with known ones: the first MOST_COMPARED different ones."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: set[str] = set()

    def admits(self, name: str) -> bool:
        """Return whether a name may be compared, and count it if so."""
        if name in self._names:
            return True
        if len(self._names) >= MOST_COMPARED:
            return False
        self._names.add(name)
        return True


def similarity(name: str, known: str, least: float) -> float:
    """Return the similarity of two names, 0 to 1, without regard to case; 0 if it is less than `least`."""
    matcher = SequenceMatcher(None, name.lower(), known.lower())
    for upper_bound in (matcher.real_quick_ratio, matcher.quick_ratio):  # take less time
        if upper_bound() < least:
            return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= least else 0.0
