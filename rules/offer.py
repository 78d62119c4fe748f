"""What a node offers, read from its labels and its allocatable resources.

Sources: https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery (label names),
https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rules.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Major and minor; compared as numbers.
Version = tuple[int, int]

# A DNS subdomain, but for its length of 253 at most:
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
SUBDOMAIN: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:(?=[^/]{{1,253}}/){SUBDOMAIN}/)?{_NAME}")
_KEY_LENGTH = 253 + len("/") + 63
_LABEL_VALUE = re.compile(rf"(?:{_NAME})?")
# A label value cannot hold a sign, and has 63 characters at most.
_DIGITS = re.compile(r"[0-9]{1,63}")
_DOTTED = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_INT64_MAX = 2**63 - 1


# Keys repeat in every node. Longer ones, which a hostile pod may have, must not fill the cache.
_match_key = lru_cache(maxsize=4096)(_LABEL_KEY.fullmatch)


def is_label_key(key: object) -> bool:
    """Tell whether Kubernetes accepts it as the key of a label."""
    return isinstance(key, str) and len(key) <= _KEY_LENGTH and _match_key(key) is not None


def is_label_value(value: object) -> bool:
    """Tell whether Kubernetes accepts it as the value of a label."""
    return isinstance(value, str) and _LABEL_VALUE.fullmatch(value) is not None


def parse_int64(text: str) -> int | None:
    """Return the number that a label value stands for in Gt and Lt, or None where it stands for none."""
    number = int(text) if _DIGITS.fullmatch(text) else None
    return number if number is not None and number <= _INT64_MAX else None


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

    def parts(self, labels: Mapping[str, str]) -> list[str]:
        """Return the version's parts as written; empty where a label is absent. The family must speak."""
        if len(self.keys) == 1:
            return labels[self.key].split(".")
        return [labels.get(key, "") for key in self.keys]

    def version(self, labels: Mapping[str, str]) -> Version | None:
        """Return major and minor, or None where one of them is no number."""
        major, minor = (parse_int64(part) for part in [*self.parts(labels), ""][:2])
        return None if major is None or minor is None else (major, minor)


def _families(*keys: str) -> tuple[LabelFamily, ...]:
    return tuple(LabelFamily(tuple(line.split())) for line in keys)


@dataclass(frozen=True, slots=True)
class LabelNames:
    """Which labels tell what of a node: of each fact the first that the node carries, readable or not.

    The labels of GPU Feature Discovery go before those of the node agent (`gpugate.dev/`).
    """

    # GPU Feature Discovery's "runtime" is the CUDA version of the driver's API, not a toolkit's.
    cuda: tuple[LabelFamily, ...] = _families(
        "cuda-major-version cuda-minor-version",
        "nvidia.com/cuda.runtime-version.major nvidia.com/cuda.runtime-version.minor",
        "nvidia.com/cuda.runtime-version.full",
        "nvidia.com/cuda.runtime.major nvidia.com/cuda.runtime.minor",
    )
    driver: tuple[LabelFamily, ...] = _families(
        "nvidia.com/cuda.driver-version.full",
        "nvidia.com/cuda.driver-version.major nvidia.com/cuda.driver-version.minor"
        " nvidia.com/cuda.driver-version.revision",
        "nvidia.com/cuda.driver.major nvidia.com/cuda.driver.minor nvidia.com/cuda.driver.rev",
        "gpugate.dev/cuda.driver-version.full",
    )
    compute_capability: tuple[LabelFamily, ...] = _families(
        "nvidia.com/gpu.compute.major nvidia.com/gpu.compute.minor",
        "gpugate.dev/gpu.compute.major gpugate.dev/gpu.compute.minor",
    )
    product: tuple[str, ...] = ("nvidia.com/gpu.product", "gpugate.dev/gpu.product")
    memory: tuple[str, ...] = ("nvidia.com/gpu.memory", "gpugate.dev/gpu.memory")
    mig_strategy: tuple[str, ...] = ("nvidia.com/mig.strategy", "gpugate.dev/mig.strategy")
    sharing_strategy: tuple[str, ...] = ("nvidia.com/gpu.sharing-strategy",)
    device_mode: tuple[str, ...] = ("nvidia-device-enable",)
    device_modes: frozenset[str] = frozenset({"pgpu", "vgpu", "mps"})


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node tells of its GPUs; None where it tells nothing that can be read.

    cuda: the highest CUDA version that the driver's API has. driver: its version as nvidia-smi prints it
    (`535.104.05`). memory_mib: MiB of one GPU. device_mode: one of LabelNames.device_modes.
    """

    cuda: Version | None = None
    driver: str | None = None
    compute_capability: Version | None = None
    product: str | None = None
    memory_mib: int | None = None
    mig_strategy: str | None = None
    sharing_strategy: str | None = None
    device_mode: str | None = None


class Problem(NamedTuple):
    """A label or a quantity of a node that cannot be read; what it would tell stays unknown."""

    node: str
    key: str
    value: str


class NodeReader:
    """Reads one node; what cannot be read is None and goes to `problems`.

    labels: those of its labels that Kubernetes would accept.
    """

    __slots__ = ("_name", "labels", "problems")

    def __init__(self, name: str, labels: Mapping[Any, Any]) -> None:
        self._name = name
        self.problems: list[Problem] = []
        self.labels: dict[str, str] = {}
        for key, value in labels.items():
            if is_label_key(key) and is_label_value(value):
                self.labels[key] = value
            else:
                self._report(key, value)

    def offer(self, names: LabelNames) -> Offer:
        """Return what the labels tell of the node's GPUs."""
        return Offer(
            cuda=self._version(names.cuda),
            driver=self._driver(names.driver),
            compute_capability=self._version(names.compute_capability),
            product=self._text(names.product),
            memory_mib=self._number(names.memory),
            mig_strategy=self._text(names.mig_strategy),
            sharing_strategy=self._text(names.sharing_strategy),
            device_mode=self._text(names.device_mode, names.device_modes),
        )

    def resources(self, allocatable: Mapping[Any, Any]) -> frozenset[str]:
        """Return the names of the resources of which the node has any."""
        return frozenset(name for name, quantity in allocatable.items() if self._has(name, quantity))

    def _has(self, name: object, quantity: object) -> bool:
        try:
            return parse_quantity(quantity) > 0
        except QuantityError:
            self._report(name, quantity)
            return False

    def _report(self, key: object, value: object) -> None:
        self.problems.append(Problem(self._name, str(key), str(value)))

    def _version(self, families: Iterable[LabelFamily]) -> Version | None:
        family = next((family for family in families if family.key in self.labels), None)
        if family is None:
            return None
        version = family.version(self.labels)
        if version is None:
            parts = zip(family.keys, family.parts(self.labels), strict=False)
            key = next((key for key, part in parts if parse_int64(part) is None), family.key)
            self._report(key, self.labels.get(key, ""))
        return version

    def _driver(self, families: Iterable[LabelFamily]) -> str | None:
        family = next((family for family in families if family.key in self.labels), None)
        if family is None:
            return None
        # The revision is empty where the driver's version has two parts only.
        text = ".".join(family.parts(self.labels)).rstrip(".")
        if _DOTTED.fullmatch(text):
            return text
        self._report(family.key, self.labels[family.key])
        return None

    def _text(self, keys: Iterable[str], allowed: frozenset[str] | None = None) -> str | None:
        key = next((key for key in keys if key in self.labels), None)
        if key is None:
            return None
        value = self.labels[key]
        if allowed is None or value in allowed:
            return value or None
        self._report(key, value)
        return None

    def _number(self, keys: Iterable[str]) -> int | None:
        text = self._text(keys)
        number = None if text is None else parse_int64(text)
        if text is not None and number is None:
            self._report(next(key for key in keys if key in self.labels), text)
        return number
