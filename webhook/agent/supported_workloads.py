"""Supported workloads: CUDA runtimes and data types of a node, by the compatibility check of admission."""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rules.compatibility.checks import check_on_node
from rules.cuda.image_catalog import CompatLibraries, ImageCatalog
from rules.cuda.requirements import CUDA_VERSION_ANNOTATION, ContainerFacts, requirements_of
from rules.cuda.tables import listed_before, toolkits
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities, branch_of

# The lowest compute capability whose tensor cores support a type. Source: PTX ISA, target ISA notes of `mma`:
# https://docs.nvidia.com/cuda/parallel-thread-execution/
DATA_TYPES: Final = {
    "float16": ComputeCapability(7, 0),
    "bfloat16": ComputeCapability(8, 0),
    "fp8": ComputeCapability(8, 9),
    "fp4": ComputeCapability(10, 0),
}
# The oldest major version whose compatibility NVIDIA documents (facts/drivers.yaml).
_OLDEST: Final = CudaVersion(11, 0)


class CompatibilityMode(Enum):
    """Why a driver supports a CUDA runtime."""

    DRIVER = "driver"
    MINOR_VERSION = "minor version compatibility"
    FORWARD = "forward compatibility"


class Runtime(Struct, frozen=True):
    """The support for a CUDA runtime."""

    cuda: CudaVersion
    mode: CompatibilityMode | None  # None if it is not supported
    reasons: tuple[CheckResult, ...]
    is_unknown: bool = False  # no mode, but NVIDIA's lists are too old to exclude forward compatibility


def runtimes(node: NodeCapabilities) -> tuple[Runtime, ...]:
    """Return each known runtime, the oldest first; a node with unknown capabilities supports none."""
    return tuple(_runtime(cuda, node) for cuda in toolkits(node.facts) if cuda >= _OLDEST)


def data_types(node: NodeCapabilities) -> dict[str, bool]:
    """Return whether the GPUs support a data type, by type; empty if their compute capability is unknown."""
    compute = node.gpu_capability
    return {name: compute >= lowest for name, lowest in DATA_TYPES.items()} if compute else {}


def _runtime(cuda: CudaVersion, node: NodeCapabilities) -> Runtime:
    requirements = requirements_of(
        ContainerFacts("", annotations=((CUDA_VERSION_ANNOTATION, str(cuda)),)), ImageCatalog(())
    )
    results = check_on_node(SharingPolicy(), requirements, node)
    with_compat = replace(requirements, cuda_compat=CompatLibraries.LOADER_PATH)
    forward = check_on_node(SharingPolicy(), with_compat, node)
    for mode, of_mode in (
        (CompatibilityMode.DRIVER, results),
        (
            CompatibilityMode.MINOR_VERSION,
            check_on_node(SharingPolicy(minor_versions=Level.COMPATIBLE), requirements, node),
        ),
        (CompatibilityMode.FORWARD, forward),
    ):
        if level_of(of_mode) <= Level.UNSTABLE:
            return Runtime(cuda, mode, of_mode)
    branch = branch_of(node)
    if level_of(forward) is Level.UNKNOWN and branch and listed_before(node.facts, cuda, branch):
        return Runtime(cuda, None, forward, is_unknown=True)
    return Runtime(cuda, None, results)
