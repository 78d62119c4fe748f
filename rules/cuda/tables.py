"""Tables of `data/` about NVIDIA's toolkits, drivers, GPUs and errors, loaded once on first use.

Every fact has a source and a status. An uncertain fact alone must never deny a pod.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final, Generic, TypeVar

import yaml

from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from rules.text.i18n import Text

T = TypeVar("T")

try:
    _Loader: type = yaml.CSafeLoader
except AttributeError:  # PyYAML without libyaml is ten times slower
    _Loader = yaml.SafeLoader


class Status(StrEnum):
    """The certainty of a row of a table; data/sources.yaml defines the values."""

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
    """A value with the key of its source (data/sources.yaml) and its status."""

    value: T
    source: str
    status: Status

    @property
    def certain(self) -> bool:
        """Whether it is enough to deny a pod."""
        return self.status.certain


@dataclass(frozen=True, slots=True)
class GpuModel:
    """A GPU model. segment: datacenter, workstation, consumer or jetson."""

    product: str
    compute: ComputeCapability
    architecture: str
    segment: str
    status: Status


@dataclass(frozen=True, slots=True)
class CudaError:
    """An error of the CUDA runtime. driver_name: its name in the driver API, or empty."""

    code: int
    name: str
    driver_name: str
    message: str
    cause: Text


def read_table(name: str) -> Any:
    """Return a file of `data/` as plain values."""
    return yaml.load(files("rules").joinpath(f"data/{name}.yaml").read_text("utf-8"), _Loader)  # noqa: S506


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


# GPUs

# Prefix and suffixes that GPU Feature Discovery and drivers add to a product name.
# Source: NVIDIA/k8s-device-plugin internal/lm/resource.go.
_AROUND: Final = re.compile(r"(?:NVIDIA-)?(?P<name>.+?)(?:-MIG-.+?)?(?:-SHARED)?")


@cache
def _gpus() -> tuple[tuple[re.Pattern[str], GpuModel], ...]:
    return tuple(
        (
            re.compile(row["label"]),
            GpuModel(
                row["product"], capability(row["compute"]), row["arch"], row["segment"], Status(row["status"])
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
    return next((model for pattern, model in _gpus() if pattern.fullmatch(around["name"])), None)


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
