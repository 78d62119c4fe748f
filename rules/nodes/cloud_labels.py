"""Labels of cloud providers that report the GPU of a node, read from `facts/cloud_gpus.yaml`.

The generated rows of `facts/aws_instances.yaml` come after those by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from rules.cuda.tables import Facts, GpuModel, Status, derived, gpu_model, pattern
from rules.nodes.label_families import DriverFamily
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.bounded_cache import bounded_cache, length

if TYPE_CHECKING:
    from rules.cuda.versions import ComputeCapability

T = TypeVar("T")

_TABLE: Final = "cloud_gpus"
# Its list of values which the generated rows continue.
_AWS_FAMILIES: Final = "awsFamilies"
# Labels of machines in a cluster: some hundred kinds, with 63 characters of a value at most.
_REMEMBERED: Final = 4096
_LONGEST: Final = 512
# In the table: the value of the label is a product as GPU Feature Discovery labels it.
_PRODUCT: Final = "product"


class _CloudGpu(Struct, frozen=True):
    """The GPU that a value of a label reports."""

    value: re.Pattern[str]
    products: tuple[str, ...]  # alternatives; none: not of NVIDIA
    whole: bool  # not a virtual GPU
    certain: bool


def product_of_label(facts: Facts, key: str, value: str) -> NodeCapabilities | None:
    """Return the GPU that a label of a cloud provider reports; None if nothing is certain.

    That is the product, or if there are several, their common compute capability and memory. For a virtual
    GPU only the compute capability is known.
    """
    if (gpu := _row_of(facts, key, value)) is None or not gpu.products:
        return None
    if gpu.whole and len(gpu.products) == 1:
        return NodeCapabilities(product=gpu.products[0], facts=facts)
    models = [gpu_model(facts, product) for product in gpu.products]
    known = NodeCapabilities(
        compute_capability=_shared(models, _certain_compute),
        memory_mib=_shared(models, lambda model: model.memory_mib) if gpu.whole else None,
        facts=facts,
    )
    return known if known.compute_capability or known.memory_mib else None


def has_no_gpu(facts: Facts, key: str, value: str) -> bool:
    """Return whether a label proves that its node has no GPU of NVIDIA."""
    gpu = _row_of(facts, key, value)
    return gpu is not None and not gpu.products


def cloud_capabilities(labels: Mapping[str, str], known: NodeCapabilities) -> NodeCapabilities:
    """Return known capabilities with those that labels of cloud providers add.

    If the product is known, nothing is added about the GPU. If several labels report the GPU, the most exact
    one is used.
    """
    facts = known.facts
    families = (family for family in _drivers(facts) if family.key in labels)
    drivers = (family.text(labels) for family in families if family.version(labels))
    known = replace(known, driver=known.driver or next(drivers, None))
    keys = (key for key in _label_keys(facts) if key in labels)
    reported = [gpu for key in keys if (gpu := product_of_label(facts, key, labels[key]))]
    if known.product or not reported:
        return known
    gpu = next((gpu for gpu in reported if gpu.product), reported[0])
    return replace(
        known,
        product=gpu.product,
        compute_capability=known.compute_capability or gpu.compute_capability,
        memory_mib=known.memory_mib or gpu.memory_mib,
    )


@derived
def kind_labels(facts: Facts) -> tuple[str, ...]:
    """Return the labels whose values name a GPU or a kind of machine, in the order of the table."""
    naming = {name for name, rows in _values(facts).items() if any(row.products for row in rows)} | {_PRODUCT}
    rows = facts.table(_TABLE)["labels"]
    return tuple(dict.fromkeys(row["key"] for row in rows if row.get("values") in naming))


@derived
def driver_labels(facts: Facts) -> tuple[str, ...]:
    """Return the labels that report the driver."""
    return tuple(family.key for family in _drivers(facts))


@derived
def gpu_only_labels(facts: Facts) -> frozenset[str]:
    """Return the labels that all machines with GPUs have, and no others."""
    return frozenset(row["key"] for row in facts.table(_TABLE)["labels"] if row.get("gpuOnly"))


@derived
def counted_resources(facts: Facts) -> frozenset[str]:
    """Return the resources without which an autoscaler cannot add a machine with GPUs of NVIDIA."""
    return frozenset(row["resource"] for row in facts.table(_TABLE)["counted"])


@derived
def provider_labels(facts: Facts) -> tuple[str, ...]:
    """Return the prefixes of labels that Karpenter's providers set on every node."""
    return tuple(row["prefix"] for row in facts.table(_TABLE)["known"])


@derived
def _values(facts: Facts) -> dict[str, tuple[_CloudGpu, ...]]:
    by_hand = facts.table(_TABLE)["values"]
    families = (*by_hand[_AWS_FAMILIES], *facts.table("aws_instances"))
    return {
        name: tuple(
            _CloudGpu(
                pattern(row["value"]),
                tuple(row["product"].split()),
                not row.get("vgpu", False),
                Status(row["status"]).certain,
            )
            for row in rows
        )
        for name, rows in {**by_hand, _AWS_FAMILIES: families}.items()
    }


@derived
def _label_keys(facts: Facts) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["key"] for row in facts.table(_TABLE)["labels"]))


@derived
def _lists(facts: Facts) -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return the lists of values of each label, each with the pattern of the part that is looked up."""
    lists: dict[str, list[tuple[str, re.Pattern[str]]]] = {key: [] for key in _label_keys(facts)}
    for row in facts.table(_TABLE)["labels"]:
        if "values" in row:
            lists[row["key"]].append((row["values"], pattern(row.get("part", "(.*)"), re.DOTALL)))
    return lists


@derived
def _rows(facts: Facts) -> Callable[[tuple[str, str]], _CloudGpu | None]:
    return bounded_cache(partial(_find_row, facts), _REMEMBERED, lambda label: length(label) <= _LONGEST)


def _row_of(facts: Facts, key: str, value: str) -> _CloudGpu | None:
    """Return the certain row of a label, or None."""
    return _rows(facts)((key, value))


def _find_row(facts: Facts, label: tuple[str, str]) -> _CloudGpu | None:
    key, value = label
    if length(label) > _LONGEST:
        return None
    for name, part in _lists(facts).get(key, ()):
        if (match := part.fullmatch(value)) is None:
            continue
        if name == _PRODUCT:
            return _CloudGpu(part, (value,), True, True) if gpu_model(facts, value) else None
        row = next((row for row in _values(facts)[name] if row.value.fullmatch(match[1])), None)
        if row is not None:
            return row if row.certain else None
    return None


@derived
def _drivers(facts: Facts) -> tuple[DriverFamily, ...]:
    return tuple(DriverFamily((row["key"],)) for row in facts.table(_TABLE)["drivers"])


def _certain_compute(model: GpuModel) -> ComputeCapability | None:
    return model.compute if model.status.certain else None


def _shared(models: list[GpuModel | None], fact: Callable[[GpuModel], T | None]) -> T | None:
    """Return a fact that is the same for all models, or None."""
    facts = {fact(model) if model else None for model in models}
    return facts.pop() if len(facts) == 1 else None
