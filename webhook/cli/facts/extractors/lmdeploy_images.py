"""CUDA of LMDeploy's images, from the Dockerfile of its newest releases.

A stage such as `cu12.8-base` or `cu128-base` is nvidia/cuda of a version, and the end of the image's tag is
-cu12.8: https://github.com/InternLM/lmdeploy/blob/main/docker/Dockerfile, .github/workflows/docker.yml.
"""

from __future__ import annotations

import re
from typing import Final

from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.dockerfile import Dockerfile, cuda_of
from webhook.cli.facts.extractors.github import documents_of_releases

# A stage on a stage of this form is another name of it, without an image.
_STAGE: Final = re.compile(r"cu(\d\d)(?:\.?(\d))?-base", re.ASCII)


def find(get: Get) -> list[Document]:
    """Return the Dockerfile of the newest release of each of the newest minor versions."""
    return documents_of_releases(get, "InternLM/lmdeploy", "docker/Dockerfile")


def rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each CUDA version of a release. name: its tag and the name of the file."""
    bases = Dockerfile(data).bases
    images = {
        "cu" + ".".join(filter(None, match.groups())): base
        for stage, base in bases.items()
        if (match := _STAGE.fullmatch(stage)) and base not in bases
    }
    if not images:
        raise ValueError("no stages with a CUDA version in their name")
    return [
        {"image": f"openmmlab/lmdeploy:{name.split(maxsplit=1)[0]}-{end}", **cuda_of(base)}
        for end, base in images.items()
    ]
