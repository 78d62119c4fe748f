"""gpugate on real nodes as a user installs it: image, chart and kustomization, pods with their probes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree
from threading import Event, Thread
from typing import Any, Final

import pytest
import yaml

from tests.e2e import engine, helm
from tests.e2e.manifests import MANIFESTS, ROOT, Object, of_kind, render
from tests.e2e.node.images import write_image
from tests.e2e.node.real_cluster import RealCluster
from tests.e2e.serve_process import eventually
from tests.support.chart import CHART

pytestmark = pytest.mark.timeout(600)

_NAME: Final = "localhost/gpugate"
_TAG: Final = "test"
# Not an image of NVIDIA, whose own requirement also admits the older driver.
_CUDA: Final = "pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime"
_VALUES: Final = {
    "image.repository": _NAME,
    "image.tag": _TAG,
    "agent.enabled": True,
    "agent.toolkit": True,
    "imageResolver.enabled": True,
}
_WEBHOOK: Final = ("-l", "app.kubernetes.io/component=webhook")
_FORWARD: Final = """
import asyncio, sys

async def copy(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()

async def serve(reader, writer):
    there = await asyncio.open_connection(sys.argv[1], 8443)
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

async def main():
    async with await asyncio.start_server(serve, "0.0.0.0", 443) as server:
        await server.serve_forever()

asyncio.run(main())
"""
# The agent gets the file that the stand-in for NVML answers from.
_POST_RENDERER: Final = """#!{python}
import sys, yaml
objects = list(yaml.load_all(sys.stdin, yaml.CSafeLoader))
for each in objects:
    if each["kind"] == "DaemonSet":
        spec = each["spec"]["template"]["spec"]
        file = "/run/nvidia/driver/gpus"
        spec["volumes"].append({{"name": "gpus", "hostPath": {{"path": file, "type": "File"}}}})
        spec["containers"][0]["volumeMounts"].append({{"name": "gpus", "mountPath": file, "readOnly": True}})
yaml.dump_all(objects, sys.stdout, yaml.CSafeDumper)
"""


@pytest.fixture(scope="module")
def image(real: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the image, and import it on each node; return its name."""
    if absent := engine.missing():
        pytest.skip(f"no {', '.join(absent)}: docs/contributing.md says what the image takes")
    name, archive = f"{_NAME}:{_TAG}", tmp_path_factory.mktemp("saved") / "gpugate.tar"
    with real.outside(), engine.Engine(tmp_path_factory.mktemp("engine")) as docker:
        docker("build", "--quiet", "--tag", name, str(ROOT))
        docker("save", "--output", str(archive), name)
    real.import_image(archive)
    real.import_image(write_image(archive.with_name("cuda.tar"), f"docker.io/{_CUDA}"))
    for node in real.nodes:
        real.kubectl("label", "node", node, "gpugate.dev/agent=true", "--overwrite")
    return name


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """Return the release, the chart and the post-renderer as arguments of Helm."""
    renderer = tmp_path_factory.mktemp("helm") / "post-renderer"
    renderer.write_text(_POST_RENDERER.format(python=sys.executable), "utf-8")
    renderer.chmod(0o755)
    return "gpugate", str(CHART), "--post-renderer", str(renderer)


@pytest.fixture(scope="module")
def by_helm(real: RealCluster, image: str, release: Sequence[str]) -> Iterator[RealCluster]:
    """Install the chart while the tests of it run."""
    del image  # it is on the nodes
    _helm(real, "install", *release, "--create-namespace", *helm.options(_VALUES))
    _await_ready(real)
    yield real
    _helm(real, "uninstall", "gpugate", "--wait")


def test_all_its_pods_are_ready_on_both_nodes(by_helm: RealCluster) -> None:
    """With probes, security contexts and a read-only root; the webhook's replicas are spread."""
    shown = _items(by_helm, "pods", "-n", "gpugate", *_WEBHOOK)

    assert {shown_pod["spec"]["nodeName"] for shown_pod in shown} == {"gpu-1", "gpu-2"}
    assert [0, 0] == [shown_pod["status"]["containerStatuses"][0]["restartCount"] for shown_pod in shown]


def test_its_agent_labels_the_nodes_from_their_drivers(by_helm: RealCluster) -> None:
    """By NVML in a container of NVIDIA's runtime, without root and without a GPU of its own."""

    def labels() -> dict[str, tuple[str, ...]]:
        names = "gpugate.dev/gpu.product", "cuda-major-version", "cuda-minor-version"
        return {
            item["metadata"]["name"]: tuple(item["metadata"]["labels"].get(name, "") for name in names)
            for item in _items(by_helm, "nodes")
        }

    expected = {"gpu-1": ("NVIDIA-A100-SXM4-40GB", "12", "8"), "gpu-2": ("Tesla-T4", "12", "2")}
    eventually(lambda: labels() == expected)


def test_its_webhook_denies_and_places_pods(by_helm: RealCluster) -> None:
    """The API server calls the pods behind the Service, over TLS with their own certificates."""
    eventually(lambda: "needs compute capability 8.0" in _refusal(by_helm, _bfloat16()))
    by_helm.kubectl("create", "-f", "-", input=yaml.safe_dump(_pod("placed", image=_CUDA)))
    try:
        path = "jsonpath={.status.phase} {.spec.nodeName}"
        eventually(lambda: by_helm.kubectl("get", "pod", "placed", "-o", path).stdout == "Running gpu-1")
    finally:
        by_helm.kubectl("delete", "pod", "placed", "--now")


def test_helm_test_reaches_its_service(
    by_helm: RealCluster, image: str, release: Sequence[str], tmp_path: Path
) -> None:
    """With the certificate of gpugate, and metrics of its rules; its hosts have the name, without DNS."""
    name, chart, *options = release
    copy = copytree(chart, tmp_path / "chart")
    template = copy / "templates/tests/answers.yaml"
    replica = _items(by_helm, "pods", "-n", "gpugate", *_WEBHOOK)[0]["status"]["podIP"]
    with _proxy(by_helm, image, replica) as address:
        hosts = f"spec:\n  hostAliases: [{{ip: {address}, hostnames: [gpugate.gpugate.svc]}}]\n"
        template.write_text(template.read_text("utf-8").replace("spec:\n", hosts, 1), "utf-8")
        _helm(by_helm, "upgrade", name, str(copy), *options, "--reuse-values")
        tested = _helm(by_helm, "test", name)

    assert "Phase:          Succeeded" in tested


def test_the_kubelet_may_evict_one_replica_and_not_both(by_helm: RealCluster) -> None:
    """By the PodDisruptionBudget, as a drain of both nodes asks for."""
    pods = _items(by_helm, "pods", "-n", "gpugate", *_WEBHOOK)
    done = [_evict(by_helm, pod["metadata"]["name"]) for pod in pods]

    assert done[0] == ""
    assert "would violate the pod's disruption budget" in done[1]
    _await_ready(by_helm)


def test_an_upgrade_replaces_its_pods_and_answers_every_review(
    by_helm: RealCluster, release: Sequence[str]
) -> None:
    """Pods are created all the time, as a dry run; each is denied by gpugate and by nothing else."""
    eventually(lambda: "denied by gpugate" in _refusal(by_helm, _bfloat16()))
    before = _webhook_pods(by_helm)
    over, answers = Event(), list[str]()

    def ask() -> None:
        while not over.is_set():
            answers.append(_refusal(by_helm, _bfloat16()))

    asking = Thread(target=ask)
    asking.start()
    try:
        _helm(by_helm, "upgrade", *release, "--reuse-values", '--set-json=options=["--lang=en"]')
        _await_ready(by_helm)
        eventually(lambda: not before & _webhook_pods(by_helm))
    finally:
        over.set()
        asking.join()

    assert answers
    assert [] == [answer for answer in answers if "denied by gpugate" not in answer]


def test_a_kustomization_installs_the_same_and_can_be_deleted(
    real: RealCluster, image: str, tmp_path: Path
) -> None:
    """Webhook, agent and image resolver; afterwards the API server calls nothing."""
    manifests = os.path.relpath(MANIFESTS, tmp_path.resolve())
    overlay = {
        "resources": [f"{manifests}/base", f"{manifests}/agent"],
        "components": [f"{manifests}/components/image-resolver"],
        "images": [{"name": "gpugate", "newName": _NAME, "newTag": _TAG}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay), "utf-8")
    objects = render(tmp_path)
    assert {image} == {
        container["image"]
        for document in of_kind(objects, "Deployment", "DaemonSet")
        for container in document["spec"]["template"]["spec"]["containers"]
    }
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")  # Helm leaves the namespaces
    for part in (of_kind(objects, "Namespace"), objects):
        real.kubectl(*apply, input=yaml.safe_dump_all(part))
    try:
        _await_ready(real)
        eventually(lambda: "denied by gpugate" in _refusal(real, _bfloat16()))
        assert {"webhook", "agent", "images"} == {
            item["metadata"]["labels"]["app.kubernetes.io/component"]
            for item in _items(real, "pods", "-A", "-l", "app.kubernetes.io/component")
        }
    finally:
        webhooks = of_kind(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        for part in (webhooks, objects):  # the webhooks first: docs/emergency.md
            real.kubectl(
                "delete", "--ignore-not-found", "--wait=false", "-f", "-", input=yaml.safe_dump_all(part)
            )
    assert _refusal(real, _bfloat16()) == ""


def _helm(real: RealCluster, *arguments: str) -> str:
    done = helm.run(*arguments, "--namespace", helm.NAMESPACE, kubeconfig=real.control.kubeconfig)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


def _await_ready(real: RealCluster) -> None:
    """Wait until each Deployment and DaemonSet of gpugate has all its pods, of the current version."""
    for namespace in ("gpugate", "gpugate-agent"):
        for item in _items(real, "deployments,daemonsets", "-n", namespace):
            kind, name = item["kind"].lower(), item["metadata"]["name"]
            real.kubectl("rollout", "status", "-n", namespace, f"{kind}/{name}", "--timeout=55s")


def _webhook_pods(real: RealCluster) -> set[str]:
    """Return the UIDs of the pods of the webhook, those that are ending, too."""
    return {item["metadata"]["uid"] for item in _items(real, "pods", "-n", "gpugate", *_WEBHOOK)}


def _items(real: RealCluster, *what: str) -> list[Object]:
    items: list[Object] = json.loads(real.kubectl("get", *what, "-o", "json").stdout)["items"]
    return items


def _pod(name: str, **container: Any) -> Object:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    spec = {
        "containers": [{"name": "main", "resources": limits, "imagePullPolicy": "IfNotPresent", **container}]
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _bfloat16() -> Object:
    """Return a pod that needs compute capability 8.0, on the node that has 7.5."""
    pod = _pod("bfloat16", image="vllm/vllm-openai:v0.8.5", args=["--model=x/y", "--dtype=bfloat16"])
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "gpu-2"}
    return pod


def _refusal(real: RealCluster, pod: Object) -> str:
    """Return the error for a pod that is created in a dry run."""
    created = ("create", "--dry-run=server", "-f", "-")
    return real.kubectl(*created, input=yaml.safe_dump(pod), check=False).stderr


def _evict(real: RealCluster, name: str) -> str:
    """Evict a pod; return the error."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "gpugate"},
    }
    path = f"/api/v1/namespaces/gpugate/pods/{name}/eviction"
    return real.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction), check=False).stderr


@contextmanager
def _proxy(real: RealCluster, image: str, replica: str) -> Iterator[str]:
    """Run a pod in place of kube-proxy: its port 443 is that of a replica; yield its address."""
    pod = _pod("proxy", image=image, command=["python", "-c", _FORWARD, replica])
    pod["spec"]["containers"][0] |= {"resources": {}, "securityContext": {"runAsUser": 0}}
    real.kubectl("create", "-f", "-", input=yaml.safe_dump(pod))
    try:
        real.kubectl("wait", "pod/proxy", "--for=condition=Ready", "--timeout=55s")
        yield real.kubectl("get", "pod", "proxy", "-o", "jsonpath={.status.podIP}").stdout
    finally:
        real.kubectl("delete", "pod", "proxy", "--now")
