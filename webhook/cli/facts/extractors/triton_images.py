"""CUDA of Triton's images by month, from the tables in its documentation.

A table for each kind of image, with the columns `NGC Tag`, `CUDA version` such as 13.4.1.012, and others:
https://github.com/triton-inference-server/server/blob/main/docs/introduction/compatibility.md. Images that an
update of the document leaves out stay in the registry, but give no row any more.
"""

from __future__ import annotations

from typing import Final

from rules.cuda.versions import CudaVersion
from webhook.cli.facts.extractors.base import Document, Get, Row
from webhook.cli.facts.extractors.github import address, last_commit

_REPOSITORY: Final = "triton-inference-server/server"
_PATH: Final = "docs/introduction/compatibility.md"
_IMAGE, _CUDA = "NGC Tag", "CUDA version"


def find(get: Get) -> list[Document]:
    """Return the document at the last commit that changed it."""
    commit = last_commit(get, _REPOSITORY, _PATH)
    return [Document("compatibility.md", address(_REPOSITORY, commit, _PATH), fixed=True)]


def rows(name: str, data: bytes) -> list[Row]:
    """Return a row for each image. Raises ValueError if there is none, or a version is none."""
    del name
    images: list[Row] = []
    columns: list[str] = []
    for line in data.decode("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not (cells and columns):
            columns = cells  # the head of a table, or none after its end
        elif _CUDA in columns and not cells[0].startswith("-"):
            row = dict(zip(columns, cells, strict=True))
            if (cuda := CudaVersion.parse(row[_CUDA])) is None:
                raise ValueError(f"{row[_CUDA]!r} is not a CUDA version")
            images.append({"image": row[_IMAGE], "cuda": str(cuda)})
    if not images:
        raise ValueError("no images with a CUDA version")
    return images
