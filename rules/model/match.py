"""What a rule applies to: names by glob, labels by selector, containers by expression; compiled at load."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from rules.text.bounded_cache import remembered

if TYPE_CHECKING:
    from rules.cel.expression import Expression

T = TypeVar("T")
# The piece of a match that fails.
Unmet: TypeAlias = "Part | SelectorTerm | Expression"

# Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
SELECTOR_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_TOKEN: Final = re.compile(r"\\.|\(\?>\.\*\?|\.\*|.", re.DOTALL)
# Longer than any name: an image reference has 255 characters, a tag 128 more.
_LONGEST: Final = 512
# Names that an index remembers, and characters of one.
_REMEMBERED: Final = 256
_LONGEST_REMEMBERED: Final = 256
_STAR: Final = ".*"
_ANY: Final = "."
_UP_TO: Final = "(?>.*?"  # the shortest text up to what follows; never tried again for a longer one


def glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob: `*` is any text, `?` any one character, all else itself. Use its fullmatch.

    What stands between two stars is taken where it first occurs, once and for all, which finds a match where
    there is one. So the time is bounded by the lengths of pattern and text, however many the stars.
    """
    first, *rest = (re.escape(part).replace(r"\?", _ANY) for part in pattern.split("*"))
    if rest:
        first += "".join(f"{_UP_TO}{part})" for part in rest[:-1]) + _STAR + rest[-1]
    return re.compile(first, re.DOTALL)


def glob_tokens(pattern: re.Pattern[str]) -> list[str]:
    """Return the characters of a compiled glob, with `.*` for each star, `.` for each `?`; others escaped."""
    parts = _TOKEN.findall(pattern.pattern)
    return [_STAR if part == _UP_TO else part for part in parts if part != ")"]


def plain_regex(pattern: re.Pattern[str]) -> str:
    """Return a compiled glob as a regular expression of any dialect, such as CEL's."""
    return "".join(glob_tokens(pattern))


def glob_text(pattern: re.Pattern[str]) -> str:
    """Return a compiled glob as it was written."""
    return "".join({_STAR: "*", _ANY: "?"}.get(token, token[-1]) for token in glob_tokens(pattern))


def overlap(one: re.Pattern[str], other: re.Pattern[str]) -> bool:
    """Tell whether some text matches both of two compiled globs; of long ones it is taken for granted."""
    left, right = glob_tokens(one), glob_tokens(other)
    if max(len(left), len(right)) > _LONGEST:
        return True
    seen, todo = set(), [(0, 0)]  # how far both are used up by the same text
    while todo:
        at, to = place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        here, there = left[at : at + 1], right[to : to + 1]
        if not here and not there:
            return True
        if here == [_STAR]:
            todo.append((at + 1, to))
        if there == [_STAR]:
            todo.append((at, to + 1))
        if here and there and (_STAR in here + there or _ANY in here + there or here == there):
            todo.append((at + (here != [_STAR]), to + (there != [_STAR])))
    return False


def covers(wide: re.Pattern[str], narrow: re.Pattern[str]) -> bool:
    """Tell whether a compiled glob matches all that another does; False where that is not plain to see."""
    if "?" in glob_text(wide) and "*" in glob_text(narrow):
        return False
    return wide.fullmatch(glob_text(narrow)) is not None


def is_glob(pattern: str) -> bool:
    """Tell whether a name is a pattern."""
    return "*" in pattern or "?" in pattern


class ResourceIndex(Generic[T]):
    """Finds what is kept for a resource's name; the cost does not grow with the number of names.

    find: returns what is kept for a name, exact first, then by glob, and remembers it. Exact names are one
    look-up. Globs are kept by the domain before the `/`, so that a name meets the few of its own vendor; a
    glob in the domain itself is tried for every name.
    """

    __slots__ = ("_by_domain", "_everywhere", "_exact", "find")

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        """Index entries of (name or glob, what to keep), in order."""
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
        self.find = remembered(self._find, _REMEMBERED, lambda name: len(name) <= _LONGEST_REMEMBERED)

    def __iter__(self) -> Iterator[T]:
        """Yield all that is kept: exact names first."""
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


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One requirement of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels satisfy it; NotIn is satisfied by an absent label."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case _:
                return self.key not in labels


class Part(StrEnum):
    """The parts of a match that hold or fail as a whole."""

    NAMESPACES = "namespaces"
    IMAGES = "images"


@dataclass(frozen=True, slots=True)
class Match:
    """What an injection rule applies to; all of it has to hold, and within a list any of it.

    resources: names or globs of resources that the container asks for. images: compiled globs; empty for any
    image. include, exclude: namespaces by glob. terms: of which the conditions are made.
    """

    resources: tuple[str, ...]
    images: tuple[re.Pattern[str], ...] = ()
    include: tuple[re.Pattern[str], ...] = ()
    exclude: tuple[re.Pattern[str], ...] = ()
    selector: tuple[SelectorTerm, ...] = ()
    conditions: tuple[Expression, ...] = field(default=())
    terms: tuple[Expression, ...] = field(default=())

    def pod(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether it applies to pods of a namespace with these labels."""
        return self.unmet_by_pod(namespace, labels) is None

    def unmet_by_pod(self, namespace: str, labels: Mapping[str, str]) -> Unmet | None:
        """Return the first of its parts that fails for pods of a namespace with these labels, or None."""
        if self.exclude and any(pattern.fullmatch(namespace) for pattern in self.exclude):
            return Part.NAMESPACES
        if self.include and not any(pattern.fullmatch(namespace) for pattern in self.include):
            return Part.NAMESPACES
        for term in self.selector:
            if not term.holds(labels):
                return term
        return None

    def image(self, names: Iterable[str]) -> bool:
        """Tell whether it applies to an image, given each spelling of its reference."""
        return not self.images or any(pattern.fullmatch(name) for name in names for pattern in self.images)

    def unmet_condition(self, value_of: Callable[[str], Any]) -> Expression | None:
        """Return the first condition that is false, or None. Raises ExpressionError where one fails."""
        for condition in self.conditions:
            if not condition(value_of):
                return condition
        return None
