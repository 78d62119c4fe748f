"""Which nodes say what: an immutable index of (key, value) facts, whose questions never walk the nodes.

A set of nodes is a Python int used as a bit set: every node has a bit position, `&`, `|` and `^` combine
sets, `bit_count()` counts one. At 10,000 nodes a set is 1.3 KB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Generic, TypeVar

from rules.kube.names import parse_int64

# A key and a value; at most one value of a key holds for a node.
Fact = tuple[str, Hashable]

# A set of no more nodes is kept as a tuple of positions: 10,000 host names as bit sets would take 13 MB.
_FEW = 8
# For a key with many numbers, "this number and above" is kept once in so many: no Gt ORs more sets than that.
_STRIDE = 32

# Entries in a part of a scattered dict; one more, and there are so many times as many parts.
_PART = 128
_SPREAD = 16

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_Set = int | tuple[int, ...]
_Entry = tuple[Fact, _Set]


class Index:
    """An index of facts, immutable: a change gives a new index that shares the keys without a change.

    Keys that are unique to a node (host names) cost a tuple a value, the others a bit set a value.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, _Key] | None = None) -> None:
        self._keys = keys or {}

    def __iter__(self) -> Iterator[str]:
        """Yield the keys, in no particular order."""
        return iter(self._keys)

    def having(self, key: str) -> int:
        """Return the nodes that have the key, whatever its value."""
        return self._keys[key].present if key in self._keys else 0

    def equal(self, key: str, value: Hashable) -> int:
        """Return the nodes that have this value of the key."""
        kept = self._keys.get(key)
        entry = kept.values.get(value) if kept else None
        return 0 if entry is None else _bits(entry[1])

    def above(self, key: str, number: int) -> int:
        """Return the nodes whose value is a number greater than this."""
        ladder = self._ladder(key)
        return ladder.from_rung(bisect_right(ladder.numbers, number))

    def below(self, key: str, number: int) -> int:
        """Return the nodes whose value is a number less than this."""
        ladder = self._ladder(key)
        return ladder.from_rung(0) ^ ladder.from_rung(bisect_left(ladder.numbers, number))

    def values(self, key: str) -> Iterator[tuple[Hashable, int]]:
        """Yield each value of a key with its nodes, in no particular order."""
        if key in self._keys:
            for value, (_, nodes) in self._keys[key].values.items():
                yield value, _bits(nodes)

    def canonical(self, fact: Fact) -> Fact:
        """Return the equal fact that is indexed already, so that nodes can share it, or else this one."""
        key, value = fact
        kept = self._keys.get(key)
        entry = kept.values.get(value) if kept else None
        return fact if entry is None else entry[0]

    def changed(self, lost: Mapping[Fact, Sequence[int]], won: Mapping[Fact, Sequence[int]]) -> Index:
        """Return the index after nodes at these positions lost facts, then won others."""
        changed: dict[str, _Key] = {}
        for fact, members in chain(lost.items(), won.items()):
            name, value = fact
            if (key := changed.get(name)) is None:
                before = self._keys.get(name)
                key = changed[name] = (
                    _Key(before.values.copy(), before.present) if before else _Key(ShardedDict(), 0)
                )
            entry, mask = key.values.get(value) or (fact, 0), _mask(members)
            key.present ^= mask
            # A set either holds all that lost the fact, or none that won it.
            nodes = _bits(entry[1]) ^ mask
            key.values.put(value, (entry[0], _packed(nodes)) if nodes else None)
        return Index({name: key for name, key in {**self._keys, **changed}.items() if key.present})

    def _ladder(self, key: str) -> _SortedValues:
        if (kept := self._keys.get(key)) is None:
            return _SortedValues(ShardedDict())
        if kept.ladder is None:  # made at the first question; two threads would make the same one
            kept.ladder = _SortedValues(kept.values)
        return kept.ladder


class ShardedDict(Generic[K, V]):
    """A dict whose copies share what does not change, so that a change costs little however large it is.

    A host name is the value of one node: to copy ten thousand of them for each node that joins takes longer
    than all else. Keys lie in parts by their hashes, and of what changes one part is copied.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[dict[K, V]] = [{}]  # a power of 2; none of them ever changes

    def copy(self) -> ShardedDict[K, V]:
        """Return a copy that may be changed."""
        copy: ShardedDict[K, V] = ShardedDict()
        copy._parts = self._parts.copy()
        return copy

    def get(self, key: K) -> V | None:
        """Return the value of a key, None where it has none."""
        parts = self._parts
        # Most have one part, and are asked for every label of a node.
        return (parts[0] if len(parts) == 1 else parts[hash(key) & len(parts) - 1]).get(key)

    def put(self, key: K, value: V | None) -> None:
        """Give a key another value, or none."""
        at = hash(key) & len(self._parts) - 1
        part = self._parts[at] = self._parts[at].copy()
        if value is None:
            part.pop(key, None)
            return
        part[key] = value
        if len(part) > _PART:
            parts: list[dict[K, V]] = [{} for _ in range(_SPREAD * len(self._parts))]
            for each, its in self.items():
                parts[hash(each) & len(parts) - 1][each] = its
            self._parts = parts

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield each key with its value, in no particular order."""
        return chain.from_iterable(part.items() for part in self._parts)


# The values under one key, each with the fact and the nodes that say it.
_Values = ShardedDict[Hashable, _Entry]


class _Key:
    """What is said under one key: value to the fact, which all nodes share, and the nodes that say it."""

    __slots__ = ("ladder", "present", "values")

    def __init__(self, values: _Values, present: int) -> None:
        self.values = values
        self.present = present
        self.ladder: _SortedValues | None = None


class _SortedValues:
    """The values of a key that are numbers, sorted, for questions of order."""

    __slots__ = ("_nodes", "_steps", "numbers")

    def __init__(self, values: _Values) -> None:
        read = ((parse_int64(value), nodes) for value, (_, nodes) in values.items() if isinstance(value, str))
        rungs = [(number, nodes) for number, nodes in read if number is not None]
        rungs.sort(key=itemgetter(0))
        self.numbers = [number for number, _ in rungs]
        self._nodes = [nodes for _, nodes in rungs]
        steps = [0]
        for start in range(len(rungs) // _STRIDE * _STRIDE, -1, -_STRIDE):
            steps.append(steps[-1] | _union(self._nodes[start : start + _STRIDE]))
        self._steps = steps[::-1]  # step n: the nodes of the rungs from n * _STRIDE on

    def from_rung(self, rung: int) -> int:
        """Return the nodes of this rung and of all above it."""
        step = -(-rung // _STRIDE)
        return self._steps[step] | _union(self._nodes[rung : step * _STRIDE])


def positions(nodes: int) -> Iterator[int]:
    """Yield the positions in a set, from the lowest; walks the set."""
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
