"""Which labels of nodes tell what, and what Kubernetes accepts as one.

Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from rules.cuda.tables import read_table
from rules.cuda.versions import DriverVersion
from rules.kube.names import parse_int64
from rules.text.glob import glob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# The parts of a version, from the major on; compared as numbers.
Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LabelFamily:
    """The labels in which one publisher tells a version.

    keys: one for the whole version (`12.4`), or one for each of its parts, from the major on. A family speaks
    on the nodes that carry its first key.
    """

    keys: tuple[str, ...]

    @property
    def key(self) -> str:
        """The label that makes the family speak."""
        return self.keys[0]

    @property
    def whole(self) -> bool:
        """Whether one label tells the whole version."""
        return len(self.keys) == 1

    @property
    def needed(self) -> int:
        """The number of parts without which it tells nothing."""
        return 2

    def parts(self, labels: Mapping[str, str]) -> list[str]:
        """Return the version's parts as written; empty where a label is absent. The family must speak."""
        return labels[self.key].split(".") if self.whole else [labels.get(key, "") for key in self.keys]

    def version(self, labels: Mapping[str, str]) -> Version | None:
        """Return major and minor, or None where one of them is no number."""
        major, minor = (parse_int64(part) for part in [*self.parts(labels), ""][:2])
        return None if major is None or minor is None else (major, minor)


class DriverFamily(LabelFamily):
    """The labels in which one publisher tells the version of a driver: 535.104.05, or 570.26."""

    __slots__ = ()

    @property
    def needed(self) -> int:
        """The branch is enough."""
        return 1

    def text(self, labels: Mapping[str, str]) -> str:
        """Return the version as nvidia-smi prints it; its revision may be empty."""
        return ".".join(self.parts(labels)).rstrip(".")

    def version(self, labels: Mapping[str, str]) -> Version | None:
        """Return two parts or more, or None where it is no version."""
        driver = DriverVersion.parse(self.text(labels))
        return (*driver.numbers, *(0,) * (2 - len(driver.numbers))) if driver else None


def read_families(lines: Iterable[str]) -> tuple[LabelFamily, ...]:
    """Return families from texts with the keys of one each, parted by blanks."""
    return tuple(LabelFamily(tuple(line.split())) for line in lines)


def read_driver_families(lines: Iterable[str]) -> tuple[DriverFamily, ...]:
    """Return families that tell a driver's version, likewise."""
    return tuple(DriverFamily(tuple(line.split())) for line in lines)


_shipped = cache(partial(read_table, "labels"))


def _names(fact: str, read: Callable[[Iterable[str]], Any] = tuple) -> Any:
    """Return a field whose default stands in the table."""
    return field(default_factory=lambda: read(_shipped()[fact]))


@dataclass(frozen=True, slots=True)
class LabelNames:
    """Which labels tell what of a node: of each fact the first that the node carries, readable or not.

    Those of `data/labels.yaml`, but for what is given. mig_devices: globs of labels that only a node with MIG
    slices has.
    """

    cuda: tuple[LabelFamily, ...] = _names("cuda", read_families)
    driver: tuple[DriverFamily, ...] = _names("driver", read_driver_families)
    compute_capability: tuple[LabelFamily, ...] = _names("computeCapability", read_families)
    product: tuple[str, ...] = _names("product")
    memory: tuple[str, ...] = _names("memory")
    mig_strategy: tuple[str, ...] = _names("migStrategy")
    mig_devices: tuple[str, ...] = _names("migDevices")
    sharing_strategy: tuple[str, ...] = _names("sharingStrategy")
    device_mode: tuple[str, ...] = _names("deviceMode")

    def among(self, keys: Iterable[str]) -> list[str]:
        """Return those of the keys of labels that tell anything."""
        families = chain(self.cuda, self.driver, self.compute_capability)
        texts = (self.product, self.memory, self.mig_strategy, self.sharing_strategy, self.device_mode)
        known = {key for family in families for key in family.keys}.union(*texts)
        return [key for key in keys if key in known or self.is_of_mig(key)]

    def is_of_mig(self, key: str) -> bool:
        """Tell whether only a node with MIG slices has a label of this key."""
        return any(pattern.fullmatch(key) for pattern in _globs(self.mig_devices))


@lru_cache(maxsize=64)
def _globs(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(glob, patterns))
