"""NVIDIA_REQUIRE_*: NVIDIA's container runtime starts no container whose expressions are unsatisfied."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Final

from rules.compatibility.checks.base import Check, Constraint, Subject
from rules.compatibility.checks.driver import DriverCheck, host_of, newer_driver
from rules.compatibility.label_constraints import (
    ARCH,
    CUDA,
    DRIVER,
    EVERYWHERE,
    Conjunction,
    LabelConstraint,
    both,
    shortened,
)
from rules.cuda import nvidia_require
from rules.cuda.nvidia_require import Factor
from rules.cuda.requirements import CudaRequirement, GpuRequirements
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.sharing import SharingPolicy
from rules.nodes.label_families import Version
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.version_range import VersionRange, without_trailing_zeros
from rules.text.i18n import Text

# Parts of a version that labels have.
_PARTS: Final = {CUDA: 2, DRIVER: 3, ARCH: 2}
_INSUFFICIENT_DRIVER: Final = 35  # of data/errors.yaml
_MAX_SHOWN: Final = 80  # characters of a user's text in a message
_NO_TEXT: Final = Text()
_FACTS: Final = {
    "cuda": Text("the driver's CUDA version", "驱动的 CUDA 版本"),
    "driver": Text("the driver version", "驱动版本"),
    "arch": Text("the compute capability", "计算能力"),
    "brand": Text("the GPU's brand", "GPU 品牌"),
}


class NvidiaRequireCheck(Check):
    """The NVIDIA_REQUIRE_* variables of the container against the driver and GPU of the node."""

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result if a variable is not satisfied, or if it is unknown whether it is."""
        if not requirements.constraints:
            return
        host = host_of(node)
        held = {each.holds(host): each for each in requirements.constraints if each.groups}
        if False in held:
            yield _unmet(held[False], requirements.cuda, node)
        elif None in held:
            driver = DriverCheck().on_node(policy, requirements, node)
            if level_of(driver) < Level.UNKNOWN:
                yield _unknown(held[None], host)

    def constraints(
        self,
        policy: SharingPolicy,
        requirements: GpuRequirements,
        nodes: list[NodeCapabilities],
        *,
        or_unknown: bool,
    ) -> Iterator[Constraint]:
        """Yield the nodes on which each variable is satisfied; or_unknown: or not known to be unsatisfied."""
        del policy, nodes
        for each in requirements.constraints:
            if each.groups:
                yield Constraint(Subject.DRIVER, _satisfying(each, or_unknown=or_unknown))


def _unmet(
    constraint: nvidia_require.Constraint, need: CudaRequirement | None, node: NodeCapabilities
) -> CheckResult:
    """Return the result of a variable that is not satisfied; an older driver does not help a newer one."""
    name, text = constraint.variable, constraint.text
    shown = text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"
    reason = Text(f"{name} is not satisfied", f"不满足 {name}")
    origin = Text(f"variable {name} is `{shown}`", f"环境变量 {name} 为 `{shown}`")
    older = need is not None and node.cuda is not None and node.cuda < need.version
    remedy, code = (newer_driver(need.version), _INSUFFICIENT_DRIVER) if need and older else (_NO_TEXT, 0)
    return CheckResult(Level.INCOMPATIBLE, reason, remedy, code, origin)


def _unknown(constraint: nvidia_require.Constraint, host: nvidia_require.Host) -> CheckResult:
    """Return the result of a variable of which a fact is missing."""
    name = constraint.variable
    missing = next(
        factor.name for group in constraint.groups for factor in group if factor.holds(host) is None
    )
    fact = _FACTS[missing]
    reason = Text(
        f"cannot determine whether {name} is satisfied: no label provides {fact.en}",
        f"无法确定是否满足 {name}：没有标签提供{fact.zh}",
    )
    return CheckResult(Level.UNKNOWN, reason)


def _satisfying(constraint: nvidia_require.Constraint, *, or_unknown: bool) -> LabelConstraint:
    conjunctions: list[Conjunction] = []
    for group in constraint.groups:
        facts = [factor for factor in group if factor.name in _PARTS]
        if len(facts) < len(group) and not or_unknown:  # no label provides a brand
            continue
        held: LabelConstraint = reduce(
            both, (_of_factor(factor, or_unknown=or_unknown) for factor in facts), EVERYWHERE
        )
        conjunctions += held
    return shortened(conjunctions)


def _of_factor(factor: Factor, *, or_unknown: bool) -> LabelConstraint:
    missing: LabelConstraint = [{factor.name: None}] if or_unknown else []
    return [*({factor.name: each} for each in _ranges(factor)), *missing]


def _ranges(factor: Factor) -> list[VersionRange]:
    """Return the versions that satisfy a factor, in as many parts as labels have."""
    parts, numbers = _PARTS[factor.name], factor.numbers or ()
    here: Version = (*numbers, *(0,) * parts)[:parts]
    after = (*here[:-1], here[-1] + 1)
    # 12.4 is below 12.4.1, so that only 12.5 satisfies >=12.4.1.
    least = after if any(numbers[parts:]) else here
    end = without_trailing_zeros
    match factor.operator:
        case ">=":
            return [VersionRange(end(least))]
        case ">":
            return [VersionRange(end(after))]
        case "<":
            return [VersionRange(below=end(least))]
        case "<=":
            return [VersionRange(below=end(after))]
        case "=":
            return [VersionRange(end(least), end(after))]
    return [VersionRange(below=end(least)), VersionRange(end(after))]
