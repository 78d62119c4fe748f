"""Objects of `resource.k8s.io/v1` as JSON."""

from __future__ import annotations

from typing import Any

GPU_DRIVER = "gpu.nvidia.com"
# As the driver publishes an H100; values of a test replace some.
H100: dict[str, Any] = {
    "type": {"string": "gpu"},
    "productName": {"string": "NVIDIA H100 80GB HBM3"},
    "brand": {"string": "Nvidia"},
    "architecture": {"string": "Hopper"},
    "cudaComputeCapability": {"version": "9.0.0"},
    "driverVersion": {"version": "580.65.6"},
    "cudaDriverVersion": {"version": "13.0.0"},
}
T4: dict[str, Any] = {
    "type": {"string": "gpu"},
    "productName": {"string": "Tesla T4"},
    "brand": {"string": "Tesla"},
    "architecture": {"string": "Turing"},
    "cudaComputeCapability": {"version": "7.5.0"},
    "driverVersion": {"version": "535.104.5"},
    "cudaDriverVersion": {"version": "12.2.0"},
}


def device(name: str = "gpu-0", /, **attributes: Any) -> dict[str, Any]:
    """Return an H100 with some other attributes, or amount of `memory`; None leaves an attribute out."""
    memory = attributes.pop("memory", "80Gi")
    given = {**H100, "uuid": {"string": f"GPU-{name}"}, **attributes}
    return {
        "name": name,
        "attributes": {key: value for key, value in given.items() if value is not None},
        "capacity": {"memory": {"value": memory}},
    }


def resource_slice(
    node: str | None = "node-1", devices: list[Any] | None = None, driver: str = GPU_DRIVER, **pool: Any
) -> dict[str, Any]:
    """Return the ResourceSlice of a node, the only one of its pool unless `pool` has other fields."""
    of_pool = {"name": node or "pool", "generation": 1, "resourceSliceCount": 1, **pool}
    spec = {"driver": driver, "pool": of_pool, "devices": [device()] if devices is None else devices}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}-{of_pool['generation']}"},
        "spec": spec | ({"nodeName": node} if node else {"allNodes": True}),
    }


def device_class(
    name: str = GPU_DRIVER, *expressions: str, resource: str | None = None, created: str | None = None
) -> dict[str, Any]:
    """Return a DeviceClass; by default, with the selector that the driver's chart installs."""
    chosen = expressions or (
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
    )
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}} for expression in chosen]}
    if resource is not None:
        spec["extendedResourceName"] = resource
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": spec,
    }


def exactly(
    name: str = "gpu", *expressions: str, device_class: str = GPU_DRIVER, **fields: Any
) -> dict[str, Any]:
    """Return a request for devices of a class that match expressions."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {"name": name, "exactly": {"deviceClassName": device_class, "selectors": selectors, **fields}}


def claim(*requests: dict[str, Any], allocated: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return a ResourceClaim; allocated: the devices that it has."""
    document: dict[str, Any] = {"kind": "ResourceClaim", "spec": {"devices": {"requests": list(requests)}}}
    if allocated is not None:
        document["status"] = {"allocation": {"devices": {"results": allocated}}}
    return document


def claim_template(*requests: dict[str, Any]) -> dict[str, Any]:
    """Return a ResourceClaimTemplate."""
    return {"kind": "ResourceClaimTemplate", "spec": {"spec": claim(*requests)["spec"]}}


def taint_rule(
    selector: Any, key: str = "broken", value: str = "", effect: str = "NoSchedule"
) -> dict[str, Any]:
    """Return a DeviceTaintRule; selector: the names that it selects devices by, None for no selector."""
    taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": key, "resourceVersion": "1"},
        "spec": {"taint": taint} | ({} if selector is None else {"deviceSelector": selector}),
    }
