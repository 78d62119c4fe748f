"""What a node's labels have to tell so that it fits a container: its needs as clauses of node affinity.

Of the nodes that can be read, the clauses admit those that `fitness` finds to fit and no other, but for what
docs/compatibility.md lists under Limits. Where none fits for certain, they admit those that may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Final

from rules.compatibility.fitness import STABLE_MAJORS, forward_fit
from rules.compatibility.label_constraints import (
    ARCH,
    CUDA,
    DRIVER,
    EVERYWHERE,
    PRODUCT,
    Conjunction,
    LabelConstraint,
    both,
    clause,
    not_labelled,
    shortened,
)
from rules.cuda.tables import minor_version_floor
from rules.cuda.versions import DriverVersion
from rules.model.finding import Level
from rules.model.sharing import SharingPolicy
from rules.nodes.node_affinity import Requirement
from rules.nodes.node_capabilities import DEVICE_MODES, is_slice
from rules.nodes.node_selector import EXPRESSIONS, Clause, MatchExpression
from rules.nodes.version_range import VersionRange

if TYPE_CHECKING:
    from rules.cuda.image_catalog import BuiltFor
    from rules.cuda.nvidia_require import Constraint, Factor
    from rules.cuda.requirements import CudaRequirement, GpuRequirements
    from rules.nodes.inventory import Inventory
    from rules.nodes.label_families import Version
    from rules.nodes.node_capabilities import NodeCapabilities

# Parts of a version that labels tell.
_PARTS: Final = {CUDA: 2, DRIVER: 3, ARCH: 2}


def clauses_of(
    terms: SharingPolicy, needs: GpuRequirements, inventory: Inventory, *, doubtful: bool
) -> tuple[Clause, ...]:
    """Return the clauses that a node has to satisfy, in the labels that the cluster's nodes have.

    doubtful: nodes that may fit are admitted too, as far as labels tell them from those that do not.
    """
    offers = [each.offer for each in inventory.classes(inventory.everything, terms.labels)]
    # Apart, as what is asked of the driver and of the GPU multiplies.
    regions = (
        reduce(both, _of_driver(terms, needs, offers, doubtful=doubtful), EVERYWHERE),
        reduce(both, _of_gpu(terms, needs, offers, doubtful=doubtful), EVERYWHERE),
    )
    found = [*(clause(region, inventory, terms.labels) for region in regions), *_of_mode(terms, inventory)]
    return tuple(each for each in found if each)


def stable(
    terms: SharingPolicy, needs: Iterable[GpuRequirements], inventory: Inventory
) -> Requirement | None:
    """Return what a node tells whose driver is not too far ahead of any container's runtime."""
    versions = [each.cuda.version for each in needs if each.cuda]
    if not versions:
        return None
    interval = VersionRange(max(versions), (min(versions).major + STABLE_MAJORS + 1, 0))
    return Requirement.of_version(interval, terms.labels.cuda, inventory)


def _of_driver(
    terms: SharingPolicy, needs: GpuRequirements, offers: list[NodeCapabilities], *, doubtful: bool
) -> Iterator[LabelConstraint]:
    """Yield the regions in all of which a node has to be: what the variables, the image and the mode ask."""
    silent: LabelConstraint = [{CUDA: None}] if doubtful else []
    asked = [constraint for constraint in needs.constraints if constraint.groups]
    for constraint in asked:
        yield _of_constraint(constraint, doubtful=doubtful)
    if needs.cuda and needs.cuda.certain:
        major = terms.driver_major(needs.cuda)
        if asked and major is not None:  # they hold or do not; the version is only what they say of it
            yield [{CUDA: VersionRange((major, 0), (major + 1, 0))}, *silent]
        elif not asked and not (doubtful and needs.cuda_compat and not terms.virtual):
            yield [*_native(terms, needs.cuda, major, offers), *_forward(terms, needs, offers), *silent]
    if terms.min_cuda:
        yield [{CUDA: VersionRange(terms.min_cuda)}, *silent]


def _of_gpu(
    terms: SharingPolicy, needs: GpuRequirements, offers: list[NodeCapabilities], *, doubtful: bool
) -> Iterator[LabelConstraint]:
    """Yield the regions in all of which a node has to be: what flags, the image and the mode ask."""
    minima = [need.minimum for need in needs.compute if need.asked and need.certain]
    minima += [terms.min_compute] if terms.min_compute else []
    if minima:
        yield [{ARCH: VersionRange(max(minima))}, *([{ARCH: None}] if doubtful else [])]
    for floor in _floors(needs):
        # Every image has a floor; few clusters have a GPU below it.
        gpus = (offer.compute_capability for offer in offers)
        if any(gpu is not None and not any(gpu in interval for interval in floor) for gpu in gpus):
            yield [*({ARCH: interval} for interval in floor), {ARCH: None}]


def _of_mode(terms: SharingPolicy, inventory: Inventory) -> Iterator[Clause]:
    """Yield what a node must not tell under a way of sharing: another mode, or MIG slices."""
    names = terms.labels
    if terms.device_mode:
        yield not_labelled(names.device_mode, DEVICE_MODES - {terms.device_mode}, inventory)
    if not terms.mig:
        products = {str(text) for key in names.product for text, _ in inventory.labels.values(key)}
        yield not_labelled(names.product, filter(is_slice, products), inventory)
        yield from (
            ((MatchExpression(EXPRESSIONS, key, "DoesNotExist"),),)
            for key in sorted(filter(names.is_of_mig, inventory.labels))
        )


# NVIDIA_REQUIRE_*


def _of_constraint(constraint: Constraint, *, doubtful: bool) -> LabelConstraint:
    """Return the nodes on which a variable holds; doubtful: on which nobody knows that it does not."""
    boxes: list[Conjunction] = []
    for group in constraint.groups:
        facts = [factor for factor in group if factor.name in _PARTS]
        if len(facts) < len(group) and not doubtful:  # no label tells a brand
            continue
        held: LabelConstraint = reduce(
            both, (_of_factor(factor, doubtful=doubtful) for factor in facts), EVERYWHERE
        )
        boxes += held
    return shortened(boxes)


def _of_factor(factor: Factor, *, doubtful: bool) -> LabelConstraint:
    silent: LabelConstraint = [{factor.name: None}] if doubtful else []
    return [*({factor.name: interval} for interval in _intervals(factor)), *silent]


def _intervals(factor: Factor) -> list[VersionRange]:
    """Return the versions that satisfy a condition, in as many parts as labels tell of one."""
    parts, numbers = _PARTS[factor.name], factor.numbers or ()
    here = (*numbers, *(0,) * parts)[:parts]
    after = (*here[:-1], here[-1] + 1)
    # 12.4 is below 12.4.1, so that only 12.5 satisfies >=12.4.1.
    least = after if any(numbers[parts:]) else here
    match factor.operator:
        case ">=":
            return [VersionRange(_end(least))]
        case ">":
            return [VersionRange(_end(after))]
        case "<":
            return [VersionRange(below=_end(least))]
        case "<=":
            return [VersionRange(below=_end(after))]
        case "=":
            return [VersionRange(_end(least), _end(after))]
    return [VersionRange(below=_end(least)), VersionRange(_end(after))]


def _end(version: Version) -> Version:
    """Return a version without zeros behind its minor."""
    while len(version) > 2 and not version[-1]:
        version = version[:-1]
    return version


# The driver


def _native(
    terms: SharingPolicy, need: CudaRequirement, major: int | None, offers: list[NodeCapabilities]
) -> Iterator[Conjunction]:
    """Yield the drivers that run the container as they are, or by minor version compatibility."""
    if major is not None:
        yield {CUDA: VersionRange(max(need.version, (major, 0)), (major + 1, 0))}
        return
    oldest, fact = terms.oldest_driver(need), minor_version_floor(need.version.major)
    minors = VersionRange(oldest, need.version)
    floor = VersionRange(_end(fact.value.numbers)) if fact else VersionRange()
    lower = [offer for offer in offers if offer.cuda is not None and offer.cuda in minors]
    drivers = (DriverVersion.parse(offer.driver or "") for offer in lower)
    if all(driver is None or driver.numbers in floor for driver in drivers):
        yield {CUDA: VersionRange(oldest)}
        return
    yield {CUDA: VersionRange(need.version)}
    yield {CUDA: minors, DRIVER: floor}
    yield {CUDA: minors, DRIVER: None}


def _forward(
    terms: SharingPolicy, needs: GpuRequirements, offers: list[NodeCapabilities]
) -> Iterator[Conjunction]:
    """Yield the nodes on which cuda-compat makes up for an older driver."""
    if terms.virtual or not needs.cuda_compat:
        return
    for offer in offers:
        driver = DriverVersion.parse(offer.driver or "")
        if driver and offer.product and forward_fit(needs, offer) is Level.COMPATIBLE:
            branch = VersionRange((driver.branch, 0), (driver.branch + 1, 0))
            yield {CUDA: VersionRange(), DRIVER: branch, PRODUCT: frozenset({offer.product})}


# Compute capability


def _floors(needs: GpuRequirements) -> Iterator[list[VersionRange]]:
    """Yield the compute capabilities that the image has code for, as far as that is certain."""
    floors = [need.minimum for need in needs.compute if need.certain and not need.asked]
    if floors:
        yield [VersionRange(max(floors))]
    if needs.built_for and needs.built_for.certain:
        yield _of_code(needs.built_for)


def _of_code(built_for: BuiltFor) -> list[VersionRange]:
    """Return the compute capabilities that run code for others: of the same major, from the first on."""
    if built_for.ptx is None:
        return [VersionRange(min(built_for.capabilities))]
    first: dict[int, Version] = {}
    for capability in sorted(built_for.capabilities):
        first.setdefault(capability.major, capability)
    intervals = [VersionRange.same_major(each) for each in first.values()]
    return [*intervals[:-1], VersionRange(intervals[-1].at_least)] if built_for.ptx else intervals
