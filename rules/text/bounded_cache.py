"""Bounds: caches of small arguments only, bounded in bytes, and a budget of steps for one object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rules.text.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

_UNBOUNDED: Final = 2**62


def bounded_cache(find: Callable[[K], T], entries: int, fits: Callable[[K], bool]) -> Callable[[K], T]:
    """Return `find` with a cache, which is cleared when it is full. Thread-safe.

    A hit takes as long as in a dict.

    entries: the maximum number of results.
    fits: whether an argument is small enough to be cached. Arguments of a well-behaved cluster are small and
        repeat; a malicious pod can have arguments of megabytes.
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
        value = self._find(key)
        if self._fits(key):
            if len(self) >= self._entries:
                self.clear()
            self[key] = value
        return value


# A step is about a microsecond of one core. An object takes half a second of the webhook's five at most, and
# a third of that is for reading its containers. A pod of a few containers takes some thousand steps.
MOST_STEPS: Final = 150_000

_TOO_MUCH: Final = Message(
    "its scripts, variables, images and NVIDIA_REQUIRE_* expressions take more than {most:,} steps to"
    " read; gpugate reads no more of one object. Shorten them, or split the object",
    most=MOST_STEPS,
)


class OverBudgetError(ValueError):
    """An object takes more time than it may. The fault of its author."""

    def __init__(self, text: Message) -> None:
        super().__init__(text.en)
        self.text = text  # the bound, and what to do


class Budget:
    """A limit on the steps that one object may take; they are counted before they are done.

    limit: the maximum number of steps.
    text: the message about an object that takes more.
    """

    __slots__ = ("_limit", "_text", "spent")

    def __init__(self, limit: int = MOST_STEPS, text: Message = _TOO_MUCH) -> None:
        self._limit = limit
        self._text = text
        self.spent = 0  # steps so far

    def spend(self, steps: int) -> None:
        """Count steps. Raises OverBudgetError if the limit is exceeded."""
        self.spent += steps
        if self.spent > self._limit:
            raise OverBudgetError(self._text)
