"""Labels of cloud providers, and the GPUs that they tell."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rules.cuda.tables import BUILT_IN, Facts, Status, built_in_tables, capability_of, gpu_model, read_table
from rules.nodes.cloud_labels import (
    cloud_capabilities,
    counted_resources,
    gpu_only_labels,
    has_no_gpu,
    kind_labels,
    product_of_label,
)
from rules.nodes.node_capabilities import NodeCapabilities

TABLE: Any = read_table("cloud_gpus")
AWS_INSTANCES: Any = read_table("aws_instances")
ROWS = [*AWS_INSTANCES, *(row for rows in TABLE["values"].values() for row in rows)]
TYPE = "node.kubernetes.io/instance-type"
AWS_GPU = "karpenter.k8s.aws/instance-gpu-name"
AWS_FAMILY = "karpenter.k8s.aws/instance-family"


@pytest.mark.parametrize(
    ("key", "value", "product"),
    [
        (AWS_GPU, "t4", "Tesla-T4"),
        ("eks.amazonaws.com/instance-gpu-name", "h100", "NVIDIA-H100-80GB-HBM3"),
        ("karpenter.azure.com/sku-gpu-name", "H200", "NVIDIA-H200"),
        ("cloud.google.com/gke-accelerator", "nvidia-h100-mega-80gb", "NVIDIA-H100-80GB-HBM3"),
        ("gpu.nvidia.com/model", "A100_NVLINK_80GB", "NVIDIA-A100-SXM4-80GB"),
        ("aliyun.accelerator/nvidia_name", "Tesla-V100-SXM2-16GB", "Tesla-V100-SXM2-16GB"),
        ("k8s.amazonaws.com/accelerator", "nvidia-tesla-t4", "Tesla-T4"),
        ("karpenter.k8s.aws/instance-family", "p5en", "NVIDIA-H200"),
        (TYPE, "g4dn.12xlarge", "Tesla-T4"),
        (TYPE, "p6-b200.48xlarge", "NVIDIA-B200"),
        (TYPE, "Standard_NC64as_T4_v3", "Tesla-T4"),
        (TYPE, "Standard_ND96asr_v4", "NVIDIA-A100-SXM4-40GB"),
        (TYPE, "a3-megagpu-8g", "NVIDIA-H100-80GB-HBM3"),
        (TYPE, "BM.GPU.GB200-v2.4", "NVIDIA-GB200"),
        (TYPE, "gd-8xh200ib-i128", "NVIDIA-H200"),
        (TYPE, "ecs.gn7-c13g1.26xlarge", "NVIDIA-A100-SXM4-40GB"),
        (TYPE, "ecs.ebmgn7i.32xlarge", "NVIDIA-A10"),
        (TYPE, "ecs.gn8v-tee-8x.48xlarge", "NVIDIA-H20"),
        (TYPE, "GN10Xp.2XLARGE40", "Tesla-V100-SXM2-32GB"),
        (TYPE, "p6e-gb200.36xlarge", "NVIDIA-GB200"),
        (TYPE, "p6e-gb300r.36xlarge", "NVIDIA-GB300"),
        (TYPE, "Standard_ND128isr_GB300_v6", "NVIDIA-GB300"),
        (TYPE, "a4x-maxgpu-4g-metal", "NVIDIA-GB300"),
        ("cloud.google.com/gke-accelerator", "nvidia-gb300", "NVIDIA-GB300"),
        (
            "cloud.google.com/gke-accelerator",
            "nvidia-rtx-pro-6000",
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
        ),
        (TYPE, "ecs.ebmgn9gc.64xlarge", "NVIDIA-RTX-PRO-5000-72GB-Blackwell"),
        (TYPE, "PNV5b.48XLARGE768", "NVIDIA-L20"),
        (TYPE, "ecs.gni2.3xlarge", "NVIDIA-A10"),
        (TYPE, "ecs.hpcpni3ln.45xlarge", "NVIDIA-H20"),
        (TYPE, "p2s.2xlarge.8", "Tesla-V100-PCIE-32GB"),
        (TYPE, "p3.16xlarge.8", "NVIDIA-A100-80GB-PCIe"),
        (TYPE, "p3.16xlarge", "Tesla-V100-SXM2-16GB"),
        (TYPE, "pi2.4xlarge.4", "Tesla-T4"),
        (TYPE, "g6.10xlarge.7", "Tesla-T4"),
        (TYPE, "g6.12xlarge", "NVIDIA-L4"),
        (TYPE, "g7.24xlarge.8", "NVIDIA-A40"),
    ],
)
def test_a_label_of_a_cloud_tells_the_product(key: str, value: str, product: str) -> None:
    """As GPU Feature Discovery would label it."""
    assert NodeCapabilities(product=product) == product_of_label(BUILT_IN, key, value)


@pytest.mark.parametrize(
    ("key", "value", "compute", "memory"),
    [
        (AWS_GPU, "a100", (8, 0), None),
        (AWS_GPU, "v100", (7, 0), None),
        ("karpenter.azure.com/sku-gpu-name", "H100", (9, 0), None),
        (TYPE, "VM.GPU.A100.80G.1", (8, 0), 81920),
    ],
)
def test_of_several_products_only_the_shared_facts_are_known(
    key: str, value: str, compute: tuple[int, int], memory: int | None
) -> None:
    """The compute capability, but rarely the memory."""
    assert NodeCapabilities(compute_capability=compute, memory_mib=memory) == product_of_label(
        BUILT_IN, key, value
    )


@pytest.mark.parametrize("value", ["g6f.xlarge", "gr6f.4xlarge", "g6f.large"])
def test_of_a_virtual_gpu_only_the_compute_capability_is_known(value: str) -> None:
    """Its memory and product label are those of the share."""
    assert NodeCapabilities(compute_capability=(8, 9)) == product_of_label(BUILT_IN, TYPE, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cloud.google.com/gke-accelerator", "nvidia-b300"),
        (TYPE, "p2.xlarge"),
        (TYPE, "Standard_NC6s_v3"),
        (TYPE, "g9.xlarge"),
        (TYPE, "g5.8xlarge.4"),
        (TYPE, "g5"),
        (TYPE, "t4.xlarge"),
        (TYPE, "a100.xlarge"),
        ("aliyun.accelerator/nvidia_name", "V1000"),
        ("karpenter.k8s.aws/instance-gpu-count", "8"),
        ("example.com/gpu", "t4"),
        (AWS_GPU, ""),
    ],
)
def test_what_is_uncertain_or_unknown_tells_nothing(key: str, value: str) -> None:
    """Neither a product nor that there is no GPU; types of other clouds may look like those of AWS."""
    assert (None, False) == (product_of_label(BUILT_IN, key, value), has_no_gpu(BUILT_IN, key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("karpenter.k8s.aws/instance-category", "c"),
        ("karpenter.k8s.aws/instance-family", "m7i-flex"),
        ("karpenter.k8s.aws/instance-family", "u7i-12tb"),
        ("karpenter.k8s.aws/instance-gpu-manufacturer", "amd"),
        ("karpenter.azure.com/sku-family", "D"),
        (AWS_GPU, "radeon-pro-v520"),
        (TYPE, "m5.large"),
        (TYPE, "c7g.16xlarge"),
        (TYPE, "g4ad.4xlarge"),
    ],
)
def test_a_label_proves_that_there_is_no_gpu_of_nvidia(key: str, value: str) -> None:
    """CPU machines, and GPUs of others."""
    assert has_no_gpu(BUILT_IN, key, value)
    assert product_of_label(BUILT_IN, key, value) is None


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["value"])
def test_every_product_of_the_table_is_known(row: dict[str, Any]) -> None:
    """With the same compute capability for all alternatives of a row that is certain."""
    products = row["product"].split()

    re.compile(row["value"])
    assert [] == [product for product in products if gpu_model(BUILT_IN, product) is None]
    if Status(row["status"]).certain:
        assert len({capability_of(BUILT_IN, product) for product in products}) <= 1


def test_every_label_of_the_table_has_a_list_of_values_or_is_of_gpus_only() -> None:
    """And every list is used."""
    named = {row["values"] for row in TABLE["labels"] if "values" in row}

    assert set(TABLE["values"]) | {"product"} == named
    assert [] == [row for row in TABLE["labels"] if "values" not in row and not row.get("gpuOnly")]


@pytest.mark.parametrize("row", AWS_INSTANCES, ids=lambda row: row["value"])
def test_rows_by_hand_agree_with_a_generated_row_of_an_instance_family(row: dict[str, Any]) -> None:
    """Those by hand take precedence."""
    known = product_of_label(BUILT_IN, AWS_FAMILY, row["value"])
    product = None if row.get("vgpu") else row["product"] or None

    assert product == (known.product if known else None)
    assert has_no_gpu(BUILT_IN, AWS_FAMILY, row["value"]) is not bool(row["product"])


def test_a_row_by_hand_takes_precedence_over_a_generated_one_with_its_status() -> None:
    """An uncertain one tells nothing."""
    generated = [
        {"value": family, "product": "NVIDIA-L4", "source": "karpenter-aws", "status": "secondary"}
        for family in ("p2", "p3", "p9")
    ]
    facts = Facts({**built_in_tables(), "aws_instances": generated}.__getitem__)
    known = [product_of_label(facts, AWS_FAMILY, family) for family in ("p2", "p3", "p9")]

    assert [None, "Tesla-V100-SXM2-16GB", "NVIDIA-L4"] == [gpu.product if gpu else None for gpu in known]


def test_only_labels_that_name_a_gpu_or_a_machine_tell_kinds_of_nodes() -> None:
    """Not a category or a maker."""
    assert {AWS_GPU, TYPE, "karpenter.k8s.aws/instance-family"} <= set(kind_labels(BUILT_IN))
    assert "karpenter.k8s.aws/instance-category" not in kind_labels(BUILT_IN)
    assert "karpenter.k8s.aws/instance-gpu-count" in gpu_only_labels(BUILT_IN)
    assert "nvidia.com/gpu" in counted_resources(BUILT_IN)


def test_labels_of_a_cloud_add_to_what_is_known() -> None:
    """The most exact one, and the driver."""
    labels = {AWS_GPU: "a100", TYPE: "p4de.24xlarge", "ack.aliyun.com/nvidia-driver-version": "550.144.03"}
    expected = NodeCapabilities(driver="550.144.03", product="NVIDIA-A100-SXM4-80GB", cuda=(12, 4))

    assert expected == cloud_capabilities(labels, NodeCapabilities(cuda=(12, 4)))


def test_labels_about_the_gpu_itself_take_precedence() -> None:
    """Also over a label of the driver."""
    labels = {AWS_GPU: "t4", "ack.aliyun.com/nvidia-driver-version": "550.144.03"}
    known = NodeCapabilities(product="NVIDIA-L4", driver="580.95")

    assert known == cloud_capabilities(labels, known)


@pytest.mark.parametrize("version", ["latest", "", "99999.1", "550-144"])
def test_an_impossible_driver_version_is_unknown(version: str) -> None:
    """As for every label."""
    labels = {"ack.aliyun.com/nvidia-driver-version": version}

    assert NodeCapabilities() == cloud_capabilities(labels, NodeCapabilities())
