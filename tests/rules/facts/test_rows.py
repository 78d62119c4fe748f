"""What holds for each row of a table; and that each rule notices a wrong row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, Final

import pytest
from packaging.specifiers import SpecifierSet

from rules.cuda.tables import read_table
from tests.support.regex_samples import samples

Tables = dict[str, Any]
Row = dict[str, Any]

TABLES: Final[Tables] = {
    name: read_table(name) for name in ("gpus", "images", "cloud_gpus", "gpu_memory", "models")
}
SEGMENTS: Final = {"datacenter", "workstation", "consumer", "jetson"}
BRANDS: Final = {"tesla", "nvidia", "quadro", "quadrortx", "nvidiartx", "titan", "geforce", "nvs"}
MIB_PER_GIB: Final = 1024
# A version of an image that is newer than any that was read.
FUTURE: Final = "999.0"
# Families whose rows end: they ended, or their tags name CUDA, and a row below has all versions.
ENDED: Final = {
    "Dynamo with CUDA 13 in the name",
    "Dynamo with CUDA 13 in the tag",
    "NGC NeMo",
    "NGC by month, before 20.06",
    "lmsysorg/sglang on Triton 24.04 with CUDA 12.1 in the tag",
    "lmsysorg/sglang on Triton 24.04 with CUDA 12.5 in the tag",
    "lmsysorg/sglang on Triton 24.04 with CUDA in the tag",
    "nvbandwidth of NVIDIA",
}
CUDA_IN_TAG: Final = "pytorch/pytorch "
BITS: Final = {"": 16, "fp8": 8, "nvfp4": 4, "mxfp4": 4}
SIZE: Final = re.compile(r"(?<![a-z0-9._])(\d+(?:\.\d+)?)b(?![a-z0-9]|-\d+e)")


def first(rows: list[Row], key: str, text: str) -> Row | None:
    """Return the first row whose expression matches a whole text."""
    return next((row for row in rows if re.fullmatch(row[key], text)), None)


def shadowed(rows: list[Row], key: str) -> Iterator[str]:
    """Yield each expression of which every sample matches an earlier row."""
    for row in rows:
        if all(first(rows, key, text) is not row for text in samples(row[key])):
            yield row[key]


def repeated(names: list[str]) -> list[str]:
    """Return the names that are in a list more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def no_gpu_is_shadowed(tables: Tables) -> Iterator[str]:
    """Yield each GPU whose label an earlier row matches."""
    for label in shadowed(tables["gpus"], "label"):
        yield f"gpus: {label} is shadowed by an earlier row"


def gpus_have_known_words(tables: Tables) -> Iterator[str]:
    """Yield each GPU of an unknown segment or brand."""
    for row in tables["gpus"]:
        if row["segment"] not in SEGMENTS:
            yield f"gpus: {row['label']} is of the unknown segment {row['segment']!r}"
        for brand in set(row.get("brand", "").split()) - BRANDS:
            yield f"gpus: {row['label']} is of the unknown brand {brand!r}"


def a_compute_capability_is_of_one_architecture(tables: Tables) -> Iterator[str]:
    """Yield each GPU whose architecture differs from that of an earlier one with its compute capability."""
    known: dict[str, str] = {}
    for row in tables["gpus"]:
        if "compute" in row and known.setdefault(row["compute"], row["arch"]) != row["arch"]:
            yield f"gpus: {row['label']} is {row['arch']}, others of {row['compute']} are not"


def memory_of_gpus_is_that_of_the_label(tables: Tables) -> Iterator[str]:
    """Yield each GPU whose memory differs from its label by a tenth. A GH200 names the memory of its CPU."""
    for row in tables["gpus"]:
        memory = row.get("memory")
        for text in samples(row["label"]) if memory and row.get("host") != "arm64" else ():
            named = re.search(r"-(\d+)GB\b", text)
            if named and abs(memory - int(named[1]) * MIB_PER_GIB) > memory / 10:
                yield f"gpus: {text} has {memory} MiB"


def memory_of_gpus_is_plausible(tables: Tables) -> Iterator[str]:
    """Yield each GPU with less than 1 GiB or more than 1 TiB."""
    for row in tables["gpus"]:
        if not MIB_PER_GIB <= row.get("memory", MIB_PER_GIB) <= MIB_PER_GIB**2:
            yield f"gpus: {row['label']} has {row['memory']} MiB"


def no_instance_type_is_shadowed(tables: Tables) -> Iterator[str]:
    """Yield each value of a cloud that an earlier row of its list matches."""
    for name, rows in tables["cloud_gpus"]["values"].items():
        for value in shadowed(rows, "value"):
            yield f"cloud_gpus: {name}: {value} is shadowed by an earlier row"


def images_have_names_of_their_own(tables: Tables) -> Iterator[str]:
    """Yield each name of two rows."""
    for name in repeated([row["name"] for row in tables["images"]]):
        yield f"images: two rows are named {name!r}"


def families_of_images_are_open(tables: Tables) -> Iterator[str]:
    """Yield each family that knows nothing of its next version."""
    for row in tables["images"]:
        cases = row.get("cases", ())
        known = any(SpecifierSet(case.get("versions", "")).contains(FUTURE) for case in cases)
        if cases and not known and row["name"] not in ENDED and not row["name"].startswith(CUDA_IN_TAG):
            yield f"images: {row['name']} has a closed upper bound: {cases[0]['versions']}"


def open_rows_of_images_only_warn(tables: Tables) -> Iterator[str]:
    """Yield each case for versions to come that is certain, though it was read of none of them."""
    for row in tables["images"]:
        for case in row.get("cases", ()):
            values = row | case
            certain = values["status"] != "unverified" and not case.get("at_least")
            future = "versions" in case and SpecifierSet(case["versions"]).contains(FUTURE)
            if future and certain and values.get("cuda", "none") != "none":
                yield f"images: {row['name']}: {case['versions']} is certain"


def a_resource_of_memory_has_one_row(tables: Tables) -> Iterator[str]:
    """Yield each resource of two rows, and each row without a unit."""
    for name in repeated([name for row in tables["gpu_memory"] for name in row["names"]]):
        yield f"gpu_memory: two rows for {name}"
    for row in tables["gpu_memory"]:
        if ("unit" in row) == ("profile" in row):
            yield f"gpu_memory: {row['names'][0]} has both a unit and a profile, or none of them"


def a_model_has_one_row(tables: Tables) -> Iterator[str]:
    """Yield each name of two rows, with and without its organisation."""
    names = [
        (name.lower().rstrip("*"), index)
        for index, row in enumerate(tables["models"]["models"])
        for name in row["models"]
    ]
    for name in repeated([name for name, _ in names]):
        yield f"models: two rows for {name}"
    for name in repeated([short for short, _ in {(name.rpartition("/")[2], index) for name, index in names}]):
        yield f"models: two rows for models named {name}"


def weights_of_models_are_those_of_their_parameters(tables: Tables) -> Iterator[str]:
    """Yield each model whose weights exceed its parameters, or are less than half of them.

    An effective size (`E2B`), a text part, and the parameters that servers do not load are less.
    """
    for row in tables["models"]["models"]:
        bits = BITS.get(row.get("quantization", ""))
        if bits:
            ratio = row["weights"] * 2**30 * 8 / (row["parameters"] * 1e9 * bits)
            if not 0.3 <= ratio <= 1.005:
                yield f"models: {row['models'][0]} has {ratio:.2f} of the weights of its parameters"


def parameters_of_models_are_those_of_their_names(tables: Tables) -> Iterator[str]:
    """Yield each model with a single size in its name that its parameters are far from. `8x7b` is none."""
    for row in tables["models"]["models"]:
        sizes = {float(size) for name in row["models"] for size in SIZE.findall(name.lower())}
        if len(sizes) == 1 and not 0.6 <= row["parameters"] / max(sizes) <= 1.7:
            yield f"models: {row['models'][0]} has {row['parameters']} billion parameters"


def key_value_heads_divide_the_heads(tables: Tables) -> Iterator[str]:
    """Yield each model whose groups of heads differ in size."""
    for row in tables["models"]["models"]:
        heads, kv_heads = row.get("heads"), row.get("kv_heads")
        if heads and isinstance(kv_heads, int) and heads % kv_heads:
            yield f"models: {row['models'][0]} has {heads} heads and {kv_heads} of keys and values"


def suffixes_of_models_are_reached(tables: Tables) -> Iterator[str]:
    """Yield each suffix that an earlier one hides, and each without bits."""
    rows = tables["models"]["suffixes"]
    for parts in shadowed(rows, "parts"):
        yield f"models: the suffix {parts} is shadowed by an earlier row"
    for row in rows:
        if ("quantization" in row) != ("bits" in row):
            yield f"models: the suffix {row['parts']} has no bits"


RULES: Final[tuple[Callable[[Tables], Iterator[str]], ...]] = (
    no_gpu_is_shadowed,
    gpus_have_known_words,
    a_compute_capability_is_of_one_architecture,
    memory_of_gpus_is_that_of_the_label,
    memory_of_gpus_is_plausible,
    no_instance_type_is_shadowed,
    images_have_names_of_their_own,
    families_of_images_are_open,
    open_rows_of_images_only_warn,
    a_resource_of_memory_has_one_row,
    a_model_has_one_row,
    weights_of_models_are_those_of_their_parameters,
    parameters_of_models_are_those_of_their_names,
    key_value_heads_divide_the_heads,
    suffixes_of_models_are_reached,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda function: function.__name__)
def test_each_row_follows_the_rules_of_its_table(rule: Callable[[Tables], Iterator[str]]) -> None:
    """No row breaks one."""
    assert list(rule(TABLES)) == []


def row_of(rows: list[Row], **facts: Any) -> Row:
    """Return the first row with these facts."""
    return next(row for row in rows if facts.items() <= row.items())


def model(tables: Tables, name: str) -> Row:
    """Return the row of a model."""
    return next(row for row in tables["models"]["models"] if name in row["models"])


def gpu_after_a_wider_one(tables: Tables) -> None:
    """Write H100 NVL after H100 of any form."""
    tables["gpus"].append(dict(row_of(tables["gpus"], label="H100-NVL")))


def unknown_segment(tables: Tables) -> None:
    """Misspell a segment."""
    row_of(tables["gpus"], product="L4")["segment"] = "data-center"


def unknown_brand(tables: Tables) -> None:
    """Misspell a brand."""
    row_of(tables["gpus"], product="L4")["brand"] = "nvida"


def another_architecture(tables: Tables) -> None:
    """Make L40S a Hopper."""
    row_of(tables["gpus"], product="L40S")["arch"] = "hopper"


def memory_of_another_card(tables: Tables) -> None:
    """Give a GPU with 40 GB in its name 80."""
    row_of(tables["gpus"], product="A800")["memory"] = 81920
    row_of(tables["gpus"], product="A800")["label"] = "A800-(40GB-Active|SXM4-80GB)"


def memory_in_gib(tables: Tables) -> None:
    """Write GiB instead of MiB."""
    row_of(tables["gpus"], product="L4")["memory"] = 24


def type_after_a_wider_one(tables: Tables) -> None:
    """Write an instance type after its family."""
    rows = tables["cloud_gpus"]["values"]["types"]
    rows.append(
        {"value": "PNV5b\\.8XLARGE96", "product": "NVIDIA-L20", "source": "none", "status": "unverified"}
    )


def repeated_name_of_images(tables: Tables) -> None:
    """Name two rows alike."""
    tables["images"][1]["name"] = tables["images"][0]["name"]


def closed_family(tables: Tables) -> None:
    """Leave out the versions of vLLM to come."""
    row = row_of(tables["images"], name="vllm/vllm-openai for arm64")
    row["cases"] = [case for case in row["cases"] if case["versions"] != ">=0.34"]


def certain_future(tables: Tables) -> None:
    """Say for certain what versions to come need."""
    row = row_of(tables["images"], name="NGC by month")
    row["cases"][0] = {"versions": ">=26.11", "cuda": "13.4"}


def repeated_resource(tables: Tables) -> None:
    """Write two rows for a resource."""
    tables["gpu_memory"].append(tables["gpu_memory"][0])


def resource_without_unit(tables: Tables) -> None:
    """Leave out the unit of a resource."""
    del row_of(tables["gpu_memory"], names=["nvidia.com/mps-memory"])["unit"]


def repeated_model(tables: Tables) -> None:
    """Write two rows for a model."""
    model(tables, "Qwen/Qwen3-8B*")["models"].append("qwen/qwen3-14b")


def weights_of_another_precision(tables: Tables) -> None:
    """Write the weights in 16 bits of a model that is stored in 8."""
    model(tables, "deepseek-ai/DeepSeek-R1")["weights"] = 1249.8


def parameters_of_another_size(tables: Tables) -> None:
    """Give a model of 8 billion parameters 70."""
    model(tables, "Qwen/Qwen3-8B*").update(parameters=70.0, weights=130.0)


def heads_swapped(tables: Tables) -> None:
    """Swap the heads and those of keys and values."""
    model(tables, "Qwen/Qwen3-8B*").update(heads=8, kv_heads=32)


def suffix_after_a_wider_one(tables: Tables) -> None:
    """Write a suffix again."""
    tables["models"]["suffixes"].append({"parts": "awq", "quantization": "int4", "bits": 4})


def suffix_without_bits(tables: Tables) -> None:
    """Leave out the bits of a suffix."""
    del row_of(tables["models"]["suffixes"], quantization="mxfp8")["bits"]


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (gpu_after_a_wider_one, "gpus: H100-NVL is shadowed by an earlier row"),
        (unknown_segment, "gpus: L4 is of the unknown segment 'data-center'"),
        (unknown_brand, "gpus: L4 is of the unknown brand 'nvida'"),
        (another_architecture, "gpus: L40S is hopper, others of 8.9 are not"),
        (memory_of_another_card, "gpus: A800-40GB-Active has 81920 MiB"),
        (memory_in_gib, "gpus: L4 has 24 MiB"),
        (type_after_a_wider_one, "cloud_gpus: types: PNV5b\\.8XLARGE96 is shadowed by an earlier row"),
        (repeated_name_of_images, "images: two rows are named 'nvidia/cuda'"),
        (closed_family, "images: vllm/vllm-openai for arm64 has a closed upper bound: >=0.20,<0.34"),
        (certain_future, "images: NGC by month: >=26.11 is certain"),
        (repeated_resource, "gpu_memory: two rows for nvidia.com/gpumem"),
        (resource_without_unit, "gpu_memory: nvidia.com/mps-memory has both a unit and a profile, or none"),
        (repeated_model, "models: two rows for qwen/qwen3-14b"),
        (weights_of_another_precision, "models: deepseek-ai/DeepSeek-V3* has 2.00 of the weights"),
        (parameters_of_another_size, "models: Qwen/Qwen3-8B* has 70.0 billion parameters"),
        (heads_swapped, "models: Qwen/Qwen3-8B* has 8 heads and 32 of keys and values"),
        (suffix_after_a_wider_one, "models: the suffix awq is shadowed by an earlier row"),
        (suffix_without_bits, "models: the suffix mxfp8 has no bits"),
    ],
)
def test_a_wrong_row_is_noticed(breakage: Callable[[Tables], None], message: str) -> None:
    """Each breakage of a copy of the tables has its message."""
    tables = deepcopy(TABLES)
    breakage(tables)

    noticed = [problem for rule in RULES for problem in rule(tables)]

    assert [problem for problem in noticed if problem.startswith(message)] != []
