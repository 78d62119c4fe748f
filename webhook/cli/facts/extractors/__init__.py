"""The extractors: one module a source, and what its table is."""

from __future__ import annotations

from typing import Final

from webhook.cli.facts.extractors import (
    aws_instances,
    cuda_images,
    driver_branches,
    driver_redist,
    gpu_profiles,
    ngc_images,
    toolkit_wheels,
    triton_images,
    vllm_images,
)
from webhook.cli.facts.extractors.base import Extractor

EXTRACTORS: Final = (
    Extractor(
        "aws_instances",
        "karpenter-aws",
        "secondary",
        "GPUs of AWS' instance families. A row of cloud_gpus.yaml, awsFamilies, takes precedence.",
        aws_instances.find,
        aws_instances.rows,
        aws_instances.unknown,
    ),
    Extractor(
        "cuda_images",
        "nvidia-cuda-tags",
        "verified",
        "CUDA of NVIDIA's base images. A test compares images.yaml, which is by hand and decides, with it.",
        cuda_images.find,
        cuda_images.rows,
    ),
    Extractor(
        "driver_branches",
        "driver-releases",
        "verified",
        "Support of data-centre driver branches. A row of drivers.yaml, lifecycle, takes precedence.",
        driver_branches.find,
        driver_branches.rows,
    ),
    Extractor(
        "driver_redist",
        "nvidia-driver-redist",
        "verified",
        "CUDA of driver branches. A row of drivers.yaml, branches, takes precedence.",
        driver_redist.find,
        driver_redist.rows,
    ),
    Extractor(
        "gpu_profiles",
        "nvml-mock",
        "unverified",
        "GPUs by product label. A row of gpus.yaml takes precedence.",
        gpu_profiles.find,
        gpu_profiles.rows,
    ),
    Extractor(
        "ngc_images",
        "ngc-release-notes",
        "verified",
        "CUDA of NVIDIA's newest images. A test compares images.yaml, which is by hand and decides, with it.",
        ngc_images.find,
        ngc_images.rows,
    ),
    Extractor(
        "toolkit_wheels",
        "ptxas",
        "verified",
        "Compute capabilities that CUDA toolkits compile for. A row of toolkits.yaml takes precedence.",
        toolkit_wheels.find,
        toolkit_wheels.rows,
    ),
    Extractor(
        "triton_images",
        "ngc-triton-table",
        "verified",
        "CUDA of Triton's images. A test compares images.yaml, which is by hand and decides, with it.",
        triton_images.find,
        triton_images.rows,
    ),
    Extractor(
        "vllm_images",
        "vllm-dockerfile",
        "verified",
        "CUDA of vLLM's newest images. A test compares images.yaml, which is by hand and decides, with it.",
        vllm_images.find,
        vllm_images.rows,
    ),
)
