"""CUDA of frameworks' releases, from the requirements of their wheels on PyPI.

A wheel requires the libraries of its CUDA: `nvidia-cuda-runtime-cu12==12.8.90`, or
`cuda-toolkit[cudart]==13.0.2`, or from a version on, `nvidia-cuda-runtime-cu12>=12.1.105`. Its METADATA is at
the address of the wheel with `.metadata`; a release before these libraries were packages gives no row. See
https://packaging.python.org/en/latest/specifications/simple-repository-api/.
"""

from __future__ import annotations

import json
import re
from email.parser import HeaderParser
from typing import Final

from packaging.requirements import Requirement
from packaging.version import Version

from rules.cuda.versions import CudaVersion
from webhook.cli.facts.extractors.base import Document, Get, Row

_PACKAGES: Final = ("torch", "jax-cuda12-plugin", "jax-cuda13-plugin")
_RELEASE: Final = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
_LINUX: Final = re.compile(r".*linux.*x86_64\.whl", re.ASCII)
_LIBRARIES: Final = re.compile(r"nvidia-cuda-runtime(-cu\d+)?|cuda-toolkit", re.ASCII)


def find(get: Get) -> list[Document]:
    """Return the metadata of a wheel for x86-64 of the newest release of each minor version."""
    documents = []
    for package in _PACKAGES:
        releases = json.loads(get(f"https://pypi.org/pypi/{package}/json"))["releases"]
        newest: dict[tuple[int, ...], tuple[Version, str]] = {}
        for release, files in releases.items():
            urls = [
                file["url"] for file in files if not file["yanked"] and _LINUX.fullmatch(file["filename"])
            ]
            if urls and _RELEASE.fullmatch(release):
                candidate = (Version(release), min(urls))
                minor = candidate[0].release[:2]
                newest[minor] = max(newest.get(minor, candidate), candidate)
        documents += [
            Document(f"{package} {version}", f"{url}.metadata", fixed=True)
            for _, (version, url) in sorted(newest.items())
        ]
    return documents


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a release, at_least if it also takes a newer CUDA; none if it requires no CUDA."""
    del name
    metadata = HeaderParser().parsestr(data.decode("utf-8"))
    package, release = metadata["Name"], metadata["Version"]
    if not (package and release):
        raise ValueError("no Name and Version of a wheel")
    for requirement in map(Requirement, metadata.get_all("Requires-Dist", [])):
        bounds = {part.operator: part.version for part in requirement.specifier}
        cuda = CudaVersion.parse(bounds.get("==") or bounds.get(">=") or "")
        if cuda and _LIBRARIES.fullmatch(requirement.name):
            at_least = {} if "==" in bounds else {"at_least": True}
            return [{"package": package, "release": release, "cuda": str(cuda), **at_least}]
    return []
