"""The image resolver on a real API server and a real registry: what it writes, and what the gate then says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from tests.e2e import registry as registries
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import GPU, TEAM, Installed, install, running
from tests.e2e.manifests import ROOT
from tests.e2e.registry import Registry
from tests.e2e.serve_process import eventually
from tests.support.fake_registry import FakeRegistry, Reply, fake_registry
from tests.support.image_builders import CUDA_ENV, config, index, manifest

if TYPE_CHECKING:
    from tests.e2e.cluster import ControlPlane

RULES = "kube-public"
# The only node has CUDA 12.2.
TOO_NEW = CUDA_ENV | {"CUDA_VERSION": "13.0.0", "NVIDIA_REQUIRE_CUDA": "cuda>=13.0"}
FITS = CUDA_ENV | {"CUDA_VERSION": "12.1.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.1"}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Yield a registry with a password."""
    if registries.missing():
        pytest.skip("no docker-registry")
    with Registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


def pod(image: str, kind: str = "Pod") -> str:
    """Return a pod with a GPU, or a Deployment of it."""
    name = re.sub(r"[^a-z0-9]+", "-", image.rpartition("/")[2].lower())[:50].strip("-")
    limits = {"limits": {GPU: "1"}}
    spec = {"containers": [{"name": "main", "image": image, "resources": limits}]}
    if kind == "Pod":
        return yaml.safe_dump(
            {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        )
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        }
    )


@dataclass
class Resolver:
    """A running resolver."""

    port: int
    log: Path

    def page(self, path: str) -> str:
        """Return a page; empty if there is no answer, or an error."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
                return str(answer.read().decode())
        except (URLError, OSError):
            return ""

    def sample(self, name: str) -> float:
        """Return a metric's value, by its name with labels; 0 if there is none yet."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.page("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def said(self, words: str) -> bool:
        """Return whether the log has these words."""
        return words in self.log.read_text("utf-8")


@contextmanager
def resolver(cluster: ControlPlane, log: Path, *options: str, user: str = "") -> Iterator[Resolver]:
    """Run a resolver while the block runs."""
    kubeconfig = user or str(cluster.kubeconfig)
    with reserve_port() as held:
        port = held.getsockname()[1]
        argv = [sys.executable, "-P", "-m", "webhook", "images", "--kubeconfig", kubeconfig, f"--port={port}"]
        with log.open("ab") as output, subprocess.Popen([*argv, *options], cwd=ROOT, stderr=output) as process:
            try:
                found = Resolver(port, log)
                eventually(lambda: found.page("/readyz") == "ok\n")
                yield found
            finally:
                process.terminate()
    assert 0 == process.returncode


def rows(cluster: ControlPlane) -> dict[str, Any]:
    """Return the rows that were written, by the image."""
    listed = cluster.kubectl("get", "configmaps", "-n", RULES, "-l", "gpugate.dev/managed-by", "-o", "json")
    catalogs = [yaml.safe_load(each["data"]["rule.yaml"]) for each in json.loads(listed.stdout)["items"]]
    return {row.get("image", row["digest"]): row for catalog in catalogs for row in catalog["images"]}


def test_a_deployment_makes_its_image_known_and_the_pod_that_follows_is_judged_by_it(
    installed: Installed, registry: Registry, tmp_path: Path
) -> None:
    """Within seconds; facts of several platforms are one row for each."""
    of, arm = config(TOO_NEW), config(FITS, "arm64")
    top = index({"linux/amd64": manifest(of), "linux/arm64": manifest(arm)})
    new = registry.push("team/new:1", top, of, arm, manifest(of), manifest(arm))
    old = registry.push("team/old:1", manifest(config(FITS)), config(FITS))
    before = [installed.refusal(pod(each)) for each in (new, old)]
    options = [f"--private-registry={registry.host}", f"--ca-file={registry.ca_file}"]
    with resolver(
        installed.cluster, tmp_path / "log", *options, f"--registry-config={registry.config_file}"
    ) as running_resolver:
        for image in (new, old):
            installed.create(pod(image, "Deployment"))
        eventually(lambda: {new, old} <= rows(installed.cluster).keys(), within_s=20)
        eventually(lambda: installed.refusal(pod(new)) != "", within_s=5)
        written = rows(installed.cluster)
        metrics = [
            running_resolver.sample(f'gpugate_images{{state="{state}"}}') for state in ("read", "failed")
        ]

    assert ["", ""] == before
    assert "cuda>=12.1" == written[old]["require"]["NVIDIA_REQUIRE_CUDA"]
    assert "cuda>=13.0" in installed.refusal(pod(new))
    assert "" == installed.refusal(pod(old))
    assert [2, 0] == metrics
    assert registries.PASSWORD not in (tmp_path / "log").read_text("utf-8")
