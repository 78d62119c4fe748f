"""Extended resources that stand for accelerators, and the devices that a container or a pod requests.

Source of the sum over containers: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple, TypeVar

from rules.cuda.tables import read_table
from rules.kube.pod import Container
from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.bounded_cache import bounded_cache
from rules.text.glob import glob

T = TypeVar("T")
# Resources, each with how many of it a node must have.
Amounts = tuple[tuple[str, int], ...]

# Cached sets of names of resources, and maximum characters of one; a cluster has some dozen.
_REMEMBERED: Final = 1024
_LONGEST: Final = 1024


class GpuResource(NamedTuple):
    """The accelerator that a resource stands for."""

    vendor: str  # its name
    units: int  # of the resource in one device; 0: the amount is not a number of devices
    slices: bool  # it is one profile of MIG devices
    shares: str = ""  # the resource that nodes offer instead, if only a scheduler knows this one


class GpuResources(NamedTuple):
    """The accelerators among names of resources."""

    resources: tuple[tuple[str, GpuResource], ...]
    vendors: frozenset[str]
    slices: int  # number of MIG profiles


class RequestedGpus(NamedTuple):
    """The devices that a container requests."""

    name: str  # of the resource
    devices: int  # their number
    units: int  # as in GpuResource


def gpu_resource(name: str) -> GpuResource | None:
    """Return the accelerator that a resource stands for, or None."""
    return next((resource for pattern, resource in _table() if pattern.fullmatch(name)), None)


def gpu_patterns() -> tuple[tuple[re.Pattern[str], GpuResource], ...]:
    """Return the accelerators by compiled globs of resources; the first glob that matches a name counts."""
    return _table()


@cache
def vendor_of_image(accelerator: str) -> str | None:
    """Return the vendor of the accelerator that an image is built for; empty: it is for the CPU.

    None: unknown. accelerator: as in ImageFacts.
    """
    table = read_table("gpu_resources")
    vendor = table["images"].get(accelerator)
    return None if vendor is None else table["vendors"].get(vendor, "")


def is_network_device(name: str) -> bool:
    """Return whether a resource stands for a network device, which is not checked."""
    return any(pattern.fullmatch(name) for pattern in _networks())


def requested_gpus(container: Container) -> RequestedGpus | None:
    """Return the devices that a container requests; None if there are none, or their number is unknown.

    A share of a device counts as one device. The number is unknown if two resources are requested, which may
    stand for the same devices.
    """
    requested: RequestedGpus | None = None
    for name, resource in gpu_resources(container.names).resources:
        if not resource.units:
            continue
        count = _count(container.request(name), resource.units)
        if count is None or (count and requested):
            return None
        if count:
            requested = RequestedGpus(name, count, resource.units)
    return requested


def gpu_count(container: Container) -> int:
    """Return the number of devices that a container requests, for limits on them.

    A share of a device counts as one, and of several resources, which may stand for the same devices, the
    largest number counts.
    """
    count = 0
    for name, resource in gpu_resources(container.names).resources:
        devices = _count(container.request(name), resource.units or 1) or 0
        count = max(count, devices if resource.units else min(devices, 1))
    return count


def _gpu_resources(names: tuple[str, ...]) -> GpuResources:
    resources = tuple((name, gpu) for name in names if "/" in name and (gpu := gpu_resource(name)))
    vendors = frozenset(gpu.vendor for _, gpu in resources)
    return GpuResources(resources, vendors, sum(gpu.slices for _, gpu in resources))


def cached_by_names(find: Callable[[tuple[str, ...]], T]) -> Callable[[tuple[str, ...]], T]:
    """Return a function of the names of a container's resources, with a bounded cache."""
    return bounded_cache(find, _REMEMBERED, lambda names: sum(map(len, names)) <= _LONGEST)


# The accelerators among the names of resources.
gpu_resources: Final = cached_by_names(_gpu_resources)


def _count(quantity: object, units: int) -> int | None:
    """Return the number of devices; None if the quantity is invalid, which the resource's rule reports."""
    try:
        number = parse_quantity(quantity)
    except QuantityError:
        return None
    return max(1, int(number // units)) if number > 0 else 0


@cache
def _networks() -> tuple[re.Pattern[str], ...]:
    return tuple(glob(name) for row in read_table("gpu_resources")["networks"] for name in row["names"])


@cache
def _table() -> tuple[tuple[re.Pattern[str], GpuResource], ...]:
    table = read_table("gpu_resources")
    return tuple(
        (
            glob(name),
            GpuResource(
                table["vendors"][row["vendor"]],
                row.get("units", 0),
                row.get("slices", False),
                row.get("shares", ""),
            ),
        )
        for row in table["resources"]
        for name in row["names"]
    )


def requested_resources(container: Container) -> tuple[str, ...]:
    """Return the extended resources that a container requests of a node; a quantity of 0 is no request."""
    return tuple([name for name in container.offered_names if "/" in name])


def quantity_of(quantity: object) -> int:
    """Return a quantity as a whole number; 0 if it cannot be read."""
    try:
        return int(parse_quantity(quantity))
    except QuantityError:  # the resource's own rule reports it
        return 0
