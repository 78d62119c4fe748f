"""Container runtimes, by NVIDIA Container Toolkit and by clouds, read from `facts/runtime_modes.yaml`.

They differ in whether they evaluate NVIDIA_REQUIRE_* and load an image's compatibility libraries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache, lru_cache
from typing import Any, Final, NamedTuple

from msgspec import Struct

from rules.cuda.tables import Status, read_table
from rules.text.i18n import Message, Text


class RuntimeMode(Enum):
    """How NVIDIA's Container Toolkit, or its replacement, prepares containers.

    LEGACY evaluates NVIDIA_REQUIRE_*, and starts no container whose expressions are unsatisfied. CDI (also
    jit-cdi, CDI of containerd or CRI-O, DRA, and GKE's own plugin) evaluates nothing.
    """

    LEGACY = "legacy"
    CDI = "cdi"
    UNKNOWN = "unknown"


class ContainerRuntime(NamedTuple):
    """The container runtime of a node."""

    mode: RuntimeMode = RuntimeMode.UNKNOWN
    # Programs load an image's compatibility libraries of a major version above the driver's; None: unknown.
    loads_compat: bool | None = None
    toolkit: tuple[int, ...] = ()  # version of NVIDIA Container Toolkit, such as (1, 17, 8); empty: unknown
    source: Message = Message()  # of these facts; empty: nothing is known

    def in_mode(self, mode: RuntimeMode, source: Message) -> ContainerRuntime:
        """Return this runtime in a mode that a pod's RuntimeClass or a rule sets.

        Whether compatibility libraries are loaded is known for the node's own mode only.
        """
        loads = self.loads_compat if self.mode is mode else None
        return ContainerRuntime(mode, loads, self.toolkit, source)


UNKNOWN_RUNTIME: Final = ContainerRuntime()


@cache
def _modes_of_classes() -> dict[str, RuntimeMode]:
    return {row["name"]: RuntimeMode(row["mode"]) for row in _table()["runtimeClasses"]}


def mode_of_class(name: str) -> RuntimeMode | None:
    """Return the mode that a RuntimeClass sets; None if it sets none or is unknown."""
    return _modes_of_classes().get(name)


# The default mode, which depends on the toolkit's version.
AUTO: Final = "auto"
# v1.17.8-ubuntu20.04, 1.18.0-rc.1
_VERSION: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})(?:[-+~].*)?", re.DOTALL)
# The fields that are read in a Node's status.nodeInfo.
NODE_INFO: Final = ("osImage", "kubeletVersion", "containerRuntimeVersion")
# As in status.nodeInfo.containerRuntimeVersion: GPU Operator configures OCI hooks for CRI-O.
_CRIO: Final = "cri-o://"


class HostRuntime(NamedTuple):
    """A Node's own container runtime."""

    runtime: ContainerRuntime = UNKNOWN_RUNTIME  # unless GPU Operator installs another one
    by_hook: bool = False  # NVIDIA's toolkit is called by OCI hooks


class _HostRow(Struct, frozen=True):
    """A kind of node. patterns: for its label, osImage and kubeletVersion; None: any."""

    label: str
    patterns: tuple[re.Pattern[str] | None, ...]
    start: str
    end: str
    runtime: ContainerRuntime

    def matches(self, values: Iterable[str]) -> bool:
        """Return whether a node is of this kind. values: one for each pattern."""
        pairs = zip(self.patterns, values, strict=True)
        matches = [pattern.fullmatch(value) for pattern, value in pairs if pattern]
        parts = [match[1] for match in matches if match and match.re.groups]
        inside = all(self.start <= part and (not self.end or part < self.end) for part in parts)
        return inside and all(matches)


def toolkit_version(text: str) -> tuple[int, ...]:
    """Return the version of NVIDIA Container Toolkit in a text or an image tag; empty if invalid."""
    match = _VERSION.fullmatch(text)
    return tuple(map(int, match.groups())) if match else ()


def mode_of(configured: str, toolkit: tuple[int, ...], *, by_hook: bool = False) -> RuntimeMode:
    """Return the mode of a node with NVML, by the configured one."""
    if configured == AUTO:
        row = _newest("auto", toolkit, by_hook=by_hook)
    else:
        row = next((row for row in _certain("configured") if row["value"] == configured), None)
    return RuntimeMode(row["mode"]) if row else RuntimeMode.UNKNOWN


def runtime_of(
    mode: RuntimeMode, toolkit: tuple[int, ...], source: Message, *, by_hook: bool = False
) -> ContainerRuntime:
    """Return the runtime of a mode and a version, with the default for compatibility libraries."""
    row = _newest("compat", toolkit, mode=mode.value, by_hook=by_hook)
    return ContainerRuntime(mode, row["compat"] if row else None, toolkit, source)


def host_runtime(labels: Mapping[str, str], node_info: Mapping[Any, Any]) -> HostRuntime:
    """Return a Node's own runtime. node_info: its status.nodeInfo; values that are not text are ignored."""
    os_image, kubelet, engine = (
        value if isinstance(value := node_info.get(key), str) else "" for key in NODE_INFO
    )
    reported = tuple([(key, labels[key]) for key in host_labels() if key in labels])
    return HostRuntime(_host(reported, os_image, kubelet), engine.startswith(_CRIO))


# A cluster has some kinds of node images.
@lru_cache(maxsize=256)
def _host(labels: tuple[tuple[str, str], ...], os_image: str, kubelet: str) -> ContainerRuntime:
    present = dict(labels)
    for row in _hosts():
        if row.label and row.label not in present:
            continue
        if row.matches((present.get(row.label, ""), os_image, kubelet)):
            return row.runtime
    return UNKNOWN_RUNTIME


@cache
def operator_names() -> Any:
    """Return the names of labels and variables of GPU Operator, as in the table."""
    return _table()["operator"]


@cache
def _table() -> Any:
    return read_table("runtime_modes")


@cache
def _certain(name: str) -> tuple[Any, ...]:
    return tuple(row for row in _table()[name] if Status(row["status"]).certain)


def _newest(name: str, toolkit: tuple[int, ...], *, by_hook: bool, mode: str | None = None) -> Any:
    """Return the row of the newest version that is not newer than the toolkit, or None."""
    rows = (
        row for row in _certain(name) if row.get("hook", False) is by_hook and mode in (None, row["mode"])
    )
    known = [(version, row) for row in rows if (version := toolkit_version(row["from"])) <= toolkit]
    return max(known, key=lambda entry: entry[0])[1] if known else None


@cache
def host_labels() -> tuple[str, ...]:
    """Return the labels that identify a kind of node."""
    return tuple(dict.fromkeys(row.label for row in _hosts() if row.label))


@cache
def _hosts() -> tuple[_HostRow, ...]:
    return tuple(
        _HostRow(
            row.get("label", ""),
            tuple(re.compile(row[key]) if key in row else None for key in ("value", "osImage", "kubelet")),
            row.get("from", ""),
            row.get("before", ""),
            _runtime(row, _source(row["name"], row.get("label"))),
        )
        for row in _certain("hosts")
    )


@cache
def dra_runtime() -> ContainerRuntime:
    """Return the container runtime of devices of Dynamic Resource Allocation."""
    (row,) = (row for row in [_table()["dra"]] if Status(row["status"]).certain)
    return _runtime(row, Text(row["name"]))


def _runtime(row: Mapping[str, Any], source: Message) -> ContainerRuntime:
    version = toolkit_version(row.get("toolkit", ""))
    return ContainerRuntime(RuntimeMode(row["mode"]), row.get("compat"), version, source)


def _source(name: str, label: str | None) -> Message:
    if label:
        return Message("{name} (label {label})", name=name, label=label)
    return Message("{name} (osImage)", name=name)
