"""Facts about NVIDIA's toolkits, drivers, GPUs and errors: tables of `facts/`, loaded on first use.

Every fact has a source and a status. An uncertain fact alone must never deny a pod.
"""

from __future__ import annotations

import json
import re
from calendar import timegm
from enum import StrEnum
from functools import cache, lru_cache, partial, wraps
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from rules.text.bounded_cache import bounded_cache
from rules.text.i18n import Message, Text
from rules.text.yaml_document import SourceError, read

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

FACTS_FOLDER: Final = Path(__file__).parents[1] / "facts"
# All tables as JSON, one in a line, which is read in a tenth of the time.
STORED: Final = FACTS_FOLDER / "stored_tables.json"
# Tables that only `gpugate facts update` writes. A row by hand takes precedence over a row of theirs.
GENERATED: Final = (
    "aws_instances",
    "cuda_images",
    "driver_branches",
    "driver_redist",
    "gpu_profiles",
    "lmdeploy_images",
    "ngc_images",
    "sglang_images",
    "tei_images",
    "tgi_images",
    "toolkit_modes",
    "toolkit_wheels",
    "triton_images",
    "vllm_images",
)
# Tables of a release of facts. The others tell how gpugate reads pods and clusters, and change with its code.
RELEASED: Final = (
    "cloud_gpus",
    "drivers",
    "frameworks",
    "gpus",
    "images",
    "lock",
    "models",
    "requirements",
    "sources",
    "toolkits",
    *GENERATED,
)


class Status(StrEnum):
    """The certainty of a row of a table; facts/sources.yaml defines the values."""

    VERIFIED = "verified"
    SECONDARY = "secondary"
    DERIVED = "derived"
    UNVERIFIED = "unverified"

    @property
    def certain(self) -> bool:
        """Whether it is enough to deny a pod."""
        return self is not Status.UNVERIFIED


class Fact(Struct, Generic[T], frozen=True):
    """A value with the key of its source (facts/sources.yaml) and its status."""

    value: T
    source: str
    status: Status

    @property
    def certain(self) -> bool:
        """Whether it is enough to deny a pod."""
        return self.status.certain


class GpuModel(Struct, frozen=True):
    """A GPU model."""

    product: str
    compute: ComputeCapability | None  # None: unknown
    architecture: str
    segment: str  # datacenter, workstation, consumer or jetson
    status: Status
    brands: tuple[str, ...] = ()  # NVML's names of its brand with different drivers, in lower case
    memory_mib: int | None = None  # by its data sheet, or of the MIG slice; None: unknown
    host: str = "amd64"  # the CPU architecture of its machines
    # The first driver of each branch that names it, up to the branch from which on all do; empty: unknown.
    listed: tuple[DriverVersion, ...] = ()


class CudaError(Struct, frozen=True):
    """An error of the CUDA runtime."""

    code: int
    name: str
    driver_name: str  # its name in the driver API, or empty
    message: str
    cause: Message


def read_table(name: str) -> Any:
    """Return a file of `facts/` as plain values, from STORED if its copy there is up to date.

    A generated table without a file has no rows. Raises SourceError: the table is wrong.
    """
    path = FACTS_FOLDER / f"{name}.yaml"
    if name in GENERATED and not path.exists():
        return []
    text, stored = path.read_text("utf-8"), STORED.read_bytes()
    head = stored_head(name, text).encode()
    if (start := stored.find(head)) >= 0:  # a table is one line
        line = stored[start + len(head) : stored.index(b"\n", start)]
        return json.loads(line.rstrip(b",").removesuffix(b"]"))
    (document,) = read(text, path.name)
    if isinstance(document, SourceError):
        raise document
    return document.value


def built_in_tables() -> dict[str, Any]:
    """Return the tables of a release of facts, the built-in one. Raises SourceError."""
    return {name: read_table(name) for name in RELEASED}


def stored_head(name: str, text: str) -> str:
    """Return the start of a table in STORED: its name and a digest of its text."""
    return f'"{name}": ["{sha256(text.encode()).hexdigest()}", '


class Facts:
    """A release of the tables, with the results of `derived` functions. Immutable.

    Nodes and images carry their facts, so that a decision uses one release.
    """

    __slots__ = ("_read", "_tables", "values")

    def __init__(self, read_table: Callable[[str], Any]) -> None:
        """Create facts. read_table: the plain values of a table, by its name."""
        self._read = read_table
        self._tables: dict[str, Any] = {}
        self.values: dict[Callable[..., Any], Any] = {}  # of `derived` functions

    def table(self, name: str) -> Any:
        """Return a table as plain values, read on first use. Raises SourceError: the table is wrong."""
        if name not in self._tables:
            self._tables[name] = self._read(name)
        return self._tables[name]

    @property
    def date(self) -> str:
        """The last day on which rows were looked up: YYYY-MM-DD."""
        date: str = self.table("lock")["date"]
        return date


# All functions of facts in the modules that are imported.
DERIVED: Final[list[Callable[[Facts], Any]]] = []


def derived(function: Callable[[Facts], T]) -> Callable[[Facts], T]:
    """Return a function of facts whose result is computed once, and kept in them."""

    @wraps(function)
    def value(facts: Facts) -> T:
        try:
            kept: T = facts.values[function]
        except KeyError:
            kept = facts.values[function] = function(facts)
        return kept

    DERIVED.append(value)
    return value


BUILT_IN: Final = Facts(read_table)
# Seconds after which facts are old: an alert reports them, and a denial that rests on them says so.
OLD_S: Final = 90 * 86400.0


@derived
def looked_up(facts: Facts) -> float:
    """Return the start of `Facts.date` in seconds since the epoch (UTC)."""
    year, month, day = map(int, facts.date.split("-"))
    return timegm((year, month, day, 0, 0, 0))


# Compiles a pattern of a table; the next release of facts has most of them again.
pattern: Final = lru_cache(maxsize=4096)(re.compile)


def cuda_version(text: str) -> CudaVersion:
    """Return a CUDA version of a table. Raises ValueError: the table is wrong."""
    return _parsed(CudaVersion.parse(text), text)


def capability(text: str) -> ComputeCapability:
    """Return a compute capability of a table. Raises ValueError: the table is wrong."""
    return _parsed(ComputeCapability.parse(text), text)


def capabilities(text: str) -> tuple[ComputeCapability, ...]:
    """Return the space-separated compute capabilities of a table. Raises ValueError: the table is wrong."""
    return tuple(capability(word) for word in text.split())


def _driver(text: str) -> DriverVersion:
    return _parsed(DriverVersion.parse(text), text)


def _parsed(value: T | None, text: str) -> T:
    if value is None:
        raise ValueError(f"{text!r} in a table is not a version")
    return value


def _fact(value: T, row: dict[str, Any]) -> Fact[T]:
    return Fact(value, row["source"], Status(row["status"]))


# Toolkits


@derived
def toolkits(facts: Facts) -> dict[CudaVersion, Fact[tuple[ComputeCapability, ...]]]:
    """Return the capabilities that each toolkit generates code for, lowest first; oldest toolkit first."""
    rows = (*facts.table("toolkit_wheels"), *facts.table("toolkits"))
    targets = {cuda_version(row["cuda"]): _fact(capabilities(row["built_for"]), row) for row in rows}
    return dict(sorted(targets.items()))


# Drivers


@derived
def _branches(facts: Facts) -> dict[int, Fact[CudaVersion]]:
    rows = (*facts.table("driver_redist"), *facts.table("drivers")["branches"])
    return {row["branch"]: _fact(cuda_version(row["cuda"]), row) for row in rows}


def cuda_of_branch(facts: Facts, branch: int) -> Fact[CudaVersion] | None:
    """Return the CUDA API version of a driver branch (535 has 12.2); None if unknown."""
    return _branches(facts).get(branch)


def certain_branches(facts: Facts) -> list[int]:
    """Return the driver branches whose CUDA API version is certain, the oldest first."""
    return sorted(branch for branch, fact in _branches(facts).items() if fact.certain)


@derived
def newest_branch(facts: Facts) -> int:
    """Return the newest driver branch whose CUDA API version is certain."""
    return max(certain_branches(facts))


def first_branch_with(facts: Facts, cuda: CudaVersion) -> int | None:
    """Return the oldest driver branch whose CUDA API version is certainly enough; None if none is known."""
    branches = certain_branches(facts)
    return next((branch for branch in branches if _branches(facts)[branch].value >= cuda), None)


class LeastCuda(NamedTuple):
    """The lowest CUDA API version that a driver branch can have."""

    cuda: CudaVersion
    by: int  # the known branch that has it


def least_cuda(facts: Facts, branch: int) -> LeastCuda | None:
    """Return the lowest CUDA API version that a driver branch can have; None if unknown.

    Drivers are backward compatible: a branch above the newest known one has at least the CUDA of that one.
    """
    by = min(branch, newest_branch(facts))
    fact = cuda_of_branch(facts, by)
    return LeastCuda(fact.value, by) if fact and fact.certain else None


class Lifecycle(Struct, frozen=True):
    """NVIDIA's support of a driver branch."""

    kind: str  # lts, production or new-feature
    end: str | None  # its last month, such as 2026-06; None: not announced


@derived
def _lifecycles(facts: Facts) -> dict[int, Fact[Lifecycle]]:
    rows = (*facts.table("driver_branches"), *facts.table("drivers")["lifecycle"])
    return {row["branch"]: _fact(Lifecycle(row["kind"], row.get("end")), row) for row in rows}


def lifecycle_of_branch(facts: Facts, branch: int) -> Fact[Lifecycle] | None:
    """Return how NVIDIA supports a driver branch; None if unknown."""
    return _lifecycles(facts).get(branch)


@derived
def _newest_releases(facts: Facts) -> dict[int, DriverVersion]:
    rows = (row for row in facts.table("drivers")["toolkits"] if Status(row["status"]).certain)
    drivers = sorted(_driver(row["driver"]) for row in rows)
    return {driver.branch: driver for driver in drivers}


def newest_release(facts: Facts, branch: int) -> DriverVersion | None:
    """Return the newest driver of a branch that came with a toolkit; None if none is known."""
    return _newest_releases(facts).get(branch)


@derived
def _minor_version_floors(facts: Facts) -> dict[int, Fact[DriverVersion]]:
    rows = facts.table("drivers")["minor_version_floors"]
    return {row["major"]: _fact(_driver(row["driver"]), row) for row in rows}


def minor_version_floor(facts: Facts, major: int) -> Fact[DriverVersion] | None:
    """Return the minimum driver for minor-version compatibility of a CUDA major; None before CUDA 11."""
    return _minor_version_floors(facts).get(major)


@derived
def _forward(facts: Facts) -> dict[CudaVersion, Fact[frozenset[int]]]:
    rows = facts.table("drivers")["forward"]
    return {cuda_version(row["cuda"]): _fact(frozenset(row["branches"]), row) for row in rows}


def forward_compatible(facts: Facts, cuda: CudaVersion, branch: int) -> Fact[bool] | None:
    """Return whether cuda-compat of a CUDA version works on a driver branch; None if unknown."""
    branches = _forward(facts).get(cuda)
    if branches is None or branch not in facts.table("drivers")["forward_listed"]:
        return None
    return Fact(branch in branches.value, branches.source, branches.status)


def listed_before(facts: Facts, cuda: CudaVersion, branch: int) -> CudaVersion | None:
    """Return the newest CUDA version with a list for cuda-compat, if it is older and lists the branch."""
    newest = max(_forward(facts))
    return newest if cuda > newest and branch in _forward(facts)[newest].value else None


@derived
def _once_listed(facts: Facts) -> dict[CudaVersion, frozenset[int]]:
    rows = facts.table("drivers")["forward_once_listed"]
    return {cuda_version(row["cuda"]): frozenset(row["branches"]) for row in rows}


def forward_once_listed(facts: Facts, cuda: CudaVersion, branch: int) -> bool | None:
    """Return whether NVIDIA has ever listed a driver branch for cuda-compat of a CUDA version.

    None: nothing is known of this CUDA version.
    """
    branches = _once_listed(facts).get(cuda)
    return None if branches is None else branch in branches


def branch_of_cuda(facts: Facts, cuda: tuple[int, int]) -> int | None:
    """Return the driver branch that has a CUDA API version (12.2: 535); None if none or more are known."""
    branches = [branch for branch, fact in _branches(facts).items() if fact.value == cuda and fact.certain]
    return branches[0] if len(branches) == 1 else None


@derived
def known_cudas(facts: Facts) -> tuple[CudaVersion, ...]:
    """Return the CUDA API versions of one driver branch each, the newest first."""
    versions = sorted({fact.value for fact in _branches(facts).values()}, reverse=True)
    return tuple(version for version in versions if branch_of_cuda(facts, version) is not None)


class LastBranch(Struct, frozen=True):
    """The last driver branch that supports the GPUs of an architecture."""

    architecture: str
    below: ComputeCapability  # its GPUs have a lower compute capability
    branch: int


@derived
def last_branches(facts: Facts) -> tuple[Fact[LastBranch], ...]:
    """Return the architectures that newer drivers do not support, the oldest first."""
    rows = facts.table("drivers")["last_branches"]
    return tuple(_fact(LastBranch(row["arch"], capability(row["below"]), row["branch"]), row) for row in rows)


def last_branch_of(facts: Facts, gpu: tuple[int, int]) -> Fact[LastBranch] | None:
    """Return the last driver branch that supports a compute capability; None: the newest does."""
    return next((fact for fact in last_branches(facts) if gpu < fact.value.below), None)


class FirstBranch(Struct, frozen=True):
    """The first driver branch that supports the GPUs of a compute capability."""

    architecture: str
    branch: int
    chips: int  # older ones do not know the chips; what one from here to `branch` does with them is unknown


@derived
def first_branches(facts: Facts) -> dict[tuple[int, ...], Fact[FirstBranch]]:
    """Return the first driver branch by compute capability; older GPUs are supported by all known ones."""
    return {
        capability(row["compute"]): _fact(
            FirstBranch(row["arch"], row["branch"], row.get("chips", row["branch"])), row
        )
        for row in facts.table("drivers")["first_branches"]
    }


def first_branch_of(facts: Facts, gpu: tuple[int, int]) -> Fact[FirstBranch] | None:
    """Return the first driver branch that supports a compute capability; None: all do, or it is unknown."""
    return first_branches(facts).get(gpu)


# NVIDIA_REQUIRE_CUDA of nvidia/cuda


class RequireText(Struct, frozen=True):
    """The NVIDIA_REQUIRE_CUDA of some builds of nvidia/cuda."""

    text: str
    architecture: str  # as in kubernetes.io/arch
    complete: bool  # if not, an image may admit drivers that do not satisfy the text
    status: Status


@derived
def _require_texts(facts: Facts) -> dict[str, list[tuple[frozenset[str], RequireText]]]:
    table = facts.table("requirements")
    texts: dict[str, list[tuple[frozenset[str], RequireText]]] = {}
    for row in table["expressions"]:
        groups = [
            f"brand={brand},driver>={branch},driver<{branch + 1}"
            for brands, branches in row.get("groups", {}).items()
            for branch in branches
            for brand in table["brands"][brands]
        ]
        text = " ".join([f"cuda>={row['cuda']}", *groups, *row.get("others", ())])
        fact = RequireText(text, row["arch"], not row.get("partial", False), Status(row["status"]))
        texts.setdefault(row["cuda"], []).append((frozenset(row["images"].split()), fact))
    return texts


def require_of_nvidia_cuda(facts: Facts, version: str) -> tuple[RequireText, ...]:
    """Return each known NVIDIA_REQUIRE_CUDA of nvidia/cuda of a version, the newest of an architecture first.

    version: `12.4.1`, or `12.4` for any patch. An unknown patch has the texts of all known ones.
    """
    major, _, rest = version.partition(".")
    rows = _require_texts(facts).get(f"{major}.{rest.partition('.')[0]}", [])
    read = [fact for versions, fact in rows if version in versions]
    return tuple(read or [fact for _, fact in rows])


# GPUs

# Prefix and suffixes that GPU Feature Discovery and drivers add to a product name.
# Source: NVIDIA/k8s-device-plugin internal/lm/resource.go.
_AROUND: Final = re.compile(r"(?:NVIDIA-)?(?P<name>.+?)(?:-MIG-(?P<profile>.+?))?(?:-SHARED)?")
_GIB: Final = re.compile(r"-(\d{1,3})GB\b")
_PROFILE_GIB: Final = re.compile(r"g\.(\d{1,3})gb")  # rounded, such as 1g.5gb
_MIB_PER_GIB: Final = 1024
# Product labels in a cluster; some dozens.
_REMEMBERED: Final = 1024
_LONGEST: Final = 63  # characters of a label's value


@derived
def _gpus(facts: Facts) -> tuple[tuple[re.Pattern[str], GpuModel], ...]:
    return tuple(
        (
            pattern(row["label"]),
            GpuModel(
                row["product"],
                capability(row["compute"]) if "compute" in row else None,
                row["arch"],
                row["segment"],
                Status(row["status"]),
                tuple(row.get("brand", "").split()),
                row.get("memory"),
                row.get("host", "amd64"),
                tuple(_driver(word) for word in row.get("listed", "").split()),
            ),
        )
        for row in (*facts.table("gpus"), *facts.table("gpu_profiles"))
    )


@derived
def _models(facts: Facts) -> Callable[[str], GpuModel | None]:
    """Return `gpu_model` of these facts, with a cache: values of labels have 63 characters at most."""
    return bounded_cache(partial(_find_model, facts), _REMEMBERED, lambda label: len(label) <= _LONGEST)


def gpu_model(facts: Facts, label: str) -> GpuModel | None:
    """Return the model of a product label such as `NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`; None if unknown."""
    return _models(facts)(label)


def _find_model(facts: Facts, label: str) -> GpuModel | None:
    around = _AROUND.fullmatch(label) if len(label) <= _LONGEST else None
    if around is None:
        return None
    name = around["name"]
    model = next((model for pattern, model in _gpus(facts) if pattern.fullmatch(name)), None)
    if model and around["profile"]:
        slice_of = _PROFILE_GIB.search(around["profile"])
        return replace(model, memory_mib=int(slice_of[1]) * _MIB_PER_GIB if slice_of else None)
    if model is None or model.memory_mib is not None or not (gigabytes := _GIB.search(name)):
        return model
    return replace(model, memory_mib=int(gigabytes[1]) * _MIB_PER_GIB)


def capability_of(facts: Facts, label: str) -> ComputeCapability | None:
    """Return the compute capability of a product label; None if it is unknown or uncertain."""
    model = gpu_model(facts, label)
    return model.compute if model and model.status.certain else None


# Errors


@cache
def _errors() -> dict[int, CudaError]:
    return {
        row["code"]: CudaError(
            code=row["code"],
            name=row["runtime"],
            driver_name=row["driver"],
            message=row["message"],
            cause=Text(**row["cause"]),
        )
        for row in read_table("errors")
    }


def cuda_error(code: int) -> CudaError | None:
    """Return the error with a number; None if unknown."""
    return _errors().get(code)
