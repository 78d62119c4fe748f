"""Configurations of devices, as NVIDIA's driver decodes and validates them."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.devices.device_configs import DeviceConfig, Effect, gate_of, mistakes, read_configs
from rules.text.paths import field_path

VERSION = "resource.nvidia.com/v1beta1"
DRIVER = "gpu.nvidia.com"
DOMAIN = "compute-domain.nvidia.com"
INVALID, UNDECODABLE, DEPENDS, IGNORED = Effect.INVALID, Effect.UNDECODABLE, Effect.DEPENDS, Effect.IGNORED


def config(parameters: dict[str, Any], driver: str = DRIVER) -> DeviceConfig:
    """Return a configuration; by default a GpuConfig."""
    given = {"apiVersion": VERSION, "kind": "GpuConfig", **parameters}
    return DeviceConfig(0, (), driver, {name: value for name, value in given.items() if value is not None})


def found(parameters: dict[str, Any], driver: str = DRIVER) -> list[tuple[Effect, str, str, str]]:
    """Return effect, path, reason and fix of each mistake."""
    return [
        (mistake.effect, field_path(mistake.path), mistake.reason.en, mistake.fix.en)
        for mistake in mistakes(config(parameters, driver))
    ]


def mps(**settings: Any) -> dict[str, Any]:
    """Return a configuration of MPS."""
    return {"sharing": {"strategy": "MPS", "mpsConfig": settings}}


def slices(**settings: Any) -> dict[str, Any]:
    """Return a configuration of time-slicing."""
    return {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": settings}}


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"sharing": None},
        {"sharing": {"strategy": "TimeSlicing"}},
        *(slices(interval=interval) for interval in ("Default", "Short", "Medium", "Long")),
        {"sharing": {"strategy": "MPS"}},
        mps(defaultActiveThreadPercentage=0),
        mps(defaultActiveThreadPercentage=100, defaultPinnedDeviceMemoryLimit="10Gi"),
        mps(defaultActiveThreadPercentage=50.0, defaultPinnedDeviceMemoryLimit=1048576),
        mps(defaultPerDevicePinnedMemoryLimit={"0": "1Gi", "GPU-4cf8db2d": "1Mi", "MIG-1": "2G"}),
        {"kind": "MigDeviceConfig", "sharing": {"strategy": "TimeSlicing"}},
        {"kind": "MigDeviceConfig", **mps(defaultActiveThreadPercentage=50)},
        {"kind": "VfioDeviceConfig", "iommu": {"backendPolicy": "LegacyOnly", "enableAPIDevice": True}},
    ],
)
def test_a_configuration_as_in_the_examples_of_the_driver_has_no_mistake(parameters: dict[str, Any]) -> None:
    """Also without a part that has a default."""
    assert [] == found(parameters)


@pytest.mark.parametrize("kind", ["ComputeDomainChannelConfig", "ComputeDomainDaemonConfig"])
def test_a_configuration_of_a_compute_domain_names_it(kind: str) -> None:
    """An empty name is missing."""
    assert [] == found({"kind": kind, "domainID": "9b2a"}, DOMAIN)
    for domain in ("", None):
        assert [(INVALID, "domainID", "it is missing, expected a text", "")] == found(
            {"kind": kind, "domainID": domain}, DOMAIN
        )


@pytest.mark.parametrize(
    ("parameters", "effect", "path", "reason", "fix"),
    [
        (
            {"sharing": {"strategy": "TimeSlice"}},
            INVALID,
            "sharing.strategy",
            "found TimeSlice, expected TimeSlicing or MPS",
            "write TimeSlicing",
        ),
        (
            {"sharing": {"strategy": "mps"}},
            INVALID,
            "sharing.strategy",
            "found mps, expected TimeSlicing or MPS",
            "write MPS",
        ),
        (
            {"sharing": {}},
            INVALID,
            "sharing.strategy",
            "it is missing, expected TimeSlicing or MPS",
            "",
        ),
        (
            slices(interval="Longer"),
            INVALID,
            "sharing.timeSlicingConfig.interval",
            "found Longer, expected Default, Short, Medium or Long",
            "write Long",
        ),
        (
            slices(),
            INVALID,
            "sharing.timeSlicingConfig.interval",
            "it is missing, expected Default, Short, Medium or Long",
            "",
        ),
        (
            slices(interval=2),
            UNDECODABLE,
            "sharing.timeSlicingConfig.interval",
            "found 2, expected a text",
            "",
        ),
        (
            mps(defaultActiveThreadPercentage=101),
            INVALID,
            "sharing.mpsConfig.defaultActiveThreadPercentage",
            "found 101, expected 0 to 100",
            "",
        ),
        (
            mps(defaultActiveThreadPercentage=-1),
            INVALID,
            "sharing.mpsConfig.defaultActiveThreadPercentage",
            "found -1, expected 0 to 100",
            "",
        ),
        (
            mps(defaultActiveThreadPercentage="50"),
            UNDECODABLE,
            "sharing.mpsConfig.defaultActiveThreadPercentage",
            "found 50, expected a whole number",
            "",
        ),
        (
            mps(defaultPinnedDeviceMemoryLimit="10GB"),
            UNDECODABLE,
            "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
            "found 10GB, expected a quantity, such as 10Gi",
            "",
        ),
        (
            mps(defaultPinnedDeviceMemoryLimit="1M"),
            INVALID,
            "sharing.mpsConfig.defaultPinnedDeviceMemoryLimit",
            "found 1M, expected 1Mi or more",
            "",
        ),
        (
            mps(defaultPerDevicePinnedMemoryLimit={"first": "1Gi"}),
            INVALID,
            "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit",
            "found first, expected the index of a device, such as 0, or its UUID",
            "",
        ),
        (
            mps(defaultPerDevicePinnedMemoryLimit={"0": "1Gb"}),
            UNDECODABLE,
            "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.0",
            "found 1Gb, expected a quantity, such as 10Gi",
            "",
        ),
        (
            mps(defaultPerDevicePinnedMemoryLimit="1Gi"),
            UNDECODABLE,
            "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit",
            "found 1Gi, expected an object",
            "",
        ),
        (
            {"sharing": {"strategy": "MPS", "timeSlicingConfig": {"interval": "Long"}}},
            INVALID,
            "sharing.timeSlicingConfig",
            "it is not for strategy MPS",
            "remove timeSlicingConfig, or write strategy: TimeSlicing",
        ),
        (
            {"kind": "MigDeviceConfig", "sharing": {"strategy": "TimeSlicing", "mpsConfig": {}}},
            IGNORED,
            "sharing.mpsConfig",
            "it is not for strategy TimeSlicing",
            "remove mpsConfig, or write strategy: MPS",
        ),
        (
            {"kind": "MigDeviceConfig", **slices(interval="Long")},
            DEPENDS,
            "sharing.timeSlicingConfig",
            "MigDeviceConfig has no field timeSlicingConfig",
            "remove it",
        ),
        (
            {"sharing": {"strategy": "MPS", "mpsconfig": {}}},
            DEPENDS,
            "sharing.mpsconfig",
            "GpuConfig has no field mpsconfig",
            "write mpsConfig",
        ),
        ({"sharing": []}, UNDECODABLE, "sharing", "found [], expected an object", ""),
        (
            {"kind": "GPUConfig"},
            UNDECODABLE,
            "kind",
            "found GPUConfig, expected GpuConfig, MigDeviceConfig or VfioDeviceConfig",
            "write GpuConfig",
        ),
        (
            {"kind": "PartitionSettings"},
            DEPENDS,
            "kind",
            "found PartitionSettings, expected GpuConfig, MigDeviceConfig or VfioDeviceConfig",
            "",
        ),
        (
            {"kind": "ComputeDomainChannelConfig", "domainID": "9b2a"},
            INVALID,
            "",
            "ComputeDomainChannelConfig is not for driver gpu.nvidia.com",
            "write driver: compute-domain.nvidia.com",
        ),
        (
            {"apiVersion": "gpu.nvidia.com/v1alpha1"},
            UNDECODABLE,
            "apiVersion",
            "found gpu.nvidia.com/v1alpha1, expected resource.nvidia.com/v1beta1",
            "write resource.nvidia.com/v1beta1",
        ),
        (
            {"apiVersion": "resource.nvidia.com/v1"},
            DEPENDS,
            "apiVersion",
            "found resource.nvidia.com/v1, expected resource.nvidia.com/v1beta1",
            "write resource.nvidia.com/v1beta1",
        ),
    ],
)
def test_a_mistake_is_told_at_its_field_with_what_is_expected(
    parameters: dict[str, Any], effect: Effect, path: str, reason: str, fix: str
) -> None:
    """What all releases refuse is certain; a newer release may know another field, kind or version."""
    assert [(effect, path, reason, fix)] == found(parameters)


def test_what_the_strategy_does_not_use_is_not_validated() -> None:
    """One mistake is one finding."""
    parameters = {"sharing": {"strategy": "TimeSlicing", "mpsConfig": {"defaultActiveThreadPercentage": 900}}}

    assert ["sharing.mpsConfig"] == [path for _, path, _, _ in found(parameters)]


def test_a_configuration_for_a_driver_that_does_not_exist_has_no_effect() -> None:
    """Each driver skips those of others."""
    assert [
        (IGNORED, "", "GpuConfig is not for driver nvidia.com", "write driver: gpu.nvidia.com"),
    ] == found({}, "nvidia.com")


def test_only_some_of_many_mistakes_are_reported_those_that_stop_the_pod_first() -> None:
    """Each takes time to compare with known names."""
    wrong = {**dict.fromkeys(map(str, range(2000)), 1), "sharing": {"strategy": "Sharing"}}
    many = found(
        {"sharing": {"strategy": "MPS", **{f"a{number}": 1 for number in range(9)}, "mpsConfig": []}}
    )

    assert [INVALID, DEPENDS, DEPENDS, DEPENDS] == [effect for effect, *_ in found(wrong)]
    assert [UNDECODABLE, DEPENDS, DEPENDS, DEPENDS] == [effect for effect, *_ in many]


def test_a_strategy_needs_a_feature_gate_of_the_driver() -> None:
    """Both are off by default."""
    assert ("TimeSlicingSettings", "MPSSupport", "") == (
        gate_of(config(slices(interval="Long"))),
        gate_of(config(mps())),
        gate_of(config({})),
    )


def test_configurations_for_other_drivers_are_not_read() -> None:
    """Of these, nothing is known; what is malformed is none."""
    own = {"opaque": {"driver": DRIVER, "parameters": {"apiVersion": VERSION, "kind": "GpuConfig"}}}
    other = {"opaque": {"driver": "gpu.example.com", "parameters": {"apiVersion": "example.com/v1"}}}

    assert [(1, ("gpu",))] == [
        (config.position, config.requests)
        for config in read_configs([other, {**own, "requests": ["gpu", 1]}])
    ]
    assert () == read_configs(None) == read_configs({}) == read_configs(["", {"opaque": []}, None])
