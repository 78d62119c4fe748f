"""ResourceSlices and the devices of a cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from rules.nodes.devices.devices import DeviceKind, KindPool
from rules.nodes.devices.slices import DeviceInventory, ResourceSlice, read_slice
from tests.support.broken_json import JSON, broken
from tests.support.dra_builders import GPU_DRIVER, T4, device, resource_slice

POOL = KindPool()


def read(document: dict[str, Any]) -> ResourceSlice:
    """Return a slice that has no problems."""
    read_document, problems = read_slice(document, POOL)
    assert (read_document is not None, []) == (True, problems)
    assert read_document is not None
    return read_document


def inventory(*documents: dict[str, Any]) -> DeviceInventory:
    """Return the devices of slices."""
    return DeviceInventory(map(read, documents))


def kind(**attributes: Any) -> DeviceKind:
    """Return the kind of an H100 with some other attributes."""
    return read(resource_slice(devices=[device(**attributes)])).devices[0][1]


UNKNOWN = DeviceKind(GPU_DRIVER, hidden=None)


def test_a_node_has_the_kinds_of_its_slices_with_their_numbers() -> None:
    devices = [device("gpu-0"), device("gpu-1"), device("gpu-2", **T4)]
    known_nodes = inventory(resource_slice(devices=devices))
    assert {"node-1": {kind(): 2, kind(**T4): 1}} == known_nodes.by_node


def test_a_kind_has_its_nodes_with_the_numbers() -> None:
    known_nodes = inventory(resource_slice("a", [device("gpu-0"), device("gpu-1")]), resource_slice("b"))
    assert {kind(): {"a": 2, "b": 1}} == known_nodes.by_kind


def test_only_the_highest_generation_of_a_pool_counts() -> None:
    documents = [resource_slice(devices=[device(**T4)], generation=1), resource_slice(generation=2)]
    assert {kind(): {"node-1": 1}} == inventory(*documents).by_kind
    assert {kind(): {"node-1": 1}} == inventory(*reversed(documents)).by_kind


def test_the_slices_of_a_complete_pool_are_added() -> None:
    one = resource_slice(devices=[device("gpu-0")], resourceSliceCount=2)
    other = resource_slice(devices=[device("gpu-1")], resourceSliceCount=2)
    assert {kind(): {"node-1": 2}} == inventory(one, other).by_kind


def test_devices_of_an_incomplete_pool_are_unknown() -> None:
    known_nodes = inventory(resource_slice(resourceSliceCount=2))
    assert {"node-1": {UNKNOWN: 0}} == known_nodes.by_node


def test_devices_of_a_pool_with_one_name_twice_are_unknown() -> None:
    known_nodes = inventory(resource_slice(devices=[device(), device()]))
    assert {UNKNOWN: {"node-1": 0}} == known_nodes.by_kind


def test_a_slice_with_an_unreadable_device_makes_its_pool_incomplete() -> None:
    incomplete, problems = read_slice(resource_slice(devices=[device(), {"name": 7}]), POOL)
    assert incomplete is not None
    assert [UNKNOWN] == list(DeviceInventory([incomplete]).by_kind)
    assert ["devices"] == [problem.key for problem in problems]


@pytest.mark.parametrize(
    "scope", [{"allNodes": True}, {"nodeSelector": {}}, {"perDeviceNodeSelection": True}]
)
def test_devices_that_are_not_of_one_node_are_elsewhere(scope: dict[str, Any]) -> None:
    document = resource_slice(None)
    document["spec"] |= scope
    known_nodes = inventory(document)
    assert ({}, (kind(),)) == (known_nodes.by_node, known_nodes.elsewhere)


def test_a_slice_of_counters_has_no_devices() -> None:
    document = resource_slice(resourceSliceCount=2)
    counters = resource_slice(resourceSliceCount=2)
    counters["spec"] |= {"devices": None, "sharedCounters": [{"name": "memory", "counters": {}}]}
    partition = device() | {"consumesCounters": [{"counterSet": "memory", "counters": {}}]}
    document["spec"]["devices"] = [partition]
    assert {kind(): {"node-1": 1}} == inventory(document, counters).by_kind


def test_one_device_is_found_by_its_driver_pool_and_name() -> None:
    known_nodes = inventory(resource_slice("a"), resource_slice("b", [device("gpu-7", **T4)]))
    assert (kind(**T4), "b") == known_nodes.device(GPU_DRIVER, "b", "gpu-7")
    assert known_nodes.device(GPU_DRIVER, "a", "gpu-7") is None
    assert known_nodes.device("other.example.com", "b", "gpu-7") is None


@pytest.mark.parametrize(
    "pool",
    [{"generation": -1}, {"generation": True}, {"resourceSliceCount": "1"}, {"name": ""}, {"name": None}],
)
def test_a_slice_with_an_unreadable_pool_is_told(pool: dict[str, Any]) -> None:
    unread, problems = read_slice(resource_slice(**pool), POOL)
    assert (None, ["spec.pool"]) == (unread, [problem.key for problem in problems])


@given(broken(resource_slice()) | JSON)
def test_any_json_is_read_or_told(document: Any) -> None:
    anything, problems = read_slice(document, KindPool())
    assert anything is not None or problems
    if anything is not None:
        DeviceInventory([anything])
