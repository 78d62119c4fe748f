"""Tokens by which API servers authenticate to webhooks: KEP-6060, alpha in Kubernetes 1.37.

The cluster signs a JWT for one URL of a webhook, its audience, and attests in it the API group that its
bearer may ask about. Only an account with the right `attest` gets such a token: the audience alone proves
nothing, because every pod may request a token for any audience.

Sources: https://kep.k8s.io/6060; AttestationAdmissionReviewAPIGroups in k8s.io/api/authentication/v1;
pkg/serviceaccount/claims.go of Kubernetes 1.37; RFC 7515 (JWS), 7517 (JWK), 7519 (JWT).
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jwt
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

ALGORITHMS: Final = ("RS256", "ES256")
# Keys of a cluster; it has one, and two while it changes them.
MAX_KEYS: Final = 64
# Seconds by which clocks of nodes may differ. Kubernetes allows as many: jwt.DefaultLeeway of go-jose.
LEEWAY: Final = 60
# Verified tokens that are cached: of each API server one for each webhook configuration. Others are not
# cached, so no client can fill the cache.
_CACHED: Final = 64
_SCHEME: Final = "bearer "
_ALL_GROUPS: Final = "*"


class Rejection(NamedTuple):
    """Why a review is not answered. reason: a bounded label for metrics; message: for its sender."""

    reason: str
    message: str


class _RejectedError(Exception):
    """Carries a Rejection out of the verification."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.rejection = Rejection(reason, f"a review requires a token of the API server: {message}")


class _Attestations(msgspec.Struct):
    groups: list[str] = msgspec.field(name="admissionReviewAPIGroups", default_factory=list)


class _Kubernetes(msgspec.Struct):
    attestations: _Attestations = msgspec.field(default_factory=_Attestations)


class _Claims(msgspec.Struct):
    """The claims that are used here. exp: seconds since the epoch."""

    exp: float
    aud: str | list[str]
    kubernetes: _Kubernetes = msgspec.field(name="kubernetes.io", default_factory=_Kubernetes)

    @property
    def audiences(self) -> list[str]:
        return [self.aud] if isinstance(self.aud, str) else self.aud


class _Group(msgspec.Struct):
    group: str = ""


class _Request(msgspec.Struct):
    kind: _Group
    resource: _Group


class _Review(msgspec.Struct):
    request: _Request


_decode_review = msgspec.json.Decoder(_Review).decode


class TokenVerifier:
    """Verifies the tokens of reviews; thread-safe.

    urls: of this webhook as its configurations have them, without the paths of the endpoints;
    `https://NAME.NAMESPACE.svc:PORT` for a Service. Until `replace` is called, every token is rejected.

    Attributes:
        on_unknown_key: called when a token has an unknown key or issuer: keys may have changed.
    """

    def __init__(self, urls: Iterable[str]) -> None:
        self._urls = tuple(url.rstrip("/") for url in urls)
        self._verify: Callable[[str], _Claims] | None = None
        self.on_unknown_key: Callable[[], object] = lambda: None

    @property
    def has_keys(self) -> bool:
        """Whether `replace` was called."""
        return self._verify is not None

    def replace(self, issuer: str, keys: Mapping[str, jwt.PyJWK]) -> None:
        """Trust these keys, by key id, and no others. issuer: of the tokens."""

        def verify(token: str) -> _Claims:
            return _verified(token, issuer, keys)

        self._verify = lru_cache(maxsize=_CACHED)(verify)  # exceptions are not cached

    def rejection(self, path: str, authorization: Sequence[str], body: bytes | bytearray) -> Rejection | None:
        """Return why a review is not from an API server; None if it is.

        path: of the endpoint. authorization: the values of this header.
        """
        try:
            self._check(path, authorization, body)
        except _RejectedError as rejected:
            if rejected.rejection.reason == "key":
                self.on_unknown_key()
            return rejected.rejection
        return None

    def _check(self, path: str, authorization: Sequence[str], body: bytes | bytearray) -> None:
        if self._verify is None:
            raise _RejectedError("not_synced", "the keys of the cluster are not known yet")
        if len(authorization) != 1 or not authorization[0].lower().startswith(_SCHEME):
            raise _RejectedError("missing", "there is none")
        claims = self._verify(authorization[0][len(_SCHEME) :].strip())
        if time.time() >= claims.exp + LEEWAY:  # it was valid when it was cached
            raise _RejectedError("expired", "it has expired")
        expected = {f"{url}{path}" for url in self._urls}
        if expected.isdisjoint(claims.audiences):
            raise _RejectedError("audience", f"it is not for {' or '.join(sorted(expected))}")
        groups = claims.kubernetes.attestations.groups
        if _ALL_GROUPS not in groups and not _is_about(body, groups):
            raise _RejectedError("attestation", "it attests no admissionReviewAPIGroups of this review")


def keys_of(key_set: Mapping[str, Any]) -> dict[str, jwt.PyJWK]:
    """Return the usable keys of a JSON Web Key Set by their ids; keys of other algorithms are skipped.

    Raises ValueError if it is no key set, or has more than MAX_KEYS.
    """
    keys = key_set.get("keys")
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise ValueError(f"not a JSON Web Key Set with at most {MAX_KEYS} keys")
    usable: dict[str, jwt.PyJWK] = {}
    for document in keys:
        match document:
            case {"kid": str(key_id), "alg": str(algorithm)} if algorithm in ALGORITHMS:
                try:
                    usable[key_id] = jwt.PyJWK(document, algorithm)
                except jwt.PyJWTError as error:
                    raise ValueError(f"key {key_id!r}: {error}") from error
    return usable


def _verified(token: str, issuer: str, keys: Mapping[str, jwt.PyJWK]) -> _Claims:
    """Return the claims of a token of this issuer, signed with one of the keys. Raises _RejectedError."""
    try:
        key = keys.get(jwt.get_unverified_header(token).get("kid", ""))
        if key is None:
            raise _RejectedError("key", "its key is not one of the cluster's")
        claims = jwt.decode(
            token,
            key,
            ALGORITHMS,
            issuer=issuer,
            leeway=LEEWAY,
            options={
                "require": ["exp", "iat", "iss", "aud"],
                "verify_aud": False,  # depends on the endpoint
                "enforce_minimum_key_length": True,
            },
        )
        return msgspec.convert(claims, _Claims)
    except jwt.ExpiredSignatureError:
        raise _RejectedError("expired", "it has expired") from None
    except jwt.InvalidIssuerError:
        raise _RejectedError("key", "its issuer is not the cluster") from None
    except (jwt.PyJWTError, msgspec.ValidationError) as error:
        # Not its message, which may quote the sender.
        raise _RejectedError("invalid", f"it is invalid ({type(error).__name__})") from None


def _is_about(body: bytes | bytearray, groups: Collection[str]) -> bool:
    """Return whether kind and resource of a review are of these groups; gpugate decides by the kind."""
    try:
        request = _decode_review(body).request
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return {request.kind.group, request.resource.group}.issubset(groups)
