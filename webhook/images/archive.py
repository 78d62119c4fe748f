"""Images in files: OCI layouts (folder or tar) and archives of `docker save` and `podman save`.

Only JSON documents are read, into memory; nothing is extracted. Sources:
https://github.com/opencontainers/image-spec/blob/main/image-layout.md, and for manifest.json
https://github.com/moby/docker-image-spec/blob/main/spec.md.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from rules.kube.image_reference import is_digest, parse_image
from rules.text.i18n import Message
from webhook.images.errors import ImageError, Reason, quoted
from webhook.images.inspection import InspectedImage, PlatformConfig
from webhook.images.manifest import (
    MAX_BYTES,
    Descriptor,
    choose,
    invalid,
    of_platforms,
    read_config,
    read_manifest,
    too_large,
    verified,
)

_INDEX: Final = "index.json"
_MANIFEST: Final = "manifest.json"
# Members of an archive: an image has at most 127 layers, of up to 3 members each.
_MAX_MEMBERS: Final = 10_000
# Bytes that are read of an archive, for headers and documents; members that are skipped do not count.
_MAX_READ: Final = 64 * 2**20
# Images of one file.
_MAX_IMAGES: Final = 32
# Bytes of an uncompressed archive: at most 64 GiB, and of a compressed one at most 100 times its size, with
# 64 MiB free. Layers are compressed to a half or a third; a gzip bomb has a ratio of 1,000.
_MAX_SIZE: Final = 64 * 2**30
_MAX_RATIO: Final = 100
_FREE_SIZE: Final = 64 * 2**20
_GZIP: Final = b"\x1f\x8b"
# Annotations with an image's name: of containerd and Docker, and of the specification.
_NAMES: Final = ("io.containerd.image.name", "org.opencontainers.image.ref.name")

# Exceptions of tarfile and gzip for a corrupt archive.
_CORRUPT: Final = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, OverflowError)

T = TypeVar("T")
Find = Callable[[str], bytes | None]  # the document at a path of a layout or archive


class _Saved(msgspec.Struct):
    """An image in manifest.json."""

    config: str = msgspec.field(name="Config")
    names: list[str] | None = msgspec.field(default=None, name="RepoTags")


def inspect_file(path: Path, platforms: Sequence[str] = ()) -> list[InspectedImage]:
    """Return the images of a layout or archive. Raises ImageError, OSError."""
    if path.is_dir():
        return _images_of(_in_folder(path), str(path), platforms)
    documents = _in_archive(path)
    return _images_of(documents.get, str(path), platforms)


def _images_of(find: Find, path: str, platforms: Sequence[str]) -> list[InspectedImage]:
    if (body := find(_INDEX)) is not None:
        manifests = read_manifest(body)
        if isinstance(manifests, Descriptor):
            raise invalid(Message("{index} is not an index", index=_INDEX))
        return [_of_layout(find, descriptor, path, platforms) for descriptor in _checked(manifests, path)]
    if (body := find(_MANIFEST)) is None:
        raise invalid(
            Message(
                "neither an OCI layout nor an image archive: no {index} and no {manifest}",
                index=_INDEX,
                manifest=_MANIFEST,
            ),
        )
    try:
        saved = msgspec.json.decode(body, type=list[_Saved])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = quoted(str(error))
        raise invalid(Message("{manifest}: {why}", manifest=_MANIFEST, why=why)) from None
    return [_of_docker(find, image, path, platforms) for image in _checked(saved, path)]


def _checked(images: list[T], path: str) -> list[T]:
    """Return the images of a file. Raises ImageError if there are none or too many."""
    if not images:
        raise ImageError(Reason.NOT_FOUND, Message("{path}: no image inside", path=path))
    if len(images) > _MAX_IMAGES:
        raise _bomb(Message("{path}: more than {max_images} images", path=path, max_images=_MAX_IMAGES))
    return images


def _of_layout(find: Find, top: Descriptor, path: str, platforms: Sequence[str]) -> InspectedImage:
    """Return an image of a layout. top: its index or manifest, in index.json."""
    annotations = top.annotations or {}
    reference = _reference(next((annotations[key] for key in _NAMES if key in annotations), ""), path)
    content = read_manifest(_blob(find, top.digest))
    if isinstance(content, Descriptor):
        config = read_config(_blob(find, content.digest), top.digest)
        # `skopeo copy` leaves out the index, and so do other tools.
        return InspectedImage(reference, top.digest, of_platforms((config,), platforms), unread=None)
    # `docker save` leaves out the platforms that were not pulled.
    index = choose(content, platforms, lambda descriptor: find(_blob_path(descriptor.digest)) is not None)
    configs = tuple(_platform(find, descriptor) for descriptor in index.chosen)
    return InspectedImage(reference, top.digest, configs, index.omitted, index.others)


def _platform(find: Find, descriptor: Descriptor) -> PlatformConfig:
    config = read_manifest(_blob(find, descriptor.digest))
    if not isinstance(config, Descriptor):
        raise invalid(Message("an index inside an index"))
    platform_config = read_config(_blob(find, config.digest), descriptor.digest)
    operating_system, _, architecture = descriptor.named.partition("/")
    return replace(platform_config, os=operating_system, architecture=architecture)


def _of_docker(find: Find, saved: _Saved, path: str, platforms: Sequence[str]) -> InspectedImage:
    """Return an image of manifest.json; it has no digest, because the registry's manifest is not in it."""
    body = find(saved.config)
    if body is None:
        raise _missing(quoted(saved.config))
    name = _reference((saved.names or [""])[0], path)
    return InspectedImage(name, "", of_platforms((read_config(body, ""),), platforms), unread=None)


def _reference(name: object, path: str) -> str:
    """Return the canonical reference of a name in an archive; the path if it has none, or only a tag."""
    image = parse_image(name) if isinstance(name, str) and ("/" in name or ":" in name) else None
    return image.canonical if image else path


def _blob_path(digest: str) -> str:
    """Return the path of a blob; empty for an invalid digest, and no document has an empty path."""
    return f"blobs/{digest.replace(':', '/')}" if is_digest(digest) else ""


def _blob(find: Find, digest: str) -> bytes:
    body = find(_blob_path(digest))
    if body is None:
        raise _missing(quoted(digest))
    return verified(body, digest)


def _missing(name: str) -> ImageError:
    return invalid(Message("{name} is missing", name=name))


def _in_folder(folder: Path) -> Find:
    """Return the function that reads a document of a folder."""

    def find(name: str) -> bytes | None:
        if not name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
            return None
        try:
            # Not blocking: a FIFO without a writer.
            handle = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with open(handle, "rb") as file:  # noqa: PTH123 - of a descriptor
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                return None
            body = file.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            raise too_large(quoted(name), MAX_BYTES)
        return body

    return find


def _in_archive(path: Path) -> dict[str, bytes]:
    """Return the JSON documents of an archive, at most 1 MiB each, by their paths, in one pass."""
    documents: dict[str, bytes] = {}
    with _opened(path) as file:
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                for number, member in enumerate(archive):
                    if number >= _MAX_MEMBERS:
                        raise _bomb(Message("more than {max_members:,} members", max_members=_MAX_MEMBERS))
                    if member.isreg() and not member.issparse() and 0 < member.size <= MAX_BYTES:
                        file.seek(member.offset_data)
                        if (first := file.read(1)) in (b"{", b"["):
                            documents[os.path.normpath(member.name)] = first + file.read(member.size - 1)
        except (*_CORRUPT, RecursionError) as error:
            why = quoted(str(error))
            raise invalid(Message("not a tar archive: {why}", why=why)) from None
    return documents


@contextmanager
def _opened(path: Path) -> Iterator[_Bounded]:
    """Open an archive, also a compressed one."""
    with path.open("rb") as raw:
        size = os.fstat(raw.fileno()).st_size
        compressed = raw.read(len(_GZIP)) == _GZIP
        raw.seek(0)
        if not compressed:
            yield _Bounded(raw, _MAX_SIZE)
            return
        with gzip.GzipFile(fileobj=raw) as inflated:
            yield _Bounded(inflated, min(_MAX_SIZE, _FREE_SIZE + _MAX_RATIO * size))


class _Bounded(io.RawIOBase):
    """A file with limits of its size and of the bytes that are read; raises ImageError beyond.

    tarfile reads headers of the size that the archive names, and seeks beyond the data of members.
    """

    def __init__(self, file: IO[bytes] | Any, size: int) -> None:
        super().__init__()
        self._file, self._size, self._left = file, size, _MAX_READ

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        here = self.tell()
        target = offset if whence == io.SEEK_SET else here + offset
        if target < here:  # a negative size in a header
            raise ValueError("members overlap")
        if target > self._size:
            raise _bomb(Message("more than {value:,} MiB of content", value=self._size // 2**20))
        return int(self._file.seek(target))

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            raise _bomb(Message("more than {value} MiB of headers", value=_MAX_READ // 2**20))
        self._left -= size
        return bytes(self._file.read(size))


def _bomb(text: Message) -> ImageError:
    return ImageError(Reason.TOO_LARGE, text)
