"""Whether a container's needs are met by what a node offers, under the terms of a way of sharing GPUs.

What is unknown never refuses, and neither does a fact that is not certain.
Sources: https://docs.nvidia.com/deploy/cuda-compatibility/ and the tables in `data/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from rules.cuda import cuda_error, forward_compatible, gpu_model, minor_version_floor
from rules.model import Text
from rules.needs import ComputeNeed, CudaNeed, Needs
from rules.offer import Offer
from rules.require import Host
from rules.version import ComputeCapability, CudaVersion, DriverVersion

# A driver runs programs of the major version before its own; further back is neither tested nor supported.
STABLE_MAJORS: Final = 1
# Segments of data/gpus.yaml for which NVIDIA supports forward compatibility.
_FORWARD_SEGMENT: Final = "datacenter"
# Errors of data/errors.yaml that a mismatch ends in.
_INSUFFICIENT_DRIVER: Final = 35
_NO_KERNEL_IMAGE: Final = 209
_UNSUPPORTED_PTX: Final = 222
_UNKNOWN: Final = 999
_NO_TEXT: Final = Text()


class Level(IntEnum):
    """How well a node suits, from well to not at all."""

    FITS = 0
    UNSTABLE = 1  # runs, with a warning
    UNKNOWN = 2  # nobody can tell: a label is missing
    REFUSED = 3


@dataclass(frozen=True, slots=True)
class Terms:
    """What a way of sharing GPUs asks beyond the container's own needs.

    virtual: driver and runtime have to have baseline's major version. baseline: the highest CUDA version that
    the virtualisation knows. minor_versions: what a driver of the runtime's major but a lower minor is.
    min_cuda, min_compute: what the mode itself needs of driver and GPU.
    """

    virtual: bool = False
    baseline: CudaVersion | None = None
    minor_versions: Level = Level.REFUSED
    min_cuda: CudaVersion | None = None
    min_compute: ComputeCapability | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason for a level.

    origin: where the need was read. remedy: what would help. Both may be empty. code: the CUDA error that it
    would be, or 0.
    """

    level: Level
    reason: Text
    remedy: Text = _NO_TEXT
    code: int = 0
    origin: Text = _NO_TEXT

    @property
    def error(self) -> str:
        """The error's name and number, or an empty string."""
        known = cuda_error(self.code)
        return f"{known.driver_name or known.name} ({known.code})" if known else ""


def level_of(findings: tuple[Finding, ...]) -> Level:
    """Return the worst level of the findings."""
    return max((finding.level for finding in findings), default=Level.FITS)


def without_node(terms: Terms, needs: Needs) -> tuple[Finding, ...]:
    """Return what holds on any node: the needs against the virtualisation's baseline."""
    need, baseline = needs.cuda, terms.baseline
    if not terms.virtual or need is None or baseline is None:
        return ()
    if need.version <= baseline and need.version.major == baseline.major:
        return ()
    if need.version > baseline:
        reason = Text(
            f"the virtual GPUs support CUDA up to {baseline}, the container needs {need.version}",
            f"虚拟 GPU 最高支持 CUDA {baseline}，容器需要 {need.version}",
        )
    else:
        reason = Text(
            f"virtual GPUs of CUDA {baseline} need a runtime of the same major version, the container has "
            f"{need.version}",
            f"CUDA {baseline} 的虚拟 GPU 要求运行时主版本相同，容器为 {need.version}",
        )
    remedy = Text(
        f"use an image with CUDA {baseline.major}.x up to {baseline}, or whole GPUs",
        f"改用 CUDA {baseline.major}.x（不高于 {baseline}）的镜像，或使用整卡",
    )
    return (Finding(_refusal(need), reason, remedy, _UNKNOWN, need.origin),)


def fitness(terms: Terms, needs: Needs, offer: Offer) -> tuple[Finding, ...]:
    """Return what there is to say of a container on a node; nothing where it fits."""
    return (*_cuda(terms, needs, offer), *_mode(terms, offer), *_compute(needs, offer))


def _refusal(need: CudaNeed) -> Level:
    return Level.REFUSED if need.certain else Level.UNSTABLE


def _cuda(terms: Terms, needs: Needs, offer: Offer) -> Iterator[Finding]:
    host = Host(cuda=offer.cuda, driver=offer.driver, arch=offer.compute_capability)
    held = [constraint.holds(host) for constraint in needs.constraints if constraint.groups]
    need = needs.cuda
    if False in held:
        name = next(each.variable for each in needs.constraints if each.groups and each.holds(host) is False)
        reason = Text(f"{name} does not hold there", f"不满足 {name}")
        origin = need.origin if need else _NO_TEXT
        yield Finding(Level.REFUSED, reason, _upgrade(need), _INSUFFICIENT_DRIVER, origin)
        return
    if need is None or (held and all(held)):
        return
    if offer.cuda is None:
        yield Finding(
            Level.UNKNOWN, Text("no label tells the driver's CUDA version", "没有标签说明驱动的 CUDA 版本")
        )
        return
    driver = CudaVersion(*offer.cuda)
    if driver < need.version:
        yield _older_driver(terms, needs, need, offer)
    elif terms.virtual and need.exact and driver.major != need.version.major:
        reason = Text(
            f"virtual GPUs need driver and runtime of one major version, the driver has CUDA {driver}",
            f"虚拟 GPU 要求驱动与运行时主版本相同，驱动为 CUDA {driver}",
        )
        remedy = Text(
            f"use an image with CUDA {driver.major}.x, or whole GPUs",
            f"改用 CUDA {driver.major}.x 的镜像，或使用整卡",
        )
        yield Finding(_refusal(need), reason, remedy, _UNKNOWN, need.origin)
    elif driver.major - need.version.major > STABLE_MAJORS:
        yield Finding(
            Level.UNSTABLE,
            Text(
                f"the driver's CUDA {driver} is more than one major version ahead, which is unstable",
                f"驱动的 CUDA {driver} 超前一个以上主版本，可能不稳定",
            ),
        )


def _older_driver(terms: Terms, needs: Needs, need: CudaNeed, offer: Offer) -> Finding:
    """Return what a driver is whose CUDA is older than the container's."""
    driver = CudaVersion(*(offer.cuda or (0, 0)))
    version = DriverVersion.parse(offer.driver) if offer.driver else None
    reason = Text(
        f"the driver has CUDA {driver}, below {need.version}", f"驱动为 CUDA {driver}，低于 {need.version}"
    )
    if needs.cuda_compat and not terms.virtual:
        model = gpu_model(offer.product) if offer.product else None
        fact = forward_compatible(need.version, version.branch) if version else None
        if model and model.segment != _FORWARD_SEGMENT:
            reason = Text(
                f"{reason.en}; cuda-compat is for data centre GPUs",
                f"{reason.zh}；cuda-compat 仅用于数据中心 GPU",
            )
        elif model and fact and fact.value:
            level = Level.FITS if fact.certain else Level.UNSTABLE
            return Finding(
                level, Text("by forward compatibility (cuda-compat)", "通过前向兼容（cuda-compat）运行")
            )
        elif model is None or fact is None:
            return Finding(
                Level.UNKNOWN,
                Text(
                    f"{reason.en}; nobody knows whether cuda-compat helps",
                    f"{reason.zh}；未知 cuda-compat 是否可用",
                ),
            )
    if driver.major == need.version.major:
        floor = minor_version_floor(driver.major)
        above_floor = version is None or floor is None or version >= floor.value
        if not terms.virtual and above_floor and terms.minor_versions is not Level.REFUSED:
            why = Text(f"{reason.en}, by minor version compatibility", f"{reason.zh}，依靠次版本兼容运行")
            return Finding(terms.minor_versions, why)
        return Finding(_refusal(need), reason, _upgrade(need, driver), _UNSUPPORTED_PTX, need.origin)
    return Finding(_refusal(need), reason, _upgrade(need, driver), _INSUFFICIENT_DRIVER, need.origin)


def _upgrade(need: CudaNeed | None, driver: CudaVersion | None = None) -> Text:
    newer = f"{need.version}" if need else ""
    if driver is None:
        return (
            Text(f"a driver with CUDA {newer} or newer", f"使用支持 CUDA {newer} 及以上的驱动")
            if need
            else _NO_TEXT
        )
    return Text(
        f"use an image with CUDA {driver} or older, or a driver with CUDA {newer} or newer",
        f"改用 CUDA {driver} 或更旧的镜像，或支持 CUDA {newer} 及以上的驱动",
    )


def _mode(terms: Terms, offer: Offer) -> Iterator[Finding]:
    """Yield what the way of sharing itself misses."""
    wanted = (
        (terms.min_cuda, offer.cuda, Text("driver CUDA", "驱动 CUDA")),
        (terms.min_compute, offer.compute_capability, Text("compute capability", "计算能力")),
    )
    for minimum, found, what in wanted:
        if minimum is not None and found is not None and found < minimum:
            shown = f"{found[0]}.{found[1]}"
            yield Finding(
                Level.REFUSED,
                Text(
                    f"this way of sharing needs {what.en} {minimum}, it is {shown}",
                    f"该共享方式要求{what.zh} {minimum}，当前为 {shown}",
                ),
            )


def _compute(needs: Needs, offer: Offer) -> Iterator[Finding]:
    if offer.compute_capability is None:
        asked = [need for need in needs.compute if need.asked]
        if asked:
            reason = Text("no label tells the compute capability", "没有标签说明计算能力")
            yield Finding(Level.UNKNOWN, reason, origin=asked[0].origin)
        return
    gpu = ComputeCapability(*offer.compute_capability)
    refused = False
    for need in needs.compute:
        if gpu < need.minimum:
            refused |= need.certain
            below = Text(
                f"compute capability {gpu}, below {need.minimum}", f"计算能力 {gpu}，低于 {need.minimum}"
            )
            level = Level.REFUSED if need.certain else Level.UNSTABLE
            yield Finding(level, below, _newer_gpu(need), _NO_KERNEL_IMAGE, need.origin)
    built_for = needs.built_for
    runs = built_for.runs_on(gpu) if built_for else True
    if built_for is None or runs or refused:
        return
    origin = needs.cuda.origin if needs.cuda else _NO_TEXT
    if runs is None:
        reason = Text(
            f"the image may hold no code for compute capability {gpu}",
            f"镜像可能不含适用于计算能力 {gpu} 的代码",
        )
        yield Finding(Level.UNSTABLE, reason, code=_NO_KERNEL_IMAGE, origin=origin)
    else:
        reason = Text(
            f"the image holds no code for compute capability {gpu}",
            f"镜像不含适用于计算能力 {gpu} 的代码",
        )
        remedy = Text(f"use an image built for {gpu}", f"使用为 {gpu} 构建的镜像")
        level = Level.REFUSED if built_for.certain else Level.UNSTABLE
        yield Finding(level, reason, remedy, _NO_KERNEL_IMAGE, origin)


def _newer_gpu(need: ComputeNeed) -> Text:
    newer = Text(
        f"a GPU of compute capability {need.minimum} or higher", f"使用计算能力 {need.minimum} 及以上的 GPU"
    )
    if not need.way_out.en:
        return newer
    return Text(f"{need.way_out.en}, or {newer.en}", f"{need.way_out.zh}，或{newer.zh}")
