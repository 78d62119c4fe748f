"""gpugate and a cluster in which nothing of it is installed: what it finds there, and what it says."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import trustme
import yaml

from tests.e2e.cluster import ControlPlane, assets
from tests.support.builders import resource_rule
from tests.support.paths import ROOT

GPUGATE: Final = (sys.executable, "-m", "webhook")
BAD_POD: Final = ROOT / "docs/examples/denied.yaml"
FINDING: Final = "cf-crl-gpu-manager-vcuda-core"
NO_RULES: Final = "the cluster has no rules in namespace 'kube-public'"
BUILT_IN: Final = "; evaluated with the built-in rules"


@pytest.fixture(scope="module")
def bare(empty_control_plane: ControlPlane) -> ControlPlane:
    """Return a cluster with a pod that gpugate would deny, in the namespace that its manifest names."""
    empty_control_plane.kubectl("create", "namespace", "ml")
    empty_control_plane.kubectl("create", "-f", str(BAD_POD))
    return empty_control_plane


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put kubectl-gpugate on the path, as `pip install` does."""
    script = tmp_path / "bin/kubectl-gpugate"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom webhook.cli import main\nmain()\n", "utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def gpugate(kubeconfig: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run gpugate with this kubeconfig as the default one."""
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)}
    environment.pop("KUBERNETES_SERVICE_HOST", None)
    return subprocess.run(
        [*GPUGATE, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_workloads_without_pods_are_found(bare: ControlPlane) -> None:
    """A Deployment at zero, and a CronJob that has not run; no controller runs here that would start them."""
    spec = yaml.safe_load(BAD_POD.read_text("utf-8"))["spec"]
    template = {"metadata": {"labels": {"app": "zero"}}, "spec": spec}
    job = {"template": {"spec": spec | {"restartPolicy": "Never"}}}
    zero = {"replicas": 0, "selector": {"matchLabels": {"app": "zero"}}, "template": template}
    objects = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "zero"}, "spec": zero},
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "nightly"},
            "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job}},
        },
    ]
    bare.kubectl("create", "namespace", "idle")
    bare.kubectl("create", "-n", "idle", "-f", "-", input="\n".join(map(json.dumps, objects)))
    done = gpugate(bare.kubeconfig, "audit", "-n", "idle", "-o", "json")
    workloads = json.loads(done.stdout)["workloads"]
    one = gpugate(bare.kubeconfig, "audit", "-n", "idle", "cronjob/nightly")
    bare.kubectl("delete", "namespace", "idle", "--wait=false")
    bare.kubectl("delete", "-n", "idle", "deployment/zero", "cronjob/nightly")

    assert {("Deployment", "zero", False, 0), ("CronJob", "nightly", False, 0)} == {
        (workload["kind"], workload["name"], workload["allowed"], len(workload["pods"]))
        for workload in workloads
    }
    assert (1, True) == (one.returncode, "spec.jobTemplate.spec.template" in one.stdout), one.stderr


def test_a_model_server_that_asks_for_no_gpu_is_named(bare: ControlPlane) -> None:
    """The API server admits it; a webhook would not see it."""
    server = {"name": "main", "image": "vllm/vllm-openai:v0.20.0", "args": ["--model=Qwen/Qwen3-8B"]}
    template = {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [server]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "llm"}}, "template": template}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "llm"}, "spec": spec}
    bare.kubectl("create", "namespace", "serving")
    bare.kubectl("create", "-n", "serving", "-f", "-", input=json.dumps(deployment))
    done = gpugate(bare.kubeconfig, "audit", "-n", "serving")
    bare.kubectl("delete", "-n", "serving", "deployment/llm")
    bare.kubectl("delete", "namespace", "serving", "--wait=false")

    assert "no container asks for a GPU, which vLLM in container 'main' needs" in done.stdout, done.stderr
    assert 0 == done.returncode


@pytest.mark.parametrize("words", [("audit", "--context", "e2e"), ("audit",)])
def test_bad_pods_are_found_without_rules_in_the_cluster(words: tuple[str, ...], bare: ControlPlane) -> None:
    """By the built-in rules, with one line that says so; the exit status is that of findings."""
    done = gpugate(bare.kubeconfig, *words)

    assert 1 == done.returncode, done.stderr
    assert done.stdout.startswith("1 workload with 1 pod: 1 would be denied now ")
    assert re.search(rf"^deny +1 +1 +{FINDING} +found 150, expected 1 to 100", done.stdout, re.MULTILINE)
    assert f"warning: {NO_RULES}{BUILT_IN}\n" == done.stderr


def test_a_wrong_rules_namespace_is_told_with_the_right_one(bare: ControlPlane) -> None:
    """Where ConfigMaps of all namespaces may be listed."""
    rule = yaml.safe_load(resource_rule("x.com/device"))
    rule["metadata"]["namespace"] = "gpu-rules"
    bare.kubectl("create", "namespace", "gpu-rules")
    bare.kubectl("create", "-f", "-", input=json.dumps(rule))
    wrong = gpugate(bare.kubeconfig, "audit")
    right = gpugate(bare.kubeconfig, "audit", "--rules-namespace", "gpu-rules")
    bare.kubectl("delete", "namespace", "gpu-rules", "--wait=false")
    bare.kubectl("delete", "configmap", "-n", "gpu-rules", "--all")

    elsewhere = " (rule ConfigMaps are in gpu-rules: use --rules-namespace)"
    assert (1, f"warning: {NO_RULES}{elsewhere}{BUILT_IN}\n") == (wrong.returncode, wrong.stderr)
    assert 0 == right.returncode
    assert "no rules" not in right.stderr
    assert "– not checked: no enabled rule for resource tencent.com/vcuda-core" in right.stdout


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("words", ["audit", f"preview {BAD_POD}", f"explain -f {BAD_POD}"])
def test_kubectl_starts_the_plugin_with_its_current_context(words: str, bare: ControlPlane) -> None:
    """Without options."""
    done = bare.kubectl("gpugate", *words.split(), check=False)

    assert 1 == done.returncode, done.stderr
    assert FINDING in done.stdout
    assert f"warning: {NO_RULES}{BUILT_IN}\n" in done.stderr


def _changed(bare: ControlPlane, folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """Return the kubeconfig of the cluster with other values."""
    config = json.loads(bare.kubeconfig.read_text("utf-8"))
    config["clusters"][0]["cluster"] |= cluster
    config["users"][0]["user"] = user or config["users"][0]["user"]
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config), "utf-8")
    return path


OTHER_CA: Final = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"server": "https://127.0.0.1:1"}, {}),
        ({"server": "https://nowhere.invalid:6443"}, {}),
        ({"certificate-authority-data": OTHER_CA}, {}),
        ({}, {"token": "none"}),
    ],
    ids=["refused", "unknown-host", "unknown-authority", "unauthorised"],
)
def test_a_cluster_that_does_not_answer_is_reported_in_the_words_of_kubectl(
    cluster: dict[str, Any], user: dict[str, Any], bare: ControlPlane, tmp_path: Path
) -> None:
    """Compared with those of the real kubectl."""
    kubeconfig = _changed(bare, tmp_path, cluster, user)
    kubectl = [str(assets() / "kubectl"), "--kubeconfig", str(kubeconfig), "get", "pods"]
    environment = os.environ | {"HOME": str(tmp_path)}
    theirs = subprocess.run(
        kubectl, env=environment, capture_output=True, text=True, timeout=60, check=False
    ).stderr.splitlines()[-1]
    ours = gpugate(kubeconfig, "audit")
    said = re.sub(r" on \S+: ", ": ", theirs.removeprefix("error: "))  # the name server that was asked
    said = re.sub(r"(to the server) \(.*\)$", r"\1 (Unauthorized)", said)  # in the words of its version

    assert 2 == ours.returncode
    assert f"error: {said} (or use -f FILE)\n" == ours.stderr


def test_a_context_that_is_missing_is_reported_as_kubectl_does(bare: ControlPlane) -> None:
    """With its name."""
    kubectl = bare.kubectl("--context", "nope", "get", "pods", check=False)
    ours = gpugate(bare.kubeconfig, "audit", "--context", "nope")

    said = "context was not found for specified context: nope"
    assert (2, True, True) == (ours.returncode, said in kubectl.stderr, said in ours.stderr)
