"""What the built-in catalogue knows of images of well-known families, by reference alone."""

from __future__ import annotations

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from rules.cuda.image_catalog import (
    CompatLibraries,
    FamilyRow,
    ImageCase,
    ImageCatalog,
    ImageFacts,
    built_in_catalog,
    covers,
)

# Reference, what its programs need (`none`: no CUDA program; `>=`: or newer; `?`: uncertain), and the CUDA
# version that its NVIDIA_REQUIRE_CUDA names (empty: unknown or none).
FAMILIES = [
    ("nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04", "12.4", "12.4"),
    ("nvidia/cuda:11.8.0-cudnn8-devel-ubi8", "11.8", "11.8"),
    ("nvidia/cuda:9.0-devel", "9.0", ""),
    ("nvidia/cuda:12.0-runtime", "12.0", "12.0"),
    ("nvcr.io/nvidia/cuda:13.0.2-base-ubi8", "13.0", "13.0"),
    ("nvidia/cuda:13.4.1-base-ubuntu24.04", "13.4", "13.4"),
    ("nvidia/cudagl:11.4.2-base", "11.4", ""),
    ("registry.example:5000/mirror/cuda:12.2.0-runtime-ubuntu22.04", "12.2", "12.2"),
    ("nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04", "12.5", "12.5"),
    ("nvidia/samples:vectoradd-cuda11.2.1", "11.2", "11.2"),
    ("nvcr.io/nvidia/k8s/cuda-sample:nbody", ">=11.7?", ""),
    ("ghcr.io/nvidia/k8s-samples:nvbandwidth-v0.7-8d103163", ">=12.6", ""),
    ("ghcr.io/nvidia/k8s-samples:nvbandwidth-v0.8-1a2b3c4d", ">=12.9", ""),
    ("registry.k8s.io/cuda-vector-add:v0.1", "8.0", ""),
    ("registry.k8s.io/e2e-test-images/cuda-vector-add:2.2", ">=10.0", ""),
    ("nvcr.io/nvidia/pytorch:25.04-py3", "12.9", "9.0"),
    ("nvcr.io/nvidia/pytorch:23.10-py3", "12.2", "9.0"),
    ("nvcr.io/nvidia/tensorflow:22.05-tf2-py3", "11.7", "9.0"),
    ("nvcr.io/nvidia/tritonserver:24.04-py3", "12.4", "9.0"),
    ("nvcr.io/nvidia/tritonserver:24.08-py3", "12.6", "9.0"),
    ("nvcr.io/nvidia/tritonserver:25.08-vllm-python-py3", "13.0", "9.0"),
    ("nvcr.io/nvidia/tritonserver:25.01-trtllm-python-py3", "12.8", "9.0"),
    ("nvcr.io/nvidia/tritonserver:24.08-trtllm-python-py3", "12.5", "9.0"),
    ("nvcr.io/nvidia/tritonserver:24.11-trtllm-python-py3", ">=12.5", "9.0"),
    ("harbor.example/mirror/tritonserver:23.12-py3", "12.3", "9.0"),
    ("nvcr.io/nvidia/pytorch:21.12-py3", "11.5", "9.0"),
    ("nvcr.io/nvidia/pytorch:19.03-py3", "10.1", ""),
    ("ubuntu:22.04", "none", ""),
    ("rayproject/ray-ml:2.6.3-py39-gpu", "11.8?", ""),
    ("registry.example/vllm-openai-rocm:v0.11.0", "none", ""),
    ("registry.example/vllm-cpu:v0.11.0", "none", ""),
    ("nvcr.io/nvidia/pytorch:18.03-py3", "9.0", ""),
    ("nvcr.io/nvidia/pytorch:17.12", "9.0?", ""),
    ("nvcr.io/nvidia/tensorrtserver:19.10-py3", "10.1", ""),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.7.0.post1", "12.8", ""),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.2.1.post1", "12.9", ""),
    ("registry.example/ml/vllm:v0.8.5", "12.4?", ""),
    ("registry.example/ml/vllm:v0.8.5-rocm", "none", ""),
    ("registry.example/ml/lmdeploy:v0.7.1", "12.4?", ""),
    ("registry.example/ml/rollout:v2-sglang0.5.5.post3-mooncake", "12.9?", ""),
    ("registry.example/ml/rollout:v2-vllm0.9.1", "12.8?", ""),
    ("registry.example/ml/app:12.4.1-ubuntu22.04", "12.4?", ""),
    ("nvcr.io/nvidia/hpc-benchmarks:24.03", ">=12.0?", ""),
    ("nvcr.io/nvidia/isaac-sim:4.2.0", ">=11.8?", ""),
    ("fedirz/faster-whisper-server:latest-cuda", ">=12.0?", ""),
    ("quay.io/jupyter/tensorflow-notebook:cuda-latest", ">=12.2?", ""),
    ("registry.example/mirror/vllm-openai:v0.10.0-cu128-fix1", "12.8", "12.8"),
    ("registry.example/mirror/sglang:v0.5.5-cu129-amd64", "12.9", "12.9"),
    ("registry.example/pytorch:2.5.1-cuda12.4-cudnn9-runtime", "12.4", ""),
    ("registry.example/pytorch:2.5.1-cuda12.4-cudnn9-devel-ssh", "12.4", "12.4"),
    ("registry.k8s.io/pause:3.9", "none", ""),
    ("nvcr.io/nvidia/pytorch:19.11-py3", "10.2", ""),
    ("nvcr.io/nvidia/tensorflow:19.10-py3", "10.1", ""),
    ("nvcr.io/nvidia/pytorch:19.07-py3", "10.1", ""),
    ("nvcr.io/nvidia/mxnet:19.04-py3", "10.1", ""),
    ("nvcr.io/nvidia/pytorch:19.01-py3", "10.0", ""),
    ("nvcr.io/nvidia/tensorrt:18.11-py3", "10.0", ""),
    ("nvcr.io/nvidia/mxnet:24.06-py3", "12.4", "9.0"),
    ("nvcr.io/nvidia/pytorch:24.06-py3", "12.5", "9.0"),
    ("nvcr.io/nvidia/pytorch:26.11-py3", ">=13.4?", "9.0"),
    ("nvcr.io/nvidia/vllm:26.10-py3", "13.4", "9.0"),
    ("nvcr.io/nvidia/sglang:25.10-py3", "13.0", "9.0"),
    ("nvcr.io/nvidia/paddlepaddle:23.08-py3", "12.2?", "9.0"),
    ("nvcr.io/nvidia/jax:25.10-py3", "13.0", "9.0"),
    ("nvcr.io/nvidia/nemo:25.04.01", "12.8?", ""),
    ("nvcr.io/nvidia/nemo:26.04", ">=13.0?", ""),
    ("nvcr.io/nvidia/cuda-dl-base:26.08-cuda13.4-devel-ubuntu24.04", "13.4", "9.0"),
    ("nvcr.io/nvidia/tritonserver:26.10-py3", "13.4", "9.0"),
    ("nvcr.io/nvidia/tritonserver:26.09-trtllm-python-py3", ">=13.1?", "9.0"),
    ("nvcr.io/nvidia/jax:26.10-py3", "13.4?", "9.0"),
    ("nvcr.io/nvidia/tensorrt-llm/release:1.3.0", ">=13.1?", "9.0"),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.2", "13.0", "13.0"),
    ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.7.0", ">=13.0?", "13.0"),
    ("nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.4.2", "13.1", "9.0"),
    ("vllm/vllm-omni:v0.24.0", "13.0", "13.0"),
    ("ghcr.io/huggingface/text-embeddings-inference:cuda-1.9.4", ">=12.9?", "12.9"),
    ("ghcr.io/huggingface/text-embeddings-inference:89-1.9.4", ">=12.9?", "12.9"),
    ("ghcr.io/huggingface/text-embeddings-inference:120-1.10", ">=12.9?", ""),
    ("kserve/huggingfaceserver:v0.21.0-gpu", ">=13.0?", ""),
    ("openmmlab/lmdeploy:v0.18.0", ">=12.8?", ""),
    ("openmmlab/lmdeploy:v0.18.0-cu13", "13.0?", "13.0"),
    ("xprobe/xinference:v4.1.0", ">=13.0?", "13.0"),
    ("nvcr.io/nvidia/modulus/modulus:22.09", "11.7", ""),
    ("nvcr.io/nvidia/merlin/merlin-hugectr:22.04", "11.3", ""),
    ("nvcr.io/nvidia/clara-train-sdk:v4.0", "11.2", ""),
    ("nvcr.io/nvidia/tensorrt-llm/release:1.0.0", "12.9", "9.0"),
    ("nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc5.post1", "13.1", "9.0"),
    ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0rc3", "13.0", "9.0"),
    ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", "13.1", "9.0"),
    ("nvcr.io/nim/meta/llama-3.1-8b-instruct:1.1.0", ">=12.0", ""),
    ("nvcr.io/nim/meta/llama-3.1-8b-instruct:1.3.2", "12.6", ""),
    ("nvcr.io/nim/meta/llama-3.2-1b-instruct:1.8", "12.6", ""),
    ("nvcr.io/nim/meta/llama-3.2-1b-instruct:1.12.0", ">=12.8?", ""),
    ("nvcr.io/nim/nvidia/llm-nim:2.0.2", "12.9", ""),
    ("nvcr.io/nim/nvidia/llm-nim:2.0.4", "13.0", ""),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.0.1", "12.9", ""),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.2.0-cuda13", "13.0", ""),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime-cu13:0.8.1", "13.0", ""),
    ("nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.6.1", "12.8", ""),
    ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:0.7.1", "12.8", ""),
    ("nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.3.0", "13.0", "13.0"),
    ("nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:0.8.1.post2", "13.0", ""),
    ("nvcr.io/nvidia/ai-dynamo/dynamo-frontend:1.0.0", "none", ""),
    ("pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime", "11.7", ""),
    ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel", "12.4", "12.4"),
    ("pytorch/pytorch:2.0.1-cuda11.7-cudnn8-devel", "11.7", "11.7"),
    ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", "12.4", ""),
    ("pytorch/pytorch:2.8.0-cuda12.9-cudnn9-runtime", "12.9", ""),
    ("pytorch/pytorch:2.8.0-cuda12.9-cudnn9-devel", "12.9", "12.9"),
    ("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime", "13.0", ""),
    ("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-devel", "13.0", "13.0"),
    ("pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime", "12.6", ""),
    ("pytorch/pytorch:2.13.0-cuda12.6-cudnn9-devel", "12.6", "12.6"),
    ("pytorch/pytorch:2.9.1-cuda12.8-cudnn9-devel", "12.8", "12.8"),
    ("pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime", "12.8", ""),
    ("registry.example/tensorfusion/pytorch:2.6.0-cuda12.4-cudnn9-runtime", "12.4", ""),
    ("vllm/vllm-openai:v0.4.2", "12.1", "12.1"),
    ("vllm/vllm-openai:v0.4.3", "12.4", "12.4"),
    ("vllm/vllm-openai:v0.5.4", "12.4", "12.4"),
    ("vllm/vllm-openai:v0.6.3.post1", "12.4", "12.4"),
    ("vllm/vllm-openai:v0.6.5", "12.4", "12.1"),
    ("vllm/vllm-openai:v0.7.3", "12.4", "12.1"),
    ("vllm/vllm-openai:v0.8.5.post1", "12.4", "12.4"),
    ("vllm/vllm-openai:v0.9.0.1", "12.8", "12.8"),
    ("vllm/vllm-openai:v0.9.2", "12.8", "12.8"),
    ("vllm/vllm-openai:v0.10.2", "12.8", "12.8"),
    ("vllm/vllm-openai:v0.11.0", "12.8", "12.8"),
    ("vllm/vllm-openai:v0.11.0-aarch64", "12.9", "12.9"),
    ("vllm/vllm-openai:v0.11.1", "12.9", "12.9"),
    ("vllm/vllm-openai:v0.11.2", "12.9", "12.9"),
    ("vllm/vllm-openai:v0.15.1", "12.9", "12.9"),
    ("vllm/vllm-openai:v0.18.0", "12.9", "12.9"),
    ("vllm/vllm-openai:v0.18.0-cu130", "13.0", "13.0"),
    ("vllm/vllm-openai:v0.20.1-cu129", "12.9", "12.9"),
    ("vllm/vllm-openai:v0.29.0-cu129-ubuntu2404", "12.9", "12.9"),
    ("vllm/vllm-openai:v0.20.2", "13.0", "13.0"),
    ("vllm/vllm-openai:v0.20.2-ubuntu2404", "13.0", "13.0"),
    ("vllm/vllm-openai:v0.9.0-x86_64", "12.8", "12.8"),
    ("vllm/vllm-openai:v0.99.0", ">=13.0?", "13.0"),
    ("vllm/vllm-openai:latest-cu130", "13.0", "13.0"),
    ("vllm/vllm-openai", ">=13.0?", "13.0"),
    ("vllm/vllm-openai:0.11.0", "12.8", "12.8"),
    ("vllm/vllm-openai:v0.5.2-distributed", "12.4", "12.4"),
    ("aibrix/vllm-openai:v0.7.3.self.post1", "12.4", "12.1"),
    ("harbor.example/proxy/vllm/vllm-openai:v0.9.0", "12.8", "12.8"),
    ("harbor.example/team/vllm-openai:v0.9.0", "12.8?", ""),
    ("harbor.example/team/vllm-openai:v0.9.0-cu118", "11.8", "11.8"),
    ("harbor.example/team/official-vllm-openai:v0.7.3.78f0810ef", "12.4?", ""),
    ("vllm/vllm-openai:v0.11.0-rocm", "none", ""),
    ("quay.io/ascend/vllm-ascend:v0.18.0-310p", "none", ""),
    ("vllm/vllm-tpu:latest", "none", ""),
    ("registry.example/vllm-xpu:v0.11.0", "none", ""),
    ("registry.example/vllm-gaudi:v0.11.0", "none", ""),
    (
        "public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.13.0-neuronx-py312-sdk2.27.1-ubuntu24.04",
        "none",
        "",
    ),
    ("public.ecr.aws/neuron/pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.28.0-ubuntu24.04", "none", ""),
    ("ascendai/cann:8.0-910b-ubuntu22.04", "none", ""),
    ("vault.habana.ai/gaudi-docker/1.18.0/ubuntu22.04/habanalabs/pytorch-installer-2.4.0:latest", "none", ""),
    ("openvino/ubuntu22_runtime:latest", "none", ""),
    ("lmcache/vllm-openai:v0.3.5", ">=12.4?", ""),
    ("lmcache/vllm-openai:2025-05-05-v1", ">=12.4?", ""),
    ("lmsysorg/sglang:v0.4.6.post5-cu118", "11.8", "9.0"),
    ("lmsysorg/sglang:v0.4.6.post5-cu121", ">=12.1", "9.0"),
    ("lmsysorg/sglang:v0.4.6.post5-cu124", "12.4", "9.0"),
    ("lmsysorg/sglang:v0.4.6.post5-cu125-srt", "12.4", "9.0"),
    ("lmsysorg/sglang:v0.4.6", "12.4", "9.0"),
    ("lmsysorg/sglang:v0.4.8", "12.6", "9.0"),
    ("lmsysorg/sglang:v0.4.9.post6", "12.6", ""),
    ("lmsysorg/sglang:v0.5.0", "12.6", "12.6"),
    ("lmsysorg/sglang:v0.4.10.post1-cu128-b200", "12.8", "12.8"),
    ("lmsysorg/sglang:v0.5.2", ">=12.6?", ""),
    ("lmsysorg/sglang:v0.5.3", "12.9", "12.9"),
    ("lmsysorg/sglang:v0.5.6", "12.9", "12.9"),
    ("lmsysorg/sglang:0.5.6", "12.9", "12.9"),
    ("lmsysorg/sglang:v0.5.7-mooncake", "12.9", "12.9"),
    ("lmsysorg/sglang:v0.5.5.post3-cu129-amd64", "12.9", "12.9"),
    ("lmsysorg/sglang:v0.5.12", "13.0", "13.0"),
    ("lmsysorg/sglang:v0.5.14-cu129", "12.9", "12.9"),
    ("lmsysorg/sglang:v0.5.20-runtime", "13.0", "13.0"),
    ("lmsysorg/sglang:v0.5.24", ">=13.0?", "13.0"),
    ("lmsysorg/sglang:latest", ">=13.0?", "13.0"),
    ("lmsysorg/sglang:v0.5.5-rocm700-mi30x", "none", ""),
    ("harbor.example/team/sglang:v0.5.6", "12.9?", ""),
    ("ghcr.io/huggingface/text-generation-inference:0.6.0", "11.8", ""),
    ("ghcr.io/huggingface/text-generation-inference:1.1.1", "11.8", "11.8"),
    ("ghcr.io/huggingface/text-generation-inference:2.0", "12.1", "12.1"),
    ("ghcr.io/huggingface/text-generation-inference:2.3.1", "12.4", "12.1"),
    ("ghcr.io/huggingface/text-generation-inference:3.1.0", "12.4", "12.1"),
    ("ghcr.io/huggingface/text-generation-inference:3.1", "12.4", ""),
    ("ghcr.io/huggingface/text-generation-inference:3.1.1", "12.4", "12.4"),
    ("ghcr.io/huggingface/text-generation-inference:3.3", ">=12.4", "12.4"),
    ("ghcr.io/huggingface/text-generation-inference:3.3.1", "12.8", "12.4"),
    ("ghcr.io/huggingface/text-generation-inference:3.3.7", "12.8", "12.4"),
    ("ghcr.io/huggingface/text-generation-inference:3.2.3", "12.4", "12.4"),
    ("ghcr.io/huggingface/text-generation-inference:2.4.0-patched", "12.4", "12.1"),
    ("ghcr.io/huggingface/text-generation-inference:3.3.5-rocm", "none", ""),
    ("ghcr.io/huggingface/text-generation-inference:latest", ">=12.8?", "12.4"),
    ("harbor.example/team/text-generation-inference:2.0", "12.1?", ""),
    ("gcr.example/huggingface-text-generation-inference-cu124.2-3.ubuntu2204.py311", "12.4", "12.1"),
    ("gcr.example/huggingface-text-generation-inference-cu121.2-2.ubuntu2204.py310", "12.1", "12.1"),
    ("gcr.example/huggingface-text-embeddings-inference-cu122.1-4.ubuntu2204", "12.2", "12.2"),
    ("gcr.example/huggingface-pytorch-training-cu128.2-8.transformers.4-57.ubuntu2404.py312", "12.8", ""),
    ("ghcr.io/huggingface/text-embeddings-inference:1.8.2", "12.2", "12.2"),
    ("ghcr.io/huggingface/text-embeddings-inference:turing-1.9.1", "12.9", "12.9"),
    ("ghcr.io/huggingface/text-embeddings-inference:86-1.5", "12.2", "12.2"),
    ("ghcr.io/huggingface/text-embeddings-inference:89-1.9", "12.9", "12.9"),
    ("ghcr.io/huggingface/text-embeddings-inference:hopper-1.7", "12.2", "12.2"),
    ("ghcr.io/huggingface/text-embeddings-inference:120-1.9", "12.9", ""),
    ("ghcr.io/huggingface/text-embeddings-inference:cuda-1.9.3", "12.9", "12.9"),
    ("ghcr.io/huggingface/text-embeddings-inference:cpu-1.8", "none", ""),
    ("harbor.example/team/text-embeddings-inference:86-1.5", "12.2?", ""),
    ("tensorflow/tensorflow:1.4.1-gpu-py3", "8.0?", ""),
    ("tensorflow/tensorflow:1.15.0-gpu", "10.0?", ""),
    ("tensorflow/tensorflow:2.3.0-gpu", "10.1", "10.1"),
    ("tensorflow/tensorflow:2.5.1-gpu", "11.2", "11.2"),
    ("tensorflow/tensorflow:2.14.0-gpu", "11.8?", ""),
    ("tensorflow/tensorflow:2.17.0-gpu-jupyter", "12.3?", ""),
    ("tensorflow/tensorflow:latest-gpu", ">=12.5?", ""),
    ("4pdosc/ai-benchmark:2.4.1-gpu", "11.0", "11.0"),
    ("tensorflow/serving:2.1.0-gpu", "10.0", "10.0"),
    ("tensorflow/serving:2.19.0-gpu", "12.2", "12.2"),
    ("tensorflow/serving:2.19.0", "none", ""),
    ("paddlepaddle/paddle:3.0.0-gpu-cuda11.8-cudnn8.9-trt8.6", "11.8", ""),
    ("rayproject/ray:2.54.0", "none", ""),
    ("rayproject/ray:2.49.1.c057f1-py312-cu128", "12.8", "12.8"),
    ("rayproject/ray:2.9.0-py310-gpu", "11.8", "11.8"),
    ("rayproject/ray:2.40.0-gpu", "12.1", "12.1"),
    ("rayproject/ray-ml:2.9.0", "11.8", "11.8"),
    ("rayproject/ray-ml:2.49.2.deprecated-py311-gpu", "12.1", "12.1"),
    ("rayproject/ray-ml:2.40.0-cpu", "none", ""),
    ("rayproject/ray-ml:2.40.0-py310", "12.1", "12.1"),
    ("rayproject/ray-llm:2.50.0-py311-cu128", "12.8", "12.8"),
    ("kserve/huggingfaceserver:v0.13.0-gpu", "12.1", "12.1"),
    ("kserve/huggingfaceserver:v0.15.0-gpu", "12.4", "12.4"),
    ("kserve/huggingfaceserver:v0.16.0-gpu", "12.8", "12.8"),
    ("kserve/huggingfaceserver:v0.18.1-gpu", "12.9", "12.9"),
    ("kserve/huggingfaceserver:v0.19.0-gpu", "13.2", "13.2"),
    ("kserve/huggingfaceserver:v0.15.0", "none", ""),
    ("ghcr.io/llm-d/llm-d-cuda:v0.6.0", "12.9", "12.9"),
    ("ghcr.io/llm-d/llm-d-cuda:v0.7.0", "13.0", "13.0"),
    ("ghcr.io/llm-d/llm-d-cuda:v0.8.1", "13.0", "13.0"),
    ("ghcr.io/llm-d/llm-d-cuda:latest", ">=13.0?", "13.0"),
    ("ghcr.io/llm-d/llm-d-cuda-dev:sha-a1bcf21", ">=13.0?", ""),
    ("ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.9.0", "none", ""),
    ("aibrix/vllm-openai-aibrix-kvcache-nixl:v0.10.2-nixl-0.7.1-ucx-1.19.0", "12.8", "12.8"),
    ("lmsysorg/sglang:kimi-k3", ">=13.0?", ""),
    ("registry.example/aibrix/sglang-aibrix-kvcache-nixl:v0.5.5.post3-nixl-v0.7.1", "12.9", "12.9"),
    ("openmmlab/lmdeploy:latest", ">=12.8?", "12.8"),
    ("ghcr.io/llm-d/llm-d-inference-sim:v0.9.0", "none", ""),
    ("ghcr.io/llm-d/llm-d-xpu:latest", "none", ""),
    ("ghcr.io/kubeflow/trainer/deepspeed-runtime:v2.2.0", "13.1", "13.1"),
    ("ghcr.io/kubeflow/trainer/deepspeed-runtime:v2.0.1", "12.8", "12.8"),
    ("ghcr.io/kubeflow/trainer/torchtune-trainer:v2.1.0", "12.8", ""),
    ("ghcr.io/kubeflow/trainer/torchtune-trainer", ">=12.8?", ""),
    ("ghcr.io/kubeflow/trainer/xgboost-runtime:v2.2.0", "12.4", ""),
    ("ghcr.io/kubeflow/trainer/dataset-initializer:v2.1.0", "none", ""),
    ("ghcr.io/kubeflow/kubeflow/notebook-servers/jupyter-pytorch-cuda:v1.11.0", "13.0", "13.0"),
    ("ghcr.io/kubeflow/kubeflow/notebook-servers/jupyter-tensorflow-cuda-full:v1.11.0", "12.5", "12.5"),
    ("quay.io/jupyter/pytorch-notebook:cuda13-2026-02-16", "13.0", ""),
    ("quay.io/jupyter/pytorch-notebook:cuda12-2025-05-19", "12.8", ""),
    ("quay.io/jupyter/pytorch-notebook:cuda12-2025-01-13", "12.4", ""),
    ("quay.io/jupyter/pytorch-notebook:cuda12-2024-07-01", "12.1", ""),
    ("quay.io/jupyter/pytorch-notebook:cuda11-python-3.11", "11.8", ""),
    ("quay.io/jupyter/pytorch-notebook:cuda12-python-3.11", ">=12.0", ""),
    ("openmmlab/lmdeploy:v0.5.2", "11.8", "9.0"),
    ("openmmlab/lmdeploy:v0.6.0-cu12", "12.4", "12.4"),
    ("openmmlab/lmdeploy:v0.13.0", "12.6", "12.6"),
    ("openmmlab/lmdeploy:v0.11.0-cu11", "11.8", "11.8"),
    ("openmmlab/lmdeploy:v0.12.0-cu12.8", "12.8", "12.8"),
    ("openmmlab/lmdeploy:v0.14.0-cu13", "13.0", "13.0"),
    ("openmmlab/lmdeploy:v0.16.0", "12.8", "12.8"),
    ("xprobe/xinference:v0.12.3", "12.1", "12.1"),
    ("xprobe/xinference:v0.14.0", "12.4", "12.4"),
    ("xprobe/xinference:v1.5.0", "12.4", "12.4"),
    ("xprobe/xinference:v1.10.0-cu128", "12.8", "12.8"),
    ("xprobe/xinference:v1.16.0-cu129", "12.9", "12.9"),
    ("xprobe/xinference:v2.3.0", "12.9", "12.9"),
    ("xprobe/xinference:v3.1.0", "13.0", "13.0"),
    ("xprobe/xinference:v1.5.0-cpu", "none", ""),
    ("axolotlai/axolotl:0.10.1", "12.4", ""),
    ("axolotlai/axolotl-cloud:0.12.2", "12.6", ""),
    ("axolotlai/axolotl:0.18.0", "13.0", ""),
    ("axolotlai/axolotl:0.19.0", "13.0", ""),
    ("axolotlai/axolotl:main-latest", ">=13.0?", ""),
    ("axolotlai/axolotl:0.20.0", ">=13.0?", ""),
    ("axolotlai/axolotl:main-20250401-py3.11-cu124-2.6.0", "12.4", ""),
    ("verlai/verl:app-verl0.4-sglang0.4.6.post5-vllm0.8.5-mcore0.12.1", "12.4", ""),
    ("verlai/verl:vllm011.latest", "12.8", "12.8"),
    ("verlai/verl:vllm012.latest", "12.9", "12.9"),
    ("verlai/verl:vllm023.latest", "13.0", "13.0"),
    ("verlai/verl:vllm018.latest", "12.9?", ""),
    ("verlai/verl:sgl055.latest", "12.9", "12.9"),
    ("verlai/verl:sgl0512.latest", "13.0", "13.0"),
    ("ollama/ollama:0.1.20", "11.8?", ""),
    ("ollama/ollama:0.2.1", "11.3?", ""),
    ("ollama/ollama:0.5.7", ">=11.3?", ""),
    ("ollama/ollama:0.18.3", ">=12.1?", ""),
    ("ollama/ollama:latest", ">=12.1?", ""),
    ("ollama/ollama:0.18.3-rocm", "none", ""),
    ("ghcr.io/ggml-org/llama.cpp:server-cuda-b4719", ">=12.0?", ""),
    ("ghcr.io/ggml-org/llama.cpp:server-cuda13-b7588", "13.1", "13.1"),
    ("ghcr.io/ggml-org/llama.cpp:server-cuda13", ">=13.1?", "13.1"),
    ("ghcr.io/ggml-org/llama.cpp:server-vulkan", "none", ""),
    ("rapidsai/base:24.12-cuda12.5-py3.12", "12.5", ""),
    ("rapidsai/notebooks:26.04-cuda12-py3.13", ">=12.0", ""),
    ("rapidsai/base:latest", ">=13.0?", ""),
    (
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker",
        "12.9",
        "",
    ),
    (
        "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312-ubuntu22.04-sagemaker",
        "none",
        "",
    ),
    ("763104351884.dkr.ecr.us-west-2.amazonaws.com/djl-inference:0.36.0-lmi20.0.0-cu128", "12.8", ""),
    ("763104351884.dkr.ecr.us-east-1.amazonaws.com/vllm:0.22.0-gpu-py312-cu130-ubuntu22.04-ec2", "13.0", ""),
    ("public.ecr.aws/deep-learning-containers/vllm:server-cuda", ">=12.9?", ""),
    ("public.ecr.aws/deep-learning-containers/vllm:server-sagemaker-cuda-v1", "12.9", ""),
    ("public.ecr.aws/deep-learning-containers/vllm:server-sagemaker-cuda-v2.1", "13.0", ""),
    ("public.ecr.aws/deep-learning-containers/vllm:omni-sagemaker-cuda-v1.0", "12.9", ""),
    ("public.ecr.aws/deep-learning-containers/vllm:omni-sagemaker-cuda-v1.2", "13.0", ""),
    ("public.ecr.aws/deep-learning-containers/sglang:server-cuda", ">=13.0?", ""),
    ("public.ecr.aws/deep-learning-containers/sglang:server-sagemaker-cuda-v1.0", "13.0", ""),
    ("public.ecr.aws/deep-learning-containers/ray:serve-ml-sagemaker-cuda-v1.0", "12.9", ""),
    ("public.ecr.aws/neuron/pytorch-inference:2.9.0-neuronx-py312-sdk2.28.0-ubuntu24.04", "none", ""),
    ("nvcr.io/nvidia/k8s-device-plugin:v0.17.0", "none", ""),
    ("nvcr.io/nvidia/driver:535-5.4.0-150-generic-ubuntu22.04", "none", ""),
    ("mcr.microsoft.com/aks/kaito/kaito-base:0.2.0", ">=12.0?", ""),
    ("torchelastic/examples:0.2.0", "10.1", ""),
    ("mpioperator/tensorflow-benchmarks:latest", ">=10.1", ""),
    ("grgalex/nvshare:pytorch-add-small-v0.1-f654c296", "11.1", ""),
    ("grgalex/nvshare:tf-matmul-v0.1-f654c296", "11.2", "11.2"),
    ("ghcr.io/kubeflow/training-v1/pytorch-dist-mnist:latest", ">=10.0", ""),
    ("ghcr.io/kubeflow/katib/darts-cnn-cifar10-gpu:latest", ">=12.3", "9.0"),
    ("ghcr.io/kubeflow/katib/enas-cnn-cifar10-gpu:latest", ">=11.8", "9.0"),
    ("public.ecr.aws/deep-learning-containers/ray:serve-ml-sagemaker-cuda-v1", "12.9", ""),
    ("rocm/pytorch:latest", "none", ""),
    ("team/app:cuda-10.1", "10.1", ""),
    ("team/app:v1-CUDA12.4", "12.4", ""),
    ("team/torch2.6-cu126-amd64:v0.1.0", "12.6", ""),
    ("team/app:cuda12.1-cu121", "12.1", ""),
    ("team/app:cu118-cuda12.1", "", ""),
    ("team/app-cu118-cu124:v1", "", ""),
    ("vllm/vllm-openai:v0.18.0-aarch64", "12.9", "12.9"),
    ("nvcr.io/nvidia/tritonserver:24.04-trtllm-python-py3", "12.3", "9.0"),
    ("nvcr.io/nvidia/tritonserver:24.10-py3", "12.6", "9.0"),
    ("nvcr.io/nvidia/pytorch:22.12-py3", "11.8", "9.0"),
    ("nvcr.io/nvidia/pytorch:24.01-py3", "12.3", "9.0"),
    ("kserve/huggingfaceserver:v0.20.0-gpu", "13.3", ""),
    ("ghcr.io/llm-d/llm-d-cuda:v0.9.0", ">=13.0?", "13.0"),
    ("harbor.example/team/vllm-openai:v0.11.2", "12.9?", ""),
    ("harbor.example/team/vllm-openai:0.21.0", ">=13.0?", ""),
    ("tensorflow/serving:2.20.0-gpu", "12.5", "12.5"),
    ("nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.2.0", "13.1", ""),
]

# The only row before one with another answer.
OLDER_THAN_ITS_MONTH = "NGC mxnet, last release"


def find(image: str) -> ImageFacts:
    """Look up an image in the built-in catalogue."""
    return built_in_catalog().find(image)


def need(facts: ImageFacts) -> str:
    """Write what the programs of an image need, as in the table."""
    if facts.no_cuda or facts.cuda is None:
        return "none" if facts.no_cuda else ""
    return f"{'' if facts.exact else '>='}{facts.cuda}{'' if facts.certain else '?'}"


@pytest.mark.parametrize(("image", "cuda", "required"), FAMILIES)
def test_a_reference_names_what_an_image_needs_and_requires(image: str, cuda: str, required: str) -> None:
    """The programs can need another CUDA version than the variable requires."""
    facts = find(image)
    first = {constraint.text.partition(" ")[0].removeprefix("cuda>=") for constraint in facts.constraints}

    assert (cuda, {required} - {""}) == (need(facts), first)


def test_every_row_has_an_example() -> None:
    """No row is hidden by those before it."""
    rows = {row.name for row in built_in_catalog().families}

    assert rows == {find(image).row for image, _, _ in FAMILIES} - {""}


@pytest.mark.parametrize("row", built_in_catalog().families, ids=lambda row: row.name)
def test_every_case_is_the_first_for_some_version(row: FamilyRow) -> None:
    """No case is hidden by those before it."""
    specifiers = [SpecifierSet(case.versions or "") for case in row.cases]
    bounds = [bound.version.removesuffix(".*") for specifier in specifiers for bound in specifier]
    versions = [Version(bound) for bound in ("0.1", *bounds)]
    firsts = {
        next((case for case in row.cases if case.versions and covers(case.versions, version)), None)
        for version in versions
    }

    assert [] == [case for case in row.cases if case.versions and case not in firsts]


@pytest.mark.parametrize("image", [image for image, _, _ in FAMILIES])
def test_no_later_row_contradicts_the_first(image: str) -> None:
    """A later row of a family is less exact; only the general rows, which read the tag alone, can differ."""
    facts = find(image)
    later = [
        ImageCatalog((), [row]).look_up(image) for row in built_in_catalog().families if row.repositories
    ]
    known = {
        image_facts.cuda
        for image_facts in (facts, *later)
        if image_facts.cuda and image_facts.exact and image_facts.certain
    }

    assert facts.no_cuda or facts.row == OLDER_THAN_ITS_MONTH or len(known) <= 1


@pytest.mark.parametrize(
    ("image", "branches"),
    [
        ("nvcr.io/nvidia/tritonserver:24.04-py3", [470, 525, 535, 545]),
        ("nvcr.io/nvidia/tritonserver:23.12-py3", [450, 470, 510, 525, 535]),
        ("nvcr.io/nvidia/pytorch:25.10-py3", []),
        ("lmsysorg/sglang:v0.4.6.post5-cu124", [470, 525, 535, 545]),
        ("lmsysorg/sglang:v0.4.8", [470, 525, 535, 545]),
        ("nvcr.io/nim/meta/llama-3.2-1b-instruct:1.8", [470, 525, 535, 545]),
        ("vllm/vllm-openai:v0.9.0", []),
    ],
)
def test_release_notes_list_driver_branches(image: str, branches: list[int]) -> None:
    """Older than that of the image, on data centre GPUs."""
    assert branches == sorted(find(image).branches)


@pytest.mark.parametrize(
    ("image", "libraries"),
    [
        ("nvidia/cuda:12.4.1-base-ubuntu22.04", CompatLibraries.INSIDE),
        ("nvcr.io/nvidia/pytorch:24.04-py3", CompatLibraries.LOADER_PATH),
        ("lmsysorg/sglang:v0.4.9", CompatLibraries.LOADER_PATH),
        ("lmsysorg/sglang:v0.5.3", CompatLibraries.INSIDE),
        ("vllm/vllm-openai:v0.14.1", CompatLibraries.INSIDE),
        ("vllm/vllm-openai:v0.16.0", CompatLibraries.LOADER_PATH),
        ("vllm/vllm-openai:v0.17.0", CompatLibraries.INSIDE),
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", CompatLibraries.NONE),
        ("ollama/ollama:0.18.3", CompatLibraries.NONE),
        ("team/app:cu121", CompatLibraries.UNKNOWN),
    ],
)
def test_forward_compatibility_libraries_can_be_on_the_loader_path(
    image: str, libraries: CompatLibraries
) -> None:
    """In an image on nvidia/cuda they are not."""
    assert libraries is find(image).cuda_compat


@pytest.mark.parametrize(
    ("image", "server"),
    [
        ("vllm-runtime:1.6.0", "docker.io/vllm/vllm-openai:v0.31.0"),
        ("sglang-runtime:1.6.0", "docker.io/lmsysorg/sglang:v0.5.21-cu130-runtime"),
        ("tensorrtllm-runtime:1.4.2", "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc19"),
    ],
)
def test_a_dynamo_image_requires_of_the_driver_what_its_server_s_image_requires(
    image: str, server: str
) -> None:
    """It is built on that image: the same CUDA version, variables and compatibility libraries."""
    dynamo, base = find(f"nvcr.io/nvidia/ai-dynamo/{image}"), find(server)

    assert {constraint.text for constraint in dynamo.constraints} == {
        constraint.text for constraint in base.constraints
    }
    assert (need(dynamo), dynamo.base, dynamo.cuda_compat) == (need(base), base.base, base.cuda_compat)


@pytest.mark.parametrize(
    ("image", "platforms"),
    [
        ("vllm/vllm-openai:v0.9.0", ("linux/amd64",)),
        ("vllm/vllm-openai:v0.10.2", ()),
        ("vllm/vllm-openai:v0.11.0-aarch64", ("linux/arm64",)),
    ],
)
def test_some_images_are_for_one_architecture(image: str, platforms: tuple[str, ...]) -> None:
    """The first arm64 image of vLLM is 0.10.2."""
    assert platforms == find(image).platforms


@pytest.mark.parametrize(
    ("image", "built_for", "ptx"),
    [
        ("vllm/vllm-openai:v0.9.1", "7.0 7.5 8.0 8.9 9.0 10.0", False),
        ("vllm/vllm-openai:v0.9.2", "7.0 7.5 8.0 8.9 9.0 10.0 12.0", False),
        ("vllm/vllm-openai:v0.11.0-arm64", "8.7 9.0 10.0 12.0", None),
        ("ghcr.io/huggingface/text-embeddings-inference:turing-1.8", "7.5", False),
        ("ghcr.io/huggingface/text-embeddings-inference:hopper-1.8", "9.0", False),
        ("axolotlai/axolotl:0.18.0", "9.0 10.0 10.3 12.0", True),
    ],
)
def test_some_images_are_built_for_some_gpus(image: str, built_for: str, ptx: bool | None) -> None:
    """By the build arguments of the release."""
    facts = find(image).built_for

    assert facts is not None
    assert (built_for, ptx) == (" ".join(map(str, facts.capabilities)), facts.ptx)


@pytest.mark.parametrize(
    "tag", ["v0.11.0-rocm", "v0.11.0-cpu", "v0.11.0-xpu", "v0.11.0-neuron", "v0.11.0-tpu", "v0.11.0-npu"]
)
@pytest.mark.parametrize("repository", ["vllm/vllm-openai", "team/vllm-openai"])
def test_an_image_for_another_accelerator_holds_no_cuda_program(repository: str, tag: str) -> None:
    """The suffix is not one of a CUDA image."""
    assert find(f"{repository}:{tag}").no_cuda


@pytest.mark.parametrize(
    "suffix", ["", "-x86_64", "-ubuntu2404", ".self.post1", "-distributed", "-mooncake", "-fix_1"]
)
@pytest.mark.parametrize("prefix", ["", "harbor.example/", "harbor.example:5000/proxy/docker.io/"])
def test_a_mirror_or_suffix_does_not_change_what_is_known(prefix: str, suffix: str) -> None:
    """With `v` before the version and without."""
    images = [f"{prefix}vllm/vllm-openai:{tag}{suffix}" for tag in ("v0.7.3", "0.7.3")]

    assert [("12.4", True)] * 2 == [(str(find(image).cuda), find(image).certain) for image in images]


@pytest.mark.parametrize(
    ("row", "case"),
    [
        (row, case)
        for row in built_in_catalog().families
        for case in row.cases
        if case.at_least
        and (
            row.references
            or (case.versions and str(case.versions).startswith(">=") and "," not in str(case.versions))
        )
    ],
    ids=lambda row_or_case: getattr(row_or_case, "name", str(getattr(row_or_case, "versions", row_or_case))),
)
def test_moving_tags_and_versions_to_come_only_warn(row: FamilyRow, case: ImageCase) -> None:
    """And they have the base of the last release, so that they agree with it where the facts do."""
    newest = next((case for case in row.cases if not case.at_least), None)
    has_base = newest is not None and bool(newest.base or newest.require)

    assert not case.status.certain
    assert case.base or case.require or not has_base
