"""Node capabilities, read from a node's labels and allocatable resources."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec import Struct

from rules.cuda.gpu_memory import MAX_MEMORY_MIB
from rules.cuda.tables import (
    BUILT_IN,
    Facts,
    GpuModel,
    LeastCuda,
    branch_of_cuda,
    gpu_model,
    least_cuda,
    minor_version_floor,
    newest_branch,
)
from rules.cuda.versions import CudaVersion, DriverVersion
from rules.kube.names import is_label_key, is_label_value, parse_int64
from rules.kube.quantity import QuantityError, parse_quantity
from rules.nodes.label_families import LabelFamily
from rules.nodes.runtime_modes import (
    UNKNOWN_RUNTIME,
    ContainerRuntime,
    RuntimeMode,
    runtime_of,
    toolkit_version,
)
from rules.text.i18n import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rules.nodes.label_families import DriverFamily, LabelNames

F = TypeVar("F", bound=LabelFamily)

# The known values of the label `nvidia-device-enable`.
DEVICE_MODES: Final = frozenset({"pgpu", "vgpu", "mps"})
MIG_STRATEGIES: Final = frozenset({"none", "single", "mixed"})
RUNTIME_MODES: Final = frozenset({RuntimeMode.LEGACY.value, RuntimeMode.CDI.value})
DEFAULT_PLATFORM: Final = "amd64"  # of the CPU, as in kubernetes.io/arch
# Part of the product label of GPU Feature Discovery if all GPUs are partitioned with MIG, as in
# `NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`.
_SLICE: Final = "-MIG-"


class NodeCapabilities(Struct, frozen=True, cache_hash=True):  # caches are keyed by it
    """The facts that the labels of a node report; None if a label is missing or invalid.

    cuda: the highest CUDA version of the driver's API.
    driver: its version as nvidia-smi prints it (`535.104.05`).
    memory_mib: MiB of one GPU.
    mig_devices: labels show that GPUs are partitioned with MIG.
    device_mode: one of DEVICE_MODES.
    architecture: of the CPU, as in kubernetes.io/arch.
    runtime: the container runtime.
    former_driver: cuda and driver are from some minutes ago, and may have changed.
    """

    cuda: tuple[int, int] | None = None
    driver: str | None = None
    compute_capability: tuple[int, int] | None = None
    product: str | None = None
    memory_mib: int | None = None
    mig_strategy: str | None = None
    mig_devices: bool = False
    sharing_strategy: str | None = None
    device_mode: str | None = None
    architecture: str | None = None
    runtime: ContainerRuntime = UNKNOWN_RUNTIME
    former_driver: bool = False
    # What is known of its driver and its GPU.
    facts: Facts = BUILT_IN

    @property
    def model(self) -> GpuModel | None:
        """The model of the GPU, by its product; None if that is unknown."""
        return gpu_model(self.facts, self.product) if self.product else None

    @property
    def gpu_capability(self) -> tuple[int, int] | None:
        """The compute capability of the GPU, by its label, or else by its product."""
        if self.compute_capability is None and (model := self.model) and model.status.certain:
            return model.compute
        return self.compute_capability

    @property
    def gpu_memory_mib(self) -> int | None:
        """MiB of one GPU, by its label, or else by its product."""
        if self.memory_mib is None and (model := self.model):
            return model.memory_mib
        return self.memory_mib

    @property
    def platform(self) -> str:
        """The CPU architecture by its label, or else by its product; most GPUs are in machines with amd64."""
        if self.architecture:
            return self.architecture
        return self.model.host if self.model else DEFAULT_PLATFORM


def branch_of(capabilities: NodeCapabilities) -> int | None:
    """Return the driver branch, by the driver's version, or else by its CUDA version; None if unknown."""
    if driver := driver_of(capabilities):
        return driver.branch
    return branch_of_cuda(capabilities.facts, capabilities.cuda) if capabilities.cuda else None


def driver_of(capabilities: NodeCapabilities) -> DriverVersion | None:
    """Return the driver version, or None if it is unknown."""
    return _parsed(capabilities.driver) if capabilities.driver else None


_parsed = lru_cache(maxsize=1024)(DriverVersion.parse)


def least_cuda_of(capabilities: NodeCapabilities) -> LeastCuda | None:
    """Return the lowest CUDA version that the driver can have; None if a label reports it, or it is unknown.

    For a branch that is newer than all known ones, `gpugate whatif` writes the version of the newest known
    branch, which is the lowest possible one.
    """
    driver, cuda = driver_of(capabilities), capabilities.cuda
    if driver is None or (cuda and driver.branch <= newest_branch(capabilities.facts)):
        return None
    least = least_cuda(capabilities.facts, driver.branch)
    return least if least and cuda in (None, least.cuda) else None


class DriverCuda(NamedTuple):
    """The CUDA version of a driver's API; not exact: the lowest that it can have."""

    version: CudaVersion
    exact: bool

    def __str__(self) -> str:
        return f"{'' if self.exact else '>='}{self.version}"


def cuda_of(capabilities: NodeCapabilities) -> DriverCuda | None:
    """Return the CUDA version by its label, or else by the driver; None if it is unknown."""
    if capabilities.cuda:
        return DriverCuda(CudaVersion(*capabilities.cuda), exact=True)
    if least := least_cuda_of(capabilities):
        return DriverCuda(least.cuda, branch_of(capabilities) == least.by)
    return None


def above_floor(capabilities: NodeCapabilities) -> bool:
    """Return whether the driver runs newer minor versions of its CUDA major; True if unknown."""
    driver, floor = (
        driver_of(capabilities),
        minor_version_floor(capabilities.facts, capabilities.cuda[0]) if capabilities.cuda else None,
    )
    return driver is None or floor is None or driver >= floor.value


def without_slice(product: str) -> str:
    """Return the product label of the whole GPU of a MIG device."""
    return product.partition(_SLICE)[0]


def is_slice(product: str) -> bool:
    """Return whether a product label names a MIG device."""
    return _SLICE in product


class Problem(NamedTuple):
    """An invalid label or quantity of a node; the fact that it reports is unknown."""

    node: str
    key: str
    value: str


class NodeReader:
    """Reads one node; an invalid value becomes None and is added to `problems`.

    labels: the valid labels.
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

    def capabilities(self, names: LabelNames, facts: Facts = BUILT_IN) -> NodeCapabilities:
        """Return the capabilities that the labels report."""
        product = self._text(names.product, implausible=str.isdecimal)
        return NodeCapabilities(
            cuda=self._version(names.cuda),
            driver=self._driver(names.driver),
            compute_capability=self._version(names.compute_capability),
            product=product,
            memory_mib=self._number(names.memory),
            mig_strategy=self._text(names.mig_strategy, MIG_STRATEGIES),
            mig_devices=is_slice(product or "") or any(map(names.is_of_mig, self.labels)),
            sharing_strategy=self._text(names.sharing_strategy),
            device_mode=self._text(names.device_mode, DEVICE_MODES),
            architecture=self._text(names.architecture),
            runtime=self._runtime(names),
            facts=facts,
        )

    def resources(self, allocatable: Mapping[Any, Any]) -> frozenset[str]:
        """Return the names of the resources with more than zero."""
        return frozenset(name for name, quantity in allocatable.items() if self._has(name, quantity))

    def _has(self, name: object, quantity: object) -> bool:
        try:
            return parse_quantity(quantity) > 0
        except QuantityError:
            self._report(name, quantity)
            return False

    def _report(self, key: object, value: object) -> None:
        self.problems.append(Problem(self._name, str(key), str(value)))

    def _version(self, families: Iterable[LabelFamily]) -> tuple[int, int] | None:
        family = _first_present(families, self.labels)
        if family is None:
            return None
        if version := family.version(self.labels):
            return version[0], version[1]
        parts = zip(family.keys, family.parts(self.labels), strict=False)
        key = next((key for key, part in parts if family.number(part) is None), family.key)
        self._report(key, self.labels.get(key, ""))
        return None

    def _driver(self, families: Iterable[DriverFamily]) -> str | None:
        family = _first_present(families, self.labels)
        if family is None:
            return None
        if family.version(self.labels):
            return family.text(self.labels)
        self._report(family.key, self.labels[family.key])
        return None

    def _runtime(self, names: LabelNames) -> ContainerRuntime:
        """Return the container runtime by its labels; a version alone is not enough."""
        if not (mode := self._text(names.runtime_mode, RUNTIME_MODES)):
            return UNKNOWN_RUNTIME
        key = next(key for key in names.runtime_mode if key in self.labels)
        version = self._text(names.toolkit_version, implausible=lambda text: not toolkit_version(text))
        source = Message("label {key}", key=key)
        return runtime_of(RuntimeMode(mode), toolkit_version(version or ""), source)

    def _text(
        self,
        keys: Iterable[str],
        allowed: frozenset[str] | None = None,
        implausible: Callable[[str], bool] = lambda _: False,
    ) -> str | None:
        """Return the text of the first label; a text that is not allowed or implausible is reported."""
        key = next((key for key in keys if key in self.labels), None)
        if key is None:
            return None
        value = self.labels[key]
        if not value or (value in allowed if allowed else not implausible(value)):
            return value or None
        self._report(key, value)
        return None

    def _number(self, keys: Iterable[str]) -> int | None:
        text = self._text(keys)
        number = None if text is None else parse_int64(text)
        if number is not None and not 0 < number <= MAX_MEMORY_MIB:
            number = None
        if text is not None and number is None:
            self._report(next(key for key in keys if key in self.labels), text)
        return number


def _first_present(families: Iterable[F], labels: Mapping[str, str]) -> F | None:
    return next((family for family in families if family.key in labels), None)
