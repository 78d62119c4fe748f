"""DeviceTaintRules, which add taints to the devices of ResourceSlices.

The versions v1 and v1beta2 are read. Without the API, or the right to read it, there are no rules.
Source: https://kubernetes.io/docs/reference/kubernetes-api/resource/device-taint-rule-v1/, and the tracker in
https://pkg.go.dev/k8s.io/dynamic-resource-allocation/resourceslice/tracker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from rules.kube.tolerations import Taint, read_taints
from rules.nodes.devices.devices import DeviceKind
from rules.nodes.devices.slices import ResourceSlice
from rules.text.paths import object_at


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
