"""The selector that a claim needs for a minimum, evaluated on devices."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.devices.devices import DeviceKind, DeviceReader, KindPool
from rules.nodes.devices.selectors import compile_selector, memory_selector, minimum_selector
from tests.support.dra_builders import GPU_DRIVER, T4, device

H100 = device()
MIG = device(type={"string": "mig"}, profile={"string": "1g.10gb"})


def kind(raw: dict[str, Any]) -> DeviceKind:
    """Return the kind of a device."""
    return DeviceReader("slice", GPU_DRIVER, KindPool()).kind(raw)


def test_the_selector_is_one_that_kubernetes_has() -> None:
    expected = 'device.attributes["gpu.nvidia.com"].cudaDriverVersion.compareTo(semver("12.4.0")) >= 0'
    assert expected == minimum_selector(GPU_DRIVER, "cuda", (12, 4))


@pytest.mark.parametrize(
    ("fact", "version", "matching"),
    [
        ("cuda", (12, 2), [H100, MIG, device(**T4)]),
        ("cuda", (12, 4), [H100, MIG]),
        ("cuda", (13, 0), [H100, MIG]),
        ("cuda", (13, 1), []),
        ("computeCapability", (7, 5), [H100, MIG, device(**T4)]),
        ("computeCapability", (8, 0), [H100, MIG]),
        ("driver", (535, 104, 5), [H100, MIG, device(**T4)]),
        ("driver", (535, 104, 12), [H100, MIG]),
        ("driver", (580, 65, 6), [H100, MIG]),
        ("driver", (580,), [H100, MIG]),
        ("driver", (581,), []),
    ],
)
def test_the_selector_matches_exactly_the_devices_that_reach_the_minimum(
    fact: str, version: tuple[int, ...], matching: list[dict[str, Any]]
) -> None:
    selector = minimum_selector(GPU_DRIVER, fact, version)
    assert selector is not None
    for raw in (H100, MIG, device(**T4)):
        assert (raw in matching) is compile_selector(selector).match(kind(raw)).matches


def test_a_driver_whose_devices_are_no_gpus_has_no_selector() -> None:
    assert minimum_selector("nic.example.com", "cuda", (12, 4)) is None
    assert minimum_selector(GPU_DRIVER, "unknown", (12, 4)) is None


@pytest.mark.parametrize(("amount", "matching"), [("10Gi", [True, True]), ("40Gi", [True, False])])
def test_a_minimum_of_memory_selects_the_devices_that_have_it(amount: str, matching: list[bool]) -> None:
    """It is a capacity, which Kubernetes compares as a quantity."""
    selector = memory_selector(GPU_DRIVER, amount)
    assert selector is not None
    devices = [H100, device(memory="15Gi")]

    assert matching == [
        compile_selector(selector).match(kind(known_device)).matches for known_device in devices
    ]
    assert memory_selector("nic.example.com", amount) is None
