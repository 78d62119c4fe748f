"""The declared minimum of GPU memory against what a GPU has, or the share that the container requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from rules.compatibility.checks.base import Check
from rules.cuda.gpu_memory import RequestedMemory, requested_memory, shown
from rules.cuda.requirements import GpuRequirements, MemoryRequirement
from rules.kube.pod import Container, Pod
from rules.model.check_result import OFF, CheckResult, capped, unknown
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message

_MISSING: Final = Message("no label provides the GPU memory")


def too_much_memory(policy: SharingPolicy, share: RequestedMemory, most: int) -> CheckResult | None:
    """Return the result that a share has more memory than any GPU, or None if not. most: MiB of the largest.

    Never certain: a system that shares GPUs may have a setting by which their memory counts several times.
    """
    level = capped(policy.checks.gpu_memory, certain=False)
    if level is OFF or share.mib <= most:
        return None
    reason = Message(
        "{resource} is {mib} of GPU memory, and no GPU has more than {most}",
        resource=share.resource,
        mib=shown(share.mib),
        most=shown(most),
    )
    amount = share.amount_up_to(most)
    remedy = Message(
        "write at most {amount} for {resource}, unless GPU memory is oversubscribed",
        amount=amount,
        resource=share.resource,
    )
    return CheckResult(level, reason, remedy)


def too_much_together(
    policy: SharingPolicy, share: RequestedMemory, total: int, most: int
) -> CheckResult | None:
    """Return the result that containers request more memory together than the GPUs of a node have.

    share: of the first of them. total, most: in MiB. Never certain, as in `too_much_memory`.
    """
    level = capped(policy.checks.gpu_memory, certain=False)
    if level is OFF or total <= most:
        return None
    reason = Message(
        "the containers of the pod request {total} of GPU memory with {resource}, and all GPUs of a node "
        "have at most {most}",
        resource=share.resource,
        total=shown(total),
        most=shown(most),
    )
    return CheckResult(level, reason, Message("request less, unless GPU memory is oversubscribed"))


class GpuMemoryCheck(Check):
    """The memory of one GPU, or of the share of it, against the declared minimum."""

    is_optional: ClassVar[bool] = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> tuple[CheckResult, ...]:
        """Return a result if the container requests less than it needs."""
        del pod
        need, setting = requirements.memory, policy.checks.gpu_memory
        if need is None or setting is OFF:
            return ()
        requested = requested_memory(container)
        if requested is None or requested.mib >= need.mib:
            return ()
        least = shown(need.mib)
        if requested.unit:
            reason = Message(
                "{resource} is {mib} of GPU memory, below {least}",
                resource=requested.resource,
                mib=shown(requested.mib),
                least=least,
            )
            amount = requested.amount_for(need.mib)
            remedy = Message("write {amount} for {resource}", amount=amount, resource=requested.resource)
        else:
            reason = Message(
                "{resource} has less than {least} of GPU memory", resource=requested.resource, least=least
            )
            remedy = Message("request a MIG profile with more than {least}, or a whole GPU", least=least)
        level = capped(setting, certain=requested.certain)
        path = container.resource_path("limits", requested.resource)
        return (CheckResult(level, reason, remedy, origin=_origin(need), path=path),)

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result if a GPU of the node has less memory.

        Not certain for virtual GPUs, whose memory can be more than that of the GPU:
        https://github.com/Project-HAMi/HAMi/blob/master/docs/config.md (deviceMemoryScaling)
        """
        need, setting = requirements.memory, policy.checks.gpu_memory
        if need is None or setting is OFF:
            return
        certain = not policy.virtual
        if (memory := node.gpu_memory_mib) is None:
            level = min(setting, unknown(certain=certain))
            yield CheckResult(level, _MISSING, origin=_origin(need))
        elif memory < need.mib:
            if node.memory_mib is None:
                model = node.model
                certain &= model is not None and model.status.certain
            reason = Message("GPU memory {memory}, below {mib}", memory=shown(memory), mib=shown(need.mib))
            remedy = Message("use a GPU with {mib} of memory or more", mib=shown(need.mib))
            level = capped(setting, certain=certain)
            yield CheckResult(level, reason, remedy, origin=_origin(need))


def _origin(need: MemoryRequirement) -> Message:
    least = shown(need.mib)
    return Message("{origin} asks for {least}", origin=need.origin, least=least)
