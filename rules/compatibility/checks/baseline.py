"""Virtual GPUs intercept CUDA calls up to a baseline version: no runtime above it, nor of another major."""

from __future__ import annotations

from collections.abc import Iterator

from rules.compatibility.checks.base import MAJOR_SETTING, Check
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult, Level, unmet
from rules.model.sharing import SharingPolicy
from rules.text.i18n import Text


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
            reason = Text(
                f"the virtual GPUs support CUDA up to {baseline}, the container needs {need.version}",
                f"虚拟 GPU 最高支持 CUDA {baseline}，容器需要 {need.version}",
            )
        elif need.version.major != baseline.major and need.exact:
            level, setting = policy.major_versions, MAJOR_SETTING
            reason = Text(
                f"the virtual GPUs are of CUDA {baseline}, the container is of another major, {need.version}",
                f"虚拟 GPU 的基线为 CUDA {baseline}，容器为另一主版本 {need.version}",
            )
        else:
            return
        if level is Level.COMPATIBLE:
            return
        remedy = Text(
            f"use an image with CUDA {baseline.major}.x up to {baseline}, or whole GPUs",
            f"改用 CUDA {baseline.major}.x（不高于 {baseline}）的镜像，或使用整卡",
        )
        level = min(level, unmet(certain=need.certain))
        yield CheckResult(level, reason, remedy, origin=need.origin, setting=setting)
