"""The architecture of the GPU against the driver branch: newer drivers ignore old GPUs.

Such a node offers nothing, whatever its labels still say. Source: last_branches of facts/drivers.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import GpuRequirements
from rules.cuda.tables import LastBranch, last_branch_of
from rules.cuda.versions import ComputeCapability
from rules.model.check_result import CheckResult, unmet
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities, branch_of
from rules.text.i18n import Message


class DriverSupportCheck(Check):
    """Whether the node's driver branch still supports its GPU, whatever the container needs."""

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result if the driver ignores the GPU; none if the GPU or the branch is unknown."""
        del policy, requirements
        if result := unsupported_gpu(node):
            yield result


def unsupported_gpu(node: NodeCapabilities) -> CheckResult | None:
    """Return the result of a node whose driver ignores its GPU; None: it does not, or that is unknown."""
    gpu = node.gpu_capability
    fact = last_branch_of(node.facts, gpu) if gpu else None
    if gpu is None or fact is None or not _is_ignored(node, fact.value):
        return None
    last, model = fact.value, node.model
    name, architecture = model.product if model else f"GPU {ComputeCapability(*gpu)}", last.architecture
    reason = Message(
        "driver branch {branch} does not support the {name} ({architecture}): "
        "R{last} is the last branch that does",
        branch=branch_of(node),
        name=name,
        architecture=architecture.title(),
        last=last.branch,
    )
    remedy = Message("downgrade the node's driver to R{last}, or use a newer GPU", last=last.branch)
    return CheckResult(unmet(certain=fact.certain), reason, remedy)


def _is_ignored(node: NodeCapabilities, last: LastBranch) -> bool:
    gpu, branch = node.gpu_capability, branch_of(node)
    return gpu is not None and gpu < last.below and branch is not None and branch > last.branch
