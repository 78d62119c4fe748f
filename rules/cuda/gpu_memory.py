"""GPU memory: amounts as users write them, and the memory that a container requests of a shared GPU."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache, lru_cache
from math import ceil
from typing import Any, Final, NamedTuple

from rules.cuda.tables import read_table
from rules.kube.pod import Container
from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.glob import glob

MIB: Final = 2**20
# MiB of one GPU at most; the largest has 0.3 TiB. Karpenter writes random numbers for unknown labels.
MAX_MEMORY_MIB: Final = 4 * 1024 * 1024
_MIB_PER_GIB: Final = 1024
# The names of MIG profiles are rounded to whole GiB: a device has so much more at most.
ROUNDING_MIB: Final = 512


def parse_memory(text: str) -> int | None:
    """Return the MiB of an amount such as `40Gi`, rounded up; None if it is invalid.

    An amount below 1 MiB is invalid: it lacks its suffix.
    """
    try:
        size = Decimal(parse_quantity(text))
    except QuantityError:
        return None
    return ceil(size / MIB) if MIB <= size <= MAX_MEMORY_MIB * MIB else None


def shown(mib: int) -> str:
    """Return an amount as a quantity: `40Gi`, or `24564Mi`."""
    return f"{mib}Mi" if mib % _MIB_PER_GIB else f"{mib // _MIB_PER_GIB}Gi"


class RequestedMemory(NamedTuple):
    """The memory of a GPU that a container requests with a resource."""

    resource: str
    mib: int  # the maximum on one GPU
    unit: int  # bytes of one unit of the resource; 0 if its name contains the amount
    certain: bool  # the unit cannot be configured
    # Resources of a container, and labels and annotations of a pod, with which the amount is of several GPUs.
    several: tuple[str, ...] = ()

    def amount_for(self, mib: int) -> str:
        """Return the amount of the resource that is at least this memory."""
        return shown(mib) if self.unit == 1 else str(ceil(Decimal(mib) * MIB / self.unit))

    def amount_up_to(self, mib: int) -> str:
        """Return the largest amount of the resource that is at most this memory."""
        return shown(mib) if self.unit == 1 else str(mib * MIB // self.unit)


class _Row(NamedTuple):
    """A row of the table for one resource."""

    unit: int  # bytes
    gib: int  # from the name of a MIG profile, instead of the unit
    unless: tuple[tuple[str, int], ...]  # other resources that decide instead, from this amount on
    configurable: bool
    several: tuple[str, ...]


def requested_memory(container: Container) -> RequestedMemory | None:
    """Return the memory that a container requests; None if it requests none, or another resource decides."""
    for name in container.names:
        row = _row(name) if "/" in name else None
        if row is None or is_of_bytes(name, container.request(name)):
            continue
        if not (amount := _amount(container, name)):
            continue
        if any(
            other in container.names and _amount(container, other) >= least for other, least in row.unless
        ):
            continue
        if row.gib:
            return RequestedMemory(name, row.gib * _MIB_PER_GIB + ROUNDING_MIB, 0, certain=True)
        most = ceil(amount * row.unit / MIB)
        return RequestedMemory(name, most, row.unit, certain=not row.configurable, several=row.several)
    return None


def is_of_bytes(name: str, quantity: object) -> bool:
    """Return whether a quantity such as `8Gi` is meant in bytes, of a resource that counts larger units.

    The resource's own rule reports it; the number that it stands for means nothing.
    """
    return isinstance(quantity, str) and quantity.endswith("i") and unit_of(name) > 1


def unit_of(name: str) -> int:
    """Return the bytes of GPU memory that one of a resource is; 0 if they are unknown."""
    row = _row(name)
    return row.unit if row else 0


def _amount(container: Container, name: str) -> Decimal:
    """Return the amount of a resource; 0 if it is invalid, which its own rule reports."""
    try:
        return Decimal(parse_quantity(container.request(name) or 0))
    except QuantityError:
        return Decimal(0)


@lru_cache(maxsize=1024)  # names of resources; a cluster has some dozen
def _row(name: str) -> _Row | None:
    """Return the row of a resource; None if it is not memory, or its name does not contain the amount."""
    row = next((row for pattern, row in _rows() if pattern.fullmatch(name)), None)
    if row is None:
        return None
    profile = re.search(row["profile"], name, re.ASCII) if "profile" in row else None
    if "profile" in row and profile is None:
        return None
    return _Row(
        unit=int(parse_quantity(row.get("unit", 0))),
        gib=int(profile[1]) if profile else 0,
        unless=tuple(row.get("unless", {}).items()),
        configurable=row.get("configurable", False),
        several=tuple(row.get("several", ())),
    )


@cache
def _rows() -> tuple[tuple[re.Pattern[str], dict[str, Any]], ...]:
    return tuple((glob(name), row) for row in read_table("gpu_memory") for name in row["names"])
