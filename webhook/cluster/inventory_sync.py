"""Inventory sync: watches nodes, pools and devices, and keeps a handler's inventory up to date.

Only nodes are required. Any other kind is off where its CRD or the right to read it is missing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, NotRequired, TypedDict

from rules import Facts, Inventory
from rules.nodes.devices.state import CLAIM, DRA_KINDS, TEMPLATE, DraState
from rules.nodes.gpu_operator import CLUSTER_POLICY, read_operator, toolkit_daemon_set
from rules.nodes.label_families import lost_labels
from rules.nodes.label_index import ShardedDict
from rules.nodes.node_row import FORMER_LABELS
from rules.nodes.pools import declared_pools
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import ClusterApi
from webhook.cluster.device_sync import ClaimMap, DeviceSync, with_claims
from webhook.cluster.reflector import Applied, Change, Deleted, Listed, Reflector
from webhook.cluster.resource import NODES, Resource, declaring_resources

_log = logging.getLogger("gpugate.cluster")

# Seconds for which GPU labels still count after they vanished from their node. Partitioning a GPU with MIG
# takes minutes, for which GPU Feature Discovery removes them. A kubelet reports its node every five minutes.
REMEMBERED_S: Final = 600.0
_OF_OPERATOR: Final = (CLUSTER_POLICY, toolkit_daemon_set())


class _NodeMetadata(TypedDict):
    name: str
    uid: NotRequired[str]
    resourceVersion: str
    labels: NotRequired[dict[str, str]]


class _Taint(TypedDict):
    key: str
    effect: str
    value: NotRequired[str]


class _NodeSpec(TypedDict):
    unschedulable: NotRequired[bool]
    taints: NotRequired[list[_Taint]]


class _NodeCondition(TypedDict):
    type: str
    status: str


class _NodeInfo(TypedDict):
    osImage: NotRequired[str]
    kubeletVersion: NotRequired[str]
    containerRuntimeVersion: NotRequired[str]


class _NodeStatus(TypedDict):
    allocatable: NotRequired[dict[str, str]]
    capacity: NotRequired[dict[str, str]]
    nodeInfo: NotRequired[_NodeInfo]
    conditions: NotRequired[list[_NodeCondition]]


class Node(TypedDict):
    """The decoded part of a Node: a twentieth, which saves memory in a cluster of ten thousand nodes."""

    metadata: _NodeMetadata
    spec: NotRequired[_NodeSpec]
    status: NotRequired[_NodeStatus]


class InventorySync:
    """Watches nodes, declared pools and devices, and sets a handler's inventory.

    clock: a monotonic clock, in seconds. on_synced: called after each change.
    """

    def __init__(
        self, api: ClusterApi, handler: AdmissionHandler, clock: Callable[[], float] = monotonic
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._lock = threading.Lock()  # each kind is watched by its own thread
        self._inventory = handler.snapshot.inventory
        self._vanished: dict[str, tuple[float, dict[str, str]]] = {}  # by node: until when, labels
        self._uids: dict[str, str] = {}  # by node
        self._objects: dict[str, dict[str, Mapping[str, Any]]] = {}  # by kind and name
        self._unreadable: set[str] = set()
        self._claims: ClaimMap = ShardedDict()
        self._devices = DeviceSync(self._set_dra)
        declaring, dra = declaring_resources(), self._devices.resources()
        self._resources = {kind: resource.name for kind, resource in {**declaring, **dra}.items()}
        self._awaited = {"nodes", *self._resources.values()}
        self._watches: list[tuple[Reflector, Callable[[Change], None]]] = [
            (Reflector(api, Resource("nodes", NODES, shape=Node)), self.on_nodes),
            *(
                (
                    Reflector(api, resource, unavailable=partial(self.on_unavailable, kind)),
                    partial(self.on_declared, kind),
                )
                for kind, resource in declaring.items()
            ),
            *(
                (
                    Reflector(api, resource, unavailable=partial(self.on_unavailable, kind)),
                    partial(self.on_dra, kind),
                )
                for kind, resource in dra.items()
            ),
        ]
        self.on_synced: Callable[[], None] = lambda: None
        handler.on_facts = self.on_facts

    @property
    def awaited(self) -> Collection[str]:
        """The resources that were neither listed nor reported absent."""
        return sorted(self._awaited)

    def start(self) -> None:
        """Start the watches."""
        self._devices.start()
        for reflector, consume in self._watches:
            reflector.start(consume)

    def stop(self) -> None:
        """Stop the watches; the handler keeps its inventory."""
        for reflector, _ in self._watches:
            reflector.stop()
        self._devices.stop()

    def on_nodes(self, change: Change) -> None:
        """Apply a change of nodes; the inventory is replaced only if a relevant field changed."""
        with self._lock:
            before = self._inventory
            match change:
                case Listed(objects):
                    nodes = [self._with_vanished_labels(node) for node in objects]
                    present = {node["metadata"]["name"] for node in objects}
                    self._uids = {name: uid for name, uid in self._uids.items() if name in present}
                    self._vanished = {name: lost for name, lost in self._vanished.items() if name in present}
                    empty = Inventory().with_operator(before.operator).with_facts(before.facts)
                    after = empty.with_node(nodes).with_pools(before.node_pools).with_dra(before.dra)
                    self._set(after)
                case Applied(node):
                    self._set(before.with_node(self._with_vanished_labels(node)))
                case Deleted(node):
                    self._vanished.pop(node["metadata"]["name"], None)
                    self._uids.pop(node["metadata"]["name"], None)
                    self._set(before.without_node(node["metadata"]["name"]))
            self._awaited.discard("nodes")
        self.on_synced()

    def on_declared(self, kind: str, change: Change) -> None:
        """Apply a change of objects that declare nodes, or of GPU Operator's settings."""
        with self._lock:
            known = self._objects.get(kind, {})
            match change:
                case Listed(objects):
                    self._objects[kind] = {_key(document): {"kind": kind, **document} for document in objects}
                case Applied(document):
                    self._objects[kind] = known | {_key(document): {"kind": kind, **document}}
                case Deleted(document):
                    self._objects[kind] = {
                        key: value for key, value in known.items() if key != _key(document)
                    }
            self._unreadable.discard(kind)
            self._declare(kind)
        self.on_synced()

    def on_dra(self, kind: str, change: Change) -> None:
        """Apply a change of devices, device classes or claims."""
        self._change_dra(kind, change)
        if kind in self._unreadable or self._resources[kind] in self._awaited:
            with self._lock:
                self._unreadable.discard(kind)
                self._declare(kind)
        self.on_synced()

    def on_unavailable(self, kind: str, status: int) -> None:
        """Handle a kind that cannot be listed. Known objects stay if they may still exist.

        Without the right to read a kind, it is ignored. After another failure of the first request, there may
        be unknown nodes that can be added.
        """
        if status == HTTPStatus.NOT_FOUND and kind in DRA_KINDS:
            self._change_dra(kind, Listed([]))
        with self._lock:
            if status == HTTPStatus.NOT_FOUND:
                self._objects.pop(kind, None)
                self._unreadable.discard(kind)
            elif status == HTTPStatus.FORBIDDEN:
                self._unreadable.discard(kind)
            elif self._resources[kind] in self._awaited and kind not in _OF_OPERATOR:  # it adds no nodes
                self._unreadable.add(kind)
            self._declare(kind)
        self.on_synced()

    def _change_dra(self, kind: str, change: Change) -> None:
        if kind in (CLAIM, TEMPLATE):
            with self._lock:
                self._claims = with_claims(self._claims, kind, change)
                self._handler.set_claims(self._claims)
        else:
            self._devices.on_change(kind, change)

    def on_facts(self, facts: Facts) -> None:
        """Judge nodes, and read what declares others, by other facts."""
        with self._lock:
            self._set(self._declared(self._inventory.with_facts(facts)))

    def _declare(self, kind: str) -> None:
        self._set(self._declared(self._inventory))
        self._awaited.discard(self._resources[kind])

    def _declared(self, inventory: Inventory) -> Inventory:
        """Return an inventory with what objects declare, which its facts may tell more of."""
        objects = {name: by_name.values() for name, by_name in self._objects.items()}
        operator = read_operator(*(objects.pop(name, ()) for name in _OF_OPERATOR))
        declared = declared_pools(objects, self._unreadable, inventory.facts)
        return inventory.with_pools(declared).with_operator(operator)

    def _set_dra(self, state: DraState) -> None:
        with self._lock:
            self._set(self._inventory.with_dra(state))

    def _set(self, inventory: Inventory) -> None:
        if inventory is not self._inventory:
            self._inventory = inventory
            self._handler.set_inventory(inventory)

    def _with_vanished_labels(self, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a node with the labels that vanished minutes ago, unless it replaces another node."""
        metadata = node["metadata"]
        name, labels, uid = metadata["name"], metadata.get("labels") or {}, metadata.get("uid", "")
        replaced = self._uids.get(name, uid) != uid
        self._uids[name] = uid
        lost = {} if replaced else lost_labels(self._inventory.labels_of(name), labels)
        if not lost:
            self._vanished.pop(name, None)
            return node
        if name not in self._vanished:
            _log.info("node %s lost its label %s; the old value counts for now", name, next(iter(lost)))
        until, _ = self._vanished.setdefault(name, (self._clock() + REMEMBERED_S, lost))
        if until <= self._clock():
            del self._vanished[name]
            return node
        return {**node, FORMER_LABELS: lost}


def _key(document: Mapping[str, Any]) -> str:
    """Return the name of an object with its namespace, if it has one."""
    metadata = document["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
