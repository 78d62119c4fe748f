"""Nodes that an autoscaler may add, by the node profiles of the rules, and what they are for a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rules.compatibility.checks import check_on_node
from rules.compatibility.result import RuleRequirement
from rules.kube.tolerations import tolerates
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.rule import NodeProfile
from rules.nodes.inventory import Inventory
from rules.nodes.node_selector import EXPRESSIONS, Clause, MatchExpression, candidates


class ProspectResult(NamedTuple):
    """The result of a pod's requirements on the nodes of a profile."""

    profile: NodeProfile
    level: Level
    results: tuple[CheckResult, ...]


class Prospects:
    """The enabled profiles of nodes that an autoscaler may add now. Immutable."""

    __slots__ = ("_inventory", "_profiles")

    def __init__(self, profiles: Iterable[NodeProfile] = ()) -> None:
        self._profiles = tuple(each for each in profiles if each.enabled and each.can_scale)
        self._inventory = Inventory.of([_node(each) for each in self._profiles])

    def __bool__(self) -> bool:
        return bool(self._profiles)

    def results(
        self, required: Sequence[RuleRequirement], spec: Mapping[str, Any], names: Iterable[str]
    ) -> list[ProspectResult]:
        """Return the result on each profile whose nodes can take a pod. names: the requested resources.

        A pod that selects labels which its nodes do not have when they are created brings none of them.
        """
        if not self._profiles:
            return []
        allowed = candidates(self._inventory, spec)
        # A resource that neither a node nor a profile has belongs to a scheduler.
        offering = [nodes for name in names if (nodes := self._inventory.offering(name))]
        for nodes in offering:
            allowed &= nodes
        found = set(self._inventory.names(allowed)) if offering else set()
        return [
            _result(profile, required)
            for profile in self._profiles
            if profile.name in found and tolerates(spec.get("tolerations"), profile.taints)
        ]


NO_PROSPECTS: Final = Prospects()


def at_creation(results: Iterable[ProspectResult]) -> Clause:
    """Return a term for each profile: the labels that its nodes have when they are created."""
    return tuple(
        tuple(MatchExpression(EXPRESSIONS, key, "In", (value,)) for key, value in each.profile.labels)
        for each in results
        if each.profile.labels
    )


def _result(profile: NodeProfile, required: Sequence[RuleRequirement]) -> ProspectResult:
    found = tuple(
        result
        for each in required
        for result in check_on_node(each.rule.sharing, each.requirements, profile.capabilities)
    )
    return ProspectResult(profile, level_of(found), found)


def _node(profile: NodeProfile) -> dict[str, Any]:
    """Return a node as it is when it is created."""
    return {
        "kind": "Node",
        "metadata": {"name": profile.name, "labels": dict(profile.labels)},
        "status": {"allocatable": {name: str(amount) for name, amount in profile.resources}},
    }
