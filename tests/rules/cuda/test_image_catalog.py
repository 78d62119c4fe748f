"""Facts about images come from the rows of a table; facts of an unmatched image stay unknown."""

from __future__ import annotations

import re
import timeit
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.image_catalog import (
    NOTHING_KNOWN,
    BuiltFor,
    CompatLibraries,
    ImageCase,
    ImageCatalog,
    ImageFacts,
    ImageRow,
    built_in_catalog,
)
from rules.cuda.versions import ComputeCapability, CudaVersion
from rules.kube.image_reference import parse_image
from rules.text.glob import glob

DIGEST = "@sha256:" + "0123456789abcdef" * 4


def find(image: str) -> ImageFacts:
    """Look up an image in the built-in catalogue."""
    return built_in_catalog().find(image)


def cuda(image: str) -> str | None:
    """Return the CUDA version of an image, marked if it is inexact or uncertain."""
    facts = find(image)
    if facts.cuda is None:
        return None
    return f"{'' if facts.exact else '>='}{facts.cuda}{'' if facts.certain else '?'}"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("rayproject/ray:2.49.1-py312-cu128", "12.8"),
        ("nvidia/samples:vectoradd-cuda11.2.1", "11.2"),
        ("team/app:cuda-10.1", "10.1"),
        ("team/app:v1-cuda92-py36", "9.2"),
        ("team/app:v1-CUDA12.4", "12.4"),
        ("quay.io/jupyter/pytorch-notebook:cuda12-python-3.11", ">=12.0"),
        ("team/app:v0.6.0-cu12", ">=12.0"),
        ("team/torch2.6-cu126-amd64:v0.1.0", "12.6"),
        ("team/training-cuda130-torch210:stable", "13.0"),
        ("team/cuda-12.6-base/app:v1", "12.6"),
        ("team/app:cuda12.1-torch2.4-cu121", "12.1"),
        ("team/cuda12.4/app-cu124:v1", "12.4"),
        (f"team/app:v1-cu121{DIGEST}", "12.1"),
        (f"team/app-cu121{DIGEST}", "12.1"),
    ],
)
def test_a_reference_contains_the_cuda_version(image: str, version: str | None) -> None:
    """`>=`: it may be newer; `?`: uncertain, so it must not deny a pod."""
    assert version == cuda(image)


@pytest.mark.parametrize(
    "image",
    [
        "",
        "${IMAGE}",
        "ubuntu:22.04",
        "nvidia/cuda",
        "nvidia/cuda:latest",
        "nvidia/k8s-device-plugin:v0.17.0",
        "nvcr.io/nvidia/driver:535-5.4.0-150-generic-ubuntu22.04",
        "nvcr.io/nvidia/pytorch:24.05-py3-igpu",
        "tensorflow/tensorflow:2.14.0",
        f"vllm/vllm-openai{DIGEST}",
        "vllm/vllm-openai:nightly",
        "docker.io/lmsysorg/sglang:nightly-dev-20251215-4449c170",
        "kserve/huggingfaceserver:latest",
        "nvcr.io/nvidia/nemo:25.06",
        "nvcr.io/nim/nvidia/riva-tts:1.3.0",
        "vllm/vllm-tpu:latest",
        "lmsysorg/sglang:v0.5.5-rocm700-mi30x",
        "ghcr.io/huggingface/text-generation-inference:3.3.5-rocm",
        "quay.io/ascend/vllm-ascend:v0.18.0-310p",
        # Two versions
        "team/app:cu118-cuda12.1",
        "team/app:cuda11.8-cu12",
        "team/app-cu118-cu124:v1",
        # Numbers after cu or cuda that are no CUDA version, and letters before it
        "team/docling-server:cuda-0.0.7",
        "team/app-cuda:2.4.1",
        "team/llm-d-cuda:v0.8.1",
        "team/app:cuda1204",
        "team/app:cu2",
        "team/app:cudnn9",
        "team/app:hcu12",
        "team/gcu120-app:v1",
        "team/focus12:v1",
        "cu121.example.com/team/app:v1",
    ],
)
def test_a_version_that_a_reference_does_not_contain_is_unknown(image: str) -> None:
    """Another version is not the CUDA version, and a digest is not a tag."""
    assert cuda(image) is None


@pytest.mark.parametrize(
    "image", ["vllm/vllm-openai:v0.9.0", "harbor.example/dockerhub/vllm/vllm-openai:v0.9.0"]
)
def test_a_private_copy_is_the_same_image(image: str) -> None:
    """A mirror keeps the path; if only the last part is equal, the builder of the image is unknown."""
    assert ("12.8", "12.8?") == (cuda(image), cuda("harbor.example/team/vllm-openai:v0.9.0"))


def test_the_newest_tag_of_a_private_copy_is_unknown() -> None:
    """The age of its `latest` is unknown."""
    assert cuda("harbor.example/vllm/vllm-openai:latest") is None


@pytest.mark.parametrize(
    ("image", "origin"),
    [
        (
            "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime",
            "image tag `2.0.0-cuda11.7-cudnn8-runtime` says CUDA 11.7",
        ),
        ("team/app:cu12", "image tag `cu12`, base unknown, says CUDA 12"),
        ("r.example:5/a-cu121:v1", "image name `r.example:5/a-cu121`, base unknown, says CUDA 12.1"),
        (f"vllm/vllm-openai:v0.9.0{DIGEST}", "image `vllm/vllm-openai:v0.9.0` carries CUDA 12.8"),
        ("vllm/vllm-openai", "image `vllm/vllm-openai:latest` carries CUDA 13.0 or newer"),
    ],
)
def test_a_message_explains_where_the_version_comes_from(image: str, origin: str) -> None:
    """The tag, the name, or the table."""
    assert origin == find(image).cuda_origin.en


@pytest.mark.parametrize(
    ("image", "compute"),
    [
        ("vllm/vllm-openai:v0.9.0", "7.0"),
        ("nvcr.io/nvidia/pytorch:25.04-py3", "7.5"),
        ("nvcr.io/nvidia/pytorch:23.05-py3", "6.0"),
        ("lmsysorg/sglang:v0.5.23-cu129", "7.5"),
        ("lmsysorg/sglang:v0.5.5-cu129", "None"),
        ("ollama/ollama:0.18.3", "5.0"),
    ],
)
def test_an_image_can_require_a_compute_capability(image: str, compute: str) -> None:
    """By its release notes or its own check."""
    assert compute == str(find(image).compute)


@pytest.mark.parametrize(
    ("image", "gpu", "runs"),
    [
        # https://github.com/vllm-project/vllm/blob/main/docker/versions.json: no PTX
        ("vllm/vllm-openai:v0.20.2", (7, 0), False),
        ("vllm/vllm-openai:v0.20.2", (8, 6), True),
        ("vllm/vllm-openai:v0.20.2", (10, 3), True),
        ("vllm/vllm-openai:v0.8.5", (10, 0), False),
        ("pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime", (10, 0), False),
        ("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime", (12, 1), True),
        ("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime", (13, 0), False),
        ("pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime", (7, 0), False),
        ("pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime", (7, 0), False),
        ("pytorch/pytorch:2.7.1-cuda12.8-cudnn9-devel", (12, 0), True),
        ("pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime", (6, 1), False),
        ("pytorch/pytorch:2.10.0-cuda12.8-cudnn9-devel", (7, 0), True),
        ("pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime", (7, 0), False),
        ("pytorch/pytorch:2.11.0-cuda12.6-cudnn9-runtime", (7, 0), True),
        ("pytorch/pytorch:2.8.0-cuda12.6-cudnn9-devel", (10, 0), False),
        ("pytorch/pytorch:2.8.0-cuda12.9-cudnn9-devel", (7, 0), True),
        ("pytorch/pytorch:2.9.1-cuda12.9-cudnn9-runtime", (6, 1), False),
        ("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime", (10, 0), False),
        ("pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel", (12, 0), False),
        ("pytorch/pytorch:2.6.0-cuda12.6-cudnn9-runtime", (8, 9), True),
    ],
)
def test_an_image_is_built_for_some_gpus(image: str, gpu: tuple[int, int], runs: bool) -> None:
    """A newer one needs PTX in the image."""
    built_for = find(image).built_for

    assert built_for is not None
    assert runs is built_for.runs_on(ComputeCapability(*gpu))


def test_newer_gpus_are_unknown_if_ptx_is_unknown() -> None:
    """Older ones cannot run it in any case."""
    built_for = BuiltFor((ComputeCapability(7, 5), ComputeCapability(9, 0)), ptx=None, certain=True)
    gpus = [ComputeCapability(*pair) for pair in [(7, 0), (8, 0), (9, 0), (10, 0)]]

    assert [False, None, True, None] == [built_for.runs_on(gpu) for gpu in gpus]


def test_ptx_helps_only_gpus_newer_than_all() -> None:
    """PTX is for the newest capability."""
    built_for = BuiltFor((ComputeCapability(7, 5), ComputeCapability(9, 0)), ptx=True, certain=True)

    assert [False, True] == [built_for.runs_on(ComputeCapability(*pair)) for pair in [(8, 0), (10, 0)]]


@pytest.mark.parametrize(
    "pattern", ["vllm/vllm-openai:*", "docker.io/vllm/*:v0.9.0", "*/vllm-openai", "vllm/vllm-openai"]
)
def test_the_rows_of_a_cluster_take_precedence(pattern: str) -> None:
    """They match every spelling, with and without the tag."""
    case = ImageCase(cuda=CudaVersion(11, 8), cuda_compat=CompatLibraries.LOADER_PATH)
    catalog = built_in_catalog().preceded_by([ImageRow("ours", glob(pattern), (case,))])
    facts = catalog.find("vllm/vllm-openai:v0.9.0")

    assert ("ours", (11, 8), True, CompatLibraries.LOADER_PATH) == (
        facts.row,
        facts.cuda,
        facts.exact,
        facts.cuda_compat,
    )
    assert catalog.find("pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel").cuda == (12, 4)


def row(name: str, cuda: int, **of: str) -> ImageRow:
    """Return a row of a cluster with a CUDA version, of a pattern, an exact text or a digest."""
    pattern = glob(of.pop("pattern")) if "pattern" in of else None
    return ImageRow(name, pattern, (ImageCase(cuda=CudaVersion(cuda, 0)),), **of)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (f"team/app:v1{DIGEST}", "digest"),
        (f"mirror.example/team/app{DIGEST}", "digest"),
        (f"team/app:v1@sha256:{'0' * 64}", "exact"),
        ("team/app:v1", "exact"),
        ("docker.io/team/app:v1", "exact"),
        ("team/app:v2", "pattern"),
        ("team/other-cu121:v1", "CUDA in the name"),
    ],
)
def test_a_digest_precedes_an_exact_reference_and_that_a_pattern(image: str, name: str) -> None:
    """Whatever the order of the rows."""
    rows = [
        row("pattern", 12, pattern="team/app:*"),
        row("exact", 12, exact="team/app:v1"),
        row("digest", 12, digest=DIGEST[1:]),
    ]

    assert name == built_in_catalog().preceded_by(rows).find(image).row


def test_a_row_for_a_digest_is_for_no_other_digest() -> None:
    """The tag has been moved since the row was written."""
    catalog = ImageCatalog([row("ours", 12, exact="team/app:v1", digest=DIGEST[1:])])

    assert ["ours", "ours", ""] == [
        catalog.find(image).row
        for image in ("team/app:v1", f"team/app:v1{DIGEST}", f"team/app:v1@sha256:{'0' * 64}")
    ]


VLLM = "vllm/vllm-openai:v0.6.5"
REQUIRE = (("NVIDIA_REQUIRE_CUDA", "cuda>=12.4"),)


def with_row(case: ImageCase) -> ImageFacts:
    """Return the facts about vLLM 0.6.5 with a row of a cluster for it."""
    rows = [ImageRow("ours", None, (case,), exact=VLLM)]
    return built_in_catalog().preceded_by(rows).find(VLLM)


def test_what_a_row_of_a_cluster_does_not_state_comes_from_the_built_in_row() -> None:
    """The config of an image shows its requirement, but not the GPUs that it has code for."""
    of_row, of_family = with_row(ImageCase(require=REQUIRE)), find(VLLM)

    assert ("ours", ["cuda>=12.4"]) == (of_row.row, [constraint.text for constraint in of_row.constraints])
    for fact in ("cuda", "exact", "certain", "cuda_origin", "compute", "built_for", "cuda_compat"):
        assert getattr(of_family, fact) == getattr(of_row, fact)


def test_an_image_that_requires_nothing_gets_no_requirement_of_the_built_in_row() -> None:
    """A row that states `require: {}` knows that; a row without it does not."""
    assert [(), find(VLLM).constraints] == [
        with_row(ImageCase(require=())).constraints,
        with_row(ImageCase(platforms=("linux/amd64",))).constraints,
    ]


def test_a_row_with_another_cuda_version_is_about_another_image_of_that_name() -> None:
    """Nothing of the built-in row is added to it."""
    facts = with_row(ImageCase(cuda=CudaVersion(11, 8)))

    assert ((), None, None) == (facts.constraints, facts.compute, facts.built_for)


@pytest.mark.parametrize("image", ["team/app:v1", f"team/app:v1{DIGEST}"])
def test_rows_for_the_platforms_of_an_image_are_one_fact(image: str) -> None:
    """By its tag as by its digest; a second row for a platform, or of another ConfigMap, adds nothing."""

    def of(name: str, platform: str, text: str) -> ImageRow:
        case = ImageCase(require=(("NVIDIA_REQUIRE_CUDA", text),), platforms=(platform,))
        return ImageRow(name, None, (case,), digest=DIGEST[1:], exact="team/app:v1")

    catalog = ImageCatalog(
        [
            of("ours", "linux/amd64", "cuda>=12.4"),
            of("ours", "linux/arm64", "cuda>=12.5"),
            of("ours", "linux/arm64", "cuda>=12.6"),
            of("theirs", "linux/s390x", "cuda>=12.7"),
        ]
    )
    facts = catalog.find(image)

    assert ("linux/amd64", "linux/arm64") == facts.platforms
    assert [("amd64", "cuda>=12.4"), ("arm64", "cuda>=12.5")] == [
        (constraint.architecture, constraint.text) for constraint in facts.constraints
    ]


def test_an_empty_catalogue_knows_nothing() -> None:
    """As does every catalogue for an invalid reference."""
    assert [NOTHING_KNOWN, NOTHING_KNOWN] == [
        ImageCatalog([]).find("nvidia/cuda:12.1.0-base"),
        find("<image>"),
    ]


def test_the_facts_of_an_image_are_cached() -> None:
    """Pods of a workload share images: a second lookup takes less than a fifth of the first."""
    families = built_in_catalog().families
    remembering = ImageCatalog((), families)
    first = min(timeit.repeat(lambda: ImageCatalog((), families).find("team/app:v1"), number=10, repeat=5))
    again = min(timeit.repeat(lambda: remembering.find("team/app:v1"), number=10, repeat=5))

    assert again < first / 5


def test_a_port_is_not_a_tag() -> None:
    """A registry can have a port."""
    assert "CUDA in the name" == find("registry:5000/cuda12/app:v1").row


def test_the_general_rows_come_last() -> None:
    """The rows of image families have more facts."""
    names = [family.name for family in built_in_catalog().families]
    general = [row.name for row in built_in_catalog().families if not (row.repositories or row.references)]

    assert len(set(names)) == len(names)
    assert ["CUDA in the tag", "CUDA in the name"] == general[:2]
    assert general == names[-len(general) :]


@pytest.mark.parametrize("name", ["team/app", "vllm/vllm-openai", "lmsysorg/sglang", "rayproject/ray", ""])
@pytest.mark.parametrize("text", ["cu12-", "cuda12.1_", "v0.11.0-", "0.5.6.post1-", "2.9.0.abcdef-", "-a"])
def test_a_long_reference_is_matched_in_less_than_10_milliseconds(name: str, text: str) -> None:
    """A repository has up to 255 characters, a tag 128, and no pattern takes quadratic time."""
    tag = "0" + (text * 128)[:127]
    image = f"{name or 'team/a' + (text * 240)[:240].rstrip('-_.')}:{tag}"

    assert parse_image(image) is not None
    assert min(timeit.repeat(lambda: built_in_catalog().look_up(image), number=1, repeat=5)) < 0.01


def test_every_pattern_takes_less_than_a_millisecond_for_the_longest_tag() -> None:
    """None takes quadratic time for what it repeats; most take 10 µs."""
    starts = ("", "1.2.3", "24.05", "v0.9.0-", "cuda12.1")
    parts = ("1", "1.", "-", "_", "a", "cu12", "cuda12.", "12.0", "-cuda", "-gpu", "rc1", ".post1")
    tags = [(start + part * 128)[:126] + end for start in starts for part in parts for end in ("-x", "_!")]

    def slowest(pattern: re.Pattern[str]) -> float:
        return max(timeit.timeit(partial(pattern.fullmatch, tag), number=1) for tag in tags)

    for family in built_in_catalog().families:  # again if it was slow: other processes interrupt a match
        assert any(slowest(family.pattern) < 0.001 for _ in range(5)), family.name


def test_only_the_last_part_of_a_repository_may_be_any() -> None:
    """As in rocm/*; a path matches by its end."""
    paths = [path for family in built_in_catalog().families for path in family.repositories]

    assert [] == [path for path in paths if "*" in path.rpartition("/")[0]]
    row = "images for AMD GPUs"
    assert [row, row, ""] == [
        find(f"{path}:v1").row for path in ("rocm/app", "r.example/rocm/app", "rocm/a/b")
    ]


def test_the_newest_image_is_known_by_its_whole_reference() -> None:
    """However a user writes it, in the registry of the vendor only."""
    row = "vllm/vllm-openai, newest"

    assert [row, row, "", ""] == [
        find(f"{name}vllm/vllm-openai:latest").row for name in ("", "index.docker.io/", "r.example/", "team/")
    ]


@given(
    st.from_regex(
        r"[a-z]{1,6}(/[a-z]{1,8}){0,2}:[a-z0-9.-]{0,12}(cu|cuda|cuda-)\d{0,3}(\.\d{1,2})?[a-z0-9.-]{0,8}",
        fullmatch=True,
    )
)
def test_a_version_that_is_found_is_in_the_reference(image: str) -> None:
    """For any tag, it contains the digits in that order."""
    version = find(image).cuda

    if version is not None and find(image).row.startswith("CUDA in"):
        assert re.search(rf"cu(da)?[-_.]?{version.major}", image)
        assert not find(image).exact or re.search(rf"{version.major}\.?{version.minor}", image)


def test_a_cluster_row_does_not_make_an_uncertain_built_in_fact_certain() -> None:
    """A copy at another path may be another image."""
    image = "mycorp/vllm-openai:v0.9.0"
    case = ImageCase(require=(("NVIDIA_REQUIRE_CUDA", "cuda>=12.8"),))
    before = built_in_catalog().find(image)
    facts = built_in_catalog().preceded_by([ImageRow("ours", None, (case,), exact=image)]).find(image)

    assert (False, True) == (before.certain, before.compute is not None)
    assert facts.compute is None
