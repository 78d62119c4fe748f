"""Nodes that an autoscaler may add."""

from __future__ import annotations

from typing import Final, NamedTuple

from rules.kube.tolerations import Taint
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message


class AutoscalerStatus(NamedTuple):
    """The object in which cluster-autoscaler reports its state.

    Source: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
    """

    kind: str
    namespace: str
    name: str


AUTOSCALER_STATUS: Final = AutoscalerStatus("ConfigMap", "kube-system", "cluster-autoscaler-status")
KARPENTER: Final = "NodePool"


class NodePool(NamedTuple):
    """One kind of node that an autoscaler may add; undeclared facts are unknown."""

    name: str  # as users know it
    kind: str  # of the object that declares it
    labels: tuple[tuple[str, str], ...] = ()  # of a new node, which the autoscaler knows
    taints: tuple[Taint, ...] = ()
    resources: tuple[tuple[str, int], ...] | None = None  # extended resources with amounts; None: unknown
    capabilities: NodeCapabilities = NodeCapabilities()
    can_scale: bool = True  # a node can be added now
    open: tuple[str, ...] = ()  # prefixes of labels with undeclared values


# Kueue's ResourceFlavor also describes the nodes of a cluster without an autoscaler.
_FLAVOR: Final = "ResourceFlavor"


class DeclaredPools(NamedTuple):
    """The node pools that a cluster declares."""

    pools: tuple[NodePool, ...] = ()
    listed: frozenset[str] = frozenset()  # kinds whose objects are all in `pools`
    signs: frozenset[str] = frozenset()  # autoscalers with undeclared nodes, such as cluster-autoscaler
    problems: tuple[Message, ...] = ()  # of unreadable fields

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler may add nodes."""
        return bool(self.signs or any(pool.can_scale and pool.kind != _FLAVOR for pool in self.pools))

    @property
    def lists_karpenter(self) -> bool:
        """Whether all of Karpenter's NodePools are known."""
        return KARPENTER in self.listed

    @property
    def lists_autoscaler_status(self) -> bool:
        """Whether it is known whether cluster-autoscaler runs."""
        return AUTOSCALER_STATUS.name in self.listed
