"""CUDA version of each driver branch, from the manifests of NVIDIA's redistributable drivers.

The folder lists `redistrib_VERSION.json`. A manifest has `release_date`, and in `cuda_compat` the CUDA of the
driver as `cuda_variant`, alone or as a list.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from rules.cuda.versions import CudaVersion, DriverVersion
from webhook.cli.facts.extractors.base import Document, Get, Row

_FOLDER: Final = "https://developer.download.nvidia.com/compute/nvidia-driver/redist/"
_MANIFEST: Final = re.compile(r"\bredistrib_(\d+(?:\.\d+)+)\.json\b", re.ASCII)
# With a minor version: 13 alone is a major version, not 13.0.
_CUDA: Final = re.compile(r"\d+\.\d+", re.ASCII)


def find(get: Get) -> list[Document]:
    """Return the manifest of the newest driver of each branch."""
    names = _MANIFEST.findall(get(_FOLDER).decode("utf-8"))
    newest: dict[int, DriverVersion] = {}
    for version in sorted(filter(None, map(DriverVersion.parse, names))):
        newest[version.branch] = version
    return [
        Document(version.text, f"{_FOLDER}redistrib_{version}.json", fixed=True)
        for version in newest.values()
    ]


def rows(name: str, data: bytes) -> list[Row]:
    """Return the row of a driver. name: its version."""
    manifest = json.loads(data)
    return [
        {
            "branch": int(name.partition(".")[0]),
            "cuda": _cuda(manifest["cuda_compat"]["cuda_variant"]),
            "driver": name,
            "released": str(manifest["release_date"]),
        }
    ]


def _cuda(variant: Any) -> str:
    """Return the highest CUDA version of a text or a list. Raises ValueError."""
    variants = [variant] if isinstance(variant, str) else variant
    versions = [
        version for text in variants if _CUDA.fullmatch(text) and (version := CudaVersion.parse(text))
    ]
    if not versions:
        raise ValueError(f"cuda_variant has no CUDA version: {variant!r}")
    return str(max(versions))
