"""More GPUs, or replicas of a shared GPU, than a node can give to one container or pod.

By MPS, the plugin refuses more than one (UnexpectedAdmissionError), unless failRequestsGreaterThanOne is
false, which plugins up to 2026-05 ignore; by time-slicing only if it is true. No label has that setting.
Replicas of several containers may be those of one GPU, too, whose memory time-slicing does not divide:
https://github.com/NVIDIA/k8s-device-plugin/issues/1690
Sources: https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus,
https://github.com/NVIDIA/k8s-device-plugin/pull/574, https://github.com/NVIDIA/k8s-device-plugin/pull/1762
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from rules.compatibility.checks.base import Check
from rules.compatibility.result import ExcessiveRequest
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import OFF, CheckResult, Level, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message

_SETTING: Final = "checks.sharedGpuCount"
# Values of nvidia.com/gpu.sharing-strategy, and the end of nvidia.com/gpu.product of shared GPUs.
# Source: https://github.com/NVIDIA/k8s-device-plugin/tree/main/docs/gpu-feature-discovery
_MPS: Final = "mps"
_TIME_SLICING: Final = "time-slicing"
_SHARED_PRODUCT: Final = "-SHARED"


class SharedGpuCountCheck(Check):
    """More than one replica of a shared GPU, which is no more than one: unknown, or incompatible by MPS."""

    is_optional: ClassVar[bool] = True

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result if the container requests several GPUs, and those of the node are shared."""
        if not _applies(policy, requirements) or (strategy := sharing_strategy(node)) is None:
            return
        resource = requirements.several
        if strategy == _MPS:
            level = Level.INCOMPATIBLE
            reason = Message(
                "its GPUs are shared by MPS, and a container gets one {resource}", resource=resource
            )
        else:
            level = Level.UNKNOWN
            reason = Message(
                "its GPUs are shared by time-slicing: several {resource} may be one GPU, or be refused",
                resource=resource,
            )
        origin = Message("the container requests several {resource}", resource=resource)
        remedy = Message("request 1 {resource}, or use nodes whose GPUs are not shared", resource=resource)
        level = min(level, policy.checks.shared_gpu_count)
        yield CheckResult(level, reason, remedy, origin=origin, setting=_SETTING)


def _applies(policy: SharingPolicy, requirements: GpuRequirements) -> bool:
    off = policy.virtual or policy.checks.shared_gpu_count is OFF
    return bool(requirements.several) and not off


def sharing_strategy(node: NodeCapabilities) -> str | None:
    """Return how the GPUs of a node are shared; None if they are not. Older labels name the product only."""
    if node.sharing_strategy in (_MPS, _TIME_SLICING):
        return node.sharing_strategy
    return _TIME_SLICING if node.product and _is_shared(node.product) else None


def _is_shared(product: str) -> bool:
    return product.endswith(_SHARED_PRODUCT)


def too_many(
    policy: SharingPolicy, excess: ExcessiveRequest, own: int, *, certain: bool
) -> CheckResult | None:
    """Return the result that no node has as many of a resource, or None if the check is off.

    own: what the container of the message requests of it. certain: as in ExcessiveRequest, or less.
    """
    resource, amount, most, _ = excess
    level = capped(policy.checks.gpu_count, certain=certain)
    if level is OFF:
        return None
    together = Message(" ({own} in this container)", own=own) if own != amount else Message()
    reason = Message(
        "the pod requests {amount} {resource}{together}, no node has more than {most}",
        amount=amount,
        resource=resource,
        together=together,
        most=most,
    )
    fix = Message("request at most {most} in one pod; use several pods for more", most=most)
    return CheckResult(level, reason, fix)


def may_share_one(
    policy: SharingPolicy, resource: str, count: int, nodes: Iterable[NodeCapabilities]
) -> CheckResult | None:
    """Return the result that containers of a pod may get one GPU, or None if no node shares by time-slicing.

    count: of the containers that request the resource at one time. nodes: those for the pod.
    """
    level = capped(policy.checks.shared_gpu_count, certain=False)
    if policy.virtual or level is OFF:
        return None
    if not any(sharing_strategy(node) == _TIME_SLICING for node in nodes):
        return None
    reason = Message(
        "{count} containers request {resource}: time-slicing may give them one GPU, whose memory they share",
        count=count,
        resource=resource,
    )
    remedy = Message("limit the memory of each program, or use nodes whose GPUs are not shared")
    return CheckResult(level, reason, remedy, setting=_SETTING)
