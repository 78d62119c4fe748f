"""Models by their names on Hugging Face: what is known, and how certain it is."""

from __future__ import annotations

import pytest

from rules.cuda.models import ModelFacts, model_facts
from rules.cuda.tables import BUILT_IN, Status

GIB = 2**30


def known(name: str) -> ModelFacts:
    """Return the facts of a known model."""
    model = model_facts(name)
    assert model is not None
    return model


@pytest.mark.parametrize(
    ("name", "parameters", "gib", "dtype", "heads"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8.03, 14.95, "bfloat16", (32, 8)),
        ("meta-llama/Llama-3.3-70B-Instruct", 70.55, 131.4, "bfloat16", (64, 8)),
        ("Qwen/Qwen2.5-7B-Instruct", 7.615, 14.18, "bfloat16", (28, 4)),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.7, 86.99, "bfloat16", (32, 8)),
        ("mistralai/Mistral-Nemo-Instruct-2407", 12.25, 22.81, "bfloat16", (32, 8)),
        ("deepseek-ai/DeepSeek-V3-0324", 671.03, 624.9, "bfloat16", (128, None)),
        ("openai/gpt-oss-120b", 116.8, 57.33, "bfloat16", (64, 8)),
        ("gpt2", 0.124, 0.23, None, (12, 12)),
    ],
)
def test_a_model_is_known_by_its_name(
    name: str, parameters: float, gib: float, dtype: str | None, heads: tuple[int, int | None]
) -> None:
    """Its parameters, least memory of the weights, dtype and heads."""
    model = known(name)

    assert (parameters, dtype, heads) == (model.parameters, model.dtype, (model.heads, model.kv_heads))
    assert model.weights is not None
    assert gib == round(model.weights / GIB, 2)
    assert model.status.certain


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/mnt/models",
        "/models/org/Llama-3.1-8B",
        "org/model",
        "my-llama",
        "deepseek-ai/DeepSeek-V3.5",
        "deepseek-ai/DeepSeek-R1-Distill-Foo",
        "meta-llama/Llama-3.1-8Bx",
        "meta-llama/Llama-3.1-8B-draft-1B",
        "x" * 10_000,
    ],
)
def test_an_unknown_model_has_no_facts(name: str) -> None:
    """A later version, another size, and a longer word are other models."""
    assert model_facts(name) is None


@pytest.mark.parametrize(
    "name", ["meta-llama/Llama-3.1-8B-eagle3", "org/Llama-3.1-8B-LoRA", "mlx-community/Qwen3-8B-MLX"]
)
def test_an_adapter_a_draft_and_a_file_for_other_programs_have_no_facts(name: str) -> None:
    """They have the name of the model, but not its weights."""
    assert model_facts(name) is None


@pytest.mark.parametrize(
    ("name", "parameters", "gib", "quantization"),
    [
        ("acme/Support-70B", 70, 116.0, ""),
        ("Support-70b-v1.2", 70, 116.0, ""),
        ("acme/Llama-3.1-80B-Instruct", 80, 132.6, ""),
        ("acme/support_7.5B", 7.5, 12.4, ""),
        ("acme/Support-70B-AWQ", 70, 29.0, "int4"),
        ("acme/Support-70B-GPTQ-Int8", 70, 58.0, "int8"),
        ("acme/Support-70B-FP8", 70, 58.0, "fp8"),
        ("acme/Support-70B-INT4", 70, 29.0, "int4"),
        ("acme/Support-70B-GGUF", 70, 14.5, "gguf"),
        ("acme/Support-VL-70B", 70, 90.0, ""),
        ("acme/Support-30B-A3B", 30, 49.7, ""),
        ("acme/Support-8x7B-DPO", 46.7, 77.4, ""),
        ("acme/Support-14B-1M", 14, 23.2, ""),
    ],
)
def test_mission_13_of_an_unknown_model_the_name_says_the_size(
    name: str, parameters: float, gib: float, quantization: str
) -> None:
    """Least memory of the weights in the precision of the name; nothing else, and nothing is certain."""
    model = known(name)

    assert ("", parameters, quantization, None, None) == (
        model.name,
        model.parameters,
        model.quantization,
        model.dtype,
        model.heads,
    )
    assert model.weights is not None
    assert gib == round(model.weights / GIB, 1)
    assert not model.weights_status.certain


@pytest.mark.parametrize(
    "name",
    [
        "acme/Support-70B-LoRA",
        "acme/Support-70B-draft-1B",
        "acme/Support-70B-eagle3",
        "acme/Support-70B-Q4_K_M",
        "acme/Support-A13B",
        "acme/Support-E4B",
        "acme/Support-17B-16E",
        "acme/Support-4x7B",
        "acme/Support-1B-7B",
        "acme/Support-1_6B",
        "acme/Support-1.5B",
        "acme/Support-7b1",
        "acme/Support-3.1",
        "acme/support70b",
        "acme/Support-560M",
        "acme/Support-2407",
        "acme/Ministral-3-14B-Instruct-2512-support",
        "/models/acme/Support-70B",
        "/models/Support-70B",
        "support:70b",
        "$(ORG)/Support-70B",
    ],
)
def test_mission_13_a_name_that_may_mean_something_else_says_no_size(name: str) -> None:
    """An adapter, a draft, active or effective parameters, a version, a path; small models fit every GPU."""
    assert model_facts(name) is None


def test_the_least_size_by_a_name_holds_for_the_models_of_the_table() -> None:
    """As if the table did not have them: each name with one size, without the organisation."""
    compared, rows = 0, BUILT_IN.table("models")["models"]
    for name in (name.rstrip("*").rpartition("/")[2] for row in rows for name in row["models"]):
        by_table, by_name = known(name), model_facts(f"support-{name}")
        if by_name is not None and by_table.weights and by_table.quantization == by_name.quantization:
            compared += 1
            assert by_name.weights is not None
            assert by_name.weights <= by_table.weights, name

    assert compared > 200


@pytest.mark.parametrize(
    "name",
    ["META-LLAMA/llama-3.1-8b-instruct", " meta-llama/Llama-3.1-8B-Instruct ", "meta-llama/Llama-3.1-8B"],
)
def test_letter_case_does_not_matter(name: str) -> None:
    """As on Hugging Face, which redirects."""
    assert known("meta-llama/Llama-3.1-8B-Instruct") == known(name)


@pytest.mark.parametrize("name", ["Llama-3.1-8B-Instruct", "unsloth/Llama-3.1-8B-Instruct"])
def test_without_its_organisation_a_model_is_uncertain(name: str) -> None:
    """A copy can differ."""
    model = known(name)

    assert 8.03 == model.parameters
    assert {Status.UNVERIFIED} == {
        model.status,
        model.weights_status,
        model.dtype_status,
        model.heads_status,
    }


@pytest.mark.parametrize(
    ("name", "quantization", "gib"),
    [
        ("Qwen/Qwen3-8B", "", 15.25),
        ("Qwen/Qwen3-8B-FP8", "fp8", 7.63),
        ("Qwen/Qwen3-8B-AWQ", "int4", 3.81),
        ("Qwen/Qwen3-8B-GPTQ-Int8", "int8", 7.63),
        ("Qwen/Qwen3-8B-GGUF", "gguf", 1.91),
        ("RedHatAI/Qwen3-8B-quantized.w4a16", "int4", 3.81),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", "fp8", 7.63),
        ("nvidia/Qwen3-8B-NVFP4", "nvfp4", 3.81),
        ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "bitsandbytes", 3.81),
        ("RedHatAI/DeepSeek-R1-Distill-Llama-70B-quantized.w8a8", "int8", 65.7),
        ("deepseek-ai/DeepSeek-R1", "fp8", 624.9),
        ("nvidia/DeepSeek-V3.1-NVFP4", "nvfp4", 296.8),
    ],
)
def test_a_quantized_copy_needs_less_memory(name: str, quantization: str, gib: float) -> None:
    """By the part of its name after that of the model, or as the model itself is stored."""
    model = known(name)

    assert quantization == model.quantization
    assert model.weights is not None
    assert gib == pytest.approx(model.weights / GIB, abs=0.006)


def test_another_precision_of_a_partly_quantized_model_has_no_known_weights() -> None:
    """Its parameters have no single size."""
    assert ("mixed", True) == (known("openai/gpt-oss-20b").quantization, True)
    assert known("unsloth/gpt-oss-20b-BF16").weights is None


def test_the_size_of_a_copy_is_at_most_derived() -> None:
    """The name says its precision."""
    model = known("google/gemma-3-27b-it-FP8")

    assert (Status.VERIFIED, Status.DERIVED) == (model.status, model.weights_status)


def test_a_less_certain_fact_has_its_own_status() -> None:
    """Parameters of Whisper were read, its heads and dtype were not."""
    model = known("openai/whisper-large-v3")

    assert (Status.VERIFIED, Status.UNVERIFIED, Status.UNVERIFIED) == (
        model.weights_status,
        model.heads_status,
        model.dtype_status,
    )


def test_models_whose_float16_overflows_say_so() -> None:
    """Servers refuse it, so that older GPUs need twice the memory."""
    names = ("google/gemma-3-27b-it", "google/gemma-2-9b-it", "google/gemma-7b", "Qwen/Qwen3-8B")

    assert [False, False, True, True] == [known(name).float16 for name in names]


def test_latent_attention_has_no_key_value_heads() -> None:
    """The rule that they divide by the ranks is not for it."""
    model = known("deepseek-ai/DeepSeek-R1")

    assert (128, None, True, 2048) == (model.heads, model.kv_heads, model.latent, model.expert_width)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 8),
        ("Qwen/Qwen2.5-0.5B-Instruct", 4),
        ("tiiuae/falcon-7b", 2),
        ("meta-llama/Llama-3.2-3B-Instruct", 16),
        ("Qwen/Qwen2.5-14B-Instruct", 16),
    ],
)
def test_usual_numbers_of_ranks_do_not_divide_the_heads_of_some_models(name: str, ranks: int) -> None:
    """Servers refuse them."""
    heads = known(name).heads

    assert heads is not None
    assert heads % ranks
