"""Public sources of facts on a local server with TLS, and small documents in their forms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipFile

from tests.support.fake_registry import FakeRegistry, Reply, fake_registry
from tests.support.serving import AUTHORITY, HOST


class FactSources:
    """Documents by their public addresses. requested: the addresses that were read, in order."""

    def __init__(self, server: FakeRegistry, folder: Path) -> None:
        self._server, self._ca = server, folder / "ca.pem"
        self._ca.write_bytes(AUTHORITY.certificate_pem)
        self._hosts: set[str] = set()

    def put(self, url: str, content: bytes | Reply) -> None:
        """Serve a document, whatever the query of its address."""
        parts = urlsplit(url)
        self._hosts.add(parts.netloc)
        reply = content if isinstance(content, Reply) else Reply(200, {}, content)
        self._server.replies[f"/{parts.netloc}{parts.path}"] = reply

    @property
    def requested(self) -> list[str]:
        """The paths that were requested, with their host."""
        return [request.path.removeprefix("/") for request in self._server.asked]

    @property
    def options(self) -> list[str]:
        """The options of `gpugate facts update` that lead to this server."""
        mirrors = [f"--mirror={host}={HOST}:{self._server.port}/{host}" for host in sorted(self._hosts)]
        return [*mirrors, f"--ca-file={self._ca}"]


@contextmanager
def fact_sources(folder: Path) -> Iterator[FactSources]:
    """Serve sources on 127.0.0.1."""
    with fake_registry(folder) as server:
        yield FactSources(server, folder)


def wheel(*targets: str) -> bytes:
    """Return a wheel whose compiler has these targets: `compute_90`."""
    words = b"\0".join(target.encode() for target in targets)
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        archive.writestr("nvidia/cu13/bin/ptxas", b"\x7fELF\0sm_10\0" + words + b"\0Specify the target\0")
        archive.writestr("nvidia/cu13/bin/nvcc", b"\x7fELF\0compute_10\0")
    return buffer.getvalue()


def wheel_url(release: str) -> str:
    """Return the address of the wheel of a release."""
    return f"https://files.pythonhosted.org/packages/nvidia_cuda_nvcc-{release}-py3-none-manylinux_x86_64.whl"


def pypi_document(wheels: Mapping[str, bytes], **changes: Any) -> bytes:
    """Return the JSON document of a project with wheels by release. changes: of all files."""
    releases = {
        release: [
            {
                "filename": wheel_url(release).rpartition("/")[2],
                "url": wheel_url(release),
                "digests": {"sha256": sha256(content).hexdigest()},
                "yanked": False,
                **changes,
            }
        ]
        for release, content in wheels.items()
    }
    return json.dumps({"releases": releases}).encode()


def put_wheels(sources: FactSources, wheels: Mapping[str, bytes]) -> None:
    """Serve wheels by release, the only ones of NVIDIA's compilers."""
    for package in ("nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc-cu11"):
        own = wheels if package == "nvidia-cuda-nvcc" else {}
        sources.put(f"https://pypi.org/pypi/{package}/json", pypi_document(own))
    for release, content in wheels.items():
        sources.put(wheel_url(release), content)
