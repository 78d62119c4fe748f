"""The match of a rule: resources and images by glob, labels by selector, containers by CEL.

Rules are looked up by the names of the resources that they match.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, Generic, TypeAlias, TypeVar

from msgspec import Struct, field

from rules.cel.expression import Expression, Inputs
from rules.cel.syntax_errors import ExpressionError
from rules.text.bounded_cache import bounded_cache
from rules.text.glob import glob, is_glob

# The piece of a match that fails.
Unmet: TypeAlias = "MatchPart | SelectorTerm | Expression"

# Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
SELECTOR_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


class SelectorTerm(Struct, frozen=True):
    """One requirement of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether the labels satisfy it; NotIn is satisfied by an absent label."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


class MatchPart(StrEnum):
    """The parts of a match that are satisfied as a whole."""

    NAMESPACES = "namespaces"
    IMAGES = "images"


class Match(Struct, frozen=True):
    """What a rule applies to; everything must match, and of a list any entry.

    resources: names or globs of resources that the container asks for. images: compiled globs; empty for any
    image. include, exclude: namespaces by glob.
    """

    resources: tuple[str, ...]
    images: tuple[re.Pattern[str], ...] = ()
    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()
    selector: tuple[SelectorTerm, ...] = ()
    conditions: tuple[Expression, ...] = field(default=())

    def is_for(self, names: Iterable[str]) -> bool:
        """Return whether it is for any of these resources."""
        patterns = self.resources
        for name in names:
            if name in patterns:
                return True
        return any(pattern.fullmatch(name) for pattern in map(_glob, patterns) for name in names)

    def pod(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether it matches pods of a namespace with these labels."""
        return self.unmet_by_pod(namespace, labels) is None

    def unmet_by_pod(self, namespace: str, labels: Mapping[str, str]) -> Unmet | None:
        """Return the first part that does not match pods of a namespace with these labels, or None."""
        if self.exclude and any(pattern.fullmatch(namespace) for pattern in self.exclude):
            return MatchPart.NAMESPACES
        if self.include and not any(pattern.fullmatch(namespace) for pattern in self.include):
            return MatchPart.NAMESPACES
        for term in self.selector:
            if not term.holds(labels):
                return term
        return None

    def image(self, names: Iterable[str]) -> bool:
        """Return whether it matches an image, given each spelling of its reference."""
        return not self.images or any(pattern.fullmatch(name) for name in names for pattern in self.images)

    def unmet_condition(self, inputs: Inputs) -> Expression | None:
        """Return the first condition that is false, or None.

        Raises ExpressionError if one cannot be evaluated and none is false.
        """
        failed: ExpressionError | None = None
        for condition in self.conditions:
            try:
                if not condition.evaluate(inputs):
                    return condition
            except ExpressionError as error:
                failed = failed or error.with_traceback(None)
        if failed:
            raise failed
        return None


T = TypeVar("T")
_glob = lru_cache(maxsize=256)(glob)  # of the patterns in rules
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
            yield from (value for _, value in globs)

    def _find(self, name: str) -> tuple[T, ...]:
        """Return what is kept for the name: exact first, then by glob."""
        matches = self._exact.get(name, ())
        domain, slash, _ = name.partition("/")
        if slash and (globs := self._by_domain.get(domain, ()) + self._everywhere):
            matches += tuple(kept for pattern, kept in globs if pattern.fullmatch(name))
        return matches
