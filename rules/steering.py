"""What a node's labels have to tell so that it fits a container: its needs as clauses of node affinity.

Of the nodes that labels describe, a clause admits all that fit and none that is refused, but for what
affinity cannot say in few terms: a brand, the third part of a driver's version, gaps between alternatives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rules.affinity import Clause, Interval, Requirement
from rules.fitness import STABLE_MAJORS, Level, Terms, forward_fit
from rules.selector import EXPRESSIONS, MatchExpression
from rules.version import DriverVersion

if TYPE_CHECKING:
    from rules.image_catalog import BuiltFor
    from rules.inventory import Inventory
    from rules.needs import Needs
    from rules.offer import LabelFamily, Version
    from rules.require import Constraint, Factor, Group

# A fact of a node and the versions of it that will do.
_Wanted = tuple[tuple["LabelFamily", ...], list[Interval]]


def clauses_of(terms: Terms, needs: Needs, inventory: Inventory) -> tuple[Clause, ...]:
    """Return the clauses that a node has to satisfy, in the labels that the cluster's nodes have."""
    clauses = []
    if needs.cuda and needs.cuda.certain:
        native = _told(inventory, inventory.label_names.cuda, _drivers(terms, needs))
        clauses.append(native + _forward(terms, needs, inventory) if native else ())
    clauses += [_told(inventory, *wanted) for wanted in _wanted(terms, needs, inventory)]
    return tuple(clause for clause in clauses if clause)


def stable(needs: Iterable[Needs], inventory: Inventory) -> Requirement | None:
    """Return what a node tells whose driver is not too far ahead of any container's runtime."""
    versions = [each.cuda.version for each in needs if each.cuda]
    if not versions:
        return None
    interval = Interval(max(versions), (min(versions).major + STABLE_MAJORS + 1, 0))
    return Requirement.of_version(interval, inventory.label_names.cuda, inventory)


def _wanted(terms: Terms, needs: Needs, inventory: Inventory) -> Iterator[_Wanted]:
    """Yield what is wanted of driver and GPU, but for the container's CUDA version."""
    names = inventory.label_names
    for name, families in (
        ("cuda", names.cuda),
        ("driver", names.driver),
        ("arch", names.compute_capability),
    ):
        yield families, [_all_of(_of_constraint(constraint, name) for constraint in needs.constraints)]
    if terms.min_cuda:
        yield names.cuda, [Interval(terms.min_cuda)]
    asked = [need.minimum for need in needs.compute if need.asked and need.certain]
    asked += [terms.min_compute] if terms.min_compute else []
    if asked:
        yield names.compute_capability, [Interval(max(asked))]
    told = [each.offer.compute_capability for each in inventory.classes(inventory.everything)]
    for floor in _floors(needs):
        # Every image has a floor; few clusters have a GPU below it.
        if any(each is not None and not any(each in interval for interval in floor) for each in told):
            yield names.compute_capability, floor


def _of_constraint(constraint: Constraint, name: str) -> Interval:
    """Return the versions of one property between the outermost with which a variable can hold.

    One interval, however many alternatives a pod writes: they multiply with the terms of others.
    """
    intervals = [_of_group(group, name) for group in constraint.groups]
    ends = [interval.below for interval in intervals]
    least = min((interval.at_least for interval in intervals), default=(0, 0))
    return Interval(least, max((end for end in ends if end), default=None) if None not in ends else None)


def _of_group(group: Group, name: str) -> Interval:
    return _all_of(
        _of_factor(factor, factor.numbers) for factor in group if factor.name == name and factor.numbers
    )


def _all_of(intervals: Iterable[Interval]) -> Interval:
    """Return the versions that are in each of the intervals."""
    low: Version = (0, 0)
    below: Version | None = None
    for interval in intervals:
        low = max(low, interval.at_least)
        below = min(filter(None, (below, interval.below)), default=None)
    return Interval(low, below)


def _of_factor(factor: Factor, numbers: tuple[int, ...]) -> Interval:
    """Return the bounds that a condition sets on the first two parts of a version; != sets none."""
    major, minor, *further = (*numbers, 0, 0)
    here, after = (major, minor), (major, minor + 1)
    least: Version = (0, 0)
    if factor.operator in ("=", ">=", ">"):
        # Of a driver 535.104.05 the third part may satisfy what 535.104 alone does not.
        beyond = factor.operator == ">" or any(further)
        least = after if beyond and factor.name != "driver" else here
    if factor.operator in ("=", "<=", "<"):
        return Interval(least, here if factor.operator == "<" and not any(further) else after)
    return Interval(least)


def _drivers(terms: Terms, needs: Needs) -> list[Interval]:
    """Return the driver's CUDA versions that run the container as they are; none where any may."""
    need = needs.cuda
    if need is None:
        return []
    # Where variables ask, they hold or do not; the version is only what they say of it.
    asked = any(constraint.groups for constraint in needs.constraints)
    at_least: Version = (0, 0) if asked else terms.oldest_driver(need)
    major = terms.driver_major(need)
    if major is not None:
        return [Interval(max(at_least, (major, 0)), (major + 1, 0))]
    return [] if asked else [Interval(at_least)]


def _forward(terms: Terms, needs: Needs, inventory: Inventory) -> Clause:
    """Return the terms of the nodes on which cuda-compat makes up for an older driver."""
    if terms.virtual or not needs.cuda_compat:
        return ()
    offers = [each.offer for each in inventory.classes(inventory.everything)]
    fitting = [offer for offer in offers if forward_fit(needs, offer) is Level.FITS]
    products = {offer.product for offer in fitting if offer.product}
    versions = [DriverVersion.parse(offer.driver) for offer in fitting if offer.driver]
    branches = sorted({version.branch for version in versions if version})
    names = inventory.label_names
    intervals = [Interval((branch, 0), (branch + 1, 0)) for branch in branches]
    drivers = _told(inventory, names.driver, intervals)
    return tuple((*term, *gpu) for term in drivers for gpu in _labelled(inventory, names.product, products))


def _floors(needs: Needs) -> Iterator[list[Interval]]:
    """Yield the compute capabilities that the image has code for, as far as that is certain."""
    floors = [need.minimum for need in needs.compute if need.certain and not need.asked]
    if floors:
        yield [Interval(max(floors))]
    if needs.built_for and needs.built_for.certain:
        yield _of_code(needs.built_for)


def _of_code(built_for: BuiltFor) -> list[Interval]:
    """Return the compute capabilities that run code for others: of the same major, from the first on."""
    if built_for.ptx is None:
        return [Interval(min(built_for.capabilities))]
    first: dict[int, Version] = {}
    for capability in sorted(built_for.capabilities):
        first.setdefault(capability.major, capability)
    intervals = [Interval.same_major(each) for each in first.values()]
    return [*intervals[:-1], Interval(intervals[-1].at_least)] if built_for.ptx else intervals


def _told(inventory: Inventory, families: tuple[LabelFamily, ...], intervals: list[Interval]) -> Clause:
    """Return the clause that a node tells a version of one of the intervals; empty where none can be told."""
    clause: Clause = ()
    for interval in _merged(intervals):
        for terms in Requirement.of_version(interval, families, inventory).clauses:
            clause += terms
    return clause


def _merged(intervals: list[Interval]) -> list[Interval]:
    """Return intervals without gaps between them as one."""
    merged: list[Interval] = []
    for interval in sorted(intervals, key=lambda each: each.at_least):
        if merged and (merged[-1].below is None or merged[-1].below >= interval.at_least):
            last = merged.pop()
            ends = None in (last.below, interval.below)
            below = None if ends else max(filter(None, (last.below, interval.below)))
            merged.append(Interval(last.at_least, below))
        else:
            merged.append(interval)
    return merged


def _labelled(inventory: Inventory, keys: Iterable[str], texts: Iterable[str]) -> Clause:
    """Return the terms that the first of the labels that a node carries has one of the texts."""
    clause: Clause = ()
    guards: tuple[MatchExpression, ...] = ()
    wanted = set(texts)
    for key in keys:
        written = {str(text) for text, _ in inventory.labels.values(key)}
        if found := sorted(written & wanted):
            clause += ((MatchExpression(EXPRESSIONS, key, "In", tuple(found)), *guards),)
        if written:
            guards += (MatchExpression(EXPRESSIONS, key, "DoesNotExist"),)
    return clause
