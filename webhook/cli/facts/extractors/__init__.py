"""The extractors: one module a source, and what its table is."""

from __future__ import annotations

from typing import Final

from webhook.cli.facts.extractors import (
    aws_instances,
    cuda_images,
    driver_branches,
    driver_redist,
    gpu_profiles,
    lmdeploy_images,
    ngc_images,
    sglang_images,
    tei_images,
    tgi_images,
    toolkit_modes,
    toolkit_wheels,
    triton_images,
    vllm_images,
)
from webhook.cli.facts.extractors.base import Extractor

_COMPARED: Final = "A test compares images.yaml, which is by hand and decides, with it."

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
        f"CUDA of NVIDIA's base images. {_COMPARED}",
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
        "lmdeploy_images",
        "lmdeploy-dockerfile",
        "verified",
        f"CUDA of LMDeploy's newest images. {_COMPARED}",
        lmdeploy_images.find,
        lmdeploy_images.rows,
    ),
    Extractor(
        "ngc_images",
        "ngc-release-notes",
        "verified",
        f"CUDA of NVIDIA's newest images. {_COMPARED}",
        ngc_images.find,
        ngc_images.rows,
    ),
    Extractor(
        "sglang_images",
        "sglang-dockerfile",
        "verified",
        f"CUDA of SGLang's newest images. {_COMPARED}",
        sglang_images.find,
        sglang_images.rows,
    ),
    Extractor(
        "tei_images",
        "tei-dockerfile",
        "verified",
        f"CUDA of Text Embeddings Inference. {_COMPARED}",
        tei_images.find,
        tei_images.rows,
    ),
    Extractor(
        "tgi_images",
        "tgi-dockerfile",
        "verified",
        f"CUDA of Text Generation Inference. {_COMPARED}",
        tgi_images.find,
        tgi_images.rows,
    ),
    Extractor(
        "toolkit_modes",
        "toolkit-auto-mode",
        "verified",
        "Modes of NVIDIA Container Toolkit. A test compares runtime_modes.yaml, which is by hand, with it.",
        toolkit_modes.find,
        toolkit_modes.rows,
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
        f"CUDA of Triton's images. {_COMPARED}",
        triton_images.find,
        triton_images.rows,
    ),
    Extractor(
        "vllm_images",
        "vllm-dockerfile",
        "verified",
        f"CUDA of vLLM's newest images. {_COMPARED}",
        vllm_images.find,
        vllm_images.rows,
    ),
)
