"""The driver's CUDA version against what the programs need: minor-version and forward compatibility.

Source: https://docs.nvidia.com/deploy/cuda-compatibility/, the tables in `facts/`, and the table in
docs/compatibility-semantics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from rules.compatibility.checks.base import MAJOR_SETTING, MINOR_SETTING, Check
from rules.compatibility.checks.nvidia_require import (
    host_of,
    newer_driver,
    not_started,
    refusal,
    unsatisfied,
)
from rules.cuda.image_catalog import CompatLibraries
from rules.cuda.nvidia_require import REQUIRE_CUDA
from rules.cuda.requirements import CudaRequirement, GpuRequirements
from rules.cuda.tables import forward_compatible, forward_once_listed, listed_before
from rules.cuda.versions import CudaVersion
from rules.model.check_result import CheckResult, Level, unknown, unmet
from rules.model.sharing import SharingPolicy, oldest_of_major
from rules.nodes.node_capabilities import NodeCapabilities, above_floor, branch_of, least_cuda_of
from rules.nodes.runtime_modes import RuntimeMode
from rules.text.bounded_cache import bounded_cache
from rules.text.i18n import Message

# A driver and the programs of the major version before its own are tested most; it runs older ones, too.
STABLE_MAJORS: Final = 1
# Segments of facts/gpus.yaml for which NVIDIA supports forward compatibility, and does not; else some models.
_FORWARD_SEGMENT: Final = "datacenter"
_NO_FORWARD_SEGMENT: Final = "consumer"
# Errors of facts/errors.yaml that a mismatch ends in: without compatibility libraries, and with them on a GPU
# that they do not support.
_INSUFFICIENT_DRIVER: Final = 35
_UNSUPPORTED_DEVICE: Final = 804
_IN_IMAGE: Final = (CompatLibraries.LOADER_PATH, CompatLibraries.INSIDE)
# Results of requirements on kinds of nodes with older drivers, 1 KB each; characters of requirements.
_REMEMBERED: Final = 4096
_LONGEST: Final = 8192
_NO_TEXT: Final = Message()
_MISSING_CUDA: Final = Message("no label provides the driver's CUDA version")


_OlderKey = tuple[SharingPolicy, GpuRequirements, CudaRequirement, NodeCapabilities]


class DriverCheck(Check):
    """The CUDA version that the driver supports against the one that the container's programs need.

    It says nothing of a container that NVIDIA's legacy container runtime does not start: see
    NvidiaRequireCheck.
    """

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for a driver that is too old, of another major, or more than one major newer."""
        need = requirements.cuda
        if need is None:
            return
        refused = refusal(requirements, node)
        if refused and policy.runtime(requirements, node).mode is RuntimeMode.LEGACY:
            return
        if node.cuda is None:
            if policy.runtime(requirements, node).mode is RuntimeMode.CDI or not _is_undecided(
                requirements, node
            ):
                yield CheckResult(unknown(certain=need.certain), missing_cuda(node), origin=need.origin)
            return
        driver, major = CudaVersion(*node.cuda), policy.driver_major(need)
        if driver < need.version and not _only_declared(requirements, node):
            older = _older((policy, requirements, need, node))
            yield older
            if older.level is Level.INCOMPATIBLE:
                return
        if major is not None and driver.major != major:
            yield _other_major(policy, need, driver)
        elif driver.major - need.version.major > STABLE_MAJORS:
            reason = Message("the driver's CUDA {driver} is more than one major version newer", driver=driver)
            yield CheckResult(Level.UNSTABLE, reason, warns=policy.warns_of_newer_majors)


def missing_cuda(node: NodeCapabilities) -> Message:
    """Return why the CUDA version of the driver is unknown."""
    branch, least = branch_of(node), least_cuda_of(node)
    if branch is None or least is None or branch == least.by:
        return _MISSING_CUDA
    return Message(
        "driver branch {branch} is unknown: at least CUDA {cuda}, by {by}",
        branch=branch,
        cuda=least.cuda,
        by=least.by,
    )


class _Libraries(NamedTuple):
    """What the forward compatibility libraries of an image do on a node; None: that is unknown.

    loaded: the programs load them. supported: NVIDIA supports them with this GPU and driver branch.
    """

    loaded: bool | None
    supported: bool | None


def libraries(policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities) -> _Libraries:
    """Return what the forward compatibility libraries of the image do on a node."""
    if policy.virtual:  # the library of the virtualisation takes their place
        return _Libraries(loaded=False, supported=False)
    loads = policy.runtime(requirements, node).loads_compat
    loaded = {
        CompatLibraries.LOADER_PATH: True,
        CompatLibraries.INSIDE: loads,
        CompatLibraries.NONE: False,
        CompatLibraries.UNKNOWN: None if loads is not False else False,
    }[requirements.cuda_compat]
    return _Libraries(loaded, _supported(requirements, node))


def _supported(requirements: GpuRequirements, node: NodeCapabilities) -> bool | None:
    """Return whether NVIDIA supports the libraries with a GPU and a driver branch; None: on some, or unknown.

    NVIDIA lists branches while they are maintained; what it has never listed is not supported.
    """
    model, branch = node.model, branch_of(node)
    if model and model.segment == _NO_FORWARD_SEGMENT:
        return False
    if branch is None or requirements.cuda is None:
        return None
    version = requirements.cuda.version
    if branch in requirements.branches:
        listed: bool | None = True
    elif (fact := forward_compatible(node.facts, version, branch)) and fact.certain:
        listed = fact.value
    else:
        listed = None if forward_once_listed(node.facts, version, branch) is not False else False
    return listed if listed is not True or (model and model.segment == _FORWARD_SEGMENT) else None


def _find_older(key: _OlderKey) -> CheckResult:
    """Return the result of a driver whose CUDA version is older than the container's.

    If it is unknown whether the container runtime evaluates NVIDIA_REQUIRE_*, it is the worse result.
    """
    policy, requirements, need, node = key
    driver, runtime = CudaVersion(*(node.cuda or (0, 0))), need.version
    below, fix = _below(driver, runtime)
    outcome = _outcome(policy, requirements, need, node)
    reason = Message("{below}{suffix}", below=below, suffix=outcome.suffix)
    level, code = outcome.level, outcome.code
    unmet = refusal(requirements, node)
    if unmet and policy.runtime(requirements, node).mode is RuntimeMode.UNKNOWN:
        how = not_started(unmet, outcome.started)
        if level is Level.INCOMPATIBLE and not outcome.setting:
            # In every mode, but with one error or another.
            how, code = unsatisfied(unmet, outcome.suffix), 0
        level, reason = max(level, Level.UNKNOWN), Message("{below}: {how}", below=below, how=how)
    if not need.certain:
        level = min(level, Level.UNSTABLE)
    remedy = _NO_TEXT if level is Level.COMPATIBLE else fix
    return CheckResult(level, reason, remedy, code, need.origin, outcome.setting)


@lru_cache(maxsize=_REMEMBERED)
def _below(driver: CudaVersion, runtime: CudaVersion) -> tuple[Message, Message]:
    """Return that a driver has an older CUDA version, and the fix."""
    newer = newer_driver(runtime)
    return (
        Message("the driver has CUDA {driver}, below {runtime}", driver=driver, runtime=runtime),
        Message("use an image with CUDA {driver} or older, or {newer}", driver=driver, newer=newer),
    )


# A result is part of what is found on a kind of node, and of what node affinity requires.
_older = bounded_cache(_find_older, _REMEMBERED, lambda key: key[1].length <= _LONGEST)


class _Outcome(NamedTuple):
    """What an older driver leads to, once the container starts.

    suffix: continues the sentence about the versions. started: the same after "in CDI mode". code, setting:
    as in CheckResult.
    """

    level: Level
    suffix: Message
    started: Message
    code: int = 0
    setting: str = ""


_RUNS_FORWARD: Final = _Outcome(
    Level.COMPATIBLE,
    Message(": it runs by forward compatibility (cuda-compat)"),
    Message("it runs by forward compatibility (cuda-compat)"),
)
_FAILS: Final = Message("it fails")


def _outcome(
    policy: SharingPolicy, requirements: GpuRequirements, need: CudaRequirement, node: NodeCapabilities
) -> _Outcome:
    inside = libraries(policy, requirements, node)
    if inside.loaded and inside.supported:
        return _RUNS_FORWARD
    if node.cuda and node.cuda >= oldest_of_major(need) and above_floor(node):
        return _older_minor(policy, requirements, node, inside)
    if inside.loaded is not False and inside.supported is not False:
        if _says_nothing_of_libraries(policy, requirements, node):
            return _without_known_libraries(policy)
        return _may_fail(_about_libraries(requirements, node, inside))
    may_have = requirements.cuda_compat in _IN_IMAGE or inside.loaded is None
    why = _about_libraries(requirements, node, inside) if may_have and not policy.virtual else _NO_TEXT
    # With libraries that may be loaded or not, it is one error or another.
    code = _INSUFFICIENT_DRIVER if inside.loaded is False else 0
    if inside.loaded and _is_consumer(node):
        code = _UNSUPPORTED_DEVICE
    if why is _NO_TEXT:
        return _Outcome(Level.INCOMPATIBLE, why, _FAILS, code)
    reason, started = (
        Message("; {why}", why=why),
        Message("{fails}: {why}", fails=_FAILS, why=why),
    )
    return _Outcome(Level.INCOMPATIBLE, reason, started, code)


def _older_minor(
    policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities, inside: _Libraries
) -> _Outcome:
    """Return the outcome of a driver of the container's major version with a lower minor version.

    The image itself may list it; otherwise the rule decides. Libraries that do not support the GPU or the
    driver fail where the driver alone would do.
    """
    admitted = requirements.admits(host_of(node))
    may_load = requirements.cuda_compat in _IN_IMAGE and inside.loaded is not False
    about = _about_libraries(requirements, node, inside)
    limits = Message("with limits (no newer features, no PTX)")
    runs = Message("it runs {limits}", limits=limits)
    supported = Message(", which NVIDIA supports {limits}", limits=limits)
    level, setting = policy.minor_versions, MINOR_SETTING
    if admitted:
        level = Level.COMPATIBLE
        variable = next(constraint.variable for constraint in requirements.driver_constraints)
        supported = Message(
            ", but {variable} admits this driver: it runs by minor version compatibility", variable=variable
        )
    elif level is Level.INCOMPATIBLE and may_load and inside.supported is not False:
        return _may_fail(about)
    elif admitted is None:
        level = min(level, Level.UNKNOWN)
    if may_load and inside.supported is False:
        if level < Level.UNKNOWN:
            return _may_fail(about)
        runs = Message("{runs} or fails: {about}", runs=runs, about=about)
        supported = Message("{supported}; {about}", supported=supported, about=about)
    return _Outcome(level, supported, runs, setting=setting if level is Level.INCOMPATIBLE else "")


def _says_nothing_of_libraries(
    policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
) -> bool:
    """Return whether nothing suggests that the image has libraries, nor that the node would load them."""
    return (
        requirements.cuda_compat is CompatLibraries.UNKNOWN
        and not policy.runtime(requirements, node).loads_compat
        and requirements.admits(host_of(node)) is False
    )


def _without_known_libraries(policy: SharingPolicy) -> _Outcome:
    """Return the outcome of a driver of an older major version, which the rule decides."""
    return _Outcome(
        policy.major_versions,
        Message(", and it is unknown whether the image has cuda-compat"),
        Message("it fails, unless the image has cuda-compat"),
        _INSUFFICIENT_DRIVER,
        MAJOR_SETTING if policy.major_versions is Level.INCOMPATIBLE else "",
    )


def _may_fail(why: Message) -> _Outcome:
    fails = Message("it may fail: {why}", why=why)
    return _Outcome(Level.UNKNOWN, Message(", so {fails}", fails=fails), fails)


def _about_libraries(requirements: GpuRequirements, node: NodeCapabilities, inside: _Libraries) -> Message:
    """Return why the compatibility libraries of an image do not help, or why that is unknown."""
    if requirements.cuda_compat is CompatLibraries.UNKNOWN and inside.supported is not False:
        return Message("the image may have no cuda-compat")
    if inside.loaded is False:
        return Message("the node's container runtime does not load the image's cuda-compat")
    if _is_consumer(node):
        return Message("cuda-compat does not support consumer GPUs")
    branch = branch_of(node)
    version = requirements.cuda.version if requirements.cuda else None
    if inside.supported is False:
        return Message(
            "cuda-compat of CUDA {version} does not support driver branch {branch}",
            version=version,
            branch=branch,
        )
    if inside.supported is None:
        return _about_unlisted(requirements, node)
    return Message("the node's container runtime may not load the image's cuda-compat")


def _about_unlisted(requirements: GpuRequirements, node: NodeCapabilities) -> Message:
    """Return why it is unknown whether NVIDIA supports the compatibility libraries of an image on a node."""
    branch, model, cuda = branch_of(node), node.model, requirements.cuda
    if branch and cuda and model and model.segment == _FORWARD_SEGMENT:
        older = listed_before(node.facts, cuda.version, branch)
        if older:
            return Message(
                "cuda-compat of CUDA {version} may not support driver branch {branch}; that of {older} does",
                version=cuda.version,
                branch=branch,
                older=older,
            )
    return Message("cuda-compat may not support this GPU and driver")


def _only_declared(requirements: GpuRequirements, node: NodeCapabilities) -> bool:
    """Return whether the version follows from a variable of the pod alone, which this driver satisfies."""
    constraints = requirements.driver_constraints
    return (
        requirements.cuda is not None
        and requirements.cuda.source == REQUIRE_CUDA
        and all(constraint.declared for constraint in constraints)
        and refusal(requirements, node) is None
    )


def _is_consumer(node: NodeCapabilities) -> bool:
    model = node.model
    return model is not None and model.segment == _NO_FORWARD_SEGMENT


def _is_undecided(requirements: GpuRequirements, node: NodeCapabilities) -> bool:
    """Return whether it is unknown if some NVIDIA_REQUIRE_* is satisfied, which its own check reports."""
    host = host_of(node)
    return any(constraint.holds(host) is None for constraint in requirements.driver_constraints)


def _other_major(policy: SharingPolicy, need: CudaRequirement, driver: CudaVersion) -> CheckResult:
    """Return the result of a driver of another major version, for virtual GPUs."""
    other = f"CUDA {driver.major}.x"
    reason = Message(
        "the driver has CUDA {driver}, another major version than the container's {version}",
        driver=driver,
        version=need.version,
    )
    remedy = Message("use an image with {other}, or whole GPUs", other=other)
    level = min(policy.major_versions, unmet(certain=need.certain))
    return CheckResult(level, reason, remedy, origin=need.origin, setting=MAJOR_SETTING)
