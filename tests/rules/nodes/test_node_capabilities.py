"""Node capabilities, read from labels."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.label_families import LabelFamily, LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader

# As GPU Feature Discovery writes them, including deprecated names.
A100 = {
    "nvidia.com/cuda.driver-version.full": "535.104.05",
    "nvidia.com/cuda.driver-version.major": "535",
    "nvidia.com/cuda.driver-version.minor": "104",
    "nvidia.com/cuda.driver-version.revision": "05",
    "nvidia.com/cuda.driver.major": "535",
    "nvidia.com/cuda.driver.minor": "104",
    "nvidia.com/cuda.driver.rev": "05",
    "nvidia.com/cuda.runtime-version.full": "12.2",
    "nvidia.com/cuda.runtime-version.major": "12",
    "nvidia.com/cuda.runtime-version.minor": "2",
    "nvidia.com/cuda.runtime.major": "12",
    "nvidia.com/cuda.runtime.minor": "2",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.strategy": "single",
    "nvidia-device-enable": "pgpu",
}


def capabilities(labels: dict[Any, Any], names: LabelNames | None = None) -> NodeCapabilities:
    """Return the capabilities of a node with these labels."""
    return NodeReader("one", labels).capabilities(names or LabelNames())


def problems(labels: dict[Any, Any]) -> list[tuple[str, str]]:
    """Return the invalid keys and values."""
    reader = NodeReader("one", labels)
    reader.capabilities(LabelNames())
    return [(problem.key, problem.value) for problem in reader.problems]


def test_all_capabilities_are_read_from_gpu_feature_discovery() -> None:
    """The driver's version keeps its leading zeros; "runtime" is the driver's CUDA version."""
    assert capabilities(A100) == NodeCapabilities(
        cuda=(12, 2),
        driver="535.104.05",
        compute_capability=(8, 0),
        product="NVIDIA-A100-SXM4-80GB",
        memory_mib=81920,
        mig_strategy="single",
        sharing_strategy="none",
        device_mode="pgpu",
    )
    assert problems(A100) == []


def test_a_node_without_labels_has_unknown_capabilities() -> None:
    """A missing label is not a problem."""
    assert capabilities({}) == NodeCapabilities()
    assert problems({}) == []


@pytest.mark.parametrize("family", LabelNames().cuda)
def test_every_family_reports_the_cuda_version(family: LabelFamily) -> None:
    """In parts or as a whole."""
    parts = ["12.4"] if len(family.keys) == 1 else ["12", "4"]

    assert capabilities(dict(zip(family.keys, parts, strict=True))).cuda == (12, 4)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"nvidia.com/cuda.driver-version.full": "550.54.15"}, "550.54.15"),
        (
            {
                "nvidia.com/cuda.driver.major": "470",
                "nvidia.com/cuda.driver.minor": "82",
                "nvidia.com/cuda.driver.rev": "01",
            },
            "470.82.01",
        ),
        (
            {
                "nvidia.com/cuda.driver.major": "396",
                "nvidia.com/cuda.driver.minor": "26",
                "nvidia.com/cuda.driver.rev": "",
            },
            "396.26",
        ),
        ({"nvidia.com/cuda.driver-version.full": "r550"}, None),
    ],
)
def test_the_driver_version_is_formatted_like_nvidia_smi(
    labels: dict[str, str], expected: str | None
) -> None:
    """A revision may be empty."""
    assert capabilities(labels).driver == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}, True),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-INVALID"}, True),
        ({"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-3g.20gb.count": "2"}, True),
        ({"gpugate.dev/mig.gpus": "1"}, True),
        ({"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, False),
        ({"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig.capable": "true"}, False),
    ],
)
def test_mig_devices_are_detected_by_their_labels_not_by_the_strategy(
    labels: dict[str, str], expected: bool
) -> None:
    """GPU Feature Discovery sets the strategy label also if no GPU is partitioned."""
    assert expected is capabilities(labels).mig_devices


def test_label_names_are_configurable() -> None:
    """Another publisher's labels need no code."""
    names = LabelNames(cuda=(LabelFamily(("example.com/cuda",)),), product=("example.com/model",))

    assert capabilities({"example.com/cuda": "12.8", "example.com/model": "X1"}, names) == NodeCapabilities(
        cuda=(12, 8), product="X1"
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"cuda-major-version": "twelve", "cuda-minor-version": "4"}, [("cuda-major-version", "twelve")]),
        ({"cuda-major-version": "12", "cuda-minor-version": "x"}, [("cuda-minor-version", "x")]),
        ({"cuda-major-version": "12"}, [("cuda-minor-version", "")]),
        (
            {"cuda-major-version": "6129484611666145821", "cuda-minor-version": "4"},
            [("cuda-major-version", "6129484611666145821")],
        ),
        (
            {"nvidia.com/cuda.driver-version.full": "1251585.24"},
            [("nvidia.com/cuda.driver-version.full", "1251585.24")],
        ),
        ({"nvidia.com/cuda.runtime-version.full": "12"}, [("nvidia.com/cuda.runtime-version.full", "12")]),
        ({"nvidia.com/gpu.memory": "80Gi"}, [("nvidia.com/gpu.memory", "80Gi")]),
        (
            {"nvidia.com/gpu.memory": "2332765218590174476"},
            [("nvidia.com/gpu.memory", "2332765218590174476")],
        ),
        (
            {"nvidia.com/gpu.product": "1251585245112801741"},
            [("nvidia.com/gpu.product", "1251585245112801741")],
        ),
        (
            {"nvidia.com/mig.strategy": "4878901487984245531"},
            [("nvidia.com/mig.strategy", "4878901487984245531")],
        ),
        ({"nvidia-device-enable": "enable"}, [("nvidia-device-enable", "enable")]),
        ({"cuda-major-version": 12}, [("cuda-major-version", "12")]),
        ({"nvidia.com/gpu.product": "NVIDIA A100"}, [("nvidia.com/gpu.product", "NVIDIA A100")]),
        ({7: "seven"}, [("7", "seven")]),
        ({"//offer": "x"}, [("//offer", "x")]),
        ({"nvidia.com/gpu.product": ""}, []),
    ],
)
def test_an_invalid_label_is_unknown_and_reported(
    labels: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """A typing error on one node is a line in a report, not a crash."""
    assert capabilities(labels) == NodeCapabilities()
    assert problems(labels) == expected


def test_a_later_family_does_not_replace_an_invalid_one() -> None:
    """Affinity cannot distinguish an invalid label from a valid one, so capabilities must not either."""
    assert capabilities({**A100, "cuda-major-version": "twelve"}).cuda is None
