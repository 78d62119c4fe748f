"""`gpugate why` on a real API server and scheduler; without a kubelet, a test writes what one reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.cluster import ControlPlane, assets, kubernetes, missing
from tests.e2e.gangs import GANGS, GangControlPlane, gang
from tests.e2e.installed import TEAM, VCUDA_CORE, VCUDA_MEMORY, Installed
from tests.e2e.serve_process import eventually
from tests.support.paths import ROOT

Object = dict[str, Any]

GPU: Final = "nvidia.com/gpu"


def _pod(name: str, gpus: int, **spec: Any) -> Object:
    container = {"name": "main", "image": "example.com/train:1", "resources": {"limits": {GPU: str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def _add_node(cluster: ControlPlane) -> None:
    """Add a node of four GPUs."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}
    cluster.kubectl("create", "-f", "-", input=json.dumps(node))
    amounts = {GPU: "4", "cpu": "8", "memory": "32Gi", "pods": "20"}
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}}
    cluster.kubectl("patch", "node", "gpu-1", "--subresource=status", "-p", json.dumps(status))
    cluster.kubectl("taint", "node", "gpu-1", "node.kubernetes.io/not-ready-", check=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Yield a cluster with a scheduler and a node of four GPUs; a pod has taken three of them."""
    binaries = assets()
    if missing(binaries) or not (binaries / "kube-scheduler").is_file():
        pytest.skip("no kube-scheduler: run `make e2e-assets`")
    with ControlPlane(binaries, tmp_path_factory.mktemp("why"), scheduler=True) as running:
        running.kubectl("create", "namespace", "ml")
        running.kubectl("create", "serviceaccount", "default", "-n", "ml", check=False)
        _add_node(running)
        running.kubectl("create", "-n", "ml", "-f", "-", input=json.dumps(_pod("first", 3)))
        running.kubectl("wait", "-n", "ml", "pod/first", "--for=condition=PodScheduled", "--timeout=30s")
        yield running


def _why(
    cluster: ControlPlane, *words: str, namespace: str = "ml", kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    config = str(kubeconfig or cluster.kubeconfig)
    environment = os.environ | {"KUBECONFIG": config, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "webhook", "why", "-n", namespace, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "spec", "causes"),
    [
        ("too-many", {}, ["insufficient-resource"]),
        ("elsewhere", {"nodeSelector": {"pool": "none"}}, ["node-affinity"]),
    ],
)
def test_a_pod_that_is_not_scheduled_has_the_cause_that_the_scheduler_names(
    name: str, spec: Object, causes: list[str], cluster: ControlPlane
) -> None:
    """By its condition and its event."""
    cluster.kubectl("create", "-n", "ml", "-f", "-", input=json.dumps(_pod(name, 2, **spec)))
    unscheduled = "jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable"
    cluster.kubectl("wait", "-n", "ml", f"pod/{name}", f"--for={unscheduled}", "--timeout=30s")
    done = _why(cluster, name, "-o", "json")
    document = json.loads(done.stdout)

    assert (1, causes) == (done.returncode, [cause["name"] for cause in document["causes"]]), done.stderr
    assert "condition PodScheduled" == document["causes"][0]["evidence"][0]["place"]


def test_a_pod_with_scheduling_gates_waits_for_who_set_them(cluster: ControlPlane) -> None:
    """The API server writes the condition, and the scheduler no event."""
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/quota"}]
    cluster.kubectl(
        "create", "-n", "ml", "-f", "-", input=json.dumps(_pod("gated", 1, schedulingGates=gates))
    )
    done = _why(cluster, "gated")
    cluster.kubectl("delete", "pod", "gated", "-n", "ml")

    assert 1 == done.returncode, done.stderr
    text = "while spec.schedulingGates contains kueue.x-k8s.io/admission, example.com/quota"
    assert f"certain: the scheduler does not consider the pod {text}" in done.stdout


def test_what_a_kubelet_reports_is_a_cause_and_a_log_that_cannot_be_read_is_said(
    cluster: ControlPlane,
) -> None:
    """No kubelet answers on the node."""
    ended = {"reason": "OOMKilled", "exitCode": 137}
    state = {
        "name": "main",
        "image": "example.com/train:1",
        "imageID": "",
        "ready": False,
        "restartCount": 2,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": ended},
    }
    status = {"status": {"phase": "Running", "containerStatuses": [state]}}
    cluster.kubectl("patch", "pod", "first", "-n", "ml", "--subresource=status", "-p", json.dumps(status))
    done = _why(cluster, "pod/first")

    assert 1 == done.returncode, done.stderr
    assert "certain: the container used more memory (RAM) than its limit" in done.stdout
    assert "– cannot read the log of container 'main': " in done.stdout


def test_a_pod_that_does_not_exist_is_reported_as_kubectl_does(cluster: ControlPlane) -> None:
    """Except for the hint which file could replace the cluster."""
    expected = cluster.kubectl("get", "pod", "-n", "ml", "none", check=False).stderr.strip()
    done = _why(cluster, "none")

    assert (2, True) == (done.returncode, expected in done.stderr)


def _deployment(name: str, limits: dict[str, str], replicas: int = 1) -> str:
    container = {"name": "main", "image": "example.com/train:1", "resources": {"limits": limits}}
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return json.dumps(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    )


def _first_line(installed: Installed, name: str, expected: str, namespace: str, **options: Any) -> str:
    """Return the output of `why` for a Deployment once its first line has a text; its exit status is 1."""
    done: list[subprocess.CompletedProcess[str]] = []

    def says() -> bool:
        done.append(_why(installed.cluster, f"deployment/{name}", namespace=namespace, **options))
        return done[-1].returncode == 1 and expected in done[-1].stdout.partition("\n")[0]

    try:
        eventually(says)
    except AssertionError as error:
        error.add_note(done[-1].stdout + done[-1].stderr)
        raise
    return done[-1].stdout


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("controllers")
def test_the_first_line_says_that_gpugate_does_not_answer_or_denies_the_pods(installed: Installed) -> None:
    """To an administrator, and to a developer who may only view the namespace."""
    cluster, start = installed.cluster, "Deployment ml/llm: certain: its pods are denied: "
    cluster.kubectl("create", "serviceaccount", "developer", "-n", TEAM)
    subject = f"--serviceaccount={TEAM}:developer"
    cluster.kubectl("create", "rolebinding", "developer", "-n", TEAM, "--clusterrole=view", subject)
    developer = cluster.service_account(TEAM, "developer")
    cluster.kubectl("delete", "validatingwebhookconfiguration/gpugate")  # so that it may be created
    document = _deployment("llm", {VCUDA_CORE: "150", VCUDA_MEMORY: "8"}, replicas=0)
    eventually(lambda: isinstance(installed.create(document), dict))
    installed.apply()
    eventually(installed.trusted)
    with installed.away():
        cluster.kubectl("scale", "deployment/llm", "-n", TEAM, "--replicas=1")
        _first_line(installed, "llm", f"{start}webhook mutate.gpugate.dev does not answer: ", TEAM)
    cluster.kubectl("scale", "deployment/llm", "-n", TEAM, "--replicas=2")
    _first_line(installed, "llm", f"{start}Pod denied by gpugate: ", TEAM)
    said = _first_line(installed, "llm", f"{start}Pod denied by gpugate: ", TEAM, kubeconfig=developer)

    assert "[rule cf-crl-gpu-manager-vcuda-core]" in said.partition("\n")[0]
    assert "– cannot list ConfigMaps of namespace 'kube-public': 403 " in said
    assert "– cannot list Nodes: 403 " in said


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("controllers")
def test_the_role_gpugate_view_alone_or_in_view_shows_nodes_and_rules(installed: Installed) -> None:
    """Without it, `audit -n` and `preview` answer with the built-in rules, and say so."""
    cluster = installed.cluster
    cluster.kubectl("apply", "-f", str(ROOT / "manifests/components/view/rbac.yaml"))
    for binding in ("alone", "in-view"):
        cluster.kubectl("create", "serviceaccount", binding, "-n", TEAM)
        subject = f"--serviceaccount={TEAM}:{binding}"
        developer = cluster.service_account(TEAM, binding)
        cluster.kubectl("create", "rolebinding", binding, "-n", TEAM, "--clusterrole=view", subject)
        for text in _of_developer(developer):
            assert "warning: cannot list ConfigMaps of namespace 'kube-public': 403" in text
            assert "warning: cannot list Nodes: 403" in text
        role = "gpugate-view" if binding == "alone" else "view"
        if role == "view":
            label = "rbac.authorization.k8s.io/aggregate-to-view=true"
            cluster.kubectl("label", "clusterrole", "gpugate-view", label)
        cluster.kubectl("create", "clusterrolebinding", binding, f"--clusterrole={role}", subject)
        cluster.kubectl("create", "rolebinding", binding, "-n", "kube-public", "--role=gpugate-view", subject)
        try:
            eventually(partial(_reads_all, developer))
        except AssertionError as error:
            error.add_note("\n".join(_of_developer(developer)))
            raise


def _reads_all(kubeconfig: Path) -> bool:
    """Return whether nodes and rules are read; templates of pods and other namespaces are not in the role."""
    unread = ("cannot list ConfigMaps", "cannot list Nodes")
    return not any(line in text for text in _of_developer(kubeconfig) for line in unread)


def _of_developer(kubeconfig: Path) -> list[str]:
    """Return what `audit -n` and `preview` say on stderr, whose answers are not errors."""
    pods = str(ROOT / "docs/compatibility/pods.yaml")
    stderr = []
    for words in (("audit", "-n", TEAM), ("preview", "-f", pods, "--context", "e2e")):
        command = [sys.executable, "-m", "webhook", *words, "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in {0, 1}, done.stderr
        stderr.append(done.stderr)
    return stderr


@pytest.mark.usefixtures("controllers")
@pytest.mark.parametrize(
    ("namespace", "change", "cause"),
    [
        (
            "quota",
            ("create", "quota", "gpus", "--hard=requests.nvidia.com/gpu=0", "-n", "quota"),
            "exceeded quota gpus",
        ),
        (
            "secure",
            ("label", "namespace", "secure", "pod-security.kubernetes.io/enforce=restricted"),
            "they violate Pod Security restricted",
        ),
    ],
)
def test_the_first_line_says_what_else_denies_the_pods(
    namespace: str, change: tuple[str, ...], cause: str, installed: Installed
) -> None:
    """A quota, or Pod Security."""
    installed.cluster.kubectl("create", "namespace", namespace)
    installed.cluster.kubectl(*change)
    installed.create(_deployment("llm", {GPU: "1"}), namespace=namespace)

    _first_line(installed, "llm", f"certain: its pods are denied: {cause}", namespace)


@pytest.fixture
def gangs(tmp_path: Path) -> Iterator[ControlPlane]:
    """Yield a cluster that schedules gangs, with a node of four GPUs, controllers and a namespace."""
    binaries = assets()
    if missing(binaries) or not (binaries / "kube-scheduler").is_file() or kubernetes() not in GANGS:
        pytest.skip("no kube-scheduler that schedules gangs: run `make e2e-assets`")
    with GangControlPlane(binaries, tmp_path, scheduler=True) as running:
        running.kubectl("create", "namespace", "ml")
        running.kubectl("create", "serviceaccount", "default", "-n", "ml", check=False)
        _add_node(running)
        with running.controllers("pod-garbage-collector-controller"):
            yield running


def _says(cluster: ControlPlane, text: str, *words: str, **options: Any) -> str:
    """Return the output of `why` as soon as it has a text."""
    done: list[subprocess.CompletedProcess[str]] = []

    def says() -> bool:
        done.append(_why(cluster, *words, **options))
        return text in done[-1].stdout

    try:
        eventually(says)
    except AssertionError as error:
        error.add_note(done[-1].stdout + done[-1].stderr)
        raise
    return done[-1].stdout


def test_a_pod_whose_gang_lacks_a_denied_member_names_what_denies_it(gangs: ControlPlane) -> None:
    """To an administrator, and to a developer who may only view the namespace."""
    gangs.kubectl("create", "quota", "pods", "--hard=pods=2", "-n", "ml")
    gangs.kubectl("create", "-n", "ml", "-f", "-", input=json.dumps(gang("train", 3)))
    spec = _pod("train", 1, restartPolicy="Never", schedulingGroup={"podGroupName": "train"})["spec"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    job |= {"spec": {"parallelism": 3, "template": {"spec": spec}}}
    gangs.kubectl("create", "-n", "ml", "-f", "-", input=json.dumps(job))
    denied = "its pods are denied: exceeded quota pods"
    start = f"certain: gang train (2 pods) waits for the pods of Job/train: {denied}"
    _says(gangs, start, "job/train")
    gangs.kubectl("create", "serviceaccount", "developer", "-n", "ml")
    gangs.kubectl(
        "create",
        "rolebinding",
        "developer",
        "-n",
        "ml",
        "--clusterrole=view",
        "--serviceaccount=ml:developer",
    )
    said = _says(gangs, start, "job/train", kubeconfig=gangs.service_account("ml", "developer"))

    assert "– cannot list Nodes: 403 " in said


def test_a_pod_that_fits_but_waits_for_its_gang_names_the_pod_without_a_node(gangs: ControlPlane) -> None:
    """By the texts of a real scheduler."""
    gangs.kubectl("create", "-n", "ml", "-f", "-", input=json.dumps(gang("train", 2)))
    for name, gpus in (("small", 1), ("large", 9)):
        pod = _pod(name, gpus, schedulingGroup={"podGroupName": "train"})
        gangs.kubectl("create", "-n", "ml", "-f", "-", input=json.dumps(pod))
    cause = "the pod requests 9 nvidia.com/gpu, and the largest node has 4"

    assert f"certain: gang train (1 pod) waits for pod large: {cause}" in _says(
        gangs, "certain: gang", "small"
    )
    assert f"certain: {cause}" in _says(gangs, "certain: ", "large")
