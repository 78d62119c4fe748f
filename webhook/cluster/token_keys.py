"""Keeps the cluster's keys for tokens up to date: OIDC discovery of the API server.

Sources: https://openid.net/specs/openid-connect-discovery-1_0.html and
https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/#service-account-issuer-discovery
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from certs.kubernetes_api import KubernetesError
from certs.periodic_task import PeriodicTask
from webhook.admission.tokens import ALGORITHMS, keys_of
from webhook.cluster.client import UNANSWERED, ApiError
from webhook.cluster.connection_errors import connection_error_text
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.admission.tokens import TokenVerifier
    from webhook.cluster.client import ClusterApi

_log = logging.getLogger("gpugate.cluster")

ISSUER_PATH: Final = "/.well-known/openid-configuration"
# Not jwks_uri of the issuer: that may be a public address, which the pod need not reach.
KEYS_PATH: Final = "/openid/v1/jwks"
# Each has one media type; API servers answer 406 to a request for another.
_MEDIA: Final = {ISSUER_PATH: "application/json", KEYS_PATH: "application/jwk-set+json"}
# Seconds from one read to the next: how long a key that the cluster has withdrawn is trusted. A new key is
# read when the first token with it comes.
READ_INTERVAL: Final = 300.0
# Seconds between two reads at least, however many tokens have unknown keys; and after a failure.
COOLDOWN: Final = 5.0


class TokenKeysSync:
    """Reads the keys periodically, and when a token has an unknown key; a failure changes nothing."""

    def __init__(self, api: ClusterApi, tokens: TokenVerifier) -> None:
        self._api, self._tokens = api, tokens
        self._failed = True
        self._task = PeriodicTask(
            "token keys",
            self.read,
            lambda: COOLDOWN if self._failed else READ_INTERVAL,
            self._log_fault,
            cooldown=lambda: COOLDOWN,
        )
        tokens.on_unknown_key = self._task.trigger

    @property
    def awaited(self) -> Collection[str]:
        """`token keys` until they were read once."""
        return () if self._tokens.has_keys else ("token keys",)

    def start(self) -> None:
        """Start to read; returns at once."""
        self._task.start()

    def stop(self) -> None:
        """Stop reading; returns at once."""
        self._task.stop()

    def read(self) -> None:
        """Read issuer and keys once. Raises KubernetesError if the API server does not answer with both."""
        self._failed = True
        issuer = self._document(ISSUER_PATH).get("issuer")
        if not isinstance(issuer, str) or not issuer:
            raise KubernetesError(f"cannot verify tokens: {ISSUER_PATH} names no issuer")
        try:
            keys = keys_of(self._document(KEYS_PATH))
        except ValueError as error:
            raise KubernetesError(f"cannot verify tokens: {KEYS_PATH}: {error}") from error
        self._tokens.replace(issuer, keys)
        self._failed = False
        metrics.TOKEN_KEYS_READ.set_to_current_time()
        if not keys:  # others were withdrawn, so they are not kept
            _log.error("no token can be verified: the cluster has no key of %s", " or ".join(ALGORITHMS))

    def _log_fault(self, fault: Exception) -> None:
        effect = "the last keys stay in force" if self._tokens.has_keys else "reviews are rejected until then"
        _log.error("%s; %s", fault, effect)

    def _document(self, path: str) -> dict[str, Any]:
        try:
            return self._api.document(path, _MEDIA[path])
        except ApiError as error:
            raise KubernetesError(f"cannot verify tokens: GET {path}: {error}") from error
        except msgspec.DecodeError as error:
            raise KubernetesError(f"cannot verify tokens: GET {path}: not a JSON object: {error}") from error
        except UNANSWERED as error:
            text = connection_error_text(error, self._api.url)
            raise KubernetesError(f"cannot verify tokens: GET {path}: {text}") from error
