"""Sets of nodes by what they tell, as a disjunction of boxes, and the clause of node affinity for one.

A box says of some facts in which interval a node tells each, or that it tells it not at all. A region is the
union of its boxes; it is kept short, as its terms multiply with those of other containers and of the user.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Final

from rules.nodes.node_selector import EXPRESSIONS, Clause, MatchExpression, Term
from rules.nodes.version_range import VersionRange, version_clause

if TYPE_CHECKING:
    from rules.nodes.inventory import Inventory
    from rules.nodes.label_families import LabelNames

# What is said of a fact: a version inside, one of these texts, or with None nothing that can be read.
Told = VersionRange | frozenset[str] | None
Conjunction = Mapping[str, Told]
LabelConstraint = list[Conjunction]

# The facts of a node, by the names that NVIDIA_REQUIRE_* has for them, in the order in which terms name them.
CUDA: Final = "cuda"
DRIVER: Final = "driver"
ARCH: Final = "arch"
PRODUCT: Final = "product"
_FACTS: Final = (CUDA, DRIVER, ARCH, PRODUCT)
EVERYWHERE: Final[LabelConstraint] = [{}]
# Boxes of a region. NVIDIA's images write a handful that labels can tell, a hostile pod may write thousands.
_MOST: Final = 12


def both(one: LabelConstraint, other: LabelConstraint) -> LabelConstraint:
    """Return the nodes that are in both regions."""
    return shortened(box for a, b in product(one, other) if (box := _in_both(a, b)) is not None)


def shortened(boxes: Iterable[Conjunction]) -> LabelConstraint:
    """Return a region with as few boxes as it takes; of too many, what is between their outermost bounds."""
    found = list({frozenset(box.items()): box for box in boxes}.values())
    for fact in _FACTS:
        found = _joined(found, fact)
    if EVERYWHERE[0] in found:
        return EVERYWHERE
    return found if len(found) <= _MOST else [_outermost(found)]


def clause(region: LabelConstraint, inventory: Inventory, names: LabelNames) -> Clause:
    """Return the terms that a node is in a region, in the labels that the cluster's nodes have.

    Empty where the region is everywhere, and where no label tells what it asks.
    """
    terms: list[Term] = []
    for box in region:
        told = (_terms(fact, box[fact], inventory, names) for fact in _FACTS if fact in box)
        terms += (tuple(_flat(parts)) for parts in product(*told))
    return () if () in terms else tuple(dict.fromkeys(terms))


def not_labelled(keys: Iterable[str], texts: Iterable[str], inventory: Inventory) -> Clause:
    """Return the terms that the first of the labels that a node carries has none of the texts.

    Empty where no node has one of them.
    """
    spoken = [key for key in keys if inventory.labels.having(key)]
    unwanted = tuple(sorted(texts))
    if not any(inventory.labels.equal(key, text) for key in spoken for text in unwanted):
        return ()
    terms: list[Term] = []
    guards: Term = ()
    for key in spoken:
        carried = () if key == spoken[-1] else (MatchExpression(EXPRESSIONS, key, "Exists"),)
        terms.append((*carried, MatchExpression(EXPRESSIONS, key, "NotIn", unwanted), *guards))
        guards += (MatchExpression(EXPRESSIONS, key, "DoesNotExist"),)
    return tuple(terms)


def _labelled(keys: Iterable[str], texts: Iterable[str], inventory: Inventory) -> Clause:
    """Return the terms that the first of the labels that a node carries has one of the texts."""
    terms: list[Term] = []
    guards: Term = ()
    for key in keys:
        written = {str(text) for text, _ in inventory.labels.values(key)}
        if found := sorted(written.intersection(texts)):
            terms.append((MatchExpression(EXPRESSIONS, key, "In", tuple(found)), *guards))
        if written:
            guards += (MatchExpression(EXPRESSIONS, key, "DoesNotExist"),)
    return tuple(terms)


def _flat(parts: Iterable[Term]) -> Iterable[MatchExpression]:
    return (expression for term in parts for expression in term)


def _terms(fact: str, told: Told, inventory: Inventory, names: LabelNames) -> Clause:
    if isinstance(told, frozenset):
        return _labelled(names.product, told, inventory)
    families = {CUDA: names.cuda, DRIVER: names.driver, ARCH: names.compute_capability}[fact]
    found = version_clause(told, families, inventory)
    if found is None:  # no node tells it: none is inside, and every one is silent
        return ((),) if told is None else ()
    return found


def _in_both(one: Conjunction, other: Conjunction) -> Conjunction | None:
    box = {**one, **other}
    for fact in one.keys() & other.keys():
        a, b = one[fact], other[fact]
        if isinstance(a, VersionRange) and isinstance(b, VersionRange):
            box[fact] = met = a & b
            if met.empty:
                return None
        elif a != b:
            return None
    return box


def _joined(boxes: LabelConstraint, fact: str) -> LabelConstraint:
    """Return boxes in which those that differ in one fact alone are one, where nothing is between them."""
    alike: defaultdict[frozenset[tuple[str, Told]], list[Conjunction]] = defaultdict(list)
    for box in boxes:
        alike[frozenset((name, told) for name, told in box.items() if name != fact)].append(box)
    joined: LabelConstraint = []
    for rest, group in alike.items():
        if any(fact not in box for box in group):
            joined.append(dict(rest))
            continue
        told = [box[fact] for box in group]
        texts = frozenset[str]().union(*(each for each in told if isinstance(each, frozenset)))
        intervals = _union(each for each in told if isinstance(each, VersionRange))
        found: list[Told] = [*intervals, *([texts] if texts else []), *([None] if None in told else [])]
        joined += ({fact: each, **dict(rest)} for each in found)
    return joined


def _union(intervals: Iterable[VersionRange]) -> list[VersionRange]:
    """Return intervals without gaps between them as one."""
    union: list[VersionRange] = []
    for interval in sorted(intervals, key=lambda each: each.at_least):
        if union and (union[-1].below is None or union[-1].below >= interval.at_least):
            union.append(union.pop() | interval)
        else:
            union.append(interval)
    return union


def _outermost(boxes: LabelConstraint) -> Conjunction:
    """Return the smallest box that holds them all."""
    hull = dict(boxes[0])
    for box in boxes[1:]:
        for fact, told in list(hull.items()):
            other = box.get(fact)
            if isinstance(told, VersionRange) and isinstance(other, VersionRange):
                hull[fact] = told | other
            elif told != other or fact not in box:
                del hull[fact]
    return hull
