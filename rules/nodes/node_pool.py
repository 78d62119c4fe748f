"""Nodes that an autoscaler may add."""

from __future__ import annotations

from typing import Final, NamedTuple

from rules.kube.tolerations import Taint
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message


class AutoscalerStatus(NamedTuple):
    """The object by which cluster-autoscaler reports its state.

    Source: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
    """

    kind: str
    namespace: str
    name: str


AUTOSCALER_STATUS: Final = AutoscalerStatus("ConfigMap", "kube-system", "cluster-autoscaler-status")
KARPENTER: Final = "NodePool"


class NodePool(NamedTuple):
    """One kind of node that an autoscaler may add; what is not declared is unknown.

    name: as users know it. kind: of the object that declares it. labels: those of a node when it is created,
    which the autoscaler knows. resources: offered extended resources with their amounts; None if unknown,
    so that it may offer any. capabilities: of its GPUs and its driver. can_scale: whether a node can be added
    now. open: beginnings of the keys of labels that a node has with a value that is not declared.
    """

    name: str
    kind: str
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    resources: tuple[tuple[str, int], ...] | None = None
    capabilities: NodeCapabilities = NodeCapabilities()
    can_scale: bool = True
    open: tuple[str, ...] = ()


# Kueue's ResourceFlavor also describes the nodes of a cluster without an autoscaler.
_FLAVOR: Final = "ResourceFlavor"


class DeclaredPools(NamedTuple):
    """What a cluster declares of the nodes that autoscalers may add.

    listed: the kinds of objects of which `pools` has all. signs: autoscalers whose nodes are not declared in
    the cluster, such as cluster-autoscaler. problems: what could not be read in the objects.
    """

    pools: tuple[NodePool, ...] = ()
    listed: frozenset[str] = frozenset()
    signs: frozenset[str] = frozenset()
    problems: tuple[Message, ...] = ()

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
