"""Required node affinity, by what the checks answer of the classes of nodes.

Two clauses at most for one container: the driver, by a lowest CUDA version, and for older drivers by their
branches; and what distinguishes the nodes that fit from those that do not with such a driver. The lowest
version holds for nodes that join later, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from rules.affinity.classes import Split, distinguishing
from rules.affinity.node_affinity import Requirement
from rules.affinity.version_range import VersionRange, version_clause, version_requirement
from rules.compatibility.checks.driver import STABLE_MAJORS
from rules.cuda.gpu_memory import MAX_MEMORY_MIB
from rules.cuda.requirements import GpuRequirements
from rules.cuda.tables import known_cudas
from rules.kube.node_selector_term import Clause
from rules.model.check_result import Level
from rules.model.sharing import SharingPolicy
from rules.nodes.cloud_labels import driver_labels, kind_labels
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelFamily, LabelNames
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.node_selector import admitted
from rules.nodes.pools.document import NodePool

# Kinds of nodes that are remembered with other drivers; nodes come and go, their kinds stay.
_REMEMBERED: Final = 4096
# Greater than that of any GPU.
_GREATEST_COMPUTE: Final = (99, 0)


class Judge(Struct, frozen=True):
    """The answer of all checks for a container on any node.

    or_unknown: nodes that may be compatible fit, too.
    """

    answer: Callable[[NodeCapabilities], Level]
    or_unknown: bool

    @property
    def worst(self) -> Level:
        """The worst level of a node that fits."""
        return Level.UNKNOWN if self.or_unknown else Level.UNSTABLE

    def fits(self, node: NodeCapabilities) -> bool:
        """Return whether a node fits."""
        return self.answer(node) <= self.worst

    def fits_with(self, node: NodeCapabilities, cuda: tuple[int, int]) -> bool:
        """Return whether a node fits if its driver has this CUDA version."""
        return self.fits(_with_cuda(node, cuda))


def clauses_of(
    policy: SharingPolicy,
    requirements: GpuRequirements,
    inventory: Inventory,
    pools: Iterable[NodePool],
    judge: Judge,
) -> tuple[Clause, ...]:
    """Return the clauses that a fitting node satisfies, in the labels that the cluster's nodes have.

    pools: of nodes that may be added; those that do not fit do not satisfy the clauses.
    """
    names = policy.labels
    classes = {
        node_class.capabilities: node_class.members
        for node_class in inventory.classes(inventory.everything, names)
    }
    levels = {node: judge.answer(node) for node in classes}
    fitting = [node for node, level in levels.items() if level <= judge.worst]
    others = [node for node, level in levels.items() if level > judge.worst]
    newest = _newest_needed(policy, requirements, fitting)
    lowest = _lowest_drivers(newest, fitting, others, judge) if newest else None
    versions = version_clause(lowest, names.cuda, inventory) if lowest else None
    if versions is None and all(levels[node] is not Level.COMPATIBLE for node in fitting):
        # What is uncertain makes no node better than one without labels.
        others = [node for node in others if levels[node] is Level.INCOMPATIBLE]
    # Nodes of pools count as if they had a driver that is new enough.
    created = dict.fromkeys(_with_driver(pool.capabilities, newest) for pool in pools)
    coming = [node for node in created if not judge.fits(node)]
    known = inventory.with_node([_as_created(at, node, inventory, names) for at, node in enumerate(coming)])
    added = known.everything & ~inventory.everything
    unfit = sum(classes[node] for node in others) | added
    fit = inventory.everything & ~unfit & ~inventory.reporting_devices
    older, never = 0, unfit
    if versions is not None:
        inside = admitted(known, versions)
        # With a newer driver, too; they may get one.
        with_any = [node for node in others if judge.answer(_with_cuda(node, newest)) is Level.INCOMPATIBLE]
        older = fit & ~inside
        never = unfit & (inside | added | sum(classes[node] for node in with_any))
    clauses = [versions or ()]
    if older or never:
        nodes = Split(known, fit, unfit, (_driver_labels(names), inventory.former_drivers))
        example = fitting[0] if fitting else NodeCapabilities(facts=inventory.facts)
        facts = _ordered(names, inventory, example, [*others, *coming], judge)
        rising = _rising(names, example, judge)
        if older:
            clauses[0] += _older(nodes._replace(fit=older), facts, names, rising)
        if never:
            clauses.append(distinguishing(nodes._replace(unfit=never), facts, (), rising))
    return tuple(clause for clause in clauses if clause and () not in clause)


def _with_driver(node: NodeCapabilities, cuda: tuple[int, int] | None) -> NodeCapabilities:
    """Return a node with a driver of this CUDA version, if its own is older or unknown."""
    if cuda is None or (node.cuda and node.cuda >= cuda):
        return node
    return _with_cuda(node, cuda)


def _newest_needed(
    policy: SharingPolicy, requirements: GpuRequirements, fitting: Iterable[NodeCapabilities]
) -> tuple[int, int] | None:
    """Return the CUDA version of a driver that is new enough; None if none is required."""
    need = requirements.cuda
    limits = [constraint for constraint in requirements.driver_constraints if constraint.certain]
    versions = [need.version if need and need.certain else None, policy.min_cuda]
    versions += [constraint.native for constraint in limits]
    required = [(version[0], version[1]) for version in versions if version]
    if not required and limits:
        required = [min(present)] if (present := [node.cuda for node in fitting if node.cuda]) else []
    return max(required, default=None)


def _lowest_drivers(
    newest: tuple[int, int],
    fitting: Sequence[NodeCapabilities],
    others: Iterable[NodeCapabilities],
    judge: Judge,
) -> VersionRange | None:
    """Return the CUDA versions of drivers that are enough for the GPUs for which the newest one is.

    None if it is for none, but others are.
    """
    older = (node for node in others if node.cuda and node.cuda < newest)
    barrier = max((node.cuda or newest for node in older if judge.fits_with(node, newest)), default=(0, 0))
    kinds = dict.fromkeys(map(_with_cuda, (*fitting, *others)))
    gpus = [gpu for gpu in kinds if judge.fits_with(gpu, newest)]
    if not gpus:
        return None if fitting else VersionRange(newest)
    lowest = newest
    for cuda in (version for version in known_cudas(gpus[0].facts) if barrier < version < newest):
        levels = [judge.answer(_with_cuda(gpu, cuda)) for gpu in gpus]
        if Level.INCOMPATIBLE in levels:
            break
        if max(levels) <= judge.worst:
            lowest = cuda
    next_major = (newest[0] + 1, 0)
    later = any(judge.fits_with(gpu, next_major) for gpu in gpus)
    return VersionRange(lowest, None if later else next_major)


@lru_cache(maxsize=_REMEMBERED)
def _with_cuda(node: NodeCapabilities, cuda: tuple[int, int] | None = None) -> NodeCapabilities:
    """Return a node with a driver of which only the CUDA version is known, if that is."""
    return replace(node, cuda=cuda, driver=None, former_driver=False)


def _older(
    nodes: Split, facts: Sequence[Sequence[str]], names: LabelNames, rising: Mapping[str, int]
) -> Clause:
    """Return terms for nodes with older drivers, by branch and GPU, and for those of unknown drivers."""
    inventory = nodes.inventory
    drivers, cudas = (
        inventory.families_present(families, inventory.everything) for families in (names.driver, names.cuda)
    )
    _, without = nodes.lost  # perhaps also their other labels of a GPU
    labelled = nodes.fit & sum(carrying for _, carrying in cudas) & ~without
    needed = {*(family.key for family, _ in (*drivers[:1], *cudas[:1])), *names.product}
    missing = {family.key for family, _ in cudas}
    return (
        *distinguishing(nodes._replace(fit=labelled), facts, needed, rising),
        *distinguishing(nodes._replace(fit=nodes.fit ^ labelled), facts, missing, rising),
    )


def _ordered(
    names: LabelNames,
    inventory: Inventory,
    example: NodeCapabilities,
    others: Iterable[NodeCapabilities],
    judge: Judge,
) -> list[list[str]]:
    """Return the labels of all facts, those to leave out first: of drivers, which change.

    The last ones are those that alone exclude a node. example: of those that fit.
    """
    facts: dict[str, Iterable[Iterable[str]]] = {
        "runtime": [names.runtime_mode, names.toolkit_version],
        "architecture": [names.architecture],
        "mig_strategy": [names.mig_strategy],
        "mig_devices": [sorted(filter(names.is_of_mig, inventory.labels))],
        "sharing_strategy": [names.sharing_strategy],
        "device_mode": [names.device_mode],
        "memory_mib": [names.memory],
        "product": [*((key,) for key in reversed(kind_labels(inventory.facts))), names.product],
        "compute_capability": _parts(names.compute_capability),
    }
    values = {fact: dict.fromkeys(getattr(node, fact) for node in others) for fact in facts}

    def excludes(fact: str) -> bool:
        return any(not judge.fits(replace(example, **{fact: value})) for value in values[fact])

    ordered: list[Iterable[str]] = [driver_labels(inventory.facts)]
    ordered += [*_parts(names.driver), *_parts(names.cuda)]
    for fact in sorted(facts, key=excludes):
        ordered += facts[fact]
    return [[key for key in keys if inventory.labels.with_key(key)] for keys in ordered]


def _rising(names: LabelNames, example: NodeCapabilities, judge: Judge) -> dict[str, int]:
    """Return the labels of numbers of which any greater one fits, too, each with the least known to fit."""
    rising: dict[str, int] = {}
    if judge.fits(replace(example, memory_mib=MAX_MEMORY_MIB)):
        rising |= dict.fromkeys(names.memory, MAX_MEMORY_MIB)
    if judge.fits(replace(example, compute_capability=_GREATEST_COMPUTE)):
        major = (example.gpu_capability or _GREATEST_COMPUTE)[0]
        while major > 1 and judge.fits(replace(example, compute_capability=(major - 1, 0))):
            major -= 1
        rising |= {family.key: major for family in names.compute_capability if not family.whole}
    return rising


def _parts(families: Iterable[LabelFamily]) -> list[tuple[str, ...]]:
    """Return the labels of each family, the last part of a version first."""
    return [family.keys[::-1] for family in families]


def _driver_labels(names: LabelNames) -> frozenset[str]:
    return frozenset(key for family in (*names.driver, *names.cuda) for key in family.keys)


def _as_created(at: int, node: NodeCapabilities, inventory: Inventory, names: LabelNames) -> dict[str, Any]:
    """Return a node with the labels that report what it is, of those that present nodes have."""
    labels: dict[str, str] = {}
    for families, version in ((names.cuda, node.cuda), (names.compute_capability, node.gpu_capability)):
        present = inventory.families_present(families, inventory.everything)
        for family, _ in present[:1] if version else ():
            parts = [str(part) for part in version or ()]
            labels |= zip(family.keys, [".".join(parts)] if family.whole else parts, strict=False)
    texts = (
        (names.product, node.product),
        (names.memory, node.gpu_memory_mib),
        (names.architecture, node.architecture),
        (names.sharing_strategy, node.sharing_strategy),
        (names.device_mode, node.device_mode),
    )
    labels |= {keys[0]: str(text) for keys, text in texts if text and keys}
    return {"kind": "Node", "metadata": {"name": f"//{at}", "labels": labels}}


def stable(
    policy: SharingPolicy, requirements: Iterable[GpuRequirements], inventory: Inventory
) -> Requirement | None:
    """Return the labels of a node whose driver is at most one major ahead of every container's runtime."""
    versions = [gpu_requirements.cuda.version for gpu_requirements in requirements if gpu_requirements.cuda]
    if not versions:
        return None
    drivers = VersionRange(max(versions), (min(versions).major + STABLE_MAJORS + 1, 0))
    return version_requirement(drivers, policy.labels.cuda, inventory)
