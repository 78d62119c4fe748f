"""Immutable inverted index of node labels; queries do not iterate over nodes.

A set of nodes is a Python int used as a bit set: every node has a bit position, `&`, `|` and `^` combine
sets, `bit_count()` returns the size. At 10,000 nodes a set is 1.3 KB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

from rules.kube.names import parse_int64

# A key and a value; a node has at most one value of a key.
Fact = tuple[str, Hashable]

# Sets up to this size are stored as a tuple of positions: 10,000 host names as bit sets would take 13 MB.
_FEW = 8
# The union of "this value and all greater ones" is stored for each 32nd value: a Gt ORs at most 32 sets.
_STRIDE = 32

# Maximum entries in one shard of a ShardedDict; if a shard has more, the number of shards grows 16-fold.
_PART = 128
_SPREAD = 16

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_Set = int | tuple[int, ...]
_Entry = tuple[Fact, _Set]


class LabelIndex:
    """Immutable index of facts; a change returns a new index that shares the unchanged keys.

    A value that few nodes have (a host name) takes a tuple, any other value a bit set.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, _Key] | None = None) -> None:
        self._keys = keys or {}

    def __iter__(self) -> Iterator[str]:
        """Yield the keys, in no particular order."""
        return iter(self._keys)

    def with_key(self, key: str) -> int:
        """Return the nodes that have the key, with any value."""
        return self._keys[key].present if key in self._keys else 0

    def equal(self, key: str, value: Hashable) -> int:
        """Return the nodes that have the key with this value."""
        stored = self._keys.get(key)
        entry = stored.values.get(value) if stored else None
        return 0 if entry is None else _bits(entry[1])

    def above(self, key: str, number: int) -> int:
        """Return the nodes whose value is a number greater than this."""
        values = self._sorted_values(key)
        return values.from_position(bisect_right(values.numbers, number))

    def below(self, key: str, number: int) -> int:
        """Return the nodes whose value is a number less than this."""
        values = self._sorted_values(key)
        return values.from_position(0) ^ values.from_position(bisect_left(values.numbers, number))

    def values(self, key: str) -> Iterator[tuple[Hashable, int]]:
        """Yield each value of a key with its nodes, in no particular order."""
        if key in self._keys:
            for value, (_, nodes) in self._keys[key].values.items():
                yield value, _bits(nodes)

    def largest(self, key: str) -> int:
        """Return the largest value of a key that is a number; 0 if none is."""
        numbers = self._sorted_values(key).numbers if key in self._keys else ()
        return numbers[-1] if numbers else 0

    def canonical(self, fact: Fact) -> Fact:
        """Return the indexed fact that is equal, so that nodes share it; otherwise this one."""
        key, value = fact
        stored = self._keys.get(key)
        entry = stored.values.get(value) if stored else None
        return fact if entry is None else entry[0]

    def changed(
        self, removed: Mapping[Fact, Sequence[int]], added: Mapping[Fact, Sequence[int]]
    ) -> LabelIndex:
        """Return the index after facts are removed from nodes at these positions, then others added."""
        changed: dict[str, _Key] = {}
        for fact, members in chain(removed.items(), added.items()):
            name, value = fact
            if (key := changed.get(name)) is None:
                before = self._keys.get(name)
                key = changed[name] = (
                    _Key(before.values.copy(), before.present) if before else _Key(ShardedDict(), 0)
                )
            entry, mask = key.values.get(value) or (fact, 0), _mask(members)
            key.present ^= mask
            # The set contains all nodes that the fact is removed from, and none that it is added to.
            nodes = _bits(entry[1]) ^ mask
            key.values.put(value, (entry[0], _packed(nodes)) if nodes else None)
        return LabelIndex({name: key for name, key in {**self._keys, **changed}.items() if key.present})

    def _sorted_values(self, key: str) -> _SortedValues:
        if (stored := self._keys.get(key)) is None:
            return _SortedValues(ShardedDict())
        if stored.sorted is None:  # made by the first query; two threads would make equal ones
            stored.sorted = _SortedValues(stored.values)
        return stored.sorted


class ShardedDict(Generic[K, V]):
    """A dict whose copies share unchanged shards, so that the time of a change does not depend on its size.

    Otherwise the slowest step would be to copy 10,000 host names for each node that joins. The hash of a key
    selects its shard; a change copies one shard.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[dict[K, V]] = [{}]  # their number is a power of 2; a part is never modified

    def copy(self) -> ShardedDict[K, V]:
        """Return a copy that can be modified."""
        copy: ShardedDict[K, V] = ShardedDict()
        copy._parts = self._parts.copy()
        return copy

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        parts = self._parts
        # Most have one part, and this is called for every label of a node.
        return (parts[0] if len(parts) == 1 else parts[hash(key) & len(parts) - 1]).get(key)

    def put(self, key: K, value: V | None) -> None:
        """Set the value of a key; None removes the key."""
        at = hash(key) & len(self._parts) - 1
        part = self._parts[at] = self._parts[at].copy()
        if value is None:
            part.pop(key, None)
            return
        part[key] = value
        if len(part) > _PART:
            parts: list[dict[K, V]] = [{} for _ in range(_SPREAD * len(self._parts))]
            for existing_key, existing_value in self.items():
                parts[hash(existing_key) & len(parts) - 1][existing_key] = existing_value
            self._parts = parts

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield each key with its value, in no particular order."""
        return chain.from_iterable(part.items() for part in self._parts)


# The values of one key, each with the shared fact and the nodes that have it.
_Values = ShardedDict[Hashable, _Entry]


class _Key:
    """The values of one key.

    present: the nodes that have the key.
    sorted: the numeric values; None until they are needed.
    """

    __slots__ = ("present", "sorted", "values")

    def __init__(self, values: _Values, present: int) -> None:
        self.values = values
        self.present = present
        self.sorted: _SortedValues | None = None


class _SortedValues:
    """The values of a key that are numbers, sorted, for Gt and Lt."""

    __slots__ = ("_nodes", "_unions", "numbers")

    def __init__(self, values: _Values) -> None:
        read = ((_number(value), nodes) for value, (_, nodes) in values.items())
        entries = [(number, nodes) for number, nodes in read if number is not None]
        entries.sort(key=itemgetter(0))
        self.numbers = [number for number, _ in entries]
        self._nodes = [nodes for _, nodes in entries]
        unions = [0]
        for start in range(len(entries) // _STRIDE * _STRIDE, -1, -_STRIDE):
            unions.append(unions[-1] | _union(self._nodes[start : start + _STRIDE]))
        self._unions = unions[::-1]  # item n: the nodes of the positions from n * _STRIDE on

    def from_position(self, position: int) -> int:
        """Return the nodes of the value at this position and of all greater values."""
        stride = -(-position // _STRIDE)
        return self._unions[stride] | _union(self._nodes[position : stride * _STRIDE])


def _number(value: Hashable) -> int | None:
    if isinstance(value, str):
        return parse_int64(value)
    return value if isinstance(value, int) else None


def positions(nodes: int) -> Iterator[int]:
    """Yield the positions in a set, lowest first; iterates over the set."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def _mask(members: Sequence[int]) -> int:
    if len(members) == 1:
        return 1 << members[0]
    octets = bytearray(max(members) // 8 + 1)
    for position in members:
        octets[position >> 3] |= 1 << (position & 7)
    return int.from_bytes(octets, "little")


def _bits(nodes: _Set) -> int:
    return nodes if isinstance(nodes, int) else _mask(nodes)


def _packed(nodes: int) -> _Set:
    return nodes if nodes.bit_count() > _FEW else tuple(positions(nodes))


def _union(sets: Iterable[_Set]) -> int:
    nodes = 0
    for some in sets:
        nodes |= _bits(some)
    return nodes
