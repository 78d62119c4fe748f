"""Device sync: keeps the state of Dynamic Resource Allocation by changes of its objects.

ResourceSlices may come by the thousand at once, so the state is made anew at most some times a second.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from certs.periodic_task import PeriodicTask
from rules.nodes.devices.device_classes import DeviceClass, DeviceClasses, read_device_class
from rules.nodes.devices.devices import KindPool, Problem
from rules.nodes.devices.slices import DeviceInventory, ResourceSlice, read_slice
from rules.nodes.devices.state import DEVICE_CLASS, SLICE, ClaimKey, DraState, claim_key
from rules.nodes.label_index import ShardedDict
from webhook.cluster.reflector import Applied, Change, Deleted, Listed
from webhook.cluster.resource import Object, Resource, dra_resources

_log = logging.getLogger("gpugate.cluster")

# Seconds between two states: 80,000 devices take 0.1 s to sum up. Without changes there is nothing to do.
_COOLDOWN_S: Final = 1.0
_IDLE_S: Final = 3600.0
# Problems that are logged in the life of a process.
_MOST_PROBLEMS: Final = 100
# Where a read object is kept in what a reflector passes on.
_READ: Final = "read"

ClaimMap = ShardedDict[ClaimKey, Any]


class DeviceSync:
    """Keeps slices and classes as they change, and passes each state on. set_state: may be slow."""

    def __init__(self, set_state: Callable[[DraState], None]) -> None:
        self._set_state = set_state
        self._lock = threading.Lock()
        self._passing = threading.Lock()  # each kind is watched by its own thread
        self._pool = KindPool()
        self._swept = False
        self._slices: dict[str, ResourceSlice] = {}
        self._classes: dict[str, DeviceClass] = {}
        self._passed: tuple[list[ResourceSlice], list[DeviceClass]] = [], []
        self._told: set[Problem] = set()
        self._task = PeriodicTask(
            "devices", self.update, lambda: _IDLE_S, lambda _: None, (), cooldown=lambda: _COOLDOWN_S
        )

    def resources(self) -> dict[str, Resource]:
        """Return what is watched, by kind; slices are read before the next page of a list is."""
        found = dra_resources()
        return {**found, SLICE: replace(found[SLICE], read=self._read_slice)}

    def start(self) -> None:
        """Start to pass on states after changes."""
        self._task.start(_IDLE_S)

    def stop(self) -> None:
        """Stop."""
        self._task.stop()

    def on_change(self, kind: str, change: Change) -> None:
        """Apply a change of slices or classes. After a list the state is passed on before this returns."""
        with self._lock:
            if kind == SLICE:
                _apply(self._slices, change, lambda found: found[_READ])
                if isinstance(change, Listed):
                    self._forget_kinds()
            elif kind == DEVICE_CLASS:
                _apply(self._classes, change, self._read_class)
        if isinstance(change, Listed):
            self.update()
        else:
            self._task.trigger()

    def update(self) -> None:
        """Pass on the state of what is known now, unless it is the last one."""
        with self._passing:  # an older state must not replace a newer one
            with self._lock:
                slices, classes = known = [*self._slices.values()], [*self._classes.values()]
                self._swept = False
            if known != self._passed:
                self._set_state(DraState(DeviceInventory(slices), DeviceClasses(classes)))
                self._passed = known

    def _forget_kinds(self) -> None:
        """Forget kinds of devices that are gone."""
        self._pool.keep(each for one in self._slices.values() for each, _ in one.kinds)

    def _read_slice(self, document: Object) -> Object:
        found, problems = read_slice(document, self._pool)
        if found and not self._swept and any(kind.hidden is None for kind, _ in found.kinds):
            # There are too many kinds, perhaps because of those that are gone. It is tried once for each
            # state, as it takes time for all slices.
            with self._lock:
                self._swept = True
                self._forget_kinds()
            found, problems = read_slice(document, self._pool)
        self._tell(problems)
        return {"metadata": document["metadata"], _READ: found}

    def _read_class(self, document: Object) -> DeviceClass | None:
        found, problems = read_device_class(document)
        self._tell(problems)
        return found

    def _tell(self, problems: list[Problem]) -> None:
        """Log each problem once, and not more than a hundred."""
        for each in problems:
            if each not in self._told and len(self._told) < _MOST_PROBLEMS:
                self._told.add(each)
                _log.warning("%s: cannot read %s: %.100r", *each)


def _apply(known: dict[str, Any], change: Change, read: Callable[[Object], Any]) -> None:
    """Apply a change to objects by their names."""
    match change:
        case Listed(objects):
            known.clear()
            known.update((each["metadata"]["name"], found) for each in objects if (found := read(each)))
        case Applied(one):
            if found := read(one):
                known[one["metadata"]["name"]] = found
            else:
                known.pop(one["metadata"]["name"], None)
        case Deleted(one):
            known.pop(one["metadata"]["name"], None)


def with_claims(claims: ClaimMap, kind: str, change: Change) -> ClaimMap:
    """Return claims and templates after a change of those of a kind."""
    after: ClaimMap = ShardedDict() if isinstance(change, Listed) else claims.copy()
    if isinstance(change, Listed):
        for key, each in claims.items():
            if key[0] != kind:
                after.put(key, each)
        for found in change.objects:
            after.put(claim_key(kind, found), found)
    else:
        found = change.object
        after.put(claim_key(kind, found), None if isinstance(change, Deleted) else found)
    return after
