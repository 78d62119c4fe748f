"""Reference implementation of the verdict on a pod: each node and each pool by itself, by the table.

Only the question whether the facts of one node suit a container is the product's (`check_on_node`). Which
entries are candidates, what they mean together, and where affinity may lead, is done again in plain loops.
The table: docs/compatibility-semantics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from rules.compatibility.checks import check_on_node
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader
from rules.nodes.pools.document import NodePool
from tests.support import reference_selector as selector

GPU = "nvidia.com/gpu"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
KARPENTER_LABEL = "karpenter.sh/nodepool"
GPU_LABELS = ("nvidia.com/gpu.product", "gpugate.dev/gpu.product", "nvidia.com/gpu.present")
PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")
# Beginnings of labels that a new node has, whether its pool declares them or not.
ON_ALL_NODES = ("kubernetes.io/", "node.kubernetes.io/", "topology.kubernetes.io/")

Node = selector.Node
Needs = Sequence[tuple[SharingPolicy, GpuRequirements]]


class Cluster(NamedTuple):
    """The entries of an inventory. signs: of autoscalers whose nodes are not declared.

    listed: whether all NodePools of Karpenter are among the pools.
    """

    nodes: list[Node]
    pools: Sequence[NodePool] = ()
    signs: bool = False
    listed: bool = False

    @property
    def undeclared(self) -> bool:
        """Whether nodes of which nothing is known may come."""
        return self.signs or (self._labelled and not self.listed)

    @property
    def autoscaled(self) -> bool:
        """Whether nodes may come. A ResourceFlavor also describes clusters to which none come."""
        scalable = any(pool.can_scale and pool.kind != "ResourceFlavor" for pool in self.pools)
        return self.signs or self._labelled or scalable

    @property
    def _labelled(self) -> bool:
        return any(KARPENTER_LABEL in selector.labels_of(node) for node in self.nodes)


class Entries(NamedTuple):
    """The candidates of a pod, each with its level. tolerated: those of the ready nodes.

    tainted: pools that would be candidates if the pod tolerated their taints.
    """

    ready: list[tuple[Node, Level]]
    tolerated: list[tuple[Node, Level]]
    away: list[tuple[Node, Level]]
    pools: list[tuple[NodePool, Level]]
    tainted: list[tuple[NodePool, Level]]


class Verdict(NamedTuple):
    """What the table says.

    warned: whether there is a warning. free: nothing is injected. bringing: the pools whose labels at
    creation are the whole affinity. Else it admits `admitted` of the ready nodes that are judged, `among`;
    elsewhere: these are not matched by the pod's own selectors, which match no node.
    """

    allowed: bool
    warned: bool = False
    free: bool = False
    bringing: tuple[NodePool, ...] = ()
    among: tuple[Node, ...] = ()
    admitted: frozenset[str] = frozenset()
    elsewhere: bool = False


def name_of(node: Node) -> str:
    """Return the name of a node."""
    return str(node["metadata"]["name"])


def state_of(node: Node) -> str:
    """Return `ready`, `away` for a node whose GPUs may come back, or `none` for one without GPUs."""
    status, spec = node["status"], node.get("spec", {})
    ready = all(
        condition["status"] == "True"
        for condition in status.get("conditions", [])
        if condition["type"] == "Ready"
    )
    healthy = ready and spec.get("unschedulable") is not True
    offered = status.get("allocatable", {}).get(GPU, "0") != "0"
    had = status.get("capacity", {}).get(GPU, "0") != "0"
    if offered and healthy:
        return "ready"
    labelled = any(key in selector.labels_of(node) for key in GPU_LABELS)
    return "away" if offered or had or labelled else "none"


def gpus_of(spec: Any) -> int:
    """Return how many GPUs the regular containers of a pod request together."""
    return sum(int(container["resources"]["limits"].get(GPU, "0")) for container in spec["containers"])


def gpus_now(node: Node) -> int:
    """Return how many GPUs a node offers now."""
    return int(node["status"].get("allocatable", {}).get(GPU, "0")) if state_of(node) == "ready" else 0


def gpus_later(node: Node) -> int | None:
    """Return how many GPUs a node may offer when all is well; None if that is unknown."""
    amounts = [int(node["status"].get(key, {}).get(GPU, "0")) for key in ("allocatable", "capacity")]
    return max(amounts) or (None if state_of(node) == "away" else 0)


def may_have(node: Node, requested_gpus: int) -> bool:
    """Return whether a node may offer so many GPUs when all is well."""
    gpus_of_node = gpus_later(node)
    return gpus_of_node is None or gpus_of_node >= requested_gpus


def excess(cluster: Cluster, spec: Any) -> str:
    """Return whether a pod requests more GPUs than any node has: `certain`, `possible` or nothing."""
    requested_gpus = gpus_of(spec)
    scalable = [pool for pool in cluster.pools if pool.can_scale]
    known = [dict(pool.resources).get(GPU, 0) for pool in scalable if pool.resources is not None]
    numbers = [
        gpus_of_node for node in cluster.nodes if (gpus_of_node := gpus_later(node)) is not None
    ] + known
    if (
        not any(numbers)
        or max(numbers) >= requested_gpus
        or any(gpus_later(node) is None for node in cluster.nodes)
    ):
        return ""
    return "possible" if cluster.undeclared or len(known) < len(scalable) else "certain"


def facts_of(node: Node) -> NodeCapabilities:
    """Return what the labels of a node report."""
    return NodeReader(name_of(node), selector.labels_of(node)).capabilities(LabelNames())


def level(needs: Needs, facts: NodeCapabilities) -> Level:
    """Return the worst level of all containers."""
    return max(level_of(check_on_node(policy, requirements, facts)) for policy, requirements in needs)


def warns(needs: Needs, facts: NodeCapabilities) -> bool:
    """Return whether a pod is warned of a node that is unknown, or unstable and not only less preferred."""
    results = [one for policy, requirements in needs for one in check_on_node(policy, requirements, facts)]
    worst = level_of(results)
    return worst > Level.COMPATIBLE and any(one.level is worst and one.warns for one in results)


def level_when_back(needs: Needs, facts: NodeCapabilities) -> Level:
    """Return the level of a node whose driver may be another one when it is ready again."""
    return level(needs, replace(facts, cuda=None, driver=None, device_mode=None, mig_devices=False))


def tolerates(spec: Any, taints: Iterable[tuple[str, str, str]]) -> bool:
    """Return whether a pod tolerates taints (key, value, effect)."""
    for key, value, effect in taints:
        if effect == "PreferNoSchedule":
            continue
        for toleration in spec.get("tolerations", []):
            same_key = toleration.get("key") == key or (
                not toleration.get("key") and toleration.get("operator") == "Exists"
            )
            same_value = toleration.get("operator") == "Exists" or toleration.get("value", "") == value
            if same_key and same_value and toleration.get("effect", effect) == effect:
                break
        else:
            return False
    return True


def taints_of(node: Node) -> list[tuple[str, str, str]]:
    """Return the taints of a node that last."""
    taints = node.get("spec", {}).get("taints", [])
    return [
        (taint["key"], taint.get("value", ""), taint["effect"])
        for taint in taints
        if not taint["key"].startswith(PASSING_TAINTS)
    ]


def has_value(pool: NodePool, key: str) -> bool:
    """Return whether new nodes of a pool have a label of which only the value is unknown."""
    declared = key in dict(pool.labels)
    return not declared and (
        key.startswith(ON_ALL_NODES) or any(key.startswith(prefix) for prefix in pool.open)
    )


def may_go_to_pool(pool: NodePool, spec: Any) -> bool:
    """Return whether the pod's own selectors may match a new node of a pool."""
    node = new_node(pool)
    for key, value in spec.get("nodeSelector", {}).items():
        if not has_value(pool, key) and dict(pool.labels).get(key) != value:
            return False
    terms = selector_terms(spec)
    if terms is None:
        return True
    for term in terms:
        expressions = term.get("matchExpressions", [])
        closed = [expression for expression in expressions if not has_value(pool, expression["key"])]
        if expressions and (not closed or selector.term_matches(node, {"matchExpressions": closed})):
            return True
    return False


def new_node(pool: NodePool) -> Node:
    """Return a node of a pool with no more labels than the pool declares."""
    return {"kind": "Node", "metadata": {"name": "new", "labels": dict(pool.labels)}, "status": {}}


def selector_terms(spec: Any) -> Any:
    """Return the required terms of node affinity; None if there are none."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = spec.get("affinity", {}).get("nodeAffinity", {}).get(required)
    return None if affinity is None else affinity["nodeSelectorTerms"]


def entries(cluster: Cluster, spec: Any, needs: Needs, *, counted: bool = True) -> Entries:
    """Return the candidates of a pod. counted: those that have as many GPUs as it requests."""
    bound = bool(spec.get("nodeName"))
    requested_gpus = gpus_of(spec) if counted and not bound else 1
    selected = [node for node in cluster.nodes if selector.may_go(node, spec)]
    here = [
        node
        for node in selected
        if gpus_now(node) >= requested_gpus or (bound and state_of(node) in ("ready", "away"))
    ]
    ready = [(node, level(needs, facts_of(node))) for node in here]
    away = [
        node
        for node in selected
        if not bound
        and node not in here
        and (state_of(node) == "away" or requested_gpus > 1)
        and may_have(node, requested_gpus)
    ]
    offering = [
        pool
        for pool in cluster.pools
        if pool.can_scale and (pool.resources is None or dict(pool.resources).get(GPU, 0) >= requested_gpus)
    ]
    selectable = [pool for pool in offering if not bound and may_go_to_pool(pool, spec)]
    taking = [pool for pool in selectable if tolerates(spec, pool.taints)]
    tainted = [pool for pool in selectable if not tolerates(spec, pool.taints)]
    return Entries(
        ready,
        [(node, node_level) for node, node_level in ready if bound or tolerates(spec, taints_of(node))],
        [(node, level_when_back(needs, facts_of(node))) for node in away],
        [(pool, level(needs, pool.capabilities)) for pool in taking],
        [(pool, level(needs, pool.capabilities)) for pool in tainted],
    )


def verdict(cluster: Cluster, spec: Any, needs: Needs) -> Verdict:
    """Return what the table says of a pod under one rule that denies.

    A bound pod gets no affinity, and no autoscaler moves it.
    """
    bound = bool(spec.get("nodeName"))
    too_many = excess(cluster, spec)
    if too_many == "certain":
        return Verdict(False)
    candidates = entries(cluster, spec, needs, counted=not too_many)
    result = _verdict(cluster, candidates, needs, bound=bound)
    if not (candidates.ready or candidates.away or candidates.pools or cluster.autoscaled):
        result = _elsewhere(cluster, result, 1 if too_many else gpus_of(spec), needs)
    result = result._replace(warned=result.warned or bool(too_many and result.allowed))
    return result._replace(free=True) if bound else result


def _elsewhere(cluster: Cluster, by_candidates: Verdict, requested_gpus: int, needs: Needs) -> Verdict:
    """Return the verdict with the affinity that the other nodes give to a pod that selects none."""
    others = [
        (node, level(needs, facts_of(node))) for node in cluster.nodes if gpus_now(node) >= requested_gpus
    ]
    if not any(may_fit(node_level) for _, node_level in others):
        return by_candidates
    admitted = _on_ready(cluster, Entries([], [], [], [], []), others, needs, warned=False)
    return admitted._replace(warned=by_candidates.warned, elsewhere=True)


def _verdict(cluster: Cluster, candidates: Entries, needs: Needs, *, bound: bool) -> Verdict:
    fitting = tuple(pool for pool, pool_level in candidates.pools if fits(pool_level))
    usable = any(may_fit(node_level) for _, node_level in candidates.tolerated)
    nodes = candidates.tolerated if usable else candidates.ready
    if any(may_fit(node_level) for _, node_level in nodes) and (usable or not fitting):
        return _on_ready(cluster, candidates, nodes, needs, warned=not usable)
    if fitting:
        return _bringing(candidates, fitting, warned=False)
    return _if_none_fits(cluster, candidates, undeclared=cluster.undeclared and not bound)


def _if_none_fits(cluster: Cluster, candidates: Entries, *, undeclared: bool) -> Verdict:
    """Return the verdict if no ready node may be compatible, and no pool is for certain."""
    may_return = any(may_fit(node_level) for _, node_level in candidates.away)
    unknown = tuple(pool for pool, pool_level in candidates.pools if may_fit(pool_level))
    judged = bool(candidates.ready or (candidates.pools and not candidates.away))
    if unknown and judged and not (may_return or undeclared):
        return _bringing(candidates, unknown, warned=True)
    tainted = any(may_fit(node_level) for _, node_level in candidates.tainted)
    if judged and not (unknown or may_return or tainted or undeclared):
        return Verdict(False)
    # If no entry is a candidate, or only nodes that are not ready, there is never a reason to deny.
    known = bool(cluster.nodes) or any(pool.can_scale for pool in cluster.pools)
    return Verdict(True, warned=known, free=True)


def _bringing(candidates: Entries, pools: tuple[NodePool, ...], *, warned: bool) -> Verdict:
    """Return the verdict if a node of one of these pools has to come.

    Nothing is injected if each pool is one of them and no ready node could take the pod, or if none has
    labels. For pools that only may fit, the ready nodes make no difference.
    """
    all_pools = len(pools) == len(candidates.pools) and (warned or not candidates.ready)
    labelled = tuple(pool for pool in pools if pool.labels)
    if all_pools or not labelled:
        return Verdict(True, warned, free=True)
    return Verdict(True, warned, bringing=labelled, among=tuple(node for node, _ in candidates.ready))


def _on_ready(
    cluster: Cluster, candidates: Entries, nodes: list[tuple[Node, Level]], needs: Needs, *, warned: bool
) -> Verdict:
    """Return the verdict if one of these ready nodes is compatible, or may be."""
    levels = [node_level for _, node_level in nodes]
    best = min(levels)
    warned = warned or any(warns(needs, facts_of(node)) for node, node_level in nodes if node_level is best)
    others = [level(needs, facts_of(node)) for node, _ in candidates.away] + [
        pool_level for _, pool_level in candidates.pools
    ]
    all_fit = all(map(fits, [*levels, *others]))
    unknown = best is Level.UNKNOWN
    if cluster.autoscaled and (all_fit or unknown):
        return Verdict(True, warned, free=True)
    ways = types_that_fit(cluster, needs) or ways_in(cluster, candidates.pools, needs)
    if (
        cluster.autoscaled
        and not ways
        and any(pool_level is Level.UNKNOWN for _, pool_level in candidates.pools)
    ):
        warned = True  # of pools that may fit, and have incompatible nodes now
    worst = Level.UNKNOWN if unknown else Level.UNSTABLE
    admitted = frozenset(name_of(node) for node, node_level in nodes if node_level <= worst)
    return Verdict(True, warned, among=tuple(node for node, _ in nodes), admitted=admitted)


def fits(compatibility: Level) -> bool:
    """Return whether a node of this level runs the pod."""
    return compatibility <= Level.UNSTABLE


def may_fit(compatibility: Level) -> bool:
    """Return whether a node of this level may run the pod."""
    return compatibility is not Level.INCOMPATIBLE


def nodes_now(cluster: Cluster, pool: NodePool) -> list[Node]:
    """Return the present nodes of a pool: those with its labels, whatever they say of GPU and driver."""
    own = {(key, value) for key, value in pool.labels if not key.startswith("nvidia.com/")}
    return [node for node in cluster.nodes if own and own <= set(selector.labels_of(node).items())]


def is_contradicted(cluster: Cluster, pool: NodePool, needs: Needs) -> bool:
    """Return whether a present node of a pool is not compatible."""
    return not all(may_fit(level(needs, facts_of(node))) for node in nodes_now(cluster, pool))


def ways_in(cluster: Cluster, pools: Iterable[tuple[NodePool, Level]], needs: Needs) -> list[NodePool]:
    """Return the pools that affinity leaves open after a node fits: those that fit, or else may."""
    unknown = [pool for pool, pool_level in pools if pool_level is Level.UNKNOWN]
    open_pools = [pool for pool in unknown if not is_contradicted(cluster, pool, needs)]
    return [pool for pool, pool_level in pools if fits(pool_level)] or open_pools


def types_that_fit(cluster: Cluster, needs: Needs) -> frozenset[str]:
    """Return the instance types of which some present node fits, and no node or pool does not.

    A node whose pool is a way in by itself makes no type one.
    """
    own_way = [
        node
        for pool in cluster.pools
        if pool.can_scale
        and may_fit(level(needs, pool.capabilities))
        and not is_contradicted(cluster, pool, needs)
        for node in nodes_now(cluster, pool)
    ]
    levels: dict[str, list[Level]] = {}
    fitting = set()
    for node in cluster.nodes:
        if (name := selector.labels_of(node).get(INSTANCE_TYPE)) is not None:
            found_level = level(needs, facts_of(node))
            levels.setdefault(name, []).append(found_level)
            if fits(found_level) and node not in own_way:
                fitting.add(name)
    unfit = {
        dict(pool.labels).get(INSTANCE_TYPE)
        for pool in cluster.pools
        if pool.can_scale and not may_fit(level(needs, pool.capabilities))
    }
    return frozenset(
        name
        for name, levels_of_type in levels.items()
        if name in fitting and all(map(may_fit, levels_of_type)) and name not in unfit
    )


def is_of_pools(pools: Iterable[NodePool], node: Node) -> bool:
    """Return whether a node has all labels that a new node of one of the pools has."""
    labels = selector.labels_of(node).items()
    return any(pool.labels and set(pool.labels) <= set(labels) for pool in pools)


def is_of_last_terms(cluster: Cluster, spec: Any, needs: Needs, node: Node) -> bool:
    """Return whether a node has the labels by which affinity lets new nodes in: of pools, or of types."""
    candidates = entries(cluster, spec, needs, counted=not excess(cluster, spec))
    if is_of_pools(ways_in(cluster, candidates.pools, needs), node):
        return True
    by_type = cluster.autoscaled and selector.labels_of(node).get(INSTANCE_TYPE, "")
    return by_type in types_that_fit(cluster, needs)
