"""The data type of a model against what GPU and server support."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from rules.compatibility.checks.base import Check
from rules.compatibility.checks.compute_capability import below, newer_gpu
from rules.cuda.requirements import GpuRequirements
from rules.cuda.served_model import ModelPrecision
from rules.cuda.versions import ComputeCapability
from rules.model.check_result import OFF, CheckResult, Level, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message

_NO_TEXT: Final = Message()


class ModelPrecisionCheck(Check):
    """A data type that the GPU or the server does not have; nothing if the compute capability is unknown."""

    is_optional: ClassVar[bool] = True

    def on_any_node(self, policy: SharingPolicy, requirements: GpuRequirements) -> tuple[CheckResult, ...]:
        """Return a result for each data type that the server refuses on every GPU."""
        if not requirements.models or policy.checks.model is OFF:
            return ()
        return tuple(
            [
                CheckResult(capped(policy.checks.model, certain=need.certain), need.reason, need.remedy)
                for need in _needs(requirements)
                if need.since is None
            ]
        )

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for each data type that the GPU does not have."""
        if not requirements.models or policy.checks.model is OFF:
            return
        if (capability := node.gpu_capability) is None:
            return
        gpu = ComputeCapability(*capability)
        for need in _needs(requirements):
            if need.since is not None and gpu < need.since:
                remedy = newer = newer_gpu(need.since)
                if need.remedy:
                    remedy = Message("{way_out}, or {newer}", way_out=need.remedy, newer=newer)
                level = capped(policy.checks.model, certain=need.certain)
                denies = level is Level.INCOMPATIBLE
                reason = below(gpu, need.since, _NO_TEXT if denies else need.reason)
                yield CheckResult(level, reason, remedy, origin=need.reason)


def _needs(requirements: GpuRequirements) -> Iterator[ModelPrecision]:
    return (model.precision for model in requirements.models if model.precision)
