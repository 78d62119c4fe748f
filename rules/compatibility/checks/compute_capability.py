"""The compute capability of the GPU against flags, annotations, the toolkit and the code in the image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import ComputeRequirement, GpuRequirements
from rules.cuda.versions import ComputeCapability, MajorMinor
from rules.model.check_result import CheckResult, Level, unknown, unmet
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message

_NO_KERNEL_IMAGE: Final = 209  # of facts/errors.yaml
_NO_TEXT: Final = Message()
MISSING_COMPUTE: Final = Message("no label provides the compute capability")


class ComputeCapabilityCheck(Check):
    """The compute capability of the node's GPU against what the container needs."""

    def on_any_node(self, policy: SharingPolicy, requirements: GpuRequirements) -> tuple[CheckResult, ...]:
        """Return a result for each flag value with which the program starts on no GPU."""
        del policy
        if not requirements.refused:
            return ()
        return tuple(
            [
                CheckResult(unmet(certain=flag.certain), flag.reason, flag.remedy)
                for flag in requirements.refused
            ]
        )

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for each requirement that the GPU does not meet, and for missing code."""
        del policy
        if (capability := node.gpu_capability) is None:
            needs = sorted(
                (need for need in requirements.compute if need.by_pod), key=lambda need: not need.certain
            )
            if needs:
                yield CheckResult(unknown(certain=needs[0].certain), MISSING_COMPUTE, origin=needs[0].origin)
            return
        gpu = ComputeCapability(*capability)
        denied = False
        for need in requirements.compute:
            if gpu < need.minimum:
                denied |= need.certain
                # A framework checks its own flags before CUDA does.
                code = 0 if need.by_pod else _NO_KERNEL_IMAGE
                reason = below(gpu, need.minimum, _NO_TEXT if need.certain else need.origin)
                level = unmet(certain=need.certain)
                yield CheckResult(level, reason, _way_out(need), code, need.origin, instead=need.instead)
        if not denied:
            yield from _missing_code(requirements, gpu)


def below(gpu: ComputeCapability, minimum: MajorMinor, origin: Message = _NO_TEXT) -> Message:
    """Return the reason for a GPU that is too old. origin: of the requirement, which a warning names here."""
    if origin:
        return Message("{origin}; the GPU has {gpu}", origin=origin, gpu=gpu)
    return Message("compute capability {gpu}, below {minimum}", gpu=gpu, minimum=minimum)


def newer_gpu(minimum: MajorMinor) -> Message:
    """Return the fix for a GPU that is too old."""
    return Message("use a GPU of compute capability {minimum} or higher", minimum=minimum)


def _missing_code(requirements: GpuRequirements, gpu: ComputeCapability) -> Iterator[CheckResult]:
    built_for = requirements.built_for
    runs = built_for.runs_on(gpu) if built_for else True
    if built_for is None or runs:
        return
    origin = requirements.cuda.origin if requirements.cuda else _NO_TEXT
    what = Message("code for compute capability {gpu}", gpu=gpu)
    if runs is None:
        reason = Message("the image may hold no {what}", what=what)
        yield CheckResult(Level.UNSTABLE, reason, code=_NO_KERNEL_IMAGE, origin=origin)
    else:
        reason = Message("the image holds no {what}", what=what)
        remedy = Message("use an image built for {gpu}", gpu=gpu)
        yield CheckResult(unmet(certain=built_for.certain), reason, remedy, _NO_KERNEL_IMAGE, origin)


def _way_out(need: ComputeRequirement) -> Message:
    newer = newer_gpu(need.minimum)
    if not need.remedy:
        return newer
    return Message("{way_out}, or {newer}", way_out=need.remedy, newer=newer)
