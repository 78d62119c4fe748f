"""Labels of cloud providers that tell the GPU of a node, read from `facts/cloud_gpus.yaml`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rules.cuda.tables import GpuModel, Status, gpu_model, read_table
from rules.nodes.label_families import DriverFamily
from rules.nodes.node_capabilities import NodeCapabilities

if TYPE_CHECKING:
    from rules.cuda.versions import ComputeCapability

T = TypeVar("T")

# In the table: the value of the label is a product as GPU Feature Discovery labels it.
_PRODUCT: Final = "product"


@dataclass(frozen=True, slots=True)
class _CloudGpu:
    """The GPU that a value tells. products: alternatives, or none if it is not of NVIDIA.

    whole: not a virtual GPU.
    """

    value: re.Pattern[str]
    products: tuple[str, ...]
    whole: bool
    certain: bool


def product_of_label(key: str, value: str) -> NodeCapabilities | None:
    """Return the GPU that a label of a cloud provider tells; None if it tells nothing for certain.

    The product, or if the label leaves it open, the compute capability and memory that all alternatives
    share. Of a virtual GPU only the compute capability is known.
    """
    if (found := _found(key, value)) is None or not found.products:
        return None
    if found.whole and len(found.products) == 1:
        return NodeCapabilities(product=found.products[0])
    models = [gpu_model(product) for product in found.products]
    facts = NodeCapabilities(
        compute_capability=_shared(models, _certain_compute),
        memory_mib=_shared(models, lambda model: model.memory_mib) if found.whole else None,
    )
    return facts if facts != NodeCapabilities() else None


def has_no_gpu(key: str, value: str) -> bool:
    """Return whether a label proves that its node has no GPU of NVIDIA."""
    found = _found(key, value)
    return found is not None and not found.products


def cloud_capabilities(labels: Mapping[str, str], known: NodeCapabilities) -> NodeCapabilities:
    """Return known capabilities with those that labels of cloud providers add.

    Labels about the GPU itself take precedence: nothing is added about it if its product is known. If
    several labels tell the GPU, the most exact one is used.
    """
    drivers = (each.text(labels) for each in _drivers() if each.key in labels and each.version(labels))
    known = replace(known, driver=known.driver or next(drivers, None))
    told = [facts for key in _label_keys() if key in labels and (facts := product_of_label(key, labels[key]))]
    if known.product or not told:
        return known
    gpu = next((facts for facts in told if facts.product), told[0])
    return replace(
        known,
        product=gpu.product,
        compute_capability=known.compute_capability or gpu.compute_capability,
        memory_mib=known.memory_mib or gpu.memory_mib,
    )


@cache
def kind_labels() -> tuple[str, ...]:
    """Return the labels whose values name a GPU or a kind of machine, in the order of the table."""
    naming = {name for name, rows in _values().items() if any(row.products for row in rows)} | {_PRODUCT}
    rows = _table()["labels"]
    return tuple(dict.fromkeys(row["key"] for row in rows if row.get("values") in naming))


@cache
def gpu_only_labels() -> frozenset[str]:
    """Return the labels that exactly the machines with GPUs have."""
    return frozenset(row["key"] for row in _table()["labels"] if row.get("gpuOnly"))


@cache
def counted_resources() -> frozenset[str]:
    """Return the resources without which an autoscaler cannot add a machine with GPUs of NVIDIA."""
    return frozenset(row["resource"] for row in _table()["counted"])


@cache
def provider_labels() -> tuple[str, ...]:
    """Return the beginnings of labels that Karpenter's providers set on every node."""
    return tuple(row["prefix"] for row in _table()["known"])


@cache
def _table() -> Any:
    return read_table("cloud_gpus")


@cache
def _values() -> dict[str, tuple[_CloudGpu, ...]]:
    return {
        name: tuple(
            _CloudGpu(
                re.compile(row["value"]),
                tuple(row["product"].split()),
                not row.get("vgpu", False),
                Status(row["status"]).certain,
            )
            for row in rows
        )
        for name, rows in _table()["values"].items()
    }


@cache
def _label_keys() -> tuple[str, ...]:
    return tuple(dict.fromkeys(row["key"] for row in _table()["labels"]))


@cache
def _lists_of(key: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return the lists of values of a label, each with the pattern of the part that is in it."""
    return tuple(
        (row["values"], re.compile(row.get("part", "(.*)"), re.DOTALL))
        for row in _table()["labels"]
        if row["key"] == key and "values" in row
    )


# Values of labels have 63 characters at most; there are some hundred kinds of machines in a cluster.
@lru_cache(maxsize=4096)
def _found(key: str, value: str) -> _CloudGpu | None:
    """Return the certain row of a label, or None."""
    if key not in _label_keys():
        return None
    for name, part in _lists_of(key):
        if (match := part.fullmatch(value)) is None:
            continue
        if name == _PRODUCT:
            return _CloudGpu(part, (value,), True, True) if gpu_model(value) else None
        row = next((row for row in _values()[name] if row.value.fullmatch(match[1])), None)
        if row is not None:
            return row if row.certain else None
    return None


@cache
def _drivers() -> tuple[DriverFamily, ...]:
    return tuple(DriverFamily((row["key"],)) for row in _table()["drivers"])


def _certain_compute(model: GpuModel) -> ComputeCapability | None:
    return model.compute if model.status.certain else None


def _shared(models: list[GpuModel | None], fact: Callable[[GpuModel], T | None]) -> T | None:
    """Return a fact that is the same for all models, or None."""
    facts = {fact(model) if model else None for model in models}
    return facts.pop() if len(facts) == 1 else None
