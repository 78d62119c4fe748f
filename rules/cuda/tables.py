"""Tables of `facts/` about NVIDIA's toolkits, drivers, GPUs and errors, loaded once on first use.

Every fact has a source and a status. An uncertain fact alone must never deny a pod.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from rules.text.i18n import Message, Text
from rules.text.yaml_document import SourceError, read

T = TypeVar("T")

_FOLDER: Final = Path(__file__).parents[1] / "facts"
# All tables as JSON, one in a line, which is read in a tenth of the time.
STORED: Final = _FOLDER / "stored_tables.json"


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


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """A value with the key of its source (facts/sources.yaml) and its status."""

    value: T
    source: str
    status: Status

    @property
    def certain(self) -> bool:
        """Whether it is enough to deny a pod."""
        return self.status.certain


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model."""

    product: str
    compute: ComputeCapability | None  # None: unknown
    architecture: str
    segment: str  # datacenter, workstation, consumer or jetson
    status: Status
    brands: tuple[
        str, ...
    ] = ()  # NVML's names of its brand, which differ by driver, in lower case; empty: unknown
    memory_mib: int | None = None  # by its data sheet, or of the MIG slice; None: unknown
    host: str = "amd64"  # the CPU architecture of its machines


@dataclass(frozen=True, slots=True)
class CudaError:
    """An error of the CUDA runtime."""

    code: int
    name: str
    driver_name: str  # its name in the driver API, or empty
    message: str
    cause: Message


def read_table(name: str) -> Any:
    """Return a file of `facts/` as plain values, from STORED if its copy there is up to date.

    Raises SourceError: the table is wrong.
    """
    path = _FOLDER / f"{name}.yaml"
    text, stored = path.read_text("utf-8"), STORED.read_text("utf-8")
    head = _head(name, text)
    if (start := stored.find(head)) >= 0:
        return json.JSONDecoder().raw_decode(stored, start + len(head))[0]
    (document,) = read(text, path.name)
    if isinstance(document, SourceError):
        raise document
    return document.value


def table_names() -> list[str]:
    """Return the names of all tables, in order."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def stored_tables() -> str:
    """Return the content of STORED for the files of `facts/`. Raises SourceError."""
    lines = []
    for path in sorted(_FOLDER.glob("*.yaml")):
        head = _head(path.stem, path.read_text("utf-8"))
        lines.append(f"{head}{json.dumps(read_table(path.stem), ensure_ascii=False)}]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _head(name: str, text: str) -> str:
    """Return the start of a table in STORED: its name and a digest of its text."""
    return f'"{name}": ["{sha256(text.encode()).hexdigest()}", '


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


@cache
def _toolkits() -> dict[CudaVersion, Fact[tuple[ComputeCapability, ...]]]:
    return {
        cuda_version(row["cuda"]): _fact(capabilities(row["built_for"]), row)
        for row in read_table("toolkits")
    }


def compiles_for(cuda: CudaVersion) -> Fact[tuple[ComputeCapability, ...]] | None:
    """Return the capabilities that a toolkit generates code for, lowest first; None if unknown."""
    return _toolkits().get(cuda)


# Drivers


@cache
def _drivers() -> Any:
    return read_table("drivers")


@cache
def _branches() -> dict[int, Fact[CudaVersion]]:
    return {row["branch"]: _fact(cuda_version(row["cuda"]), row) for row in _drivers()["branches"]}


def cuda_of_branch(branch: int) -> Fact[CudaVersion] | None:
    """Return the CUDA API version of a driver branch (535 has 12.2); None if unknown."""
    return _branches().get(branch)


def certain_branches() -> list[int]:
    """Return the driver branches whose CUDA API version is certain, the oldest first."""
    return sorted(branch for branch, fact in _branches().items() if fact.certain)


@cache
def newest_release(branch: int) -> DriverVersion | None:
    """Return the newest driver of a branch that came with a toolkit; None if none is known."""
    rows = (row for row in _drivers()["toolkits"] if Status(row["status"]).certain)
    return max((driver for row in rows if (driver := _driver(row["driver"])).branch == branch), default=None)


@cache
def minor_version_floor(major: int) -> Fact[DriverVersion] | None:
    """Return the minimum driver for minor-version compatibility of a CUDA major; None before CUDA 11."""
    rows = _drivers()["minor_version_floors"]
    return next((_fact(_driver(row["driver"]), row) for row in rows if row["major"] == major), None)


@cache
def forward_compatible(cuda: CudaVersion, branch: int) -> Fact[bool] | None:
    """Return whether cuda-compat of a CUDA version works on a driver branch; None if unknown."""
    if branch not in _drivers()["forward_listed"]:
        return None
    rows = _drivers()["forward"]
    return next(
        (_fact(branch in row["branches"], row) for row in rows if cuda_version(row["cuda"]) == cuda), None
    )


@cache
def forward_once_listed(cuda: CudaVersion, branch: int) -> bool | None:
    """Return whether NVIDIA has ever listed a driver branch for cuda-compat of a CUDA version.

    None: nothing is known of this CUDA version.
    """
    rows = (row for row in _drivers()["forward_once_listed"] if cuda_version(row["cuda"]) == cuda)
    return next((branch in row["branches"] for row in rows), None)


def branch_of_cuda(cuda: tuple[int, int]) -> int | None:
    """Return the driver branch that has a CUDA API version (12.2: 535); None if none or more are known."""
    branches = [branch for branch, fact in _branches().items() if fact.value == cuda and fact.certain]
    return branches[0] if len(branches) == 1 else None


@cache
def known_cudas() -> tuple[CudaVersion, ...]:
    """Return the CUDA API versions of one driver branch each, the newest first."""
    versions = sorted({fact.value for fact in _branches().values()}, reverse=True)
    return tuple(version for version in versions if branch_of_cuda(version) is not None)


@dataclass(frozen=True, slots=True)
class LastBranch:
    """The last driver branch that supports the GPUs of an architecture."""

    architecture: str
    below: ComputeCapability  # its GPUs have a lower compute capability
    branch: int


@cache
def last_branches() -> tuple[Fact[LastBranch], ...]:
    """Return the architectures that newer drivers do not support, the oldest first."""
    rows = _drivers()["last_branches"]
    return tuple(_fact(LastBranch(row["arch"], capability(row["below"]), row["branch"]), row) for row in rows)


def last_branch_of(gpu: tuple[int, int]) -> Fact[LastBranch] | None:
    """Return the last driver branch that supports a compute capability; None: the newest does."""
    return next((fact for fact in last_branches() if gpu < fact.value.below), None)


# NVIDIA_REQUIRE_CUDA of nvidia/cuda


@dataclass(frozen=True, slots=True)
class RequireText:
    """The NVIDIA_REQUIRE_CUDA of some builds of nvidia/cuda."""

    text: str
    architecture: str  # as in kubernetes.io/arch
    complete: bool  # if not, an image may admit drivers that do not satisfy the text
    status: Status


@cache
def _require_texts() -> dict[str, list[tuple[frozenset[str], RequireText]]]:
    table = read_table("requirements")
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


@lru_cache(maxsize=256)  # versions in image tags
def require_of_nvidia_cuda(version: str) -> tuple[RequireText, ...]:
    """Return each known NVIDIA_REQUIRE_CUDA of nvidia/cuda of a version, the newest of an architecture first.

    version: `12.4.1`, or `12.4` for any patch. An unknown patch has the texts of all known ones.
    """
    major, _, rest = version.partition(".")
    rows = _require_texts().get(f"{major}.{rest.partition('.')[0]}", [])
    read = [fact for versions, fact in rows if version in versions]
    return tuple(read or [fact for _, fact in rows])


# GPUs

# Prefix and suffixes that GPU Feature Discovery and drivers add to a product name.
# Source: NVIDIA/k8s-device-plugin internal/lm/resource.go.
_AROUND: Final = re.compile(r"(?:NVIDIA-)?(?P<name>.+?)(?:-MIG-(?P<profile>.+?))?(?:-SHARED)?")
_GIB: Final = re.compile(r"-(\d{1,3})GB\b")
_PROFILE_GIB: Final = re.compile(r"g\.(\d{1,3})gb")  # rounded, such as 1g.5gb
_MIB_PER_GIB: Final = 1024


@cache
def _gpus() -> tuple[tuple[re.Pattern[str], GpuModel], ...]:
    return tuple(
        (
            re.compile(row["label"]),
            GpuModel(
                row["product"],
                capability(row["compute"]) if "compute" in row else None,
                row["arch"],
                row["segment"],
                Status(row["status"]),
                tuple(row.get("brand", "").split()),
                row.get("memory"),
                row.get("host", "amd64"),
            ),
        )
        for row in read_table("gpus")
    )


@lru_cache(maxsize=1024)
def gpu_model(label: str) -> GpuModel | None:
    """Return the model of a product label such as `NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`; None if unknown."""
    around = _AROUND.fullmatch(label)
    if around is None:
        return None
    name = around["name"]
    model = next((model for pattern, model in _gpus() if pattern.fullmatch(name)), None)
    if model and around["profile"]:
        slice_of = _PROFILE_GIB.search(around["profile"])
        return replace(model, memory_mib=int(slice_of[1]) * _MIB_PER_GIB if slice_of else None)
    if model is None or model.memory_mib is not None or not (gigabytes := _GIB.search(name)):
        return model
    return replace(model, memory_mib=int(gigabytes[1]) * _MIB_PER_GIB)


def capability_of(label: str) -> ComputeCapability | None:
    """Return the compute capability of a product label; None if it is unknown or uncertain."""
    model = gpu_model(label)
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
