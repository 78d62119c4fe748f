"""Intervals of versions, and the terms of node affinity that a node tells a version of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rules.kube.names import parse_int64
from rules.nodes.label_families import LabelFamily, Version
from rules.nodes.node_selector import EXPRESSIONS, Clause, MatchExpression, Term

if TYPE_CHECKING:
    from rules.nodes.inventory import Inventory


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions from `at_least`, which is one of them, to `below`, which is not; None is no upper end.

    Ends have two parts or more, and no zeros behind the second.
    """

    at_least: Version = (0, 0)
    below: Version | None = None

    @classmethod
    def same_major(cls, at_least: Version) -> VersionRange:
        """Return the versions from this one on that have its major."""
        return cls(at_least, (at_least[0] + 1, 0))

    @property
    def empty(self) -> bool:
        """Whether there is no version inside."""
        return self.below is not None and self.at_least >= self.below

    def __contains__(self, version: Version) -> bool:
        return self.at_least <= version and (self.below is None or version < self.below)

    def __and__(self, other: VersionRange) -> VersionRange:
        """Return the versions that are in both."""
        ends = [end for end in (self.below, other.below) if end is not None]
        return VersionRange(max(self.at_least, other.at_least), min(ends, default=None))

    def __or__(self, other: VersionRange) -> VersionRange:
        """Return the smallest interval that holds both."""
        ends = None if self.below is None or other.below is None else max(self.below, other.below)
        return VersionRange(min(self.at_least, other.at_least), ends)


def version_clause(
    interval: VersionRange | None, families: Iterable[LabelFamily], inventory: Inventory
) -> Clause | None:
    """Return the terms that a node tells a version of an interval, or None where no node tells any.

    interval: None asks for a node that tells none that can be read.
    """
    # Of the cluster, not of the pod's candidates, which it narrows: a second run must write the same.
    speakers = inventory.speakers(families, inventory.everything)
    if not speakers:
        return None
    clause: list[Term] = []
    guards: Term = ()
    for family, _ in speakers:
        terms = _unread(family, inventory) if interval is None else _inside(interval, family, inventory)
        clause += ((*term, *guards) for term in terms)
        guards += (_has_not(family.key),)
    return (*clause, guards) if interval is None else tuple(clause)


def _inside(interval: VersionRange, family: LabelFamily, inventory: Inventory) -> list[Term]:
    """Return terms, of which no two match the same node, for the versions of an interval in one family."""
    low, high = interval.at_least, interval.below
    if interval.empty:
        return []
    if family.whole:  # texts have no order, but it is known which there are
        inside = [text for text, version in _written(family, inventory) if version and version in interval]
        return [(_in(family.key, *inside),)] if inside else []
    labels, width = inventory.labels, len(family.keys)

    def at(key: str, number: int) -> MatchExpression:
        """In compares texts: where a node writes 012, that is 12 too."""
        texts = (str(text) for text, _ in labels.values(key))
        return _in(key, *sorted({str(number), *(text for text in texts if parse_int64(text) == number)}))

    def between(keys: Sequence[str], low: Version, high: Version | None) -> list[Term]:
        """Return the terms for the parts that these keys tell, as many as low and high have."""
        key, *others = keys
        if high is not None and low[0] == high[0]:
            return [(at(key, low[0]), *term) for term in between(others, low[1:], high[1:])]
        terms: list[Term] = []
        inside = any(low[1:])
        if inside:
            terms += ((at(key, low[0]), *term) for term in between(others, low[1:], None))
        # Numbers that are inside with all that follows: from first to the one before last.
        first, last = low[0] + inside, None if high is None else high[0]
        if others and last == first + 1:
            terms.append((at(key, first),))
        elif last is None or first < last:
            # A label value has no sign: above -1 cannot be written, nor need it be.
            above = (_above(key, first - 1),) if first else ()
            terms.append((*above, *([] if last is None else [_below(key, last)])) or (_has(key),))
        if not first and width - len(keys) >= family.needed:  # a part that is left out is 0
            terms += [(_in(key, ""),)] if labels.equal(key, "") else []
            terms += [(_has_not(key),)] if labels.having(family.key) & ~labels.having(key) else []
        if high is not None and any(high[1:]):
            zeros = (0,) * len(others)
            terms += ((at(key, high[0]), *term) for term in between(others, zeros, high[1:]))
        return terms

    return between(family.keys, _padded(low, width), high and _padded(high, width))


def _padded(version: Version, width: int) -> Version:
    return (*version, *(0,) * width)[:width]


def _unread(family: LabelFamily, inventory: Inventory) -> list[Term]:
    """Return the terms for nodes on which a family speaks and tells no version that can be read."""
    if family.whole:
        odd = [text for text, version in _written(family, inventory) if version is None]
        return [(_in(family.key, *odd),)] if odd else []
    labels = inventory.labels
    terms: list[Term] = []
    for at, key in enumerate(family.keys):
        written = (str(text) for text, _ in labels.values(key))
        odd = sorted(text for text in written if parse_int64(text) is None and (text or at < family.needed))
        terms += [(_in(key, *odd),)] if odd else []
        if at < family.needed and labels.having(family.key) & ~labels.having(key):
            terms.append((_has(family.key), _has_not(key)))
    return terms


def _written(family: LabelFamily, inventory: Inventory) -> list[tuple[str, Version | None]]:
    """Return the texts of a family's one label, each with the version that it names."""
    texts = sorted(str(text) for text, _ in inventory.labels.values(family.key))
    return [(text, family.version({family.key: text})) for text in texts]


def _in(key: str, *values: str) -> MatchExpression:
    return MatchExpression(EXPRESSIONS, key, "In", values)


def _has(key: str) -> MatchExpression:
    return MatchExpression(EXPRESSIONS, key, "Exists")


def _has_not(key: str) -> MatchExpression:
    return MatchExpression(EXPRESSIONS, key, "DoesNotExist")


def _above(key: str, number: int) -> MatchExpression:
    return MatchExpression(EXPRESSIONS, key, "Gt", (str(number),))


def _below(key: str, number: int) -> MatchExpression:
    return MatchExpression(EXPRESSIONS, key, "Lt", (str(number),))
