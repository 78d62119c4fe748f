"""Label families: which node labels report a version or another fact.

Also the labels of a GPU that a node loses while it is repaired or partitioned.
Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from rules.cuda.tables import read_table
from rules.cuda.versions import DriverVersion
from rules.kube.names import parse_int64
from rules.text.glob import glob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


# The parts of a version, major first; compared as numbers.
Version = tuple[int, ...]


class LabelFamily(Struct, frozen=True):
    """The labels in which one publisher reports a version. A node has the family if it has the first key."""

    keys: tuple[str, ...]  # one for the whole version (`12.4`), or one for each part, major first

    @property
    def key(self) -> str:
        """The first label, on which the presence of the family depends."""
        return self.keys[0]

    @property
    def whole(self) -> bool:
        """Whether one label holds the whole version."""
        return len(self.keys) == 1

    @property
    def needed(self) -> int:
        """The minimum number of parts of a valid version."""
        return 2

    @property
    def limit(self) -> int:
        """The exclusive upper bound of a part: Karpenter writes random numbers on new nodes."""
        return 100

    def number(self, part: str) -> int | None:
        """Return the number of a written part, or None if it is invalid."""
        number = parse_int64(part)
        return number if number is not None and number < self.limit else None

    def parts(self, labels: Mapping[str, str]) -> list[str]:
        """Return the version's parts as written; empty if a label is absent. The family must be present."""
        return labels[self.key].split(".") if self.whole else [labels.get(key, "") for key in self.keys]

    def version(self, labels: Mapping[str, str]) -> Version | None:
        """Return major and minor, or None if one of them is not a number."""
        major, minor = (self.number(part) for part in [*self.parts(labels), ""][:2])
        return None if major is None or minor is None else (major, minor)


class DriverFamily(LabelFamily, frozen=True):
    """The labels in which one publisher reports the version of a driver: 535.104.05, or 570.26."""

    @property
    def needed(self) -> int:
        """The minimum number of parts: the branch is enough."""
        return 1

    @property
    def limit(self) -> int:
        """The exclusive upper bound of a part; branches have three digits."""
        return 10_000

    def text(self, labels: Mapping[str, str]) -> str:
        """Return the version as nvidia-smi prints it; the revision may be empty."""
        return ".".join(self.parts(labels)).rstrip(".")

    def version(self, labels: Mapping[str, str]) -> Version | None:
        """Return two parts or more, or None if the version is invalid."""
        driver = DriverVersion.parse(self.text(labels))
        if driver is None or max(driver.numbers) >= self.limit:
            return None
        return (*driver.numbers, *(0,) * (2 - len(driver.numbers)))


def read_families(lines: Iterable[str]) -> tuple[LabelFamily, ...]:
    """Return one family per line; its keys are separated by spaces."""
    return tuple(LabelFamily(tuple(line.split())) for line in lines)


def read_driver_families(lines: Iterable[str]) -> tuple[DriverFamily, ...]:
    """Return one family of driver versions per line; its keys are separated by spaces."""
    return tuple(DriverFamily(tuple(line.split())) for line in lines)


_built_in = cache(partial(read_table, "labels"))


def _names(fact: str, read: Callable[[Iterable[str]], Any] = tuple) -> Any:
    """Return a field whose default comes from the table."""
    return field(default_factory=lambda: read(_built_in()[fact]))


@cache
def autoscaler_labels() -> tuple[str, ...]:
    """Return the labels that only an autoscaler writes, on the nodes that it adds."""
    return tuple(_built_in()["autoscaler"])


@cache
def pool_labels() -> tuple[str, ...]:
    """Return the labels whose values name the pool of a node, the most exact first."""
    return tuple(_built_in()["pool"])


def gpu_labels() -> tuple[str, ...]:
    """Return the labels that only a node with GPUs has, even if it does not offer them now."""
    return (*_built_in()["product"], *_built_in()["gpuPresent"])


def gpu_count_label() -> str:
    """Return the label with the number of GPUs of a node; of their MIG devices by strategy `single`."""
    label: str = _built_in()["gpuCount"]
    return label


# The built-in injection rule with gpu_tolerations; an administrator may enable it.
TOLERATIONS_RULE: Final = "injection-gpu-tolerations"


def gpu_tolerations() -> list[dict[str, str]]:
    """Return the tolerations that TOLERATIONS_RULE adds, as JSON."""
    return list(_built_in()["gpuTolerations"])


@cache
def gpu_resource_domains() -> frozenset[str]:
    """Return the domains of the extended resources that stand for GPUs."""
    return frozenset(_built_in()["gpuResources"])


class LabelNames(Struct, frozen=True):
    """The node labels that report each fact, by default from `facts/labels.yaml`.

    The first label that a node has is used, even if it is invalid.
    """

    cuda: tuple[LabelFamily, ...] = _names("cuda", read_families)
    driver: tuple[DriverFamily, ...] = _names("driver", read_driver_families)
    compute_capability: tuple[LabelFamily, ...] = _names("computeCapability", read_families)
    product: tuple[str, ...] = _names("product")
    memory: tuple[str, ...] = _names("memory")
    mig_strategy: tuple[str, ...] = _names("migStrategy")
    mig_devices: tuple[str, ...] = _names(
        "migDevices"
    )  # globs; only nodes with MIG devices have these labels
    sharing_strategy: tuple[str, ...] = _names("sharingStrategy")
    device_mode: tuple[str, ...] = _names("deviceMode")
    architecture: tuple[str, ...] = _names("architecture")
    runtime_mode: tuple[str, ...] = _names("runtimeMode")
    toolkit_version: tuple[str, ...] = _names("toolkitVersion")

    def among(self, keys: Iterable[str]) -> list[str]:
        """Return the label keys that report a fact."""
        families = chain(self.cuda, self.driver, self.compute_capability)
        texts = (self.product, self.memory, self.mig_strategy, self.sharing_strategy)
        known = {key for family in families for key in family.keys}
        known = known.union(*texts, self.device_mode, self.architecture)
        known = known.union(self.runtime_mode, self.toolkit_version)
        return [key for key in keys if key in known or self.is_of_mig(key)]

    def is_of_mig(self, key: str) -> bool:
        """Return whether only a node with MIG devices has a label with this key."""
        return any(pattern.fullmatch(key) for pattern in _globs(self.mig_devices))


@lru_cache(maxsize=64)
def _globs(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(glob, patterns))


_NAMES = LabelNames()
_CUDA, _DRIVER, _COMPUTE = (
    frozenset(key for family in families for key in family.keys)
    for families in (_NAMES.cuda, _NAMES.driver, _NAMES.compute_capability)
)
# The labels of each fact; a node with GPUs has at least one of each.
_FACTS: tuple[frozenset[str], ...] = (
    _CUDA,
    _DRIVER,
    _COMPUTE,
    frozenset(_NAMES.product),
    frozenset(_NAMES.memory),
)


def report_driver(keys: Iterable[str]) -> bool:
    """Return whether any of these labels reports the driver or its CUDA version."""
    return not (_CUDA | _DRIVER).isdisjoint(keys)


def lost_labels(before: Mapping[str, str], after: Iterable[str]) -> dict[str, str]:
    """Return the labels of each fact that a node no longer reports by any label.

    before: its former labels.
    after: the keys of its current labels.
    """
    present = set(after)
    lost = (keys for keys in _FACTS if present.isdisjoint(keys))
    return {key: before[key] for keys in lost for key in sorted(keys & before.keys())}
