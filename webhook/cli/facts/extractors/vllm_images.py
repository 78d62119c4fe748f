"""CUDA of vLLM's images, from the versions that its newest releases are built with.

docker/versions.json of a release has the arguments of its Dockerfile, `CUDA_VERSION` among them, each as
`{"default": "13.0.2"}` in `variable`: https://github.com/vllm-project/vllm/blob/main/docker/versions.json.
Form of the list of tags: https://docs.github.com/en/rest/repos/repos#list-repository-tags.
"""

from __future__ import annotations

import json
import re
from typing import Final

from packaging.version import Version

from rules.cuda.versions import CudaVersion
from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.github import API, address

_REPOSITORY: Final = "vllm-project/vllm"
_PATH: Final = "docker/versions.json"
_TAG: Final = re.compile(r"v\d+\.\d+\.\d+", re.ASCII)
# Minor versions that are read, the newest ones: older releases do not have the file.
_MINORS: Final = 3


def find(get: Get) -> list[Document]:
    """Return the file of the newest release of each of the newest minor versions."""
    newest: dict[tuple[int, ...], tuple[Version, str]] = {}
    for tag in json.loads(get(f"{API}/{_REPOSITORY}/tags?per_page=100")):
        if _TAG.fullmatch(tag["name"]):
            release = Version(tag["name"]), tag["commit"]["sha"]
            minor = release[0].release[:2]
            newest[minor] = max(newest.get(minor, release), release)
    releases = sorted(newest.values())[-_MINORS:]
    return [
        Document(f"v{version}", address(_REPOSITORY, commit, _PATH), fixed=True)
        for version, commit in releases
    ]


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release. name: its tag."""
    text = json.loads(data)["variable"]["CUDA_VERSION"]["default"]
    if (cuda := CudaVersion.parse(text)) is None:
        raise ValueError(f"{text!r} is not a CUDA version")
    return [{"image": f"vllm/vllm-openai:{name}", "cuda": str(cuda)}]
