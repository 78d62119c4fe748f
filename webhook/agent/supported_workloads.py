"""Which programs a node can run, by the same `fitness` that judges pods at admission."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from rules.compatibility.fitness import fitness
from rules.cuda.image_catalog import ImageCatalog
from rules.cuda.requirements import CUDA_VERSION_ANNOTATION, ContainerFacts, requirements_of
from rules.cuda.tables import cuda_version, read_table
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.container_env import Environment
from rules.model.finding import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities

# The lowest compute capability on which tensor cores compute with a type. Source: PTX ISA, what `mma` says of
# target ISAs: https://docs.nvidia.com/cuda/parallel-thread-execution/
DATA_TYPES: Final = {
    "float16": ComputeCapability(7, 0),
    "bfloat16": ComputeCapability(8, 0),
    "fp8": ComputeCapability(8, 9),
    "fp4": ComputeCapability(10, 0),
}
# The oldest major version for which NVIDIA states what it is compatible with (data/drivers.yaml).
_OLDEST: Final = CudaVersion(11, 0)
_CONTAINER: Final = ContainerFacts("", "", Environment({}))


class Way(Enum):
    """How a CUDA runtime comes to run."""

    DRIVER = "driver"
    MINOR_VERSION = "minor version compatibility"
    FORWARD = "forward compatibility"


@dataclass(frozen=True, slots=True)
class Runtime:
    """Whether a CUDA runtime runs: the way, or None with the reasons why not."""

    cuda: CudaVersion
    way: Way | None
    reasons: tuple[CheckResult, ...]


def runtimes(offer: NodeCapabilities) -> tuple[Runtime, ...]:
    """Return each runtime that is known, the oldest first; what is unknown of a node runs nothing."""
    known = sorted({cuda_version(row["cuda"]) for row in read_table("toolkits")})
    return tuple(_runtime(cuda, offer) for cuda in known if cuda >= _OLDEST)


def data_types(offer: NodeCapabilities) -> dict[str, bool]:
    """Return for each type whether the GPUs compute with it; empty where their capability is unknown."""
    compute = offer.compute_capability
    return {name: compute >= lowest for name, lowest in DATA_TYPES.items()} if compute else {}


def _runtime(cuda: CudaVersion, offer: NodeCapabilities) -> Runtime:
    needs = requirements_of(_CONTAINER, {CUDA_VERSION_ANNOTATION: str(cuda)}, ImageCatalog(()))
    findings = fitness(SharingPolicy(), needs, offer)
    for way, found in (
        (Way.DRIVER, findings),
        (Way.MINOR_VERSION, fitness(SharingPolicy(minor_versions=Level.COMPATIBLE), needs, offer)),
        (Way.FORWARD, fitness(SharingPolicy(), replace(needs, cuda_compat=True), offer)),
    ):
        if level_of(found) <= Level.UNSTABLE:
            return Runtime(cuda, way, found)
    return Runtime(cuda, None, findings)
