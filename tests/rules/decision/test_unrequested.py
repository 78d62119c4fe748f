"""Model servers in pods that request no GPU."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.unrequested import servers_without_gpu
from rules.model.decision import AdmissionRequest
from tests.support.builders import pod
from tests.support.node_builders import shipped

VLLM: dict[str, Any] = {"image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "Qwen/Qwen2.5-7B-Instruct"]}


def found(document: dict[str, Any], kind: str = "Pod", group: str = "") -> list[tuple[str, str]]:
    """Return place and text of each server without a GPU in an object."""
    request = AdmissionRequest("CREATE", group, kind, "team", document, mutating=False)
    return [(path, reason.en) for path, reason in servers_without_gpu(shipped(), request)]


def of_pod(*containers: dict[str, Any], **fields: Any) -> list[tuple[str, str]]:
    """Return what is found in a pod; fields: of its spec, or `annotations`."""
    metadata = {"name": "p", "annotations": fields.pop("annotations", {})}
    named = [{"name": f"c{index}"} | container for index, container in enumerate(containers)]
    return found({"kind": "Pod", "metadata": metadata, "spec": {"containers": named} | fields})


SERVERS: list[tuple[str, dict[str, Any]]] = [
    ("vLLM", VLLM),
    (
        "vLLM",
        {"image": "example.com/vllm/vllm-openai:v0.11.0", "args": ["Qwen/Qwen3-8B", "--port=80"]},
    ),
    ("vLLM", {"image": "team/app:1", "command": ["sh", "-c", "exec vllm serve Qwen/Qwen3-8B"]}),
    ("vLLM", {"image": "team/app:1", "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"]}),
    ("SGLang", {"image": "lmsysorg/sglang:v0.5.5", "command": ["python3", "-m", "sglang.launch_server"]}),
    (
        "Text Generation Inference",
        {"image": "ghcr.io/huggingface/text-generation-inference:3.3.5", "args": ["--model-id=gpt2"]},
    ),
    ("LMDeploy", {"image": "openmmlab/lmdeploy:v0.10", "command": ["lmdeploy", "serve", "api_server", "m"]}),
    ("TensorRT-LLM", {"image": "team/trtllm:1", "command": ["trtllm-serve", "Qwen/Qwen3-8B"]}),
]


@pytest.mark.parametrize(("server", "container"), SERVERS)
def test_a_model_server_without_a_gpu_is_named(server: str, container: dict[str, Any]) -> None:
    """With what to write; and what is suggested is fine."""
    reason = (
        f"no container asks for a GPU, which {server} in container 'c0' needs: "
        "set one in its resources.limits, such as nvidia.com/gpu: 1"
    )

    assert [("spec.containers[0]", reason)] == of_pod(container)
    assert [] == of_pod(container | {"resources": {"limits": {"nvidia.com/gpu": 1}}})


@pytest.mark.parametrize(
    ("flag", "is_named"),
    [
        ("--tensor-parallel-size=2", True),
        ("--tp-size 4", True),
        ("--num-shard=16", True),
        ("--tensor-parallel-size=1", False),
        ("--no-tp-size=2", False),
        ("--tensor-parallel-size=2 --device cpu", False),
    ],
)
def test_a_flag_for_several_gpus_without_a_gpu_is_named(flag: str, is_named: bool) -> None:
    """Of any program: it is no model server that is known."""
    container = {"image": "team/app:1", "command": ["python3", "serve.py", *flag.split()]}
    reasons = [reason for _, reason in of_pod(container)]

    assert is_named is bool(reasons)
    assert all(f"asks for a GPU, which `{flag}` in container 'c0' needs" in reason for reason in reasons)


@pytest.mark.parametrize(
    "container",
    [
        {"image": "busybox"},
        {"image": "ollama/ollama:0.12.0", "args": ["serve"]},
        {"image": "nvcr.io/nvidia/tritonserver:25.10-py3", "command": ["tritonserver"]},
        {"image": "kserve/huggingfaceserver:v0.15.0", "args": ["--model_name=bert"]},
        {"image": "vllm/vllm-openai-cpu:v0.11.0", "args": ["--model", "m"]},
        {"image": "vllm/vllm-openai:v0.11.0", "command": ["sleep", "infinity"]},
        {"image": "vllm/vllm-openai:v0.11.0", "command": ["vllm", "bench", "serve"]},
        {
            "image": "vllm/vllm-openai:v0.11.0",
            "command": ["huggingface-cli", "download"],
            "args": ["--model"],
        },
        {"image": "lmsysorg/sglang-router:v0.2", "command": ["python3", "-m", "sglang_router.launch_router"]},
        {"image": "openmmlab/lmdeploy:v0.10", "command": ["lmdeploy", "serve", "proxy"]},
        {"image": "team/trtllm:1", "command": ["trtllm-serve", "disaggregated", "-c", "x.yaml"]},
        {"image": "team/app:1", "command": ["python", "-m", "sglang.launch_server", "--device", "cpu"]},
        VLLM | {"args": ["--model=m", "--data-parallel-size-local=0"]},
        VLLM | {"env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "40"}]},
        VLLM | {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
        VLLM | {"resources": {"limits": {"amd.com/gpu": 1}}},
        VLLM | {"resources": {"limits": {"example.com/accelerator": 1}}},
        {"image": "vllm/vllm-openai:v0.11.0", "args": ["--model", "x" * 200_000]},
        {"image": 7, "command": "malformed", "args": [None]},
    ],
)
def test_what_runs_without_a_gpu_or_gets_one_is_silent(container: dict[str, Any]) -> None:
    """Images for the CPU, modes for the CPU, clients, routers, and other ways to get a GPU."""
    assert [] == of_pod(container)


def test_a_gpu_of_another_container_may_be_for_the_server() -> None:
    """The runtime of some clusters gives it to both."""
    assert [] == of_pod(VLLM, {"image": "busybox", "resources": {"limits": {"nvidia.com/gpu": 1}}})


def test_a_network_device_is_no_gpu() -> None:
    """Though it is an extended resource."""
    assert 1 == len(of_pod(VLLM | {"resources": {"limits": {"rdma/hca": 1}}}))


def test_a_claim_or_annotation_may_give_a_gpu() -> None:
    """Of Dynamic Resource Allocation, or of a scheduler."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]

    assert [] == of_pod(VLLM | {"resources": {"claims": [{"name": "gpu"}]}}, resourceClaims=claims)
    assert [] == of_pod(VLLM, annotations={"gpu-fraction": "0.5"})


def test_each_pod_is_told_once() -> None:
    """By its first server."""
    assert 1 == len(of_pod(VLLM, VLLM))


def test_resources_of_a_predictor_are_of_no_container() -> None:
    """They are where the page of some InferenceServices has them; moved, they are fine."""
    container = {"name": "kserve-container"} | VLLM
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    kind = {"kind": "InferenceService", "group": "serving.kserve.io"}

    wrong = found({"spec": {"predictor": {"containers": [container], "resources": resources}}}, **kind)
    right = found({"spec": {"predictor": {"containers": [container | {"resources": resources}]}}}, **kind)

    reason = (
        "no container asks for a GPU, which vLLM in container 'kserve-container' needs: "
        "spec.predictor.resources is of no container; move it into the container"
    )
    assert ([("spec.predictor.resources", reason)], []) == (wrong, right)


def test_a_head_of_several_pods_may_have_no_gpu() -> None:
    """Its workers have them."""
    head = {"spec": {"headGroupSpec": {"template": pod(VLLM | {"name": "head"})}}}

    assert [] == found(head, "RayCluster", "ray.io")


def test_what_refers_to_a_template_may_ask_for_a_gpu() -> None:
    """An InferenceService, for the containers of its runtime."""
    container = {"name": "kserve-container"} | VLLM

    assert [] == found({"spec": {"containers": [container]}}, "ServingRuntime", "serving.kserve.io")


def test_a_gpu_of_another_pod_of_the_object_may_be_for_the_server() -> None:
    """Of the worker of an InferenceService."""
    container, gpu = {"name": "main"} | VLLM, {"limits": {"nvidia.com/gpu": 1}}
    worker = {"containers": [container | {"resources": gpu}]}
    document = {"spec": {"predictor": {"containers": [container], "workerSpec": worker}}}

    assert [] == found(document, "InferenceService", "serving.kserve.io")
