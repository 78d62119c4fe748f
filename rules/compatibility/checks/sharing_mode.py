"""What a way of sharing GPUs requires of a node: driver, compute capability, device mode, no MIG slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.affinity.label_constraints import ARCH, CUDA, LabelConstraint, not_labelled
from rules.affinity.version_range import VersionRange
from rules.compatibility.checks.base import Check, Constraint, Subject
from rules.compatibility.checks.compute_capability import MISSING_COMPUTE, newer_gpu
from rules.compatibility.checks.driver import MISSING_CUDA
from rules.compatibility.checks.nvidia_require import newer_driver
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import DEVICE_MODES, NodeCapabilities, is_slice
from rules.nodes.node_selector import EXPRESSIONS, Clause, MatchExpression
from rules.text.i18n import Text

_CUDA: Final = Text("driver CUDA", "驱动 CUDA")
_COMPUTE: Final = Text("compute capability", "计算能力")


class SharingModeCheck(Check):
    """The way of sharing against driver, GPU and set-up of the node."""

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for each thing that the node lacks for this way of sharing."""
        del requirements
        for what, minimum, found, missing, remedy in (
            (_CUDA, policy.min_cuda, node.cuda, MISSING_CUDA, newer_driver),
            (_COMPUTE, policy.min_compute, node.gpu_capability, MISSING_COMPUTE, newer_gpu),
        ):
            if minimum is None or (found is not None and found >= minimum):
                continue
            origin = Text(
                f"this way of sharing needs {what.en} {minimum}", f"该共享方式要求{what.zh} {minimum}"
            )
            if found is None:
                yield CheckResult(Level.UNKNOWN, missing, origin=origin)
                continue
            shown = f"{found[0]}.{found[1]}"
            reason = Text(f"{what.en} {shown}, below {minimum}", f"{what.zh} {shown}，低于 {minimum}")
            yield CheckResult(Level.INCOMPATIBLE, reason, remedy(minimum), origin=origin)
        if policy.device_mode and node.device_mode not in (None, policy.device_mode):
            mode, other = policy.device_mode, node.device_mode
            yield CheckResult(
                Level.INCOMPATIBLE,
                Text(f"the node is set up for {other}, not for {mode}", f"节点启用的是 {other}，而非 {mode}"),
                Text(f"use a node that is set up for {mode}", f"使用启用 {mode} 的节点"),
                origin=Text(
                    f"the requested resource is offered by {mode} nodes", f"所申请的资源由 {mode} 节点提供"
                ),
            )
        if node.mig_devices and not policy.mig:
            yield CheckResult(
                Level.INCOMPATIBLE,
                Text("its GPUs are partitioned with MIG", "其 GPU 已切分为 MIG 切片"),
                Text("use a node whose GPUs are not partitioned", "使用未切分 GPU 的节点"),
                origin=Text("this way of sharing does not support MIG", "该共享方式不支持 MIG"),
            )

    def constraints(
        self,
        policy: SharingPolicy,
        requirements: GpuRequirements,
        nodes: list[NodeCapabilities],
        *,
        or_unknown: bool,
    ) -> Iterator[Constraint]:
        """Yield the lowest driver and GPU of this way of sharing."""
        del requirements, nodes
        for subject, fact, minimum in (
            (Subject.DRIVER, CUDA, policy.min_cuda),
            (Subject.GPU, ARCH, policy.min_compute),
        ):
            if minimum:
                missing: LabelConstraint = [{fact: None}] if or_unknown else []
                yield Constraint(subject, [{fact: VersionRange(minimum)}, *missing])

    def clauses(
        self,
        policy: SharingPolicy,
        requirements: GpuRequirements,
        inventory: Inventory,
        *,
        or_unknown: bool,
    ) -> Iterator[Clause]:
        """Yield that a node has no label of another device mode, and none of MIG slices."""
        del requirements, or_unknown
        names = policy.labels
        if policy.device_mode:
            yield not_labelled(names.device_mode, DEVICE_MODES - {policy.device_mode}, inventory)
        if not policy.mig:
            products = {str(text) for key in names.product for text, _ in inventory.labels.values(key)}
            yield not_labelled(names.product, filter(is_slice, products), inventory)
            yield from (
                ((MatchExpression(EXPRESSIONS, key, "DoesNotExist"),),)
                for key in sorted(filter(names.is_of_mig, inventory.labels))
            )
