"""ResourceSlices, and the devices of a cluster that they make.

The versions v1, v1beta2 and v1beta1 are read.
Source: https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-slice-v1/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

from rules.nodes.devices.devices import MAX_NAME, DeviceKind, DeviceReader, KindPool, Problem, member

# Limit of the API on devices of one slice; further ones make the slice incomplete.
_MAX_DEVICES: Final = 128
_POOL_NUMBERS: Final = ("generation", "resourceSliceCount")


class ResourceSlice(NamedTuple):
    """One ResourceSlice. node: None if its devices are not of one node. slices: how many the pool has.

    devices: name and kind of each. kinds: each kind with its number. complete: false if some of its devices
    were not readable.
    """

    name: str
    driver: str
    pool: str
    generation: int
    slices: int
    node: str | None
    devices: tuple[tuple[str, DeviceKind], ...]
    kinds: tuple[tuple[DeviceKind, int], ...]
    complete: bool = True


class DeviceInventory:
    """The devices of a cluster, immutable.

    by_node: the kinds of each node with the number of their devices. by_kind: the same by kind, then node.
    A kind of which nothing is known stands for the devices of a pool that is not complete; its number is 0.
    elsewhere: kinds of devices that are not of one node, such as those of a network; which nodes have them is
    unknown.
    """

    __slots__ = ("_pools", "by_kind", "by_node", "elsewhere")

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        """Take the current slices; only those of the highest generation of a pool count."""
        self._pools = _current(slices)
        by_kind: dict[DeviceKind, dict[str, int]] = {}
        by_node: dict[str, dict[DeviceKind, int]] = {}
        elsewhere: dict[DeviceKind, None] = {}
        for pool in self._pools.values():
            complete = _is_complete(pool)
            for each in pool:
                for kind, number in each.kinds if complete else ((_unknown(each.driver), 0),):
                    if each.node is None:
                        elsewhere[kind] = None
                    else:
                        of_node = by_node.setdefault(each.node, {})
                        of_node[kind] = of_node.get(kind, 0) + number
                        by_kind.setdefault(kind, {})[each.node] = of_node[kind]
        self.by_kind: Mapping[DeviceKind, Mapping[str, int]] = by_kind
        self.by_node: Mapping[str, Mapping[DeviceKind, int]] = by_node
        self.elsewhere = tuple(elsewhere)

    def device(self, driver: str, pool: str, name: str) -> tuple[DeviceKind, str | None] | None:
        """Return the kind and the node of one device; None if there is no such device."""
        for each in self._pools.get((driver, pool), ()):
            for device, kind in each.devices:
                if device == name:
                    return kind, each.node
        return None


@lru_cache(maxsize=256)
def _unknown(driver: str) -> DeviceKind:
    return DeviceKind(driver, hidden=None)


def _current(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], list[ResourceSlice]]:
    """Return the slices of each pool that are of its highest generation."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for each in slices:
        pool = pools.setdefault((each.driver, each.pool), [])
        if pool and each.generation > pool[0].generation:
            pool.clear()
        if not pool or each.generation == pool[0].generation:
            pool.append(each)
    return pools


def _is_complete(pool: list[ResourceSlice]) -> bool:
    """Return whether a pool is; a scheduler does not allocate from others, or from one with a name twice."""
    if not all(each.complete and each.slices == len(pool) for each in pool):
        return False
    names = [name for name, _ in chain.from_iterable(each.devices for each in pool)]
    return len(set(names)) == len(names)


def read_slice(document: object, pool: KindPool) -> tuple[ResourceSlice | None, list[Problem]]:
    """Return a ResourceSlice as read from JSON, and what is unreadable; None if its pool is."""
    name = _text(member(document, "metadata").get("name"))
    spec = member(document, "spec")
    of_pool = member(spec, "pool")
    driver, pool_name = _text(spec.get("driver")), _text(of_pool.get("name"))
    numbers = [_positive(of_pool.get(key)) for key in _POOL_NUMBERS]
    source = name or "ResourceSlice"
    if driver is None or pool_name is None or None in numbers:
        return None, [Problem(source, "spec.pool", str(spec.get("pool"))[:MAX_NAME])]
    node = _text(spec.get("nodeName"))
    reader = DeviceReader(source, driver, pool)
    devices, complete = _devices(spec.get("devices"), reader)
    kinds = tuple(Counter(kind for _, kind in devices).items())
    generation, slices = (number or 0 for number in numbers)
    read = ResourceSlice(source, driver, pool_name, generation, slices, node, tuple(devices), kinds, complete)
    return read, reader.problems


def _devices(given: object, reader: DeviceReader) -> tuple[list[tuple[str, DeviceKind]], bool]:
    """Return the devices of a slice, and whether they are all that it has."""
    if given is None:
        return [], True
    entries = given if isinstance(given, list) else [given]
    devices: list[tuple[str, DeviceKind]] = []
    complete = len(entries) <= _MAX_DEVICES
    for entry in entries[:_MAX_DEVICES]:
        raw: Mapping[str, Any] = entry if isinstance(entry, Mapping) else {}
        name = _text(raw.get("name"))
        if name is None:
            reader.report("devices", entry)
            complete = False
        else:
            devices.append((name, reader.kind(raw)))
    return devices, complete


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_NAME else None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
