"""CUDA of vLLM's images, from the versions that its newest releases are built with.

docker/versions.json of a release has the arguments of its Dockerfile, `CUDA_VERSION` among them, each as
`{"default": "13.0.2"}` in `variable`: https://github.com/vllm-project/vllm/blob/main/docker/versions.json.
"""

from __future__ import annotations

import json

from rules.cuda.versions import CudaVersion
from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.github import documents_of_releases


def find(get: Get) -> list[Document]:
    """Return the file of the newest release of each of the newest minor versions."""
    return documents_of_releases(get, "vllm-project/vllm", "docker/versions.json")


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release. name: its tag and the name of the file."""
    text = json.loads(data)["variable"]["CUDA_VERSION"]["default"]
    if (cuda := CudaVersion.parse(text)) is None:
        raise ValueError(f"{text!r} is not a CUDA version")
    return [{"image": f"vllm/vllm-openai:{name.split(maxsplit=1)[0]}", "cuda": str(cuda)}]
