"""The fleet: classes of nodes by the labels of all rules, and GPU nodes by driver branch, CUDA and GPU."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from rules.nodes.inventory import Inventory, NodeClass
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import DriverCuda, NodeCapabilities, branch_of, cuda_of

_UNKNOWN: Final = "unknown"


class GpuNodes(NamedTuple):
    """What GPU nodes have in common; None if it is unknown.

    gpu: the model, such as A100, if the facts have it.
    """

    branch: int | None
    cuda: DriverCuda | None
    gpu: str | None

    @property
    def labels(self) -> tuple[str, str, str]:
        """Driver branch, CUDA version and GPU as text, for a metric."""
        return str(self.branch or _UNKNOWN), str(self.cuda or _UNKNOWN), self.gpu or _UNKNOWN


def classes_of(inventory: Inventory, nodes: int, families: Sequence[LabelNames]) -> list[NodeClass]:
    """Return the classes of a set of nodes, each node once: by the first labels that report its CUDA version.

    If none do, by the first labels that report a driver or GPU, or else by the first labels of all.
    """
    reports: tuple[Callable[[NodeCapabilities], object], ...] = cuda_of, _has_gpu, lambda _: True
    members = defaultdict[NodeCapabilities, int](int)
    for is_reported in reports:
        for names in families:
            for node_class in inventory.classes(nodes, names):
                if is_reported(node_class.capabilities):
                    nodes &= ~node_class.members
                    members[node_class.capabilities] |= node_class.members
    return [NodeClass(*node_class) for node_class in members.items()]


def gpu_classes(inventory: Inventory, families: Sequence[LabelNames]) -> Iterator[NodeClass]:
    """Yield the classes of the GPU nodes, each node once."""
    for node_class in classes_of(inventory, inventory.everything, families):
        if cuda_of(node_class.capabilities) or _has_gpu(node_class.capabilities):
            yield node_class


def gpu_nodes(inventory: Inventory, families: Sequence[LabelNames]) -> Counter[GpuNodes]:
    """Return the number of GPU nodes by what they have in common, in time linear in their classes."""
    counted: Counter[GpuNodes] = Counter()
    for node_class in gpu_classes(inventory, families):
        capabilities = node_class.capabilities
        gpu = capabilities.model.product if capabilities.model else None
        key = GpuNodes(branch_of(capabilities), cuda_of(capabilities), gpu)
        counted[key] += node_class.members.bit_count()
    return counted


def _has_gpu(capabilities: NodeCapabilities) -> bool:
    return bool(capabilities.driver or capabilities.product)
