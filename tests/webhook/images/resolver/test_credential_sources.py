"""Credentials: of several sources, and of pull secrets."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest

from certs.kubernetes_api import KubernetesError
from rules.kube.image_reference import Image
from rules.text.i18n import Text
from tests.support.image_reading import parsed
from tests.support.memory import Memory
from webhook.images.credentials import CredentialError, CredentialFile, Credentials
from webhook.images.registry import CredentialSource
from webhook.images.resolver.credential_sources import FirstOf, PullSecrets
from webhook.images.resolver.image_use import PullSecret

IMAGE = parsed("registry.example.com/team/app:1")
SECRETS = "/api/v1/namespaces/ml/secrets"
PULL = PullSecret("ml", "pull")


def stored(**config: object) -> Memory:
    """Return an API server with a pull secret of these entries."""
    memory = Memory()
    body = b64encode(json.dumps({"auths": config}).encode()).decode()
    memory.put(f"{SECRETS}/pull", {"data": {".dockerconfigjson": body}})
    return memory


def entry(user: str) -> dict[str, str]:
    """Return an entry with a user."""
    return {"username": user, "password": "x"}


class Failing:
    """A source that cannot be read."""

    def find(self, image: Image) -> Credentials | None:
        """Raise CredentialError."""
        del image
        raise CredentialError(Text("the plugin failed"))


def test_the_credentials_of_a_pods_pull_secret_are_used() -> None:
    """By registry and path, as the kubelet does it."""
    memory = stored(**{"registry.example.com": entry("a"), "registry.example.com/team": entry("b")})
    credentials = PullSecrets(memory, {"registry.example.com/team/app:1": [PULL]}.__getitem__).find(IMAGE)

    assert credentials == Credentials("b", "x")


def test_only_the_secrets_of_pods_with_the_image_are_read() -> None:
    """Another image gets no credentials of theirs."""
    memory = stored(**{"registry.example.com": entry("a")})

    assert (None, []) == (PullSecrets(memory, lambda _: ()).find(IMAGE), memory.calls)


@pytest.mark.parametrize("data", [None, {}, {".dockerconfigjson": "!"}, {".dockerconfigjson": "e30="}])
def test_a_secret_without_credentials_is_skipped(data: dict[str, str] | None) -> None:
    """The next one is read."""
    memory = stored(**{"registry.example.com": entry("a")})
    memory.put(f"{SECRETS}/empty", {"data": data})
    secrets = PullSecrets(memory, lambda _: [PullSecret("ml", "empty"), PULL])

    assert secrets.find(IMAGE) == Credentials("a", "x")


def test_a_secret_that_may_not_be_read_is_logged_and_the_image_is_read_without(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """RBAC of the component does not grant it."""
    memory = stored()

    def refuse(method: str, path: str) -> None:
        raise KubernetesError(f"{method} {path}: 403 forbidden")

    memory.before = refuse

    assert PullSecrets(memory, lambda _: [PULL]).find(IMAGE) is None
    assert [f"credentials for {IMAGE.name}: GET {SECRETS}/pull: 403 forbidden"] == caplog.messages


def test_the_first_source_that_has_credentials_is_used(tmp_path: Path) -> None:
    """One that fails is skipped."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"auths": {"registry.example.com": entry("file")}}), "utf-8")
    secret = PullSecrets(stored(**{"registry.example.com": entry("secret")}), lambda _: [PULL])
    sources: list[CredentialSource] = [
        Failing(),
        CredentialFile(tmp_path / "none", required=False),
        CredentialFile(file),
        secret,
    ]

    assert FirstOf(sources).find(IMAGE) == Credentials("file", "x")
    assert FirstOf([Failing()]).find(IMAGE) is None
