"""The driver's CUDA version against what the programs need: minor-version and forward compatibility.

Source: https://docs.nvidia.com/deploy/cuda-compatibility/ and the tables in `data/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.compatibility.checks.base import MAJOR_SETTING, MINOR_SETTING, Check, Constraint, Subject
from rules.compatibility.checks.nvidia_require import host_of, newer_driver, satisfying
from rules.compatibility.label_constraints import (
    CUDA,
    DRIVER,
    EVERYWHERE,
    PRODUCT,
    Conjunction,
    LabelConstraint,
    both,
)
from rules.cuda.image_facts import CompatLibraries
from rules.cuda.nvidia_require import held
from rules.cuda.requirements import CudaRequirement, GpuRequirements
from rules.cuda.tables import forward_compatible, gpu_model, minor_version_floor
from rules.cuda.versions import CudaVersion, DriverVersion
from rules.model.check_result import CheckResult, Level, unknown, unmet
from rules.model.sharing import SharingPolicy, oldest_of_major
from rules.nodes.node_capabilities import NodeCapabilities, above_floor, branch_of
from rules.nodes.version_range import VersionRange, without_trailing_zeros
from rules.text.i18n import Text

STABLE_MAJORS: Final = 1  # a driver runs programs of the major before its own; older ones are not supported
# Segments of data/gpus.yaml for which NVIDIA supports forward compatibility, and does not; else some models.
_FORWARD_SEGMENT: Final = "datacenter"
_NO_FORWARD_SEGMENT: Final = "consumer"
# Errors of data/errors.yaml that a mismatch ends in.
_INSUFFICIENT_DRIVER: Final = 35
MISSING_CUDA: Final = Text("no label provides the driver's CUDA version", "没有标签提供驱动的 CUDA 版本")


class DriverCheck(Check):
    """The CUDA version that the driver supports against the one that the container's programs need.

    What the image itself requires of a driver (NVIDIA_REQUIRE_*) decides first: its own check denies a driver
    that is not admitted, and one that is admitted runs the programs.
    """

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for a driver that is too old, of another major, or more than one major ahead."""
        need = requirements.cuda
        if need is None:
            return
        admitted = requirements.admits(host_of(node)) if requirements.driver_constraints else None
        if admitted is False:
            return
        if node.cuda is None:
            # What the image requires says nothing of the one major version that virtual GPUs have.
            one_major = admitted and policy.driver_major(need) is not None
            if one_major or not requirements.driver_constraints:
                yield CheckResult(unknown(certain=need.certain), MISSING_CUDA, origin=need.origin)
            return
        driver, major = CudaVersion(*node.cuda), policy.driver_major(need)
        if driver < need.version and (admitted or not requirements.driver_constraints):
            older = _older(policy, requirements, need, node)
            yield older
            if older.level is Level.INCOMPATIBLE:
                return
        if major is not None and driver.major != major:
            yield _other_major(policy, need, driver)
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
        found = EVERYWHERE
        major = policy.driver_major(need) if policy.major_versions is Level.INCOMPATIBLE else None
        if major is not None:
            found = [{CUDA: VersionRange((major, 0), (major + 1, 0))}, *missing]
        admitting = requirements.driver_constraints
        # Whatever they admit runs the programs, unless they ask for less than the programs need.
        admitted = any(each.native is not None and each.native >= need.version for each in admitting)
        if not admitted and not (or_unknown and _may_help(policy, requirements)):
            drivers = _native(policy, requirements, need, nodes)
            newest = (need.version.major, 0) if admitting else need.version
            older = [node for node in nodes if node.cuda is None or node.cuda < newest]
            found = both(found, [*drivers, *_forward(policy, requirements, older), *missing])
        if found is not EVERYWHERE:
            yield Constraint(Subject.DRIVER, found)


def forward_level(requirements: GpuRequirements, node: NodeCapabilities) -> Level:
    """Return whether forward compatibility makes up for an older driver; INCOMPATIBLE: it does not.

    It is assumed only if the image is known to load its libraries, or if its release notes list the driver.
    """
    model = gpu_model(node.product) if node.product else None
    need, branch, libraries = requirements.cuda, branch_of(node), requirements.cuda_compat
    listed = branch in requirements.branches
    known = listed or libraries in (CompatLibraries.LOADER_PATH, CompatLibraries.INSIDE)
    if need is None or not known or (model and model.segment == _NO_FORWARD_SEGMENT):
        return Level.INCOMPATIBLE
    if model is None or model.segment != _FORWARD_SEGMENT:
        return Level.UNKNOWN
    if listed:
        return Level.COMPATIBLE
    fact = forward_compatible(need.version, branch) if branch else None
    if fact is None or not fact.certain:
        return Level.UNKNOWN
    if not fact.value:
        return Level.INCOMPATIBLE
    return Level.COMPATIBLE if libraries is CompatLibraries.LOADER_PATH else Level.UNKNOWN


def _older(
    policy: SharingPolicy, requirements: GpuRequirements, need: CudaRequirement, node: NodeCapabilities
) -> CheckResult:
    """Return the result of a driver whose CUDA version is older than the container's."""
    driver, runtime = CudaVersion(*(node.cuda or (0, 0))), need.version
    reason = Text(f"the driver has CUDA {driver}, below {runtime}", f"驱动为 CUDA {driver}，低于 {runtime}")
    if requirements.driver_constraints and _admitted(requirements, need, node):
        how = (
            Text("minor version compatibility", "次版本兼容")
            if driver.major == runtime.major
            else Text("forward compatibility", "前向兼容")
        )
        variable = requirements.driver_constraints[0].variable
        why = Text(
            f"{reason.en}, but {variable} admits this driver: it runs by {how.en}",
            f"{reason.zh}，但 {variable} 允许该驱动：依靠{how.zh}运行",
        )
        return CheckResult(Level.COMPATIBLE, why)
    forward = Level.INCOMPATIBLE if policy.virtual else forward_level(requirements, node)
    if forward is Level.COMPATIBLE:
        why = Text(
            f"{reason.en}: it runs by forward compatibility (cuda-compat)",
            f"{reason.zh}：依靠前向兼容（cuda-compat）运行",
        )
        return CheckResult(forward, why)
    remedy = Text(
        f"use an image with CUDA {driver} or older, or {newer_driver(runtime).en}",
        f"改用 CUDA {driver} 或更旧的镜像，或{newer_driver(runtime).zh}",
    )
    within_major = driver >= oldest_of_major(need) and above_floor(node)
    if within_major and (policy.minor_versions is not Level.INCOMPATIBLE or forward is not Level.UNKNOWN):
        why = Text(
            f"{reason.en}, which NVIDIA supports with limits (no newer features, no PTX)",
            f"{reason.zh}，NVIDIA 有限支持（不含新特性与 PTX）",
        )
        level = min(policy.minor_versions, unmet(certain=need.certain))
        return CheckResult(level, why, remedy, origin=need.origin, setting=MINOR_SETTING)
    if forward is Level.UNKNOWN:
        why = Text(
            f"{reason.en}; it is unknown whether cuda-compat helps",
            f"{reason.zh}；未知 cuda-compat 是否可用",
        )
        return CheckResult(unknown(certain=need.certain), why, remedy, origin=need.origin)
    if requirements.cuda_compat is CompatLibraries.LOADER_PATH:
        reason = Text(f"{reason.en}; cuda-compat does not help", f"{reason.zh}；cuda-compat 在此无效")
    return CheckResult(unmet(certain=need.certain), reason, remedy, _INSUFFICIENT_DRIVER, need.origin)


def _admitted(requirements: GpuRequirements, need: CudaRequirement, node: NodeCapabilities) -> bool:
    """Return whether the image's own constraints make this older driver run the programs.

    They do if they list it as an alternative, and if it is of the programs' major version. Some images ask
    for less than their programs need: `cuda>=9.0` says nothing of CUDA 12.
    """
    if node.cuda is not None and node.cuda[0] == need.version.major:
        return True
    host = host_of(node)
    return any(
        each.alternatives and held(each.alternatives, host) for each in requirements.driver_constraints
    )


def _other_major(policy: SharingPolicy, need: CudaRequirement, driver: CudaVersion) -> CheckResult:
    """Return the result of a driver of another major version, for virtual GPUs."""
    other = f"CUDA {driver.major}.x"
    reason = Text(
        f"the driver has CUDA {driver}, another major version than the container's {need.version}",
        f"驱动为 CUDA {driver}，与容器的 {need.version} 主版本不同",
    )
    remedy = Text(f"use an image with {other}, or whole GPUs", f"改用 {other} 的镜像，或使用整卡")
    level = min(policy.major_versions, unmet(certain=need.certain))
    return CheckResult(level, reason, remedy, origin=need.origin, setting=MAJOR_SETTING)


def _may_help(policy: SharingPolicy, requirements: GpuRequirements) -> bool:
    """Return whether it can be unknown on some node if forward compatibility helps."""
    known = (CompatLibraries.LOADER_PATH, CompatLibraries.INSIDE)
    return not policy.virtual and (requirements.cuda_compat in known or bool(requirements.branches))


def _native(
    policy: SharingPolicy, requirements: GpuRequirements, need: CudaRequirement, nodes: list[NodeCapabilities]
) -> Iterator[Conjunction]:
    """Yield the drivers that run the container as they are, or by minor version compatibility."""
    if admitting := requirements.driver_constraints:
        yield {CUDA: VersionRange((need.version.major, 0))}
        for each in admitting:
            if each.alternatives:
                yield from satisfying(each, nodes, groups=each.alternatives)
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
    if policy.virtual:
        return
    for node in nodes:
        branch = branch_of(node)
        if branch and node.product and forward_level(requirements, node) is Level.COMPATIBLE:
            product = {PRODUCT: frozenset({node.product})}
            if node.driver:
                drivers = VersionRange((branch, 0), (branch + 1, 0))
                yield {CUDA: VersionRange(), DRIVER: drivers, **product}
            elif node.cuda:
                major, minor = node.cuda
                yield {CUDA: VersionRange((major, minor), (major, minor + 1)), DRIVER: None, **product}
