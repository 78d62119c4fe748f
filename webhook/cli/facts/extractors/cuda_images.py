"""Images of nvidia/cuda, from NVIDIA's list of supported tags.

The list, a page in Markdown, has each tag between backquotes, such as 12.4.1-base-ubuntu22.04: CUDA, flavour,
operating system. Other flavours have the CUDA of their base image, and give no row. See
https://gitlab.com/nvidia/container-images/cuda/-/blob/master/doc/supported-tags.md; of commits:
https://docs.gitlab.com/api/commits/. A page at a commit never has other content, so that the table can be
replayed; a list of tags by Docker Hub changes with each pull.
"""

from __future__ import annotations

import json
import re
from typing import Final

from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.github import commit_of

_PATH: Final = "doc/supported-tags.md"
COMMITS: Final = (
    "https://gitlab.com/api/v4/projects/nvidia%2Fcontainer-images%2Fcuda/repository/commits"
    f"?path={_PATH}&per_page=1"
)
# A tag without its operating system, or with a platform, is another name of one of these.
_TAG: Final = re.compile(r"`((\d+\.\d+)(?:\.\d+)?-base-[a-z]+[\d.]+)`", re.ASCII)


def find(get: Get) -> list[Document]:
    """Return the list at the last commit that changed it."""
    commit = commit_of(json.loads(get(COMMITS))[0]["id"])
    url = f"https://gitlab.com/nvidia/container-images/cuda/-/raw/{commit}/{_PATH}"
    return [Document("supported-tags.md", url, fixed=True)]


def rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each base image. Raises ValueError if there is none."""
    del name
    tags = dict(_TAG.findall(data.decode("utf-8")))
    if not tags:
        raise ValueError("no tags with a CUDA version")
    return [{"image": f"nvidia/cuda:{tag}", "cuda": cuda} for tag, cuda in tags.items()]
