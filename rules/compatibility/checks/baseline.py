"""Virtual GPUs intercept CUDA calls up to a baseline version: no runtime above it, nor of another major."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult, unmet
from rules.model.sharing import SharingPolicy
from rules.text.i18n import Text

_UNKNOWN_ERROR: Final = 999  # of data/errors.yaml


class BaselineCheck(Check):
    """The CUDA version of the container against the baseline of the virtualisation, on any node."""

    def on_any_node(self, policy: SharingPolicy, requirements: GpuRequirements) -> Iterator[CheckResult]:
        """Yield a result if the container needs more than the baseline, or another major."""
        need, baseline = requirements.cuda, policy.baseline
        if not policy.virtual or need is None or baseline is None:
            return
        if need.version > baseline:
            reason = Text(
                f"the virtual GPUs support CUDA up to {baseline}, the container needs {need.version}",
                f"虚拟 GPU 最高支持 CUDA {baseline}，容器需要 {need.version}",
            )
        elif need.exact and need.version.major != baseline.major:
            reason = Text(
                f"virtual GPUs of CUDA {baseline} need a runtime of the same major, not {need.version}",
                f"CUDA {baseline} 的虚拟 GPU 要求运行时主版本相同，容器为 {need.version}",
            )
        else:
            return
        remedy = Text(
            f"use an image with CUDA {baseline.major}.x up to {baseline}, or whole GPUs",
            f"改用 CUDA {baseline.major}.x（不高于 {baseline}）的镜像，或使用整卡",
        )
        yield CheckResult(unmet(certain=need.certain), reason, remedy, _UNKNOWN_ERROR, need.origin)
