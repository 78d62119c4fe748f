"""More GPUs, or replicas of a shared GPU, than a node can give to one container.

By MPS, the plugin refuses more than one (UnexpectedAdmissionError), unless failRequestsGreaterThanOne is
false, which plugins up to 2026-05 ignore; by time-slicing only if it is true. No label has that setting.
Sources: https://github.com/NVIDIA/k8s-device-plugin#shared-access-to-gpus,
https://github.com/NVIDIA/k8s-device-plugin/pull/574, https://github.com/NVIDIA/k8s-device-plugin/pull/1762
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from rules.affinity.label_constraints import not_labelled
from rules.compatibility.checks.base import Check
from rules.compatibility.result import ExcessiveRequest
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult, Level, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.node_selector import Clause
from rules.text.i18n import Text

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
        if not _applies(policy, requirements) or (strategy := _strategy(node)) is None:
            return
        resource = requirements.several
        if strategy == _MPS:
            level = Level.INCOMPATIBLE
            reason = Text(
                f"its GPUs are shared by MPS, and a container gets one {resource}",
                f"其 GPU 通过 MPS 共享，每个容器只能获得一个 {resource}",
            )
        else:
            level = Level.UNKNOWN
            reason = Text(
                f"its GPUs are shared by time-slicing: several {resource} may be one GPU, or be refused",
                f"其 GPU 通过时间分片共享：多个 {resource} 可能是同一块 GPU，也可能被拒绝",
            )
        origin = Text(f"the container requests several {resource}", f"容器申请多个 {resource}")
        remedy = Text(
            f"request 1 {resource}, or use nodes whose GPUs are not shared",
            f"申请 1 个 {resource}，或使用未共享 GPU 的节点",
        )
        level = min(level, policy.checks.shared_gpu_count)
        yield CheckResult(level, reason, remedy, origin=origin, setting=_SETTING)

    def clauses(
        self,
        policy: SharingPolicy,
        requirements: GpuRequirements,
        inventory: Inventory,
        *,
        or_unknown: bool,
    ) -> Iterator[Clause]:
        """Yield that a node has no label of shared GPUs; or_unknown: none of MPS."""
        if not _applies(policy, requirements) or policy.checks.shared_gpu_count is not Level.INCOMPATIBLE:
            return
        names = policy.labels
        excluded = [_MPS] if or_unknown else [_MPS, _TIME_SLICING]
        yield not_labelled(names.sharing_strategy, excluded, inventory)
        if not or_unknown:
            products = {str(text) for key in names.product for text, _ in inventory.labels.values(key)}
            yield not_labelled(names.product, filter(_is_shared, products), inventory)


def _applies(policy: SharingPolicy, requirements: GpuRequirements) -> bool:
    off = policy.virtual or policy.checks.shared_gpu_count is Level.COMPATIBLE
    return bool(requirements.several) and not off


def _strategy(node: NodeCapabilities) -> str | None:
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
    if level is Level.COMPATIBLE:
        return None
    together = Text(f" ({own} in this container)", f"（此容器 {own} 个）") if own != amount else Text()
    reason = Text(
        f"the pod requests {amount} {resource}{together.en}, no node has more than {most}",
        f"该 Pod 申请 {amount} 个 {resource}{together.zh}，没有节点超过 {most} 个",
    )
    fix = Text(
        f"request at most {most} in one pod; use several pods for more",
        f"每个 Pod 最多申请 {most} 个；需要更多时请使用多个 Pod",
    )
    return CheckResult(level, reason, fix)
