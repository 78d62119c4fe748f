"""The MIG profile of a requested resource against the profiles that GPUs have, by facts/mig_profiles.yaml.

Never certain: a newer GPU may have it, and an operator may give resources other names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rules.compatibility.checks.base import Check
from rules.cuda.mig_profiles import is_known, nearest, profile_of
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.model.check_result import OFF, CheckResult, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.gpu_resources import cached_by_names
from rules.text.i18n import Message


class MigProfileCheck(Check):
    """Whether a GPU has the MIG profile that a container requests."""

    is_optional: ClassVar[bool] = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterable[CheckResult]:
        """Return a result for the first profile that no GPU is known to have."""
        del requirements, pod
        name = _unknown(container.names)
        if not name or policy.checks.gpu_count is OFF:
            return ()
        profile = profile_of(name)
        reason = Message("no known GPU has the MIG profile {profile}", profile=profile)
        remedy = Message(
            "write {name}, or a profile of your nodes' GPUs", name=name.replace(profile, nearest(profile))
        )
        field = "limits" if name in container.limits else "requests"
        level, path = capped(policy.checks.gpu_count, certain=False), container.resource_path(field, name)
        return (CheckResult(level, reason, remedy, path=path),)


@cached_by_names
def _unknown(names: Iterable[str]) -> str:
    """Return the first resource with a profile that no GPU is known to have; empty if there is none."""
    profiles = ((name, profile_of(name)) for name in names)
    return next((name for name, profile in profiles if profile and not is_known(profile)), "")
