"""ResourceSlices, the devices of a cluster that they make, and DeviceTaintRules, which add taints to these.

ResourceSlices are read in the versions v1, v1beta2 and v1beta1, DeviceTaintRules in v1 and v1beta2. Without
their API, or the right to read it, there are no taint rules.
Sources: https://kubernetes.io/docs/reference/kubernetes-api/resource/resource-slice-v1/,
https://kubernetes.io/docs/reference/kubernetes-api/resource/device-taint-rule-v1/, and the tracker in
https://pkg.go.dev/k8s.io/dynamic-resource-allocation/resourceslice/tracker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import chain, product
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from rules.kube.tolerations import Taint, read_taints
from rules.nodes.devices.devices import MAX_NAME, DeviceKind, DeviceReader, KindPool, Problem
from rules.text.paths import object_at

# Limit of the API on devices of one slice; further ones make the slice incomplete.
_MAX_DEVICES: Final = 128
_POOL_NUMBERS: Final = ("generation", "resourceSliceCount")


class ResourceSlice(NamedTuple):
    """One ResourceSlice."""

    name: str
    driver: str
    pool: str
    generation: int
    slices: int  # number of slices in the pool
    node: str | None  # None if its devices are not of one node
    devices: tuple[tuple[str, DeviceKind], ...]  # names and kinds
    kinds: tuple[tuple[DeviceKind, int], ...]  # with the number of devices
    complete: bool = True  # all its devices are readable


class DeviceInventory:
    """The devices of a cluster, immutable.

    by_node: the number of devices by node, then kind. An unknown kind with the number 0 stands for devices
        of an incomplete pool.
    by_kind: the same by kind, then node.
    elsewhere: kinds of devices whose nodes are unknown, such as devices of a network.
    """

    __slots__ = ("_pools", "by_kind", "by_node", "elsewhere")

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        """Take the current slices; only the highest generation of each pool is used."""
        self._pools = _current(slices)
        by_kind: dict[DeviceKind, dict[str, int]] = {}
        by_node: dict[str, dict[DeviceKind, int]] = {}
        elsewhere: dict[DeviceKind, None] = {}
        for pool in self._pools.values():
            complete = _is_complete(pool)
            for resource_slice in pool:
                kinds = resource_slice.kinds if complete else ((_unknown(resource_slice.driver), 0),)
                for kind, number in kinds:
                    if resource_slice.node is None:
                        elsewhere[kind] = None
                    else:
                        of_node = by_node.setdefault(resource_slice.node, {})
                        of_node[kind] = of_node.get(kind, 0) + number
                        by_kind.setdefault(kind, {})[resource_slice.node] = of_node[kind]
        self.by_kind: Mapping[DeviceKind, Mapping[str, int]] = by_kind
        self.by_node: Mapping[str, Mapping[DeviceKind, int]] = by_node
        self.elsewhere = tuple(elsewhere)

    def device(self, driver: str, pool: str, name: str) -> tuple[DeviceKind, str | None] | None:
        """Return the kind and the node of one device; None if there is no such device."""
        for resource_slice in self._pools.get((driver, pool), ()):
            for device, kind in resource_slice.devices:
                if device == name:
                    return kind, resource_slice.node
        return None


@lru_cache(maxsize=256)
def _unknown(driver: str) -> DeviceKind:
    return DeviceKind(driver, hidden=None)


def _current(slices: Iterable[ResourceSlice]) -> dict[tuple[str, str], list[ResourceSlice]]:
    """Return the slices of the highest generation of each pool."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for resource_slice in slices:
        pool = pools.setdefault((resource_slice.driver, resource_slice.pool), [])
        if pool and resource_slice.generation > pool[0].generation:
            pool.clear()
        if not pool or resource_slice.generation == pool[0].generation:
            pool.append(resource_slice)
    return pools


def _is_complete(pool: list[ResourceSlice]) -> bool:
    """Return whether a pool is complete and has no duplicate name; otherwise nothing is allocated from it."""
    if not all(resource_slice.complete and resource_slice.slices == len(pool) for resource_slice in pool):
        return False
    names = [name for name, _ in chain.from_iterable(resource_slice.devices for resource_slice in pool)]
    return len(set(names)) == len(names)


def read_slice(document: object, pool: KindPool) -> tuple[ResourceSlice | None, list[Problem]]:
    """Return a ResourceSlice from JSON, None if its pool is unreadable, and problems of its fields."""
    name = _text(object_at(document, "metadata").get("name"))
    spec = object_at(document, "spec")
    of_pool = object_at(spec, "pool")
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
    """Return the readable devices of a slice, and whether these are all."""
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


class TaintRule(NamedTuple):
    """One DeviceTaintRule. driver, pool, device: names of the devices that it taints; None: any."""

    taint: Taint
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


def read_taint_rule(document: object) -> TaintRule | None:
    """Return a DeviceTaintRule from JSON; None if it keeps nothing out, or is not readable.

    A rule without a selector selects no devices.
    """
    spec = object_at(document, "spec")
    selector = spec.get("deviceSelector")
    taint = next(read_taints([spec.get("taint")]), None)
    if selector is None or taint is None or not taint.keeps_out:
        return None
    names = [object_at(spec, "deviceSelector").get(key) for key in ("driver", "pool", "device")]
    return TaintRule(taint, *names) if all(name is None or isinstance(name, str) for name in names) else None


class TaintRules:
    """The DeviceTaintRules of a cluster. Linear in the devices, however many rules there are."""

    __slots__ = ("_kinds", "_pools", "_taints")

    def __init__(self, rules: Iterable[TaintRule] = ()) -> None:
        self._taints: dict[tuple[str | None, ...], list[Taint]] = {}
        for rule in rules:
            self._taints.setdefault((rule.driver, rule.pool, rule.device), []).append(rule.taint)
        self._pools = {names[:2] for names in self._taints}
        self._kinds: dict[tuple[DeviceKind, tuple[Taint, ...]], DeviceKind] = {}

    def applied(self, resource_slice: ResourceSlice) -> ResourceSlice:
        """Return a slice whose devices have the taints of the rules too."""
        pools = set(product((resource_slice.driver, None), (resource_slice.pool, None))) & self._pools
        if not pools:
            return resource_slice
        devices = tuple(
            (name, self._tainted(kind, [taint for pool in pools for taint in self._of(pool, name)]))
            for name, kind in resource_slice.devices
        )
        kinds = tuple(Counter(kind for _, kind in devices).items())
        return resource_slice._replace(devices=devices, kinds=kinds)

    def _of(self, pool: tuple[str | None, ...], device: str) -> list[Taint]:
        return self._taints.get((*pool, None), []) + self._taints.get((*pool, device), [])

    def _tainted(self, kind: DeviceKind, taints: list[Taint]) -> DeviceKind:
        """Return the kind with further taints; equal ones are one object."""
        added = tuple(sorted({*taints} - {*kind.taints}))
        if not added:
            return kind
        return self._kinds.setdefault((kind, added), replace(kind, taints=kind.taints + added))
