"""Documents of images: configs, manifests and indexes with their digests; layouts and archives of them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

CONFIG: Final = "application/vnd.oci.image.config.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
INDEX: Final = "application/vnd.oci.image.index.v1+json"
DOCKER_CONFIG: Final = "application/vnd.docker.container.image.v1+json"
DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"

# As in an image nvidia/cuda:12.4.1-base-ubuntu22.04, with one of its driver branches.
REQUIRE: Final = "cuda>=12.4 brand=tesla,driver>=470,driver<471"
CUDA_ENV: Final = {
    "PATH": "/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/bin",
    "CUDA_VERSION": "12.4.1",
    "NVIDIA_REQUIRE_CUDA": REQUIRE,
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
}


@dataclass(frozen=True)
class Blob:
    """A document and its media type."""

    body: bytes
    media_type: str

    @property
    def digest(self) -> str:
        """Its digest."""
        return f"sha256:{hashlib.sha256(self.body).hexdigest()}"

    @property
    def descriptor(self) -> dict[str, Any]:
        """What refers to it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.body)}


def document(value: object, media_type: str) -> Blob:
    """Return a document as JSON."""
    return Blob(json.dumps(value).encode(), media_type)


def config(env: Mapping[str, str], architecture: str = "amd64", **more: object) -> Blob:
    """Return the config of a Linux image."""
    run = {"Env": [f"{name}={value}" for name, value in env.items()], **more}
    layers = {"type": "layers", "diff_ids": []}
    value = {"architecture": architecture, "os": "linux", "config": run, "rootfs": layers}
    return document(value, CONFIG)


def manifest(of: Blob, media_type: str = MANIFEST) -> Blob:
    """Return the manifest of a config, without layers."""
    value = {"schemaVersion": 2, "mediaType": media_type, "config": of.descriptor, "layers": []}
    return document(value, media_type)


def index(manifests: Mapping[str, Blob], media_type: str = INDEX) -> Blob:
    """Return an index of manifests by platform."""
    entries = [
        image_manifest.descriptor | {"platform": platform(name)} for name, image_manifest in manifests.items()
    ]
    return document({"schemaVersion": 2, "mediaType": media_type, "manifests": entries}, media_type)


def platform(name: str) -> dict[str, str]:
    """Return a platform such as linux/amd64 in an index."""
    return dict(zip(("os", "architecture"), name.split("/"), strict=True))


def layout(top: Sequence[tuple[Blob, Mapping[str, str]]], blobs: Sequence[Blob]) -> dict[str, bytes]:
    """Return the files of an OCI layout. top: the images with their annotations."""
    entries = [
        image_manifest.descriptor | {"annotations": dict(annotations)} for image_manifest, annotations in top
    ]
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": entries}).encode(),
    }
    every = [*blobs, *(image_manifest for image_manifest, _ in top)]
    return files | {f"blobs/{blob.digest.replace(':', '/')}": blob.body for blob in every}


def docker_archive(of: Blob, *names: str) -> dict[str, bytes]:
    """Return the files of an archive as `docker save` of older versions and `podman save` write it."""
    name = f"{of.digest.removeprefix('sha256:')}.json"
    saved = [{"Config": name, "RepoTags": list(names), "Layers": ["layer.tar"]}]
    return {name: of.body, "layer.tar": bytes(3000), "manifest.json": json.dumps(saved).encode()}


def write_folder(files: Mapping[str, bytes], folder: Path) -> Path:
    """Write files below a folder."""
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder


def write_tar(files: Mapping[str, bytes], path: Path, compression: str = "") -> Path:
    """Write an archive; compression: gz, or nothing."""
    with tarfile.open(path, f"w:{compression}") as archive:  # type: ignore[call-overload]  # by its mode
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return path
