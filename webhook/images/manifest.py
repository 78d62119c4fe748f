"""Documents of images: index, manifest and config, as OCI and Docker define them.

Sources: https://github.com/opencontainers/image-spec (image-index.md, manifest.md, config.md), and
https://distribution.github.io/distribution/spec/manifest-v2-2/.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from rules.kube.image_reference import is_digest
from rules.text.i18n import Message
from webhook.images.errors import ImageError, Reason, quoted
from webhook.images.inspection import PlatformConfig

INDEX_TYPES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
# Bytes of a manifest, an index, a config or a token. Configs of NVIDIA's images have some 50 KB.
MAX_BYTES: Final = 2**20
# Manifests of one index that are read; images for GPUs have two or three.
MAX_PLATFORMS: Final = 8
_MOST_NAMED: Final = 32  # other platforms of an index; Debian's images have eight
# The platforms that are read first: those of nodes with GPUs.
_FIRST: Final = ("linux/amd64", "linux/arm64")
_WORD = re.compile(r"[a-z0-9]{1,32}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)


class Platform(msgspec.Struct):
    """A platform in an index."""

    os: str = ""
    architecture: str = ""


class Descriptor(msgspec.Struct):
    """A reference to a document by its digest."""

    digest: str
    media_type: str = msgspec.field(default="", name="mediaType")
    platform: Platform | None = None
    annotations: dict[str, Any] | None = None

    @property
    def named(self) -> str:
        """The platform as os/architecture; empty if the descriptor does not name one."""
        platform = self.platform
        name = f"{platform.os}/{platform.architecture}" if platform else ""
        return name if all(map(_WORD.fullmatch, name.split("/"))) else ""


class _Document(msgspec.Struct):
    media_type: str = msgspec.field(default="", name="mediaType")
    manifests: list[Descriptor] | None = None
    config: Descriptor | None = None


class _Run(msgspec.Struct):
    env: list[str] | None = msgspec.field(default=None, name="Env")
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class _Config(msgspec.Struct):
    os: str
    architecture: str
    config: _Run | None = None


class Index(Struct, frozen=True):
    """The chosen manifests of an index."""

    chosen: tuple[Descriptor, ...]
    omitted: int  # platforms that were not chosen because of the limit
    others: tuple[str, ...] = ()  # names of platforms that were not chosen, at most 32


def verified(body: bytes, digest: str) -> bytes:
    """Return a body if it has this digest. Raises ImageError if it has another one."""
    if not is_digest(digest):
        raise invalid(Message("a digest is not supported"))
    actual = hashlib.new(digest.partition(":")[0], body).hexdigest()
    if actual != digest.partition(":")[2]:
        raise ImageError(
            Reason.DIGEST_MISMATCH,
            Message(
                "the content does not have the digest {digest}…, but {actual}…",
                digest=digest[:19],
                actual=actual[:12],
            ),
        )
    return body


def digest_of(body: bytes) -> str:
    """Return the canonical digest of a document."""
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def read_manifest(body: bytes) -> list[Descriptor] | Descriptor:
    """Return the manifests of an index, or the config of a manifest. Raises ImageError."""
    document: _Document = _decoded(body, _Document)
    if document.manifests is not None and document.config is not None:
        # https://github.com/opencontainers/distribution-spec/security/advisories/GHSA-mc8v-mgrf-8f4m
        raise invalid(Message("ambiguous: both an index and a manifest"))
    if document.manifests is not None:
        return document.manifests
    if document.config is not None:
        return document.config
    kind = quoted(document.media_type) or "unknown media type"
    raise invalid(Message("neither an index nor a manifest ({kind})", kind=kind))


def choose(
    manifests: Sequence[Descriptor],
    platforms: Sequence[str] = (),
    is_present: Callable[[Descriptor], bool] = lambda _: True,
) -> Index:
    """Return the manifests to read: of the given platforms, or of at most 8, platforms of GPU nodes first.

    One manifest for each platform. Attestations, other artifacts and manifests that are not present are
    skipped. Raises ImageError if none is left.
    """
    every: dict[str, None] = {}
    by_name: dict[str, Descriptor] = {}
    for descriptor in manifests:
        platform = descriptor.named
        if platform and platform != "unknown/unknown" and descriptor.media_type not in INDEX_TYPES:
            every[platform] = None
            if is_present(descriptor):
                by_name.setdefault(platform, descriptor)
    selected = [name for name in platforms if name in by_name] if platforms else sorted(by_name, key=_rank)
    if not selected:
        raise _no_platform(list(by_name))
    names = selected[:MAX_PLATFORMS]
    others = sorted(every.keys() - set(names), key=_rank)[:_MOST_NAMED]
    return Index(tuple(by_name[name] for name in names), len(selected) - len(names), tuple(others))


def _rank(name: str) -> tuple[bool, str]:
    return name not in _FIRST, name


def of_platforms(configs: Sequence[PlatformConfig], platforms: Sequence[str]) -> tuple[PlatformConfig, ...]:
    """Return the configs of the given platforms, or all. Raises ImageError if there is none."""
    selected = tuple(config for config in configs if not platforms or config.platform in platforms)
    if not selected:
        raise _no_platform([config.platform for config in configs])
    return selected


def _no_platform(names: Sequence[str]) -> ImageError:
    offered = ", ".join(names[:MAX_PLATFORMS]) or "-"
    return ImageError(Reason.NOT_FOUND, Message("no such platform; available: {offered}", offered=offered))


def read_config(body: bytes, digest: str) -> PlatformConfig:
    """Return the platform of a config. digest: of its manifest. Raises ImageError.

    Variables that are not printable are left out.
    """
    read: _Config = _decoded(body, _Config)
    if not (_WORD.fullmatch(read.os) and _WORD.fullmatch(read.architecture)):
        raise invalid(Message("the config names no platform"))
    run = read.config or _Run()
    env = {}
    for variable in run.env or ():
        name, equals, value = variable.partition("=")
        if equals and value.isprintable() and _VARIABLE.fullmatch(name):
            env[name] = value
    labels = {
        name: text for name, text in (run.labels or {}).items() if name.isprintable() and text.isprintable()
    }
    return PlatformConfig(read.os, read.architecture, digest, env, labels)


def _decoded(body: bytes, shape: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = quoted(str(error))
        raise invalid(Message("not an image manifest or config: {why}", why=why)) from None


def too_large(name: str, limit: int) -> ImageError:
    """Return the error for a document above the limit of bytes."""
    return ImageError(
        Reason.TOO_LARGE,
        Message("{what}: larger than {mib} MiB", what=name, mib=limit // 2**20),
    )


def invalid(text: Message) -> ImageError:
    """Return the error for content that is not an image."""
    return ImageError(Reason.INVALID, text)
