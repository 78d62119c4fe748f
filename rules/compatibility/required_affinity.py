"""Required node affinity: the labels that a node must have to be compatible with GPU requirements.

Of the nodes whose labels can be read, the clauses admit those that the checks find compatible and no other,
except for what docs/compatibility.md lists under Limits.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

from rules.affinity.label_constraints import EVERYWHERE, LabelConstraint, both, clause
from rules.affinity.node_affinity import Requirement
from rules.affinity.version_range import VersionRange
from rules.compatibility.checks import CHECKS
from rules.compatibility.checks.base import Subject
from rules.compatibility.checks.driver import STABLE_MAJORS
from rules.cuda.requirements import GpuRequirements
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.node_pool import NodePool
from rules.nodes.node_selector import Clause
from rules.text.bounded_cache import bounded_cache

# Requirements that are remembered with their constraints, and characters of each. Nodes come and go, but
# kinds of nodes stay.
_REMEMBERED: Final = 512
_LONGEST: Final = 8192
_Key = tuple[SharingPolicy, GpuRequirements, tuple[NodeCapabilities, ...], bool]


def clauses_of(
    policy: SharingPolicy,
    requirements: GpuRequirements,
    inventory: Inventory,
    pools: Iterable[NodePool] = (),
    *,
    or_unknown: bool,
) -> tuple[Clause, ...]:
    """Return the clauses that a compatible node satisfies, in the labels that the cluster's nodes have.

    pools: of nodes that may be added; those that are not compatible do not satisfy the clauses. or_unknown:
    nodes that may be compatible are admitted too, if labels distinguish them from the others.
    """
    nodes = [each.capabilities for each in inventory.classes(inventory.everything, policy.labels)]
    nodes += (each.capabilities for each in pools)
    regions = _regions((policy, requirements, tuple(dict.fromkeys(nodes)), or_unknown))
    found = [clause(region, inventory, policy.labels) for region in regions]
    found += [
        each
        for check in CHECKS
        for each in check.clauses(policy, requirements, inventory, or_unknown=or_unknown)
    ]
    return tuple(each for each in found if each)


def _find_regions(key: _Key) -> list[LabelConstraint]:
    """Return for each subject the nodes that satisfy the constraints. It depends on kinds of nodes only."""
    policy, requirements, nodes, or_unknown = key
    constraints = [
        each
        for check in CHECKS
        for each in check.constraints(policy, requirements, list(nodes), or_unknown=or_unknown)
    ]
    # Separately, because the alternatives of driver and GPU multiply.
    return [
        reduce(both, (each.labels for each in constraints if each.subject is subject), EVERYWHERE)
        for subject in Subject
    ]


_regions = bounded_cache(_find_regions, _REMEMBERED, lambda key: key[1].length <= _LONGEST)


def stable(
    policy: SharingPolicy, requirements: Iterable[GpuRequirements], inventory: Inventory
) -> Requirement | None:
    """Return the labels of a node whose driver is at most one major ahead of every container's runtime."""
    versions = [each.cuda.version for each in requirements if each.cuda]
    if not versions:
        return None
    drivers = VersionRange(max(versions), (min(versions).major + STABLE_MAJORS + 1, 0))
    return Requirement.of_version(drivers, policy.labels.cuda, inventory)
