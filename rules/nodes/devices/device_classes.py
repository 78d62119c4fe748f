"""DeviceClasses: which devices they select, and the extended resources that nodes offer by them.

Source: https://kubernetes.io/docs/reference/kubernetes-api/resource/device-class-v1/; for extended resources
https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/5004-dra-extended-resource and
https://pkg.go.dev/k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from rules.kube.tolerations import tolerates
from rules.nodes.devices.device_configs import DeviceConfig, read_configs
from rules.nodes.devices.devices import MAX_NAME, DeviceKind, Problem
from rules.nodes.devices.selectors import MAX_LENGTH, Match, compile_selector
from rules.text.paths import object_at

# Each class has an extended resource of this name, in addition to the one that it names.
IMPLICIT_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
# Selectors of one class or request in Kubernetes.
MAX_SELECTORS: Final = 32
# Cached sets of devices with their resources; nodes of one pool have equal sets.
_REMEMBERED: Final = 1024

# The expressions of selectors, which must all be true; None: a selector that is not CEL, or unreadable.
Selectors = tuple[str | None, ...]


class DeviceClass(NamedTuple):
    """One DeviceClass."""

    name: str
    selectors: Selectors = ()
    extended_resource: str | None = None
    created: str = ""  # its time of creation in UTC as in RFC 3339, or empty
    configs: tuple[DeviceConfig, ...] = ()  # for the devices that it selects


class Offered(NamedTuple):
    """The devices of one extended resource of a node."""

    number: int
    kinds: tuple[DeviceKind, ...]
    complete: bool  # no further device may match


class DeviceClasses:
    """The DeviceClasses of a cluster, immutable.

    by_name: the classes by name.
    by_resource: the class in use for each extended resource.
    """

    __slots__ = ("_offered", "by_name", "by_resource")

    def __init__(self, classes: Iterable[DeviceClass] = ()) -> None:
        """Take the current classes.

        If several have the same extended resource, the newest is used, or the first by name if equally old.
        """
        self.by_name = {device_class.name: device_class for device_class in classes}
        last_wins = sorted(self.by_name.values(), key=attrgetter("name"), reverse=True)
        last_wins.sort(key=attrgetter("created"))
        self.by_resource: dict[str, DeviceClass] = {}
        for device_class in last_wins:
            if device_class.extended_resource:
                self.by_resource[device_class.extended_resource] = device_class
        self.by_resource |= {IMPLICIT_PREFIX + device_class.name: device_class for device_class in last_wins}
        self._offered: dict[tuple[tuple[DeviceKind, int], ...], Mapping[str, Offered]] = {}

    def offered(self, devices: Mapping[DeviceKind, int]) -> Mapping[str, Offered]:
        """Return the extended resources that a node offers, or may offer, with these devices."""
        key = tuple(devices.items())
        offered = self._offered.get(key)
        if offered is None:
            offers = ((name, _offer(by, devices)) for name, by in self.by_resource.items())
            offered = {name: offer for name, offer in offers if offer.number or not offer.complete}
            if len(self._offered) >= _REMEMBERED:
                self._offered.clear()
            self._offered[key] = offered
        return offered


def _offer(by: DeviceClass, devices: Mapping[DeviceKind, int]) -> Offered:
    number = 0
    kinds: list[DeviceKind] = []
    complete = True
    for kind, amount in devices.items():
        if not tolerates([], kind.taints):
            continue
        matches = match_all(by.selectors, kind).matches
        if matches and amount:
            number += amount
            kinds.append(kind)
        elif matches is not False:
            complete = False
    return Offered(number, tuple(kinds), complete)


def match_all(selectors: Selectors, kind: DeviceKind) -> Match:
    """Return whether devices of a kind match all selectors, which are evaluated in order as in Kubernetes.

    A selector that fails after an unknown one only excludes the device: the scheduler may not reach it.
    """
    unknown: Match | None = None
    for selector in selectors:
        match = _NOT_CEL if selector is None else compile_selector(selector).match(kind)
        if match.matches is False:
            return Match(False) if unknown else match
        if match.matches is None:
            unknown = unknown or match
    return unknown or Match(True)


_NOT_CEL: Final = Match(None, "a selector is not readable, or there are too many")


def read_selectors(raw: object) -> Selectors:
    """Return the expressions of `selectors`, as JSON."""
    if raw is None:
        return ()
    entries = raw if isinstance(raw, list) else [None]
    return tuple(_expression(entry) for entry in entries[:MAX_SELECTORS]) + (None,) * (
        len(entries) > MAX_SELECTORS
    )


def _expression(raw: object) -> str | None:
    expression = object_at(raw, "cel").get("expression")
    return expression if isinstance(expression, str) and len(expression) <= MAX_LENGTH else None


def read_device_class(document: object) -> tuple[DeviceClass | None, list[Problem]]:
    """Return a DeviceClass from JSON, None if it has no name, and problems of its fields."""
    metadata, spec = object_at(document, "metadata"), object_at(document, "spec")
    name, created = metadata.get("name"), metadata.get("creationTimestamp")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        return None, [Problem("DeviceClass", "metadata.name", str(name)[:MAX_NAME])]
    resource = spec.get("extendedResourceName")
    selectors = read_selectors(spec.get("selectors"))
    problems = [Problem(name, "spec.selectors", why) for why in _why_unknown(selectors)]
    if resource is not None and (not isinstance(resource, str) or not 0 < len(resource) <= MAX_NAME):
        problems.append(Problem(name, "spec.extendedResourceName", str(resource)[:MAX_NAME]))
        resource = None
    created = created if isinstance(created, str) else ""
    return DeviceClass(name, selectors, resource, created, read_configs(spec.get("config"))), problems


def _why_unknown(selectors: Selectors) -> Iterator[str]:
    for selector in selectors:
        if selector is None:
            yield _NOT_CEL.reason
        elif problem := compile_selector(selector).problem:
            yield problem
