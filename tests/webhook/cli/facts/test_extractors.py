"""Extractors on small documents in the forms of their sources."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from rules.cuda.tables import GENERATED, read_table
from tests.support.fact_sources import pypi_document, wheel, wheel_url
from webhook.cli.facts.extractors import EXTRACTORS
from webhook.cli.facts.extractors.base import EXTRACT_ERRORS, Document, Extractor
from webhook.cli.facts.extractors.images import CUDA_COMMITS

SAMPLES = Path(__file__).parent / "samples"
PROFILE = (SAMPLES / "x9000.yaml").read_bytes()
INSTANCES = (SAMPLES / "instance-types.md").read_bytes()
TRITON = (SAMPLES / "compatibility.md").read_bytes()
NEW_KIND = json.dumps(
    {"580": {"type": "new", "driver_info": [{"release_version": "580.1", "release_date": "2026-01-01"}]}}
).encode()
(
    aws_instances,
    cuda_images,
    driver_branches,
    driver_redist,
    gpu_profiles,
    lmdeploy_images,
    ngc_images,
    sglang_images,
    tei_images,
    tgi_images,
    toolkit_modes,
    toolkit_wheels,
    triton_images,
    vllm_images,
) = EXTRACTORS
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_each_generated_table_has_one_extractor_whose_source_is_listed() -> None:
    sources = read_table("sources")

    assert list(GENERATED) == [extractor.table for extractor in EXTRACTORS]
    assert [] == [extractor.source for extractor in EXTRACTORS if extractor.source not in sources]


def test_a_driver_branch_has_its_kind_and_newest_driver() -> None:
    rows = driver_branches.rows("releases.json", (SAMPLES / "releases.json").read_bytes())

    assert [
        {"branch": 9580, "kind": "lts", "newest": "9580.126.09", "released": "2026-01-13"},
        {"branch": 9590, "kind": "production", "newest": "9590.48.01", "released": "2025-12-22"},
        {"branch": 9595, "kind": "new-feature", "newest": "9595.45.04", "released": "2026-03-24"},
    ] == rows


def test_a_toolkit_has_the_capabilities_of_its_compiler() -> None:
    """Without the variants of a capability, and without other words of the program."""
    content = wheel("compute_100", "compute_90a", "lto_75", "compute_80", "sm_20", "lto_80", "lto_100f")

    assert [{"cuda": "13.5", "built_for": "7.5 8.0 10.0"}] == toolkit_wheels.rows("13.5.37", content)


def test_a_driver_branch_has_the_cuda_of_its_newest_driver() -> None:
    """As a text or a list; a major version alone is none."""
    manifest = (SAMPLES / "redistrib_9620.70.06.json").read_bytes()
    listed = manifest.replace(b'"13.5"', b'["12", "13.4", "13.10"]')
    row = {"branch": 9620, "cuda": "13.5", "driver": "9620.70.06", "released": "2026-11-04"}

    assert [row] == driver_redist.rows("9620.70.06", manifest)
    assert [row | {"cuda": "13.10"}] == driver_redist.rows("9620.70.06", listed)
    with pytest.raises(ValueError, match="no CUDA version"):
        driver_redist.rows("9620.70.06", manifest.replace(b'"13.5"', b'["12", "13"]'))


def test_the_manifest_of_the_newest_driver_of_each_branch_is_read() -> None:
    """Of all that the folder lists, compared as versions."""
    folder = "https://developer.download.nvidia.com/compute/nvidia-driver/redist/"
    names = ("9580.95.05", "9580.126.09", "9620.70.06")
    page = "".join(f"<a href='redistrib_{name}.json'>redistrib_{name}.json</a>" for name in names)

    assert [
        Document(version, f"{folder}redistrib_{version}.json", fixed=True)
        for version in ("9580.126.09", "9620.70.06")
    ] == driver_redist.find({folder: page.encode()}.__getitem__)


def _pypi(releases: dict[str, Any], **changes: Any) -> dict[str, bytes]:
    """Return the documents of PyPI, with releases of one of the projects."""
    names = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")
    documents = {f"https://pypi.org/pypi/{name}/json": pypi_document({}) for name in names}
    return {**documents, "https://pypi.org/pypi/nvidia-cuda-nvcc/json": pypi_document(releases, **changes)}


def test_the_newest_wheel_of_each_cuda_version_is_read() -> None:
    """Releases compare as versions; the address of a wheel never has other content."""
    content = wheel("compute_90")
    documents = _pypi({"13.4.9": content, "13.10.1": content, "13.4.92": content, "0.0.1.dev5": content})
    digest = sha256(content).hexdigest()

    assert [
        Document(release, wheel_url(release), fixed=True, sha256=digest) for release in ("13.4.92", "13.10.1")
    ] == toolkit_wheels.find(documents.__getitem__)


@pytest.mark.parametrize("changes", [{"yanked": True}, {"filename": "nvcc-13.4.9-win_amd64.whl"}])
def test_a_wheel_that_was_withdrawn_or_is_of_another_system_is_not_read(changes: dict[str, Any]) -> None:
    documents = _pypi({"13.4.9": wheel("compute_90")}, **changes)

    assert [] == toolkit_wheels.find(documents.__getitem__)


def test_an_image_of_triton_has_the_cuda_of_its_row() -> None:
    """In a table of any columns; one without images is passed over."""
    images = {"96.07-trtllm": "13.1", "96.08-vllm": "13.4", "96.07-vllm": "13.3"}
    rows = triton_images.rows("compatibility.md", TRITON)

    assert [
        {"image": f"nvcr.io/nvidia/tritonserver:{tag}-python-py3", "cuda": cuda}
        for tag, cuda in images.items()
    ] == rows
    with pytest.raises(ValueError, match="'new' is not a CUDA version"):
        triton_images.rows("compatibility.md", TRITON.replace(b"13.3.0.035", b"new"))
    with pytest.raises(ValueError, match="shorter"):
        triton_images.rows("compatibility.md", TRITON.replace(b" 13.3.0.035 |", b""))


def test_the_tables_of_triton_are_read_at_the_commit_that_changed_them_last() -> None:
    path, repository = "docs/introduction/compatibility.md", "triton-inference-server/server"
    api = f"https://api.github.com/repos/{repository}/commits?path={path}&per_page=1"
    url = f"https://raw.githubusercontent.com/{repository}/{COMMIT}/{path}"

    assert [Document("compatibility.md", url, fixed=True)] == triton_images.find(
        {api: json.dumps([{"sha": COMMIT}]).encode()}.__getitem__
    )


def test_a_base_image_of_cuda_has_the_cuda_of_its_tag() -> None:
    """Once; a tag without its operating system, with a platform, or of another flavour gives no row."""
    tags = {"98.4.1-base-ubuntu22.04": "98.4", "97.3-base-rockylinux8": "97.3"}

    assert [{"image": f"nvidia/cuda:{tag}", "cuda": cuda} for tag, cuda in tags.items()] == cuda_images.rows(
        "supported-tags.md", (SAMPLES / "supported-tags.md").read_bytes()
    )


def test_the_tags_of_cuda_images_are_read_at_the_commit_that_changed_them_last() -> None:
    url = f"https://gitlab.com/nvidia/container-images/cuda/-/raw/{COMMIT}/doc/supported-tags.md"

    assert [Document("supported-tags.md", url, fixed=True)] == cuda_images.find(
        {CUDA_COMMITS: json.dumps([{"id": COMMIT}]).encode()}.__getitem__
    )


def test_an_image_of_a_framework_has_the_cuda_of_its_release_notes() -> None:
    """By the release that they are of; other words of the page say nothing."""
    notes = (SAMPLES / "rel-98-03.html").read_bytes()

    assert [{"image": "nvcr.io/nvidia/pytorch:98.03-py3", "cuda": "13.2"}] == ngc_images.rows(
        "pytorch 98.03", notes
    )
    assert [{"image": "nvcr.io/nvidia/tensorflow:98.02-tf2-py3", "cuda": "13.1"}] == ngc_images.rows(
        "tensorflow 98.02", notes
    )
    with pytest.raises(ValueError, match=r"no CUDA version of jax 98\.01"):
        ngc_images.rows("jax 98.01", notes)


def test_the_newest_release_notes_of_each_framework_are_read() -> None:
    """By month, of the twelve newest; older pages have another form of name."""
    pages = [f"rel-98-{month:02}.html" for month in range(2, 13)] + [
        "rel_97-11.html",
        "rel_97-12.html",
        "index.html",
    ]
    index = "".join(f'<a href="{page}#driver">{page}</a>' for page in pages).encode()
    documents = ngc_images.find(lambda _: index)
    base = "https://docs.nvidia.com/deeplearning/frameworks"

    assert Document("pytorch 97.12", f"{base}/pytorch-release-notes/rel_97-12.html") == documents[0]
    assert Document("jax 98.12", f"{base}/jax-release-notes/rel-98-12.html") == documents[-1]
    assert 36 == len(documents)


def test_an_image_of_vllm_has_the_cuda_of_its_build() -> None:
    versions = (SAMPLES / "versions.json").read_bytes()
    name = "v9.33.0 versions.json"

    assert [{"image": "vllm/vllm-openai:v9.33.0", "cuda": "13.0"}] == vllm_images.rows(name, versions)
    with pytest.raises(ValueError, match="'new' is not a CUDA version"):
        vllm_images.rows(name, versions.replace(b'"13.0.2"', b'"new"'))


def test_an_image_of_sglang_has_the_cuda_of_the_image_that_its_last_stage_is_built_on() -> None:
    """With the default that the argument has before the first stage; a command is no stage."""
    file = (SAMPLES / "sglang.Dockerfile").read_bytes()
    name = "v9.5.1.post2 Dockerfile"

    assert [
        {"image": "lmsysorg/sglang:v9.5.1.post2", "cuda": "97.1", "base": "97.1.2"}
    ] == sglang_images.rows(name, file)
    with pytest.raises(KeyError, match="CUDA_VERSION"):
        sglang_images.rows(name, file.replace(b"ARG CUDA_VERSION=97.1.2\n", b""))
    with pytest.raises(ValueError, match="'scratch' is not an image of nvidia/cuda"):
        sglang_images.rows(name, file.replace(b"FROM runtime", b"FROM local_src"))


def test_an_image_of_lmdeploy_has_its_cuda_in_the_name_of_a_stage() -> None:
    """A stage on such a stage is another name, and no image."""
    file = (SAMPLES / "lmdeploy.Dockerfile").read_bytes()
    versions = {"cu97.0": "97.0.3", "cu96.8": "96.8.1", "cu95": "95.6.3"}

    assert [
        {"image": f"openmmlab/lmdeploy:v9.16.0-{end}", "cuda": base.rpartition(".")[0], "base": base}
        for end, base in versions.items()
    ] == lmdeploy_images.rows("v9.16.0 Dockerfile", file)
    with pytest.raises(ValueError, match="no stages with a CUDA version"):
        lmdeploy_images.rows("v9.16.0 Dockerfile", file.replace(b" AS cu", b" AS x"))


def test_an_image_of_text_embeddings_inference_has_the_cuda_of_its_dockerfile() -> None:
    """One file for the images of one GPU architecture, one for that of several."""
    file = (SAMPLES / "Dockerfile-cuda").read_bytes()
    image, facts = "ghcr.io/huggingface/text-embeddings-inference", {"cuda": "97.9", "base": "97.9.1"}

    assert [
        {"image": f"{image}:{prefix}9.3.1", **facts} for prefix in ("turing-", "", "86-", "89-", "hopper-")
    ] == tei_images.rows("v9.3.1 Dockerfile-cuda", file)
    assert [{"image": f"{image}:cuda-9.3.1", **facts}] == tei_images.rows("v9.3.1 Dockerfile-cuda-all", file)


def test_an_image_of_text_generation_inference_has_the_cuda_of_its_pytorch() -> None:
    """The image below it is older."""
    image = "ghcr.io/huggingface/text-generation-inference:9.3.7"
    lock = (SAMPLES / "uv.lock").read_bytes()

    assert [{"image": image, "cuda": "97.8"}] == tgi_images.rows("v9.3.7 uv.lock", lock)
    assert [{"image": image, "base": "97.9.1"}] == tgi_images.rows(
        "v9.3.7 Dockerfile", (SAMPLES / "Dockerfile-cuda").read_bytes()
    )
    with pytest.raises(ValueError, match="no package with the CUDA runtime"):
        tgi_images.rows("v9.3.7 uv.lock", lock.replace(b"runtime", b"cupti"))


def test_a_container_toolkit_has_the_mode_that_it_takes_with_nvml() -> None:
    """As a constant or, before 1.18, as a text."""
    source = (SAMPLES / "auto.go").read_bytes()
    name = "v9.20.0 auto.go"

    assert [{"toolkit": "9.20.0", "mode": "jit-cdi"}] == toolkit_modes.rows(name, source)
    assert [{"toolkit": "9.20.0", "mode": "legacy"}] == toolkit_modes.rows(
        name, source.replace(b"return m.defaultMode", b'return "legacy"', 1)
    )
    with pytest.raises(ValueError, match="NewMode is not a mode"):
        toolkit_modes.rows(name, source.replace(b"defaultMode: JitCDIRuntimeMode", b"defaultMode: NewMode"))


@pytest.mark.parametrize(
    ("source", "repository", "paths"),
    [
        (lmdeploy_images, "InternLM/lmdeploy", ["docker/Dockerfile"]),
        (sglang_images, "sgl-project/sglang", ["docker/Dockerfile"]),
        (tei_images, "huggingface/text-embeddings-inference", ["Dockerfile-cuda", "Dockerfile-cuda-all"]),
        (tgi_images, "huggingface/text-generation-inference", ["Dockerfile", "server/uv.lock"]),
        (toolkit_modes, "NVIDIA/nvidia-container-toolkit", ["internal/info/auto.go"]),
        (vllm_images, "vllm-project/vllm", ["docker/versions.json"]),
    ],
)
def test_the_newest_release_of_the_three_newest_minor_versions_is_read(
    source: Extractor, repository: str, paths: list[str]
) -> None:
    """At its commit; no release candidate."""
    names = [
        "v9.9.1",
        "v9.10.0rc1",
        "v9.10.2",
        "v9.10.10.post1",
        "v9.11.0",
        "v9.8.0",
        "v9.12.0-rc.2",
        "nightly",
    ]
    tags = [{"name": name, "commit": {"sha": f"{number:040}"}} for number, name in enumerate(names)]
    api = f"https://api.github.com/repos/{repository}/tags?per_page=100"
    raw = f"https://raw.githubusercontent.com/{repository}"

    assert [
        Document(f"{name} {Path(path).name}", f"{raw}/{names.index(name):040}/{path}", fixed=True)
        for name in ("v9.9.1", "v9.10.10.post1", "v9.11.0")
        for path in paths
    ] == source.find({api: json.dumps(tags).encode()}.__getitem__)


def test_a_gpu_has_the_label_of_its_name() -> None:
    expected = {
        "product": "X9000 80GB (SXM)",
        "label": r"X9000-80GB-\(SXM\)",
        "compute": "8.9",
        "arch": "ada",
        "segment": "datacenter",
    }

    assert [expected] == gpu_profiles.rows("x9000.yaml", PROFILE)


def test_profiles_are_read_at_the_commit_that_changed_them_last() -> None:
    folder = "deployments/nvml-mock/helm/nvml-mock/profiles"
    api = "https://api.github.com/repos/NVIDIA/k8s-test-infra"
    entries = [{"name": name} for name in ("x9000.yaml", "README.md", "../x.yaml", "a100.yaml")]
    documents = {
        f"{api}/commits?path={folder}&per_page=1": json.dumps([{"sha": COMMIT}]).encode(),
        f"{api}/contents/{folder}?ref={COMMIT}": json.dumps(entries).encode(),
    }
    base = f"https://raw.githubusercontent.com/NVIDIA/k8s-test-infra/{COMMIT}/{folder}"

    assert [
        Document("a100.yaml", f"{base}/a100.yaml", fixed=True),
        Document("x9000.yaml", f"{base}/x9000.yaml", fixed=True),
    ] == gpu_profiles.find(documents.__getitem__)


def test_an_instance_family_has_the_gpu_of_its_types() -> None:
    """With the product that has as much memory; a share of a GPU is a virtual one; no row for a new name."""
    assert [
        {"value": "g94ad", "product": ""},
        {"value": "g96f", "product": "NVIDIA-L4", "vgpu": True},
        {"value": "p94d", "product": "NVIDIA-A100-SXM4-40GB"},
        {"value": "p94x", "product": "NVIDIA-A100-SXM4-80GB NVIDIA-H200"},
    ] == aws_instances.rows("instance-types.md", INSTANCES)
    assert ["x9000"] == aws_instances.unknown(INSTANCES)


def test_of_a_gpu_with_another_memory_all_products_of_its_name_are_possible() -> None:
    content = INSTANCES.replace(b"gpu-memory|40960", b"gpu-memory|65536")
    row = next(row for row in aws_instances.rows("instance-types.md", content) if row["value"] == "p94d")

    assert "NVIDIA-A100-SXM4-40GB NVIDIA-A100-SXM4-80GB" == row["product"]


def test_the_name_of_a_family_is_no_pattern() -> None:
    """A document cannot name all families."""
    content = INSTANCES.replace(b"instance-family|p94d|", b"instance-family|.*|")

    assert r"\.\*" in [row["value"] for row in aws_instances.rows("instance-types.md", content)]


def test_instance_types_are_read_at_the_commit_that_changed_them_last() -> None:
    """Each time, since the names of GPUs by hand change."""
    path = "website/content/en/preview/reference/instance-types.md"
    api = f"https://api.github.com/repos/aws/karpenter-provider-aws/commits?path={path}&per_page=1"
    url = f"https://raw.githubusercontent.com/aws/karpenter-provider-aws/{COMMIT}/{path}"
    documents = {api: json.dumps([{"sha": COMMIT}]).encode()}

    assert [Document("instance-types.md", url, fixed=False)] == aws_instances.find(documents.__getitem__)


@pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda extractor: extractor.table)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"<html>",
        b"[]",
        b"{}",
        b'{"580": {}}',
        b'{"580": []}',
        NEW_KIND,
        b'{"a": 1}',
        b"[" * 100_000,
    ],
)
def test_another_form_is_an_error_and_no_rows(extractor: Extractor, content: bytes) -> None:
    """A page that says so is no facts."""
    if extractor.table == "driver_branches" and content == b"{}":
        assert [] == extractor.rows("releases.json", content)
        return
    with pytest.raises(EXTRACT_ERRORS):
        extractor.rows("1.2.3 Dockerfile", content)


@pytest.mark.parametrize(
    "source",
    [aws_instances, cuda_images, gpu_profiles, ngc_images, toolkit_wheels, triton_images],
)
@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"{}", b'[{"sha": "../.."}]'])
def test_a_list_of_documents_of_another_form_is_an_error(source: Extractor, content: bytes) -> None:
    with pytest.raises(EXTRACT_ERRORS):
        source.find(lambda _: content)


def test_a_wheel_without_a_list_of_architectures_is_an_error() -> None:
    with pytest.raises(ValueError, match="no list of architectures"):
        toolkit_wheels.rows("13.5.37", wheel())
