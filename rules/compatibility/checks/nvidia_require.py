"""NVIDIA_REQUIRE_*: NVIDIA's container runtime starts no container whose expressions are unsatisfied.

Only its legacy mode evaluates them; see docs/compatibility-semantics.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from rules.compatibility.checks.base import Check
from rules.cuda.image_catalog import StartConstraint
from rules.cuda.nvidia_require import Host, held
from rules.cuda.requirements import GpuRequirements
from rules.cuda.versions import MajorMinor
from rules.model.check_result import CheckResult, Level, unknown
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities, branch_of
from rules.nodes.runtime_modes import RuntimeMode
from rules.text.i18n import Message

_BRAND: Final = "brand"
# Kinds of nodes of a cluster, with its pools; the drivers that values of images admit for a brand, 1 KB each.
_MOST_HOSTS: Final = 1024
_NO_TEXT: Final = Message()
_INSPECT: Final = Message("read the image: gpugate image inspect IMAGE -o rule")
_FACTS: Final = {
    "cuda": Message("the driver's CUDA version"),
    "driver": Message("the driver version"),
    "arch": Message("the compute capability"),
    _BRAND: Message("the GPU's product and so its brand"),
}


class NvidiaRequireCheck(Check):
    """The NVIDIA_REQUIRE_* variables of the container against the driver and GPU of the node."""

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for the first variable that is not satisfied, or of which that is unknown.

        An older driver that may be refused is reported by DriverCheck, together with what happens otherwise.
        """
        if not requirements.constraints:
            return
        mode = policy.runtime(requirements, node).mode
        if mode is RuntimeMode.CDI:
            return
        host, need = host_of(node), requirements.cuda
        known = [(constraint.holds(host), constraint) for constraint in requirements.constraints]
        unmet = [constraint for holds, constraint in known if holds is False]
        if unmet and mode is RuntimeMode.LEGACY:
            yield _unsatisfied(unmet[0], host)
            return
        if need and node.cuda and node.cuda < need.version:
            unmet = [constraint for constraint in unmet if not constraint.concerns_driver]
        if unmet:
            (first, *_) = unmet
            starts = Message("it starts")
            reason = not_started(first, starts, _why_unsatisfied(first, host))
            yield CheckResult(Level.UNKNOWN, reason, _way_out(first, host), origin=first.origin)
        elif undecided := next((constraint for holds, constraint in known if holds is None), None):
            yield _undecided(undecided, host, has_product=bool(node.product))


def refusal(requirements: GpuRequirements, node: NodeCapabilities) -> StartConstraint | None:
    """Return the variable for which NVIDIA's legacy container runtime does not start it with this driver."""
    host = host_of(node)
    return next(
        (constraint for constraint in requirements.driver_constraints if constraint.holds(host) is False),
        None,
    )


def unsatisfied(constraint: StartConstraint, why: Message = _NO_TEXT) -> Message:
    """Return that a variable is not satisfied. why: continues the sentence."""
    return Message("{variable} is not satisfied{why}", variable=constraint.variable, why=why)


def not_started(constraint: StartConstraint, otherwise: Message, why: Message = _NO_TEXT) -> Message:
    """Return what an unsatisfied variable leads to if the mode of the container runtime is unknown.

    otherwise: what happens in CDI mode. why: the variable is not satisfied.
    """
    why = unsatisfied(constraint, why)
    return Message(
        "NVIDIA's legacy container runtime does not start it ({why}); in CDI mode {otherwise}",
        why=why,
        otherwise=otherwise,
    )


@lru_cache(maxsize=_MOST_HOSTS)
def host_of(node: NodeCapabilities) -> Host:
    """Return the node as NVIDIA_REQUIRE_* see it."""
    model = node.model
    certain = model if model and model.status.certain else None
    return Host(
        cuda=node.cuda,
        driver=node.driver,
        arch=node.gpu_capability,
        brands=certain.brands if certain else (),
        branch=branch_of(node),
        architecture=node.platform,
    )


def newer_driver(cuda: MajorMinor) -> Message:
    """Return the fix for a driver that is too old."""
    return Message("a driver with CUDA {cuda} or newer", cuda=cuda)


def _unsatisfied(constraint: StartConstraint, host: Host) -> CheckResult:
    """Return the result of a variable that is not satisfied, in a mode that evaluates it."""
    reason, remedy = unsatisfied(constraint, _why_unsatisfied(constraint, host)), _way_out(constraint, host)
    origin = Message("{origin}, which the node's container runtime enforces", origin=constraint.origin)
    return CheckResult(Level.INCOMPATIBLE, reason, remedy, origin=origin)


def _why_unsatisfied(constraint: StartConstraint, host: Host) -> Message:
    """Return why a driver does not satisfy a variable, if it is too old; it continues a sentence."""
    return _why_not(constraint, host) if _way_out(constraint, host) is not _NO_TEXT else _NO_TEXT


def _way_out(constraint: StartConstraint, host: Host) -> Message:
    """Return the fix for a driver that is older than the newest one that a constraint admits, or nothing."""
    needed = constraint.native
    if needed is None or host.cuda is None or host.cuda >= needed:
        return _NO_TEXT
    cuda = MajorMinor(*host.cuda)
    return Message(
        "use an image with CUDA {cuda} or older, or {newer}", cuda=cuda, newer=newer_driver(needed)
    )


def _why_not(constraint: StartConstraint, host: Host) -> Message:
    """Return why an older driver is not admitted: its branch is not listed, or not for this brand of GPU."""
    cuda = MajorMinor(*(host.cuda or (0, 0)))
    alternatives = tuple(
        tuple(factor for factor in group if factor.name != _BRAND) for group in constraint.alternatives
    )
    if host.brands and alternatives and held(alternatives, host):
        brands = "/".join(host.brands)
        return Message(
            ": it admits a driver with CUDA {cuda}, but not for GPUs of brand {brands}",
            cuda=cuda,
            brands=brands,
        )
    return Message(
        ": the driver has CUDA {cuda}, below {native}, and is not an older one that it admits",
        cuda=cuda,
        native=constraint.native,
    )


def _undecided(constraint: StartConstraint, host: Host, *, has_product: bool) -> CheckResult:
    """Return the result of a variable of which a fact of the node or a part of the value is missing.

    has_product: a label names the GPU, whose brand is nevertheless unknown: no other label helps.
    """
    name = constraint.variable
    missing = next((factor.name for factor in constraint.factors if factor.holds(host) is None), None)
    remedy = _INSPECT if missing is None else _NO_TEXT
    if missing == _BRAND and has_product:
        why = Message("the GPU's brand is unknown")
        remedy = _way_out(constraint, host)
    elif missing is not None:
        why = Message("no label provides {fact}", fact=_FACTS[missing])
    elif constraint.complete and constraint.certain:
        why = Message("builds of this tag differ")
    else:
        why = Message("the image's value is not fully known")
    reason = Message("cannot determine whether {name} is satisfied: {why}", name=name, why=why)
    return CheckResult(unknown(certain=constraint.certain), reason, remedy)
