"""`gpugate image inspect` reads images of a real registry, with TLS and a password."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.e2e.daemon import HOST
from tests.e2e.registry import BASIC, Registry, TokenServer, missing
from tests.support.fake_registry import Asked, Reply, fake_registry
from tests.support.image_builders import (
    CUDA_ENV,
    DOCKER_CONFIG,
    DOCKER_INDEX,
    DOCKER_MANIFEST,
    Blob,
    config,
    document,
    index,
    manifest,
)
from tests.support.serving import AUTHORITY

pytestmark = pytest.mark.timeout(120)

OLD_ENV = CUDA_ENV | {"CUDA_VERSION": "12.2.2", "NVIDIA_REQUIRE_CUDA": "cuda>=12.2"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yield a registry with several images."""
    if missing():
        pytest.skip("no docker-registry: docs/contributing.md says what the tests of images take")
    with Registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def inspect(registry: Registry, *arguments: str, private: bool = True) -> tuple[int, Any, str]:
    """Return exit status, JSON and errors of the command, with or without credentials."""
    credentials = ["--registry-config", str(registry.config_file)] if private else []
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "webhook", "image", "inspect", *arguments, *credentials),
            *("--ca-file", str(registry.ca_file), "-o", "json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_PROXY": "*", "DOCKER_CONFIG": "/nowhere"},
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def facts(inspection: Any) -> list[tuple[str, str | None, dict[str, str]]]:
    """Return platform, CUDA version and requirements of each platform of the first image."""
    return [
        (platform["platform"], platform.get("cuda"), platform["require"])
        for platform in inspection["images"][0]["platforms"]
    ]


def test_an_image_with_variables_of_nvidia_cuda_is_read(registry: Registry) -> None:
    """By tag, and by the digest that is printed."""
    of = config(CUDA_ENV)
    name = registry.push("nvidia/cuda:12.4.1", manifest(of), of)
    status, inspection, errors = inspect(registry, name)
    pinned = f"{registry.host}/nvidia/cuda@{inspection['images'][0]['digest']}"

    assert (0, "") == (status, errors)
    expected = [("linux/amd64", "12.4", {"NVIDIA_REQUIRE_CUDA": CUDA_ENV["NVIDIA_REQUIRE_CUDA"]})]
    assert expected == facts(inspection) == facts(inspect(registry, pinned)[1])
    assert manifest(of).digest == inspection["images"][0]["digest"]


@pytest.mark.parametrize("docker", [False, True])
def test_a_multi_platform_image_is_read_for_each_platform(registry: Registry, docker: bool) -> None:
    """In the formats of OCI and of Docker."""
    configs = {"linux/amd64": config(CUDA_ENV), "linux/arm64": config(OLD_ENV, "arm64")}
    if docker:
        configs = {name: Blob(image_config.body, DOCKER_CONFIG) for name, image_config in configs.items()}
        manifests = {name: manifest(image_config, DOCKER_MANIFEST) for name, image_config in configs.items()}
        top = index(manifests, DOCKER_INDEX)
    else:
        manifests = {name: manifest(image_config) for name, image_config in configs.items()}
        top = index(manifests)
    name = registry.push(f"team/multi:{docker}".lower(), top, *configs.values(), *manifests.values())
    status, inspection, errors = inspect(registry, name)

    assert (0, "") == (status, errors)
    assert [("linux/amd64", "12.4"), ("linux/arm64", "12.2")] == [fact[:2] for fact in facts(inspection)]
    assert [("linux/arm64", "12.2")] == [
        fact[:2] for fact in facts(inspect(registry, name, "--platform", "linux/arm64")[1])
    ]


def test_an_image_without_cuda_has_no_version_and_requires_nothing(registry: Registry) -> None:
    """It is known to require nothing."""
    of = config({"PATH": "/usr/bin"})
    name = registry.push("team/plain:1", manifest(of), of)

    assert [("linux/amd64", None, {})] == facts(inspect(registry, name)[1])


def test_a_private_image_needs_credentials(registry: Registry) -> None:
    """Without and with wrong ones the error says so; an image that does not exist is another error."""
    of = config(CUDA_ENV)
    name = registry.push("team/private:1", manifest(of), of)
    status, inspection, errors = inspect(registry, name, private=False)

    assert (1, ["unauthorized"]) == (status, [error["reason"] for error in inspection["errors"]])
    assert f"error: {name}: 127.0.0.1: credentials are required\n" == errors
    status, inspection, _ = inspect(registry, f"{registry.host}/team/none:1")
    assert (1, ["not-found"]) == (status, [error["reason"] for error in inspection["errors"]])


def test_all_images_of_manifests_are_read_with_partial_errors(registry: Registry, tmp_path: Path) -> None:
    """As a user reads the images of a deployment."""
    of = config(CUDA_ENV)
    name = registry.push("team/app:1", manifest(of), of)
    containers = [{"image": name}, {"image": f"{registry.host}/team/none:1"}]
    spec = {"template": {"spec": {"containers": containers}}}
    (tmp_path / "deployment.yaml").write_text(
        json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}), "utf-8"
    )
    status, inspection, _ = inspect(registry, "-f", str(tmp_path / "deployment.yaml"), "--allow-private")

    assert 1 == status
    assert [name] == [image["image"] for image in inspection["images"]]
    assert ["not-found"] == [error["reason"] for error in inspection["errors"]]


def test_an_artifact_that_is_not_an_image_is_invalid(registry: Registry) -> None:
    """Such as a chart."""
    chart = document({"name": "chart"}, "application/vnd.cncf.helm.config.v1+json")
    name = registry.push("team/chart:1", manifest(chart), chart)

    assert ["invalid"] == [error["reason"] for error in inspect(registry, name)[1]["errors"]]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Yield a folder with a short name: podman accepts 50 characters."""
    with tempfile.TemporaryDirectory(prefix="gpugate-") as name:
        yield Path(name)


def test_an_archive_that_podman_saved_is_read(short_path: Path) -> None:
    """In each of its formats; podman needs no registry for an image that it imports."""
    if shutil.which("podman") is None:
        pytest.skip("no podman")
    (short_path / "root.tar").write_bytes(bytes(10_240))
    store = ["podman", f"--root={short_path}/store", f"--runroot={short_path}/run", "--storage-driver=vfs"]
    change = ["--change=ENV CUDA_VERSION=12.4.1", "--change=ENV NVIDIA_REQUIRE_CUDA=cuda>=12.4"]

    def podman(*arguments: str) -> None:
        subprocess.run([*store, *arguments], check=True, capture_output=True, timeout=60)

    podman("import", *change, str(short_path / "root.tar"), "example.com/team/app:1")
    for form in ("docker-archive", "oci-archive", "oci-dir"):
        target = short_path / f"{form}.tar"
        podman("save", f"--format={form}", f"--output={target}", "example.com/team/app:1")
        done = subprocess.run(
            [*(sys.executable, "-P", "-m", "webhook"), "image", "inspect", str(target), "-o", "json"],
            capture_output=True,
            text=True,
            check=True,
        )
        parsed = json.loads(done.stdout)
        assert [("12.4", {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4"})] == [fact[1:] for fact in facts(parsed)]


def test_a_registry_with_tokens_gives_public_images_to_all_and_private_ones_to_users(tmp_path: Path) -> None:
    """As Docker Hub and most others: its token server asks for the password, and only of private images."""
    if missing():
        pytest.skip("no docker-registry: docs/contributing.md says what the tests of images take")
    of = config(CUDA_ENV)
    with fake_registry(tmp_path) as server:
        tokens = TokenServer(server.url("/token", HOST), AUTHORITY.certificate_pem, AUTHORITY)

        def token(request: Asked) -> Reply:
            scope = parse_qs(urlsplit(request.path).query)["scope"][0]
            if "private" in scope and request.authorization != BASIC:
                return Reply(401)
            return Reply(body=json.dumps({"token": tokens.token(scope)}).encode())

        server.replies["/token"] = token
        with Registry(tmp_path, tokens) as registry:
            public = registry.push("team/public:1", manifest(of), of)
            private = registry.push("team/private:1", manifest(of), of)
            anonymous = inspect(registry, public, private, "--allow-private", private=False)
            known = inspect(registry, public, private, "--allow-private")

    assert (1, [public]) == (anonymous[0], [image["image"] for image in anonymous[1]["images"]])
    assert ["unauthorized"] == [error["reason"] for error in anonymous[1]["errors"]]
    assert (0, [public, private]) == (known[0], [image["image"] for image in known[1]["images"]])


def test_a_registry_that_is_down_is_unavailable(tmp_path: Path, registry: Registry) -> None:
    """In one line, and at once."""
    with Registry(tmp_path) as other:
        other.stop()
        status, inspection, errors = inspect(registry, f"{other.host}/team/app:1")

    assert (1, ["unavailable"]) == (status, [error["reason"] for error in inspection["errors"]])
    assert 1 == len(errors.splitlines())
