"""What a node's container runtime does with NVIDIA_REQUIRE_* and an image's compatibility libraries.

Source: `facts/runtime_modes.yaml`.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from rules.cuda.tables import read_table
from rules.text.i18n import Message


class RuntimeMode(Enum):
    """How NVIDIA's Container Toolkit, or what takes its place, prepares containers.

    LEGACY evaluates NVIDIA_REQUIRE_*, and starts no container whose expressions are unsatisfied. CDI (also
    jit-cdi, CDI of containerd or CRI-O, DRA, and GKE's own plugin) evaluates nothing.
    """

    LEGACY = "legacy"
    CDI = "cdi"
    UNKNOWN = "unknown"


class ContainerRuntime(NamedTuple):
    """The container runtime of a node.

    loads_compat: whether it makes programs load the compatibility libraries of an image whose major version
    is above the driver's; None if that is unknown. toolkit: version of NVIDIA Container Toolkit, such as
    (1, 17, 8); empty if unknown. source: where this is from; empty if nothing is known.
    """

    mode: RuntimeMode = RuntimeMode.UNKNOWN
    loads_compat: bool | None = None
    toolkit: tuple[int, ...] = ()
    source: Message = Message()

    def in_mode(self, mode: RuntimeMode, source: Message) -> ContainerRuntime:
        """Return this runtime in a mode that something else sets: a pod's RuntimeClass, or a rule.

        How the node loads compatibility libraries is known of its own mode only.
        """
        loads = self.loads_compat if self.mode is mode else None
        return ContainerRuntime(mode, loads, self.toolkit, source)


UNKNOWN_RUNTIME: Final = ContainerRuntime()


@cache
def _modes_of_classes() -> dict[str, RuntimeMode]:
    return {row["name"]: RuntimeMode(row["mode"]) for row in read_table("runtime_modes")["runtimeClasses"]}


def mode_of_class(name: str) -> RuntimeMode | None:
    """Return the mode that a RuntimeClass sets; None if it sets none, or that is unknown."""
    return _modes_of_classes().get(name)
