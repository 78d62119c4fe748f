"""The attention heads and experts of a model against the number of parts into which its server splits it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.model.check_result import OFF, CheckResult, capped
from rules.model.sharing import SharingPolicy


class ModelSplitCheck(Check):
    """Tensor parallelism that does not divide heads or experts is an error: the server does not start."""

    is_optional: ClassVar[bool] = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterable[CheckResult]:
        """Return a result for each model that cannot be split into as many parts."""
        del pod
        if not requirements.models or policy.checks.model is OFF:
            return ()
        return [
            CheckResult(
                capped(policy.checks.model, certain=split.certain),
                split.reason,
                split.remedy,
                path=container.flag_path(split.flag),
            )
            for model in requirements.models
            for split in model.splits
        ]
