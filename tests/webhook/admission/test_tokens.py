"""Tokens of API servers: what is accepted, and why everything else is rejected."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.warnings import InsecureKeyLengthWarning

from tests.support.cluster_tokens import ISSUER, URL, ClusterKey, claims, rsa_key
from tests.support.webhooks import body, pod
from webhook.admission.tokens import LEEWAY, MAX_KEYS, TokenVerifier, keys_of

KEY = ClusterKey()
REVIEW = body(pod())


def verifier(*keys: ClusterKey, urls: tuple[str, ...] = (URL,)) -> TokenVerifier:
    """Return a verifier of these keys."""
    tokens = TokenVerifier(urls)
    tokens.replace(ISSUER, keys_of({"keys": [key.public() for key in keys or (KEY,)]}))
    return tokens


def reason(
    token: str, *, tokens: TokenVerifier | None = None, path: str = "/mutate", review: bytes = REVIEW
) -> str | None:
    """Return why a token is rejected."""
    rejection = (tokens or verifier()).rejection(path, [f"Bearer {token}"], review)
    return rejection and rejection.reason


def group_review(kind_group: str, resource_group: str) -> bytes:
    """Return a review of an object whose kind and resource have these groups."""
    review = json.loads(REVIEW)
    review["request"]["kind"]["group"] = kind_group
    review["request"]["resource"] = {"group": resource_group, "version": "v1", "resource": "deployments"}
    return json.dumps(review).encode()


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_a_token_of_the_api_server_is_accepted(path: str) -> None:
    """It attests all groups."""
    assert reason(KEY.token(claims("*", path=path)), path=path) is None


def test_a_token_signed_with_es256_is_accepted() -> None:
    """The other algorithm of the two."""
    key = ClusterKey(ec.generate_private_key(ec.SECP256R1()), "two", "ES256")

    assert reason(key.token(claims("*")), tokens=verifier(KEY, key)) is None


def test_each_url_of_the_webhook_is_an_audience() -> None:
    """A slash at its end makes no difference."""
    tokens = verifier(urls=(URL, "https://127.0.0.1:8443/"))

    assert reason(KEY.token(claims("*", aud="https://127.0.0.1:8443/mutate")), tokens=tokens) is None
    assert reason(KEY.token(claims("*")), tokens=tokens) is None


NOW = int(time.time())  # of the import, which may be long ago
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"exp": NOW - LEEWAY - 10, "iat": NOW - 1000}, "expired"),
    "not valid yet": ({"nbf": NOW + 99_999}, "invalid"),
    "issued in the future": ({"iat": NOW + 99_999}, "invalid"),
    "of another cluster": ({"iss": "https://other.example"}, "key"),
    "for another webhook": ({"aud": ["https://other.other.svc:443/mutate"]}, "audience"),
    "for the api server": ({"aud": ["https://kubernetes.default.svc"]}, "audience"),
    "for the host without its path": ({"aud": URL}, "audience"),
    "for the other endpoint": ({"aud": f"{URL}/validate"}, "audience"),
    "without an attestation, as every pod may get one": (
        {"kubernetes.io": {"namespace": "a"}},
        "attestation",
    ),
    "without claims of kubernetes": ({"kubernetes.io": None}, "attestation"),
    "that attests no group": ({"kubernetes.io": {"attestations": {}}}, "attestation"),
    "without an expiry": ({"exp": None}, "invalid"),
    "without an audience": ({"aud": None}, "invalid"),
    "without an issuer": ({"iss": None}, "invalid"),
    "with an audience that is a number": ({"aud": 7}, "invalid"),
    "with attestations of another shape": ({"kubernetes.io": {"attestations": ["*"]}}, "invalid"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_signed_token_that_is_not_for_this_review_is_rejected(what: str) -> None:
    """With a reason."""
    changes, expected = BAD[what]

    assert expected == reason(KEY.token(claims("*", **changes)))


def unsigned(header: dict[str, Any]) -> str:
    """Return a token with this header and an empty signature."""
    parts = (json.dumps(part).encode() for part in (header, claims("*")))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


FORGED = {
    "without a signature": unsigned({"alg": "none", "kid": "one"}),
    "with an empty signature": unsigned({"alg": "RS256", "kid": "one"}),
    "signed with the public key as a secret": jwt.encode(
        claims("*"), KEY.public()["n"], "HS256", {"kid": "one"}
    ),
    "signed with another key of the same id": ClusterKey(rsa_key()).token(claims("*")),
    "signed with another algorithm": jwt.encode(claims("*"), KEY.private, "RS512", {"kid": "one"}),
    "signed with padding of another kind": jwt.encode(claims("*"), KEY.private, "PS256", {"kid": "one"}),
    "with an extension that must be understood": KEY.token(claims("*"), crit=["x"], x=1),
    "that is empty": "",
    "that is one word": "x",
    "with a header that is no object": "W10.e30.e30",
    "nested deep": base64.urlsafe_b64encode(b"[" * 20_000).decode() + ".e30.e30",
    "with a number of many digits": base64.urlsafe_b64encode(b"9" * 20_001).decode() + ".e30.e30",
    "with a key id that is a list": unsigned({"alg": "RS256", "kid": ["one"]}),
    "with text that is not ASCII": "é.é.é",
}


@pytest.mark.parametrize("what", list(FORGED))
def test_a_token_that_the_cluster_did_not_sign_is_rejected(what: str) -> None:
    """Never an exception."""
    assert "invalid" == reason(FORGED[what])


def test_a_changed_token_is_rejected_although_the_original_is_cached() -> None:
    """The cache is by the whole token."""
    tokens, token = verifier(), KEY.token(claims("*"))
    head, _, signature = token.split(".")
    payload = (
        base64.urlsafe_b64encode(json.dumps(claims("*", exp=NOW + 99_999)).encode()).decode().rstrip("=")
    )

    assert [None, "invalid", None] == [
        reason(token, tokens=tokens),
        reason(f"{head}.{payload}.{signature}", tokens=tokens),
        reason(token, tokens=tokens),
    ]


def test_a_cached_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was valid when its signature was verified."""
    tokens, token = verifier(), KEY.token(claims("*"))
    first = reason(token, tokens=tokens)
    monkeypatch.setattr(time, "time", lambda: NOW + 99_999)

    assert [None, "expired"] == [first, reason(token, tokens=tokens)]


@pytest.mark.parametrize("values", [[], ["Basic YTpi"], ["Bearer"], ["Bearer a", "Bearer b"]])
def test_a_review_without_exactly_one_bearer_token_is_rejected(values: list[str]) -> None:
    """Two headers may have two readings."""
    rejection = verifier().rejection("/mutate", values, REVIEW)

    assert rejection
    assert ("missing", "a review requires a token of the API server: there is none") == rejection


@pytest.mark.parametrize(
    ("kind", "resource", "expected"),
    [
        ("apps", "apps", None),
        ("apps", "batch", "attestation"),
        ("batch", "apps", "attestation"),  # gpugate decides by the kind
        ("", "", "attestation"),  # of pods and of rules: only the API server itself asks about them
    ],
)
def test_an_aggregated_api_server_may_ask_only_about_its_own_group(
    kind: str, resource: str, expected: str | None
) -> None:
    """Its token attests one group."""
    assert expected == reason(KEY.token(claims("apps")), review=group_review(kind, resource))


@pytest.mark.parametrize("review", [b"", b"{}", b"[" * 10_000, b'{"request":{"kind":{"group":"apps"}}}'])
def test_a_token_of_one_group_does_not_permit_what_is_no_review(review: bytes) -> None:
    """Its group is unknown."""
    assert "attestation" == reason(KEY.token(claims("apps")), review=review)


def test_the_message_does_not_quote_the_token() -> None:
    """It is logged, whoever sent the token."""
    rejection = verifier().rejection("/mutate", ["Bearer " + KEY.token(claims("*"), crit=["S3CRET"])], REVIEW)

    assert rejection
    assert (
        "a review requires a token of the API server: it is invalid (InvalidTokenError)" == rejection.message
    )


def test_before_the_keys_are_known_every_token_is_rejected() -> None:
    """It fails closed."""
    tokens = TokenVerifier([URL])

    assert (False, "not_synced") == (tokens.has_keys, reason(KEY.token(claims("*")), tokens=tokens))


def test_after_a_change_of_keys_tokens_of_the_old_key_are_rejected_and_of_the_new_one_accepted() -> None:
    """Also a token that was accepted before."""
    tokens, new = verifier(), ClusterKey(rsa_key(), "two")
    calls: list[str] = []
    tokens.on_unknown_key = lambda: calls.append("read")
    old_token, new_token = KEY.token(claims("*")), new.token(claims("*"))
    before = [reason(token, tokens=tokens) for token in (old_token, new_token)]
    tokens.replace(ISSUER, keys_of({"keys": [new.public()]}))
    after = [reason(token, tokens=tokens) for token in (old_token, new_token)]

    assert ([None, "key"], ["key", None]) == (before, after)
    assert ["read", "read"] == calls


def test_keys_of_other_algorithms_are_skipped() -> None:
    """Of a key set with several kinds."""
    other = ClusterKey(ec.generate_private_key(ec.SECP384R1()), "other", "ES384").public()
    secret = {"kty": "oct", "kid": "secret", "alg": "HS256", "k": "c2VjcmV0"}

    assert ["one"] == list(keys_of({"keys": [other, secret, {}, 7, KEY.public()]}))


def test_a_key_that_is_too_short_verifies_nothing() -> None:
    """RSA below 2048 bits."""
    short = ClusterKey(rsa_key(1024))
    with pytest.warns(InsecureKeyLengthWarning):
        token = short.token(claims("*"))

    assert "invalid" == reason(token, tokens=verifier(short))


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"keys": {}},
        {"keys": [{}] * (MAX_KEYS + 1)},
        {"keys": [{"kid": "a", "alg": "RS256", "kty": "RSA", "n": "!"}]},
        {"keys": [{"kid": "a", "alg": "RS256", "kty": "EC"}]},
        {"keys": [{"kid": "a", "alg": "ES256", "kty": "EC", "crv": "P-256", "x": "AA", "y": 3}]},
        {"keys": [{"kid": "a", "alg": "RS256"}]},
    ],
)
def test_what_is_no_key_set_is_an_error(document: dict[str, Any]) -> None:
    """Never another exception."""
    with pytest.raises(ValueError, match="key"):
        keys_of(document)
