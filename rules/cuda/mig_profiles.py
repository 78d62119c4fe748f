"""MIG profiles: their resources, the GPUs that have them, and known names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Final

from msgspec import Struct

from rules.cuda.tables import read_table

_TABLE: Final = "mig_profiles"
_PARTS: Final = re.compile(r"(\d+)g\.(\d+)gb", re.ASCII)


class MigGpu(Struct, frozen=True, eq=False):
    """A GPU with MIG. Compares by identity."""

    __hash__ = object.__hash__

    name: str
    label: re.Pattern[str]
    profiles: Mapping[str, int]  # with the number of devices of one GPU


@lru_cache(maxsize=1024)  # names of resources; a cluster has some dozen
def profile_of(resource: str) -> str:
    """Return the profile of a resource, without attributes; empty if its name has none."""
    match = _resource().fullmatch(resource)
    return match["profile"] if match else ""


@lru_cache(maxsize=1024)
def is_known(profile: str) -> bool:
    """Return whether a GPU has a profile, or one may have it whose profiles were not read."""
    if any(profile == name for name, *_ in _known()):
        return True
    slices, gigabytes = _parts(profile)
    return any(
        slices <= row["slices"] and gigabytes <= row["gigabytes"] for row in read_table(_TABLE)["unread"]
    )


def gpus_with(profile: str) -> tuple[str, ...]:
    """Return the names of the GPUs that have a profile."""
    return tuple(gpu.name for gpu in mig_gpus() if profile in gpu.profiles)


@lru_cache(maxsize=1024)
def nearest(profile: str) -> str:
    """Return the known profile that is most like one: of as many compute slices and as much memory."""
    slices, gigabytes = _parts(profile)
    return min(_known(), key=lambda row: (abs(row[1] - slices), abs(row[2] - gigabytes), row))[0]


def gpu_of(product: str) -> MigGpu | None:
    """Return the GPU of a product label; None if its profiles are unknown."""
    name = product.partition("-MIG-")[0].removeprefix("NVIDIA-").removesuffix("-SHARED")
    return next((gpu for gpu in mig_gpus() if gpu.label.fullmatch(name)), None)


@cache
def mig_gpus() -> tuple[MigGpu, ...]:
    """Return the GPUs whose profiles are known."""
    rows = read_table(_TABLE)["gpus"]
    return tuple(MigGpu(row["gpu"], re.compile(row["label"]), row["profiles"]) for row in rows)


@cache
def _resource() -> re.Pattern[str]:
    return re.compile(read_table(_TABLE)["resource"], re.ASCII)


@cache
def _known() -> tuple[tuple[str, int, int], ...]:
    """Return all profiles with their compute slices and GB."""
    return tuple({(name, *_parts(name)) for gpu in mig_gpus() for name in gpu.profiles})


def _parts(profile: str) -> tuple[int, int]:
    """Return compute slices and GB of a profile such as `3g.20gb`."""
    match = _PARTS.fullmatch(profile)
    return (int(match[1]), int(match[2])) if match else (0, 0)
