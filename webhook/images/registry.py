"""Client of registries: manifests and configs by the OCI distribution API, with Bearer and Basic tokens.

Sources: https://github.com/opencontainers/distribution-spec/blob/main/spec.md, and for tokens
https://distribution.github.io/distribution/spec/auth/token/ and .../oauth/.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import monotonic
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace
from yarl import URL

from rules.kube.image_reference import DEFAULT_REGISTRY, Image, is_digest
from rules.text.i18n import Message
from webhook.images.credentials import CredentialError, Credentials
from webhook.images.errors import ImageError, Reason, quoted
from webhook.images.guards import REQUEST_S, Guards, Limits, Lookup
from webhook.images.inspection import InspectedImage, PlatformConfig
from webhook.images.manifest import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    Descriptor,
    Platform,
    choose,
    digest_of,
    invalid,
    of_platforms,
    read_config,
    read_manifest,
    verified,
)
from webhook.images.transport import Answer, Transport

# The host of the API of Docker Hub, whose name in references is docker.io.
_HUB_API: Final = "registry-1.docker.io"
# Seconds of one image: an index, 8 manifests and 8 configs take three seconds over a slow line.
_IMAGE_S: Final = 30.0
# Images that are read at the same time.
_AT_ONCE: Final = 4
# Tokens of repositories that are kept; each is at most one answer of 1 MiB, in practice 5 KB.
_MAX_TOKENS: Final = 256
_MAX_TOKEN: Final = 16 * 1024  # characters; longer than any header that a registry accepts
# Seconds that a token without `expires_in` is valid, by the specification; seconds before the end at which a
# token is renewed; and the longest time that a token is kept.
_TOKEN_S: Final = 60.0
_EARLY_S: Final = 10.0
_LONGEST_TOKEN_S: Final = 3600.0
# Seconds: the longest Retry-After that is respected.
_MAX_RETRY_S: Final = 24 * 3600.0
_CLIENT: Final = "gpugate"
# Begins at the first letter of a name only: the time is linear in the length of a header.
_PARAMETER = re.compile(r'(?<![A-Za-z_])([A-Za-z_]+)\s*=\s*(?:"([^"]*)"|([^\s,"]+))', re.ASCII)


class CredentialSource(Protocol):
    """Finds the credentials for an image."""

    def find(self, image: Image) -> Credentials | None:
        """Return the credentials; None for anonymous access. Raises CredentialError."""


class _Anonymous:
    def find(self, image: Image) -> Credentials | None:
        del image
        return None


class _Token(msgspec.Struct):
    """An answer of a token server."""

    token: str = ""
    access_token: str = ""
    expires_in: Any = None  # seconds


class _Error(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Errors(msgspec.Struct):
    errors: list[_Error] = []


class _Repository(Struct, frozen=True):
    """The repository of an image, in its registry or a mirror."""

    image: Image  # by its name there
    base: URL  # of its manifests and blobs

    @property
    def scope(self) -> str:
        """The scope of a token that may pull."""
        return f"repository:{self.image.repository}:pull"

    def manifest(self, reference: str) -> URL:
        """Return the URL of a manifest by tag or digest."""
        return URL(f"{self.base}manifests/{reference}", encoded=True)

    def blob(self, digest: str) -> URL:
        """Return the URL of a blob."""
        return URL(f"{self.base}blobs/{digest}", encoded=True)


class ClientSettings(Struct, frozen=True):
    """Settings of a client."""

    guards: Guards = field(default_factory=Guards)
    tls: ssl.SSLContext | None = None
    mirrors: Mapping[str, str] = field(default_factory=dict)  # `host[/prefix]` to use instead, by registry
    proxy_of: Callable[[URL], str | None] = lambda _: None
    lookup: Lookup | None = None  # resolution of names, as `socket.getaddrinfo`
    request_s: float = REQUEST_S  # seconds of one request


class RegistryClient:
    """Reads images from registries over one pool of connections; used in one event loop, then closed."""

    def __init__(self, settings: ClientSettings, credentials: CredentialSource | None = None) -> None:
        self._settings = settings
        self._credentials = credentials or _Anonymous()
        self._transport = Transport(
            settings.guards, settings.tls, settings.proxy_of, settings.lookup, Limits(settings.request_s)
        )
        self._tokens: dict[tuple[str, str], tuple[str, float]] = {}  # value of the header, and its end
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def digest(self, image: Image) -> str:
        """Return the digest that a tag has now, by a HEAD request. Raises ImageError."""
        async with self._at_once:
            repository = self._repository(image)
            reference = image.digest or image.effective_tag or ""
            url = repository.manifest(reference)
            answer = await self._get(repository, url, (*INDEX_TYPES, *MANIFEST_TYPES), method="HEAD")
            digest = answer.headers.get("Docker-Content-Digest", "")
            if is_digest(digest):
                return digest
            body, digest = await self._manifest(repository, reference)  # HEAD need not have it
            del body
            return digest

    async def inspect(self, image: Image, platforms: Sequence[str] = ()) -> InspectedImage:
        """Return the configs of an image, for the given platforms or at most 8. Raises ImageError."""
        try:
            async with self._at_once, asyncio.timeout(_IMAGE_S):
                return await self._inspect(image, platforms)
        except TimeoutError:
            raise ImageError(
                Reason.TIMEOUT,
                Message(
                    "{registry}: not read within {seconds:g} seconds",
                    registry=image.registry,
                    seconds=_IMAGE_S,
                ),
            ) from None

    async def _inspect(self, image: Image, platforms: Sequence[str]) -> InspectedImage:
        repository = self._repository(image)
        body, digest = await self._manifest(repository, image.digest or image.effective_tag or "")
        content = read_manifest(body)
        if isinstance(content, Descriptor):
            config = await self._config(repository, content, digest)
            return InspectedImage(image.canonical, digest, of_platforms((config,), platforms))
        index = choose(content, platforms)
        configs = [await self._platform(repository, descriptor) for descriptor in index.chosen]
        return InspectedImage(image.canonical, digest, tuple(configs), index.omitted, index.others)

    async def _platform(self, repository: _Repository, descriptor: Descriptor) -> PlatformConfig:
        """Return the config of one manifest of an index."""
        if not is_digest(descriptor.digest):
            raise invalid(Message("the index has an invalid digest"))
        body, digest = await self._manifest(repository, descriptor.digest)
        config = read_manifest(body)
        if not isinstance(config, Descriptor):
            raise invalid(Message("an index inside an index"))
        platform_config = await self._config(repository, config, digest)
        platform = descriptor.platform or Platform(platform_config.os, platform_config.architecture)
        # Container runtimes choose by the index.
        return replace(platform_config, os=platform.os, architecture=platform.architecture)

    async def _config(self, repository: _Repository, config: Descriptor, digest: str) -> PlatformConfig:
        if not is_digest(config.digest):
            raise invalid(Message("the manifest has an invalid digest"))
        answer = await self._get(repository, repository.blob(config.digest), ("*/*",))
        return read_config(verified(answer.body, config.digest), digest)

    async def _manifest(self, repository: _Repository, reference: str) -> tuple[bytes, str]:
        """Return a manifest or index by tag or digest, and its digest."""
        url = repository.manifest(reference)
        body = (await self._get(repository, url, (*INDEX_TYPES, *MANIFEST_TYPES))).body
        if is_digest(reference):
            return verified(body, reference), reference
        return body, digest_of(body)

    def _repository(self, image: Image) -> _Repository:
        """Return where to read an image. Raises ImageError if its registry is not allowed."""
        guards = self._settings.guards
        guards.check_registry(image.registry)
        registry, slash, prefix = self._settings.mirrors.get(image.registry, image.registry).partition("/")
        path = f"{prefix}{slash}{image.repository}"
        host = _HUB_API if registry == DEFAULT_REGISTRY else registry
        try:
            base = URL(f"{guards.scheme(host)}://{host}/v2/{path}/")
        except ValueError:  # a port above 65535
            raise invalid(Message("{host}: not a valid host", host=host)) from None
        return _Repository(image._replace(registry=registry, repository=path), base)

    async def _get(
        self, repository: _Repository, url: URL, accept: Sequence[str], method: str = "GET"
    ) -> Answer:
        """Return a successful answer, authenticated if the registry asks for it. Raises ImageError."""
        headers = {"Accept": ", ".join(accept)}
        key = (str(url.origin()), repository.scope)
        header, end = self._tokens.get(key, ("", 0.0))
        if header and monotonic() < end:
            headers["Authorization"] = header
        answer = await self._transport.send(method, url, headers)
        # A host that the registry redirects to never gets credentials.
        if answer.status == HTTPStatus.UNAUTHORIZED and answer.url.origin() == url.origin():
            header, seconds = await self._authorize(repository, answer)
            if len(self._tokens) >= _MAX_TOKENS:
                self._tokens.pop(next(iter(self._tokens)))
            self._tokens[key] = header, monotonic() + seconds
            answer = await self._transport.send(method, url, headers | {"Authorization": header})
        _check_status(answer)
        return answer

    async def _authorize(self, repository: _Repository, answer: Answer) -> tuple[str, float]:
        """Return the Authorization header that a challenge asks for, and the seconds that it is valid."""
        host = quoted(answer.url.host or "")
        credentials = await self._credentials_for(repository.image)
        challenges = _challenges(answer)
        if credentials and credentials.registry_token and "bearer" in challenges:
            return f"Bearer {credentials.registry_token}", _LONGEST_TOKEN_S
        if "bearer" in challenges:
            return await self._token(repository, challenges["bearer"], credentials)
        if "basic" in challenges and credentials and credentials.user:
            return credentials.basic, _LONGEST_TOKEN_S
        if "basic" in challenges:
            raise _unauthorized(Message("{host}: credentials are required", host=host))
        raise _unauthorized(Message("{host}: unknown kind of authentication", host=host))

    async def _credentials_for(self, image: Image) -> Credentials | None:
        try:
            return await asyncio.to_thread(self._credentials.find, image)
        except CredentialError as error:
            raise _unauthorized(Message("credentials: {error}", error=error.text)) from None

    async def _token(
        self, repository: _Repository, challenge: Mapping[str, str], credentials: Credentials | None
    ) -> tuple[str, float]:
        """Return the header with a token from the realm that the registry names.

        The credentials of a registry go to no other realm than its own, and there over https only.
        """
        query = {"service": challenge.get("service", ""), "scope": repository.scope}
        query = {name: value for name, value in query.items() if value}
        try:
            realm = URL(challenge.get("realm", ""), encoded=True)
        except ValueError:
            realm = URL()
        if not realm.absolute:
            raise invalid(Message("the registry names no valid realm for tokens"))
        if credentials and credentials.identity_token:
            form = {"grant_type": "refresh_token", "refresh_token": credentials.identity_token}
            form |= {"client_id": _CLIENT} | query
            answer = await self._transport.send("POST", realm, {}, form)
        else:
            headers = {"Authorization": credentials.basic} if credentials and credentials.user else {}
            answer = await self._transport.send("GET", realm.update_query(query), headers)
        _check_status(answer)
        try:
            token_answer: _Token = msgspec.json.decode(answer.body, type=_Token)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            token_answer = _Token()
        token = token_answer.token or token_answer.access_token
        if not token or len(token) > _MAX_TOKEN or not (token.isascii() and token.isprintable()):
            host = quoted(realm.host or "")
            raise invalid(Message("{host}: the answer has no token", host=host))
        seconds = token_answer.expires_in if isinstance(token_answer.expires_in, int | float) else _TOKEN_S
        return f"Bearer {token}", min(max(seconds, _TOKEN_S) - _EARLY_S, _LONGEST_TOKEN_S)


def _challenges(answer: Answer) -> dict[str, dict[str, str]]:
    """Return the parameters of each challenge by its scheme in lower case."""
    challenges: dict[str, dict[str, str]] = {}
    for header in answer.headers.getall("WWW-Authenticate", []):
        scheme, _, rest = header.strip().partition(" ")
        parameters = challenges.setdefault(scheme.lower(), {})
        for name, quoted_value, value in _PARAMETER.findall(rest):
            parameters.setdefault(name.lower(), quoted_value or value)
    return challenges


_KINDS: Final[Mapping[int, tuple[Reason, Message]]] = {
    401: (
        Reason.UNAUTHORIZED,
        Message("access denied: log in with `docker login`, or check that the repository exists"),
    ),
    404: (Reason.NOT_FOUND, Message("the image does not exist")),
    429: (Reason.RATE_LIMITED, Message("too many requests")),
}


def _check_status(answer: Answer) -> None:
    """Raise ImageError unless an answer is a success."""
    status = answer.status
    if status == HTTPStatus.OK:
        return
    reason, text = _KINDS.get(401 if status == HTTPStatus.FORBIDDEN else status, (None, Message()))
    if reason is None and status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        reason, text = Reason.UNAVAILABLE, Message("the server failed")
    if reason is None:
        reason, text = Reason.INVALID, Message("an unexpected answer")
    host, why = quoted(answer.url.host or ""), _message(answer.body)
    message = Message("{host}: {text}: HTTP {status}", host=host, text=text, status=status)
    if why:
        message = Message("{message} ({why})", message=message, why=why)
    raise ImageError(
        reason,
        message,
        _retry_after(answer.headers.get("Retry-After", "")),
    )


def _message(body: bytes) -> str:
    """Return the first error of a registry's answer; empty if it has none."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        errors: _Errors = msgspec.json.decode(body, type=_Errors)
        for error in errors.errors[:1]:
            return quoted(error.message or error.code)
    return ""


def _retry_after(text: str) -> float | None:
    """Return the seconds of a Retry-After header, at most a day; None if it is absent or invalid."""
    seconds: float | None = None
    if text.isascii() and text.isdecimal() and len(text) < 10:
        seconds = float(text)
    elif text:
        with suppress(ValueError, TypeError, OverflowError):
            moment = parsedate_to_datetime(text)
            seconds = (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds()
    return None if seconds is None else min(max(seconds, 0.0), _MAX_RETRY_S)


def _unauthorized(text: Message) -> ImageError:
    return ImageError(Reason.UNAUTHORIZED, text)
