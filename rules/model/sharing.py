"""How containers share GPUs, and what that requires of image, driver and GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rules.cuda.requirements import CudaRequirement
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.model.check_result import Level
from rules.nodes.label_families import LabelNames

# The first major version within which a driver runs programs of newer minor versions.
_MINOR_VERSIONS_SINCE: Final = 11
_DEFAULT_LABELS: Final = LabelNames()


@dataclass(frozen=True, slots=True)
class SharingPolicy:
    """What a way of sharing GPUs asks beyond the container's own needs.

    virtual: driver and runtime have to have baseline's major version. baseline: the highest CUDA version that
    the virtualisation knows. minor_versions: what a driver of the runtime's major but a lower minor is.
    min_cuda, min_compute: what the mode itself needs of driver and GPU. device_mode: what its nodes are for,
    where they say so. mig: whether it goes with MIG slices. labels: which labels of nodes tell what.
    """

    virtual: bool = False
    baseline: CudaVersion | None = None
    minor_versions: Level = Level.INCOMPATIBLE
    min_cuda: CudaVersion | None = None
    min_compute: ComputeCapability | None = None
    device_mode: str | None = None
    mig: bool = True
    labels: LabelNames = _DEFAULT_LABELS

    def __hash__(self) -> int:
        return hash((self.virtual, self.device_mode, self.mig))  # few rules are alike, and they are compared

    def driver_major(self, need: CudaRequirement) -> int | None:
        """Return the only major version that a driver may have; None where it may be a newer one."""
        if not self.virtual:
            return None
        # A toolkit that may also be newer has to be of the baseline's major, or it runs nowhere.
        return need.version.major if need.exact else self.baseline and self.baseline.major

    def oldest_driver(self, need: CudaRequirement) -> CudaVersion:
        """Return the driver's CUDA version below which a container is refused, but for cuda-compat."""
        major = need.version.major
        within_major = self.minor_versions is not Level.INCOMPATIBLE and major >= _MINOR_VERSIONS_SINCE
        # The floors of data/drivers.yaml are drivers of the branches that brought 11.0, 12.0 and 13.0.
        return CudaVersion(major, 0) if within_major and not self.virtual else need.version
