"""How containers share GPUs, and what that requires of image, driver and GPU."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from rules.cuda.requirements import CudaRequirement, GpuRequirements
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.model.check_result import Level
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.runtime_modes import ContainerRuntime, RuntimeMode, mode_of_class
from rules.text.i18n import Message

# The first major version within which a driver runs programs of newer minor versions.
_MINOR_VERSIONS_SINCE: Final = 11
_DEFAULT_LABELS: Final = LabelNames()
# Where the mode of a container runtime is from.
_IN_POD: Final = Message("runtimeClassName of the pod")
_IN_RULE: Final = Message("containerRuntime of the rule")


class Checks(Struct, frozen=True):
    """The level of a finding of each check that a rule can set: COMPATIBLE is off, UNSTABLE warns.

    A finding that is not certain has a milder level. What each finds: the fields of ChecksDocument.
    """

    gpu_count: Level = Level.INCOMPATIBLE
    taints: Level = Level.UNSTABLE
    parallelism: Level = Level.INCOMPATIBLE
    shared_memory: Level = Level.UNSTABLE
    shared_gpu_count: Level = Level.INCOMPATIBLE
    exclusive_devices: Level = Level.UNSTABLE
    architecture: Level = Level.INCOMPATIBLE
    gpu_memory: Level = Level.INCOMPATIBLE
    gpu_settings: Level = Level.UNSTABLE
    model: Level = Level.INCOMPATIBLE
    interception: Level = Level.INCOMPATIBLE
    claim_configs: Level = Level.INCOMPATIBLE


# For whoever has no rule: the matrix, and what a node supports.
CHECKS_OFF: Final = Checks(*[Level.COMPATIBLE] * len(Checks.__struct_fields__))


class SharingPolicy(Struct, frozen=True):
    """What a way of sharing GPUs requires in addition to the container's own requirements.

    cuda: the accelerators run CUDA; otherwise nothing is compared with nodes. virtual: CUDA calls are
    intercepted. baseline: the highest CUDA version that the virtualisation supports.
    minor_versions: the level of a driver of the runtime's major with a lower minor. major_versions: the level
    of a virtual GPU if driver, runtime and baseline differ in the major version; of a whole GPU, of a driver
    of an older major version if it is unknown whether the image has forward compatibility libraries.
    warns_of_newer_majors: whether a pod is warned of a driver that is more than one major version newer.
    min_cuda, min_compute: what the mode needs of driver and GPU. device_mode: what its nodes are set up for,
    if labelled. mig: whether it supports MIG slices. labels: which labels to read. runtime_mode: of the
    container runtime of all nodes; None: as each node shows. feature_gates: those of the DRA driver that are
    on. checks: the level of each check. trial: nothing
    but these checks is evaluated.
    """

    cuda: bool = True
    virtual: bool = False
    baseline: CudaVersion | None = None
    minor_versions: Level = Level.INCOMPATIBLE
    major_versions: Level = Level.INCOMPATIBLE
    warns_of_newer_majors: bool = False
    min_cuda: CudaVersion | None = None
    min_compute: ComputeCapability | None = None
    device_mode: str | None = None
    mig: bool = True
    labels: LabelNames = _DEFAULT_LABELS
    runtime_mode: RuntimeMode | None = None
    feature_gates: frozenset[str] = frozenset()
    checks: Checks = CHECKS_OFF
    trial: bool = False

    def __hash__(self) -> int:
        return hash((self.virtual, self.device_mode, self.mig))  # few rules are alike, and they are compared

    def driver_major(self, need: CudaRequirement) -> int | None:
        """Return the only major version that a driver may have; None if newer ones are fine."""
        if not self.virtual:
            return None
        # A toolkit that may be newer must have the baseline's major, or it runs nowhere.
        return need.version.major if need.exact else self.baseline and self.baseline.major

    def runtime(self, requirements: GpuRequirements, node: NodeCapabilities) -> ContainerRuntime:
        """Return the container runtime of a container on a node: by its pod, by this rule, or by the node.

        A RuntimeClass of unknown mode leaves the mode legacy: there the device plugin does not use CDI.
        """
        without_class = (
            node.runtime.in_mode(self.runtime_mode, _IN_RULE) if self.runtime_mode else node.runtime
        )
        of_class = mode_of_class(requirements.runtime_class)
        if of_class is None or (of_class is RuntimeMode.UNKNOWN and without_class.mode is RuntimeMode.LEGACY):
            return without_class
        return node.runtime.in_mode(of_class, _IN_POD)


def oldest_of_major(need: CudaRequirement) -> CudaVersion:
    """Return the lowest CUDA version of a driver that NVIDIA supports within the major version."""
    # The floors of facts/drivers.yaml are drivers of the branches that brought 11.0, 12.0 and 13.0.
    major = need.version.major
    return CudaVersion(major, 0) if major >= _MINOR_VERSIONS_SINCE else need.version
