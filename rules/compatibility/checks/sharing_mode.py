"""What a way of sharing GPUs requires of a node: driver, compute capability, device mode, no MIG slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.compatibility.checks.base import Check
from rules.compatibility.checks.compute_capability import MISSING_COMPUTE, newer_gpu
from rules.compatibility.checks.driver import missing_cuda
from rules.compatibility.checks.nvidia_require import newer_driver
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message

_CUDA: Final = Message("driver CUDA")
_COMPUTE: Final = Message("compute capability")


class SharingModeCheck(Check):
    """The way of sharing against driver, GPU and set-up of the node."""

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for each thing that the node lacks for this way of sharing."""
        del requirements
        for what, minimum, version, missing, remedy in (
            (_CUDA, policy.min_cuda, node.cuda, missing_cuda(node), newer_driver),
            (_COMPUTE, policy.min_compute, node.gpu_capability, MISSING_COMPUTE, newer_gpu),
        ):
            if minimum is None or (version is not None and version >= minimum):
                continue
            origin = Message("this way of sharing needs {what} {minimum}", what=what, minimum=minimum)
            if version is None:
                yield CheckResult(Level.UNKNOWN, missing, origin=origin)
                continue
            shown = f"{version[0]}.{version[1]}"
            reason = Message("{what} {shown}, below {minimum}", what=what, shown=shown, minimum=minimum)
            yield CheckResult(Level.INCOMPATIBLE, reason, remedy(minimum), origin=origin)
        if policy.device_mode and node.device_mode not in (None, policy.device_mode):
            mode, other = policy.device_mode, node.device_mode
            yield CheckResult(
                Level.INCOMPATIBLE,
                Message("the node is set up for {other}, not for {mode}", other=other, mode=mode),
                Message("use a node that is set up for {mode}", mode=mode),
                origin=Message("the requested resource is offered by {mode} nodes", mode=mode),
            )
        if node.mig_devices and not policy.mig:
            yield CheckResult(
                Level.INCOMPATIBLE,
                Message("its GPUs are partitioned with MIG"),
                Message("use a node whose GPUs are not partitioned"),
                origin=Message("this way of sharing does not support MIG"),
            )
