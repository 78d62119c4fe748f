"""Builders of clusters with GPUs by Dynamic Resource Allocation, as NVIDIA's driver reports them."""

from __future__ import annotations

from typing import Any

DRIVER = "gpu.nvidia.com"
T4_NAME, A100_NAME, H100_NAME = "Tesla T4", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
CAPABILITIES = {T4_NAME: "7.5.0", A100_NAME: "8.0.0", H100_NAME: "9.0.0"}
DRIVERS = {"12.2": "535.104.5", "12.4": "550.54.15", "12.8": "570.124.6", "13.0": "580.65.6"}

Object = dict[str, Any]


def gpu_device(
    name: str, product: str = H100_NAME, cuda: str = "13.0", **attributes: dict[str, Any]
) -> Object:
    """Return a whole GPU as a device; attributes: others than the usual ones."""
    common_attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"GPU-{name}"},
        "productName": {"string": product},
        "cudaComputeCapability": {"version": CAPABILITIES[product]},
        "cudaDriverVersion": {"version": f"{cuda}.0"},
        "driverVersion": {"version": DRIVERS[cuda]},
    }
    return {
        "name": name,
        "attributes": common_attributes | attributes,
        "capacity": {"memory": {"value": "80Gi"}},
    }


def resource_slice(node: str, *devices: Object, driver: str = DRIVER, slices: int = 1) -> Object:
    """Return the ResourceSlice of a node with these devices; slices: how many its pool has."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}", "resourceVersion": "1"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": slices},
            "devices": list(devices),
        },
    }


def gpus_of(node: str, product: str = H100_NAME, cuda: str = "13.0", number: int = 8) -> Object:
    """Return the ResourceSlice of a node with equal GPUs."""
    return resource_slice(node, *[gpu_device(f"gpu-{at}", product, cuda) for at in range(number)])


def device_class(
    name: str = DRIVER,
    expression: str = f'device.driver == "{DRIVER}"',
    resource: str | None = "nvidia.com/gpu",
) -> Object:
    """Return a DeviceClass; resource: its extended resource."""
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "resourceVersion": "1"},
        "spec": spec | ({"extendedResourceName": resource} if resource else {}),
    }


def claim_template(
    name: str, *expressions: str, of_class: str = DRIVER, namespace: str = "team", **exactly: Any
) -> Object:
    """Return a ResourceClaimTemplate with one request for devices that these expressions select."""
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    request = {"deviceClassName": of_class, "selectors": selectors, **exactly}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": "1"},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}},
    }


def bare_node(name: str, **labels: str) -> Object:
    """Return a node without a device plugin; labels: its labels besides those of every node."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"allocatable": {"cpu": "96"}},
    }
