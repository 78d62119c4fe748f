"""The driver's CUDA version against the container's: minor-version and forward compatibility.

Source: https://docs.nvidia.com/deploy/cuda-compatibility/ and the tables in `data/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.compatibility.checks.base import Check, Constraint, Subject
from rules.compatibility.label_constraints import CUDA, DRIVER, PRODUCT, Conjunction, LabelConstraint
from rules.cuda.nvidia_require import Host
from rules.cuda.requirements import CudaRequirement, GpuRequirements
from rules.cuda.tables import forward_compatible, gpu_model, minor_version_floor
from rules.cuda.versions import CudaVersion, DriverVersion, MajorMinor
from rules.model.check_result import CheckResult, Level, unknown, unmet
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities, above_floor, driver_of
from rules.nodes.version_range import VersionRange, without_trailing_zeros
from rules.text.i18n import Text

STABLE_MAJORS: Final = 1  # a driver runs programs of the major before its own; older ones are not supported
# Segments of data/gpus.yaml for which NVIDIA supports forward compatibility, and does not; else some models.
_FORWARD_SEGMENT: Final = "datacenter"
_NO_FORWARD_SEGMENT: Final = "consumer"
# Errors of data/errors.yaml that a mismatch ends in.
_INSUFFICIENT_DRIVER: Final = 35
_UNSUPPORTED_PTX: Final = 222
_UNKNOWN_ERROR: Final = 999
MISSING_CUDA: Final = Text("no label provides the driver's CUDA version", "没有标签提供驱动的 CUDA 版本")


class DriverCheck(Check):
    """The CUDA version that the driver supports against the one that the container needs."""

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for a driver that is too old, of another major, or more than one major ahead."""
        need = requirements.cuda
        has_constraints = any(each.groups for each in requirements.constraints)
        # NVIDIA_REQUIRE_* decide how old a driver may be; the version is only what they say of it.
        if need is None or (has_constraints and policy.driver_major(need) is None):
            return
        if has_constraints and requirements.constraints_hold(host_of(node)) is False:
            return
        if node.cuda is None:
            yield CheckResult(unknown(certain=need.certain), MISSING_CUDA, origin=need.origin)
            return
        driver, major = CudaVersion(*node.cuda), policy.driver_major(need)
        if driver < need.version and not has_constraints:
            yield _older(policy, requirements, need, node)
        elif major is not None and driver.major != major:
            other = f"CUDA {driver.major}.x"
            reason = Text(
                f"virtual GPUs need driver and runtime of one major version, the driver has CUDA {driver}",
                f"虚拟 GPU 要求驱动与运行时主版本相同，驱动为 CUDA {driver}",
            )
            remedy = Text(f"use an image with {other}, or whole GPUs", f"改用 {other} 的镜像，或使用整卡")
            yield CheckResult(unmet(certain=need.certain), reason, remedy, _UNKNOWN_ERROR, need.origin)
        elif driver.major - need.version.major > STABLE_MAJORS:
            reason = Text(
                f"the driver's CUDA {driver} is more than one major version ahead, which is unstable",
                f"驱动的 CUDA {driver} 超前一个以上主版本，可能不稳定",
            )
            yield CheckResult(Level.UNSTABLE, reason)

    def constraints(
        self,
        policy: SharingPolicy,
        requirements: GpuRequirements,
        nodes: list[NodeCapabilities],
        *,
        or_unknown: bool,
    ) -> Iterator[Constraint]:
        """Yield the drivers that run the container."""
        need = requirements.cuda
        if need is None or not need.certain:
            return
        missing: LabelConstraint = [{CUDA: None}] if or_unknown else []
        major = policy.driver_major(need)
        if any(each.groups for each in requirements.constraints):
            if major is not None:
                yield Constraint(Subject.DRIVER, [{CUDA: VersionRange((major, 0), (major + 1, 0))}, *missing])
        elif not (or_unknown and requirements.cuda_compat and not policy.virtual):
            drivers = [*_native(policy, need, major, nodes), *_forward(policy, requirements, nodes), *missing]
            yield Constraint(Subject.DRIVER, drivers)


def host_of(node: NodeCapabilities) -> Host:
    """Return the node as NVIDIA_REQUIRE_* see it."""
    return Host(cuda=node.cuda, driver=node.driver, arch=node.compute_capability)


def newer_driver(cuda: MajorMinor) -> Text:
    """Return the fix for a driver that is too old."""
    return Text(f"a driver with CUDA {cuda} or newer", f"使用支持 CUDA {cuda} 及以上的驱动")


def forward_level(requirements: GpuRequirements, node: NodeCapabilities) -> Level:
    """Return whether cuda-compat in the container makes up for an older driver; INCOMPATIBLE: it does not."""
    model = gpu_model(node.product) if node.product else None
    need = requirements.cuda
    if need is None or not requirements.cuda_compat or (model and model.segment == _NO_FORWARD_SEGMENT):
        return Level.INCOMPATIBLE
    driver = driver_of(node)
    fact = forward_compatible(need.version, driver.branch) if driver else None
    if fact is None or not fact.certain or model is None or model.segment != _FORWARD_SEGMENT:
        return Level.UNKNOWN
    return Level.COMPATIBLE if fact.value else Level.INCOMPATIBLE


def _older(
    policy: SharingPolicy, requirements: GpuRequirements, need: CudaRequirement, node: NodeCapabilities
) -> CheckResult:
    """Return the result of a driver whose CUDA version is older than the container's."""
    driver, runtime = CudaVersion(*(node.cuda or (0, 0))), need.version
    reason = Text(f"the driver has CUDA {driver}, below {runtime}", f"驱动为 CUDA {driver}，低于 {runtime}")
    forward = Level.INCOMPATIBLE if policy.virtual else forward_level(requirements, node)
    if forward is Level.COMPATIBLE:
        why = Text("by forward compatibility (cuda-compat)", "通过前向兼容（cuda-compat）")
        return CheckResult(forward, why)
    if driver >= policy.oldest_driver(need) and above_floor(node):
        why = Text(f"{reason.en}, by minor version compatibility", f"{reason.zh}，依靠次版本兼容运行")
        return CheckResult(policy.minor_versions, why)
    if forward is Level.UNKNOWN:
        why = Text(
            f"{reason.en}; it is unknown whether cuda-compat helps",
            f"{reason.zh}；未知 cuda-compat 是否可用",
        )
        return CheckResult(unknown(certain=need.certain), why, origin=need.origin)
    if requirements.cuda_compat:
        reason = Text(f"{reason.en}; cuda-compat does not help", f"{reason.zh}；cuda-compat 在此无效")
    newer = newer_driver(runtime)
    remedy = Text(
        f"use an image with CUDA {driver} or older, or {newer.en}",
        f"改用 CUDA {driver} 或更旧的镜像，或{newer.zh}",
    )
    code = _UNSUPPORTED_PTX if driver.major == runtime.major else _INSUFFICIENT_DRIVER
    return CheckResult(unmet(certain=need.certain), reason, remedy, code, need.origin)


def _native(
    policy: SharingPolicy, need: CudaRequirement, major: int | None, nodes: list[NodeCapabilities]
) -> Iterator[Conjunction]:
    """Yield the drivers that run the container as they are, or by minor version compatibility."""
    if major is not None:
        yield {CUDA: VersionRange(max(need.version, (major, 0)), (major + 1, 0))}
        return
    oldest, fact = policy.oldest_driver(need), minor_version_floor(need.version.major)
    minors = VersionRange(oldest, need.version)
    floor = VersionRange(without_trailing_zeros(fact.value.numbers)) if fact else VersionRange()
    lower = [node for node in nodes if node.cuda is not None and node.cuda in minors]
    drivers = (DriverVersion.parse(node.driver or "") for node in lower)
    if all(driver is None or driver.numbers in floor for driver in drivers):
        yield {CUDA: VersionRange(oldest)}
        return
    yield {CUDA: VersionRange(need.version)}
    yield {CUDA: minors, DRIVER: floor}
    yield {CUDA: minors, DRIVER: None}


def _forward(
    policy: SharingPolicy, requirements: GpuRequirements, nodes: list[NodeCapabilities]
) -> Iterator[Conjunction]:
    """Yield the nodes on which cuda-compat makes up for an older driver."""
    if policy.virtual or not requirements.cuda_compat:
        return
    for node in nodes:
        driver = DriverVersion.parse(node.driver or "")
        if driver and node.product and forward_level(requirements, node) is Level.COMPATIBLE:
            branch = VersionRange((driver.branch, 0), (driver.branch + 1, 0))
            yield {CUDA: VersionRange(), DRIVER: branch, PRODUCT: frozenset({node.product})}
