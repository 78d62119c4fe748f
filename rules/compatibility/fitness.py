"""Whether a container's needs are met by what a node offers, under the terms of a way of sharing GPUs.

What is unknown never refuses, and neither does a fact that is not certain.
Sources: https://docs.nvidia.com/deploy/cuda-compatibility/ and the tables in `data/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from rules.cuda.nvidia_require import Constraint, Host
from rules.cuda.requirements import ComputeRequirement, CudaRequirement, GpuRequirements
from rules.cuda.tables import forward_compatible, gpu_model
from rules.cuda.versions import ComputeCapability, CudaVersion, MajorMinor
from rules.model.finding import CheckResult, Level, incompatible, level_of, unknown
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities, above_floor, driver_of
from rules.text.i18n import Text

STABLE_MAJORS: Final = 1  # a driver runs programs of the major before its own; further back is not supported
# Segments of data/gpus.yaml for which NVIDIA supports forward compatibility, and does not; else some models.
_FORWARD_SEGMENT: Final = "datacenter"
_NO_FORWARD_SEGMENT: Final = "consumer"
# Errors of data/errors.yaml that a mismatch ends in.
_INSUFFICIENT_DRIVER: Final = 35
_NO_KERNEL_IMAGE: Final = 209
_UNSUPPORTED_PTX: Final = 222
_UNKNOWN: Final = 999
_NEWEST: Final = 10**9 - 1  # of a driver's branch
_MAX_SHOWN: Final = 80  # characters of a user's text in a message
_NO_TEXT: Final = Text()
_SILENT_CUDA: Final = Text("no label tells the driver's CUDA version", "没有标签说明驱动的 CUDA 版本")
_SILENT_COMPUTE: Final = Text("no label tells the compute capability", "没有标签说明计算能力")


def without_node(terms: SharingPolicy, needs: GpuRequirements) -> tuple[CheckResult, ...]:
    """Return what holds on any node: the needs against the virtualisation's baseline."""
    need, baseline = needs.cuda, terms.baseline
    if not terms.virtual or need is None or baseline is None:
        return ()
    if need.version > baseline:
        reason = Text(
            f"the virtual GPUs support CUDA up to {baseline}, the container needs {need.version}",
            f"虚拟 GPU 最高支持 CUDA {baseline}，容器需要 {need.version}",
        )
    elif need.exact and need.version.major != baseline.major:
        reason = Text(
            f"virtual GPUs of CUDA {baseline} need a runtime of the same major version, not {need.version}",
            f"CUDA {baseline} 的虚拟 GPU 要求运行时主版本相同，容器为 {need.version}",
        )
    else:
        return ()
    remedy = Text(
        f"use an image with CUDA {baseline.major}.x up to {baseline}, or whole GPUs",
        f"改用 CUDA {baseline.major}.x（不高于 {baseline}）的镜像，或使用整卡",
    )
    return (CheckResult(incompatible(certain=need.certain), reason, remedy, _UNKNOWN, need.origin),)


def fitness(terms: SharingPolicy, needs: GpuRequirements, offer: NodeCapabilities) -> tuple[CheckResult, ...]:
    """Return what there is to say of a container on a node; nothing where it fits."""
    return (*_cuda(terms, needs, offer), *_mode(terms, offer), *_compute(needs, offer))


@lru_cache(maxsize=1024)
def outline(offer: NodeCapabilities, *, variables: bool, compat: bool) -> NodeCapabilities:
    """Return an offer without what `fitness` does not look at, so that more of them are alike.

    variables: whether the needs have constraints, which compare all of a driver's version. compat: whether
    they have cuda-compat, which goes by the GPU's model.
    """
    driver = driver_of(offer)
    told = offer.driver
    if driver and not variables:
        told = f"{driver.branch}.{_NEWEST}" if above_floor(offer) else str(driver.branch)
    return NodeCapabilities(
        cuda=offer.cuda,
        driver=told,
        compute_capability=offer.compute_capability,
        product=offer.product if compat else None,
        mig_devices=offer.mig_devices,
        device_mode=offer.device_mode,
    )


def forward_fit(needs: GpuRequirements, offer: NodeCapabilities) -> Level:
    """Return whether cuda-compat in the container makes up for an older driver: REFUSED where it does not."""
    model = gpu_model(offer.product) if offer.product else None
    if needs.cuda is None or not needs.cuda_compat or (model and model.segment == _NO_FORWARD_SEGMENT):
        return Level.INCOMPATIBLE
    driver = driver_of(offer)
    fact = forward_compatible(needs.cuda.version, driver.branch) if driver else None
    if fact is None or not fact.certain or model is None or model.segment != _FORWARD_SEGMENT:
        return Level.UNKNOWN
    return Level.COMPATIBLE if fact.value else Level.INCOMPATIBLE


def _cuda(terms: SharingPolicy, needs: GpuRequirements, offer: NodeCapabilities) -> Iterator[CheckResult]:
    held: dict[bool | None, Constraint] = {}
    if needs.constraints:
        host = Host(cuda=offer.cuda, driver=offer.driver, arch=offer.compute_capability)
        held = {constraint.holds(host): constraint for constraint in needs.constraints if constraint.groups}
    need = needs.cuda
    if False in held:
        yield _unmet(held[False], need, offer)
        return
    found: tuple[CheckResult, ...] = ()
    # Where variables ask, they hold or do not, and the version is only what they say of it.
    if need and (not held or terms.driver_major(need) is not None):
        found = tuple(_driver(terms, needs, need, offer, asked=bool(held)))
    yield from found
    if None in held and level_of(found) < Level.UNKNOWN:
        name = held[None].variable
        yield CheckResult(Level.UNKNOWN, Text(f"nobody knows whether {name} holds", f"未知是否满足 {name}"))


def _driver(
    terms: SharingPolicy,
    needs: GpuRequirements,
    need: CudaRequirement,
    offer: NodeCapabilities,
    *,
    asked: bool,
) -> Iterator[CheckResult]:
    """Yield what there is to say of a driver. asked: the container's variables decide how old it may be."""
    if offer.cuda is None:
        yield CheckResult(unknown(certain=need.certain), _SILENT_CUDA, origin=need.origin)
        return
    driver, major = CudaVersion(*offer.cuda), terms.driver_major(need)
    if driver < need.version and not asked:
        yield _older(terms, needs, need, offer)
    elif major is not None and driver.major != major:
        other = f"CUDA {driver.major}.x"
        reason = Text(
            f"virtual GPUs need driver and runtime of one major version, the driver has CUDA {driver}",
            f"虚拟 GPU 要求驱动与运行时主版本相同，驱动为 CUDA {driver}",
        )
        remedy = Text(f"use an image with {other}, or whole GPUs", f"改用 {other} 的镜像，或使用整卡")
        yield CheckResult(incompatible(certain=need.certain), reason, remedy, _UNKNOWN, need.origin)
    elif driver.major - need.version.major > STABLE_MAJORS:
        reason = Text(
            f"the driver's CUDA {driver} is more than one major version ahead, which is unstable",
            f"驱动的 CUDA {driver} 超前一个以上主版本，可能不稳定",
        )
        yield CheckResult(Level.UNSTABLE, reason)


def _unmet(constraint: Constraint, need: CudaRequirement | None, offer: NodeCapabilities) -> CheckResult:
    """Return what a node is that does not satisfy a variable; of a newer driver an older is no remedy."""
    name, text = constraint.variable, constraint.text
    shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    reason = Text(f"{name} does not hold there", f"不满足 {name}")
    origin = Text(f"variable {name} is `{shown}`", f"环境变量 {name} 为 `{shown}`")
    older = need is not None and offer.cuda is not None and offer.cuda < need.version
    remedy, code = (_newer_driver(need.version), _INSUFFICIENT_DRIVER) if need and older else (_NO_TEXT, 0)
    return CheckResult(Level.INCOMPATIBLE, reason, remedy, code, origin)


def _older(
    terms: SharingPolicy, needs: GpuRequirements, need: CudaRequirement, offer: NodeCapabilities
) -> CheckResult:
    """Return what a driver is whose CUDA is older than the container's."""
    driver, wanted = CudaVersion(*(offer.cuda or (0, 0))), need.version
    reason = Text(f"the driver has CUDA {driver}, below {wanted}", f"驱动为 CUDA {driver}，低于 {wanted}")
    forward = Level.INCOMPATIBLE if terms.virtual else forward_fit(needs, offer)
    if forward is Level.COMPATIBLE:
        return CheckResult(
            forward, Text("by forward compatibility (cuda-compat)", "通过前向兼容（cuda-compat）")
        )
    if driver >= terms.oldest_driver(need) and above_floor(offer):
        why = Text(f"{reason.en}, by minor version compatibility", f"{reason.zh}，依靠次版本兼容运行")
        return CheckResult(terms.minor_versions, why)
    if forward is Level.UNKNOWN:
        why = Text(
            f"{reason.en}; nobody knows whether cuda-compat helps", f"{reason.zh}；未知 cuda-compat 是否可用"
        )
        return CheckResult(unknown(certain=need.certain), why, origin=need.origin)
    if needs.cuda_compat:
        reason = Text(f"{reason.en}; cuda-compat does not help there", f"{reason.zh}；cuda-compat 在此无效")
    newer = _newer_driver(wanted)
    remedy = Text(
        f"use an image with CUDA {driver} or older, or {newer.en}",
        f"改用 CUDA {driver} 或更旧的镜像，或{newer.zh}",
    )
    code = _UNSUPPORTED_PTX if driver.major == wanted.major else _INSUFFICIENT_DRIVER
    return CheckResult(incompatible(certain=need.certain), reason, remedy, code, need.origin)


def _newer_driver(cuda: MajorMinor) -> Text:
    return Text(f"a driver with CUDA {cuda} or newer", f"使用支持 CUDA {cuda} 及以上的驱动")


def _mode(terms: SharingPolicy, offer: NodeCapabilities) -> Iterator[CheckResult]:
    """Yield what the way of sharing itself misses."""
    cuda, compute = Text("driver CUDA", "驱动 CUDA"), Text("compute capability", "计算能力")
    for what, minimum, found, silent, remedy in (
        (cuda, terms.min_cuda, offer.cuda, _SILENT_CUDA, _newer_driver),
        (compute, terms.min_compute, offer.compute_capability, _SILENT_COMPUTE, _newer_gpu),
    ):
        if minimum is None or (found is not None and found >= minimum):
            continue
        origin = Text(f"this way of sharing needs {what.en} {minimum}", f"该共享方式要求{what.zh} {minimum}")
        if found is None:
            yield CheckResult(Level.UNKNOWN, silent, origin=origin)
            continue
        shown = f"{found[0]}.{found[1]}"
        reason = Text(f"{what.en} {shown}, below {minimum}", f"{what.zh} {shown}，低于 {minimum}")
        yield CheckResult(Level.INCOMPATIBLE, reason, remedy(minimum), origin=origin)
    if terms.device_mode and offer.device_mode not in (None, terms.device_mode):
        mode, other = terms.device_mode, offer.device_mode
        yield CheckResult(
            Level.INCOMPATIBLE,
            Text(f"the node is set up for {other}, not for {mode}", f"节点启用的是 {other}，而非 {mode}"),
            Text(f"a node that is set up for {mode}", f"使用启用 {mode} 的节点"),
            origin=Text(f"what it asks for is offered on {mode} nodes", f"所申请的资源由 {mode} 节点提供"),
        )
    if offer.mig_devices and not terms.mig:
        yield CheckResult(
            Level.INCOMPATIBLE,
            Text("its GPUs are cut into MIG slices", "其 GPU 已切分为 MIG 切片"),
            Text("a node whose GPUs are whole", "使用未切分 GPU 的节点"),
            origin=Text("this way of sharing does not go with MIG", "该共享方式不支持 MIG"),
        )


def _compute(needs: GpuRequirements, offer: NodeCapabilities) -> Iterator[CheckResult]:
    if offer.compute_capability is None:
        asked = sorted((need for need in needs.compute if need.asked), key=lambda need: not need.certain)
        if asked:
            level = unknown(certain=asked[0].certain)
            yield CheckResult(level, _SILENT_COMPUTE, origin=asked[0].origin)
        return
    gpu = ComputeCapability(*offer.compute_capability)
    refused = False
    for need in needs.compute:
        if gpu < need.minimum:
            refused |= need.certain
            below = Text(
                f"compute capability {gpu}, below {need.minimum}", f"计算能力 {gpu}，低于 {need.minimum}"
            )
            # What is asked for stops the program before CUDA does: a framework checks its own flags.
            code = 0 if need.asked else _NO_KERNEL_IMAGE
            yield CheckResult(incompatible(certain=need.certain), below, _way_out(need), code, need.origin)
    built_for = needs.built_for
    runs = built_for.runs_on(gpu) if built_for else True
    if built_for is None or runs or refused:
        return
    origin = needs.cuda.origin if needs.cuda else _NO_TEXT
    what = Text(f"code for compute capability {gpu}", f"适用于计算能力 {gpu} 的代码")
    if runs is None:
        reason = Text(f"the image may hold no {what.en}", f"镜像可能不含{what.zh}")
        yield CheckResult(Level.UNSTABLE, reason, code=_NO_KERNEL_IMAGE, origin=origin)
    else:
        reason = Text(f"the image holds no {what.en}", f"镜像不含{what.zh}")
        remedy = Text(f"use an image built for {gpu}", f"使用为 {gpu} 构建的镜像")
        yield CheckResult(incompatible(certain=built_for.certain), reason, remedy, _NO_KERNEL_IMAGE, origin)


def _way_out(need: ComputeRequirement) -> Text:
    newer = _newer_gpu(need.minimum)
    if not need.way_out.en:
        return newer
    return Text(f"{need.way_out.en}, or {newer.en}", f"{need.way_out.zh}，或{newer.zh}")


def _newer_gpu(minimum: MajorMinor) -> Text:
    return Text(f"a GPU of compute capability {minimum} or higher", f"使用计算能力 {minimum} 及以上的 GPU")
