"""Extended resources that stand for accelerators, and the devices that a container requests."""

from __future__ import annotations

from typing import Any

import pytest

from rules.kube.pod import Pod
from rules.nodes.gpu_resources import gpu_resource, is_network_device, requested_gpus


def requested(limits: dict[str, Any], requests: dict[str, Any] | None = None) -> tuple[str, int] | None:
    """Return the resource and the number of devices that a container requests."""
    raw = {"name": "main", "resources": {"limits": limits, "requests": requests or {}}}
    pod = {"spec": {"containers": [raw]}}
    gpus = requested_gpus(Pod(pod, pod).containers[0])
    return gpus and (gpus.name, gpus.devices)


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({"nvidia.com/gpu": 2}, ("nvidia.com/gpu", 2)),
        ({"nvidia.com/gpu": "2", "cpu": 4, "rdma/hca": 1}, ("nvidia.com/gpu", 2)),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 4000}, ("nvidia.com/gpu", 2)),
        ({"nvidia.com/gpu.A100": 2}, ("nvidia.com/gpu.A100", 2)),
        ({"nvidia.com/mig-1g.5gb": 2}, ("nvidia.com/mig-1g.5gb", 2)),
        ({"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 8}, ("tencent.com/vcuda-core", 2)),
        ({"tencent.com/vcuda-core": 30}, ("tencent.com/vcuda-core", 1)),
        ({"volcano.sh/vgpu-number": 4, "volcano.sh/vgpu-memory": 1}, ("volcano.sh/vgpu-number", 4)),
        ({"nvidia.com/vgpu-number": 2, "nvidia.com/vgpu-cores": 10}, ("nvidia.com/vgpu-number", 2)),
        ({"nvidia.com/rtxa6000": 2, "rdma/hca": 1}, ("nvidia.com/rtxa6000", 2)),
        ({"amd.com/gpu": 8}, ("amd.com/gpu", 8)),
        ({"amd.com/cpx_nps4": 8}, ("amd.com/cpx_nps4", 8)),
        ({"huawei.com/Ascend910": 8}, ("huawei.com/Ascend910", 8)),
        ({"huawei.com/ascend-1980": 16}, ("huawei.com/ascend-1980", 16)),
        ({"birentech.com/1-4-gpu": 2}, ("birentech.com/1-4-gpu", 2)),
        ({"vastaitech.com/va": 2}, ("vastaitech.com/va", 2)),
        ({"aliyun.com/gpu-mem": 8}, None),
        ({"nvidia.com/gpu": 0}, None),
        ({"nvidia.com/gpu": "many"}, None),
        ({"nvidia.com/gpu": 1, "amd.com/gpu": 1}, None),
        ({"cpu": 2, "memory": "1Gi", "rdma/hca": 1, "example.com/gpu": 4}, None),
        ({}, None),
    ],
)
def test_a_container_requests_devices(limits: dict[str, Any], count: tuple[str, int] | None) -> None:
    """A share is of one; of two resources it is unknown whether they are the same devices."""
    assert count == requested(limits)


def test_a_resource_with_limit_and_request_is_counted_once() -> None:
    """The limit, if both differ: the API server denies the request."""
    assert ("nvidia.com/gpu", 2) == requested({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 2})
    assert ("nvidia.com/gpu", 1) == requested({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2})
    assert ("nvidia.com/gpu", 3) == requested({}, {"nvidia.com/gpu": 3})


@pytest.mark.parametrize(
    ("name", "vendor"),
    [
        ("nvidia.com/gpucores", "NVIDIA"),
        ("nvidia.com/mps-core", "NVIDIA"),
        ("tke.cloud.tencent.com/qgpu-memory", "NVIDIA"),
        ("amd.com/gpumem", "AMD"),
        ("amd.com/spx_nps1", "AMD"),
        ("gpu.intel.com/xe", "Intel"),
        ("gpu.intel.com/dxg", "Intel"),
        ("huawei.com/Ascend310P-memory", "Ascend"),
        ("huawei.com/npu", "Ascend"),
        ("iluvatar.com/gpu", "Iluvatar"),
        ("baidu.com/xpu", "Kunlunxin"),
        ("gpu.intel.com/tiles", "Intel"),
        ("birentech.com/gpu", "Biren"),
        ("vastaitech.com/va", "Vastai"),
        ("huawei.com/ascend-310", "Ascend"),
        ("koordinator.sh/gpu-core", None),
        ("nvidia.com/hostdev", None),
        ("gpu.intel.com/i915_monitoring", None),
        ("fpga.intel.com/af-x", None),
        ("rdma/hca_shared_devices_a", None),
        ("amd.com/nic", None),
        ("cpu", None),
    ],
)
def test_a_resource_has_a_vendor(name: str, vendor: str | None) -> None:
    """FPGAs, NICs and RDMA devices are no accelerators."""
    resource = gpu_resource(name)

    assert vendor == (resource and resource.vendor)


def test_a_mig_profile_is_slices() -> None:
    """A GPU is none."""
    resources = [gpu_resource(name) for name in ("nvidia.com/mig-1g.5gb", "nvidia.com/gpu")]

    assert [True, False] == [resource is not None and resource.slices for resource in resources]


@pytest.mark.parametrize(
    ("name", "network"),
    [
        ("rdma/rdma_shared_device_a", True),
        ("nvidia.com/hostdev", True),
        ("nvidia.com/mlnxnics", True),
        ("nvidia.com/sriovlegacy", True),
        ("vpc.amazonaws.com/efa", True),
        ("aliyun/erdma", True),
        ("vke.volcengine.com/rdma", True),
        ("nvidia.com/gpu", False),
        ("nvidia.com/nvswitch", False),
        ("example.com/gpu", False),
    ],
)
def test_network_devices_are_no_accelerators(name: str, network: bool) -> None:
    """Nothing of them is checked, and nothing is said of that."""
    assert network is is_network_device(name)
    assert not (network and gpu_resource(name))
