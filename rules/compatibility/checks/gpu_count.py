"""A pod requests more GPUs than any node has, or another extended resource of an accelerator."""

from __future__ import annotations

from rules.compatibility.result import ExcessiveRequest
from rules.model.check_result import CheckResult, Level, capped
from rules.model.sharing import SharingPolicy
from rules.text.i18n import Text


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
