"""Devices that do not work together in one container."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.exclusive_devices import ExclusiveDevicesCheck
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.text.paths import field_path
from tests.support.check_builders import checked

WARN = SharingPolicy(checks=Checks())
DENY = SharingPolicy(checks=Checks(exclusive_devices=Level.INCOMPATIBLE))
OFF = SharingPolicy(checks=Checks(exclusive_devices=Level.COMPATIBLE))
PROFILES = {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": 1}
VENDORS = {"nvidia.com/gpu": 1, "amd.com/gpu": 1}


def check(limits: dict[str, Any], policy: SharingPolicy = WARN, **fields: Any) -> list[CheckResult]:
    """Return the findings on a container with these limits."""
    return checked(ExclusiveDevicesCheck(), policy, limits=limits, **fields)


def test_two_mig_profiles_are_found() -> None:
    """At the second one. The device plugins overwrite each other's NVIDIA_VISIBLE_DEVICES."""
    (result,) = check(PROFILES)

    assert "spec.containers[0].resources.limits[nvidia.com/mig-2g.20gb]" == field_path(result.path)
    assert (
        "nvidia.com/mig-1g.10gb and nvidia.com/mig-2g.20gb: "
        "the container may see only one of the MIG profiles"
    ) == result.reason.en
    assert "request one profile in each container" == result.remedy.en
    assert [] == check({"nvidia.com/mig-2g.20gb": 2})


def test_devices_of_two_vendors_are_found() -> None:
    """At the second one."""
    (result,) = check(VENDORS)

    assert "spec.containers[0].resources.limits[amd.com/gpu]" == field_path(result.path)
    assert (
        "nvidia.com/gpu (NVIDIA) and amd.com/gpu (AMD): only a node with both can run the pod"
    ) == result.reason.en
    assert "request devices of one vendor" == result.remedy.en
    assert [] == check({"nvidia.com/gpu": 1})


@pytest.mark.parametrize("limits", [PROFILES, VENDORS])
def test_the_rule_decides_whether_it_is_denied(limits: dict[str, Any]) -> None:
    """Neither is certain to fail: by default it is a warning."""
    assert [[Level.UNSTABLE], [Level.INCOMPATIBLE], []] == [
        [result.level for result in check(limits, policy)] for policy in (WARN, DENY, OFF)
    ]
    assert {"checks.exclusiveDevices"} == {result.setting for result in check(limits)}


@pytest.mark.parametrize(
    "limits",
    [
        {"nvidia.com/gpu": 8, "rdma/hca_shared_devices_a": 1, "vpc.amazonaws.com/efa": 4},
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 30},
        {"nvidia.com/gpu": 1, "amd.com/gpu": 0},
        {"nvidia.com/gpu": 1, "amd.com/gpu": "malformed"},
        {"nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-2g.20gb": 0},
        {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 8},
        {"nvidia.com/gpu": 1, "example.com/gpu": 1},
        {"nvidia.com/gpu": 1, "fpga.intel.com/af-x": 1},
        {"cpu": 1, "memory": "1Gi"},
    ],
)
def test_other_devices_go_together(limits: dict[str, Any]) -> None:
    """Networks, shares of a GPU, an FPGA, what is not requested, and what is unknown."""
    assert [] == check(limits)


def test_a_request_counts_as_a_limit_does() -> None:
    """Its path is that of the request."""
    requests = {"nvidia.com/gpu": 1, "amd.com/gpu": 1}
    (result,) = check({}, resources={"requests": requests})

    assert "spec.containers[0].resources.requests[amd.com/gpu]" == field_path(result.path)


@pytest.mark.parametrize(
    ("image", "built"),
    [
        ("vllm/vllm-openai:v0.9.0-rocm", "AMD (`rocm`)"),
        ("rocm/pytorch:latest", "AMD (`rocm`)"),
        ("ascendai/cann:8.0-910b-ubuntu22.04", "Ascend (`cann`)"),
        ("quay.io/ascend/vllm-ascend:v0.18.0", "Ascend (`ascend`)"),
        (
            "vault.habana.ai/gaudi-docker/1.18.0/ubuntu22.04/habanalabs/pytorch-installer-2.4.0:latest",
            "Intel (`gaudi`)",
        ),
        ("public.ecr.aws/neuron/pytorch-inference-neuronx:2.9.0-neuronx-py312", "AWS Neuron (`neuronx`)"),
        ("openvino/ubuntu22_runtime:latest", "Intel (`intel`)"),
        ("ghcr.io/huggingface/text-embeddings-inference:cpu-1.8", "the CPU (`cpu`)"),
        ("kserve/huggingfaceserver:v0.15.0", "the CPU (`cpu`)"),
    ],
)
def test_an_image_for_another_accelerator_is_a_warning_that_names_both(image: str, built: str) -> None:
    """It may run, without the GPU."""
    (result,) = check({"nvidia.com/gpu": 1}, image=image)

    assert Level.UNSTABLE == result.level
    assert (
        f"the image is built for {built}, the container requests nvidia.com/gpu (NVIDIA)"
    ) == result.reason.en
    assert "use an image for NVIDIA, or remove nvidia.com/gpu" == result.remedy.en


@pytest.mark.parametrize("image", ["nvidia/cuda:12.4.1-base-ubuntu22.04", "vllm/vllm-openai:v0.9.0"])
def test_an_image_for_cuda_with_another_accelerator_is_a_warning_that_names_both(image: str) -> None:
    """A program on CUDA does not run on it; another one in the image may."""
    (result,) = check({"amd.com/gpu": 1}, image=image)

    assert Level.UNSTABLE == result.level
    assert "spec.containers[0].resources.limits[amd.com/gpu]" == field_path(result.path)
    assert (
        "the image is built for NVIDIA (`cuda`), the container requests amd.com/gpu (AMD)"
    ) == result.reason.en
    assert "use an image for AMD, or remove amd.com/gpu" == result.remedy.en


@pytest.mark.parametrize("image", ["nvidia/cuda:12.4.1-base-ubuntu22.04", "vllm/vllm-openai:v0.9.0-rocm"])
def test_an_image_for_one_of_two_requested_devices_is_not_reported(image: str) -> None:
    """That only a node with both can run the pod is."""
    (result,) = check(VENDORS, image=image)

    assert "only a node with both can run the pod" in result.reason.en


@pytest.mark.parametrize(
    ("image", "limits"),
    [
        ("vllm/vllm-openai:v0.9.0", {"nvidia.com/gpu": 1}),
        ("ubuntu:22.04", {"nvidia.com/gpu": 1}),
        ("vllm/vllm-openai:v0.9.0-rocm", {"amd.com/gpu": 1}),
        ("kserve/huggingfaceserver:v0.15.0", {"nvidia.com/gpu": 0}),
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", {"amd.com/gpu": 0}),
        ("ollama/ollama:0.9.0", {"amd.com/gpu": 1}),
        ("team/vllm-fork:latest", {"amd.com/gpu": 1}),
    ],
)
def test_an_image_for_the_requested_device_has_no_result(image: str, limits: dict[str, Any]) -> None:
    """Nor has one that is for none, or a request of none."""
    assert [] == check(limits, image=image)
