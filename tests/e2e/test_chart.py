"""gpugate installed by Helm on a real API server: installed, upgraded, uninstalled."""

from __future__ import annotations

import base64
import gzip
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.e2e import helm
from tests.e2e.cluster import ControlPlane
from tests.e2e.daemon import HOST, reserve_port
from tests.e2e.installed import (
    CUDA,
    GPU,
    OFFERED,
    TEAM,
    VCUDA_CORE,
    VCUDA_MEMORY,
    Installation,
    Installed,
    running,
)
from tests.e2e.manifests import MANIFESTS, Object, commands, of_kind, render, run
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node, pod
from tests.e2e.test_manifests import TAKER
from tests.support.chart import CHART
from webhook.cluster.match_conditions import CONDITION

# Of a Secret or ConfigMap, so of a release: https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size
_LIMIT_BYTES: Final = 1 << 20
# There is no pod network: the API server calls gpugate by its URL, as in the overlay dev.
_POST_RENDERER: Final = """#!{python}
import sys, yaml
objects = list(yaml.load_all(sys.stdin, yaml.CSafeLoader))
for each in objects:
    for webhook in each.get("webhooks", ()):
        service = webhook["clientConfig"].pop("service")
        webhook["clientConfig"]["url"] = "https://{host}:{port}" + service["path"]
yaml.dump_all(objects, sys.stdout, yaml.CSafeDumper)
"""
_PATCHED: Final = {VCUDA_MEMORY: "8", VCUDA_CORE: "20"}


class Release:
    """The release of the chart in a cluster. port: at which the API server calls gpugate."""

    def __init__(self, cluster: ControlPlane, port: int, folder: Path) -> None:
        self.cluster, self._renderer = cluster, folder / "post-renderer"
        self._renderer.write_text(_POST_RENDERER.format(python=sys.executable, host=HOST, port=port))
        self._renderer.chmod(0o755)

    def change(self, verb: str, *options: str) -> None:
        """Install or upgrade it."""
        self.run(verb, "gpugate", str(CHART), f"--post-renderer={self._renderer}", *options)

    def command(self, line: str) -> None:
        """Run a command line of a page that upgrades it."""
        _, *options = shlex.split(line.replace("manifests/chart", str(CHART)))
        done = helm.run(*options, f"--post-renderer={self._renderer}", kubeconfig=self.cluster.kubeconfig)
        assert not done.returncode, done.stderr

    def run(self, verb: str, *options: str) -> str:
        """Run `helm` in the namespace of the release."""
        done = helm.run(verb, "--namespace=gpugate", *options, kubeconfig=self.cluster.kubeconfig)
        assert not done.returncode, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Yield the port of gpugate."""
    with reserve_port() as held:
        free: int = held.getsockname()[1]
        yield free


@pytest.fixture(scope="module")
def release(
    empty_control_plane: ControlPlane, port: int, tmp_path_factory: pytest.TempPathFactory
) -> Release:
    """Return the chart, installed with its defaults."""
    installed = Release(empty_control_plane, port, tmp_path_factory.mktemp("release"))
    installed.change("install", "--create-namespace")
    return installed


@pytest.fixture(scope="module")
def installed(release: Release, port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield the installation with a running server, which has the rights of the chart's service account."""
    cluster = release.cluster
    cluster.kubectl("create", "namespace", TEAM)
    cluster.kubectl("create", "-f", "-", input=node("fits", CUDA, OFFERED))
    _, command = commands("install.md", "On a developer's machine")
    kubeconfig = cluster.service_account("gpugate", "gpugate")
    _, _, *options = shlex.split(command.replace("$KUBECONFIG", str(kubeconfig)))
    installation = Installation(cluster, port, [], options)
    with running(installation, tmp_path_factory.mktemp("serve") / "serve.log") as server:
        yield server


def _get(cluster: ControlPlane, *named: str) -> Any:
    return json.loads(cluster.kubectl("get", "-n", "gpugate", "-o", "json", *named).stdout)


@contextmanager
def _away(installed: Installed) -> Iterator[None]:
    """Kill the server while the block runs."""
    installed.server.kill()
    try:
        yield
    finally:
        installed.server.start()
        eventually(installed.in_force)


def test_a_pod_is_patched_and_another_denied(installed: Installed) -> None:
    """By the rules of the chart."""
    denied = installed.refusal(pod("both", {VCUDA_CORE: "20", GPU: "1"}))

    assert _PATCHED == installed.limits()
    assert "gpugate" in denied


def test_the_program_of_helm_test_verifies_the_server(installed: Installed, tmp_path: Path) -> None:
    """It passes with the CA of the Secret, and fails for a server that is not ready or has another CA."""
    (tested,) = [
        document
        for document in helm.rendered({}, "--include-crds")
        if document["metadata"]["name"] == "gpugate-test"
    ]
    (container,) = tested["spec"]["containers"]
    _, flag, program, _server, _ca = container["command"]
    ca = _get(installed.cluster, "secret", "gpugate-certs")["data"]["ca.crt"]
    (tmp_path / "ca.crt").write_bytes(base64.b64decode(ca))
    (tmp_path / "other.crt").write_bytes(installed.cluster.ca_pem)

    def run(authority: str) -> subprocess.CompletedProcess[str]:
        server = f"https://{HOST}:{installed.port}"
        command = [sys.executable, flag, program, server, str(tmp_path / authority)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (0, "/readyz: 200\n/metrics: 200\n") == (run("ca.crt").returncode, run("ca.crt").stdout)
    assert "CERTIFICATE_VERIFY_FAILED" in run("other.crt").stderr
    with _away(installed):
        assert run("ca.crt").returncode


# Every value that adds something, of kinds that Kubernetes has.
_ALL: Final = {
    "agent": {"enabled": True, "access": "host-driver", "mig": True, "mps": True},
    "certificates": "cert-manager",
    "image": {"digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "imageResolver.enabled": True,
    "monitoring.enabled": True,
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "policies.unrequestedGpus": True,
    "spread": "required",
    "tolerations": [{"operator": "Exists"}],
    "webhooks.annotations": {"argocd.argoproj.io/sync-wave": "1"},
    "workloads": {
        "kinds": {"example.com": {"Train": ["spec.pod"]}},
        "resources": [{"apiGroups": ["example.com"], "resources": ["trains"]}],
    },
}
_CUSTOM: Final = ("cert-manager.io/", "monitoring.coreos.com/")


def test_the_api_server_knows_every_field_of_the_chart(installed: Installed) -> None:
    """With all values; the agent is in another namespace, because its own does not exist."""
    objects = [document for document in helm.rendered(_ALL) if not document["apiVersion"].startswith(_CUSTOM)]
    for manifest in objects:
        if manifest["metadata"].get("namespace") == "gpugate-agent":
            manifest["metadata"]["namespace"] = TEAM
        if "webhooks" in manifest:
            manifest["metadata"]["name"] = "checked"  # those of the release have URLs
    strict = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f-")
    done = installed.cluster.kubectl(*strict, input=yaml.safe_dump_all(objects), check=False)

    assert 0 == done.returncode, done.stderr
    assert len(objects) == len(done.stdout.splitlines())


@pytest.mark.parametrize("openshift", [False, True])
def test_pods_of_the_release_satisfy_the_restricted_profile(installed: Installed, openshift: bool) -> None:
    """Those of the webhook, of the image resolver and of `helm test`, as manifests/base enforces."""
    values = {"certificates": "cert-manager", "imageResolver.enabled": True, "openshift": openshift}
    documents = of_kind(helm.rendered(values, "--include-crds"), "Deployment", "Pod")
    pods = [document["spec"].get("template", document)["spec"] for document in documents]
    label = "pod-security.kubernetes.io/enforce"
    installed.cluster.kubectl("label", "namespace", "gpugate", f"{label}=restricted")
    refusals = [
        installed.refusal(json.dumps(_pod(spec)), namespace="gpugate")
        for spec in [*pods, {"containers": [{"name": "main", "image": "example.com/train:1"}]}]
    ]
    installed.cluster.kubectl("label", "namespace", "gpugate", f"{label}-")

    assert [""] * 3 == refusals[:-1]
    assert "violates PodSecurity" in refusals[-1]


def _pod(spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "checked"}, "spec": spec}


def test_rbac_refuses_gpugate_nothing(installed: Installed) -> None:
    """By the audit log: the server had to create the Secret, and it may."""
    lines = [json.loads(line) for line in installed.cluster.audit.read_text("utf-8").splitlines()]
    own = [line for line in lines if line["user"]["username"] == "system:serviceaccount:gpugate:gpugate"]

    assert [] == [event for event in own if event["annotations"]["authorization.k8s.io/decision"] != "allow"]
    objects = [(event["verb"], event["objectRef"]["resource"]) for event in own if "objectRef" in event]
    assert ("create", "secrets") in objects


def test_an_upgrade_changes_replicas_and_nothing_that_gpugate_sets(
    installed: Installed, release: Release
) -> None:
    """Certificates, caBundle and match condition: the API server always trusts gpugate, and asks it."""
    cluster = installed.cluster
    before = _get(cluster, "secret", "gpugate-certs"), installed.webhooks()
    release.change("upgrade", "--set=replicas=3")
    limits = installed.limits()

    assert _PATCHED == limits
    assert before == (_get(cluster, "secret", "gpugate-certs"), installed.webhooks())
    assert installed.trusted()
    assert [True, False, True, False] == [f'"{CONDITION}"' in json.dumps(webhook) for webhook in before[1]]
    assert 3 == _get(cluster, "deployment", "gpugate")["spec"]["replicas"]


def test_an_upgrade_makes_gpugate_optional(installed: Installed, release: Release) -> None:
    """While it does not answer, pods are denied before, admitted after, and denied again after a rollback."""
    asking = pod("asks", {VCUDA_MEMORY: "8"})
    with _away(installed):
        before = installed.refusal(asking)
        release.change("upgrade", "--set=webhooks.failurePolicy=Ignore")
        eventually(lambda: installed.limits() == {VCUDA_MEMORY: "8"})
        release.run("rollback", "gpugate")
        eventually(lambda: bool(installed.refusal(asking)))

    assert 'failed calling webhook "mutate.gpugate.dev"' in before


def test_the_emergency_page_switches_a_release_off_and_brings_it_back(
    installed: Installed, release: Release
) -> None:
    """With its policies, and although no server answers; a webhook that was made optional is not any more."""
    release.change("upgrade", "--set=policies.unrequestedGpus=true")
    asking, taking = pod("asks", {VCUDA_MEMORY: "8"}), TAKER
    eventually(lambda: "denied request" in installed.refusal(taking))
    with _away(installed):
        for line in commands("emergency.md", "Make gpugate optional"):
            run(installed.cluster, line)
        for line in commands("emergency.md", "Switch it off"):
            run(installed.cluster, line)
        eventually(lambda: [installed.refusal(asking), installed.refusal(taking)] == ["", ""])
        _, line = commands("emergency.md", "Bring it back")
        release.command(line)
        eventually(lambda: "" not in [installed.refusal(asking), installed.refusal(taking)])
    policies = [webhook["failurePolicy"] for webhook in installed.webhooks()]
    release.change("upgrade")

    assert ["Fail", "Ignore", "Fail", "Ignore"] == policies


def test_a_release_takes_less_than_a_fifth_of_its_limit(installed: Installed) -> None:
    """Helm stores chart and objects of each release in a Secret of at most 1 MiB."""
    items = _get(installed.cluster, "secrets", "-l", "owner=helm,name=gpugate")["items"]
    stored = [base64.b64decode(item["data"]["release"]) for item in items]
    contents = [json.loads(gzip.decompress(base64.b64decode(compressed))) for compressed in stored]

    assert "gpugate" == contents[0]["name"]
    assert max(map(len, stored)) < _LIMIT_BYTES / 5


def test_uninstall_leaves_nothing_that_blocks(installed: Installed, release: Release) -> None:
    """Only the namespace, which Helm does not own, and the Secret of gpugate, which a new release uses again.

    Pods are admitted although no server answers; after an installation the server works with the same CA.
    """
    cluster = installed.cluster
    before = _get(cluster, "secret", "gpugate-certs")["data"]["ca.crt"]
    installed.server.kill()
    release.run("uninstall", "gpugate")
    admitted = installed.limits()
    left = _names(cluster)
    release.change("install")
    _start(installed)

    assert {VCUDA_MEMORY: "8"} == admitted
    assert [("Namespace", "gpugate"), ("Secret", "gpugate-certs")] == left
    assert before == _get(cluster, "secret", "gpugate-certs")["data"]["ca.crt"]


def _start(installed: Installed) -> None:
    """Start the server with a token of the new service account."""
    installed.cluster.service_account("gpugate", "gpugate")
    installed.server.start()
    eventually(installed.in_force)


def test_helm_takes_over_what_kustomize_installed(installed: Installed, release: Release) -> None:
    """With a flag, without which it refuses objects that are not its own."""
    cluster = installed.cluster
    installed.server.kill()
    release.run("uninstall", "gpugate")
    text = yaml.safe_dump_all(render(MANIFESTS / "overlays/dev"))
    cluster.kubectl("apply", "-f", "-", input=text.replace(":8443/", f":{installed.port}/"))
    with pytest.raises(AssertionError, match="invalid ownership metadata"):
        release.change("install")
    release.change("install", "--take-ownership")
    _start(installed)


def _names(cluster: ControlPlane) -> list[tuple[str, str]]:
    """Return what has the name or a label of gpugate, of all kinds, except events, in all namespaces."""
    shown = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    kinds = [kind for kind in shown if not kind.startswith(("events", "componentstatuses"))]
    items: list[Object] = _get(cluster, ",".join(kinds), "-A")["items"]
    return sorted(
        {
            (item["kind"], item["metadata"]["name"])
            for item in items
            if item["metadata"]["name"].startswith("gpugate")
            or (item["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == "gpugate"
        }
    )
