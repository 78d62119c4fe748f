"""A real API server asks the gate, over TLS with its CA in the caBundle; what preview shows happens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.authority import make_authority, make_leaf
from tests.e2e.cluster import ControlPlane
from tests.e2e.test_control_plane import node, pod

ROOT = Path(__file__).parents[2]
VCUDA_CORE = "tencent.com/vcuda-core"
VCUDA_MEMORY = "tencent.com/vcuda-memory"


@pytest.fixture(scope="module")
def gate(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run `gpugate serve` and have the API server call it, by URL, for the length of this module."""
    folder = tmp_path_factory.mktemp("gate")
    now = datetime.now(UTC)
    authority = make_authority("gpugate e2e", now)
    leaf = make_leaf(authority, ["127.0.0.1"], now)
    (folder / "tls.crt").write_bytes(leaf.certificate_pem)
    (folder / "tls.key").write_bytes(leaf.key_pem)
    options = ["--host", "127.0.0.1", "--port", "0", "--drain-seconds", "0"]
    files = ["--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")]
    command = [sys.executable, "-m", "webhook", "serve", *options, *files]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr
        port = next(
            found[1] for line in process.stderr if (found := re.search(r"https://127\.0\.0\.1:(\d+)", line))
        )
        configurations = list(_by_url(port, authority.certificate_pem))
        control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(configurations))
        control_plane.kubectl("create", "namespace", "ml")
        yield
        control_plane.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(configurations))
        process.terminate()


def _by_url(port: str, authority_pem: bytes) -> Iterator[dict[str, Any]]:
    """Yield the shipped configurations, calling a port of this machine: there is no pod network here."""
    text = (ROOT / "manifests/base/webhooks.yaml").read_text("utf-8")
    for configuration in yaml.safe_load_all(text):
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            bundle = b64encode(authority_pem).decode()
            webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
        yield configuration


def _refusal(control_plane: ControlPlane, document: str) -> str:
    done = control_plane.kubectl("create", "-n", "ml", "-f", "-", input=document, check=False)
    assert 0 != done.returncode
    return done.stderr


@pytest.mark.usefixtures("gate")
def test_a_server_side_dry_run_shows_the_patch_and_leaves_nothing_behind(control_plane: ControlPlane) -> None:
    """The default stands in limits, and the API server copied it into requests."""
    document = pod("dry", {VCUDA_MEMORY: "8"})
    shown = control_plane.kubectl(
        "create", "-n", "ml", "-f", "-", "--dry-run=server", "-o", "json", input=document
    )
    resources = json.loads(shown.stdout)["spec"]["containers"][0]["resources"]

    assert {VCUDA_MEMORY: "8", VCUDA_CORE: "20"} == resources["limits"] == resources["requests"]
    assert "" == control_plane.kubectl("get", "pods", "-n", "ml", "-o", "name", "dry", check=False).stdout


@pytest.mark.usefixtures("gate")
def test_the_created_pod_has_what_preview_printed(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Each field that preview shows stands in the object that was stored."""
    path = tmp_path / "pod.json"
    path.write_text(
        pod("paddle", {VCUDA_MEMORY: "8"}).replace("example.com/train:1", "paddlepaddle/paddle:2.6.1")
    )
    command = [sys.executable, "-m", "webhook", "preview", "-f", str(path), "-n", "ml", "-o", "yaml"]
    previewed = yaml.safe_load(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    created = control_plane.kubectl("create", "-n", "ml", "-f", str(path), "-o", "json")
    stored = json.loads(created.stdout)

    assert [] == list(_missing(previewed, stored))
    assert {"gpugate.dev/injected": "paddle-allocator-strategy"} == stored["metadata"]["annotations"]


def _missing(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Yield the places at which something wanted is not found; more may be there."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from _missing(value, found.get(key), f"{path}/{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, value in enumerate(wanted):
            yield from _missing(value, found[index], f"{path}/{index}")
    elif wanted not in ({}, found):
        yield f"{path}: {wanted!r} != {found!r}"


@pytest.mark.usefixtures("gate")
def test_a_pod_that_breaks_a_rule_is_refused_with_place_and_remedy(control_plane: ControlPlane) -> None:
    """kubectl prints the whole message."""
    message = _refusal(control_plane, pod("bad", {VCUDA_CORE: "150"}))

    assert 'admission webhook "mutate.gpugate.dev" denied the request: gpugate refuses this Pod' in message
    assert f"spec.containers[0].resources.limits[{VCUDA_CORE}]: found 150, wanted 1 to 100" in message


@pytest.mark.usefixtures("gate")
def test_a_deployment_whose_pods_would_be_refused_is_refused_at_once(control_plane: ControlPlane) -> None:
    """With the path into its template."""
    labels = {"app": "bad"}
    template = {"metadata": {"labels": labels}, "spec": json.loads(pod("bad", {VCUDA_CORE: "150"}))["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "bad"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    message = _refusal(control_plane, json.dumps(deployment))

    assert f"spec.template.spec.containers[0].resources.limits[{VCUDA_CORE}]: found 150" in message


@pytest.mark.usefixtures("gate")
def test_a_native_sidecar_gets_its_mps_variables(control_plane: ControlPlane) -> None:
    """An init container with restartPolicy Always is a container like the others."""
    document = json.loads(pod("sidecar", {"cpu": "1"}))
    document["spec"]["initContainers"] = [
        {
            "name": "server",
            "image": "nvcr.io/nvidia/tritonserver:23.04-py3",
            "restartPolicy": "Always",
            "resources": {"limits": {"nvidia.com/mps-core": "30", "nvidia.com/mps-memory": "4"}},
        }
    ]
    created = control_plane.kubectl("create", "-n", "ml", "-f", "-", "-o", "json", input=json.dumps(document))
    (sidecar,) = json.loads(created.stdout)["spec"]["initContainers"]

    assert [
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "30"},
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=4G"},
    ] == sidecar["env"]


@pytest.mark.usefixtures("gate")
def test_a_debugging_container_gets_the_variables_of_its_target(control_plane: ControlPlane) -> None:
    """As `kubectl debug --target` starts it."""
    document = pod("debugged", {"nvidia.com/mps-core": "30"})
    control_plane.kubectl("create", "-n", "ml", "-f", "-", input=document)
    control_plane.kubectl(
        "debug", "-n", "ml", "debugged", "--image=busybox", "--target=main", "--container=debug"
    )
    stored = json.loads(control_plane.kubectl("get", "pod", "-n", "ml", "debugged", "-o", "json").stdout)
    (debug,) = stored["spec"]["ephemeralContainers"]

    assert [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "30"}] == debug["env"]


def test_preview_takes_the_rules_of_a_cluster(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Those that are applied there, and no others."""
    control_plane.kubectl("apply", "-k", str(ROOT / "rules/catalog/gpu-manager"))
    path = tmp_path / "pod.json"
    path.write_text(
        pod("paddle", {VCUDA_MEMORY: "8"}).replace("example.com/train:1", "paddlepaddle/paddle:2.6.1")
    )
    cluster = ["--kubeconfig", str(control_plane.kubeconfig)]
    command = [sys.executable, "-m", "webhook", "preview", "-f", str(path), "-o", "patch", *cluster]
    patch = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout)
    command = [sys.executable, "-m", "webhook", "rules", *cluster]
    listed = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True).stdout

    assert ["/spec/containers/0/resources/limits/tencent.com~1vcuda-core"] == [edit["path"] for edit in patch]
    assert {
        "cf-crl-gpu-manager-vcuda-core",
        "cf-crl-gpu-manager-vcuda-memory",
        "compatibility-gpu-manager-cards",
        "compatibility-gpu-manager-shares",
    } == {line.split()[0] for line in listed.splitlines()[1:]}


def test_a_cuda_pod_is_steered_to_nodes_that_fit_and_the_scheduler_binds_it_there(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The affinity that preview prints for a cluster's nodes, taken by the real scheduler."""
    if not control_plane.schedules:
        pytest.skip("no kube-scheduler among the binaries")
    for name, cuda in (("old", "11.4"), ("new", "12.2")):
        major, minor = cuda.split(".")
        labels = {"cuda-major-version": major, "cuda-minor-version": minor}
        control_plane.kubectl(
            "create", "-f", "-", input=node(name, labels, {"nvidia.com/gpu": "8", "pods": "110"})
        )
    path = tmp_path / "pod.json"
    image = "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime"
    path.write_text(pod("train", {"nvidia.com/gpu": "1"}).replace("example.com/train:1", image))
    cluster = ["--kubeconfig", str(control_plane.kubeconfig), "--rules", str(ROOT / "rules/catalog/pgpu")]
    command = [sys.executable, "-m", "webhook", "preview", "-f", str(path), "-o", "yaml", *cluster]
    steered = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True).stdout
    control_plane.kubectl("create", "-f", "-", input=steered)
    control_plane.kubectl("wait", "pod/train", "--for=condition=PodScheduled", "--timeout=60s")
    bound = control_plane.kubectl("get", "pod", "train", "-o", "jsonpath={.spec.nodeName}").stdout
    control_plane.kubectl("delete", "nodes", "old", "new")

    assert "new" == bound
