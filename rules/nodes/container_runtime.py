"""Container runtimes: whether they evaluate NVIDIA_REQUIRE_* and load an image's compatibility libraries.

Source: `facts/runtime_modes.yaml`.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from rules.cuda.tables import read_table
from rules.text.i18n import Message


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
    return {row["name"]: RuntimeMode(row["mode"]) for row in read_table("runtime_modes")["runtimeClasses"]}


def mode_of_class(name: str) -> RuntimeMode | None:
    """Return the mode that a RuntimeClass sets; None if it sets none or is unknown."""
    return _modes_of_classes().get(name)
