"""Virtual GPUs intercept CUDA calls up to a baseline version: no runtime above it, nor of another major."""

from __future__ import annotations

from collections.abc import Iterator

from rules.compatibility.checks.base import MAJOR_SETTING, Check
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import OFF, CheckResult, Level, unmet
from rules.model.sharing import SharingPolicy
from rules.text.i18n import Message


class BaselineCheck(Check):
    """The CUDA version of the container against the baseline of the virtualisation, on any node."""

    def on_any_node(self, policy: SharingPolicy, requirements: GpuRequirements) -> Iterator[CheckResult]:
        """Yield a result if the container needs more than the baseline, or another major.

        No CUDA error is named: which one follows depends on the call that the virtualisation lacks.
        """
        need, baseline = requirements.cuda, policy.baseline
        if not policy.virtual or need is None or baseline is None:
            return
        if need.version > baseline:
            level, setting = Level.INCOMPATIBLE, "baseline"
            reason = Message(
                "the virtual GPUs support CUDA up to {baseline}, the container needs {version}",
                baseline=baseline,
                version=need.version,
            )
        elif need.version.major != baseline.major and need.exact:
            level, setting = policy.major_versions, MAJOR_SETTING
            reason = Message(
                "the virtual GPUs are of CUDA {baseline}, the container is of another major, {version}",
                baseline=baseline,
                version=need.version,
            )
        else:
            return
        if level is OFF:
            return
        remedy = Message(
            "use an image with CUDA {major}.x up to {baseline}, or whole GPUs",
            major=baseline.major,
            baseline=baseline,
        )
        level = min(level, unmet(certain=need.certain))
        yield CheckResult(level, reason, remedy, origin=need.origin, setting=setting)
