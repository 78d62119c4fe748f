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
from rules.cuda.gpu_memory import MIB, ROUNDING_MIB
from rules.cuda.requirements import GpuRequirements
from rules.cuda.served_model import ModelWeights, gib, request_of
from rules.model.check_result import OFF, CheckResult, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities, is_slice
from rules.text.i18n import Joined, Message

_GIB: Final = 2**30
# Of the largest GPU; a suggestion of more is none.
_LARGEST_GIB: Final = 288
_LARGER_GPU: Final = Message("use a GPU with {mib} of memory or more")
_LARGER_DEVICE: Final = Message("use a MIG device or a GPU with {mib} of memory or more")
_MIXED: Final = "mixed"
_REASON: Final = Message(
    "{weights} GiB of weights on each GPU, and {program} uses at most {budget} GiB there "
    "({fraction} × {memory} GiB)"
)
_REASON_BY_NAME: Final = Message(
    "by its name {model} has {weights} GiB of weights on each GPU, and {program} uses at most {budget} GiB "
    "there ({fraction} × {memory} GiB)"
)
# Weights of 16 bits that are quantized to 4.
_FOURTH: Final = 4


class ModelWeightsCheck(Check):
    """Weights that are larger than the memory are an error; nothing if the memory is unknown.

    A MIG device has the memory of its profile at most: of the requested one, or of that in the product label
    if all GPUs of a node are partitioned alike. Nothing for other MIG devices and virtual GPUs, whose memory
    is another, and a warning for replicas of a GPU.
    """

    is_optional: ClassVar[bool] = True

    def on_any_node(self, policy: SharingPolicy, requirements: GpuRequirements) -> Iterator[CheckResult]:
        """Yield a result for each model whose weights do not fit the requested MIG device."""
        if not requirements.models or policy.checks.model is OFF or policy.virtual:
            return
        for weights in (model.weights for model in requirements.models if model.weights):
            if weights.device_mib is not None:
                memory = Fraction(weights.device_mib * MIB)
                yield from _results(policy, weights, None, memory, memory, is_slice=True)

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterator[CheckResult]:
        """Yield a result for each model whose weights do not fit."""
        if policy.checks.model is OFF or policy.virtual:
            return
        model = node.model
        nominal = model.memory_mib if model and model.status.certain else None
        memory_mib = node.memory_mib or nominal
        slices = is_slice(node.product or "")
        # By strategy `mixed`, MIG devices have resources of their own.
        if memory_mib is None or (node.mig_devices and not slices and node.mig_strategy != _MIXED):
            return
        if slices and nominal:
            nominal += ROUNDING_MIB
        most = Fraction(max(nominal or 0, memory_mib) * MIB)
        certain = nominal is not None and sharing_strategy(node) is None
        for weights in (model.weights for model in requirements.models if model.weights):
            if weights.device_mib is None:
                memory = Fraction(memory_mib * MIB)
                capability = node.gpu_capability
                yield from _results(
                    policy, weights, capability, memory, most if certain else None, is_slice=slices
                )


def _results(  # noqa: PLR0913 - the last three are of a device
    policy: SharingPolicy,
    weights: ModelWeights,
    capability: tuple[int, int] | None,
    reported: Fraction,
    most: Fraction | None,
    *,
    is_slice: bool,
) -> Iterator[CheckResult]:
    """Yield the result for weights that are not below what the server uses of the memory of a device.

    reported: bytes, by its label. most: bytes, by data sheet or profile; None: nothing is certain.
    """
    on_rank = weights.on_rank(capability)
    if on_rank < reported * weights.fraction:
        return
    certain = weights.certain and most is not None and on_rank >= most * weights.fraction
    memory = most if certain and most is not None else reported
    yield CheckResult(
        capped(policy.checks.model, certain=certain),
        _reason(weights, on_rank, memory),
        _remedy(weights, capability, memory, is_slice=is_slice),
        origin=weights.origin,
    )


def _reason(weights: ModelWeights, on_rank: Fraction, memory: Fraction) -> Message:
    words = _REASON_BY_NAME.having(model=weights.model) if weights.by_name else _REASON
    return words.having(
        weights=gib(on_rank),
        program=weights.program,
        budget=gib(memory * weights.fraction),
        fraction=f"{float(weights.fraction):g}",
        memory=gib(memory),
    )


def _remedy(
    weights: ModelWeights, capability: tuple[int, int] | None, memory: Fraction, *, is_slice: bool
) -> Message:
    """Return the fixes: more GPUs, larger ones, and smaller weights. A program uses one MIG device."""
    ways: list[Message] = []
    if not is_slice and (ranks := weights.ranks_for(memory, capability)):
        request, flag = request_of(ranks), f"{weights.flag}={ranks}"
        ways.append(
            Message("{request} and set `{flag}`", request=request, flag=flag) if weights.flag else request
        )
    least = ceil(weights.on_rank(None) / weights.fraction / _GIB + Fraction(1, 10))
    if least <= _LARGEST_GIB:
        words = _LARGER_DEVICE if is_slice else _LARGER_GPU
        ways.append(words.having(mib=f"{least}Gi"))
    if weights.is_16_bit and weights.on_rank(None) / _FOURTH < memory * weights.fraction:
        ways.append(Message("use a model with weights of 4 bits"))
    if not ways:
        ways.append(Message("use a smaller model"))
    return Joined(", or ", ways)
