"""Credentials of registries from a Docker config file or a pull secret, with credential helpers.

Sources: https://github.com/docker/cli (cli/config), https://github.com/docker/docker-credential-helpers; for
keys with globs and paths https://kubernetes.io/docs/concepts/containers/images/#config-json.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO, Final, cast

import msgspec
from msgspec import Struct

from rules.kube.image_reference import DEFAULT_REGISTRY, Image
from rules.text.glob import glob
from rules.text.i18n import Message, MessageError, located, os_error_reason
from webhook.images.manifest import MAX_BYTES

# The names of Docker Hub in config files; helpers know it by the first one.
_DOCKER_HUB: Final = ("https://index.docker.io/v1/", "index.docker.io", "docker.io", "registry-1.docker.io")
# Seconds and bytes of one answer of a credential helper; helpers of clouds make a request of their own.
_HELPER_S: Final = 5.0
_HELPER_BYTES: Final = 64 * 1024
_HELPER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_NO_CONFIG: Final = Message("{name}: not a Docker config file: {why}")
_NO_AUTH: Final = Message("{name}: auths: {key}: `auth` is not base64 of user:password")
_NO_HELPER: Final = Message("{name}: {why}; is it installed?")
_NO_SECRET: Final = Message("{name}: the answer is not JSON with Username and Secret")
_SLOW: Final = Message("{name}: no answer within {seconds:g} seconds")
_LARGE: Final = Message("{name}: the answer is larger than {most} KiB")
_TOKEN_USER: Final = "<token>"  # noqa: S105 - the user name by which helpers mark an identity token


class CredentialError(MessageError):
    """Credentials cannot be read; the text names file or helper. The fault of the user's configuration."""


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Credentials for a registry: a user and a password, an identity token, or a token of the registry."""

    user: str = ""
    password: str = ""
    identity_token: str = ""
    registry_token: str = ""

    @property
    def basic(self) -> str:
        """The value of an Authorization header for Basic authentication."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class _Entry(msgspec.Struct):
    auth: str | None = None
    username: str | None = None
    password: str | None = None
    identity_token: str | None = msgspec.field(default=None, name="identitytoken")
    registry_token: str | None = msgspec.field(default=None, name="registrytoken")


class _Config(msgspec.Struct):
    auths: dict[str, _Entry] | None = None
    helpers: dict[str, str] | None = msgspec.field(default=None, name="credHelpers")
    store: str | None = msgspec.field(default=None, name="credsStore")


class _Answer(msgspec.Struct):
    user: str = msgspec.field(default="", name="Username")
    secret: str = msgspec.field(default="", name="Secret")


def default_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the config file of Docker: below $DOCKER_CONFIG, or ~/.docker."""
    folder = environ.get("DOCKER_CONFIG")
    return (Path(folder) if folder else Path("~/.docker").expanduser()) / "config.json"


class CredentialFile(Struct, frozen=True):
    """Credentials in a Docker config file. It is read for each image, because a mounted Secret may change."""

    path: Path
    required: bool = True  # whether a missing file is an error
    helpers: bool = True  # whether to run credential helpers

    def check(self) -> None:
        """Raise CredentialError if the file cannot be read."""
        self._read()

    def find(self, image: Image) -> Credentials | None:
        """Return the credentials for an image: of a helper, else of the most specific key; None without any.

        Raises CredentialError.
        """
        config = self._read()
        if config is None:
            return None
        if self.helpers and (helper := _helper(config, image.registry)):
            server = _DOCKER_HUB[0] if image.registry == DEFAULT_REGISTRY else image.registry
            if credentials := _run_helper(helper, server):
                return credentials
        return _most_specific(config.auths or {}, image, str(self.path))

    def _read(self) -> _Config | None:
        try:
            with self.path.open("rb") as file:
                body = file.read(MAX_BYTES + 1)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self.required:
                return None
            raise CredentialError(located(self.path, os_error_reason(error))) from None
        return _decode(body, str(self.path))


def of_pull_secret(body: bytes, name: str, image: Image) -> Credentials | None:
    """Return the credentials for an image in a pull secret's config, without its helpers; None without any.

    name: in messages. Raises CredentialError.
    """
    return _most_specific(_decode(body, name).auths or {}, image, name)


def _decode(body: bytes, name: str) -> _Config:
    if len(body) > MAX_BYTES:
        raise CredentialError(Message("{name}: larger than 1 MiB", name=name))
    try:
        return msgspec.json.decode(body, type=_Config)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CredentialError(_NO_CONFIG.having(name=name, why=error)) from None


def _most_specific(entries: Mapping[str, _Entry], image: Image, name: str) -> Credentials | None:
    """Return the credentials of the most specific key that has some."""
    keys = sorted((key for key in entries if matches(key, image)), key=len, reverse=True)
    candidates = (_credentials(key, entries[key], name) for key in keys)
    return next((credentials for credentials in candidates if credentials), None)


def _credentials(key: str, entry: _Entry, name: str) -> Credentials | None:
    user, password = entry.username or "", entry.password or ""
    if entry.auth:
        try:
            decoded = base64.b64decode(entry.auth, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise CredentialError(_NO_AUTH.having(name=name, key=key)) from None
        user, _, password = decoded.rstrip("\0").partition(":")
    credentials = Credentials(user, password, entry.identity_token or "", entry.registry_token or "")
    return credentials if user or credentials.identity_token or credentials.registry_token else None


def _helper(config: _Config, registry: str) -> str:
    """Return the name of the credential helper of a registry, or an empty text."""
    names = _DOCKER_HUB if registry == DEFAULT_REGISTRY else (registry,)
    helpers = config.helpers or {}
    return next((helpers[name] for name in names if name in helpers), config.store or "")


def matches(key: str, image: Image) -> bool:
    """Return whether a key of `auths` is for an image: its host by glob, and its path as a prefix."""
    place = re.sub(r"^https?://", "", key)
    host, _, path = place.partition("/")
    path = re.sub(r"^v[12](?:/|$)", "", path).strip("/")
    hub = image.registry == DEFAULT_REGISTRY
    named = host in _DOCKER_HUB if hub else _same_host(host, image.registry)
    return named and (not path or f"{image.repository}/".startswith(f"{path}/"))


def _same_host(pattern: str, registry: str) -> bool:
    """Return whether a host matches a glob, label by label as the kubelet compares them."""
    pattern_labels, registry_labels = pattern.lower().split("."), registry.lower().split(".")
    pairs = zip(pattern_labels, registry_labels, strict=False)
    return len(pattern_labels) == len(registry_labels) and all(
        glob(label_glob).fullmatch(label) for label_glob, label in pairs
    )


def _run_helper(helper: str, server: str) -> Credentials | None:
    """Return the credentials that a helper has for a server; None if it has none. Raises CredentialError."""
    if not _HELPER_NAME.fullmatch(helper):
        raise CredentialError(Message("credential helper {name!r}: not a name", name=helper))
    program = f"docker-credential-{helper}"
    try:
        output = output_of([program, "get"], server.encode())
    except OSError as error:
        raise CredentialError(_NO_HELPER.having(name=program, why=os_error_reason(error))) from None
    if output is None:
        return None
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise CredentialError(_NO_SECRET.having(name=program)) from None
    if answer.user == _TOKEN_USER:
        return Credentials(identity_token=answer.secret)
    return Credentials(answer.user, answer.secret) if answer.user else None


def output_of(argv: list[str], text: bytes, env: Mapping[str, str] | None = None) -> bytes | None:
    """Return the output of a helper; None if it fails, because it has no credentials. env: None: inherited.

    Raises CredentialError if it runs too long or prints too much, OSError if it cannot be started.
    """
    process = subprocess.Popen(  # noqa: S603 - the program that the user configured, without a shell
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        start_new_session=True,  # so that its children end with it
    )
    stdin, stdout = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
    expired: list[bool] = []

    def kill() -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def expire() -> None:
        expired.append(True)
        kill()

    timer = Timer(_HELPER_S, expire)
    timer.start()
    try:
        with process:
            with suppress(BrokenPipeError):
                stdin.write(text)
                stdin.close()
            output = stdout.read(_HELPER_BYTES + 1)
            if len(output) > _HELPER_BYTES:
                kill()
    finally:
        timer.cancel()
    if expired:
        raise CredentialError(_SLOW.having(name=argv[0], seconds=_HELPER_S))
    if len(output) > _HELPER_BYTES:
        raise CredentialError(_LARGE.having(name=argv[0], most=_HELPER_BYTES // 1024))
    return output if process.returncode == 0 else None
