"""The model that a container serves, and what its server needs for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.fact_bundle import FactBundleError, read_all, read_bundle
from rules.cuda.image_catalog import built_in_catalog, catalog_of
from rules.cuda.requirements import container_facts, requirements_of
from rules.cuda.served_model import ModelRequirement, ModelWeights, splits_heads
from rules.cuda.tables import Facts, built_in_tables
from rules.kube.pod import Pod
from tests.support.fact_builders import bundle

OLD_VLLM = "vllm/vllm-openai:v0.6.3"
VLLM = "vllm/vllm-openai:v0.9.2"
SGLANG = "lmsysorg/sglang:v0.5.3"
TGI = "ghcr.io/huggingface/text-generation-inference:3.3.7"
KSERVE = "kserve/huggingfaceserver:v0.15.0-gpu"
NIM = "nvcr.io/nim/nvidia/llm-nim:2.0.4"
TRTLLM = "nvcr.io/nvidia/tensorrt-llm/release:1.0"
QWEN = "Qwen/Qwen2.5-7B-Instruct"
LLAMA = "meta-llama/Llama-3.1-70B-Instruct"
PHI = "microsoft/phi-4"
SOURCE = "internal.serving.kserve.io/storage-initializer-sourceuri"


def served(
    image: str, *args: str, gpus: int = 1, annotations: dict[str, str] | None = None, **fields: Any
) -> list[ModelRequirement]:
    """Return the models of a container; env: values by name; fields: others of it."""
    env = [{"name": name, "value": value} for name, value in fields.pop("env", {}).items()]
    limits = fields.pop("limits", {"nvidia.com/gpu": gpus})
    raw = {"name": "main", "image": image, "args": [*args], "env": env, "resources": {"limits": limits}}
    document = {"metadata": {}, "spec": {"containers": [raw | fields]}}
    (container,) = Pod(document, document).containers
    return [*requirements_of(container_facts(container, annotations or {}), built_in_catalog()).models]


def weights(image: str, *args: str, **fields: Any) -> ModelWeights:
    """Return the weights of the only model of a container."""
    (model,) = served(image, *args, **fields)
    assert model.weights
    return model.weights


def splits(image: str, *args: str) -> list[tuple[str, str, bool]]:
    """Return reason, fix and certainty of each way in which the model of a container cannot be split."""
    impossible = [split for model in served(image, *args, gpus=8) for split in model.splits]
    return [(split.reason.en, split.remedy.en, split.certain) for split in impossible]


@pytest.mark.parametrize(
    ("image", "args", "fields"),
    [
        (VLLM, ["--model", QWEN], {}),
        (VLLM, [f"--model={QWEN}", "--served-model-name=gpt-4"], {}),
        (VLLM, [QWEN, "--max-model-len=8192"], {}),
        (VLLM, [], {"command": ["vllm", "serve", QWEN]}),
        (VLLM, [f"vllm serve {QWEN} --port 8000"], {"command": ["/bin/sh", "-c"]}),
        (VLLM, ["exec vllm serve $MODEL"], {"command": ["sh", "-c"], "env": {"MODEL": QWEN}}),
        (VLLM, ["--model=$(MODEL)"], {"env": {"MODEL": QWEN}}),
        (VLLM, ["--model=/root/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/0a1b"], {}),
        ("team/app:v1", ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", QWEN], {}),
        (SGLANG, ["python3", "-m", "sglang.launch_server", "--model-path", QWEN], {}),
        (SGLANG, ["sglang", "serve", "--model", QWEN], {}),
        (TGI, [f"--model-id={QWEN}"], {}),
        (TGI, [], {"env": {"MODEL_ID": QWEN}}),
        (KSERVE, ["--model_name=qwen", f"--model_id={QWEN}"], {}),
        (KSERVE, ["--model_name=qwen"], {"annotations": {SOURCE: f"hf://{QWEN}:main"}}),
        (VLLM, ["--model=/mnt/models"], {"annotations": {SOURCE: f"hf://{QWEN}"}}),
        (VLLM, [], {"storageUri": f"hf://{QWEN}"}),
        (TRTLLM, ["trtllm-serve", QWEN, "--port=8000"], {}),
        (TRTLLM, ["trtllm-serve", "serve", QWEN], {}),
        ("openmmlab/lmdeploy:v0.9.2", ["lmdeploy", "serve", "api_server", QWEN], {}),
        (NIM, [], {"env": {"NIM_MODEL_PATH": f"hf://{QWEN}"}}),
        (NIM, [], {"env": {"NIM_MODEL_NAME": QWEN}}),
    ],
)
def test_a_server_names_its_model_by_flag_argument_variable_or_storage(
    image: str, args: list[str], fields: dict[str, Any]
) -> None:
    """With its organisation, so that its facts are known."""
    assert [QWEN] == [model.name for model in served(image, *args, **fields)]


LLMD = "ghcr.io/llm-d/llm-d-cuda:v0.8.1"


@pytest.mark.parametrize(
    ("kind", "spec", "args", "names"),
    [
        ("LLMInferenceService", {"model": {"uri": f"hf://{QWEN}"}}, [], [QWEN]),
        ("LLMInferenceService", {"model": {"uri": f"hf://{QWEN}"}}, ["--model=/mnt/models"], [QWEN]),
        ("LLMInferenceService", {"model": {"uri": f"hf://{QWEN}"}}, [f"--model={LLAMA}"], [LLAMA]),
        ("LLMInferenceService", {"model": {"uri": "pvc://models/qwen"}}, [], []),
        ("LLMInferenceService", {"model": "qwen"}, [], []),
        ("LLMInferenceService", {"model": {"uri": f"hf://{QWEN}"}, "parallelism": {"tensor": 2}}, [], []),
        ("LLMInferenceService", {"model": {"uri": f"hf://{QWEN}"}, "baseRefs": [{"name": "own"}]}, [], []),
        ("Deployment", {"model": {"uri": f"hf://{QWEN}"}}, [], []),
    ],
)
def test_mission_13_an_llm_inference_service_names_the_model_of_its_pods(
    kind: str, spec: dict[str, Any], args: list[str], names: list[str]
) -> None:
    """Its controller writes the command, so nothing is certain that the container does not say itself."""
    raw = {"name": "main", "image": LLMD, "args": args, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    template = {"containers": [raw]}
    document = {"kind": kind, "spec": spec | {"template": template}}
    (container,) = Pod(document, template, ("spec", "template")).containers
    models = requirements_of(container_facts(container, {}), built_in_catalog()).models

    assert names == [model.name for model in models]
    assert not any(model.weights.certain for model in models if model.weights and not args)


@pytest.mark.parametrize(
    ("image", "args", "fields"),
    [
        (VLLM, ["--model=/models/qwen"], {}),
        (VLLM, ["--model=/models/qwen"], {"annotations": {SOURCE: f"hf://{QWEN}"}}),
        (VLLM, ["--model=team/own-model"], {}),
        (VLLM, ["--model=$(MODEL)"], {}),
        (VLLM, [f"--served-model-name={QWEN}"], {}),
        (VLLM, [f"--model={QWEN}", "--config=/etc/vllm.yaml"], {}),
        (VLLM, [f"--model={QWEN}", '--hf-overrides={"num_hidden_layers": 4}'], {}),
        (VLLM, ["vllm", "serve", QWEN, f"--model={LLAMA}"], {}),
        (VLLM, ["vllm", "serve", "--port=8000"], {}),
        ("vllm/vllm-openai:v0.9.2-rocm", [f"--model={QWEN}"], {}),
        ("team/app:v1", ["python", "train.py", f"--model={QWEN}"], {}),
        ("team/app:v1", [QWEN], {}),
        ("team/app:v1", [], {"env": {"MODEL_ID": QWEN}}),
        (VLLM, [f"--model={QWEN}"], {"limits": {"nvidia.com/gpu": "many"}}),
        (VLLM, [f"--model={QWEN}"], {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4000"}}),
        (VLLM, [f"--model={QWEN}"], {"limits": {"nvidia.com/gpu.shared": "1"}}),
    ],
)
def test_nothing_is_known_of_other_models_and_of_shares(
    image: str, args: list[str], fields: dict[str, Any]
) -> None:
    """A path, an unknown name, another program or platform; a share has other memory."""
    assert [] == served(image, *args, **fields)


@pytest.mark.parametrize(
    ("image", "args", "certain"),
    [
        (OLD_VLLM, [f"--model={QWEN}"], [True]),
        (OLD_VLLM, [f"--model={QWEN}", "--dtype=auto"], [True]),
        ("vllm/vllm-openai:v0.8.5.post1", [f"--model={QWEN}"], [True]),
        ("vllm/vllm-openai:v0.9.0", [f"--model={QWEN}"], []),
        (VLLM, [f"--model={QWEN}"], []),
        ("vllm/vllm-openai:latest", [f"--model={QWEN}"], []),
        ("team/vllm:1", ["vllm", "serve", QWEN], []),
        (OLD_VLLM, [f"--model={QWEN}", "--dtype=half"], []),
        (OLD_VLLM, [f"--model={QWEN}", "--dtype=bfloat16"], []),  # a flag's own requirement
        (OLD_VLLM, [f"--model={QWEN}-AWQ"], []),
        (OLD_VLLM, [f"--model={QWEN}", "--quantization=fp8"], []),
        (OLD_VLLM, ["--model=meta-llama/Llama-2-7b-chat-hf"], []),
        (OLD_VLLM, ["--model=team/Qwen2.5-7B-Instruct"], [False]),  # a copy may have another config
        (OLD_VLLM, ["--model=Qwen/Qwen2.5-14B-Instruct"], [False]),  # its dtype is not verified
        (OLD_VLLM, [f"[ -f x ] && vllm serve {QWEN} || vllm serve {QWEN}"], [False]),
        (SGLANG, [f"--model-path={QWEN}"], []),
        (TGI, [f"--model-id={QWEN}"], []),
        (KSERVE, [f"--model_id={QWEN}"], []),
    ],
)
def test_vllm_up_to_0_8_5_takes_bfloat16_of_the_config_and_stops_without_it(
    image: str, args: list[str], certain: list[bool]
) -> None:
    """Later versions, an unknown version and other servers take float16."""
    precisions = [model.precision for model in served(image, *args) if model.precision]

    assert certain == [precision.certain for precision in precisions]
    assert {(8, 0)} >= {precision.since for precision in precisions}


def test_vllm_refuses_float16_for_a_model_that_has_none_and_takes_float32_on_older_gpus() -> None:
    """From 0.9.1 on: float32 doubles the weights."""
    gemma = "--model=google/gemma-3-12b-it"
    (refused,), (auto,), (before,) = (
        served(VLLM, gemma, "--dtype=half"),
        served(VLLM, gemma),
        served("vllm/vllm-openai:v0.9.0", gemma, "--dtype=half"),
    )

    assert refused.precision
    assert (None, True, "set `--dtype=auto`") == (
        refused.precision.since,
        refused.precision.certain,
        refused.precision.remedy.en,
    )
    assert "vLLM 0.9.2 refuses `--dtype=half` for google/gemma-3-12b-it" == refused.precision.reason.en
    assert auto.weights
    assert auto.weights.on_rank((7, 5)) == 2 * auto.weights.on_rank((8, 0))
    assert auto.precision is None
    assert before.precision is None


@pytest.mark.parametrize(
    ("image", "args", "needed"),
    [
        (VLLM, ["--model=openai/gpt-oss-20b"], []),  # not supported yet
        ("vllm/vllm-openai:v0.11.0", ["--model=unsloth/gpt-oss-20b-BF16"], []),
        ("vllm/vllm-openai:v0.11.0", ["--model=openai/gpt-oss-20b"], ["8.0"]),
        ("vllm/vllm-openai:latest", ["--model=openai/gpt-oss-20b"], ["8.0"]),
        ("vllm/vllm-openai:latest", ["--model=team/gpt-oss-20b"], ["8.0?"]),
        ("vllm/vllm-openai:latest", ["--model=openai/gpt-oss-20b", "-q=mxfp4"], []),  # that of the flag
        ("vllm/vllm-openai:latest", ["--model=Qwen/Qwen3-8B-FP8"], []),
    ],
)
def test_a_model_needs_what_the_quantization_of_its_files_does(
    image: str, args: list[str], needed: list[str]
) -> None:
    """As the value of the flag without which vLLM takes it from the config."""
    precisions = [model.precision for model in served(image, *args) if model.precision]

    assert needed == [f"{precision.since}{'' if precision.certain else '?'}" for precision in precisions]


def test_phi_4_cannot_be_split_into_4_parts_because_of_its_10_key_value_heads() -> None:
    """It has 40 attention heads, which 4 divides."""
    reason = (
        "vLLM 0.9.2 cannot split the 10 key-value heads of microsoft/phi-4 into 4 parts "
        "(`--tensor-parallel-size 4`)"
    )
    remedy = (
        "set `--tensor-parallel-size 2` and request 2 GPUs, "
        "or set `--tensor-parallel-size 2` and `--pipeline-parallel-size=2`"
    )

    assert [(reason, remedy, True)] == splits(VLLM, f"--model={PHI}", "--tensor-parallel-size", "4")


@pytest.mark.parametrize(
    ("image", "args", "heads", "certain"),
    [
        (VLLM, ["--model=Qwen/Qwen2.5-0.5B-Instruct", "-tp=4"], "14 attention heads", True),
        (VLLM, [f"--model={QWEN}", "-tp=8"], "28 attention heads", True),
        (VLLM, ["--model=google/gemma-3-1b-it", "-tp=8"], "4 attention heads", True),
        (VLLM, [f"--model={QWEN}", "-tp=3"], "28 attention heads", True),
        (SGLANG, [f"--model-path={QWEN}", "--tp=8"], "28 attention heads", True),
        (TGI, [f"--model-id={QWEN}", "--num-shard=8"], "28 attention heads", True),
        (TGI, [f"--model-id={PHI}", "--num-shard=4"], "10 key-value heads", False),
        (KSERVE, [f"--model_id={PHI}", "-tp=4"], "10 key-value heads", False),
        (VLLM, ["--model=team/phi-4", "-tp=4"], "10 key-value heads", False),
    ],
)
def test_parts_that_do_not_divide_the_heads_are_refused(
    image: str, args: list[str], heads: str, certain: bool
) -> None:
    """For certain by the code that was read, and if the name has its organisation."""
    ((reason, _, is_certain),) = splits(image, *args)

    assert (heads, certain) == (reason.partition("cannot split the ")[2].partition(" of ")[0], is_certain)


@pytest.mark.parametrize(
    ("image", "args"),
    [
        (VLLM, [f"--model={PHI}", "-tp=2"]),
        (VLLM, [f"--model={PHI}", "-tp=4", "-tp=1"]),
        (VLLM, [f"--model={PHI}", "-tp=$(N)"]),
        (VLLM, [f"--model={PHI}", "-tp=999999"]),  # a mistake
        (VLLM, [f"--model={LLAMA}", "-tp=16"]),  # each of 8 key-value heads twice
        (VLLM, ["--model=deepseek-ai/DeepSeek-V3", "-tp=16"]),  # latent attention
        (SGLANG, [f"--model-path={PHI}", "--tp=4", "--dp=4", "--enable-dp-attention"]),
        (VLLM, ["--model=Qwen/Qwen3-30B-A3B-FP8", "-tp=2"]),
        (VLLM, ["--model=Qwen/Qwen3-30B-A3B", "-tp=4"]),
        (VLLM, ["--model=Qwen/Qwen3-30B-A3B-FP8", "-tp=4", "--enable-expert-parallel"]),
        (VLLM, ["--model=RedHatAI/Qwen3-30B-A3B-FP8-dynamic", "-tp=4"]),
        ("vllm/vllm-openai:v0.29.0", ["--model=Qwen/Qwen3-30B-A3B-FP8", "-tp=4"]),
        ("vllm/vllm-openai:latest", ["--model=Qwen/Qwen3-30B-A3B-FP8", "-tp=4"]),
    ],
)
def test_parts_that_a_server_can_make_are_fine(image: str, args: list[str]) -> None:
    """Also with other rules for experts and latent attention."""
    assert [] == splits(image, *args)


@pytest.mark.parametrize(
    ("image", "args", "way"),
    [
        (VLLM, ["--model=Qwen/Qwen3-30B-A3B-FP8", "-tp=4"], "--enable-expert-parallel"),
        (SGLANG, ["--model-path=Qwen/Qwen3-30B-A3B-FP8", "--tp=4"], "--ep-size=4"),
    ],
)
def test_experts_with_block_wise_fp8_are_split_between_blocks_only(
    image: str, args: list[str], way: str
) -> None:
    """768 / 4 = 192 is no multiple of 128."""
    ((reason, remedy, certain),) = splits(image, *args)

    assert "768 / 4 is no multiple of 128" in reason
    assert remedy.startswith(f"add `{way}`, or set ")
    assert certain


@pytest.mark.parametrize(
    ("args", "gpus", "gib"),
    [
        ([f"--model={LLAMA}"], 1, "131.4"),
        ([f"--model={LLAMA}", "-tp=8"], 8, "16.4"),
        ([f"--model={LLAMA}", "-tp=2", "-pp=2"], 4, "32.8"),
        ([f"--model={LLAMA}", "--dtype=float32"], 1, "262.8"),
        ([f"--model={LLAMA}", "--cpu-offload-gb=100"], 1, "31.4"),
        ([f"--model={LLAMA}", "--quantization=bitsandbytes"], 1, "32.8"),
        ([f"--model={LLAMA}", "--load-format=bitsandbytes"], 1, "32.8"),
        ([f"--model={LLAMA}", "--load-format=safetensors"], 1, "131.4"),
        ([f"--model={LLAMA}-FP8"], 1, "65.7"),
        (["--model=Qwen/Qwen2.5-72B-Instruct-AWQ"], 1, "33.8"),
    ],
)
def test_weights_are_divided_among_the_ranks_and_lowered_by_quantization_and_offload(
    args: list[str], gpus: int, gib: str
) -> None:
    """At least; more is never said than the matrices have."""
    assert gib == f"{float(weights(VLLM, *args, gpus=gpus).on_rank((8, 0))) / 2**30:.1f}"


@pytest.mark.parametrize(
    ("image", "args", "fraction"),
    [
        (VLLM, [f"--model={LLAMA}"], 0.9),
        ("vllm/vllm-openai:v0.20.0", [f"--model={LLAMA}"], 0.92),
        ("vllm/vllm-openai:latest", [f"--model={LLAMA}"], 0.92),
        (VLLM, [f"--model={LLAMA}", "--gpu-memory-utilization=0.5"], 0.5),
        (VLLM, [f"--model={LLAMA}", "--gpu-memory-utilization=1.5"], 1),
        (VLLM, [f"--model={LLAMA}", "--gpu-memory-utilization=0"], 1),
        (VLLM, [f"--model={LLAMA}", "--gpu-memory-utilization=most"], 1),
        (VLLM, [f"--model={LLAMA}", "--kv-cache-memory-bytes=1G"], 1),
        (SGLANG, [f"--model-path={LLAMA}"], 1),
        (SGLANG, [f"--model-path={LLAMA}", "--mem-fraction-static", "0.8"], 0.8),
        (TGI, [f"--model-id={LLAMA}"], 1),
    ],
)
def test_a_server_uses_a_part_of_the_memory(image: str, args: list[str], fraction: float) -> None:
    """By its flag, or by its version; an unknown version uses as much as the newest."""
    assert fraction == float(weights(image, *args).fraction)


@pytest.mark.parametrize(
    ("image", "args", "fields", "certain"),
    [
        (VLLM, [f"--model={LLAMA}"], {}, True),
        ("vllm/vllm-openai:latest", [f"--model={LLAMA}"], {}, True),
        (VLLM, [f"--model={LLAMA}", "-tp=2"], {"gpus": 4}, True),
        (VLLM, [f"--model={LLAMA}", "-tp=8"], {"gpus": 4}, False),
        (VLLM, [f"--model={LLAMA}", "-tp=4", "-pp=2"], {"gpus": 4}, False),
        (VLLM, [f"--model={LLAMA}", "--num-gpu-blocks-override=100"], {}, False),
        (VLLM, [f"--model={LLAMA}", "--cpu-offload-gb=10"], {}, False),
        (VLLM, [f"--model={LLAMA}", "--nnodes=2"], {}, False),
        (VLLM, ["--model=team/Llama-3.1-70B-Instruct"], {}, False),
        (VLLM, ["vllm serve $MODEL"], {"command": ["sh", "-c"], "env": {"MODEL": LLAMA}}, True),
        (VLLM, [f"vllm serve ${{MODEL:-{LLAMA}}}"], {"command": ["sh", "-c"]}, False),
        (TGI, [f"--model-id={LLAMA}"], {}, True),
        (TGI, [f"--model-id={LLAMA}"], {"envFrom": [{"configMapRef": {"name": "tgi"}}]}, False),
        (NIM, [], {"env": {"NIM_MODEL_NAME": LLAMA}}, False),
        (KSERVE, [f"--model_id={LLAMA}"], {}, False),
    ],
)
def test_the_weights_are_certain_if_nothing_can_make_them_smaller(
    image: str, args: list[str], fields: dict[str, Any], certain: bool
) -> None:
    """On the container's own GPUs: more ranks than these may be on other nodes."""
    assert certain is weights(image, *args, **fields).certain


def test_text_generation_inference_uses_all_gpus_of_its_container() -> None:
    """Without a number of shards."""
    assert [4, 2] == [
        weights(TGI, f"--model-id={LLAMA}", *args, gpus=4).ranks for args in ([], ["--num-shard=2"])
    ]


@given(st.integers(1, 128), st.integers(1, 128), st.integers(1, 64))
def test_one_part_is_always_possible_and_replicated_heads_are_whole(heads: int, kv: int, parts: int) -> None:
    """So a fix with fewer parts exists."""
    assert splits_heads(heads, kv, 1)
    if splits_heads(heads, kv, parts):
        assert heads % parts == 0
        assert kv % parts == 0 or parts % kv == 0


def test_facts_of_a_release_before_models_know_no_model() -> None:
    """They are read; a wrong value of newer ones is an error, before they are in force."""

    def without(tables: dict[str, Any]) -> None:
        for framework in tables["frameworks"]["frameworks"].values():
            framework.pop("model", None)

    def wrong(tables: dict[str, Any]) -> None:
        tables["frameworks"]["frameworks"]["vllm"]["model"]["dtype"]["stops"] = "before 0.9"

    def release(change: Callable[[dict[str, Any]], None]) -> Facts:
        return Facts(read_bundle(bundle(change).encode(), built_in_tables()).tables.__getitem__)

    older = release(without)
    document = {"spec": {"containers": [{"name": "main", "image": OLD_VLLM, "args": [f"--model={QWEN}"]}]}}
    (container,) = Pod(document, document).containers

    read_all(older)
    assert () == requirements_of(container_facts(container, {}), catalog_of(older)).models
    with pytest.raises(FactBundleError, match=r"before 0\.9"):
        read_all(release(wrong))
