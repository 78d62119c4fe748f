"""`gpugate images`: its options, and what is wrong before it starts."""

from __future__ import annotations

import json
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import gpugate
from webhook.cli.commands.images import REGISTRIES
from webhook.images.errors import ImageError
from webhook.images.guards import Guards


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the kubeconfig of a cluster that does not answer."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    config: dict[str, Any] = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "one", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config), "utf-8")
    return tmp_path / "kubeconfig"


run = partial(gpugate, "images")


def test_a_port_in_use_is_reported_in_one_line(kubeconfig: Path) -> None:
    """Before anything is watched."""
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
        result = run("--kubeconfig", kubeconfig, "--port", port)

    assert 2 == result.exit_code
    assert f"cannot listen on port {port}: Address already in use" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--registry", "https://nvcr.io"], "expected HOST[:PORT], got 'https://nvcr.io'"),
        (["--private-registry", "a/b"], "expected HOST[:PORT], got 'a/b'"),
        (["--insecure-registry", ""], "expected HOST[:PORT], got ''"),
        (["--mirror", "docker.io"], "expected HOST=MIRROR[/PREFIX]"),
        (["--credential-provider-config", "x"], "require each other"),
        (["--credential-provider-bin-dir", "x"], "require each other"),
    ],
)
def test_wrong_options_are_reported_in_one_line(kubeconfig: Path, arguments: list[str], words: str) -> None:
    """With exit status 2."""
    result = run("--kubeconfig", kubeconfig, *arguments)

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert words in result.stderr


@pytest.mark.parametrize(
    ("registry", "allowed"),
    [
        ("docker.io", True),
        ("nvcr.io", True),
        ("europe-docker.pkg.dev", True),
        ("eu.gcr.io", True),
        ("registry.example.com", False),
        ("docker.io.example.com", False),
        ("notdocker.io", False),
        ("docker.io:8443", False),
    ],
)
def test_by_default_images_come_from_public_registries_alone(registry: str, allowed: bool) -> None:
    """A name that only looks like one of them is none."""
    guards = Guards(REGISTRIES)
    if allowed:
        guards.check_registry(registry)
    else:
        with pytest.raises(ImageError):
            guards.check_registry(registry)
