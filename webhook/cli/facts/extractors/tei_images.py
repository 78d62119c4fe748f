"""CUDA of Text Embeddings Inference's images, from the Dockerfiles of its newest releases.

Dockerfile-cuda is that of the images for one GPU architecture, such as 1.9.3 and 89-1.9.3,
Dockerfile-cuda-all that of cuda-1.9.3, by .github/workflows/matrix.json:
https://github.com/huggingface/text-embeddings-inference.
"""

from __future__ import annotations

from typing import Final

from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.dockerfile import Dockerfile, cuda_of
from webhook.cli.facts.extractors.github import documents_of_releases

_PREFIXES: Final = {
    "Dockerfile-cuda": ("turing-", "", "86-", "89-", "hopper-"),
    "Dockerfile-cuda-all": ("cuda-",),
}


def find(get: Get) -> list[Document]:
    """Return the Dockerfiles of the newest release of each of the newest minor versions."""
    return documents_of_releases(get, "huggingface/text-embeddings-inference", *_PREFIXES)


def rows(name: str, data: bytes) -> list[Row]:
    """Return the rows of a release. name: its tag and the name of the file."""
    tag, file = name.split()
    cuda = cuda_of(Dockerfile(data).image())
    image = "ghcr.io/huggingface/text-embeddings-inference"
    return [{"image": f"{image}:{prefix}{tag.removeprefix('v')}", **cuda} for prefix in _PREFIXES[file]]
