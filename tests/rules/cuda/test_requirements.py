"""The requirements of a container come from the first source that has them, with origin and certainty."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.image_catalog import CompatLibraries, ImageCase, ImageCatalog, ImageRow, built_in_catalog
from rules.cuda.requirements import ContainerFacts, GpuRequirements, container_facts, requirements_of
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.json_patch import Recorder
from rules.kube.pod import Container, ContainerKind, environment
from rules.text.glob import glob
from tests.support.builders import policy
from tests.support.node_builders import VLLM, image_catalog

PYTORCH = "pytorch/pytorch:2.0.1-cuda11.7-cudnn8-runtime"
CUDA = "gpugate.dev/cuda-version"
COMPUTE = "gpugate.dev/min-compute-capability"
COMPAT = "gpugate.dev/cuda-compat"
MEMORY = "gpugate.dev/min-gpu-memory"
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}


def needs(
    image: str = "team/app:v1",
    *words: str,
    env: list[dict[str, Any]] | None = None,
    annotations: dict[str, Any] | None = None,
    catalog: ImageCatalog | None = None,
) -> GpuRequirements:
    """Return the requirements of a container named `main`."""
    facts = container_facts(main(image, args=[*words], env=env or []), annotations or {})
    return requirements_of(facts, catalog or built_in_catalog())


def main(image: str = "team/app:v1", **fields: Any) -> Container:
    """Return a container named `main`; fields: others of it."""
    raw = {"name": "main", "image": image, **fields}
    return Container(raw, (), ContainerKind.REGULAR, Recorder(raw))


def variable(name: str, value: str) -> dict[str, Any]:
    """Return an entry of `env`."""
    return {"name": name, "value": value}


def cuda(requirements: GpuRequirements) -> tuple[str, str] | None:
    """Return the CUDA version and its source; `>=`: inexact, `?`: uncertain."""
    if requirements.cuda is None:
        return None
    mark = "" if requirements.cuda.exact else ">="
    return (
        f"{mark}{requirements.cuda.version}{'' if requirements.cuda.certain else '?'}",
        requirements.cuda.source,
    )


def compute(requirements: GpuRequirements) -> list[str]:
    """Return the required compute capabilities; `?` marks uncertain ones."""
    return [f"{need.minimum}{'' if need.certain else '?'}" for need in requirements.compute]


REQUIRE = variable("NVIDIA_REQUIRE_CUDA", "cuda>=12.1")
VERSION = variable("CUDA_VERSION", "12.2.2")
OURS = built_in_catalog().preceded_by(
    [
        ImageRow(
            "ours",
            glob("pytorch/*"),
            (ImageCase(cuda=CudaVersion(12, 3), built_for=(ComputeCapability(8, 0),), ptx=True),),
        )
    ]
)


@pytest.mark.parametrize(
    ("annotations", "env", "catalog", "version"),
    [
        ({CUDA: "12.0"}, [REQUIRE, VERSION], OURS, ("12.0", "annotation")),
        ({}, [REQUIRE, VERSION], OURS, ("12.2", "CUDA_VERSION")),
        ({}, [REQUIRE], OURS, ("12.3", "ours")),
        ({}, [REQUIRE], built_in_catalog(), ("11.7", "pytorch/pytorch")),
        ({}, [REQUIRE], ImageCatalog([]), (">=12.1", "NVIDIA_REQUIRE_CUDA")),
        ({}, [], ImageCatalog([]), None),
    ],
)
def test_the_cuda_version_comes_from_the_first_source(
    annotations: dict[str, str],
    env: list[dict[str, Any]],
    catalog: ImageCatalog,
    version: tuple[str, str] | None,
) -> None:
    """Annotation, CUDA_VERSION, the cluster's catalogue, the built-in one, NVIDIA_REQUIRE_CUDA, none.

    What the programs need is not what the image asks for, which is the last resort.
    """
    assert version == cuda(needs(PYTORCH, env=env, annotations=annotations, catalog=catalog))


@pytest.mark.parametrize(
    ("annotations", "version"),
    [
        ({CUDA: "12.4"}, "12.4"),
        ({CUDA: "12.4.1"}, "12.4"),
        ({CUDA: " 12.4 "}, "12.4"),
        ({CUDA: "12"}, ">=12.0"),
        ({CUDA: "12.4", f"{CUDA}.main": "12.6"}, "12.6"),
        ({CUDA: "12.4", f"{CUDA}.other": "12.6"}, "12.4"),
        ({f"{CUDA}.other": "12.6"}, None),
    ],
)
def test_an_annotation_can_be_for_one_container(annotations: dict[str, Any], version: str | None) -> None:
    """It takes precedence over the pod's annotation."""
    version_and_source = cuda(needs(annotations=annotations))

    assert version == (version_and_source and version_and_source[0])


@pytest.mark.parametrize("name", [CUDA, COMPUTE, COMPAT, f"{CUDA}.main"])
def test_an_invalid_annotation_is_a_problem_and_requires_nothing(name: str) -> None:
    """The next source is used."""
    requirements = needs(PYTORCH, annotations={name: "newest" * 40})

    assert (("11.7", "pytorch/pytorch"), 1) == (cuda(requirements), len(requirements.problems))
    assert "cannot be understood; write it as `" in requirements.problems[0].en
    assert len(requirements.problems[0].en) < 200


def test_the_highest_of_several_constraints_is_the_version_of_an_unknown_image() -> None:
    """They are ANDed."""
    requirements = needs("team/app:v1", env=[REQUIRE, variable("NVIDIA_REQUIRE_X", "cuda>=12.6")])

    assert (">=12.6", "NVIDIA_REQUIRE_CUDA") == cuda(requirements)


@pytest.mark.parametrize(
    ("env", "version"),
    [
        ([variable("NVIDIA_REQUIRE_CUDA", "cuda>==12.4")], ("11.7", "pytorch/pytorch")),
        ([variable("NVIDIA_REQUIRE_CUDA", "")], ("11.7", "pytorch/pytorch")),
        ([variable("NVIDIA_REQUIRE_CUDA", "driver>=535")], ("11.7", "pytorch/pytorch")),
        ([REQUIRE, variable("NVIDIA_DISABLE_REQUIRE", "true")], ("11.7", "pytorch/pytorch")),
        ([REQUIRE, {"name": "NVIDIA_DISABLE_REQUIRE", "valueFrom": SECRET}], ("11.7", "pytorch/pytorch")),
        ([{"name": "NVIDIA_REQUIRE_CUDA", "valueFrom": SECRET}], ("11.7", "pytorch/pytorch")),
        ([variable("CUDA_VERSION", "cu121")], ("11.7", "pytorch/pytorch")),
        ([variable("CUDA_VERSION", "12")], (">=12.0", "CUDA_VERSION")),
        ([{"name": "CUDA_VERSION", "valueFrom": SECRET}], ("11.7", "pytorch/pytorch")),
        ([VERSION, variable("CUDA_VERSION", "12.6.0")], ("12.6", "CUDA_VERSION")),
        ([variable("V", "12.6"), variable("CUDA_VERSION", "$(V)")], ("12.6", "CUDA_VERSION")),
    ],
)
def test_without_a_usable_variable_the_image_is_the_source(
    env: list[dict[str, Any]], version: tuple[str, str]
) -> None:
    """Malformed, empty, disabled or from valueFrom."""
    assert version == cuda(needs(PYTORCH, env=env))


def test_an_invalid_variable_is_a_problem_and_excludes_no_node() -> None:
    """It is reported as a warning."""
    requirements = needs(PYTORCH, env=[variable("NVIDIA_REQUIRE_CUDA", "cuda>==12.4")])

    assert () == requirements.constraints
    assert [
        "NVIDIA_REQUIRE_CUDA: `cuda>==12.4` is not an expression that the NVIDIA container runtime can read"
    ] == [problem.en.partition(";")[0] for problem in requirements.problems]


@pytest.mark.parametrize(
    ("annotations", "env", "version", "declared"),
    [
        ({CUDA: "11.0"}, [], "11.0", (CUDA,)),
        ({CUDA: "11.0", COMPAT: "true"}, [VERSION], "11.0", (CUDA, COMPAT)),
    ],
)
def test_a_declaration_of_the_pod_replaces_what_is_known_of_the_image(
    annotations: dict[str, str], env: list[dict[str, Any]], version: str, declared: tuple[str, ...]
) -> None:
    """With it a user corrects a wrong row; it is kept which one it was."""
    requirements = needs(VLLM, env=env, annotations=annotations)

    assert requirements.cuda is not None
    assert ((), version, declared) == (
        requirements.constraints,
        str(requirements.cuda.version),
        requirements.declared,
    )
    assert () == needs(VLLM).declared


def test_a_version_in_a_variable_of_the_pod_does_not_change_what_the_image_requires() -> None:
    """The container runtime reads NVIDIA_REQUIRE_CUDA of the image; only versions are compared."""
    requirements = needs(VLLM, env=[variable("CUDA_VERSION", "11.0.3")])

    assert requirements.cuda is not None
    assert (needs(VLLM).constraints, "11.0") == (requirements.constraints, str(requirements.cuda.version))
    assert ("CUDA_VERSION",) == requirements.declared


def test_a_variable_that_replaces_one_of_the_image_is_a_declaration() -> None:
    """Not one that only adds to what is known."""
    assert ("NVIDIA_REQUIRE_CUDA",) == needs(VLLM, env=[REQUIRE]).declared
    assert () == needs(VLLM, env=[variable("NVIDIA_REQUIRE_ARCH", "arch>=7.0")]).declared
    assert () == needs("team/app:v1", env=[REQUIRE]).declared


def test_an_empty_requirement_of_the_pod_makes_the_version_of_the_image_count() -> None:
    """Without the older drivers that the image lists, as NVIDIA's toolkit does. The pod's comes first."""
    empty = variable("NVIDIA_REQUIRE_CUDA", "")
    own = needs(VLLM, env=[empty, variable("CUDA_VERSION", "12.6.3")])

    assert ["cuda>=12.4"] == [constraint.text for constraint in needs(VLLM, env=[empty]).constraints]
    assert ["cuda>=12.6"] == [constraint.text for constraint in own.constraints]
    assert () == needs("pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", env=[empty]).constraints


def test_a_declaration_does_not_replace_the_variables_of_the_pod() -> None:
    """NVIDIA's container runtime reads them, whatever an annotation says."""
    requirements = needs(PYTORCH, env=[REQUIRE], annotations={CUDA: "11.0"})

    assert ["cuda>=12.1"] == [constraint.text for constraint in requirements.constraints]


def test_the_declaration_of_the_version_that_the_image_has_changes_nothing_else() -> None:
    """Users repeat the variables of an image."""
    repeated = needs(VLLM, env=[variable("CUDA_VERSION", "12.4.0")])

    assert needs(VLLM).constraints == repeated.constraints


@pytest.mark.parametrize(
    ("env", "texts"),
    [
        ([], ["cuda>=12.4"]),
        ([REQUIRE], ["cuda>=12.1"]),
        ([variable("NVIDIA_REQUIRE_ARCH", "arch>=7.0")], ["arch>=7.0", "cuda>=12.4"]),
        ([variable("NVIDIA_REQUIRE_CUDA", "")], ["cuda>=12.4"]),
        ([variable("NVIDIA_DISABLE_REQUIRE", "1")], []),
        ([{"name": "NVIDIA_DISABLE_REQUIRE", "valueFrom": SECRET}], []),
        ([{"name": "NVIDIA_REQUIRE_CUDA", "valueFrom": SECRET}], []),
    ],
)
def test_a_variable_of_the_pod_replaces_that_of_the_image(
    env: list[dict[str, Any]], texts: list[str]
) -> None:
    """By its name, as container runtimes do; one that is unknown leaves nothing known."""
    requirements = needs(VLLM, env=env)

    assert texts == [constraint.text.partition(" ")[0] for constraint in requirements.constraints]


@pytest.mark.parametrize(
    ("image", "words", "annotations", "capabilities"),
    [
        ("team/app:v1", [], {}, []),
        ("team/app:v1", [], {COMPUTE: "8.0"}, ["8.0"]),
        ("team/app:v1", [], {COMPUTE: "8.0", f"{COMPUTE}.main": "9.0"}, ["9.0"]),
        ("team/app:cu130", [], {}, ["7.5"]),
        ("team/app:cu13", [], {}, ["7.5"]),
        ("team/app:cu121", [], {}, ["5.0"]),
        ("tensorflow/tensorflow:2.14.0-gpu", [], {}, ["3.5?"]),
        ("vllm/vllm-openai:v0.9.0", [], {}, ["7.0", "5.0"]),
        ("vllm/vllm-openai:v0.9.0", ["--dtype=bfloat16"], {}, ["7.0", "5.0", "8.0"]),
        ("vllm/vllm-openai:v0.9.0", ["--dtype=auto"], {}, ["7.0", "5.0"]),
        (
            "vllm/vllm-openai:v0.9.0",
            ["--dtype=bfloat16"],
            {COMPUTE: "9.0", CUDA: "13.0"},
            ["9.0", "7.0", "7.5", "8.0"],
        ),
    ],
)
def test_all_sources_of_a_compute_capability_are_used(
    image: str, words: list[str], annotations: dict[str, str], capabilities: list[str]
) -> None:
    """Annotation, image, toolkit, flags; `?` must not deny a pod."""
    assert capabilities == compute(needs(image, *words, annotations=annotations))


def test_a_requirement_does_not_define_the_toolkit() -> None:
    """It is for the driver; the capabilities of the image depend on its toolkit."""
    requirements = needs("team/app:cu121", env=[variable("NVIDIA_REQUIRE_CUDA", "cuda>=13.0")])

    assert (("12.1", "CUDA in the tag"), ["5.0"]) == (cuda(requirements), compute(requirements))
    assert ["cuda>=13.0"] == [constraint.text for constraint in requirements.constraints]


@pytest.mark.parametrize(
    ("image", "gpu", "runs"),
    [
        ("team/app:cu117", (8, 9), True),
        ("team/app:cu117", (9, 0), None),
        ("team/app:cu118", (9, 0), True),
        ("team/app:cu126", (10, 0), None),
        ("team/app:cu128", (10, 0), True),
        ("team/app:cu130", (7, 0), False),
        ("vllm/vllm-openai:v0.8.5", (10, 0), False),
    ],
)
def test_an_image_has_code_for_the_capabilities_of_its_toolkit(
    image: str, gpu: tuple[int, int], runs: bool | None
) -> None:
    """Hopper requires 11.8 and Blackwell 12.8, or PTX; a catalogue row takes precedence."""
    built_for = needs(image).built_for

    assert built_for is not None
    assert runs is built_for.runs_on(ComputeCapability(*gpu))


@pytest.mark.parametrize("image", ["team/app:v1", "team/app:cu12", "vllm/vllm-openai:latest"])
def test_the_capabilities_of_an_inexact_version_are_unknown(image: str) -> None:
    """`cu12` can be 12.0 or 12.9."""
    assert needs(image).built_for is None


@pytest.mark.parametrize(
    ("annotations", "catalog_says", "declared"),
    [
        ({}, CompatLibraries.UNKNOWN, CompatLibraries.UNKNOWN),
        ({}, CompatLibraries.INSIDE, CompatLibraries.INSIDE),
        ({COMPAT: "true"}, CompatLibraries.NONE, CompatLibraries.LOADER_PATH),
        ({COMPAT: "false"}, CompatLibraries.LOADER_PATH, CompatLibraries.NONE),
        ({f"{COMPAT}.main": "true", COMPAT: "false"}, CompatLibraries.NONE, CompatLibraries.LOADER_PATH),
        ({COMPAT: "yes"}, CompatLibraries.INSIDE, CompatLibraries.INSIDE),
    ],
)
def test_forward_compatibility_must_be_declared(
    annotations: dict[str, str], catalog_says: CompatLibraries, declared: CompatLibraries
) -> None:
    """By annotation, or by a row of the catalogue."""
    catalog = ImageCatalog([ImageRow("ours", glob("*"), (ImageCase(cuda_compat=catalog_says),))])

    assert declared is needs(annotations=annotations, catalog=catalog).cuda_compat


@pytest.mark.parametrize(
    ("arguments", "origin"),
    [
        ({"annotations": {CUDA: "12.4"}}, "annotation gpugate.dev/cuda-version says CUDA 12.4"),
        ({"env": [REQUIRE]}, "NVIDIA_REQUIRE_CUDA asks for CUDA 12.1 or newer"),
        ({"env": [VERSION]}, "variable CUDA_VERSION says CUDA 12.2.2"),
        ({"image": "team/app:cu12"}, "image tag `cu12`, base unknown, says CUDA 12"),
    ],
)
def test_a_message_explains_the_source_of_the_version(arguments: dict[str, Any], origin: str) -> None:
    """Annotation, variable or image."""
    need = needs(**arguments).cuda

    assert need is not None
    assert origin == need.origin.en


def test_a_message_explains_the_source_of_the_compute_capability() -> None:
    """And a fix other than a newer GPU."""
    requirements = needs("vllm/vllm-openai:v0.20.2", "--dtype=bfloat16", annotations={COMPUTE: "8.0"})

    assert requirements.cuda is not None
    assert [
        "annotation gpugate.dev/min-compute-capability asks for compute capability 8.0",
        "image `vllm/vllm-openai:v0.20.2` supports compute capability 7.5 and higher",
        f"{requirements.cuda.origin.en}, which compiles for compute capability 7.5 and higher",
        "`--dtype=bfloat16` of vLLM 0.20.2 needs compute capability 8.0 or higher",
    ] == [need.origin.en for need in requirements.compute]
    assert ["", "", "use an image with an older CUDA", "set --dtype=half or use an AWQ or GPTQ model"] == [
        need.remedy.en for need in requirements.compute
    ]


def test_a_plain_container_has_no_requirements() -> None:
    """Unknown stays unknown."""
    assert GpuRequirements() == needs("team/app", "sh", "-c", "sleep 1")
    assert GpuRequirements(no_cuda=True) == needs("busybox", "sh", "-c", "sleep 1")


@given(
    st.text(max_size=40),
    st.lists(st.text(max_size=40), max_size=4),
    st.dictionaries(st.sampled_from([CUDA, f"{CUDA}.main", COMPUTE, COMPAT, "x"]), st.text(max_size=20)),
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.sampled_from(["CUDA_VERSION", "NVIDIA_REQUIRE_CUDA", "DTYPE"]),
                "value": st.text(max_size=30),
            }
        )
    ),
)
def test_no_pod_raises(
    image: str, words: list[str], annotations: dict[str, str], env: list[dict[str, Any]]
) -> None:
    """And every requirement has a parsed version."""
    requirements = needs(image, *words, env=env, annotations=annotations)

    assert requirements.cuda is None or requirements.cuda.version == CudaVersion.parse(
        str(requirements.cuda.version)
    )


# Each of these was guessed wrongly once.


@pytest.mark.parametrize(
    "image",
    [
        "team/docling-server:cuda-0.0.7",  # its own version after `cuda-`
        "team/llm-d-cuda:v0.8.1",
        "vllm/vllm-openai@sha256:" + "0" * 64,  # a digest without a tag is not `latest`
        "cu121.example.com/team/app:v1",  # a registry's name
        "team/hcu12-app:v1",  # another vendor's unit
        "nvcr.io/nvidia/driver:535-5.4.0-150-generic-ubuntu22.04",
    ],
)
def test_another_number_in_an_image_name_is_not_a_cuda_version(image: str) -> None:
    """Names like those of published images."""
    assert needs(image).cuda is None


def test_a_quantization_for_another_platform_requires_nothing() -> None:
    """The server has the same flags, but another build."""
    assert [] == compute(needs("intel/vllm:0.10.0-xpu", "vllm", "serve", "m", "--quantization=fp8"))


def test_a_removed_quantization_of_a_custom_build_is_uncertain() -> None:
    """The newest vLLM does not have `nvfp4`, so a build with it is custom."""
    assert ["10.0?"] == compute(needs("team/vllm-model:local", "--quantization", "nvfp4"))


def test_flags_in_a_variable_of_a_runtime_are_used() -> None:
    """KServe's LLMInferenceService appends them to the command."""
    env = [variable("VLLM_ADDITIONAL_ARGS", "--tensor-parallel-size=8 --dtype=bfloat16")]

    assert ["8.0"] == compute(
        needs("team/llm:v1", "sh", "-c", "vllm serve /mnt ${VLLM_ADDITIONAL_ARGS}", env=env)
    )


# Facts

TEXTS = (
    "12.4",
    "cuda>=12.4",
    "true",
    "--dtype=bfloat16",
    "$(A)",
    "$(B) $(A)",
    "$$(A)",
    "--dtype",
    "bfloat16",
    "vllm serve m",
    "",
)
VARIABLES = (
    "A",
    "B",
    "CUDA_VERSION",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_DISABLE_REQUIRE",
    "VLLM_ADDITIONAL_ARGS",
    "DTYPE",
)


@given(
    st.sampled_from([VLLM, "team/app:v1"]),
    st.lists(
        st.fixed_dictionaries(
            {"name": st.sampled_from(VARIABLES)}, optional={"value": st.sampled_from(TEXTS)}
        ),
        max_size=6,
    ),
    st.lists(st.sampled_from(TEXTS), max_size=4),
    st.dictionaries(
        st.sampled_from([CUDA, COMPUTE, COMPAT]), st.sampled_from(["12.1", "8.0", "true", "maybe"])
    ),
)
def test_facts_hold_everything_that_requirements_depend_on(
    image: str, env: list[dict[str, str]], words: list[str], annotations: dict[str, str]
) -> None:
    """The same follows from all variables, words and annotations of the container."""
    entries: list[dict[str, Any]] = [
        entry if "value" in entry else entry | {"valueFrom": SECRET} for entry in env
    ]
    variables = environment(entries)
    pairs = tuple((name, annotations[name]) for name in (CUDA, COMPUTE, COMPAT) if name in annotations)
    whole = ContainerFacts(
        image, tuple(words), tuple(variables.known.items()), tuple(variables.unknown), pairs
    )
    facts = container_facts(main(image, env=entries, args=words), annotations)

    assert requirements_of(whole, built_in_catalog()) == requirements_of(facts, built_in_catalog())


def test_facts_leave_out_what_requirements_do_not_depend_on() -> None:
    """Values of variables, which may be tokens, annotations of others, and the container's name."""
    env = [variable("OTHER", "mine"), variable("A", "1")]
    facts = container_facts(main(VLLM, env=env, args=["serve"]), {"example.com/a": "b", f"{CUDA}.x": "12.4"})

    assert ContainerFacts(VLLM) == facts


def test_facts_hold_variables_that_are_referred_to() -> None:
    """By the command line, or by a variable that counts."""
    env = [variable(*pair) for pair in (("OTHER", "mine"), ("A", "12"), ("B", "4"))]
    env.append(variable("CUDA_VERSION", "$(A).$(B)"))
    facts = container_facts(main(VLLM, env=env, args=["--port=$(B)"]), {})

    assert (("B", "4"), ("CUDA_VERSION", "12.4")) == facts.known


def test_variables_in_a_script_are_used_if_their_values_are_known() -> None:
    """A value that only the cluster knows requires nothing, not even the script's default."""
    script = "vllm serve m --dtype ${DTYPE:-bfloat16}"
    secret = {"name": "DTYPE", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}

    assert [["8.0"], [], [], ["8.0?"]] == [
        compute(needs("team/llm:v1", "sh", "-c", script, env=env))
        for env in ([variable("DTYPE", "bfloat16")], [variable("DTYPE", "half")], [secret], [])
    ]


def test_equal_facts_share_one_result() -> None:
    """The result of long facts is not cached: it is computed again."""
    compiled = policy()
    results = [
        compiled.requirements_of(container_facts(main(VLLM, env=[variable("A", text)]), {}))
        for text in ("1", "2")
    ]
    long = container_facts(main(VLLM, args=["--dtype=half", "x" * 5000]), {})

    assert results[0] is results[1]
    assert compiled.requirements_of(long) == compiled.requirements_of(long)
    assert compiled.requirements_of(long) is not compiled.requirements_of(long)


def test_a_policy_uses_its_own_image_catalogue() -> None:
    """After an edit of the catalogue nothing of the old one is left."""
    facts = ContainerFacts("team/app:v1")
    cudas = [
        policy(image_catalog({"image": "*team/app:*", "cuda": version})).requirements_of(facts).cuda
        for version in ("12.1", "11.8")
    ]

    assert ["12.1", "11.8"] == [
        str(cuda_requirement.version) for cuda_requirement in cudas if cuda_requirement
    ]


def test_containers_that_differ_in_one_word_have_their_own_requirements() -> None:
    """Also if the same policy has seen both before."""
    compiled = policy()
    flags = []
    for word in ("--dtype=bfloat16", "--dtype=half", "--dtype=bfloat16"):
        requirements = compiled.requirements_of(container_facts(main(VLLM, args=[word]), {}))
        flags.append([need.by_pod for need in requirements.compute if need.by_pod])

    assert [[True], [], [True]] == flags


def test_each_condition_of_an_image_takes_steps_to_read_and_to_evaluate() -> None:
    """So many that many images of many conditions are past the limits of one object.

    Conditions that several brands have are evaluated once: of 91 there are 7 different ones.
    """
    image = "nvidia/cuda:12.4.1-base-ubuntu22.04"
    enabled, disabled = needs(image), needs(image, env=[variable("NVIDIA_DISABLE_REQUIRE", "true")])
    (constraint,) = enabled.constraints

    assert (91, 7) == (sum(len(group) for group in constraint.groups), constraint.conditions)
    assert () == disabled.constraints
    assert 20 * 7 == enabled.steps - disabled.steps
    assert 20 * 7 == enabled.evaluation_steps - disabled.evaluation_steps


def test_requirements_that_only_the_words_of_a_pod_tell_apart_have_different_hashes() -> None:
    """Else the author of a pod could make a lookup compare one with all others."""
    same = [needs(f"{PYTORCH}-{n}") for n in range(50)]
    others = [needs(PYTORCH, annotations={COMPUTE: f"8.{n}"}) for n in range(50)]
    others += [needs(PYTORCH, annotations={MEMORY: f"{n}Gi"}) for n in range(1, 50)]
    others += [needs(PYTORCH, annotations={CUDA: f"12.{n}"}) for n in range(50)]
    others += [needs(PYTORCH, env=[{"name": "NVIDIA_REQUIRE_A", "value": f"cuda>={n}"}]) for n in range(50)]

    assert len({requirements.without_origins() for requirements in same}) == 1
    for requirements in (same, others):
        assert len({hash(one) for one in requirements}) == len(requirements)
