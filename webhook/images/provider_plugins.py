"""Credentials of registries from credential provider plugins of the kubelet, which clouds provide.

Source: https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ and
https://kubernetes.io/docs/reference/config-api/kubelet-credentialprovider.v1/
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
import yaml

from rules.kube.image_reference import Image
from rules.text.i18n import Message, located, os_error_reason
from webhook.images.credentials import CredentialError, Credentials, matches, output_of

_API_VERSION: Final = "credentialprovider.kubelet.k8s.io/v1"
_NO_CONFIG: Final = Message("{file}: not a CredentialProviderConfig: {why}")
_OTHER_VERSION: Final = Message("{file}: {name}: expected apiVersion {version}", version=_API_VERSION)
_NO_PROGRAM: Final = Message("{file}: no program {name!r} in {folder}")
_NO_RESPONSE: Final = Message("{name}: the answer is not a CredentialProviderResponse")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
# A duration of Go, such as 6h0m0s.
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)(?:\.\d+)?s)?", re.ASCII)
# Answers that are kept.
_MAX_CACHED: Final = 256


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Provider(msgspec.Struct):
    name: str
    api_version: str = msgspec.field(name="apiVersion")
    match_images: list[str] = msgspec.field(name="matchImages")
    cache: str = msgspec.field(default="0s", name="defaultCacheDuration")
    args: list[str] | None = None
    env: list[_Variable] | None = None


class _Config(msgspec.Struct):
    providers: list[_Provider]


class _Auth(msgspec.Struct):
    username: str = ""
    password: str = ""


class _Response(msgspec.Struct):
    """A CredentialProviderResponse."""

    kind: str
    api_version: str = msgspec.field(name="apiVersion")
    key: str = msgspec.field(default="", name="cacheKeyType")  # valid for: Image, Registry or Global
    cache: str | None = msgspec.field(default=None, name="cacheDuration")
    auth: dict[str, _Auth] | None = None


class ProviderPlugins:
    """The plugins of a CredentialProviderConfig file, whose programs are in a folder.

    Raises CredentialError if the file cannot be used.
    """

    def __init__(self, config: Path, folder: Path) -> None:
        try:
            parsed = msgspec.convert(yaml.safe_load(config.read_text("utf-8")), _Config)
        except OSError as error:
            raise CredentialError(located(config, os_error_reason(error))) from None
        except (UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
            raise CredentialError(_NO_CONFIG.having(file=config, why=error)) from None
        self._providers, self._folder = parsed.providers, folder
        self._cached: dict[tuple[str, str, str], tuple[float, dict[str, _Auth]]] = {}
        for provider in self._providers:
            if provider.api_version != _API_VERSION:
                raise CredentialError(_OTHER_VERSION.having(file=config, name=provider.name))
            if not (_NAME.fullmatch(provider.name) and (folder / provider.name).is_file()):
                raise CredentialError(_NO_PROGRAM.having(file=config, name=provider.name, folder=folder))

    def find(self, image: Image) -> Credentials | None:
        """Return the credentials for an image; None if no plugin has some. Raises CredentialError."""
        for provider in self._providers:
            if any(matches(pattern, image) for pattern in provider.match_images):
                auth = self._auth(provider, image)
                keys = sorted((key for key in auth if matches(key, image)), key=len, reverse=True)
                for entry in (auth[key] for key in keys):
                    if entry.username or entry.password:
                        return Credentials(entry.username, entry.password)
        return None

    def _auth(self, provider: _Provider, image: Image) -> dict[str, _Auth]:
        """Return the credentials of a plugin by patterns of images, from the cache if they are valid."""
        keys = {"Image": image.canonical, "Registry": image.registry, "Global": ""}
        for kind, value in keys.items():
            until, auth = self._cached.get((provider.name, kind, value), (0.0, {}))
            if monotonic() < until:
                return auth
        response = self._run(provider, image)
        seconds = _seconds(provider.cache if response.cache is None else response.cache)
        if seconds and response.key in keys:
            if len(self._cached) >= _MAX_CACHED:
                self._cached.pop(next(iter(self._cached)), None)
            cached = monotonic() + seconds, response.auth or {}
            self._cached[provider.name, response.key, keys[response.key]] = cached
        return response.auth or {}

    def _run(self, provider: _Provider, image: Image) -> _Response:
        request = {"kind": "CredentialProviderRequest", "apiVersion": _API_VERSION, "image": image.canonical}
        argv = [str(self._folder / provider.name), *(provider.args or ())]
        environ = {**os.environ, **{variable.name: variable.value for variable in provider.env or ()}}
        try:
            output = output_of(argv, json.dumps(request).encode(), environ)
        except OSError as error:
            raise CredentialError(located(provider.name, os_error_reason(error))) from None
        if output is None:
            raise CredentialError(Message("{name}: the plugin failed", name=provider.name))
        try:
            response = msgspec.json.decode(output, type=_Response)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            response = _Response("", "")
        if (response.kind, response.api_version) != ("CredentialProviderResponse", _API_VERSION):
            raise CredentialError(_NO_RESPONSE.having(name=provider.name))
        return response


def _seconds(duration: str) -> int:
    """Return the seconds of a duration; 0 if it is invalid, so that nothing is cached."""
    match = _DURATION.fullmatch(duration)
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return hours * 3600 + minutes * 60 + seconds
