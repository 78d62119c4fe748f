"""Look-up by resource name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

from rules.text.bounded_cache import bounded_cache
from rules.text.glob import glob, is_glob

T = TypeVar("T")
# Names that an index remembers, and characters of one.
_REMEMBERED: Final = 256
_LONGEST_REMEMBERED: Final = 256


class ResourceIndex(Generic[T]):
    """Values by resource name or glob; the cost of a look-up does not grow with the number of names.

    is_empty: whether it has no name and no glob. find: the values for a name, exact names first, then globs,
    with a bounded cache. Globs are kept by
    the domain before the `/`, so that a name is compared with the few of its own vendor; a glob in the domain
    itself is compared with every name.
    """

    __slots__ = ("_by_domain", "_everywhere", "_exact", "find", "is_empty")

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        """Index entries of (name or glob, value), in order."""
        self._exact: dict[str, tuple[T, ...]] = {}
        self._by_domain: dict[str, tuple[tuple[re.Pattern[str], T], ...]] = {}
        self._everywhere: tuple[tuple[re.Pattern[str], T], ...] = ()
        for name, kept in entries:
            domain = name.partition("/")[0]
            if not is_glob(name):
                self._exact[name] = (*self._exact.get(name, ()), kept)
            elif not is_glob(domain):
                self._by_domain[domain] = (*self._by_domain.get(domain, ()), (glob(name), kept))
            else:
                self._everywhere = (*self._everywhere, (glob(name), kept))
        self.is_empty = not (self._exact or self._by_domain or self._everywhere)
        self.find = bounded_cache(self._find, _REMEMBERED, lambda name: len(name) <= _LONGEST_REMEMBERED)

    def __iter__(self) -> Iterator[T]:
        """Yield all values, those of exact names first."""
        for kept in self._exact.values():
            yield from kept
        for globs in (*self._by_domain.values(), self._everywhere):
            yield from (found for _, found in globs)

    def _find(self, name: str) -> tuple[T, ...]:
        """Return what is kept for the name: exact first, then by glob."""
        found = self._exact.get(name, ())
        domain, slash, _ = name.partition("/")
        if slash and (globs := self._by_domain.get(domain, ()) + self._everywhere):
            found += tuple(kept for pattern, kept in globs if pattern.fullmatch(name))
        return found
