"""Image references, parsed as container runtimes parse them.

Source: grammar and normalisation of https://github.com/distribution/reference (regexp.go, normalize.go), and
digest validation of https://github.com/opencontainers/go-digest.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

DEFAULT_REGISTRY: Final = "docker.io"
DEFAULT_TAG: Final = "latest"
_LEGACY_REGISTRY: Final = "index.docker.io"
_OFFICIAL: Final = "library/"

_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_HOST_PART = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_REGISTRY = re.compile(rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?", re.ASCII)
_REMAINDER = re.compile(
    rf"(?P<repository>{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[^@]+))?",
    re.ASCII,
)
# The algorithms of go-digest, and the length of each in hexadecimal digits.
_DIGEST = re.compile(r"sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}", re.ASCII)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}", re.ASCII)
_MAX_NAME = 255  # characters of a repository path, the limit of distribution/reference
# A registry host of 253 characters with its port, a repository, a tag of 128 and a sha512 digest of 135, and
# the separators. It limits the time for malicious texts, and the size of the cache.
_MAX_LENGTH = 253 + 6 + _MAX_NAME + 128 + 135 + 3


class Image(NamedTuple):
    """A parsed image reference. tag and digest are None if absent; both can be present."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def name(self) -> str:
        """The canonical name: registry and repository, `docker.io/library/nginx`."""
        return f"{self.registry}/{self.repository}"

    @property
    def familiar_name(self) -> str:
        """The short name: without `docker.io/` and `library/` if the meaning stays the same."""
        first, slash, _ = self.repository.partition("/")
        if self.registry != DEFAULT_REGISTRY or (slash and _is_registry(first)):
            return self.name
        official = self.repository.removeprefix(_OFFICIAL)
        return official if "/" not in official else self.repository

    @property
    def canonical(self) -> str:
        """The full reference, with the tag `latest` if there is neither tag nor digest."""
        return self.name + self._version()

    @property
    def familiar(self) -> str:
        """The familiar name with tag and digest; the tag `latest` is added as in `canonical`."""
        return self.familiar_name + self._version()

    @property
    def short(self) -> str:
        """The familiar reference without a digest, for messages."""
        return f"{self.familiar_name}:{self.effective_tag}" if self.effective_tag else self.familiar_name

    @property
    def spellings(self) -> tuple[str, ...]:
        """What a pattern can match: canonical and familiar, each with tag, with tag and digest, and alone."""
        name, familiar, version = self.name, self.familiar_name, self._version()
        tag = version.partition("@")[0]
        forms = (name + tag, familiar + tag, name + version, familiar + version, name, familiar)
        return tuple(dict.fromkeys(forms))

    @property
    def effective_tag(self) -> str | None:
        """The tag that is pulled: `latest` if there is neither tag nor digest, None if only a digest."""
        return self.tag or (None if self.digest else DEFAULT_TAG)

    def _version(self) -> str:
        tag = f":{self.effective_tag}" if self.effective_tag else ""
        return f"{tag}@{self.digest}" if self.digest else tag


def parse_image(text: str) -> Image | None:
    """Return a normalised image reference, or None if the text is not a valid reference."""
    if len(text) > _MAX_LENGTH or _IDENTIFIER.fullmatch(text):  # an image id, not a name
        return None
    registry, slash, remainder = text.partition("/")
    if not slash or not _is_registry(registry):
        registry, remainder = DEFAULT_REGISTRY, text
    elif registry == _LEGACY_REGISTRY:
        registry = DEFAULT_REGISTRY
    match = _REMAINDER.fullmatch(remainder)
    if match is None or not _REGISTRY.fullmatch(registry):
        return None
    repository, tag, digest = match.groups()
    if registry == DEFAULT_REGISTRY and "/" not in repository:
        repository = _OFFICIAL + repository
    if len(repository) > _MAX_NAME or (digest and not _DIGEST.fullmatch(digest)):
        return None
    return Image(registry, repository, tag, digest)


def is_digest(text: str) -> bool:
    """Return whether a text is a digest: `sha256:` and 64 hexadecimal digits, or a longer one."""
    return bool(_DIGEST.fullmatch(text))


def _is_registry(first: str) -> bool:
    """Return whether the first component is a registry, by the rule of distribution/reference."""
    return first == "localhost" or "." in first or ":" in first or first != first.lower()
