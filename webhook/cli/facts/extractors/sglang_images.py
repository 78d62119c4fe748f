"""CUDA of SGLang's images, from the Dockerfile of its newest releases.

A release is built on nvidia/cuda of the version in `CUDA_VERSION`:
https://github.com/sgl-project/sglang/blob/main/docker/Dockerfile. Other versions have their CUDA in the tag.
"""

from __future__ import annotations

from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.dockerfile import Dockerfile, cuda_of
from webhook.cli.facts.extractors.github import documents_of_releases


def find(get: Get) -> list[Document]:
    """Return the Dockerfile of the newest release of each of the newest minor versions."""
    return documents_of_releases(get, "sgl-project/sglang", "docker/Dockerfile")


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release. name: its tag and the name of the file."""
    return [{"image": f"lmsysorg/sglang:{name.split(maxsplit=1)[0]}", **cuda_of(Dockerfile(data).image())}]
