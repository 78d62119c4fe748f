"""The MIG profile of a requested resource against the profiles that GPUs have, by facts/mig_profiles.yaml.

Never certain: a newer GPU may have it, and an operator may give resources other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from rules.compatibility.checks.base import Check
from rules.cuda.mig_profiles import is_known, nearest, profile_of
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.model.check_result import CheckResult, Level, capped
from rules.model.sharing import SharingPolicy
from rules.text.i18n import Message


class MigProfileCheck(Check):
    """Whether a GPU has the MIG profile that a container requests."""

    is_optional: ClassVar[bool] = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterator[CheckResult]:
        """Yield a result for the first profile that no GPU is known to have."""
        del requirements, pod
        level = capped(policy.checks.gpu_count, certain=False)
        if level is Level.COMPATIBLE:
            return
        for name in container.names:
            profile = profile_of(name)
            if not profile or is_known(profile):
                continue
            reason = Message("no known GPU has the MIG profile {profile}", profile=profile)
            remedy = Message(
                "write {name}, or a profile of your nodes' GPUs", name=name.replace(profile, nearest(profile))
            )
            field = "limits" if name in container.limits else "requests"
            yield CheckResult(level, reason, remedy, path=container.resource_path(field, name))
            return
