"""`gpugate image inspect`: output, sources, options and exit status."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from tests.support.command import gpugate
from tests.support.fake_registry import FakeRegistry, Reply, fake_registry, plain_registry
from tests.support.image_builders import (
    CUDA_ENV,
    config,
    docker_archive,
    index,
    layout,
    manifest,
    write_folder,
    write_tar,
)
from tests.support.image_reading import image
from tests.support.serving import AUTHORITY

OF = config(CUDA_ENV)
TOP = manifest(OF)
FACTS = {"cuda": "12.4", "require": {"NVIDIA_REQUIRE_CUDA": CUDA_ENV["NVIDIA_REQUIRE_CUDA"]}}


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    """Yield a registry at localhost, with an image of two platforms and one without CUDA."""
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.certificate_pem)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("NO_PROXY", "*")
    with fake_registry(tmp_path) as server:
        arm = config(CUDA_ENV, "arm64")
        top = index({"linux/arm64": manifest(arm), "linux/amd64": TOP})
        server.put("nvidia/cuda", "12.4.1", top, TOP, manifest(arm), OF, arm)
        image(server, "team/plain", {"PATH": "/bin"})
        yield server


run = partial(gpugate, "image", "inspect")


def trusting(tmp_path: Path, *arguments: object, **settings: Any) -> Result:
    """Run the command with the CA of the registry."""
    return run(*arguments, "--ca-file", tmp_path / "ca.pem", **settings)


def local(registry: FakeRegistry, name: str) -> str:
    """Return a reference of the registry by a name that the system resolves."""
    return registry.reference(name, "localhost")


def test_a_table_has_a_line_for_each_image(registry: FakeRegistry, tmp_path: Path) -> None:
    """CUDA, the first alternative of its requirement with the number of others, and its platforms."""
    names = [local(registry, "nvidia/cuda:12.4.1"), local(registry, "team/plain:1")]
    result = trusting(tmp_path, *names)

    assert [
        ["IMAGE", "CUDA", "REQUIRES", "PLATFORMS"],
        [names[0], "12.4", "cuda>=12.4", "(+1)", "amd64,", "arm64"],
        [names[1], "-", "-", "amd64"],
    ] == [line.split() for line in result.stdout.splitlines()]
    assert (0, "") == (result.exit_code, result.stderr)
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_json_has_all_facts_of_each_platform(registry: FakeRegistry, tmp_path: Path) -> None:
    """And the errors, each with a reason word."""
    name, absent = local(registry, "nvidia/cuda:12.4.1"), local(registry, "team/none:1")
    result = trusting(tmp_path, name, absent, "-o", "json", "--platform", "linux/amd64")
    document = json.loads(result.stdout)

    top = registry.replies["/v2/nvidia/cuda/manifests/12.4.1"]
    assert isinstance(top, Reply)
    assert [
        {
            "image": name,
            "digest": top.headers["Docker-Content-Digest"],
            "platforms": [{"platform": "linux/amd64", "digest": TOP.digest, **FACTS}],
            "omittedPlatforms": 0,
        }
    ] == document["images"]
    assert [(absent, "not-found")] == [(error["image"], error["reason"]) for error in document["errors"]]
    assert (1, f"error: {absent}: localhost: the image does not exist: HTTP 404\n") == (
        result.exit_code,
        result.stderr,
    )


def test_a_rule_has_rows_by_tag_and_digest(registry: FakeRegistry, tmp_path: Path) -> None:
    """As an ImageCatalog, whose name can be chosen; of a pinned image by digest alone."""
    name = local(registry, "nvidia/cuda:12.4.1")
    digest = registry.replies["/v2/nvidia/cuda/manifests/12.4.1"].headers["Docker-Content-Digest"]  # type: ignore[union-attr]
    pinned = f"{local(registry, 'nvidia/cuda')}@{digest}"
    result = trusting(tmp_path, name, pinned, "-o", "rule", "--name", "team-images")
    rule = yaml.safe_load(result.stdout)
    facts = FACTS | {"platforms": ["linux/amd64", "linux/arm64"]}

    assert "ImageCatalog" == rule["metadata"]["labels"]["gpugate.dev/type"]
    assert "team-images" == rule["metadata"]["name"]
    rows = [{"image": name, "digest": digest, **facts}, {"digest": digest, **facts}]
    assert {"images": rows} == yaml.safe_load(rule["data"]["rule.yaml"])


def test_a_row_of_one_platform_is_joined_by_one_that_names_the_others(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    """All rows of an image together name all of its platforms."""
    name = local(registry, "nvidia/cuda:12.4.1")
    result = trusting(tmp_path, name, "-o", "rule", "--platform", "linux/arm64")
    rows = yaml.safe_load(yaml.safe_load(result.stdout)["data"]["rule.yaml"])["images"]

    assert [["linux/arm64"], ["linux/amd64"]] == [row["platforms"] for row in rows]
    assert {"image", "digest", "platforms"} == set(rows[1])


def test_images_of_objects_are_read_once(registry: FakeRegistry, tmp_path: Path) -> None:
    """Of containers of all kinds, in pods and workloads; other objects are skipped."""
    one, two = local(registry, "nvidia/cuda:12.4.1"), local(registry, "team/plain:1")
    pod = {"initContainers": [{"image": one}], "containers": [{"image": two}, {"image": one}, {"name": "x"}]}
    objects = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": pod},
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": pod}}},
        {"apiVersion": "v1", "kind": "Secret", "data": {"image": "no"}},
    ]
    text = "\n---\n".join(map(json.dumps, objects))
    result = trusting(tmp_path, "-f", "-", "--allow-private", input=text)

    assert [one, two] == [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert (0, "") == (result.exit_code, result.stderr)
    assert 1 == len([request for request in registry.asked if request.path.endswith("/manifests/12.4.1")])


def test_a_registry_that_only_a_manifest_names_needs_a_public_address(
    registry: FakeRegistry, tmp_path: Path
) -> None:
    """Unless private ones are allowed, or the user names it himself."""
    name = local(registry, "team/plain:1")
    (tmp_path / "pod.yaml").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": name}]}}), "utf-8"
    )
    result = trusting(tmp_path, "-f", tmp_path / "pod.yaml")

    assert (1, "") == (result.exit_code, result.stdout)
    assert f"error: {name}: localhost" in result.stderr
    assert "the address is not public" in result.stderr
    assert "hint: use --allow-private" in result.stderr
    assert [] == registry.asked
    assert 0 == trusting(tmp_path, "-f", tmp_path / "pod.yaml", "--allow-private").exit_code
    assert 0 == trusting(tmp_path, name, "-f", tmp_path / "pod.yaml").exit_code


def test_credentials_are_those_of_docker_or_of_a_given_file(registry: FakeRegistry, tmp_path: Path) -> None:
    """Sent when the registry asks for them."""
    name = local(registry, "team/plain:1")
    reply = registry.replies["/v2/team/plain/manifests/1"]

    def guarded(request: Any) -> Reply:
        wrong = Reply(401, {"WWW-Authenticate": "Basic realm=x"})
        return reply if request.authorization == "Basic cm9ib3Q6c2VjcmV0" else wrong  # type: ignore[return-value]

    registry.replies["/v2/team/plain/manifests/1"] = guarded
    assert "localhost: credentials are required" in trusting(tmp_path, name).stderr
    auths = {"auths": {name.partition("/")[0]: {"auth": "cm9ib3Q6c2VjcmV0"}}}
    write_folder({"docker/config.json": json.dumps(auths).encode()}, tmp_path)
    assert 0 == trusting(tmp_path, name).exit_code
    (tmp_path / "docker/config.json").rename(tmp_path / "secret")
    assert 0 == trusting(tmp_path, name, "--registry-config", tmp_path / "secret").exit_code


def test_a_mirror_and_a_registry_without_tls_can_be_named(registry: FakeRegistry, tmp_path: Path) -> None:
    """The image keeps its own name."""
    image(registry, "hub/library/app", CUDA_ENV)
    mirror = f"docker.io={local(registry, 'hub')}"
    result = trusting(tmp_path, "app:1", "--mirror", mirror)

    assert "app:1" == result.stdout.splitlines()[1].split()[0]
    with plain_registry() as plain:
        image(plain, "team/app", CUDA_ENV)
        host = f"localhost:{plain.port}"
        assert 0 == run(f"{host}/team/app:1", "--insecure-registry", host).exit_code


def test_files_are_read_without_a_registry(tmp_path: Path) -> None:
    """Recognised by their path, or by a prefix."""
    write_tar(docker_archive(OF, "team/app:1"), tmp_path / "saved.tar")
    write_tar(docker_archive(OF, "team/app:2"), tmp_path / "saved")
    write_folder(
        layout([(TOP, {"io.containerd.image.name": "docker.io/team/app:3"})], [OF]), tmp_path / "oci"
    )
    result = run(tmp_path / "saved.tar", f"archive:{tmp_path}/saved", f"oci:{tmp_path}/oci")

    assert ["team/app:1", "team/app:2", "team/app:3"] == [
        line.split()[0] for line in result.stdout.splitlines()[1:]
    ]
    assert (0, "") == (result.exit_code, result.stderr)


def test_an_archive_without_digest_has_rows_by_its_name(tmp_path: Path) -> None:
    """Without either there is no row. Its one platform need not be the only one of the image."""
    named = write_tar(docker_archive(OF, "team/app:1"), tmp_path / "named.tar")
    unnamed = write_tar(docker_archive(OF), tmp_path / "unnamed.tar")
    rule = yaml.safe_load(run(named, unnamed, "-o", "rule").stdout)

    row = {"image": "docker.io/team/app:1", **FACTS}
    assert {"images": [row]} == yaml.safe_load(rule["data"]["rule.yaml"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no images given (use IMAGE or -f FILE)"),
        (["App:1"], "'App:1': not an image reference, such as nvidia/cuda:12.4.1-base-ubuntu22.04"),
        (
            ["app", "--platform", "amd64"],
            "Invalid value for '--platform': expected OS/ARCH, such as linux/amd64, got 'amd64'",
        ),
        (
            ["app", "--mirror", "docker.io"],
            "Invalid value for '--mirror': expected HOST=MIRROR[/PREFIX], got 'docker.io'",
        ),
        (
            ["app", "--mirror", "a=b"],
            "Invalid value for '--mirror': expected HOST=MIRROR[/PREFIX], got 'a=b'",
        ),
        (
            ["app", "--insecure-registry", "http://x"],
            "Invalid value for '--insecure-registry': expected HOST[:PORT], got 'http://x'",
        ),
        (["./none.tar"], "none.tar: No such file or directory"),
        (["app", "--ca-file", "/dev/null"], "/dev/null: no PEM certificates in this file"),
        (["app", "--ca-file", "/nowhere"], "/nowhere: No such file or directory"),
        (["app", "--registry-config", "/nowhere"], "/nowhere: No such file or directory"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], message: str) -> None:
    """Exit status 2."""
    result = run(*arguments)

    assert (2, f"error: {message}\n") == (result.exit_code, result.stderr)


def test_what_cannot_be_read_in_files_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """Objects that are wrong, references that are not, and files without images."""
    wrong = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": []}
    (tmp_path / "wrong.yaml").write_text(json.dumps(wrong) + "\n---\na: [", "utf-8")
    (tmp_path / "odd.yaml").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"image": "A B"}]}}), "utf-8"
    )
    result = run("-f", tmp_path / "wrong.yaml", "-f", tmp_path / "odd.yaml")

    assert 2 == result.exit_code
    assert f"error: {tmp_path}/wrong.yaml" in result.stderr
    assert "error: A B: not an image reference" in result.stderr
    empty = run("-f", "-", input="{apiVersion: v1, kind: Secret}")
    assert (0, "warning: -: no images in these objects\n") == (empty.exit_code, empty.stderr)


def test_more_than_a_thousand_images_are_too_many(tmp_path: Path) -> None:
    """A mistake, such as a folder of a whole cluster."""
    containers = [{"image": f"app:{number}"} for number in range(1001)]
    (tmp_path / "pod.yaml").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": containers}}), "utf-8"
    )
    result = run("-f", tmp_path / "pod.yaml")

    assert (2, "error: more than 1,000 images; give fewer files\n") == (result.exit_code, result.stderr)


def test_errors_and_headings_are_translated(registry: FakeRegistry, tmp_path: Path) -> None:
    """Reason words of JSON are not."""
    name = local(registry, "team/none:1")
    result = trusting(tmp_path, name, local(registry, "team/plain:1"), "--lang", "zh")

    assert ["镜像", "CUDA", "要求", "平台"] == result.stdout.splitlines()[0].split()
    assert f"错误：{name}: localhost：镜像不存在：HTTP 404\n" == result.stderr


def test_a_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As other clients of registries do."""
    with plain_registry() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("https_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        result = run("registry.example.com/app:1")

    assert 1 == result.exit_code
    assert [("CONNECT", "registry.example.com:443")] == [
        (request.method, request.path) for request in proxy.asked
    ]


def test_many_images_show_progress_on_a_terminal() -> None:
    """And none in a pipe."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        names = [f"127.0.0.1:{held.getsockname()[1]}/app:{number}" for number in range(8)]
        piped = run(*names).stderr
        master, slave = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "webhook", "image", "inspect", *names], stderr=slave
        ) as process:
            os.close(slave)
            shown = b""
            with suppress(OSError):  # on Linux: the other end of the terminal is closed
                while chunk := os.read(master, 65536):
                    shown += chunk
            assert 1 == process.wait()
        os.close(master)

    assert b"[----" in shown
    assert "[----" not in piped


def test_a_registry_that_is_down_is_an_error_of_its_image() -> None:
    """In one line."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        result = run(f"127.0.0.1:{held.getsockname()[1]}/app:1")

    assert 1 == result.exit_code
    assert 1 == len(result.stderr.splitlines())
    assert "127.0.0.1: no connection: Connection refused\n" in result.stderr
