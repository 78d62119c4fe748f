"""The nodes of a cluster: which there are, what classes they form, and which set of them a question names.

Sets of nodes are bit sets, as `index` has them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rules.nodes.label_families import LabelFamily, LabelNames
from rules.nodes.label_index import Fact, Index, ShardedDict, positions
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader, Problem

# What a node has beside its labels, under a key that no label can have.
_RESOURCES: Final = "//resources"
_DEFAULT: Final = LabelNames()


class InventoryError(ValueError):
    """The document is not shaped as nodes are. The fault of whoever named it, never of an API server."""


@dataclass(frozen=True, slots=True)
class NodeClass:
    """Nodes that offer the same. members: their bit set."""

    offer: NodeCapabilities
    members: int


class Inventory:
    """The nodes of a cluster, immutable: a change gives a new inventory that shares what did not change.

    Made by `Inventory.of`. everything: the set of all nodes. labels: the index of their labels. Which of them
    tell what is for the one who asks to say: rules come and go, the nodes stay.
    """

    __slots__ = ("_classes", "_positions", "_rows", "everything", "labels")

    def __init__(self) -> None:
        self._classes: dict[LabelNames, tuple[NodeClass, ...]] = {}
        self._rows: ShardedDict[int, _Row] = ShardedDict()  # by position
        self._positions: ShardedDict[str, int] = ShardedDict()  # by node name
        self.labels = Index()
        self.everything = 0

    @classmethod
    def of(cls, document: object) -> Inventory:
        """Return the inventory of a Node, a NodeList, or a list of them, as JSON or YAML has them.

        Of nodes of one name the last counts. Raises InventoryError for anything else.
        """
        return cls().with_node(document)

    def with_node(self, document: object) -> Inventory:
        """Return an inventory with a Node, in place of the one of its name; this one where nothing changes.

        document: as for `of`; several nodes at once cost less. Raises InventoryError.
        """
        pool: dict[Fact, Fact] = {}
        rows = {row.name: row for row in (self._row(*node, pool) for node in _nodes(document, "document"))}
        return self._replace({name: row for name, row in rows.items() if row != self._row_of(name)})

    def without_node(self, name: str) -> Inventory:
        """Return an inventory without the node of this name."""
        return self._replace({name: None} if self._row_of(name) else {})

    def __len__(self) -> int:
        return self.everything.bit_count()

    def problems(self, labels: LabelNames = _DEFAULT) -> tuple[Problem, ...]:
        """Return what could not be read of the nodes. Walks them: for reports, not for decisions."""
        found: list[Problem] = []
        for _, row in sorted(self._rows.items()):
            reader = NodeReader(row.name, row.labels)
            reader.offer(labels)
            found += (*row.problems, *reader.problems)
        return tuple(found)

    def names(self, nodes: int) -> list[str]:
        """Return the names of a set of nodes. Walks the set: for reports, not for decisions."""
        return [row.name for position in positions(nodes) if (row := self._rows.get(position))]

    def named(self, name: str) -> int:
        """Return the set of the one node of this name; empty where there is none."""
        position = self._positions.get(name)
        return 0 if position is None else 1 << position

    def offering(self, resource: str) -> int:
        """Return the nodes that have any of a resource allocatable."""
        found = 0
        for names, nodes in self.labels.values(_RESOURCES):  # as many as there are kinds of nodes
            if isinstance(names, frozenset) and resource in names:
                found |= nodes
        return found

    @property
    def resources(self) -> frozenset[str]:
        """The resources of which some node has any allocatable."""
        kinds = (names for names, _ in self.labels.values(_RESOURCES) if isinstance(names, frozenset))
        return frozenset().union(*kinds)

    def classes(self, nodes: int, labels: LabelNames = _DEFAULT) -> tuple[NodeClass, ...]:
        """Return the classes that a set of nodes forms, in the order of their first nodes.

        labels: which of them tell what. They are read once, at a cost that grows with the number of classes.
        """
        if (classes := self._classes.get(labels)) is None:
            classes = self._classes[labels] = self._read(labels)
        if nodes == self.everything:
            return classes
        found = ((each.offer, each.members & nodes) for each in classes)
        return tuple(NodeClass(offer, members) for offer, members in found if members)

    def _read(self, names: LabelNames) -> tuple[NodeClass, ...]:
        """Return the classes: one node of each is read, and the index tells which others say the same."""
        keys = names.among(self.labels)
        found: defaultdict[NodeCapabilities, int] = defaultdict(int)
        left = self.everything
        while left:
            row, alike = self._rows.get(next(positions(left))), left
            told = row.labels if row else {}
            for key in keys:
                alike &= self.labels.equal(key, told[key]) if key in told else ~self.labels.having(key)
            found[_offer(told, names)] |= alike
            left ^= alike
        return _classes(found)

    def speakers(self, families: Iterable[LabelFamily], nodes: int) -> tuple[tuple[LabelFamily, int], ...]:
        """Return the families that tell a fact of some of these nodes, each with the nodes that it speaks on.

        families: in order; of those whose labels a node carries the first speaks, readable or not.
        """
        found = []
        for family in families:
            if spoken := self.labels.having(family.key) & nodes:
                found.append((family, spoken))
                nodes ^= spoken
        return tuple(found)

    def _row(self, node: Mapping[str, Any], path: str, pool: dict[Fact, Fact]) -> _Row:
        """Read a node. Equal facts, of this document and of the index, become one object: there are many."""
        metadata = _mapping(node, "metadata", path)
        name = metadata.get("name")
        if not isinstance(name, str) or not name:
            raise InventoryError(f"{path}.metadata.name: expected the node's name, got {name!r:.60}")
        reader = NodeReader(name, _mapping(metadata, "labels", f"{path}.metadata"))
        allocatable = _mapping(_mapping(node, "status", path), "allocatable", f"{path}.status")
        facts: list[Fact] = [*reader.labels.items(), (_RESOURCES, reader.resources(allocatable))]
        shared = (self.labels.canonical(fact) for fact in facts)
        said = tuple(pool.setdefault(fact, fact) for fact in shared)
        name = next((value for _, value in said if value == name), name)  # its host name, mostly
        return _Row(name, said, tuple(reader.problems))

    def _replace(self, changes: Mapping[str, _Row | None]) -> Inventory:
        """Return an inventory in which these names have these rows, or none."""
        if not changes:
            return self
        after = Inventory()
        after._rows, after._positions = self._rows.copy(), self._positions.copy()
        after.everything = self.everything
        lost: defaultdict[Fact, list[int]] = defaultdict(list)
        won: defaultdict[Fact, list[int]] = defaultdict(list)
        moves: list[tuple[int, _Row | None, _Row | None]] = []
        for name, row in changes.items():
            position = after._seat(name)
            before = after._rows.get(position)
            moves.append((position, before, row))
            old, new = before.facts if before else (), row.facts if row else ()
            for fact in set(old).difference(new):
                lost[fact].append(position)
            for fact in set(new).difference(old):
                won[fact].append(position)
            after._rows.put(position, row)
            if row is None:
                after._positions.put(name, None)
                after.everything ^= 1 << position
        after.labels = self.labels.changed(lost, won)
        after._classes = {
            names: _moved(classes, moves, names) for names, classes in self._classes.copy().items()
        }
        return after

    def _row_of(self, name: str) -> _Row | None:
        position = self._positions.get(name)
        return None if position is None else self._rows.get(position)

    def _seat(self, name: str) -> int:
        """Return a node's position; a new one takes the lowest that is free."""
        position = self._positions.get(name)
        if position is None:
            position = (~self.everything & (self.everything + 1)).bit_length() - 1
            self.everything |= 1 << position
            self._positions.put(name, position)
        return position


class _Row(NamedTuple):
    name: str
    facts: tuple[Fact, ...]
    problems: tuple[Problem, ...]

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return {key: value for key, value in self.facts if isinstance(value, str)}


def _offer(labels: Mapping[str, str], names: LabelNames) -> NodeCapabilities:
    return NodeReader("", {key: labels[key] for key in names.among(labels)}).offer(names)


def _classes(members: Mapping[NodeCapabilities, int]) -> tuple[NodeClass, ...]:
    """Return the classes by their first nodes: what is told must not depend on when they were read."""
    found = (NodeClass(offer, nodes) for offer, nodes in members.items() if nodes)
    return tuple(sorted(found, key=lambda each: each.members & -each.members))


def _moved(
    classes: Iterable[NodeClass], moves: Iterable[tuple[int, _Row | None, _Row | None]], names: LabelNames
) -> tuple[NodeClass, ...]:
    """Return the classes after some positions, each with its row before and after, changed."""
    found = defaultdict(int, {each.offer: each.members for each in classes})
    for position, *rows in moves:
        for row in filter(None, rows):
            found[_offer(row.labels, names)] ^= 1 << position
    return _classes(found)


def _nodes(document: object, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each node of a document with its place."""
    if isinstance(document, Mapping):
        kind = document.get("kind", "NodeList" if "items" in document else "Node")
        if kind == "Node":
            yield document, path
        elif kind in ("NodeList", "List"):
            yield from _nodes(document.get("items") or [], f"{path}.items")
        else:
            raise InventoryError(f"{path}.kind: expected Node or NodeList, got {kind!r:.60}")
    elif isinstance(document, list | tuple):
        for at, item in enumerate(document):
            yield from _nodes(item, f"{path}[{at}]")
    else:
        raise InventoryError(f"{path}: expected a Node, a NodeList or a list of them, got {document!r:.60}")


def _mapping(parent: Mapping[str, Any], name: str, path: str) -> Mapping[Any, Any]:
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InventoryError(f"{path}.{name}: expected an object, got {value!r:.60}")
    return value
