"""Which nodes say what: an immutable index of (key, value) facts, whose questions never walk the nodes.

A set of nodes is a Python int used as a bit set: every node has a bit position, `&`, `|` and `^` combine
sets, `bit_count()` counts one. At 10,000 nodes a set is 1.3 KB.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter

from rules.labels import parse_int64

# A key and a value; at most one value of a key holds for a node.
Fact = tuple[str, Hashable]

# A set of no more nodes is kept as a tuple of positions: 10,000 host names as bit sets would take 13 MB.
_FEW = 8
# For a key with many numbers, "this number and above" is kept once in so many: no Gt ORs more sets than that.
_STRIDE = 32

# Changes of a key's values that a copy carries along; one more, and all are copied.
_LATE = 128

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
        entry = self._keys[key].values.get(value) if key in self._keys else None
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
        entry = self._keys[key].values.get(value) if key in self._keys else None
        return fact if entry is None else entry[0]

    def changed(self, lost: Mapping[Fact, Sequence[int]], won: Mapping[Fact, Sequence[int]]) -> Index:
        """Return the index after nodes at these positions lost facts, then won others."""
        changed: dict[str, _Key] = {}
        for fact, members in chain(lost.items(), won.items()):
            name, value = fact
            if (key := changed.get(name)) is None:
                before = self._keys.get(name)
                key = changed[name] = (
                    _Key(before.values.copy(), before.present) if before else _Key(_Values(), 0)
                )
            entry, mask = key.values.get(value) or (fact, 0), _mask(members)
            key.present ^= mask
            # A set either holds all that lost the fact, or none that won it.
            nodes = _bits(entry[1]) ^ mask
            key.values.put(value, (entry[0], _packed(nodes)) if nodes else None)
        for key in changed.values():
            key.values.settle()
        return Index({name: key for name, key in {**self._keys, **changed}.items() if key.present})

    def _ladder(self, key: str) -> _Ladder:
        if (kept := self._keys.get(key)) is None:
            return _Ladder(_Values())
        if kept.ladder is None:  # made at the first question; two threads would make the same one
            kept.ladder = _Ladder(kept.values)
        return kept.ladder


class _Values:
    """The values under one key, each with its fact and nodes, copied at the cost of what has changed lately.

    A host name is the value of one node: to copy ten thousand of them for each node that joins takes longer
    than all else.
    """

    __slots__ = ("_late", "_old")

    def __init__(self) -> None:
        self._old: dict[Hashable, _Entry] = {}  # shared by copies, and never changed
        self._late: dict[Hashable, _Entry | None] = {}  # None: gone

    def copy(self) -> _Values:
        """Return a copy that may be changed."""
        copy = _Values()
        copy._old, copy._late = self._old, self._late.copy()
        return copy

    def settle(self) -> None:
        """Be ready to be copied: call it after changes."""
        if len(self._late) > _LATE:
            self._old, self._late = dict(self.items()), {}

    def get(self, value: Hashable) -> _Entry | None:
        """Return the fact and the nodes of a value, None where no node says it."""
        return self._late[value] if value in self._late else self._old.get(value)

    def put(self, value: Hashable, entry: _Entry | None) -> None:
        """Change what is said of a value."""
        self._late[value] = entry

    def items(self) -> Iterator[tuple[Hashable, _Entry]]:
        """Yield each value with its fact and nodes."""
        for value, entry in self._old.items():
            if value not in self._late:
                yield value, entry
        for value, late in self._late.items():
            if late is not None:
                yield value, late


class _Key:
    """What is said under one key: value to the fact, which all nodes share, and the nodes that say it."""

    __slots__ = ("ladder", "present", "values")

    def __init__(self, values: _Values, present: int) -> None:
        self.values = values
        self.present = present
        self.ladder: _Ladder | None = None


class _Ladder:
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
