"""Nodes that an autoscaler may add."""

from __future__ import annotations

from typing import NamedTuple

from rules.kube.tolerations import Taint
from rules.nodes.node_capabilities import NodeCapabilities


class NodePool(NamedTuple):
    """One kind of node that an autoscaler may add; what is not declared is unknown.

    name: as users know it. kind: of the object that declares it. labels: those of a node when it is created,
    which the autoscaler knows. resources: offered extended resources with their amounts; None if unknown,
    so that it may offer any. capabilities: of its GPUs and its driver. can_scale: whether a node can be added
    now.
    """

    name: str
    kind: str
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    resources: tuple[tuple[str, int], ...] | None = None
    capabilities: NodeCapabilities = NodeCapabilities()
    can_scale: bool = True
