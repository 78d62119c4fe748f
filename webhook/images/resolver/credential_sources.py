"""Credentials for the images of a cluster: from several sources, and from the pull secrets of pods."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote

from certs.kubernetes_api import Kubernetes, KubernetesError
from rules.kube.image_reference import Image
from rules.text.i18n import Message, Text
from webhook.images.credentials import CredentialError, Credentials, of_pull_secret
from webhook.images.registry import CredentialSource
from webhook.images.resolver.image_use import PullSecret, image_key

_log = logging.getLogger("gpugate.images")

_KEY: Final = ".dockerconfigjson"
_NO_KEY: Final = Message("secret {namespace}/{name}: no {key}", key=_KEY)


class FirstOf:
    """The credentials of the first of several sources that has some.

    A source that fails is logged and skipped, as in the kubelet: the image may be readable without
    credentials.
    """

    def __init__(self, sources: Sequence[CredentialSource]) -> None:
        self._sources = sources

    def find(self, image: Image) -> Credentials | None:
        """Return the credentials for an image; None if no source has some."""
        for source in self._sources:
            try:
                if credentials := source.find(image):
                    return credentials
            except CredentialError as error:
                _log.warning("credentials for %s: %s", image.name, error)
        return None


class PullSecrets:
    """The pull secrets of the pods that use an image; each is read when it is needed, and never kept.

    secrets_of: the secrets of an image, by its key. Used from several threads.
    """

    def __init__(self, api: Kubernetes, secrets_of: Callable[[str], Sequence[PullSecret]]) -> None:
        self._api, self._secrets_of = api, secrets_of

    def find(self, image: Image) -> Credentials | None:
        """Return the credentials for an image; None if no secret has some. A failing secret is logged."""
        secrets = self._secrets_of(image_key(image))
        return FirstOf([_Secret(self._api, secret) for secret in secrets]).find(image)


class _Secret:
    def __init__(self, api: Kubernetes, secret: PullSecret) -> None:
        self._api, self._secret = api, secret

    def find(self, image: Image) -> Credentials | None:
        """Return the credentials for an image; None if the secret has none. Raises CredentialError."""
        namespace, name = self._secret.namespace, self._secret.name
        try:
            secret = self._api.get(f"/api/v1/namespaces/{quote(namespace, '')}/secrets/{quote(name, '')}")
            body = b64decode((secret.get("data") or {}).get(_KEY, ""))
        except KubernetesError as error:
            raise CredentialError(Text(str(error))) from None
        except ValueError:
            body = b""
        if not body:
            raise CredentialError(_NO_KEY.having(namespace=namespace, name=name))
        return of_pull_secret(body, f"secret {namespace}/{name}", image)
