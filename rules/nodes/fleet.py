"""The fleet: classes of nodes by the labels of all rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rules.nodes.inventory import Inventory, NodeClass
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, cuda_of


def classes_of(inventory: Inventory, nodes: int, families: Sequence[LabelNames]) -> Iterator[NodeClass]:
    """Yield the classes of a set of nodes, each node once: by the first labels that report its CUDA version.

    If none do, by the first labels that report a driver or GPU, or else by the first labels of all.
    """
    reports: tuple[Callable[[NodeCapabilities], object], ...] = cuda_of, _has_gpu, lambda _: True
    for is_reported in reports:
        for names in families:
            for node_class in inventory.classes(nodes, names):
                if is_reported(node_class.capabilities):
                    nodes &= ~node_class.members
                    yield node_class


def gpu_classes(inventory: Inventory, families: Sequence[LabelNames]) -> Iterator[NodeClass]:
    """Yield the classes of the GPU nodes, each node once."""
    for node_class in classes_of(inventory, inventory.everything, families):
        if cuda_of(node_class.capabilities) or _has_gpu(node_class.capabilities):
            yield node_class


def _has_gpu(capabilities: NodeCapabilities) -> bool:
    return bool(capabilities.driver or capabilities.product)
