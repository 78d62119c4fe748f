"""Images of public manifests of autumn 2026: the share whose CUDA version the built-in catalogue knows."""

from __future__ import annotations

from typing import Final

import pytest

from rules.cuda.image_catalog import built_in_catalog

# Reference, and the CUDA version that its programs need at least; `none`: it holds no CUDA program.
KNOWN: Final = {
    "vllm/vllm-openai:v0.31.0": "13.0",
    "vllm/vllm-openai:v0.30.0": "13.0",
    "vllm/vllm-openai:v0.30.0-cu129": "12.9",
    "vllm/vllm-openai:v0.30.0-ubuntu2404": "13.0",
    "vllm/vllm-openai:v0.27.1": "13.0",
    "vllm/vllm-openai:v0.26.0": "13.0",
    "vllm/vllm-openai:v0.25.0": "13.0",
    "lmsysorg/sglang:v0.5.21-cu130": "13.0",
    "lmsysorg/sglang:v0.5.20-cu130": "13.0",
    "lmsysorg/sglang:v0.5.18-cu130": "13.0",
    "lmsysorg/sglang:v0.5.17-cu130-runtime": "13.0",
    "lmsysorg/sglang:v0.5.16": "13.0",
    "lmcache/vllm-openai:v0.5.4": "12.4",
    "vllm/vllm-omni:v0.24.0": "13.0",
    "ghcr.io/llm-d/llm-d-cuda:v0.9.0": "13.0",
    "kserve/huggingfaceserver:v0.20.0": "none",
    "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.5.0": "13.0",
    "nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.4.2": "13.0",
    "nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.5.0": "13.0",
    "nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.4.2": "13.0",
    "nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.3.1": "13.1",
    "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc24": "13.1",
    "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc22": "13.1",
    "nvcr.io/nim/nvidia/vllm-model-free-nim:2.1.1": "13.0",
    "nvcr.io/nvidia/pytorch:26.07-py3": "13.3",
    "nvcr.io/nvidia/pytorch:26.06-py3": "13.3",
    "nvcr.io/nvidia/vllm:26.07-py3": "13.3",
    "nvcr.io/nvidia/vllm:26.05.post1-py3": "13.2",
    "nvcr.io/nvidia/tritonserver:26.06-py3": "13.3",
    "nvcr.io/nvidia/jax:26.06-py3": "13.3",
    "nvcr.io/nvidia/nemo:26.04": "13.0",
    "nvcr.io/nvidia/cuda-dl-base:26.08-cuda13.4-devel-ubuntu24.04": "13.4",
    "nvcr.io/nvidia/cuda-dl-base:26.06-cuda13.3-inference-devel-ubuntu24.04": "13.3",
    "nvidia/cuda:13.3.0-base-ubuntu26.04": "13.3",
    "nvidia/cuda:13.2.0-runtime-ubuntu24.04": "13.2",
    "nvidia/cuda:13.1.1-cudnn-devel-ubuntu24.04": "13.1",
    "pytorch/pytorch:2.14.1-cuda12.6-cudnn9-runtime": "12.6",
    "pytorch/pytorch:2.14.0-cuda13.0-cudnn9-runtime": "13.0",
    "pytorch/pytorch:2.14.0-cuda13.2-cudnn9-devel": "13.2",
    "pytorch/pytorch:2.13.0-cuda13.2-cudnn9-runtime": "13.2",
    "rayproject/ray:2.58.0-py312": "none",
    "rayproject/ray:2.57.0-py311-gpu": "12.1",
    "rapidsai/base:26.08-cuda13-py3.12": "13.0",
    "rapidsai/base:26.08-cuda12-py3.13-amd64": "12.0",
    "xprobe/xinference:v3.4.0": "13.0",
    "axolotlai/axolotl:0.18.0": "13.0",
    "axolotlai/axolotl:main-latest": "13.0",
    "verlai/verl:vllm024.dev2": "13.0",
    "verlai/verl:sgl0512.latest": "13.0",
    "ollama/ollama:0.35.1": "12.1",
    "ghcr.io/ggml-org/llama.cpp:server-cuda-b9994": "12.0",
    "ghcr.io/huggingface/text-embeddings-inference:cpu-arm64-1.9.4": "none",
    "ghcr.io/huggingface/text-embeddings-inference:cuda-1.9": "12.9",
    "ghcr.io/speaches-ai/speaches:latest-cuda": "12.0",
    "yanwk/comfyui-boot:cu130-slim-v2": "13.0",
    "public.ecr.aws/deep-learning-containers/whisperx:3.8.6-cu128-amzn2023": "12.8",
    "public.ecr.aws/deep-learning-containers/vllm:server-cuda": "12.9",
    "quay.io/jupyter/pytorch-notebook:cuda12-latest": "12.0",
}
# Reference, and why its CUDA version is unknown.
UNKNOWN: Final = {
    "registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.3.0": "Red Hat's own build; its notes were not read",
    "slimerl/slime:v0.3.1": "no list of the CUDA versions of its releases",
    "unsloth/unsloth:latest": "a moving tag; older ones had 12.8",
    "nvcr.io/nvidia/isaac-lab:2.3.0": "its base, Isaac Sim 5, was not read",
}


def known(reference: str) -> str | None:
    """Return what the built-in catalogue knows of an image."""
    facts = built_in_catalog().find(reference)
    return "none" if facts.no_cuda else str(facts.cuda) if facts.cuda else None


@pytest.mark.parametrize("reference", KNOWN)
def test_the_cuda_version_of_a_public_image_is_known(reference: str) -> None:
    """Its lowest one, where the tag leaves it open."""
    assert KNOWN[reference] == known(reference)


@pytest.mark.parametrize("reference", UNKNOWN)
def test_an_image_whose_cuda_version_is_written_nowhere_stays_unknown(reference: str) -> None:
    """A guess would warn of pods that run."""
    assert known(reference) is None


def test_nine_of_ten_public_images_with_cuda_are_known() -> None:
    """60 references of manifests, Compose files and scripts, of each family at least one."""
    with_cuda = [reference for reference in (*KNOWN, *UNKNOWN) if known(reference) != "none"]
    answered = [reference for reference in with_cuda if known(reference)]

    assert len({*KNOWN, *UNKNOWN}) >= 60
    assert len(answered) >= 0.9 * len(with_cuda)
