"""CUDA of Text Generation Inference's images, from the newest releases.

PyTorch has its own CUDA, newer than that of the image below it, nvidia/cuda: server/uv.lock has the version
of `nvidia-cuda-runtime-cu12`, Dockerfile that image: https://github.com/huggingface/text-generation-inference.
Form of the lock file: https://docs.astral.sh/uv/concepts/projects/layout/#the-lockfile.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final

from rules.cuda.versions import CudaVersion
from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.dockerfile import Dockerfile, cuda_of
from webhook.cli.facts.extractors.github import documents_of_releases

_RUNTIME: Final = re.compile(r"nvidia-cuda-runtime(?:-cu\d\d)?", re.ASCII)


def find(get: Get) -> list[Document]:
    """Return Dockerfile and lock file of the newest release of each of the newest minor versions."""
    return documents_of_releases(get, "huggingface/text-generation-inference", "Dockerfile", "server/uv.lock")


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release: `base` from its Dockerfile, `cuda` from its lock file."""
    tag, file = name.split()
    image = f"ghcr.io/huggingface/text-generation-inference:{tag.removeprefix('v')}"
    if file == "Dockerfile":
        return [{"image": image, "base": cuda_of(Dockerfile(data).image())["base"]}]
    packages = tomllib.loads(data.decode("utf-8"))["package"]
    versions = [
        version
        for package in packages
        if _RUNTIME.fullmatch(package["name"]) and (version := CudaVersion.parse(package["version"]))
    ]
    if not versions:
        raise ValueError("no package with the CUDA runtime")
    return [{"image": image, "cuda": str(max(versions))}]
