"""Nodes that an autoscaler may add, and what they are for a pod."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rules.compatibility.checks import check_on_node
from rules.compatibility.result import NodeClassResult, RuleRequirement
from rules.kube.node_selector_term import EXPRESSIONS, MatchExpression, Term, parse_term, required_terms
from rules.kube.tolerations import tolerates
from rules.model.check_result import Level, level_of
from rules.nodes.gpu_resources import Amounts
from rules.nodes.inventory import Inventory
from rules.nodes.node_selector import admitted, matched_by
from rules.nodes.pools.document import NodePool
from rules.text.bounded_cache import bounded_cache

# Requirements of pods that are kept with their results, and the most characters of one; 0.1 KB a pool each.
_REMEMBERED: Final = 256
_LONGEST: Final = 8192
# Labels that every node has, whether or not its pool says so.
_ON_ALL_NODES: Final = ("kubernetes.io/", "node.kubernetes.io/", "topology.kubernetes.io/")


class ProspectResult(NamedTuple):
    """The result of a pod's requirements on the nodes of a pool. nodes: as for present ones, without any."""

    pool: NodePool
    nodes: NodeClassResult

    @property
    def level(self) -> Level:
        """The worst level of all containers."""
        return self.nodes.level


class Prospects:
    """The pools of which an autoscaler may add nodes now. Immutable, compared by identity.

    of_any_amount: those of which the resources are unknown, as a bit set.
    """

    def __init__(self, pools: Iterable[NodePool] = ()) -> None:
        self.pools = tuple(pool for pool in pools if pool.can_scale)
        # The name of a node is its position, which no nodeName can be.
        self._nodes = Inventory().with_node([_node(f"//{at}", pool) for at, pool in enumerate(self.pools)])
        self.of_any_amount = sum(1 << at for at, pool in enumerate(self.pools) if pool.resources is None)
        self._opened = [(1 << at, pool.open) for at, pool in enumerate(self.pools) if pool.open]
        self._results = bounded_cache(self._evaluate, _REMEMBERED, _is_short)

    def __bool__(self) -> bool:
        return bool(self.pools)

    def results(
        self,
        required: tuple[RuleRequirement, ...],
        spec: Mapping[str, Any],
        names: Iterable[str],
        amounts: Amounts = (),
        *,
        tolerated: bool = True,
    ) -> list[ProspectResult]:
        """Return the result on each pool whose nodes can take a pod. names: the requested resources.

        amounts: how many of them a node must have. tolerated: false for those whose nodes could take it if it
        tolerated their taints. A pod that selects labels which its nodes do not have when they are created
        brings none of them.
        """
        if not self.pools or spec.get("nodeName"):
            return []
        nodes = self._selected(spec)
        # A resource that neither a node nor a pool has belongs to a scheduler.
        offering = [
            pools for name in names if (pools := self._nodes.nodes_offering(name) | self.of_any_amount)
        ]
        for offered in offering:
            nodes &= offered
        for name, amount in amounts:
            nodes &= self.having_amount(name, amount)
        if not (offering and nodes):
            return []
        tolerations = spec.get("tolerations")
        return [
            prospect
            for at, prospect in enumerate(self._results(required))
            if nodes >> at & 1 and tolerates(tolerations, prospect.pool.taints) is tolerated
        ]

    def having_amount(self, resource: str, amount: int) -> int:
        """Return the pools, as a bit set, whose nodes have an amount of a resource, or an unknown one.

        All, if no pool is known to have the resource.
        """
        if not self._nodes.nodes_offering(resource):
            return self._nodes.everything
        return self._nodes.nodes_offering(resource, amount) | self.of_any_amount

    def most(self, resource: str) -> int:
        """Return how many of a resource a node of a pool has at most; 0 if none is known."""
        return self._nodes.largest_amount(resource)

    def incompatible(self, required: tuple[RuleRequirement, ...]) -> Iterator[NodePool]:
        """Yield the pools whose nodes are not compatible, whether or not they can take a pod."""
        for prospect in self._results(required) if self.pools else ():
            if prospect.level is Level.INCOMPATIBLE:
                yield prospect.pool

    def unfit(self, required: tuple[RuleRequirement, ...]) -> int:
        """Return the pools, as a bit set, whose nodes are not compatible, or may not be."""
        prospects = enumerate(self._results(required) if self.pools else ())
        return sum(1 << at for at, prospect in prospects if prospect.level > Level.UNSTABLE)

    def having(self, term: Term) -> int:
        """Return the pools, as a bit set, whose nodes have the labels of a term when they are created."""
        return admitted(self._nodes, (term,))

    def _evaluate(self, required: tuple[RuleRequirement, ...]) -> tuple[ProspectResult, ...]:
        results = []
        for pool in self.pools:
            gpu = pool.capabilities
            checks = [
                check_on_node(requirement.rule.sharing, requirement.requirements, gpu)
                for requirement in required
            ]
            worst = max(map(level_of, checks))
            pairs = tuple(zip(required, checks, strict=True))
            results.append(ProspectResult(pool, NodeClassResult(gpu, 0, worst, pairs)))
        return tuple(results)

    def _selected(self, spec: Mapping[str, Any]) -> int:
        """Return the pools, as a bit set, whose nodes may have what the pod's own selectors ask for."""
        nodes = self._nodes.everything
        selector = spec.get("nodeSelector")
        for key, value in selector.items() if isinstance(selector, dict) else ():
            nodes &= self._nodes.labels.equal(key, value) | self._open(key)
        raw = required_terms(spec)
        if raw is None:
            return nodes
        admitted = 0
        for term in map(parse_term, raw if isinstance(raw, list | tuple) else ()):
            matched = nodes if term is not None else 0
            for expression in term or ():
                matched &= matched_by(self._nodes, expression) | self._open(expression.key)
            admitted |= matched
        return admitted

    def _open(self, key: str) -> int:
        """Return the pools, as a bit set, whose nodes have a label with a value that is not declared."""
        declared = self._nodes.labels.with_key(key)
        if key.startswith(_ON_ALL_NODES):
            return self._nodes.everything & ~declared
        return sum(bit for bit, prefixes in self._opened if key.startswith(prefixes)) & ~declared


def _is_short(required: Sequence[RuleRequirement]) -> bool:
    return sum(requirement.requirements.length for requirement in required) <= _LONGEST


NO_PROSPECTS: Final = Prospects()


def at_creation(pool: NodePool, without: Container[str] = ()) -> Term:
    """Return a term of the labels that nodes of a pool have when they are created. without: keys."""
    return tuple(
        MatchExpression(EXPRESSIONS, key, "In", (value,)) for key, value in pool.labels if key not in without
    )


def _node(name: str, pool: NodePool) -> dict[str, Any]:
    """Return a node as it is when it is created."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(pool.labels)},
        "status": {"allocatable": {resource: str(amount) for resource, amount in pool.resources or ()}},
    }
