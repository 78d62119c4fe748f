"""The fleet: classes of nodes by the labels of all rules, and GPU nodes by driver branch, CUDA and GPU."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rules.nodes.fleet import classes_of, gpu_nodes
from rules.nodes.inventory import Inventory
from rules.nodes.label_families import LabelNames, read_driver_families

OWN = replace(LabelNames(), driver=read_driver_families(["example.com/driver"]))
DRIVER = "nvidia.com/cuda.driver-version.full"


def _node(name: str, **labels: str) -> dict[str, Any]:
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {}}


def _inventory() -> Inventory:
    product = {"nvidia.com/gpu.product": "NVIDIA-L4"}
    return Inventory().with_node(
        [
            _node("nvidia", **product, **{DRIVER: "570.124.06"}),
            _node("own", **product, **{"example.com/driver": "535.104.05"}),
            _node("unknown", **product),
            _node("newest", **{"nvidia.com/gpu.product": "Toaster-9000", DRIVER: "700.10"}),
            _node("cpu"),
        ]
    )


def test_each_node_has_one_class_by_the_labels_that_report_most_of_it() -> None:
    """Whatever the order of the rules."""
    inventory = _inventory()

    for families in ([LabelNames(), OWN], [OWN, LabelNames()]):
        classes = list(classes_of(inventory, inventory.everything, families))
        assert {
            "nvidia": "570.124.06",
            "own": "535.104.05",
            "unknown": None,
            "newest": "700.10",
            "cpu": None,
        } == {
            name: node_class.capabilities.driver
            for node_class in classes
            for name in inventory.names(node_class.members)
        }
        assert len(inventory) == sum(node_class.members.bit_count() for node_class in classes)


def test_gpu_nodes_are_counted_by_driver_branch_cuda_and_known_gpu() -> None:
    """Nodes without a GPU do not count; a newer driver than the known ones has at least their CUDA."""
    counted = gpu_nodes(_inventory(), [LabelNames(), OWN])

    assert {
        ("570", "12.8", "L4"): 1,
        ("535", "12.2", "L4"): 1,
        ("unknown", "unknown", "L4"): 1,
        ("700", ">=13.5", "unknown"): 1,
    } == {key.labels: number for key, number in counted.items()}


def test_a_changed_node_is_counted_by_what_it_is_now() -> None:
    """From the classes of the inventory."""
    inventory = _inventory()
    gpu_nodes(inventory, [LabelNames()])
    changed = inventory.with_node(_node("unknown", **{DRIVER: "570.124.06"})).without_node("nvidia")

    counted = {key.labels: number for key, number in gpu_nodes(changed, [LabelNames()]).items()}

    assert {
        ("570", "12.8", "unknown"): 1,
        ("unknown", "unknown", "L4"): 1,
        ("700", ">=13.5", "unknown"): 1,
    } == counted
