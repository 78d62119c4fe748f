"""The nodes of a cluster, their classes, and sets of them.

Sets of nodes are bit sets, as in `label_index`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from rules.cuda.tables import BUILT_IN, Facts
from rules.kube.names import parse_int64
from rules.kube.tolerations import Taint, tolerates
from rules.nodes.cloud_labels import cloud_capabilities, driver_labels, kind_labels
from rules.nodes.devices.devices import facts_of
from rules.nodes.devices.state import NO_DRA, DraState
from rules.nodes.gpu_operator import (
    GpuOperator,
    managed_label,
    runtime_on,
)
from rules.nodes.label_families import (
    LabelFamily,
    LabelNames,
    autoscaler_labels,
    gpu_count_label,
    pool_labels,
)
from rules.nodes.label_index import Fact, LabelIndex, ShardedDict, positions
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader, Problem
from rules.nodes.node_devices import NodeDevices, devices_by_node
from rules.nodes.node_row import (
    ANY,
    IndexedNode,
    NodeState,
    objects_of,
    read_node,
    recovering_resources,
)
from rules.nodes.pools.document import DeclaredPools
from rules.nodes.runtime_modes import UNKNOWN_RUNTIME

# Keys of facts that are indexed together with labels; no label can have such a key.
# The resources that a node offers now.
_RESOURCES: Final = "//resources"
# The resources that a node may offer again: it is not ready or cordoned, or its device plugin is being
# replaced, as in an upgrade of the driver. ANY: the resources are unknown.
_RECOVERING: Final = "//recovering"
# The amounts of a resource now, and after recovery: a key for each resource that stands for GPUs. Amounts of
# other resources, and of devices of DRA, are unknown.
_AMOUNT: Final = "//amount/"
_LATER: Final = "//later/"
# The node takes no pods now.
_NOT_READY: Final = "//not-ready"
# The facts that GPUs report as devices of DRA; absent without such GPUs.
_DEVICES: Final = "//devices"
# The container runtime, unless labels of the node agent report it; absent if unknown.
_RUNTIME: Final = "//runtime"
# The labels of the driver are from some minutes ago.
_FORMER_DRIVER: Final = "//former-driver"
# The facts besides labels that the capabilities of a node depend on.
_CAPABILITIES: Final = (_DEVICES, _RUNTIME, _FORMER_DRIVER)
# The state of a node; not indexed, but shared by nodes that are read together.
_STATE: Final = "//state"
_NO_DEVICES: Final = NodeDevices()
# The taints that keep pods away; absent without any.
_TAINTS: Final = "//taints"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
_DEFAULT: Final = LabelNames()


class NodeClass(Struct, frozen=True):
    """Nodes with the same capabilities."""

    capabilities: NodeCapabilities
    members: int  # as a bit set


class Inventory:
    """The nodes of a cluster, immutable; a change returns a new inventory that shares the unchanged parts.

    Empty at first; `inventory_document.inventory_of` makes an inventory of a document. The meaning of labels
    is a parameter of queries (LabelNames), because rules change independently of nodes.

    everything: the set of all nodes.
    labels: the index of their labels.
    node_pools: the nodes that an autoscaler may add.
    dra: devices and claims.
    operator: the settings of GPU Operator.
    source: the files of the nodes, for messages; empty: a cluster.
    presets: names such as `t4` or `t4@550` that stand for nodes, with any number of GPUs.
    """

    __slots__ = (
        "_classes",
        "_devices",
        "_positions",
        "_rows",
        "dra",
        "everything",
        "facts",
        "labels",
        "node_pools",
        "operator",
        "presets",
        "source",
    )

    def __init__(self) -> None:
        self._classes: dict[LabelNames, tuple[NodeClass, ...]] = {}
        self._rows: ShardedDict[int, IndexedNode] = ShardedDict()  # by position
        self._positions: ShardedDict[str, int] = ShardedDict()  # by node name
        self.labels = LabelIndex()
        self.everything = 0
        self.node_pools = DeclaredPools()
        self.dra = NO_DRA
        self.operator = GpuOperator()
        self.facts = BUILT_IN
        self.source = ""
        self.presets: tuple[str, ...] = ()
        self._devices: Mapping[str, NodeDevices] = {}  # by node

    def with_node(self, document: object) -> Inventory:
        """Return an inventory with a Node added or replaced; this inventory if nothing changes.

        document: a Node, or a List or list of them; several at once take less time. Raises InventoryError.
        """
        return self.with_nodes(objects_of(document, "document"))

    def with_nodes(self, nodes: Iterable[tuple[Mapping[str, Any], str]]) -> Inventory:
        """Return an inventory with Nodes added or replaced, each with its path in a document."""
        pool: dict[Fact, Fact] = {}
        rows = {row.name: row for row in (self._row(*node, pool) for node in nodes)}
        return self._replace({name: row for name, row in rows.items() if row != self._row_of(name)})

    def without_node(self, name: str) -> Inventory:
        """Return an inventory without the node of this name."""
        return self._replace({name: None} if self._row_of(name) else {})

    def with_dra(self, dra: DraState) -> Inventory:
        """Return an inventory with these devices and claims; this one if nothing changes.

        Devices of absent nodes are used when the nodes are added.
        """
        if dra is self.dra:
            return self
        after: Inventory = copy(self)
        after.dra = dra
        if (dra.devices, dra.classes) == (self.dra.devices, self.dra.classes):
            return after
        before, devices = self._devices, devices_by_node(dra.devices, dra.classes)
        after._devices = devices
        pool: dict[Fact, Fact] = {}
        changed = (name for name in {*devices, *before} if devices.get(name) != before.get(name))
        rows = ((name, row) for name in changed if (row := self._row_of(name)))
        return after._replace({name: after._indexed(row, pool) for name, row in rows})

    def with_pools(self, pools: DeclaredPools) -> Inventory:
        """Return an inventory in which an autoscaler may add these nodes; this one if nothing changes."""
        if pools == self.node_pools:
            return self
        after = copy(self)
        after.node_pools = pools
        return after

    def with_operator(self, settings: GpuOperator) -> Inventory:
        """Return an inventory with these settings of GPU Operator; this one if nothing changes.

        Linear in the nodes that GPU Operator manages.
        """
        if settings == self.operator:
            return self
        after: Inventory = copy(self)
        after.operator = settings
        after._classes = {}  # reading them anew is faster than moving so many nodes
        pool: dict[Fact, Fact] = {}
        rows = filter(None, map(self._row_of, self.names(self.labels.with_key(managed_label()))))
        return after._replace({row.name: after._indexed(row, pool) for row in rows})

    def with_facts(self, facts: Facts) -> Inventory:
        """Return an inventory whose nodes are judged by these facts; this one if nothing changes.

        Its classes are read anew, as labels of clouds may report another GPU. Declared pools keep the facts
        that they were read with.
        """
        if facts is self.facts:
            return self
        after: Inventory = copy(self)
        after.facts = facts
        after._classes = {}
        return after

    def from_files(self, source: str, presets: tuple[str, ...] = ()) -> Inventory:
        """Return the inventory with the names of the files of its nodes, and with its presets."""
        after: Inventory = copy(self)
        after.source, after.presets = source, presets
        return after

    def __len__(self) -> int:
        return self.everything.bit_count()

    def problems(self, labels: LabelNames = _DEFAULT) -> tuple[Problem, ...]:
        """Return the labels and quantities that are invalid. Iterates over the nodes: not for decisions."""
        problems: list[Problem] = []
        for _, row in sorted(self._rows.items()):
            reader = NodeReader(row.name, row.labels)
            reader.capabilities(labels)
            problems += (*row.problems, *reader.problems)
        return tuple(problems)

    def names(self, nodes: int) -> list[str]:
        """Return the names of a set of nodes. Iterates over the set: for reports, not for decisions."""
        return [row.name for position in positions(nodes) if (row := self._rows.get(position))]

    def labels_of(self, name: str) -> Mapping[str, str]:
        """Return the labels of the node with this name; none if there is no such node."""
        row = self._row_of(name)
        return row.labels if row else {}

    def named(self, name: str) -> int:
        """Return the set of the node with this name; empty if there is none."""
        position = self._positions.get(name)
        return 0 if position is None else 1 << position

    def nodes_offering(self, resource: str, amount: int = 1) -> int:
        """Return the ready nodes that have an amount of a resource allocatable, or an unknown one."""
        nodes = self._nodes_with(_RESOURCES, resource)
        if amount > 1:
            nodes &= ~self.labels.with_key(_AMOUNT + resource)
            nodes |= self.labels.above(_AMOUNT + resource, amount - 1)
        return nodes

    def nodes_recovering(self, resource: str, amount: int = 1) -> int:
        """Return the nodes that do not offer an amount of a resource now, but may offer it again."""
        nodes = self._nodes_with(_RECOVERING, resource) | self._nodes_with(_RECOVERING, ANY)
        if amount > 1:
            nodes &= ~self.labels.with_key(_LATER + resource)
            nodes |= self.labels.above(_LATER + resource, amount - 1)
        return nodes

    def largest_amount(self, resource: str) -> int:
        """Return the largest amount of a resource on a node, now or after recovery; 0 if unknown."""
        return max(self.labels.largest(_AMOUNT + resource), self.labels.largest(_LATER + resource))

    def most_gpus(self, nodes: int) -> int | None:
        """Return how many GPUs one of these nodes has at most, by its label; None if one lacks the label."""
        most, counted = 0, 0
        for value, members in self.labels.values(gpu_count_label()):
            if members & nodes:
                most, counted = max(most, parse_int64(str(value)) or 0), counted | members
        return most if nodes & ~counted == 0 else None

    @property
    def ready(self) -> int:
        """The nodes that take pods now."""
        return self.everything & ~self.labels.with_key(_NOT_READY)

    @property
    def reporting_devices(self) -> int:
        """The nodes whose GPUs report facts as devices of DRA."""
        return self.labels.with_key(_DEVICES)

    @property
    def recovering(self) -> int:
        """The nodes that may offer a resource again after recovery."""
        return self.labels.with_key(_RECOVERING)

    def tolerated(self, tolerations: object) -> int:
        """Return the nodes whose taints a pod with these tolerations (as JSON) tolerates.

        The time is linear in the number of different sets of taints.
        """
        nodes = self.everything & ~self.labels.with_key(_TAINTS)
        for taints, members in self.labels.values(_TAINTS):
            if isinstance(taints, frozenset) and tolerates(tolerations, taints):
                nodes |= members
        return nodes

    def taints(self, nodes: int) -> list[Taint]:
        """Return the taints of a set of nodes, each once."""
        return sorted({taint for taints in self.taint_sets(nodes) for taint in taints})

    def taint_sets(self, nodes: int) -> list[frozenset[Taint]]:
        """Return the different sets of taints that a set of nodes has."""
        sets = (taints for taints, members in self.labels.values(_TAINTS) if members & nodes)
        return [taints for taints in sets if isinstance(taints, frozenset)]

    @property
    def former_drivers(self) -> int:
        """The nodes that lost their labels of the driver some minutes ago; these are still used."""
        return self.labels.with_key(_FORMER_DRIVER)

    @property
    def tainted(self) -> int:
        """The nodes with taints that keep pods away."""
        return self.labels.with_key(_TAINTS)

    @property
    def is_empty(self) -> bool:
        """Whether no node is known, and no pool that nodes may be added by."""
        return not (self.everything or self.node_pools.pools)

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler may add nodes."""
        return self.node_pools.autoscaled or self._labelled_by_autoscaler

    @property
    def undeclared(self) -> bool:
        """Whether there may be unknown nodes with GPUs."""
        known = self.node_pools
        if known.signs or (self._labelled_by_autoscaler and not known.lists_karpenter):
            return True
        return any(map(facts_of, self.dra.devices.elsewhere))  # GPUs of no node, as over a network

    @property
    def _labelled_by_autoscaler(self) -> bool:
        return any(self.labels.with_key(key) for key in autoscaler_labels())

    @property
    def in_managed_pools(self) -> bool:
        """Whether nodes belong to pools of a cloud that may be autoscaled.

        A file of nodes does not show it: the status of cluster-autoscaler is another object. Pools that exist
        only with an autoscaler do not count: they are known, or their labels show the autoscaler.
        """
        if self.node_pools.lists_autoscaler_status:
            return False
        return any(self.labels.with_key(key) for key in pool_labels() if key not in autoscaler_labels())

    def instance_types(self) -> Iterator[tuple[str, int]]:
        """Yield each instance type in the cluster with its nodes, in the order of their names."""
        yield from sorted((str(name), nodes) for name, nodes in self.labels.values(INSTANCE_TYPE))

    def _nodes_with(self, key: str, resource: str) -> int:
        matching = 0
        for names, nodes in self.labels.values(key):  # one entry per distinct set of resources
            if isinstance(names, frozenset) and resource in names:
                matching |= nodes
        return matching

    @property
    def resources(self) -> frozenset[str]:
        """The resources that some node offers."""
        kinds = (names for names, _ in self.labels.values(_RESOURCES) if isinstance(names, frozenset))
        return frozenset().union(*kinds)

    def classes(self, nodes: int, labels: LabelNames = _DEFAULT) -> tuple[NodeClass, ...]:
        """Return the classes of a set of nodes, ordered by their first nodes.

        The classes of each LabelNames are read once, in time linear in the number of classes.
        """
        if (classes := self._classes.get(labels)) is None:
            classes = self._classes[labels] = self._read(labels)
        if nodes == self.everything:
            return classes
        parts = ((node_class.capabilities, node_class.members & nodes) for node_class in classes)
        return tuple(NodeClass(capabilities, members) for capabilities, members in parts if members)

    def _read(self, names: LabelNames) -> tuple[NodeClass, ...]:
        """Return the classes: one node of each is read, and the index finds the nodes with equal labels."""
        of_clouds = (*kind_labels(self.facts), *driver_labels(self.facts))
        keys = {*names.among(self.labels), *(key for key in of_clouds if self.labels.with_key(key))}
        members: defaultdict[NodeCapabilities, int] = defaultdict(int)
        left = self.everything
        while left:
            row, matching = self._rows.get(next(positions(left))), left
            if row is None:
                raise AssertionError("a position of the index is that of a row")
            labels = row.labels
            for key in keys:
                matching &= (
                    self.labels.equal(key, labels[key]) if key in labels else ~self.labels.with_key(key)
                )
            for key in _CAPABILITIES:
                value = row.other(key)
                matching &= ~self.labels.with_key(key) if value is None else self.labels.equal(key, value)
            members[_capabilities(row, names, self.facts)] |= matching
            left ^= matching
        return _classes(members)

    def families_present(
        self, families: Iterable[LabelFamily], nodes: int
    ) -> tuple[tuple[LabelFamily, int], ...]:
        """Return the families that are present on some of these nodes, each with the nodes that use it.

        families: in order; a node uses the first one that it carries, even if the value is invalid.
        """
        present = []
        for family in families:
            if carrying := self.labels.with_key(family.key) & nodes:
                present.append((family, carrying))
                nodes ^= carrying
        return tuple(present)

    def _row(self, node: Mapping[str, Any], path: str, pool: dict[Fact, Fact]) -> IndexedNode:
        """Read a node. Equal facts of this document and of the index become one object, to save memory."""
        return self._indexed(read_node(node, path), pool)

    def _indexed(self, row: IndexedNode, pool: dict[Fact, Fact]) -> IndexedNode:
        """Return a node with all facts that are indexed. pool: the facts of nodes that are read with it."""
        devices, state = self._devices.get(row.name, _NO_DEVICES), row.state
        labels = row.labels
        offered = state.allocatable | devices.resources
        facts: list[Fact] = [*labels.items(), (_RESOURCES, offered if state.ready else frozenset())]
        by_devices = devices.resources | devices.may_offer
        for key, amounts in ((_AMOUNT, state.amounts), (_LATER, state.may_have)):
            facts += ((key + name, amount) for name, amount in amounts if name not in by_devices)
        if recovering := recovering_resources(offered, state, devices.may_offer, labels.items()):
            facts.append((_RECOVERING, recovering))
        if not state.ready:
            facts.append((_NOT_READY, True))
        if state.taints:
            facts.append((_TAINTS, state.taints))
        if (runtime := runtime_on(labels, state.host, self.operator)) != UNKNOWN_RUNTIME:
            facts.append((_RUNTIME, runtime))
        if state.former_driver:
            facts.append((_FORMER_DRIVER, True))
        if devices.facts:
            none: frozenset[str] = frozenset()
            kept = devices._replace(resources=none, may_offer=none, alone=not state.has_plugin)
            facts.append((_DEVICES, kept))
        indexed = (self.labels.canonical(fact) for fact in facts)
        shared = tuple(pool.setdefault(fact, fact) for fact in indexed)
        # Usually kubernetes.io/hostname.
        name = next((value for _, value in shared if value == row.name), row.name)
        _, known = pool.setdefault((_STATE, state), (_STATE, state))
        return IndexedNode(name, shared, known if isinstance(known, NodeState) else state, row.problems)

    def _replace(self, changes: Mapping[str, IndexedNode | None]) -> Inventory:
        """Return an inventory with these rows replaced; None removes a node."""
        if not changes:
            return self
        after = Inventory()
        after.node_pools, after.dra, after._devices = self.node_pools, self.dra, self._devices
        after.operator, after.facts = self.operator, self.facts
        after.source, after.presets = self.source, self.presets
        after._rows, after._positions = self._rows.copy(), self._positions.copy()
        after.everything = self.everything
        removed: defaultdict[Fact, list[int]] = defaultdict(list)
        added: defaultdict[Fact, list[int]] = defaultdict(list)
        moves: list[tuple[int, IndexedNode | None, IndexedNode | None]] = []
        for name, row in changes.items():
            position = after._position_for(name)
            before = after._rows.get(position)
            moves.append((position, before, row))
            old, new = before.facts if before else (), row.facts if row else ()
            for fact in set(old).difference(new):
                removed[fact].append(position)
            for fact in set(new).difference(old):
                added[fact].append(position)
            after._rows.put(position, row)
            if row is None:
                after._positions.put(name, None)
                after.everything ^= 1 << position
        after.labels = self.labels.changed(removed, added)
        after._classes = {
            names: _moved(kinds, moves, names, self.facts) for names, kinds in self._classes.copy().items()
        }
        return after

    def _row_of(self, name: str) -> IndexedNode | None:
        position = self._positions.get(name)
        return None if position is None else self._rows.get(position)

    def _position_for(self, name: str) -> int:
        """Return a node's position; a new node takes the lowest free one."""
        position = self._positions.get(name)
        if position is None:
            position = (~self.everything & (self.everything + 1)).bit_length() - 1
            self.everything |= 1 << position
            self._positions.put(name, position)
        return position


def _capabilities(row: IndexedNode, names: LabelNames, facts: Facts) -> NodeCapabilities:
    labels = row.labels
    devices, runtime, former_driver = map(row.other, _CAPABILITIES)
    read = {key: labels[key] for key in names.among(labels)}
    labelled = cloud_capabilities(labels, NodeReader("", read).capabilities(names, facts))
    if runtime and labelled.runtime == UNKNOWN_RUNTIME:
        labelled = replace(labelled, runtime=runtime)
    if former_driver:
        labelled = replace(labelled, former_driver=True)
    return devices.capabilities(labelled) if devices else labelled


def _classes(members: Mapping[NodeCapabilities, int]) -> tuple[NodeClass, ...]:
    """Return the classes ordered by their first nodes, so that messages do not depend on the read order."""
    classes = (NodeClass(capabilities, nodes) for capabilities, nodes in members.items() if nodes)
    return tuple(sorted(classes, key=lambda node_class: node_class.members & -node_class.members))


def _moved(
    classes: Iterable[NodeClass],
    moves: Iterable[tuple[int, IndexedNode | None, IndexedNode | None]],
    names: LabelNames,
    facts: Facts,
) -> tuple[NodeClass, ...]:
    """Return the classes after changes. moves: positions, each with its row before and after."""
    members = defaultdict(int, {node_class.capabilities: node_class.members for node_class in classes})
    for position, *rows in moves:
        for row in filter(None, rows):
            members[_capabilities(row, names, facts)] ^= 1 << position
    return _classes(members)
