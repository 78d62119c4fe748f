"""Remembering what was found for small arguments, so that memory is bounded in bytes, not only in entries."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")


def remembered(
    find: Callable[[*Arguments], T], entries: int, fits: Callable[[*Arguments], bool]
) -> Callable[[*Arguments], T]:
    """Return a function that finds the same, and remembers the last so many arguments that fit.

    What an honest cluster asks again and again is small; what a hostile pod makes up may be megabytes.
    """
    memo = lru_cache(entries)(find)

    def look_up(*arguments: *Arguments) -> T:
        return memo(*arguments) if fits(*arguments) else find(*arguments)

    return look_up
