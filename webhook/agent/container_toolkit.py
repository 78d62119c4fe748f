"""NVIDIA Container Toolkit of this node, by its configuration and its library.

Source: https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/, config.toml, and
NVIDIA/nvidia-container-toolkit v1.20.0 api/config/v1.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from rules.nodes.runtime_modes import AUTO, RuntimeMode, mode_of, toolkit_version

# The root of the node's file system; in a pod, where it is mounted.
HOST_ROOT: Final = Path("/")
_CONFIG: Final = "etc/nvidia-container-runtime/config.toml"
# Where GPU Operator installs another toolkit; its ClusterPolicy has the settings.
_OF_OPERATOR: Final = "usr/local/nvidia/toolkit"
# Folders with the library whose name has the toolkit's version: libnvidia-container.so.1.17.8.
_LIBRARIES: Final = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib")
_LIBRARY: Final = re.compile(r"libnvidia-container\.so\.([0-9]+\.[0-9]+\.[0-9]+)")
# The CDI specification of NVIDIA's device plugin, which then requests no GPUs from the runtime.
_OF_PLUGIN: Final = ("var/run/cdi", "k8s.device-plugin.nvidia.com-*")
_RUNTIME: Final = "nvidia-container-runtime"
# Settings of compatibility libraries, with the values that change nothing.
_COMPAT: Final[tuple[tuple[tuple[str, ...], tuple[object, ...]], ...]] = (
    (("features", "allow-cuda-compat-libs-from-container"), (None, False)),
    (("features", "disable-cuda-compat-lib-hook"), (None, False)),
    ((_RUNTIME, "modes", "legacy", "cuda-compat-mode"), (None, "", "ldconfig")),
    ((_RUNTIME, "modes", "jit-cdi", "nvcdi-disable-hooks"), (None, [])),
)


class ContainerToolkit(NamedTuple):
    """The toolkit of a node."""

    mode: RuntimeMode
    # Such as `1.17.8`; empty if it is unknown, or if its defaults for compatibility libraries do not apply.
    version: str = ""


def read_toolkit(root: Path = HOST_ROOT) -> ContainerToolkit | None:
    """Return the toolkit of a node; None if it cannot be read, or another one may be used.

    root: of the node's file system. Never raises.
    """
    try:
        config = tomllib.loads((root / _CONFIG).read_text("utf-8"))
        replaced = (root / _OF_OPERATOR).exists()
    except (OSError, ValueError):
        return None
    if replaced or config.get("disable-require", False) is not False:
        return None
    configured = _member(config, (_RUNTIME, "mode")) or AUTO
    versions = set(_versions(root))
    version = versions.pop() if len(versions) == 1 else ""
    mode = mode_of(configured, toolkit_version(version)) if isinstance(configured, str) else None
    if mode not in (RuntimeMode.LEGACY, RuntimeMode.CDI):
        return None
    if mode is RuntimeMode.LEGACY and any(_files(root, *_OF_PLUGIN)):
        return None
    # Whether a specification that was written before has the hook for them is unknown.
    default = configured != "cdi" and all(_member(config, path) in values for path, values in _COMPAT)
    return ContainerToolkit(mode, version if default else "")


def _versions(root: Path) -> Iterator[str]:
    for folder in _LIBRARIES:
        for file in _files(root, f"{folder}/libnvidia-container.so.*"):
            if name := _LIBRARY.fullmatch(file.name):
                yield name[1]


def _files(root: Path, *parts: str) -> list[Path]:
    with suppress(OSError):
        return list(root.glob("/".join(parts)))
    return []


def _member(parent: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = parent
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
