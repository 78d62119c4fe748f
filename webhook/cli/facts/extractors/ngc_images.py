"""CUDA of NVIDIA's framework containers by month, from their release notes.

The notes of a framework list a page for each release, `rel-26-03.html`, which says "Release 26.03 is based on
CUDA 13.2.0": https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from webhook.cli.facts.extractors.base import Document, Get, Row

_NOTES: Final = "https://docs.nvidia.com/deeplearning/frameworks/{}-release-notes/"
# By the name of the notes; the tag of an image is its month with this end.
_ENDS: Final = {"pytorch": "-py3", "tensorflow": "-tf2-py3", "jax": "-py3"}
_PAGE: Final = re.compile(r"\brel[-_](\d\d)[-_](\d\d)\.html\b", re.ASCII)
_MARKUP: Final = re.compile(r"<[^>]*>|\s+")
_CUDA: Final = re.compile(r"Release (\d\d\.\d\d) is based on (?:NVIDIA )?CUDA\W{0,3}(\d+\.\d+)", re.ASCII)
# Releases of a framework that are read, the newest ones.
_MONTHS: Final = 12


def find(get: Get) -> list[Document]:
    """Return the newest release notes of each framework."""
    documents: list[Document] = []
    for framework in _ENDS:
        notes = _NOTES.format(framework)
        pages = {
            match[1] + match[2]: match[0] for match in _PAGE.finditer(get(f"{notes}index.html").decode())
        }
        if not pages:
            raise ValueError(f"no release notes of {framework}")
        documents += [
            Document(f"{framework} {month[:2]}.{month[2:]}", f"{notes}{pages[month]}")
            for month in sorted(pages)[-_MONTHS:]
        ]
    return documents


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release. name: framework and month. Raises ValueError without its CUDA."""
    framework, month = name.split()
    text = " ".join(_MARKUP.sub(" ", unescape(data.decode())).split())
    for release, cuda in _CUDA.findall(text):
        if release == month:
            return [{"image": f"nvcr.io/nvidia/{framework}:{month}{_ENDS[framework]}", "cuda": cuda}]
    raise ValueError(f"no CUDA version of {name}")
