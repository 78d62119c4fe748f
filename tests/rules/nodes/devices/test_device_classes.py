"""DeviceClasses and the extended resources that nodes offer by them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from rules.nodes.devices.device_classes import DeviceClass, DeviceClasses, Offered, read_device_class
from rules.nodes.devices.devices import DeviceKind, KindPool
from rules.nodes.devices.slices import DeviceInventory, read_slice
from tests.support.broken_json import JSON, broken
from tests.support.dra_builders import GPU_DRIVER, T4, device, device_class, resource_slice

POOL = KindPool()
GPU = "nvidia.com/gpu"
IMPLICIT = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"


def classes(*documents: dict[str, Any]) -> DeviceClasses:
    """Return the classes of documents."""
    read = [read_device_class(document)[0] for document in documents]
    return DeviceClasses(parsed for parsed in read if parsed is not None)


def devices(*documents: dict[str, Any]) -> dict[DeviceKind, int]:
    """Return the devices of node-1."""
    read = [read_slice(document, POOL)[0] for document in documents or (resource_slice(),)]
    return dict(DeviceInventory(parsed for parsed in read if parsed is not None).by_node["node-1"])


def test_a_class_has_its_selectors_and_its_extended_resource() -> None:
    document = device_class("a", "true", "false", resource=GPU, created="2026-01-02T03:04:05Z")
    assert (DeviceClass("a", ("true", "false"), GPU, "2026-01-02T03:04:05Z"), []) == read_device_class(
        document
    )


def test_a_node_offers_what_a_class_selects_by_both_names() -> None:
    one = resource_slice(devices=[device("gpu-0"), device("gpu-1"), device("gpu-2", type={"string": "mig"})])
    (kind, number), _ = devices(one).items()
    offered = Offered(number, (kind,), complete=True)
    assert {GPU: offered, IMPLICIT: offered} == classes(device_class(resource=GPU)).offered(devices(one))
    assert 2 == number


def test_a_class_without_extended_resource_has_the_implicit_name() -> None:
    assert [IMPLICIT] == list(classes(device_class()).offered(devices()))


def test_devices_of_another_driver_do_not_make_a_gpu_node() -> None:
    channel = {"name": "channel-0", "attributes": {"type": {"string": "channel"}}}
    domain = resource_slice(devices=[channel], driver="compute-domain.nvidia.com")
    assert {} == classes(device_class(resource=GPU)).offered(devices(domain))


def test_devices_of_other_drivers_count_for_the_classes_that_select_them() -> None:
    nic = resource_slice(devices=[{"name": "nic-0"}, {"name": "nic-1"}], driver="nic.example.com")
    by = classes(device_class("nic", "device.driver == 'nic.example.com'", resource="example.com/nic"))
    assert 2 == by.offered(devices(nic))["example.com/nic"].number


def test_a_class_without_selectors_selects_every_device() -> None:
    document = device_class("any")
    document["spec"] = None
    assert 1 == classes(document).offered(devices())["deviceclass.resource.kubernetes.io/any"].number


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"name": "a", "created": "2026-01-01T00:00:00Z"}, {"name": "b", "created": "2026-01-01T00:00:01Z"}),
        ({"name": "b", "created": "2026-01-01T00:00:00Z"}, {"name": "a", "created": "2026-01-01T00:00:00Z"}),
        ({"name": "a"}, {"name": "b", "created": "2026-01-01T00:00:00Z"}),
    ],
)
def test_of_classes_with_one_extended_resource_the_newest_then_the_first_by_name_counts(
    old: dict[str, str], new: dict[str, str]
) -> None:
    documents = [
        device_class(times["name"], "true", resource=GPU, created=times.get("created"))
        for times in (old, new)
    ]
    assert new["name"] == classes(*documents).by_resource[GPU].name
    assert new["name"] == classes(*reversed(documents)).by_resource[GPU].name


def test_a_class_that_cannot_be_evaluated_may_offer() -> None:
    by = classes(device_class("a", "device.attributes[device.driver].yes", resource=GPU))
    assert Offered(0, (), complete=False) == by.offered(devices())[GPU]


def test_a_selector_that_is_false_outweighs_one_that_is_unknown() -> None:
    by = classes(device_class("a", "device.attributes[device.driver].yes", "false", resource=GPU))
    assert {} == by.offered(devices())


def test_a_selector_that_fails_offers_nothing() -> None:
    by = classes(device_class("a", f"device.attributes['{GPU_DRIVER}'].absent == 1", resource=GPU))
    assert {} == by.offered(devices())


def test_a_pool_that_is_not_complete_may_offer() -> None:
    by = classes(device_class(resource=GPU))
    assert Offered(0, (), complete=False) == by.offered(devices(resource_slice(resourceSliceCount=2)))[GPU]


def test_a_complete_pool_and_one_that_is_not_offer_a_number_that_may_grow() -> None:
    both = devices(
        resource_slice(), resource_slice(devices=[device(**T4)], name="other", resourceSliceCount=2)
    )
    offered = classes(device_class(resource=GPU)).offered(both)[GPU]
    assert (1, False) == (offered.number, offered.complete)


@pytest.mark.parametrize(
    ("effect", "offers"), [("NoSchedule", False), ("NoExecute", False), ("None", True), ("Future", True)]
)
def test_a_tainted_device_is_not_offered(effect: str, offers: bool) -> None:
    tainted = device() | {"taints": [{"key": "example.com/broken", "effect": effect}]}
    offered = classes(device_class(resource=GPU)).offered(devices(resource_slice(devices=[tainted])))
    assert offers is (GPU in offered)


@pytest.mark.parametrize(
    ("spec", "keys"),
    [
        ({"selectors": "x"}, ["spec.selectors"]),
        ({"selectors": [{"cel": None}]}, ["spec.selectors"]),
        ({"selectors": [{"cel": {"expression": "?!"}}]}, ["spec.selectors"]),
        ({"selectors": [{"cel": {"expression": "true"}}] * 33}, ["spec.selectors"]),
        ({"selectors": [], "extendedResourceName": 7}, ["spec.extendedResourceName"]),
    ],
)
def test_what_is_unreadable_in_a_class_is_told(spec: dict[str, Any], keys: list[str]) -> None:
    read, problems = read_device_class({"metadata": {"name": "a"}, "spec": spec})
    assert read is not None
    assert keys == [problem.key for problem in problems]


@given(broken(device_class(resource=GPU)) | JSON)
def test_any_json_is_read_or_told(document: Any) -> None:
    read, problems = read_device_class(document)
    assert read is not None or problems
    if read is not None:
        DeviceClasses([read]).offered(devices())
