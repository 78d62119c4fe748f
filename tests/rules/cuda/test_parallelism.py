"""The number of GPUs that parallelism flags need in one container."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.framework_flags import (
    Parallelism,
    command_line,
    flag_searches,
    parallelism,
    parallelism_variables,
)
from rules.cuda.tables import BUILT_IN
from rules.text.bounded_cache import OverBudgetError

VLLM = "vllm/vllm-openai:v0.9.0"
SGLANG = "lmsysorg/sglang:v0.5.3"
TGI = "ghcr.io/huggingface/text-generation-inference:3.3.7"


def found(image: str, *words: str, **env: str) -> tuple[Parallelism, ...]:
    """Return what a container needs. The variable SECRET is unknown."""
    return parallelism(
        BUILT_IN, image, command_line(BUILT_IN, words, env, {"SECRET"}, parallelism_variables(BUILT_IN))
    )


def needed(image: str, *words: str, **env: str) -> list[str]:
    """Return what a container needs; `?`: uncertain, `/2`: on two nodes, `/*`: on an unknown number."""
    nodes = {None: "/*", 1: ""}
    return [
        f"{log.gpus}{nodes.get(log.nodes, f'/{log.nodes}')}{'' if log.certain else '?'}"
        for log in found(image, *words, **env)
    ]


@pytest.mark.parametrize(
    ("image", "words", "gpus"),
    [
        # vLLM
        (VLLM, ["--tensor-parallel-size", "4"], ["4"]),
        (VLLM, ["--tensor-parallel-size=4"], ["4"]),
        (VLLM, ["--tensor_parallel_size=4"], ["4"]),
        (VLLM, ["-tp", "4"], ["4"]),
        (VLLM, ["-tp=4", "-pp=2"], ["8"]),
        (VLLM, ["-tp=8", "--tensor-parallel-size=2"], ["2"]),
        (VLLM, ["--tensor-parallel-size=1"], ["1"]),
        (VLLM, ["-tp=2", "--data-parallel-size=4"], ["8?"]),
        (VLLM, ["-tp=2", "-dp=4", "-dpl=2"], ["4?"]),
        (VLLM, ["-tp=2", "-dp=4", "-dpl=0", "--headless"], []),
        (VLLM, ["-tp=2", "-dp=4", "--data-parallel-rank=1"], ["2?"]),
        (VLLM, ["--max-model-len=4096"], []),
        ("team/app:v1", ["vllm", "serve", "m", "-tp", "2"], ["2"]),
        ("team/app:v1", ["python3", "-m", "vllm.entrypoints.openai.api_server", "-tp", "2"], ["2"]),
        ("team/app:v1", ["serve", "m", "-tp", "2"], []),
        # SGLang
        (SGLANG, ["python3", "-m", "sglang.launch_server", "--tp", "4"], ["4"]),
        (SGLANG, ["python3", "-m", "sglang.launch_server", "--tp-size=4", "--dp-size=2"], ["8?"]),
        (
            SGLANG,
            ["python3", "-m", "sglang.launch_server", "--tp=4", "--dp=4", "--enable-dp-attention"],
            ["4?"],
        ),
        # others
        (TGI, ["--num-shard", "2"], ["2"]),
        ("openmmlab/lmdeploy:v0.9.2", ["lmdeploy", "serve", "api_server", "m", "--tp=2"], ["2?"]),
        (
            "nvcr.io/nvidia/tensorrt-llm/release:1.0",
            ["trtllm-serve", "m", "--tp_size", "2", "--pp_size=2"],
            ["4"],
        ),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.0", ["trtllm-build", "--tp_size", "2"], []),
        ("kserve/huggingfaceserver:v0.15.0", ["--tensor-parallel-size=2"], ["2?"]),
        ("team/app:v1", ["torchrun", "--nproc_per_node=4", "train.py"], ["4?"]),
        ("team/app:v1", ["python", "-m", "torch.distributed.run", "--nproc-per-node", "4", "t.py"], ["4?"]),
        ("team/app:v1", ["torchrun", "--nproc_per_node=gpu", "train.py"], []),
        ("team/app:v1", ["python", "launch.py", "--nproc_per_node=4"], []),
        ("team/app:v1", ["deepspeed", "--num_gpus", "4", "train.py"], ["4?"]),
        ("team/app:v1", ["python", "train.py", "--deepspeed", "x.json", "--num_gpus=4"], []),
        ("team/app:v1", ["accelerate", "launch", "--num_processes", "4", "train.py"], ["4?"]),
        ("team/app:v1", ["torchrun", "--nproc_per_node=2", "-m", "vllm.entrypoints.x", "-tp=4"], ["4", "2?"]),
    ],
)
def test_flags_say_how_many_gpus_a_program_needs(image: str, words: list[str], gpus: list[str]) -> None:
    """The product of all sizes; not certain for processes of a launcher, and for replicas."""
    assert gpus == needed(image, *words)


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        (["-tp=16", "--nnodes=2", "--node-rank=0"], ["16/2"]),
        (["-tp=16", "--nnodes", "$(SECRET)"], ["16/*"]),
        (["-tp=16", "--distributed-executor-backend", "ray"], ["16/*"]),
        (["-tp=4", "--distributed-executor-backend", "mp"], ["4"]),
        (["-tp=4", "--config=/etc/vllm.yaml"], ["4/*"]),
        (["-tp=16", "--node-rank=0"], ["16/*"]),
        (["sh", "-c", "ray start --head; vllm serve m -tp 16"], ["16/*"]),
        (
            ["sh", "-c", "bash multi-node-serving.sh leader --ray_cluster_size=2; vllm serve m -tp 16"],
            ["16/*"],
        ),
        (["sh", "-c", "vllm serve m -tp 16 --master-addr $LWS_LEADER_ADDRESS"], ["16/*"]),
    ],
)
def test_programs_on_several_nodes_share_the_gpus(words: list[str], gpus: list[str]) -> None:
    """Among a known or an unknown number of nodes."""
    assert gpus == needed(VLLM, *words)


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("vllm serve m -tp 4", ["4"]),
        ("exec vllm serve m --tensor-parallel-size $TP", ["2"]),
        ("vllm serve m --tensor-parallel-size ${SIZE:-2}", ["2?"]),
        ("TP=8\nvllm serve m --tensor-parallel-size $TP", ["8"]),
        ("vllm serve m --tensor-parallel-size $SECRET", []),
        ("vllm serve m -tp 4 -pp $SECRET", ["4"]),
        ("if [ -f x ]; then vllm serve m -tp 4; else vllm serve m -tp 2; fi", ["4?", "2?"]),
        ("vllm serve a -tp 2 & vllm serve b -tp 4", ["2", "4"]),
        ("python x.py -tp 4", ["4?"]),
        ("echo vllm serve m -tp 4", []),
    ],
)
def test_scripts_are_read(script: str, gpus: list[str]) -> None:
    """With the variables of the container. An unknown factor counts as 1; a branch is not certain."""
    assert gpus == needed(VLLM, "sh", "-c", script, TP="2")


def test_variables_say_how_many_gpus_a_program_needs() -> None:
    """TGI's, and those of KServe; a script may set them."""
    assert ["4"] == needed(TGI, NUM_SHARD="4")
    assert ["2"] == needed(TGI, "--num-shard=2", NUM_SHARD="4")
    assert ["4/*"] == needed(TGI, NUM_SHARD="4", SHARDED="false")
    assert ["2?"] == needed("kserve/huggingfaceserver:v0.15.0", TENSOR_PARALLEL_SIZE="2")
    assert [] == needed(VLLM, TENSOR_PARALLEL_SIZE="2")
    assert ["2"] == needed(TGI, "sh", "-c", "NUM_SHARD=2 text-generation-launcher")


def test_a_result_names_the_flags_as_written() -> None:
    """Those that are greater than 1."""
    (both,) = found(VLLM, "-tp=4", "--pipeline_parallel_size", "2", "-pcp", "1")

    assert ("vLLM", ("-tp=4", "--pipeline_parallel_size 2")) == (both.program, both.written)


@pytest.mark.parametrize(
    ("words", "exact"),
    [
        (["--tp=2"], True),
        (["--tp=2", "--base-gpu-id=2"], False),
        (["--tp=2", "--dp-size=$(SECRET)"], False),
        (["--tp=2", "--enable-dp-attention"], False),
        (
            ["sh", "-c", "python3 -m sglang.launch_server --tp 2 & python3 -m sglang.launch_server --tp 1"],
            False,
        ),
    ],
)
def test_a_server_alone_uses_no_other_gpus(words: list[str], exact: bool) -> None:
    """Unless there are further servers or replicas, or an unknown number of them."""
    assert {exact} == {log.exact for log in found(SGLANG, *words)}


@pytest.mark.parametrize("value", ["0", "-1", "two", "9999999", "²", "", "1e3"])
def test_what_is_no_number_of_gpus_says_nothing(value: str) -> None:
    """Neither 0, nor more than six digits."""
    assert [] == needed(VLLM, "--tensor-parallel-size", value)


def test_builds_for_other_accelerators_are_not_read() -> None:
    """As for compute capabilities."""
    assert [] == needed("vllm/vllm-openai-rocm:v0.9.0", "-tp=4")


def test_a_command_line_without_a_flag_is_not_read() -> None:
    """Part of a word is no flag."""
    assert [True, True, False, False] == [
        flag_searches(BUILT_IN)[1].found_in(line)
        for line in ("x --tp 2", "x --tensor_parallel_size=2", "x --tpu 2", "my-tp-server")
    ]


def test_many_servers_with_many_arguments_are_bounded() -> None:
    """Each server is read with all arguments, within the budget of the object."""
    script = "vllm serve m -tp 2 $@\n" * 500
    words = ["bash", "-c", script, *["x"] * 1000]

    with pytest.raises(OverBudgetError):
        needed("team/app:v1", *words)


@given(
    st.lists(st.text(max_size=20) | st.sampled_from(["-tp", "2", "vllm serve", "--num-shard=2", "torchrun"])),
    st.dictionaries(st.sampled_from(["NUM_SHARD", "SHARDED", "X"]), st.text(max_size=10)),
    st.text(max_size=30) | st.sampled_from([VLLM, SGLANG, TGI]),
)
def test_no_command_line_raises(words: list[str], env: dict[str, str], image: str) -> None:
    """And what is needed is a number of GPUs."""
    assert all(log.gpus > 0 for log in found(image, *words, **env))
