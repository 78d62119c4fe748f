"""Caches for small arguments only, so that memory is bounded in bytes as well as in entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

_UNBOUNDED: Final = 2**62


def bounded_cache(find: Callable[[K], T], entries: int, fits: Callable[[K], bool]) -> Callable[[K], T]:
    """Return `find` with a cache of so many results; a full cache is cleared.

    fits: whether an argument is small enough to be cached. Arguments of a well-behaved cluster are small and
    repeat; those of a malicious pod can have megabytes. A hit takes as long as in a dict. Thread-safe.
    """
    return _Cache(find, entries, fits).__getitem__


def length(key: object) -> int:
    """Return the number of characters in a string, None or a nested tuple of them; else a huge number."""
    if isinstance(key, str):
        return len(key)
    if isinstance(key, tuple):
        return sum(map(length, key))
    return 0 if key is None else _UNBOUNDED


class _Cache(dict[K, T], Generic[K, T]):
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
