"""Container images of the tests, of one static program: busybox."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path


def write_image(
    path: Path, name: str, busybox: Path, files: Mapping[str, bytes] | None = None, **environment: str
) -> Path:
    """Write an archive as `docker save` does: busybox as /bin/sh, files and variables of the image.

    name: with tag, such as `localhost/cuda:1`. files: by their absolute path. The entrypoint waits for ever.
    """
    applets = ("sh", "cat", "ls", "env", "sleep", "echo", "wget", "id")
    layer = _tar(
        {"bin/busybox": busybox.read_bytes(), **{k.lstrip("/"): v for k, v in (files or {}).items()}}, applets
    )
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
    members = {
        "layer.tar": layer,
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.write_bytes(_tar(members))
    return path


def _tar(files: Mapping[str, bytes], applets: tuple[str, ...] = ()) -> bytes:
    """Return an archive of programs and of links to busybox; its folders appear by themselves."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
        for name in applets:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return archive.getvalue()
