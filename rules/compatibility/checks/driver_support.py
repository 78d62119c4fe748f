"""The GPU against the driver: newer drivers ignore old GPUs, older ones do not know new GPUs.

Such a node offers nothing, whatever its labels still say. Source: first_branches and last_branches of
facts/drivers.yaml, and the drivers that name a GPU, in facts/gpus.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import GpuRequirements
from rules.cuda.tables import FirstBranch, LastBranch, first_branch_of, last_branch_of
from rules.cuda.versions import ComputeCapability
from rules.model.check_result import CheckResult, Level, unmet
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities, branch_of, driver_of
from rules.text.i18n import Message

_TOO_NEW: Final = Message(
    "driver branch {branch} does not support the {name} ({architecture}): "
    "R{last} is the last branch that does"
)
_TOO_OLD: Final = Message(
    "driver branch {branch} does not support the {name} ({architecture}): "
    "R{first} is the first branch that does"
)
_PERHAPS_TOO_OLD: Final = Message(
    "driver branch {branch} may not support the {name} ({architecture}): "
    "R{first} is the first branch that does"
)
_NOT_LISTED: Final = Message(
    "driver {driver} may not support the {name}: {release} is the next release that names it"
)


class DriverSupportCheck(Check):
    """Whether the node's driver supports its GPU, whatever the container needs."""

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result if the driver does not support the GPU; none if the GPU or the branch is unknown."""
        del policy, requirements
        if result := unsupported_gpu(node):
            yield result


def unsupported_gpu(node: NodeCapabilities) -> CheckResult | None:
    """Return the result of a node whose driver does not support its GPU, or may not; None: no such fact."""
    gpu, branch = node.gpu_capability, branch_of(node)
    if gpu is None or branch is None:
        return None
    last = last_branch_of(node.facts, gpu)
    if last and branch > last.value.branch:
        return _ignored(node, last.value, branch, certain=last.certain)
    first = first_branch_of(node.facts, gpu)
    if first and branch < first.value.branch:
        return _not_known(node, first.value, branch, certain=first.certain)
    return _not_listed(node)


def is_unsupported(node: NodeCapabilities) -> bool:
    """Return whether it is certain that the driver of a node does not support its GPU."""
    result = unsupported_gpu(node)
    return result is not None and result.level is Level.INCOMPATIBLE


def _ignored(node: NodeCapabilities, last: LastBranch, branch: int, *, certain: bool) -> CheckResult:
    reason = _TOO_NEW.having(
        branch=branch, name=_name(node), architecture=last.architecture.title(), last=last.branch
    )
    remedy = Message("downgrade the node's driver to R{last}, or use a newer GPU", last=last.branch)
    return CheckResult(unmet(certain=certain), reason, remedy)


def _not_known(node: NodeCapabilities, first: FirstBranch, branch: int, *, certain: bool) -> CheckResult:
    """Return the result of a driver that is older than the GPU."""
    certain = certain and branch < first.chips
    words = _TOO_OLD if certain else _PERHAPS_TOO_OLD
    architecture = first.architecture.replace("-", " ").title()
    reason = words.having(branch=branch, name=_name(node), architecture=architecture, first=first.branch)
    remedy = Message("upgrade the node's driver to R{first} or a later branch", first=first.branch)
    return CheckResult(unmet(certain=certain), reason, remedy)


def _not_listed(node: NodeCapabilities) -> CheckResult | None:
    """Return the result of a driver that does not name the product, while later ones do.

    It knows the chip, so it may still work with the GPU.
    """
    driver, listed = driver_of(node), node.model.listed if node.model else ()
    if driver is None or not listed or driver.branch > listed[-1].branch:
        return None
    # A label may have the first numbers of the version only.
    later = [release for release in listed if release.numbers[: len(driver.numbers)] > driver.numbers]
    of_branch = [release for release in listed if release.branch == driver.branch]
    if of_branch and of_branch != later[:1]:
        return None
    reason = _NOT_LISTED.having(driver=driver, name=_name(node), release=later[0])
    remedy = Message("upgrade the node's driver to {release}, or to a newer branch", release=later[0])
    return CheckResult(unmet(certain=False), reason, remedy)


def _name(node: NodeCapabilities) -> str:
    return node.model.product if node.model else f"GPU {ComputeCapability(*(node.gpu_capability or (0, 0)))}"
