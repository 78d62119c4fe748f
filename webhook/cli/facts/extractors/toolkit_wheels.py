"""Architectures of CUDA toolkits, from the compiler `ptxas` in NVIDIA's wheels.

The program has the list of its --help as words between NUL bytes, `compute_90` and `lto_90`. It is read, not
run. Form of https://pypi.org/pypi/NAME/json: https://docs.pypi.org/api/json/.
"""

from __future__ import annotations

import json
import re
from io import BytesIO
from typing import Final
from zipfile import BadZipFile, ZipFile

from packaging.version import Version

from rules.cuda.versions import CudaVersion
from webhook.cli.facts.extractors.base import Document, Get, Row

_PACKAGES: Final = ("nvidia-cuda-nvcc-cu11", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")
_RELEASE: Final = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
# Without the variants of a capability, such as 100a and 100f.
_TARGET: Final = re.compile(rb"\0(?:compute|lto)_(\d{2,3})(?=\0)")
# Bytes of ptxas; that of CUDA 13.5 has 51 MB.
_MAX_PROGRAM: Final = 256 * 2**20


def find(get: Get) -> list[Document]:
    """Return the wheel for x86-64 of the newest release of each CUDA version."""
    newest: dict[CudaVersion, tuple[Version, Document]] = {}
    for package in _PACKAGES:
        releases = json.loads(get(f"https://pypi.org/pypi/{package}/json"))["releases"]
        for release, files in releases.items():
            cuda = CudaVersion.parse(release)
            for file in files if _RELEASE.fullmatch(release) else ():
                if cuda and not file["yanked"] and file["filename"].endswith("x86_64.whl"):
                    document = Document(release, file["url"], fixed=True, sha256=file["digests"]["sha256"])
                    candidate = (Version(release), document)
                    newest[cuda] = max(newest.get(cuda, candidate), candidate, key=lambda item: item[0])
    return [newest[cuda][1] for cuda in sorted(newest)]


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a wheel. name: its release."""
    try:
        with ZipFile(BytesIO(data)) as wheel:
            (program,) = [member for member in wheel.infolist() if member.filename.endswith("/bin/ptxas")]
            if program.file_size > _MAX_PROGRAM:
                raise ValueError(f"{program.filename} is larger than {_MAX_PROGRAM:,} bytes")
            content = wheel.read(program)
    except BadZipFile as error:
        raise ValueError(str(error)) from None
    numbers = sorted({int(match[1]) for match in _TARGET.finditer(content)})
    if not numbers:
        raise ValueError("ptxas contains no list of architectures")
    built_for = " ".join(f"{number // 10}.{number % 10}" for number in numbers)
    return [{"cuda": str(CudaVersion.parse(name)), "built_for": built_for}]
