"""Drivers that do not support the GPU: the verdict, the fix, and where the pods go instead."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.driver_support import DriverSupportCheck
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.builders import warning_texts
from tests.support.node_builders import (
    GPU,
    H100,
    T4,
    V100,
    Node,
    cuda_image,
    decided,
    gfd,
    gpu_pod,
    inventory,
    judged,
    node,
    shipped,
    targets,
)

R595: dict[str, Any] = {"driver": "595.71.05", "cuda": (13, 2)}
# Kubeflow and vLLM users write no more than this.
TRAIN = gpu_pod("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime")
PLAIN = gpu_pod("team/train:v1")


def check(node: NodeCapabilities) -> list[CheckResult]:
    """Return the results of the check."""
    return [*DriverSupportCheck().on_node(SharingPolicy(), GpuRequirements(), node)]


def upgraded(gpu: tuple[str, str], driver: str = "595.71.05", cuda: str = "13.2") -> dict[str, str]:
    """Return labels of a GPU whose driver is another by now."""
    major, minor = cuda.split(".")
    return gfd("13.0", gpu) | {
        "nvidia.com/cuda.driver-version.full": driver,
        "nvidia.com/cuda.runtime-version.major": major,
        "nvidia.com/cuda.runtime-version.minor": minor,
    }


def without_driver(labels: dict[str, str]) -> dict[str, str]:
    """Return labels of which none has the driver version."""
    return {key: value for key, value in labels.items() if "driver-version" not in key}


def test_a_v100_under_driver_595_is_incompatible_and_the_result_says_which_driver_supports_it() -> None:
    """And what to do."""
    (result,) = check(NodeCapabilities(product="Tesla-V100-SXM2-32GB", **R595))

    assert Level.INCOMPATIBLE is result.level
    assert (
        "driver branch 595 does not support the V100 (Volta): R580 is the last branch that does"
        == result.reason.en
    )
    assert "downgrade the node's driver to R580, or use a newer GPU" == result.remedy.en


@pytest.mark.parametrize(
    ("product", "driver", "ignored"),
    [
        ("Tesla-V100-SXM2-32GB", "580.126.09", False),
        ("Tesla-V100-SXM2-32GB", "590.48.01", True),
        ("Tesla-P100-PCIE-16GB", "590.48.01", True),
        ("Tesla-M60", "595.71.05", True),
        ("Tesla-M60", "570.124.06", False),
        ("Tesla-K80", "470.256.02", False),
        ("Tesla-K80", "535.129.03", True),
        ("Tesla-T4", "615.10", False),
        ("NVIDIA-H100-80GB-HBM3", "615.10", False),
        ("FutureCard-9000", "615.10", False),
    ],
)
def test_each_architecture_has_a_last_branch(product: str, driver: str, *, ignored: bool) -> None:
    """A model that is not in the table has none."""
    assert ignored is bool(check(NodeCapabilities(product=product, driver=driver)))


@pytest.mark.parametrize(
    ("product", "driver", "reason"),
    [
        (
            "NVIDIA-H100-80GB-HBM3",
            "470.256.02",
            "driver branch 470 does not support the H100 (Hopper): R520 is the first branch that does",
        ),
        (
            "NVIDIA-A100-SXM4-40GB",
            "418.226.00",
            "driver branch 418 does not support the A100 (Ampere): R450 is the first branch that does",
        ),
        (
            "NVIDIA-L40S",
            "515.105.01",
            "driver branch 515 does not support the L40S (Ada Lovelace): R520 is the first branch that does",
        ),
        (
            "NVIDIA-B200",
            "550.163.01",
            "driver branch 550 does not support the B200 (Blackwell): R570 is the first branch that does",
        ),
        (
            "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb",
            "515.105.01",
            "driver branch 515 does not support the H100 (Hopper): R520 is the first branch that does",
        ),
    ],
)
def test_a_driver_that_is_older_than_the_gpu_does_not_know_it(product: str, driver: str, reason: str) -> None:
    """And the result says which branch is the first that does."""
    (result,) = check(NodeCapabilities(product=product, driver=driver))

    assert (Level.INCOMPATIBLE, reason) == (result.level, result.reason.en)
    assert result.remedy.en.startswith("upgrade the node's driver to R")


@pytest.mark.parametrize(
    ("product", "driver", "reason"),
    [
        ("NVIDIA-B200", "565.77", "driver branch 565 may not support the B200 (Blackwell)"),
        ("NVIDIA-B300-SXM6-AC", "575.64", "driver branch 575 may not support the B300 (Blackwell)"),
        ("NVIDIA-H800", "530.30.02", "driver 530.30.02 may not support the H800: 530.41.03 is the next"),
        ("NVIDIA-H800", "520.61.05", "driver 520.61.05 may not support the H800: 525.105.17 is the next"),
        ("NVIDIA-H20", "545.29.06", "driver 545.29.06 may not support the H20: 550.54.14 is the next"),
        ("NVIDIA-H200", "550.54.15", "driver 550.54.15 may not support the H200: 550.90.07 is the next"),
    ],
)
def test_a_driver_that_has_code_for_the_chip_but_does_not_name_the_gpu_may_work(
    product: str, driver: str, reason: str
) -> None:
    """So it is a warning: what such a driver does with the GPU is unknown."""
    (result,) = check(NodeCapabilities(product=product, driver=driver))

    assert Level.UNSTABLE is result.level
    assert result.reason.en.startswith(reason)


@pytest.mark.parametrize(
    ("product", "driver"),
    [
        ("NVIDIA-H100-80GB-HBM3", "525.85.12"),
        ("NVIDIA-H100-PCIe", "520.61.05"),
        ("NVIDIA-H800", "530.41.03"),
        ("NVIDIA-H800", "525.147.05"),
        ("NVIDIA-H800", "535.54.03"),
        ("NVIDIA-H800", "530"),  # a label may have the branch alone
        ("NVIDIA-H20", "535.161.08"),
        ("NVIDIA-H20", "570.86.15"),
        ("NVIDIA-H200-NVL", "560.35.03"),
        ("NVIDIA-GB200", "570.158.01"),
        ("Tesla-T4", "384.81"),  # no source says which branch is the first
        ("Orin", "35.4.1"),  # its drivers have numbers of their own
        ("FutureCard-9000", "384.81"),
    ],
)
def test_a_driver_that_names_the_gpu_or_of_which_nothing_is_known_is_not_reported(
    product: str, driver: str
) -> None:
    """Also a later release of a branch, and all branches after the last one that began without the GPU."""
    assert not check(NodeCapabilities(product=product, driver=driver))


def test_a_pod_is_denied_where_the_driver_is_older_than_the_gpu_and_passes_once_it_is_upgraded() -> None:
    """To the branch that the fix names; the GPU's labels may be from before a downgrade, or by hand."""
    old = {"driver": "470.256.02", "cuda": "11.4"}
    decision = decided([node("h100-0", upgraded(H100, **old))], PLAIN)

    assert not decision.allowed
    assert "driver branch 470 does not support the H100 (Hopper)" in decision.denial.en
    assert "upgrade the node's driver to R520 or a later branch" in decision.denial.en
    assert decided([node("h100-0", upgraded(H100, "525.85.12", "12.0"))], PLAIN).allowed


def test_a_driver_that_may_not_support_the_gpu_denies_no_pod() -> None:
    """It warns."""
    decision = decided([node("h800", upgraded(("NVIDIA-H800", "9.0"), "530.30.02", "12.1"))], PLAIN)

    assert decision.allowed
    assert "530.41.03 is the next release that names it" in " ".join(warning_texts(decision))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"compute_capability": (7, 0)},
            "driver branch 595 does not support the GPU 7.0 (Volta): R580 is the last branch that does",
        ),
        ({"product": "Tesla-V100-SXM2-32GB", "driver": None, "cuda": None}, None),
        ({}, None),
    ],
)
def test_an_unknown_gpu_or_branch_says_nothing(facts: dict[str, Any], reason: str | None) -> None:
    """A compute capability is enough, and so is the CUDA version of a branch."""
    ens = [result.reason.en for result in check(NodeCapabilities(**{**R595, **facts}))]

    assert ([reason] if reason else []) == ens
    if reason:
        assert ens == [result.reason.en for result in check(NodeCapabilities(cuda=(13, 2), **facts))]


@pytest.mark.parametrize("document", [TRAIN, PLAIN])
def test_v100_after_a_driver_upgrade_the_pod_is_denied_and_passes_once_the_driver_is_downgraded(
    document: Any,
) -> None:
    """Whatever CUDA version the image has; the same pod passes on a node with a newer GPU, too."""
    broken = [node("v100-0", upgraded(V100))]
    decision = decided(broken, document)

    assert not decision.allowed
    assert "driver branch 595 does not support the V100 (Volta)" in decision.denial.en
    assert "downgrade the node's driver to R580, or use a newer GPU" in decision.denial.en
    assert decided([node("v100-0", upgraded(V100, "580.126.09", "13.0"))], document).allowed
    assert decided([*broken, node("t4-0", gfd("13.0", T4))], document).allowed


@pytest.mark.parametrize("labels", [upgraded(V100), without_driver(upgraded(V100))])
@pytest.mark.parametrize(
    "others",
    [
        [node("t4", upgraded(T4))],
        [node("t4", upgraded(T4)), node("v100-580", gfd("13.0", V100))],
        [node("t4", gfd("13.0", T4)), node("v100-580", without_driver(gfd("13.0", V100)))],
        [node("t4", gfd("13.0", T4)), node("plain")],
        [node("t4", gfd("13.0", T4)), node("v100", {"nvidia.com/gpu.product": V100[0]})],
    ],
)
def test_affinity_keeps_pods_from_the_node_and_admits_all_others(
    labels: dict[str, str], others: list[Node]
) -> None:
    """Also nodes without labels, and those whose driver has no label but its CUDA version."""
    cluster = [node("v100-595", labels), *others]
    decision = judged(shipped(), inventory(cluster), PLAIN)

    assert decision.allowed
    assert [other["metadata"]["name"] for other in others] == targets(cluster, PLAIN, decision)


def test_a_node_that_offers_no_gpu_since_the_upgrade_is_explained() -> None:
    """Its device plugin finds none. If another node is only away for a while, the pod waits for that."""
    gone = node("v100-0", upgraded(V100), **{GPU: "0"})
    (warning,) = warning_texts(judged(shipped(), inventory([gone]), PLAIN))
    away = node("v100-1", gfd("13.0", V100), **{GPU: "0"})

    assert warning.endswith(
        "no ready node offers nvidia.com/gpu (1 not ready); driver branch 595 does not support the V100 "
        "(Volta): R580 is the last branch that does [rule compatibility-pgpu]"
    )
    assert "stays Pending" in warning_texts(judged(shipped(), inventory([gone, away]), PLAIN))[0]


def test_a_node_that_offers_no_gpu_because_the_driver_is_older_than_it_is_explained() -> None:
    """Where the GPU is known by an instance type, or by labels of before."""
    gone = node("h100-0", upgraded(H100, "470.256.02", "11.4"), **{GPU: "0"})
    (warning,) = warning_texts(judged(shipped(), inventory([gone]), PLAIN))

    assert (
        "no ready node offers nvidia.com/gpu (1 not ready); driver branch 470 does not support the H100"
        in warning
    )


def test_on_an_old_gpu_an_image_that_needs_a_newer_driver_has_no_way_out_but_another_gpu() -> None:
    """Both reasons are in the message."""
    decision = decided([node("v100-0", upgraded(V100))], gpu_pod(cuda_image("13.3")))

    assert "R580 is the last branch" in decision.denial.en
    assert "CUDA 13.2, below 13.3" in decision.denial.en
