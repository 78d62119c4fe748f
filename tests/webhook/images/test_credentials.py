"""Credentials of registries: config files of Docker, pull secrets, credential helpers."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path

import pytest

from tests.support.image_reading import parsed
from webhook.images import credentials
from webhook.images.credentials import CredentialError, CredentialFile, Credentials, default_file


def encoded(user: str, password: str) -> dict[str, str]:
    """Return an entry as `docker login` writes it."""
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def found(folder: Path, config: object, reference: str) -> Credentials | None:
    """Return the credentials for an image in a config file."""
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), "utf-8")
    return CredentialFile(path).find(parsed(reference))


def helper(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Install the credential helper `test`, a shell script, on the PATH."""
    program = folder / "docker-credential-test"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("key", "reference", "matches"),
    [
        ("registry.corp", "registry.corp/app", True),
        ("https://registry.corp/v2/", "registry.corp/app", True),
        ("registry.corp:5000", "registry.corp/app", False),
        ("registry.corp", "registry.corp:5000/app", False),
        ("registry.corp", "other.corp/app", False),
        ("corp", "registry.corp/app", False),
        ("*.corp", "registry.corp/app", True),
        ("*.corp", "a.registry.corp/app", False),
        ("registry.corp/team", "registry.corp/team/app", True),
        ("registry.corp/team", "registry.corp/teams/app", False),
        ("https://index.docker.io/v1/", "app", True),
        ("index.docker.io", "docker.io/team/app", True),
        ("docker.io", "team/app", True),
        ("docker.io", "registry.corp/app", False),
    ],
)
def test_a_key_is_for_the_images_that_the_kubelet_uses_it_for(
    tmp_path: Path, key: str, reference: str, matches: bool
) -> None:
    """Host by glob and label, path by prefix; Docker Hub has several names."""
    config = {"auths": {key: encoded("robot", "secret")}}

    assert (Credentials("robot", "secret") if matches else None) == found(tmp_path, config, reference)


def test_the_longest_key_is_used(tmp_path: Path) -> None:
    """Of those that have credentials: an entry may be empty, if a helper has them."""
    auths = {
        "registry.corp": encoded("all", "x"),
        "registry.corp/team": encoded("team", "y:z"),
        "registry.corp/team/app": {},
    }

    assert Credentials("team", "y:z") == found(tmp_path, {"auths": auths}, "registry.corp/team/app:1")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"username": "robot", "password": "secret"}, Credentials("robot", "secret")),
        ({"identitytoken": "refresh"}, Credentials("", "", "refresh")),
        ({"registrytoken": "bearer"}, Credentials("", "", "", "bearer")),
        ({"username": "", "email": "x"}, None),
    ],
)
def test_the_forms_of_an_entry_are_read(
    tmp_path: Path, entry: dict[str, str], expected: Credentials | None
) -> None:
    """As Docker and kubectl write them."""
    assert expected == found(tmp_path, {"auths": {"registry.corp": entry}}, "registry.corp/app")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a Docker config file"),
        ('{"auths": [1]}', "not a Docker config file"),
        ("[" * 100_000, "not a Docker config file"),
        ('{"auths": {"registry.corp": {"auth": "!"}}}', "auths: registry.corp: `auth` is not base64"),
        (" " * 2**20 + "{}", "larger than 1 MiB"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    """Never with its content."""
    with pytest.raises(CredentialError) as caught:
        found(tmp_path, text, "registry.corp/app")

    assert f"{tmp_path}/config.json: " in str(caught.value)
    assert message in str(caught.value)


def test_a_missing_file_is_an_error_only_if_it_was_given(tmp_path: Path) -> None:
    """The default file need not exist."""
    image = parsed("app")
    with pytest.raises(CredentialError, match="No such file or directory"):
        CredentialFile(tmp_path / "none").find(image)

    assert CredentialFile(tmp_path / "none", required=False).find(image) is None


def test_the_file_is_read_again_for_each_question(tmp_path: Path) -> None:
    """A mounted Secret changes."""
    images = [
        found(tmp_path, {"auths": {"registry.corp": encoded(user, "x")}}, "registry.corp/app")
        for user in ("old", "new")
    ]

    assert [Credentials("old", "x"), Credentials("new", "x")] == images


def test_the_default_file_is_that_of_docker() -> None:
    """Also below another folder."""
    assert Path("/etc/x/config.json") == default_file({"DOCKER_CONFIG": "/etc/x"})
    assert Path("~/.docker/config.json").expanduser() == default_file({})


def test_a_helper_is_asked_for_the_name_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `credHelpers` for one registry, else by `credsStore`; Docker Hub by its URL."""
    helper(tmp_path, monkeypatch, 'read -r server; printf \'{"Username": "%s", "Secret": "x"}\' "$1 $server"')
    one = {"credHelpers": {"registry.corp": "test"}}

    assert Credentials("get registry.corp", "x") == found(tmp_path, one, "registry.corp/app")
    assert found(tmp_path, one, "other.corp/app") is None
    assert Credentials("get https://index.docker.io/v1/", "x") == found(
        tmp_path, {"credsStore": "test"}, "team/app"
    )


def test_a_helper_may_return_an_identity_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marked by the user name."""
    helper(tmp_path, monkeypatch, 'echo \'{"Username": "<token>", "Secret": "refresh"}\'')

    assert Credentials("", "", "refresh") == found(tmp_path, {"credsStore": "test"}, "registry.corp/app")


def test_the_entries_of_the_file_are_used_if_the_helper_has_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails then."""
    helper(tmp_path, monkeypatch, "echo 'credentials not found in native keychain'; exit 1")
    config = {"credsStore": "test", "auths": {"registry.corp": encoded("robot", "secret")}}

    assert Credentials("robot", "secret") == found(tmp_path, config, "registry.corp/app")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("sleep 60 & sleep 60", "docker-credential-test: no answer within 0.3 seconds"),
        ("exec >&-; sleep 60", "docker-credential-test: no answer within 0.3 seconds"),
        ("yes", "docker-credential-test: the answer is larger than 64 KiB"),
        ("echo x", "docker-credential-test: the answer is not JSON with Username and Secret"),
    ],
)
def test_a_helper_is_limited_in_time_and_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    """It and its children end then."""
    helper(tmp_path, monkeypatch, script)
    monkeypatch.setattr(credentials, "_HELPER_S", 0.3 if "sleep" in script else 60.0)
    started = time.monotonic()
    with pytest.raises(CredentialError) as caught:
        found(tmp_path, {"credsStore": "test"}, "registry.corp/app")

    assert message == str(caught.value)
    assert time.monotonic() - started < 30


def test_a_helper_that_is_not_installed_or_not_a_name_is_reported(tmp_path: Path) -> None:
    """A path is not run."""
    for name, message in (
        ("none", "docker-credential-none: No such file or directory; is it installed?"),
        ("../../bin/sh", "credential helper '../../bin/sh': not a name"),
    ):
        with pytest.raises(CredentialError) as caught:
            found(tmp_path, {"credHelpers": {"registry.corp": name}}, "registry.corp/app")
        assert message == str(caught.value)


def test_a_pull_secret_runs_no_helper(tmp_path: Path) -> None:
    """Its author is not the owner of the machine."""
    path = tmp_path / ".dockerconfigjson"
    path.write_text(json.dumps({"credsStore": "none"}), "utf-8")

    assert CredentialFile(path, helpers=False).find(parsed("registry.corp/app")) is None
