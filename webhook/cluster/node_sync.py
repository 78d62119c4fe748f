"""Node sync: watches the nodes of a cluster and keeps a handler's inventory up to date."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NotRequired, TypedDict

from rules import Inventory
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import NODES, ClusterApi
from webhook.cluster.reflector import Applied, Change, Deleted, Listed, Reflector, Resource


class _NodeMetadata(TypedDict):
    name: str
    resourceVersion: str
    labels: NotRequired[dict[str, str]]


class _NodeSpec(TypedDict):
    unschedulable: NotRequired[bool]


class _NodeCondition(TypedDict):
    type: str
    status: str


class _NodeStatus(TypedDict):
    allocatable: NotRequired[dict[str, str]]
    capacity: NotRequired[dict[str, str]]
    conditions: NotRequired[list[_NodeCondition]]


class Node(TypedDict):
    """The decoded part of a Node: a twentieth of it, which matters in a cluster of ten thousand nodes."""

    metadata: _NodeMetadata
    spec: NotRequired[_NodeSpec]
    status: NotRequired[_NodeStatus]


class NodeSync:
    """Watches nodes and sets a handler's inventory. on_synced: called after each change."""

    def __init__(self, api: ClusterApi, handler: AdmissionHandler) -> None:
        self._handler = handler
        self._inventory = handler.snapshot.inventory
        self._reflector = Reflector(api, Resource("nodes", NODES, shape=Node))
        self._synced = False
        self.on_synced: Callable[[], None] = lambda: None

    @property
    def awaited(self) -> Collection[str]:
        """`nodes` until they were listed once."""
        return () if self._synced else ("nodes",)

    def start(self) -> None:
        """Start the watch."""
        self._reflector.start(self.on_change)

    def stop(self) -> None:
        """Stop the watch; the handler keeps its inventory."""
        self._reflector.stop()

    def on_change(self, change: Change) -> None:
        """Apply a change of nodes; the inventory is replaced only if a relevant field changed."""
        before = self._inventory
        match change:
            case Listed(objects):
                self._inventory = Inventory.of(objects)
            case Applied(node):
                self._inventory = before.with_node(node)
            case Deleted(node):
                self._inventory = before.without_node(node["metadata"]["name"])
        if self._inventory is not before:
            self._handler.set_inventory(self._inventory)
        self._synced = True
        self.on_synced()
