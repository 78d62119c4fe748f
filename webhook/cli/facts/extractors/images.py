"""CUDA of published images: one section a publisher, with the form of its documents.

Documents of a release are named by its tag and the name of the file.
"""

from __future__ import annotations

import json
import re
import tomllib
from html import unescape
from typing import Final

from rules.cuda.versions import CudaVersion
from webhook.cli.facts.extractors.base import Document, Extractor, Finder, Get, Row, Rows
from webhook.cli.facts.extractors.dockerfile import Dockerfile, cuda_of
from webhook.cli.facts.extractors.github import address, commit_of, last_commit, newest_releases

_COMPARED: Final = "A test compares images.yaml, which is by hand and decides, with it."


def _cuda(text: str) -> str:
    """Return the CUDA version of a text, without its patch. Raises ValueError."""
    if (cuda := CudaVersion.parse(text)) is None:
        raise ValueError(f"{text!r} is not a CUDA version")
    return str(cuda)


# nvidia/cuda, from NVIDIA's list of supported tags. The list, a page in Markdown, has each tag between
# backquotes, such as 12.4.1-base-ubuntu22.04: CUDA, flavour, operating system. Other flavours have the CUDA
# of their base image, and give no row. See
# https://gitlab.com/nvidia/container-images/cuda/-/blob/master/doc/supported-tags.md; of commits:
# https://docs.gitlab.com/api/commits/. A page at a commit never has other content, so that the table can be
# replayed; a list of tags by Docker Hub changes with each pull.
_CUDA_LIST: Final = "doc/supported-tags.md"
CUDA_COMMITS: Final = (
    "https://gitlab.com/api/v4/projects/nvidia%2Fcontainer-images%2Fcuda/repository/commits"
    f"?path={_CUDA_LIST}&per_page=1"
)
# A tag without its operating system, or with a platform, is another name of one of these.
_CUDA_TAG: Final = re.compile(r"`((\d+\.\d+)(?:\.\d+)?-base-[a-z]+[\d.]+)`", re.ASCII)


def _find_cuda(get: Get) -> list[Document]:
    """Return the list at the last commit that changed it."""
    commit = commit_of(json.loads(get(CUDA_COMMITS))[0]["id"])
    url = f"https://gitlab.com/nvidia/container-images/cuda/-/raw/{commit}/{_CUDA_LIST}"
    return [Document("supported-tags.md", url, fixed=True)]


def _cuda_rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each base image."""
    del name
    tags = dict(_CUDA_TAG.findall(data.decode("utf-8")))
    if not tags:
        raise ValueError("no tags with a CUDA version")
    return [{"image": f"nvidia/cuda:{tag}", "cuda": cuda} for tag, cuda in tags.items()]


# LMDeploy. A stage such as `cu12.8-base` or `cu128-base` is nvidia/cuda of a version, and the end of the
# image's tag is -cu12.8: https://github.com/InternLM/lmdeploy/blob/main/docker/Dockerfile,
# .github/workflows/docker.yml. A stage on a stage of this form is another name of it, without an image.
_LMDEPLOY_STAGE: Final = re.compile(r"cu(\d\d)(?:\.?(\d))?-base", re.ASCII)


def _lmdeploy_rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each CUDA version of a release."""
    bases = Dockerfile(data).bases
    images = {
        "cu" + ".".join(filter(None, match.groups())): base
        for stage, base in bases.items()
        if (match := _LMDEPLOY_STAGE.fullmatch(stage)) and base not in bases
    }
    if not images:
        raise ValueError("no stages with a CUDA version in their name")
    return [
        {"image": f"openmmlab/lmdeploy:{name.split(maxsplit=1)[0]}-{end}", **cuda_of(base)}
        for end, base in images.items()
    ]


# NVIDIA's framework containers by month, from their release notes. The notes of a framework list a page for
# each release, `rel-26-03.html`, which says "Release 26.03 is based on CUDA 13.2.0":
# https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/.
_NGC_NOTES: Final = "https://docs.nvidia.com/deeplearning/frameworks/{}-release-notes/"
# By the name of the notes; the tag of an image is its month with this end.
_NGC_ENDS: Final = {"pytorch": "-py3", "tensorflow": "-tf2-py3", "jax": "-py3"}
_NGC_PAGE: Final = re.compile(r"\brel[-_](\d\d)[-_](\d\d)\.html\b", re.ASCII)
_NGC_CUDA: Final = re.compile(r"Release (\d\d\.\d\d) is based on (?:NVIDIA )?CUDA\W{0,3}(\d+\.\d+)", re.ASCII)
_MARKUP: Final = re.compile(r"<[^>]*>|\s+")
# Releases of a framework that are read, the newest ones.
_NGC_MONTHS: Final = 12


def _find_ngc(get: Get) -> list[Document]:
    """Return the newest release notes of each framework."""
    documents: list[Document] = []
    for framework in _NGC_ENDS:
        notes = _NGC_NOTES.format(framework)
        index = get(f"{notes}index.html").decode()
        pages = {match[1] + match[2]: match[0] for match in _NGC_PAGE.finditer(index)}
        if not pages:
            raise ValueError(f"no release notes of {framework}")
        documents += [
            Document(f"{framework} {month[:2]}.{month[2:]}", f"{notes}{pages[month]}")
            for month in sorted(pages)[-_NGC_MONTHS:]
        ]
    return documents


def _ngc_rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release. name: framework and month."""
    framework, month = name.split()
    text = " ".join(_MARKUP.sub(" ", unescape(data.decode())).split())
    for release, cuda in _NGC_CUDA.findall(text):
        if release == month:
            return [{"image": f"nvcr.io/nvidia/{framework}:{month}{_NGC_ENDS[framework]}", "cuda": cuda}]
    raise ValueError(f"no CUDA version of {name}")


def _sglang_rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release of SGLang, which is built on nvidia/cuda of the version in `CUDA_VERSION`.

    Source: https://github.com/sgl-project/sglang/blob/main/docker/Dockerfile. Other versions have their CUDA
    in the tag.
    """
    return [{"image": f"lmsysorg/sglang:{name.split(maxsplit=1)[0]}", **cuda_of(Dockerfile(data).image())}]


# Text Embeddings Inference. Dockerfile-cuda is that of the images for one GPU architecture, such as 1.9.3 and
# 89-1.9.3, Dockerfile-cuda-all that of cuda-1.9.3, by .github/workflows/matrix.json:
# https://github.com/huggingface/text-embeddings-inference.
_TEI_PREFIXES: Final = {
    "Dockerfile-cuda": ("turing-", "", "86-", "89-", "hopper-"),
    "Dockerfile-cuda-all": ("cuda-",),
}


def _tei_rows(name: str, data: bytes) -> list[Row]:
    """Return the rows of a release."""
    tag, file = name.split()
    cuda = cuda_of(Dockerfile(data).image())
    image = "ghcr.io/huggingface/text-embeddings-inference"
    return [{"image": f"{image}:{prefix}{tag.removeprefix('v')}", **cuda} for prefix in _TEI_PREFIXES[file]]


# Text Generation Inference. PyTorch has its own CUDA, newer than that of the image below it, nvidia/cuda:
# server/uv.lock has the version of `nvidia-cuda-runtime-cu12`, Dockerfile that image:
# https://github.com/huggingface/text-generation-inference. Form of the lock file:
# https://docs.astral.sh/uv/concepts/projects/layout/#the-lockfile.
_TGI_RUNTIME: Final = re.compile(r"nvidia-cuda-runtime(?:-cu\d\d)?", re.ASCII)


def _tgi_rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release: `base` from its Dockerfile, `cuda` from its lock file."""
    tag, file = name.split()
    image = f"ghcr.io/huggingface/text-generation-inference:{tag.removeprefix('v')}"
    if file == "Dockerfile":
        return [{"image": image, "base": cuda_of(Dockerfile(data).image())["base"]}]
    packages = tomllib.loads(data.decode("utf-8"))["package"]
    versions = [
        version
        for package in packages
        if _TGI_RUNTIME.fullmatch(package["name"]) and (version := CudaVersion.parse(package["version"]))
    ]
    if not versions:
        raise ValueError("no package with the CUDA runtime")
    return [{"image": image, "cuda": str(max(versions))}]


# Triton by month, from the tables in its documentation: a table for each kind of image, with the columns
# `NGC Tag`, `CUDA version` such as 13.4.1.012, and others:
# https://github.com/triton-inference-server/server/blob/main/docs/introduction/compatibility.md. Images
# that an update of the document leaves out stay in the registry, but give no row any more.
_TRITON: Final = "triton-inference-server/server"
_TRITON_TABLES: Final = "docs/introduction/compatibility.md"
_TRITON_IMAGE, _TRITON_CUDA = "NGC Tag", "CUDA version"


def _find_triton(get: Get) -> list[Document]:
    """Return the document at the last commit that changed it."""
    commit = last_commit(get, _TRITON, _TRITON_TABLES)
    return [Document("compatibility.md", address(_TRITON, commit, _TRITON_TABLES), fixed=True)]


def _triton_rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each image."""
    del name
    images: list[Row] = []
    columns: list[str] = []
    for line in data.decode("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not (cells and columns):
            columns = cells  # the head of a table, or none after its end
        elif _TRITON_CUDA in columns and not cells[0].startswith("-"):
            row = dict(zip(columns, cells, strict=True))
            images.append({"image": row[_TRITON_IMAGE], "cuda": _cuda(row[_TRITON_CUDA])})
    if not images:
        raise ValueError("no images with a CUDA version")
    return images


def _vllm_rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release of vLLM.

    docker/versions.json has the arguments of its Dockerfile, `CUDA_VERSION` among them, each as
    `{"default": "13.0.2"}` in `variable`: https://github.com/vllm-project/vllm/blob/main/docker/versions.json.
    """
    cuda = _cuda(json.loads(data)["variable"]["CUDA_VERSION"]["default"])
    return [{"image": f"vllm/vllm-openai:{name.split(maxsplit=1)[0]}", "cuda": cuda}]


def _of(table: str, source: str, images: str, find: Finder, rows: Rows) -> Extractor:
    return Extractor(table, source, "verified", f"CUDA of {images}. {_COMPARED}", find, rows)


IMAGE_EXTRACTORS: Final = (
    _of("cuda_images", "nvidia-cuda-tags", "NVIDIA's base images", _find_cuda, _cuda_rows),
    _of(
        "lmdeploy_images",
        "lmdeploy-dockerfile",
        "LMDeploy's newest images",
        newest_releases("InternLM/lmdeploy", "docker/Dockerfile"),
        _lmdeploy_rows,
    ),
    _of("ngc_images", "ngc-release-notes", "NVIDIA's newest images", _find_ngc, _ngc_rows),
    _of(
        "sglang_images",
        "sglang-dockerfile",
        "SGLang's newest images",
        newest_releases("sgl-project/sglang", "docker/Dockerfile"),
        _sglang_rows,
    ),
    _of(
        "tei_images",
        "tei-dockerfile",
        "Text Embeddings Inference",
        newest_releases("huggingface/text-embeddings-inference", *_TEI_PREFIXES),
        _tei_rows,
    ),
    _of(
        "tgi_images",
        "tgi-dockerfile",
        "Text Generation Inference",
        newest_releases("huggingface/text-generation-inference", "Dockerfile", "server/uv.lock"),
        _tgi_rows,
    ),
    _of("triton_images", "ngc-triton-table", "Triton's images", _find_triton, _triton_rows),
    _of(
        "vllm_images",
        "vllm-dockerfile",
        "vLLM's newest images",
        newest_releases("vllm-project/vllm", "docker/versions.json"),
        _vllm_rows,
    ),
)
