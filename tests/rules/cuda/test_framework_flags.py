"""Flags and variables of inference servers require a compute capability, by framework version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.framework_flags import command_line, flag_requirements
from rules.cuda.tables import BUILT_IN

VLLM = "vllm/vllm-openai:v0.9.0"
SGLANG = "lmsysorg/sglang:v0.5.23"
TGI = "ghcr.io/huggingface/text-generation-inference:3.3.7"


LMDEPLOY = "openmmlab/lmdeploy:v0.9.2-cu12"
KSERVE = "kserve/huggingfaceserver:v0.15.0-gpu"


def asked(image: str, *words: str, **env: str) -> list[str]:
    """Return the requirements of a container; `?` marks uncertain ones. The variable SECRET is unknown."""
    needs = flag_requirements(BUILT_IN, image, command_line(BUILT_IN, words, env, {"SECRET"}))
    return [f"{need.compute}{'' if need.certain else '?'}" for need in needs]


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
        ("ghcr.io/llm-d/llm-d-cuda:v0.8.1", ["--quantization=fp8"], ["7.5"]),
        ("ghcr.io/llm-d/llm-d-xpu:v0.8.1", ["--quantization=fp8"], []),
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
        # Attention backends
        ("vllm/vllm-openai:v0.33.0", ["--attention-backend", "FLASHINFER"], ["8.0"]),
        ("vllm/vllm-openai:v0.20.0", ["--attention-backend", "flashinfer"], ["7.5"]),
        ("vllm/vllm-openai:v0.15.1", ["--attention-backend=FLASHINFER"], ["7.5?"]),
        ("vllm/vllm-openai:latest", ["--attention-backend=FLASHINFER"], ["7.5?"]),
        ("vllm/vllm-openai:v0.33.0", ["--attention-config.backend=FLASHMLA"], ["9.0"]),
        ("vllm/vllm-openai:v0.33.0", ["--attention-backend=TRITON_ATTN"], []),
        ("lmsysorg/sglang:v0.5.9", ["--attention-backend", "fa3"], ["8.0"]),
        ("lmsysorg/sglang:v0.4.6", ["--attention-backend", "fa3"], []),
        ("lmsysorg/sglang:v0.5.9", ["--decode-attention-backend", "trtllm_mha"], ["10.0"]),
        (SGLANG, ["--prefill-attention-backend", "trtllm_mha"], ["9.0"]),
        (SGLANG, ["--attention-backend", "triton"], ["7.5"]),
        (SGLANG, ["--moe-runner-backend=flashinfer_trtllm", "--fp4-gemm-backend=marlin"], ["10.0", "8.0?"]),
        (SGLANG, ["--enable-deepseek-v4-fp4-indexer", "--port", "1"], ["10.0"]),
        (SGLANG, ["--kv-cache-dtype", "nvfp4"], ["10.0"]),
        # Text Generation Inference
        (TGI, ["--quantize", "exl2"], ["8.0"]),
        (TGI, ["--quantize", "eetq"], ["8.0"]),
        (TGI, ["--quantize", "awq"], []),
        ("ghcr.io/huggingface/text-generation-inference:2.0.4", ["--quantize", "awq"], ["8.0"]),
        ("ghcr.io/huggingface/text-generation-inference:2.0.4", ["--quantize", "exl2"], []),
        (TGI, ["--kv-cache-dtype", "fp8_e5m2"], ["8.9?"]),
        # KServe's server may use another library than vLLM
        (KSERVE, ["--model_name=m", "--dtype=bfloat16"], ["8.0?"]),
        ("team/app:v1", ["python3", "-m", "huggingfaceserver", "--quantization", "fp8"], ["7.5?"]),
        (KSERVE, ["--dtype=float16"], []),
        # LMDeploy
        (LMDEPLOY, ["lmdeploy", "serve", "api_server", "m", "--quant-policy", "8"], ["7.0"]),
        (LMDEPLOY, ["lmdeploy", "serve", "api_server", "m", "--quant-policy", "fp8"], ["8.9?"]),
        ("team/app:v1", ["lmdeploy", "lite", "smooth_quant", "m", "--quant-dtype", "fp8"], ["8.9"]),
        (LMDEPLOY, ["lmdeploy", "serve", "api_server", "m", "--dtype", "bfloat16"], []),
        # TensorRT-LLM
        ("team/app:v1", ["trtllm-build", "--gemm_plugin", "fp8", "--nccl_plugin=bfloat16"], ["8.9", "8.0"]),
        ("team/app:v1", ["trtllm-build", "--use_fp8_context_fmha", "enable"], ["8.9?"]),
        ("team/app:v1", ["trtllm-serve", "m", "--kv_cache_dtype", "fp8"], ["8.0"]),
        (
            "team/app:v1",
            ["python3", "convert_checkpoint.py", "--use_fp8_rowwise", "--dtype=float16"],
            ["9.0?"],
        ),
        ("team/app:v1", ["python3", "examples/quantization/quantize.py", "--qformat", "int4_awq"], ["8.0"]),
        ("team/app:v1", ["python3", "quantize.py", "--qformat", "nvfp4"], ["10.0?"]),
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
        ("bash -lc 'exec vllm serve m --dtype bfloat16'", ["8.0"]),
        ("if true; then vllm serve m --dtype bfloat16; fi", ["8.0?"]),
        ("vllm serve m --dtype bfloat16 $MORE", ["8.0"]),
        ("vllm serve m --dtype bfloat16 --dtype $MORE", []),
        ("vllm serve 'unclosed --dtype bfloat16", ["8.0"]),
        ("vllm serve m --tensor-parallel-size $(nvidia-smi -L | wc -l) --dtype bfloat16", ["8.0"]),
        ("vllm serve m --chat-template 'a; b' > log 2>&1 --dtype bfloat16", ["8.0"]),
        ("mkdir -p /models; vllm serve m --dtype bfloat16 | tee log", ["8.0"]),
        ("", []),
    ],
)
def test_flags_in_a_shell_script_are_found(script: str, capabilities: list[str]) -> None:
    """With quotes, continued lines and comments."""
    assert capabilities == asked("team/app:v1", "sh", "-c", script)


@pytest.mark.parametrize(
    ("script", "capabilities"),
    [
        ("vllm serve m --dtype $DTYPE", ["8.0"]),
        ('vllm serve m "--dtype=${DTYPE}"', ["8.0"]),
        ("vllm serve m --dtype ${DTYPE:-half}", ["8.0"]),
        ("vllm serve m $FLAGS", ["8.0"]),
        ('FLAGS="--dtype half"; vllm serve m $FLAGS', []),
        ("TYPE=bfloat16; vllm serve m --dtype $TYPE", ["8.0"]),
        ('export TYPE="${TYPE:-$DTYPE}" && vllm serve m --dtype "$TYPE"', ["8.0?"]),
        ("bash -c 'vllm serve m --dtype $DTYPE'", ["8.0"]),
        # A default for a variable that the image may set
        ("vllm serve m --dtype ${TYPE:-bfloat16}", ["8.0?"]),
        ("${PYTHON:-python3} -m vllm.entrypoints.openai.api_server --dtype bfloat16", ["8.0"]),
        # Unknown
        ("vllm serve m --dtype $TYPE", []),
        ("vllm serve m --dtype ${SECRET:-bfloat16}", []),
        ("DTYPE=$(detect); vllm serve m --dtype $DTYPE", []),
        ("if on_t4; then DTYPE=half; fi; vllm serve m --dtype $DTYPE", []),
        ("TYPE=bfloat16; TYPE=half; vllm serve m --dtype $TYPE", []),
        ("vllm serve m --dtype '$DTYPE'", []),
        # Not of the server
        ("echo vllm serve m --dtype bfloat16; vllm serve m", []),
        ("echo 'vllm serve m --dtype bfloat16'; sleep 1", []),
        ("cat <<EOF > run.sh\nvllm serve m --dtype bfloat16\nEOF\nsleep 1", []),
        ("grep -q 'vllm serve m --dtype bfloat16' log", []),
        ("vllm serve m --chat-template 'x --dtype bfloat16'", []),
    ],
)
def test_variables_are_expanded_in_a_shell_script(script: str, capabilities: list[str]) -> None:
    """Those of the container and of the script, if their values are known; others require nothing."""
    env = {"DTYPE": "bfloat16", "FLAGS": "--dtype bfloat16 --port 1"}

    assert capabilities == asked("team/app:v1", "bash", "-lc", script, **env)


@pytest.mark.parametrize(
    ("image", "script", "capabilities"),
    [
        (TGI, "export QUANTIZE=fp8; text-generation-launcher", ["8.0"]),
        (TGI, "QUANTIZE=fp8 text-generation-launcher", ["8.0"]),
        (TGI, "QUANTIZE=fp8; text-generation-launcher", []),
        (TGI, "export QUANTIZE=fp8; text-generation-launcher --quantize gptq", []),
        ("vllm/vllm-openai:v0.8.5", "export VLLM_ATTENTION_BACKEND=FLASHMLA; vllm serve m", ["9.0?"]),
        ("vllm/vllm-openai:v0.33.0", "export VLLM_ATTENTION_BACKEND=FLASHMLA; vllm serve m", []),
    ],
)
def test_a_script_sets_variables_of_a_server(image: str, script: str, capabilities: list[str]) -> None:
    """If it exports them."""
    assert capabilities == asked(image, "sh", "-c", script)


def test_each_program_of_a_script_has_its_requirements() -> None:
    """An engine is built in steps."""
    script = """set -e
    python3 convert_checkpoint.py --model_dir m --dtype bfloat16
    trtllm-build --gemm_plugin fp8 --output_dir engine
    trtllm-serve engine --kv_cache_dtype fp8"""

    assert ["8.0", "8.9", "8.0?"] == asked("team/app:v1", "bash", "-c", script)


@pytest.mark.parametrize(
    ("words", "capabilities"),
    [
        (["sh", "-c", 'vllm serve m "$@"', "--", "--dtype", "bfloat16"], ["8.0"]),
        (["sh", "-c", "vllm serve m", "--dtype", "bfloat16"], []),
        (["python3", "-c", "import os; os.system('vllm serve m --dtype bfloat16')"], []),
        (["-c", "vllm serve m --dtype bfloat16"], ["8.0"]),
        (["bash", "-c", "python3 train.py --dtype bfloat16"], ["8.0?"]),
        (["bash", "-c", "--dtype bfloat16"], ["8.0"]),
    ],
)
def test_only_what_a_shell_runs_is_a_script(words: list[str], capabilities: list[str]) -> None:
    """Arguments of a script are flags if it passes them on; another program of the image is uncertain."""
    assert capabilities == asked(VLLM, *words)


@pytest.mark.parametrize(
    ("script", "capabilities"),
    [
        ("if [ -e /t4 ]; then vllm serve m; else vllm serve m --dtype bfloat16; fi", []),
        ("vllm serve m --dtype bfloat16 || vllm serve m --dtype half", []),
        ("vllm serve a --dtype bfloat16 -q fp8 & vllm serve b --dtype=bfloat16", ["8.0"]),
        ("if [ -e /t4 ]; then vllm serve a -q fp8; else vllm serve b -q fp8; fi", ["7.5?"]),
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
        ([], {"KV_CACHE_DTYPE": "fp8_e4m3fn"}, ["8.9?"]),
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
        *flag_requirements(BUILT_IN, VLLM, command_line(BUILT_IN, ["--dtype", "bfloat16"], {})),
        *flag_requirements(BUILT_IN, "team/vllm:x", command_line(BUILT_IN, ["-q=fp8"], {})),
    ]

    assert [
        ("vLLM 0.9.0", "--dtype bfloat16", "set --dtype=half or use an AWQ or GPTQ model"),
        ("vLLM", "-q=fp8", "use an AWQ or GPTQ model"),
    ] == [(need.framework, need.written, need.remedy.en) for need in needs]


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
    needs = flag_requirements(BUILT_IN, image, command_line(BUILT_IN, words, env))

    assert not needs or env or any("-" in word for word in words)


@given(st.permutations(["--dtype=bfloat16", "--quantization=fp8", "--port=1"]))
def test_the_order_of_flags_does_not_matter(words: list[str]) -> None:
    """Each occurs once."""
    assert {"8.0"} == set(asked(VLLM, *words))
