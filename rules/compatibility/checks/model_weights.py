"""The weights of a model against the memory of the GPUs that a container requests.

A lower bound of the weights is compared with an upper bound of the memory, that of the data sheet, which is
more than a driver reports. So a denial needs a GPU whose data sheet is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import ClassVar, Final

from rules.compatibility.checks.base import Check
from rules.compatibility.checks.shared_gpu_count import sharing_strategy
from rules.cuda.gpu_memory import MIB
from rules.cuda.requirements import GpuRequirements
from rules.cuda.served_model import ModelWeights, gib, request_of
from rules.model.check_result import CheckResult, Level, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Joined, Message

_GIB: Final = 2**30
# Of the largest GPU; a suggestion of more is none.
_LARGEST_GIB: Final = 288
# Weights of 16 bits that are quantized to 4.
_FOURTH: Final = 4


class ModelWeightsCheck(Check):
    """Weights that are larger than the memory are an error; nothing if the memory is unknown.

    Nothing for MIG devices and virtual GPUs, whose memory is another, and a warning for replicas of a GPU.
    """

    is_optional: ClassVar[bool] = True
    of_program: ClassVar[bool] = True

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for each model whose weights do not fit."""
        if policy.checks.model is Level.COMPATIBLE or policy.virtual:
            return
        model = node.model
        nominal = model.memory_mib if model and model.status.certain else None
        memory_mib = node.memory_mib or nominal
        if memory_mib is None or node.mig_devices:
            return
        most = Fraction(max(nominal or 0, memory_mib) * MIB)
        for weights in (model.weights for model in requirements.models if model.weights):
            on_rank, budget = weights.on_rank(node.gpu_capability), memory_mib * MIB * weights.fraction
            if on_rank < budget:
                continue
            certain = weights.certain and nominal is not None and on_rank >= most * weights.fraction
            certain &= sharing_strategy(node) is None
            level = capped(policy.checks.model, certain=certain)
            memory = most if certain else Fraction(memory_mib * MIB)
            yield CheckResult(
                level,
                _reason(weights, on_rank, memory),
                _remedy(weights, node, memory),
                origin=weights.origin,
            )


def _reason(weights: ModelWeights, on_rank: Fraction, memory: Fraction) -> Message:
    return Message(
        "{weights} GiB of weights on each GPU, and {program} uses at most {budget} GiB there "
        "({fraction} × {memory} GiB)",
        weights=gib(on_rank),
        program=weights.program,
        budget=gib(memory * weights.fraction),
        fraction=f"{float(weights.fraction):g}",
        memory=gib(memory),
    )


def _remedy(weights: ModelWeights, node: NodeCapabilities, memory: Fraction) -> Message:
    """Return the fixes: more GPUs, larger ones, and smaller weights."""
    capability = node.gpu_capability
    ways: list[Message] = []
    if ranks := weights.ranks_for(memory, capability):
        request, flag = request_of(ranks), f"{weights.flag}={ranks}"
        ways.append(
            Message("{request} and set `{flag}`", request=request, flag=flag) if weights.flag else request
        )
    least = ceil(weights.on_rank(None) / weights.fraction / _GIB + Fraction(1, 10))
    if least <= _LARGEST_GIB:
        ways.append(Message("use a GPU with {mib} of memory or more", mib=f"{least}Gi"))
    if weights.is_16_bit and weights.on_rank(None) / _FOURTH < memory * weights.fraction:
        ways.append(Message("use a model with weights of 4 bits"))
    if not ways:
        ways.append(Message("use a smaller model"))
    return Joined(", or ", ways)
