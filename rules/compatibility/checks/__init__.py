"""Compatibility checks, one file each. `CHECKS` lists them in the order of their results."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from rules.compatibility.checks.architecture import ArchitectureCheck
from rules.compatibility.checks.base import Check
from rules.compatibility.checks.baseline import BaselineCheck
from rules.compatibility.checks.compute_capability import ComputeCapabilityCheck
from rules.compatibility.checks.driver import DriverCheck
from rules.compatibility.checks.driver_support import DriverSupportCheck
from rules.compatibility.checks.exclusive_devices import ExclusiveDevicesCheck
from rules.compatibility.checks.gpu_memory import GpuMemoryCheck
from rules.compatibility.checks.gpu_settings import GpuSettingsCheck
from rules.compatibility.checks.interception import InterceptionCheck
from rules.compatibility.checks.mig_profile import MigProfileCheck
from rules.compatibility.checks.model_precision import ModelPrecisionCheck
from rules.compatibility.checks.model_split import ModelSplitCheck
from rules.compatibility.checks.model_weights import ModelWeightsCheck
from rules.compatibility.checks.nvidia_require import NvidiaRequireCheck
from rules.compatibility.checks.parallelism import ParallelismCheck
from rules.compatibility.checks.shared_gpu_count import SharedGpuCountCheck
from rules.compatibility.checks.shared_memory import SharedMemoryCheck
from rules.compatibility.checks.sharing_mode import SharingModeCheck
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities, branch_of, least_cuda_of

CHECKS: Final[tuple[Check, ...]] = (
    BaselineCheck(),
    NvidiaRequireCheck(),
    DriverSupportCheck(),
    DriverCheck(),
    SharingModeCheck(),
    SharedGpuCountCheck(),
    ComputeCapabilityCheck(),
    ArchitectureCheck(),
    GpuMemoryCheck(),
    ExclusiveDevicesCheck(),
    MigProfileCheck(),
    ParallelismCheck(),
    SharedMemoryCheck(),
    GpuSettingsCheck(),
    ModelSplitCheck(),
    ModelPrecisionCheck(),
    ModelWeightsCheck(),
    InterceptionCheck(),
)
_OPTIONAL: Final = tuple(check for check in CHECKS if check.is_optional)
# Most checks have nothing to say without a node, or of a container alone.
_WITHOUT_NODE: Final = tuple(check for check in CHECKS if type(check).on_any_node is not Check.on_any_node)
_OF_CONTAINERS: Final = tuple(check for check in CHECKS if type(check).on_container is not Check.on_container)


def check_container(
    policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
) -> list[CheckResult]:
    """Return what the checks find in a container of a pod, whatever its node."""
    return [
        finding
        for check in _OF_CONTAINERS
        for finding in check.on_container(policy, requirements, container, pod)
    ]


def check_on_any_node(policy: SharingPolicy, requirements: GpuRequirements) -> tuple[CheckResult, ...]:
    """Return the results of all checks that hold on every node."""
    if policy.trial:
        return ()
    return tuple([result for check in _WITHOUT_NODE for result in check.on_any_node(policy, requirements)])


def check_on_node(
    policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
) -> tuple[CheckResult, ...]:
    """Return the results of all checks on a node; none if it is compatible.

    The lowest CUDA version that the driver can have proves that programs run, never that they fail.
    """
    if least := least_cuda_of(node):
        results = _check_all(policy, requirements, replace(node, cuda=least.cuda))
        newer = requirements.cuda is not None and requirements.cuda.version > least.cuda
        if level_of(results) <= Level.UNSTABLE and not (newer and least.by != branch_of(node)):
            return results
    return _check_all(policy, requirements, replace(node, cuda=None) if least else node)


def _check_all(
    policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
) -> tuple[CheckResult, ...]:
    checks = _OPTIONAL if policy.trial else CHECKS
    return tuple([result for check in checks for result in check.on_node(policy, requirements, node)])
