"""Reading the cluster's keys for tokens, from a fake API server; tests/e2e/test_tokens.py has a real one."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import pytest

from certs.kubernetes_api import KubernetesError
from tests.support.cluster_tokens import ISSUER, URL, ClusterKey, claims, rsa_key
from tests.support.fake_api import FakeApi, running
from tests.support.serving import wait_for
from webhook.admission.tokens import TokenVerifier
from webhook.cluster import token_keys
from webhook.cluster.token_keys import ISSUER_PATH, KEYS_PATH, TokenKeysSync

if TYPE_CHECKING:
    from webhook.admission.tokens import Rejection

OLD, NEW = ClusterKey(), ClusterKey(rsa_key(), "two")


def publish(api: FakeApi, *keys: ClusterKey) -> None:
    """Serve these keys as an API server does, with a public address that a pod may not reach."""
    api.texts[ISSUER_PATH] = json.dumps({"issuer": ISSUER, "jwks_uri": "https://public.example/keys"})
    api.texts[KEYS_PATH] = json.dumps({"keys": [key.public() for key in keys]})


def rejection(tokens: TokenVerifier, key: ClusterKey) -> Rejection | None:
    """Return why a token of a key is rejected."""
    return tokens.rejection("/mutate", [f"Bearer {key.token(claims('*'))}"], b"")


def test_tokens_are_accepted_after_the_keys_were_read() -> None:
    """Readiness waits for them; only the API server is asked."""
    fake, tokens = FakeApi(), TokenVerifier([URL])
    publish(fake, OLD)
    with running(fake) as api:
        sync = TokenKeysSync(api, tokens)
        before = list(sync.awaited)
        sync.read()

    assert (["token keys"], []) == (before, list(sync.awaited))
    assert rejection(tokens, OLD) is None
    assert [ISSUER_PATH, KEYS_PATH] == [request.path for request in fake.requests]


def test_a_token_with_a_new_key_makes_it_read_the_keys_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before the next periodic read."""
    monkeypatch.setattr(token_keys, "COOLDOWN", 0.0)
    fake, tokens = FakeApi(), TokenVerifier([URL])
    publish(fake, OLD)
    with running(fake) as api:
        sync = TokenKeysSync(api, tokens)
        sync.start()
        wait_for(lambda: tokens.has_keys)
        publish(fake, OLD, NEW)
        wait_for(lambda: rejection(tokens, NEW) is None)
        sync.stop()

    assert rejection(tokens, OLD) is None


@pytest.mark.parametrize("path", [ISSUER_PATH, KEYS_PATH])
@pytest.mark.parametrize("answer", ["<html>", "[]", "{}", '{"issuer": 7, "keys": 7}', None])
def test_the_last_keys_stay_if_the_api_server_does_not_answer_with_keys(
    path: str, answer: str | None
) -> None:
    """Its fault is named; None is a refusal."""
    fake, tokens = FakeApi(), TokenVerifier([URL])
    publish(fake, OLD)
    with running(fake) as api:
        sync = TokenKeysSync(api, tokens)
        sync.read()
        if answer is None:
            fake.statuses[path] = 403
        else:
            fake.texts[path] = answer
        with pytest.raises(KubernetesError, match=f"cannot verify tokens: .*{path}"):
            sync.read()

    assert rejection(tokens, OLD) is None


def test_the_last_keys_stay_while_the_api_server_cannot_be_reached() -> None:
    """It sends no reviews then, either."""
    fake, tokens = FakeApi(), TokenVerifier([URL])
    publish(fake, OLD)
    with running(fake) as api:
        sync = TokenKeysSync(api, tokens)
        sync.read()
    with pytest.raises(KubernetesError, match="cannot verify tokens"):
        sync.read()

    assert rejection(tokens, OLD) is None


def test_without_any_keys_it_is_not_ready_and_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is logged once."""
    monkeypatch.setattr(token_keys, "COOLDOWN", 0.0)
    fake, tokens = FakeApi(statuses={ISSUER_PATH: 403}), TokenVerifier([URL])
    publish(fake, OLD)
    with running(fake) as api, caplog.at_level(logging.ERROR):
        sync = TokenKeysSync(api, tokens)
        sync.start()
        fake.until(lambda: len(fake.requests) > 3)
        awaited = list(sync.awaited)
        del fake.statuses[ISSUER_PATH]
        wait_for(lambda: tokens.has_keys)
        sync.stop()

    assert ["token keys"] == awaited
    assert 1 == len([line for line in caplog.messages if "403" in line])


def test_keys_that_the_cluster_has_withdrawn_are_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    """Although it has no usable key any more."""
    fake, tokens = FakeApi(), TokenVerifier([URL])
    publish(fake, OLD)
    with running(fake) as api:
        sync = TokenKeysSync(api, tokens)
        sync.read()
        publish(fake)
        sync.read()

    assert "the cluster has no key of RS256 or ES256" in caplog.text
    assert rejection(tokens, OLD) is not None
