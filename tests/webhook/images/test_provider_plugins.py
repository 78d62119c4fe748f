"""Credential provider plugins of the kubelet: their protocol, their cache, and answers that are wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.image_reading import parsed
from webhook.images.credentials import CredentialError, Credentials
from webhook.images.provider_plugins import ProviderPlugins

IMAGE = parsed("1.dkr.ecr.eu-west-1.amazonaws.com/team/app:1")
V1 = "credentialprovider.kubelet.k8s.io/v1"
AUTH = {"*.dkr.ecr.*.amazonaws.com": {"username": "AWS", "password": "secret"}}
# Appends the request and an argument with a variable to a file, and prints the content of another.
PROGRAM = f"""#!{sys.executable}
import os, pathlib, sys
folder = pathlib.Path(__file__).parent
with open(folder / "asked", "a") as asked:
    print(sys.stdin.read(), sys.argv[1:], os.environ.get("REGION"), file=asked)
print((folder / "answer").read_text())
"""


def plugins(folder: Path, answer: object = None, **provider: Any) -> ProviderPlugins:
    """Return a plugin that gives an answer; provider: what differs in its configuration."""
    program = folder / "ecr"
    program.write_text(PROGRAM, "utf-8")
    program.chmod(0o755)
    default = {"kind": "CredentialProviderResponse", "apiVersion": V1, "auth": AUTH}
    text = answer if isinstance(answer, str) else json.dumps(default | (answer or {}))  # type: ignore[operator]
    (folder / "answer").write_text(text, "utf-8")
    entry = {"name": "ecr", "apiVersion": V1, "matchImages": ["*.dkr.ecr.*.amazonaws.com"], **provider}
    config = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config | {"providers": [entry]}), "utf-8")
    return ProviderPlugins(folder / "config.yaml", folder)


def asked(folder: Path) -> list[str]:
    """Return what the plugin was asked."""
    path = folder / "asked"
    return path.read_text("utf-8").splitlines() if path.exists() else []


def test_a_plugin_is_asked_for_an_image_that_it_is_configured_for(tmp_path: Path) -> None:
    """With its arguments and environment; by standard input and output."""
    provider_plugins = plugins(tmp_path, args=["--x"], env=[{"name": "REGION", "value": "eu"}])
    credentials = provider_plugins.find(IMAGE)
    request = {"kind": "CredentialProviderRequest", "apiVersion": V1, "image": IMAGE.canonical}

    assert credentials == Credentials("AWS", "secret")
    assert [f"{json.dumps(request)} ['--x'] eu"] == asked(tmp_path)


def test_a_plugin_is_not_asked_for_other_images(tmp_path: Path) -> None:
    """And credentials for other registries are not used."""
    provider_plugins = plugins(tmp_path, {"auth": {"other.example.com": AUTH["*.dkr.ecr.*.amazonaws.com"]}})

    assert (None, []) == (provider_plugins.find(parsed("nvcr.io/nvidia/cuda:1")), asked(tmp_path))
    assert provider_plugins.find(IMAGE) is None


@pytest.mark.parametrize(
    ("answer", "default", "times"),
    [
        ({"cacheKeyType": "Registry", "cacheDuration": "6h0m0s"}, "0s", 1),
        ({"cacheKeyType": "Global"}, "12h", 1),
        ({"cacheKeyType": "Image", "cacheDuration": "6h"}, "0s", 2),
        ({"cacheKeyType": "Registry", "cacheDuration": "0s"}, "12h", 2),
        ({"cacheKeyType": "Registry", "cacheDuration": "soon"}, "12h", 2),
        ({}, "12h", 2),
    ],
)
def test_answers_are_kept_as_long_as_the_plugin_says(
    tmp_path: Path, answer: dict[str, str], default: str, times: int
) -> None:
    """For the image, the registry or all images."""
    provider_plugins = plugins(tmp_path, answer, defaultCacheDuration=default)
    for tag in (1, 2):
        provider_plugins.find(parsed(f"1.dkr.ecr.eu-west-1.amazonaws.com/team/app:{tag}"))

    assert times == len(asked(tmp_path))


@pytest.mark.parametrize("answer", ["no JSON", "{}", '{"kind": "x", "apiVersion": "y"}', "[" * 10_000])
def test_a_wrong_answer_is_an_error_with_the_name_of_the_plugin(tmp_path: Path, answer: str) -> None:
    """Its text, which may have credentials, is not in the message."""
    with pytest.raises(CredentialError) as caught:
        plugins(tmp_path, answer).find(IMAGE)

    assert str(caught.value) == "ecr: the answer is not a CredentialProviderResponse"


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        ({"name": "../ecr"}, "no program '../ecr'"),
        ({"name": "missing"}, "no program 'missing'"),
        ({"apiVersion": "credentialprovider.kubelet.k8s.io/v1alpha1"}, "expected apiVersion"),
        ({"matchImages": "x"}, "not a CredentialProviderConfig"),
    ],
)
def test_a_wrong_configuration_is_an_error_at_start(
    tmp_path: Path, provider: dict[str, str], words: str
) -> None:
    """The message names the file."""
    with pytest.raises(CredentialError) as caught:
        plugins(tmp_path, **provider)

    assert str(caught.value).startswith(f"{tmp_path / 'config.yaml'}: ")
    assert words in str(caught.value)
