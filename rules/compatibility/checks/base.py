"""The interface of a compatibility check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.model.check_result import CheckResult
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities

# The keys of a CompatibilityRule that decide what NVIDIA supports with limits, or some virtualisations do.
MINOR_SETTING: Final = "minorVersionCompatibility"
MAJOR_SETTING: Final = "majorVersionMismatch"


class Check:
    """One compatibility check: a threshold, its result on a node, and what node affinity requires for it.

    Every method may be left out. Checks are pure: they see what is passed in and nothing else. is_optional:
    a rule sets its level (`checks:`, see Checks), which `capped` applies.
    """

    is_optional: ClassVar[bool] = False

    def on_any_node(self, policy: SharingPolicy, requirements: GpuRequirements) -> Iterable[CheckResult]:
        """Return the results that hold on every node."""
        del policy, requirements
        return ()

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterable[CheckResult]:
        """Return the results on a container of a pod, whatever its node; each has its path."""
        del policy, requirements, container, pod
        return ()

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterable[CheckResult]:
        """Return the results on a node; none if it is compatible."""
        del policy, requirements, node
        return ()
