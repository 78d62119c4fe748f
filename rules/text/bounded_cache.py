"""Remembering what was found for small arguments, so that memory is bounded in bytes, not only in entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

_ENDLESS: Final = 2**62


def bounded_cache(find: Callable[[K], T], entries: int, fits: Callable[[K], bool]) -> Callable[[K], T]:
    """Return a function that finds the same, and remembers so many arguments that fit; then it begins anew.

    What an honest cluster asks again and again is small; what a hostile pod makes up may be megabytes. To
    look up what is remembered costs no more than a dict does. Any thread may call it.
    """
    return _Memo(find, entries, fits).__getitem__


def length(told: object) -> int:
    """Return the number of characters in a text, or in a tuple of texts; of all else it is endless."""
    if isinstance(told, str):
        return len(told)
    if not isinstance(told, tuple):
        return _ENDLESS
    try:
        return len("".join(told))
    except TypeError:
        return sum(map(length, told))


class _Memo(dict[K, T], Generic[K, T]):
    __slots__ = ("_entries", "_find", "_fits")

    def __init__(self, find: Callable[[K], T], entries: int, fits: Callable[[K], bool]) -> None:
        super().__init__()
        self._find = find
        self._entries = entries
        self._fits = fits

    def __missing__(self, key: K) -> T:
        found = self._find(key)
        if self._fits(key):
            if len(self) >= self._entries:
                self.clear()
            self[key] = found
        return found


class Firsts(Generic[T]):
    """The first of those that tell the same, for so many; then it begins anew. Any thread may ask it."""

    __slots__ = ("_entries", "_kept")

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._kept: dict[Hashable, T] = {}

    def __call__(self, told: Hashable, value: T) -> T:
        """Return the value that came first of those that told this."""
        if told not in self._kept and len(self._kept) >= self._entries:
            self._kept.clear()
        return self._kept.setdefault(told, value)
