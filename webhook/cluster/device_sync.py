"""Device sync: keeps the state of Dynamic Resource Allocation up to date with its objects.

Thousands of ResourceSlices may change at once, so a new state is made once in a second at most.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from certs.periodic_task import PeriodicTask
from rules.nodes.devices.device_classes import DeviceClass, DeviceClasses, read_device_class
from rules.nodes.devices.devices import KindPool, Problem
from rules.nodes.devices.slices import (
    DeviceInventory,
    ResourceSlice,
    TaintRule,
    TaintRules,
    read_slice,
    read_taint_rule,
)
from rules.nodes.devices.state import DEVICE_CLASS, SLICE, TAINT_RULE, ClaimKey, DraState, claim_key
from rules.nodes.label_index import ShardedDict
from webhook.cluster.reflector import Applied, Change, Deleted, Listed
from webhook.cluster.resource import Object, Resource, dra_resources

_log = logging.getLogger("gpugate.cluster")

# Seconds between two states: 80,000 devices take 0.1 s to sum up. Without changes there is nothing to do.
_COOLDOWN_S: Final = 1.0
_IDLE_S: Final = 3600.0
# Problems that are logged in the life of a process.
_MOST_PROBLEMS: Final = 100
# Key of the read slice in the objects that a reflector passes on.
_READ: Final = "read"

ClaimMap = ShardedDict[ClaimKey, Any]


class DeviceSync:
    """Keeps the slices, taint rules and classes, and passes on each new state. set_state: may be slow."""

    def __init__(self, set_state: Callable[[DraState], None]) -> None:
        self._set_state = set_state
        self._lock = threading.Lock()
        self._passing = threading.Lock()  # each kind is watched by its own thread
        self._pool = KindPool()
        self._swept = False
        self._slices: dict[str, ResourceSlice] = {}
        self._taint_rules: dict[str, TaintRule] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._passed: tuple[list[ResourceSlice], list[TaintRule], list[DeviceClass]] = [], [], []
        self._logged: set[Problem] = set()
        self._task = PeriodicTask(
            "devices", self.update, lambda: _IDLE_S, lambda _: None, (), cooldown=lambda: _COOLDOWN_S
        )

    def resources(self) -> dict[str, Resource]:
        """Return the watched resources, by kind. The slices of a page are read before the next page is."""
        resources = dra_resources()
        return {**resources, SLICE: replace(resources[SLICE], read=self._read_slice)}

    def start(self) -> None:
        """Start to pass on states after changes."""
        self._task.start(_IDLE_S)

    def stop(self) -> None:
        """Stop."""
        self._task.stop()

    def on_change(self, kind: str, change: Change) -> None:
        """Apply a change of one kind. After a list, the state is passed on before this returns."""
        with self._lock:
            if kind == SLICE:
                _apply(self._slices, change, lambda document: document[_READ])
                if isinstance(change, Listed):
                    self._forget_kinds()
            elif kind == TAINT_RULE:
                _apply(self._taint_rules, change, read_taint_rule)
            elif kind == DEVICE_CLASS:
                _apply(self._classes, change, self._read_class)
        if isinstance(change, Listed):
            self.update()
        else:
            self._task.trigger()

    def update(self) -> None:
        """Pass on the current state, unless it is equal to the last one."""
        with self._passing:  # an older state must not replace a newer one
            with self._lock:
                slices, taint_rules, classes = known = (
                    [*self._slices.values()],
                    [*self._taint_rules.values()],
                    [*self._classes.values()],
                )
                self._swept = False
            if known != self._passed:
                devices = DeviceInventory(map(TaintRules(taint_rules).applied, slices))
                self._set_state(DraState(devices, DeviceClasses(classes)))
                self._passed = known

    def _forget_kinds(self) -> None:
        """Forget kinds of devices that no slice has any more."""
        self._pool.keep(kind for resource_slice in self._slices.values() for kind, _ in resource_slice.kinds)

    def _read_slice(self, document: Object) -> Object:
        resource_slice, problems = read_slice(document, self._pool)
        if (
            resource_slice
            and not self._swept
            and any(kind.hidden is None for kind, _ in resource_slice.kinds)
        ):
            # There are too many kinds. Forgetting old ones may make room; it takes time for all slices, so it
            # is tried once for each state.
            with self._lock:
                self._swept = True
                self._forget_kinds()
            resource_slice, problems = read_slice(document, self._pool)
        self._log_problems(problems)
        return {"metadata": document["metadata"], _READ: resource_slice}

    def _read_class(self, document: Object) -> DeviceClass | None:
        device_class, problems = read_device_class(document)
        self._log_problems(problems)
        return device_class

    def _log_problems(self, problems: list[Problem]) -> None:
        """Log each problem once, and not more than a hundred."""
        for problem in problems:
            if problem not in self._logged and len(self._logged) < _MOST_PROBLEMS:
                self._logged.add(problem)
                _log.warning("%s: cannot read %s: %.100r", *problem)


def _apply(known: dict[str, Any], change: Change, read: Callable[[Object], Any]) -> None:
    """Apply a change to objects by their names."""
    match change:
        case Listed(objects):
            known.clear()
            known.update(
                (document["metadata"]["name"], value) for document in objects if (value := read(document))
            )
        case Applied(document):
            if value := read(document):
                known[document["metadata"]["name"]] = value
            else:
                known.pop(document["metadata"]["name"], None)
        case Deleted(document):
            known.pop(document["metadata"]["name"], None)


def with_claims(claims: ClaimMap, kind: str, change: Change) -> ClaimMap:
    """Return claims and templates after a change of one kind."""
    after: ClaimMap = ShardedDict() if isinstance(change, Listed) else claims.copy()
    if isinstance(change, Listed):
        for key, claim in claims.items():
            if key[0] != kind:
                after.put(key, claim)
        for claim in change.objects:
            after.put(claim_key(kind, claim), claim)
    else:
        claim = change.object
        after.put(claim_key(kind, claim), None if isinstance(change, Deleted) else claim)
    return after
