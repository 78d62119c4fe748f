"""Container images of the tests: busybox, and a program that is linked to libcuda."""

from __future__ import annotations

import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.e2e.assets import node as assets

if TYPE_CHECKING:
    from collections.abc import Mapping

_APPLETS: Final = ("sh", "cat", "ls", "env", "sleep", "echo", "wget", "id", "httpd")
# What a program that is linked to libcuda consists of, from this machine.
_LOADER: Final = "/lib64/ld-linux-x86-64.so.2"
_LIBC: Final = "/lib/x86_64-linux-gnu/libc.so.6"
# Prints which library a program with CUDA loads.
LOADED: Final = (_LOADER, "--list", "/bin/cuda-program")


def write_image(path: Path, name: str, files: Mapping[str, bytes] | None = None, **environment: str) -> Path:
    """Write an archive as `docker save` does, with files, by their absolute path, and variables of the image.

    name: with tag, such as `localhost/cuda:1`. The entrypoint waits for ever. `cuda-program` does nothing and
    exits with 0, if its libraries are there.
    """
    own = {
        "/bin/busybox": (assets.debian() / "bin/busybox").read_bytes(),
        "/bin/cuda-program": (assets.standins() / "cuda-program").read_bytes(),
        "/etc/ld.so.conf": b"include /etc/ld.so.conf.d/*.conf\n",
        **{library: Path(library).read_bytes() for library in (_LOADER, _LIBC)},
    }
    layer = _tar({**own, **(files or {})}, _APPLETS)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Entrypoint": ["/bin/sleep", "2147483647"],
            "Env": ["PATH=/bin", *(f"{key}={value}" for key, value in environment.items())],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    documents = {"config.json": config, "manifest.json": manifest}
    path.write_bytes(_tar({"layer.tar": layer, **{k: json.dumps(v).encode() for k, v in documents.items()}}))
    return path


def _tar(files: Mapping[str, bytes], applets: tuple[str, ...] = ()) -> bytes:
    """Return an archive of files, and of links to busybox; folders appear by themselves."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.lstrip("/"))
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
        for name in applets:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return archive.getvalue()
