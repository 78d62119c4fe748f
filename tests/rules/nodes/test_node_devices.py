"""Devices of nodes by Dynamic Resource Allocation in an inventory."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.nodes.runtime_modes import RuntimeMode
from tests.support.dra_clusters import (
    A100_NAME,
    DRIVER,
    H100_NAME,
    T4_NAME,
    bare_node,
    device_class,
    gpu_device,
    gpus_of,
    resource_slice,
)
from tests.support.node_builders import GPU, T4, gfd, node

IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"


def inventory(*documents: dict[str, Any]) -> Inventory:
    """Return the inventory of these objects."""
    return inventory_of(list(documents))


def capabilities(known_nodes: Inventory, name: str) -> tuple[Any, ...]:
    """Return product, CUDA version, driver and compute capability of a node."""
    (node_class,) = known_nodes.classes(known_nodes.named(name))
    gpu = node_class.capabilities
    return gpu.product, gpu.cuda, gpu.driver, gpu.gpu_capability


def test_a_node_offers_what_device_classes_make_of_its_devices() -> None:
    """By the name that the class gives, and by the implicit one."""
    known_nodes = inventory(bare_node("one"), bare_node("two"), gpus_of("one"), device_class())

    assert [["one"], ["one"], []] == [
        known_nodes.names(known_nodes.nodes_offering(name)) for name in (GPU, IMPLICIT, "example.com/other")
    ]


def test_attributes_of_devices_take_precedence_over_labels() -> None:
    """Labels give what no attribute does."""
    labels = gfd("12.2", T4) | {"nvidia-device-enable": "pgpu"}
    known_nodes = inventory(node("one", labels), gpus_of("one", H100_NAME, "13.0"), device_class())

    assert ("NVIDIA-H100-80GB-HBM3", (13, 0), "580.65.06", (9, 0)) == capabilities(known_nodes, "one")
    (node_class,) = known_nodes.classes(known_nodes.everything)
    assert "pgpu" == node_class.capabilities.device_mode


@pytest.mark.parametrize(
    ("plugin", "labelled", "mode", "loads"),
    [
        (False, "legacy", RuntimeMode.CDI, True),
        (True, "legacy", RuntimeMode.UNKNOWN, None),
        (True, "cdi", RuntimeMode.CDI, None),
    ],
)
def test_containers_get_devices_by_cdi(
    plugin: bool, labelled: str, mode: RuntimeMode, loads: bool | None
) -> None:
    """Beside a device plugin it is unknown by which of the two."""
    bare = bare_node("one")
    bare["metadata"]["labels"] = {"gpugate.dev/container-runtime-mode": labelled}
    if plugin:
        bare["status"]["allocatable"]["nvidia.com/gpu.shared"] = "1"
    known_nodes = inventory(bare, gpus_of("one"), device_class())
    (node_class,) = known_nodes.classes(known_nodes.everything)

    assert (mode, loads) == (
        node_class.capabilities.runtime.mode,
        node_class.capabilities.runtime.loads_compat,
    )


def test_gpus_that_differ_leave_the_product_unknown() -> None:
    """Which of them a pod is given is unknown; the driver is that of the node."""
    mixed = resource_slice("one", gpu_device("a", T4_NAME), gpu_device("b", H100_NAME))

    assert (None, (13, 0), "580.65.06", None) == capabilities(
        inventory(node("one", gfd("12.2", T4)), mixed, device_class()), "one"
    )


def test_devices_of_other_drivers_do_not_make_a_gpu_node() -> None:
    """Channels of compute domains are on nodes whose GPUs the device plugin has."""
    channels = resource_slice("one", {"name": "channel-0"}, driver="compute-domain.nvidia.com")
    known_nodes = inventory(node("one", gfd("12.2", T4)), channels, device_class())

    assert (["one"], ("Tesla-T4", (12, 2), "535.104.05", (7, 5))) == (
        known_nodes.names(known_nodes.nodes_offering(GPU)),
        capabilities(known_nodes, "one"),
    )
    assert not known_nodes.nodes_offering(IMPLICIT)


def test_a_pool_that_is_not_complete_may_offer_devices() -> None:
    """Its other slices are still to come."""
    part = gpus_of("one")
    part["spec"]["pool"]["resourceSliceCount"] = 2
    known_nodes = inventory(bare_node("one"), part, device_class())

    assert (0, 1) == (
        known_nodes.nodes_offering(GPU).bit_count(),
        known_nodes.nodes_recovering(GPU).bit_count(),
    )


def test_the_devices_of_a_node_that_is_not_ready_are_not_offered() -> None:
    """They may be again."""
    known_nodes = inventory(
        bare_node("one") | {"spec": {"unschedulable": True}}, gpus_of("one"), device_class()
    )

    assert (0, 1) == (
        known_nodes.nodes_offering(GPU).bit_count(),
        known_nodes.nodes_recovering(GPU).bit_count(),
    )


@pytest.mark.parametrize("nodes_first", [True, False])
def test_nodes_and_devices_may_come_in_any_order(*, nodes_first: bool) -> None:
    """And go: the inventory is that of what is there."""
    whole = inventory(bare_node("one"), bare_node("two"), gpus_of("one", A100_NAME), device_class())
    if nodes_first:
        built = inventory(bare_node("one"), bare_node("two")).with_dra(whole.dra)
    else:
        empty = Inventory().with_dra(whole.dra)
        built = empty.with_node(bare_node("one")).with_node(bare_node("two"))
    without = built.with_dra(Inventory().dra)

    assert whole.names(whole.nodes_offering(GPU)) == built.names(built.nodes_offering(GPU)) == ["one"]
    assert capabilities(whole, "one") == capabilities(built, "one")
    assert (0, (None, None, None, None)) == (without.nodes_offering(GPU), capabilities(without, "one"))


def test_gpus_of_no_node_may_be_on_any() -> None:
    """So nothing is known to fail."""
    network = gpus_of("one")
    del network["spec"]["nodeName"]
    network["spec"]["allNodes"] = True

    assert inventory(bare_node("one"), network, device_class()).undeclared
    assert not inventory(bare_node("one"), gpus_of("one"), device_class()).undeclared


def test_a_class_or_slice_that_cannot_be_read_is_a_problem() -> None:
    """`gpugate nodes` prints it."""
    broken = gpus_of("one")
    broken["spec"]["pool"]["generation"] = "one"
    problems = inventory(
        bare_node("one"), broken, device_class(expression="device.driver = 'x'")
    ).dra.problems

    assert [("one-gpu.nvidia.com", "spec.pool"), (DRIVER, "spec.selectors")] == [
        (problem.source, problem.key) for problem in problems
    ]
