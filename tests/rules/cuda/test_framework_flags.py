"""Flags and variables of inference servers require a compute capability, by framework version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.framework_flags import flag_requirements

VLLM = "vllm/vllm-openai:v0.9.0"
SGLANG = "lmsysorg/sglang:v0.5.23"
TGI = "ghcr.io/huggingface/text-generation-inference:3.3.7"


def asked(image: str, *words: str, **env: str) -> list[str]:
    """Return the requirements of a container; `?` marks uncertain ones."""
    return [f"{need.compute}{'' if need.certain else '?'}" for need in flag_requirements(image, words, env)]


@pytest.mark.parametrize(
    ("image", "words", "capabilities"),
    [
        # vLLM, by image
        (VLLM, ["--dtype=bfloat16"], ["8.0"]),
        (VLLM, ["--dtype", "bfloat16"], ["8.0"]),
        (VLLM, ["--dtype", "BFloat16"], ["8.0"]),
        (VLLM, ["--dtype=auto"], []),
        (VLLM, ["--dtype=half"], []),
        (VLLM, ["--dtype"], []),
        (VLLM, ["--dtype=bfloat16", "--dtype=half"], []),
        (VLLM, ["--quantization", "fp8"], ["8.0"]),
        ("vllm/vllm-openai:v0.13.0", ["--quantization", "fp8"], ["8.0"]),
        ("vllm/vllm-openai:v0.15.1", ["--quantization", "fp8"], ["7.5"]),
        ("vllm/vllm-openai:v0.15.1", ["-q", "fp8"], ["7.5"]),
        ("vllm/vllm-openai:v0.20.0rc1", ["--quantization", "awq"], ["7.5"]),
        ("vllm/vllm-openai:latest", ["--quantization", "fp8"], ["7.5"]),
        ("vllm/vllm-openai:v0.28.0", ["--quantization=modelopt"], ["8.0"]),
        ("vllm/vllm-openai:v0.24.0", ["--quantization=modelopt"], ["8.9"]),
        (VLLM, ["--quantization=no-such-method"], []),
        (VLLM, ["--quantization=torchao", "--dtype=bfloat16"], ["7.5", "8.0"]),
        ("vllm/vllm-openai:v0.33.0", ["--kv-cache-dtype", "fp8"], ["8.0"]),
        ("vllm/vllm-openai:v0.33.0", ["--kv_cache_dtype=fp8_e4m3"], ["8.0"]),
        ("vllm/vllm-openai:v0.15.1", ["--kv-cache-dtype", "fp8"], ["8.0?"]),
        ("vllm/vllm-openai:v0.15.1", ["--kv-cache-dtype", "auto"], []),
        ("vllm/vllm-openai:v0.4.2", ["--dtype=bfloat16"], ["8.0?"]),
        # vLLM, by its command
        ("team/app:v1", ["vllm", "serve", "m", "--dtype=bfloat16"], ["8.0"]),
        (
            "team/app:v1",
            ["python3", "-m", "vllm.entrypoints.openai.api_server", "--dtype", "bfloat16"],
            ["8.0"],
        ),
        ("${IMAGE}", ["vllm serve m --dtype bfloat16"], ["8.0"]),
        ("team/app:v1", ["python3", "-m", "dynamo.vllm", "--dtype", "bfloat16"], ["8.0"]),
        # Others
        (SGLANG, ["python3", "-m", "sglang.launch_server", "--dtype", "bfloat16"], []),
        (SGLANG, ["--quantization", "w8a8_fp8"], ["8.9"]),
        ("lmsysorg/sglang:v0.4.6-cu124", ["--quantization", "w8a8_fp8"], ["8.9?"]),
        (SGLANG, ["--quantization", "mxfp8"], ["10.0"]),
        (TGI, ["--quantize", "marlin"], ["8.0"]),
        (TGI, ["--quantize", "gptq"], []),
        (TGI, ["--dtype", "bfloat16"], ["8.0?"]),
        (
            "team/trtllm:v1",
            ["python", "quantize.py", "--qformat", "fp8", "--kv_cache_dtype", "fp8"],
            ["8.9", "8.0"],
        ),
        ("team/app:v1", ["trtllm-build", "--dtype", "bfloat16"], ["8.0?"]),
        (
            "nvcr.io/nvidia/tritonserver:25.01-py3",
            ["tritonserver", "--min-supported-compute-capability=7.5"],
            ["7.5"],
        ),
        # What only looks like it
        ("team/app:v1", ["python", "train.py", "--dtype=bfloat16"], []),
        ("team/app:v1", ["--dtype=bfloat16"], []),
        (VLLM, ["--my-dtype=bfloat16"], []),
        (VLLM, ["--dtype-of-cache=bfloat16"], []),
        (VLLM, ["--model", "org/model--dtype=bfloat16"], []),
        ("rocm/vllm:rocm6.2", ["--dtype=bfloat16"], []),
        ("intel/vllm:0.10.0-xpu", ["vllm", "serve", "--quantization=fp8"], []),
        ("quay.io/ascend/vllm-ascend:v0.18.0", ["--dtype=bfloat16"], []),
        ("vllm/vllm-tpu:latest", ["--dtype=bfloat16"], []),
    ],
)
def test_a_flag_requires_a_compute_capability(image: str, words: list[str], capabilities: list[str]) -> None:
    """`?`: uncertain, so it must not deny a pod."""
    assert capabilities == asked(image, *words)


@pytest.mark.parametrize(
    ("script", "capabilities"),
    [
        ("vllm serve m --dtype bfloat16", ["8.0"]),
        ("exec vllm serve m \\\n  --dtype bfloat16 \\\n  --port 8000", ["8.0"]),
        ("vllm serve m --dtype='bfloat16' --quantization \"fp8\"; sleep 1", ["8.0", "7.5"]),
        ("pip install -q torch && vllm serve m", []),
        ("vllm serve m --dtype bfloat16&", ["8.0"]),
        ("# vllm serve m --dtype bfloat16\nvllm serve m --dtype half", []),
        ("vllm serve m # --dtype bfloat16", []),
        ("vllm serve m --dtype $DTYPE", []),
        ("vllm serve m --dtype ${DTYPE:-bfloat16}", []),
        ("vllm serve 'unclosed --dtype bfloat16", ["8.0"]),
        ("vllm serve m --tensor-parallel-size $(nvidia-smi -L | wc -l) --dtype bfloat16", ["8.0"]),
        ("vllm serve m --chat-template 'a; b' > log 2>&1 --dtype bfloat16", ["8.0"]),
        ("mkdir -p /models; vllm serve m --dtype bfloat16 | tee log", ["8.0"]),
        ("", []),
    ],
)
def test_flags_in_a_shell_script_are_found(script: str, capabilities: list[str]) -> None:
    """With quotes, continued lines and comments; shell variables are unknown."""
    assert capabilities == asked("team/app:v1", "sh", "-c", script)


@pytest.mark.parametrize(
    ("script", "capabilities"),
    [
        ("if [ -e /t4 ]; then vllm serve m; else vllm serve m --dtype bfloat16; fi", []),
        ("vllm serve m --dtype bfloat16 || vllm serve m --dtype half", []),
        ("vllm serve a --dtype bfloat16 -q fp8 & vllm serve b --dtype=bfloat16", ["8.0"]),
        ("echo 'no vllm serve here' --dtype bfloat16\nvllm serve m", []),
    ],
)
def test_only_the_flags_of_all_servers_in_a_script_are_used(script: str, capabilities: list[str]) -> None:
    """It is unknown which of them runs."""
    assert capabilities == asked("team/app:v1", "sh", "-c", script)


@pytest.mark.parametrize(
    ("words", "env", "capabilities"),
    [
        (["--dtype=$(DTYPE)"], {"DTYPE": "bfloat16"}, ["8.0"]),
        (["--dtype", "$(DTYPE)"], {"DTYPE": "auto"}, []),
        (["$(FLAGS)"], {"FLAGS": "--dtype=bfloat16"}, ["8.0"]),
        (["--dtype=$(DTYPE)"], {}, []),
        (["vllm", "serve", "m"], {"VLLM_ADDITIONAL_ARGS": "--port=1 --dtype=bfloat16"}, ["8.0"]),
        ([], {"DTYPE": "bfloat16"}, []),
    ],
)
def test_variables_are_expanded_in_arguments(
    words: list[str], env: dict[str, str], capabilities: list[str]
) -> None:
    """If they are known; otherwise the flag is unknown."""
    assert capabilities == asked(VLLM, *words, **env)


@pytest.mark.parametrize(
    ("words", "env", "capabilities"),
    [
        ([], {"QUANTIZE": "fp8"}, ["8.0"]),
        ([], {"QUANTIZE": "bitsandbytes"}, []),
        (["--quantize", "gptq"], {"QUANTIZE": "fp8"}, []),
        (["--quantize", "fp8"], {"QUANTIZE": "gptq"}, ["8.0"]),
        ([], {"DTYPE": "bfloat16"}, ["8.0?"]),
    ],
)
def test_a_variable_sets_a_flag_that_is_absent(
    words: list[str], env: dict[str, str], capabilities: list[str]
) -> None:
    """Text Generation Inference reads its flags from the environment too."""
    assert capabilities == asked(TGI, *words, **env)


def test_a_removed_method_is_uncertain_in_an_unknown_version() -> None:
    """Only vLLM 0.8 had `nvfp4`; an image that still uses it is a custom build."""
    assert (["10.0"], ["10.0?"]) == (
        asked("vllm/vllm-openai:v0.8.5.post1", "--quantization", "nvfp4"),
        asked("team/vllm:local", "--quantization", "nvfp4"),
    )


def test_a_requirement_names_its_flag_and_a_fix() -> None:
    """And the version, if the image name contains it."""
    needs = [
        *flag_requirements(VLLM, ["--dtype", "bfloat16"], {}),
        *flag_requirements("team/vllm:x", ["-q=fp8"], {}),
    ]

    assert [
        ("vLLM 0.9.0", "--dtype bfloat16", "set --dtype=half or use an AWQ or GPTQ model"),
        ("vLLM", "-q=fp8", "use an AWQ or GPTQ model"),
    ] == [(need.framework, need.written, need.way_out.en) for need in needs]
    assert "改用 --dtype=half，或改用 AWQ 或 GPTQ 模型" == needs[0].way_out.zh


@given(
    st.lists(
        st.text(max_size=30)
        | st.sampled_from(["--dtype", "bfloat16", "-q", "--quantization=fp8", "vllm serve"])
    ),
    st.dictionaries(st.sampled_from(["DTYPE", "QUANTIZE", "X"]), st.text(max_size=10)),
    st.text(max_size=30) | st.sampled_from([VLLM, SGLANG, TGI]),
)
def test_no_command_line_raises(words: list[str], env: dict[str, str], image: str) -> None:
    """And a command line without a flag of the table requires nothing."""
    needs = flag_requirements(image, words, env)

    assert not needs or env or any("-" in word for word in words)


@given(st.permutations(["--dtype=bfloat16", "--quantization=fp8", "--port=1"]))
def test_the_order_of_flags_does_not_matter(words: list[str]) -> None:
    """Each occurs once."""
    assert {"8.0"} == set(asked(VLLM, *words))
