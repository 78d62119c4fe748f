"""The CEL selectors for devices whose driver or GPU has a minimum version, or a minimum of memory."""

from __future__ import annotations

from collections.abc import Sequence

from rules.dra.devices import gpu_drivers


def minimum_selector(driver: str, fact: str, version: Sequence[int]) -> str | None:
    """Return the selector; None if devices of the driver do not report the fact.

    driver: of devices, such as `gpu.nvidia.com`. fact: `cuda`, `driver` or `computeCapability`. version: its
    first three numbers count, and missing ones are 0; (535, 104, 5) is the driver 535.104.05.
    """
    attribute = gpu_drivers().get(driver, {}).get(fact)
    if attribute is None:
        return None
    text = ".".join(map(str, (*version, 0, 0)[:3]))
    return f'device.attributes["{driver}"].{attribute}.compareTo(semver("{text}")) >= 0'


def memory_selector(driver: str, amount: str) -> str | None:
    """Return the selector for devices with a minimum of memory, a quantity; None as above."""
    capacity = gpu_drivers().get(driver, {}).get("memory")
    if capacity is None:
        return None
    return f'device.capacity["{driver}"].{capacity}.compareTo(quantity("{amount}")) >= 0'
