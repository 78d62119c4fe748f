"""Version ranges, and the node affinity terms that match nodes with a version in a range."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rules.affinity.node_affinity import Requirement
from rules.kube.names import parse_int64
from rules.kube.node_selector_term import EXPRESSIONS, Clause, MatchExpression, Term
from rules.nodes.label_families import LabelFamily, Version

if TYPE_CHECKING:
    from rules.nodes.inventory import Inventory


class VersionRange(Struct, frozen=True):
    """The versions from `at_least` (included) to `below` (excluded; None: no upper bound).

    Bounds have two parts or more, and no trailing zeros after the second.
    """

    at_least: Version = (0, 0)
    below: Version | None = None

    @property
    def empty(self) -> bool:
        """Whether the range contains no version."""
        return self.below is not None and self.at_least >= self.below

    def __contains__(self, version: Version) -> bool:
        return self.at_least <= version and (self.below is None or version < self.below)


def version_requirement(
    versions: VersionRange, families: Iterable[LabelFamily], inventory: Inventory
) -> Requirement:
    """Return the requirement that a node reports a version in the range.

    families: in order, as in LabelNames. The terms use the families that are present on some node of the
        cluster; the terms of a family exclude nodes with an earlier one. If none is present, the versions are
        unknown and nothing is required. A node without a minor version matches if its major suffices.
    """
    clause = None if versions == VersionRange() else version_clause(versions, families, inventory)
    return Requirement() if clause is None else Requirement((clause,))


def version_clause(
    versions: VersionRange, families: Iterable[LabelFamily], inventory: Inventory
) -> Clause | None:
    """Return the terms that match nodes with a version in the range; None if no node carries a family."""
    # Families of the whole cluster, not of the pod's candidates: the terms reduce the candidates, and a
    # second run must write the same terms.
    present = inventory.families_present(families, inventory.everything)
    if not present:
        return None
    clause: list[Term] = []
    guards: Term = ()
    for family, _ in present:
        clause += ((*term, *guards) for term in _inside(versions, family, inventory))
        guards += (_has_not(family.key),)
    return tuple(clause)


def _inside(versions: VersionRange, family: LabelFamily, inventory: Inventory) -> list[Term]:
    """Return disjoint terms for the versions of a range in one family."""
    low, high = versions.at_least, versions.below
    if versions.empty:
        return []
    if family.whole:  # label values have no order as versions, so the existing ones are listed
        inside = [text for text, version in _values(family, inventory) if version and version in versions]
        return [(_in(family.key, *inside),)] if inside else []
    labels, width = inventory.labels, len(family.keys)

    def at(key: str, number: int) -> MatchExpression:
        """In compares strings, so other spellings of the number on nodes (012 for 12) are listed too."""
        texts = (str(text) for text, _ in labels.values(key))
        return _in(key, *sorted({str(number), *(text for text in texts if parse_int64(text) == number)}))

    def impossible(key: str) -> bool:
        """Return whether a node has a number that cannot be a version, but an open range would include."""
        numbers = (parse_int64(str(text)) for text, _ in labels.values(key))
        return any(number is not None and number >= family.limit for number in numbers)

    def between(keys: Sequence[str], low: Version, high: Version | None) -> list[Term]:
        """Return the terms for the version parts of these keys; low and high have as many parts."""
        key, *others = keys
        if high is not None and low[0] == high[0]:
            return [(at(key, low[0]), *term) for term in between(others, low[1:], high[1:])]
        terms: list[Term] = []
        inside = any(low[1:])
        if inside:
            terms += ((at(key, low[0]), *term) for term in between(others, low[1:], None))
        # Numbers for which any later part is in the range: first <= number < last.
        first, last = low[0] + inside, None if high is None else high[0]
        if others and last == first + 1:
            terms.append((at(key, first),))
        elif last is None or first < last:
            # A label value has no sign, so Gt -1 is invalid, and not needed.
            above = (_above(key, first - 1),) if first else ()
            end = family.limit if last is None and impossible(key) else last
            terms.append((*above, *([] if end is None else [_below(key, end)])) or (_has(key),))
        if not first and width - len(keys) >= family.needed:  # a missing part counts as 0
            terms += [(_in(key, ""),)] if labels.equal(key, "") else []
            terms += [(_has_not(key),)] if labels.with_key(family.key) & ~labels.with_key(key) else []
        if high is not None and any(high[1:]):
            zeros = (0,) * len(others)
            terms += ((at(key, high[0]), *term) for term in between(others, zeros, high[1:]))
        return terms

    return between(family.keys, _padded(low, width), high and _padded(high, width))


def _padded(version: Version, width: int) -> Version:
    return (*version, *(0,) * width)[:width]


def _values(family: LabelFamily, inventory: Inventory) -> list[tuple[str, Version | None]]:
    """Return the values of a family's single label, each with its version."""
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
