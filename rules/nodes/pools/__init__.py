"""Node pools: the nodes that autoscalers may add, read from the objects that declare them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from rules.cuda.tables import BUILT_IN, Facts
from rules.kube.tolerations import tolerates
from rules.nodes.pools.cluster_api import read_node_group
from rules.nodes.pools.document import AUTOSCALER_STATUS, KARPENTER, DeclaredPools, NodePool, PoolDocument
from rules.nodes.pools.karpenter import read_node_pool
from rules.text.i18n import Message

__all__ = [
    "AUTOSCALER_STATUS",
    "KARPENTER",
    "POOL_KINDS",
    "NodePool",
    "PoolKind",
    "declared_pools",
    "read_pools",
]


class PoolKind(NamedTuple):
    """A kind of object that declares nodes."""

    group: str
    kind: str
    plural: str
    versions: tuple[str, ...]  # newest first
    # Such an object shows that new nodes may be added. A ResourceFlavor also describes the nodes of a cluster
    # without an autoscaler, and a MachineDeployment is scaled only if it has the annotations.
    autoscaler: bool


# Maximum node pools; a cluster has some dozens. Further ones are unknown.
MAX_POOLS: Final = 1024
# Maximum stored problems, for reports.
MAX_PROBLEMS: Final = 256
TOO_MANY: Final = "too many pools"
_NODE_GROUPS: Final = frozenset({"MachineDeployment", "MachinePool", "MachineSet"})
_CLUSTER_API: Final = ("v1beta2", "v1beta1")
POOL_KINDS: Final = (
    PoolKind("karpenter.sh", "NodePool", "nodepools", ("v1", "v1beta1"), autoscaler=True),
    PoolKind(
        "kueue.x-k8s.io", "ResourceFlavor", "resourceflavors", ("v1", "v1beta2", "v1beta1"), autoscaler=False
    ),
    PoolKind("cluster.x-k8s.io", "MachineDeployment", "machinedeployments", _CLUSTER_API, autoscaler=False),
    PoolKind("cluster.x-k8s.io", "MachinePool", "machinepools", _CLUSTER_API, autoscaler=False),
    PoolKind("cluster.x-k8s.io", "MachineSet", "machinesets", _CLUSTER_API, autoscaler=False),
)


def _read_resource_flavor(document: PoolDocument) -> list[NodePool]:
    """Return the node pool of a ResourceFlavor; none if it selects no nodes by their labels.

    A flavor also describes present nodes, and does not show whether nodes can be added; they may be, for
    example by a ProvisioningRequest. Kueue adds the tolerations of the flavor to the pods that it admits, so
    taints that these tolerate keep no pod away.
    Source: https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/
    """
    labels = document.labels("spec", "nodeLabels")
    if not labels and not document.problems:
        return []
    tolerations = [dict(toleration) for _, toleration in document.objects("spec", "tolerations")]
    taints = tuple(
        taint for taint in document.taints("spec", "nodeTaints") if not tolerates(tolerations, [taint])
    )
    return [document.pool(labels, taints, can_scale=not document.deleted)]


_READERS: Final[Mapping[tuple[str, str], Callable[[PoolDocument], list[NodePool]]]] = {
    ("karpenter.sh", "NodePool"): read_node_pool,
    ("kueue.x-k8s.io", "ResourceFlavor"): _read_resource_flavor,
    ("cluster.x-k8s.io", "MachineDeployment"): read_node_group,
    ("cluster.x-k8s.io", "MachinePool"): read_node_group,
    ("cluster.x-k8s.io", "MachineSet"): read_node_group,
}


def read_pools(document: Mapping[str, Any], facts: Facts = BUILT_IN) -> tuple[list[NodePool], list[Message]]:
    """Return the node pools of one object of POOL_KINDS, and a problem for each unreadable field.

    The fact of an unreadable field is unknown, so that it never leads to a denial. An object of another kind
    has no pools. Never raises.
    """
    version, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return [], []
    reader = _READERS.get((version.partition("/")[0], kind))
    if reader is None:
        return [], []
    read = PoolDocument(document, facts)
    return reader(read), read.problems


def declared_pools(
    objects: Mapping[str, Iterable[Mapping[str, Any]]],
    unreadable: Iterable[str] = (),
    facts: Facts = BUILT_IN,
) -> DeclaredPools:
    """Return the node pools of a cluster.

    objects: by kind; AUTOSCALER_STATUS by its name.
    unreadable: kinds of objects that may exist, but cannot be read.
    """
    pools: list[NodePool] = []
    problems: list[Message] = []
    for documents in objects.values():
        for document in documents:
            declared, unread = read_pools(document, facts)
            pools += declared
            problems += unread
    signs = set(unreadable)
    # Its node groups are those of Cluster API; without any, they are not declared in the cluster.
    runs = any(True for _ in objects.get(AUTOSCALER_STATUS.name, ()))
    if runs and not any(pool.kind in _NODE_GROUPS for pool in pools):
        signs.add(AUTOSCALER_STATUS.name)
    if len(pools) > MAX_POOLS:
        signs.add(TOO_MANY)
    return DeclaredPools(
        tuple(pools[:MAX_POOLS]), frozenset(objects), frozenset(signs), tuple(problems[:MAX_PROBLEMS])
    )
