"""The data type of a model on GPUs without bfloat16, and one that its server refuses."""

from __future__ import annotations

import pytest

from rules.compatibility.checks.model_precision import ModelPrecisionCheck
from rules.model.check_result import CheckResult, Level
from rules.model.sharing import Checks, SharingPolicy
from rules.nodes.node_capabilities import NodeCapabilities
from tests.support.node_builders import GPU, decided, gfd, gpu_pod, inventory, judged, node, shipped, targets
from tests.support.node_builders import V100 as V100_GPU
from tests.support.requirement_builders import requirements

GKE_GPU = "cloud.google.com/gke-accelerator"
OLD_VLLM, VLLM = "vllm/vllm-openai:v0.6.3", "vllm/vllm-openai:v0.9.2"
LATER_VLLM = "vllm/vllm-openai:v0.8.5.post1"
QWEN = "--model=Qwen/Qwen2.5-7B-Instruct"
GEMMA = "--model=google/gemma-2-9b-it"
V100, A100, UNKNOWN = (
    NodeCapabilities(compute_capability=capability) for capability in [(7, 0), (8, 0), None]
)


def check(
    node: NodeCapabilities, image: str, *args: str, level: Level = Level.INCOMPATIBLE
) -> list[CheckResult]:
    """Return the results on a node, and on all."""
    policy, needed = SharingPolicy(checks=Checks(model=level)), requirements(image, *args)
    check = ModelPrecisionCheck()
    return [*check.on_any_node(policy, needed), *check.on_node(policy, needed, node)]


def test_bfloat16_of_the_config_is_an_error_on_a_gpu_without_it_and_the_fix_is_a_flag() -> None:
    """The origin names model, version and flag."""
    (result,) = check(V100, OLD_VLLM, QWEN)

    assert (Level.INCOMPATIBLE, "compute capability 7.0, below 8.0") == (result.level, result.reason.en)
    assert "set --dtype=half, or use a GPU of compute capability 8.0 or higher" == result.remedy.en
    assert (
        "vLLM 0.6.3 without `--dtype` uses the data type of Qwen/Qwen2.5-7B-Instruct, bfloat16, "
        "which needs compute capability 8.0"
    ) == result.origin.en


def test_a_warning_names_the_data_type_that_the_gpu_lacks() -> None:
    """It does not say what it is that needs a newer GPU elsewhere, as a denial does."""
    (result,) = check(V100, OLD_VLLM, QWEN, level=Level.UNSTABLE)

    assert (Level.UNSTABLE, f"{result.origin.en}; the GPU has 7.0") == (result.level, result.reason.en)


@pytest.mark.parametrize(
    ("node", "image", "args", "level"),
    [
        (A100, OLD_VLLM, [QWEN], Level.INCOMPATIBLE),
        (UNKNOWN, OLD_VLLM, [QWEN], Level.INCOMPATIBLE),
        (V100, OLD_VLLM, [QWEN, "--dtype=half"], Level.INCOMPATIBLE),
        (V100, VLLM, [QWEN], Level.INCOMPATIBLE),
        (V100, OLD_VLLM, [QWEN], Level.COMPATIBLE),
        (V100, VLLM, [GEMMA], Level.INCOMPATIBLE),
        (V100, VLLM, [GEMMA, "--dtype=auto"], Level.INCOMPATIBLE),
    ],
)
def test_nothing_is_said_with_bfloat16_with_the_fix_and_of_later_versions(
    node: NodeCapabilities, image: str, args: list[str], level: Level
) -> None:
    """Also if the compute capability is unknown."""
    assert [] == check(node, image, *args, level=level)


def test_mission_13_the_gpu_of_a_cloud_is_known_without_gpu_feature_discovery() -> None:
    """Nodes of GKE have a label of the cloud only; affinity uses it if other nodes fit."""
    v100, l4 = (node(gpu, {GKE_GPU: gpu}) for gpu in ("nvidia-tesla-v100", "nvidia-l4"))
    document = gpu_pod("vllm/vllm-openai:v0.6.1", "--model=google/gemma-2-2b-it")
    alone, beside = decided([v100], document), decided([v100, l4], document)

    assert (False, True) == (alone.allowed, beside.allowed)
    assert ["nvidia-l4"] == targets([v100, l4], document, beside)


def test_a_model_without_float16_takes_float32() -> None:
    """By a flag, or by itself; asking for float16 is refused on any GPU from 0.9.1 on."""
    (old,) = check(V100, LATER_VLLM, GEMMA)
    (refused,) = check(A100, VLLM, GEMMA, "--dtype=half")

    assert old.remedy.en.startswith("set --dtype=float32")
    assert [] == check(V100, LATER_VLLM, GEMMA, "--dtype=float32")
    assert (Level.INCOMPATIBLE, "set `--dtype=auto`") == (refused.level, refused.remedy.en)


@pytest.mark.parametrize("dtype", [[], ["--dtype=half"], ["--dtype=float32"]])
@pytest.mark.parametrize("version", ["0.5.4", "0.6.1.post2", "0.6.4.post1"])
def test_vllm_up_to_0_6_4_runs_gemma_2_on_no_older_gpu_whatever_the_data_type(
    version: str, dtype: list[str]
) -> None:
    """So no data type is suggested: https://github.com/vllm-project/vllm/issues/8929."""
    image = f"vllm/vllm-openai:v{version}"
    model = "google/gemma-2-2b-it"
    (result,) = check(V100, image, f"--model={model}", *dtype)

    assert Level.INCOMPATIBLE is result.level
    assert "use a GPU of compute capability 8.0 or higher" == result.remedy.en
    assert (
        f"vLLM {version} runs the attention of {model} only with compute capability 8.0 or higher"
    ) == result.origin.en
    assert [] == check(A100, image, f"--model={model}", *dtype)


def test_the_quantization_of_gpt_oss_needs_a_newer_gpu() -> None:
    """There is no other way."""
    (result,) = check(V100, "vllm/vllm-openai:v0.11.0", "--model=openai/gpt-oss-20b")

    assert (Level.INCOMPATIBLE, "use a GPU of compute capability 8.0 or higher") == (
        result.level,
        result.remedy.en,
    )
    assert [] == check(A100, "vllm/vllm-openai:v0.11.0", "--model=openai/gpt-oss-20b")


@pytest.mark.parametrize(
    ("image", "args", "allowed"),
    [
        (OLD_VLLM, [QWEN], False),
        (OLD_VLLM, [QWEN, "--dtype=half"], True),
        (VLLM, [QWEN], True),
        (OLD_VLLM, [GEMMA], False),
        (OLD_VLLM, [GEMMA, "--dtype=float32", "-tp=4"], False),
        (LATER_VLLM, [GEMMA], False),
        (LATER_VLLM, [GEMMA, "--dtype=float32", "-tp=4"], True),
        (VLLM, [GEMMA, "--dtype=half"], False),
        (VLLM, [GEMMA, "--dtype=auto", "-tp=4"], True),
    ],
)
def test_mission_13_a_model_with_bfloat16_on_v100(image: str, args: list[str], allowed: bool) -> None:
    """Denied with vLLM 0.6.3, admitted with 0.9.2, and with the fix of each message."""
    nodes = [node("v100", gfd("12.8", V100_GPU, **{"nvidia.com/gpu.memory": "32768"}))]
    document = gpu_pod(image, *args, limits={GPU: 4})

    assert allowed is judged(shipped(), inventory(nodes), document).allowed
