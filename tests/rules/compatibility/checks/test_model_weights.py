"""The weights of a model against the memory of the GPUs that a container requests."""

from __future__ import annotations

from typing import Any

import pytest

from rules.compatibility.checks.model_weights import ModelWeightsCheck
from rules.cuda.image_catalog import built_in_catalog
from rules.cuda.requirements import container_facts, requirements_of
from rules.kube.pod import Pod
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.builders import patched, warning_texts
from tests.support.node_builders import (
    A100,
    GPU,
    Node,
    decided,
    gfd,
    gpu_pod,
    inventory,
    judged,
    node,
    shipped,
    targets,
)

VLLM = "vllm/vllm-openai:v0.9.2"
LLAMA = "--model=meta-llama/Llama-3.1-70B-Instruct"
AWQ = "--model=hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4"
QWEN_AWQ = "--model=Qwen/Qwen2.5-72B-Instruct-AWQ"
LABEL = "nvidia.com/gpu.memory"
LARGER = "or use a GPU with 74Gi of memory or more, or use a model with weights of 4 bits"
A10, A40 = ("NVIDIA-A10", "8.6"), ("NVIDIA-A40", "8.6")


def check(
    *args: str, gpus: int = 1, level: Level = Level.INCOMPATIBLE, virtual: bool = False, **labels: Any
) -> list[CheckResult]:
    """Return the results on an A10 for a container with GPUs; labels: other facts of the node."""
    limits = {GPU: gpus}
    document = gpu_pod(VLLM, *args, limits=limits)
    (container,) = Pod(document, document).containers
    needed = requirements_of(container_facts(container, {}), built_in_catalog())
    facts: dict[str, Any] = {"product": "NVIDIA-A10", "memory_mib": 23028, "compute_capability": (8, 6)}
    policy = SharingPolicy(virtual=virtual, checks=Checks(model=level))
    return [*ModelWeightsCheck().on_node(policy, needed, NodeCapabilities(**facts | labels))]


def cluster(name: str, gpu: tuple[str, str], memory: int | None, count: int = 8) -> Node:
    """Return a node with this memory of each GPU, in MiB, if a label reports it."""
    labels = {LABEL: str(memory)} if memory else {}
    return node(name, gfd("12.8", gpu, **labels), **{GPU: count})


def test_weights_that_are_larger_than_the_memory_are_an_error_with_the_sum() -> None:
    """With what the server may use of the memory of the data sheet, and with what fits."""
    (result,) = check(LLAMA)

    assert Level.INCOMPATIBLE is result.level
    assert (
        "131.4 GiB of weights on each GPU, and vLLM 0.9.2 uses at most 21.6 GiB there (0.9 × 24.0 GiB)"
    ) == result.reason.en
    assert (
        "vLLM 0.9.2 loads meta-llama/Llama-3.1-70B-Instruct: 70.55 billion parameters, "
        "at least 131.4 GiB of weights on 1 × GPU"
    ) == result.origin.en
    assert (
        "request 8 GPUs and set `--tensor-parallel-size=8`, or use a GPU with 147Gi of memory or more"
    ) == result.remedy.en


def test_mission_13_weights_that_only_the_name_says_warn_with_the_sum() -> None:
    """Also by a rule that denies; with 4 bits, on more GPUs and on a larger one they fit."""
    (result,) = check("--model=acme/Support-70B")

    assert Level.UNSTABLE is result.level
    assert (
        "by its name acme/Support-70B has 116.0 GiB of weights on each GPU, and vLLM 0.9.2 uses at most "
        "20.2 GiB there (0.9 × 22.5 GiB)"
    ) == result.reason.en
    assert (
        "vLLM 0.9.2 loads acme/Support-70B: about 70 billion parameters by its name, "
        "at least 116.0 GiB of weights on 1 × GPU"
    ) == result.origin.en
    assert [] == [
        *check("--model=acme/Support-32B-AWQ"),
        *check("--model=acme/Support-70B", "-tp=8", gpus=8),
        *check("--model=acme/Support-70B", product="NVIDIA-B200", memory_mib=183359),
        *check("--model=acme/Support"),
    ]


@pytest.mark.parametrize(
    ("args", "gpus", "labels", "remedy"),
    [
        (
            [LLAMA, "-tp=2"],
            2,
            {},
            f"request 8 GPUs and set `-tp=8`, {LARGER}",
        ),
        (
            [LLAMA, "--tensor-parallel-size", "2"],
            2,
            {"product": "NVIDIA-A40", "memory_mib": 46068},
            f"request 4 GPUs and set `--tensor-parallel-size=4`, {LARGER}",
        ),
        ([LLAMA, "-pp=2"], 2, {}, LARGER.removeprefix("or ")),
        (
            ["--model=meta-llama/Llama-3.1-405B-Instruct"],
            1,
            {},
            "use a smaller model",
        ),
    ],
)
def test_the_fix_names_gpus_that_have_the_memory(
    args: list[str], gpus: int, labels: dict[str, Any], remedy: str
) -> None:
    """More of them, larger ones, or weights with fewer bits, if these are enough."""
    (result,) = check(*args, gpus=gpus, **labels)

    assert remedy == result.remedy.en


@pytest.mark.parametrize(
    ("args", "gpus", "labels", "level"),
    [
        ([LLAMA, "--num-gpu-blocks-override=10"], 1, {}, Level.UNSTABLE),
        ([LLAMA, "--cpu-offload-gb=10"], 1, {}, Level.UNSTABLE),
        ([LLAMA, "-tp=4"], 2, {}, Level.UNSTABLE),  # ranks in other pods
        ([AWQ], 1, {}, Level.UNSTABLE),  # a copy
        ([LLAMA], 1, {"sharing_strategy": "time-slicing"}, Level.UNSTABLE),
        ([LLAMA], 1, {"product": "NVIDIA-A10-SHARED"}, Level.UNSTABLE),
        ([LLAMA], 1, {"product": None}, Level.UNSTABLE),  # the memory of the data sheet is unknown
        ([LLAMA], 1, {"sharing_strategy": "none"}, Level.INCOMPATIBLE),
    ],
)
def test_what_may_run_all_the_same_is_a_warning(
    args: list[str], gpus: int, labels: dict[str, Any], level: Level
) -> None:
    """Flags that keep weights elsewhere, ranks of other pods, copies, and GPUs that are not known."""
    assert [level] == [result.level for result in check(*args, gpus=gpus, **labels)]


@pytest.mark.parametrize(
    ("args", "gpus", "labels"),
    [
        ([LLAMA], 1, {"memory_mib": None, "product": None}),
        ([LLAMA], 1, {"mig_devices": True}),
        ([LLAMA], 1, {"virtual": True}),
        ([LLAMA], 1, {"level": Level.COMPATIBLE}),
        ([LLAMA, "-tp=8"], 8, {}),
        ([LLAMA, "--cpu-offload-gb=120"], 1, {}),
        ([LLAMA, "--config=/etc/vllm.yaml"], 1, {}),
        ([AWQ], 1, {"product": "NVIDIA-A40", "memory_mib": 46068}),
        (["--model=team/llama-of-ours"], 1, {}),
        (["--model=meta-llama/Llama-3.1-8B-Instruct"], 1, {}),
    ],
)
def test_nothing_is_said_of_unknown_memory_of_mig_devices_shares_and_what_fits(
    args: list[str], gpus: int, labels: dict[str, Any]
) -> None:
    """An unknown model needs nothing."""
    assert [] == check(*args, gpus=gpus, **labels)


def test_a_model_without_float16_has_twice_the_weights_below_compute_capability_8() -> None:
    """vLLM then takes float32: gemma-3-12b on a T4 does not fit, on an A2 it does not either."""
    t4: dict[str, Any] = {"product": "Tesla-T4", "memory_mib": 15360, "compute_capability": (7, 5)}
    (result,) = check("--model=google/gemma-3-12b-it", **t4)

    assert result.reason.en.startswith("43.8 GiB of weights on each GPU")


SMALL = "--model=Qwen/Qwen2.5-7B-Instruct"
A100_80: dict[str, Any] = {"product": "NVIDIA-A100-SXM4-80GB", "memory_mib": 81920, "mig_devices": True}
SLICE = A100_80 | {"product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "memory_mib": 9728}


@pytest.mark.parametrize(
    ("model", "labels", "levels"),
    [
        (SMALL, SLICE, [Level.INCOMPATIBLE]),
        (SMALL, SLICE | {"product": "NVIDIA-A100-SXM4-80GB-MIG-2g.20gb", "memory_mib": 19968}, []),
        (SMALL, SLICE | {"memory_mib": None}, [Level.INCOMPATIBLE]),
        (LLAMA, A100_80 | {"mig_strategy": "mixed"}, [Level.INCOMPATIBLE]),  # a GPU that is not partitioned
        (SMALL, A100_80 | {"mig_strategy": "mixed"}, []),
        (LLAMA, A100_80, []),  # a device of unknown size
    ],
)
def test_mission_14_a_mig_device_has_the_memory_of_its_profile(
    model: str, labels: dict[str, Any], levels: list[Level]
) -> None:
    """By strategy `single` the resource of whole GPUs is one; by `mixed` they have resources of their own."""
    assert levels == [result.level for result in check(model, **labels)]


def test_mission_14_the_fix_for_a_mig_device_is_a_larger_one() -> None:
    """Several do not help. More than the rounded name says is not there: 10.5 GiB."""
    (result,) = check(SMALL, **SLICE)

    assert result.reason.en.endswith("uses at most 9.4 GiB there (0.9 × 10.5 GiB)")
    assert result.remedy.en.startswith("use a MIG device or a GPU with 16Gi of memory or more, or ")


@pytest.mark.parametrize(
    ("model", "profile", "allowed"),
    [
        (SMALL, "1g.10gb", False),
        (SMALL, "1g.20gb", True),
        ("--model=Qwen/Qwen2.5-7B-Instruct-AWQ", "1g.10gb", True),
        (SMALL, "small", True),
    ],
)
def test_mission_14_the_profile_that_a_container_requests_has_enough_memory(
    model: str, profile: str, allowed: bool
) -> None:
    """Without nodes, too; a name that an operator chose says nothing."""
    document = gpu_pod(VLLM, model, limits={f"nvidia.com/mig-{profile}": 1})

    assert allowed is judged(shipped(), inventory(), document).allowed


def test_affinity_leads_to_nodes_with_the_memory_and_to_those_without_a_label() -> None:
    """Not to those whose GPUs are too small."""
    nodes = [cluster("small", A10, 23028), cluster("large", A40, 46068), cluster("unknown", A40, None)]
    document = gpu_pod(VLLM, QWEN_AWQ)
    decision = decided(nodes, document)

    assert decision.allowed
    assert ["large", "unknown"] == targets(nodes, document, decision)
    assert patched(document, decision)


def test_without_a_label_of_the_memory_that_of_the_data_sheet_counts() -> None:
    """It is at least what the driver reports. A node of an unknown GPU is compatible, without a warning."""
    unknown = ("NVIDIA-X1", "8.6")
    of_cloud = node("gke", {"cloud.google.com/gke-accelerator": "nvidia-l4"})
    decisions = [
        decided([nodes], gpu_pod(VLLM, LLAMA))
        for nodes in (cluster("known", A10, None), of_cloud, cluster("new", unknown, None))
    ]

    assert [False, False, True] == [decision.allowed for decision in decisions]
    assert () == warning_texts(decisions[-1])


@pytest.mark.parametrize(
    ("args", "gpus", "gpu", "memory", "allowed"),
    [
        ([LLAMA], 1, A10, 23028, False),
        ([LLAMA, "--tensor-parallel-size=8"], 8, A10, 23028, True),
        ([AWQ], 1, A40, 46068, True),
        ([LLAMA], 1, A100, 81920, False),
        ([LLAMA, "--tensor-parallel-size=2"], 2, A100, 81920, True),
    ],
)
def test_mission_13_llama_3_1_70b_needs_its_weights_in_gpu_memory(
    args: list[str], gpus: int, gpu: tuple[str, str], memory: int, allowed: bool
) -> None:
    """One GPU of 24 GB is not enough; the fix, or a quantized copy on 48 GB, is admitted."""
    document = gpu_pod(VLLM, *args, limits={GPU: gpus})
    decision = judged(shipped(), inventory(cluster("gpu", gpu, memory)), document)

    assert allowed is decision.allowed
