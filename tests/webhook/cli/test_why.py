"""`gpugate why`: pods of a cluster, and input. Recorded failures are in tests/why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running

PODS = "/api/v1/namespaces/ml/pods"
EVENTS = "/api/v1/namespaces/ml/events"


def _pod(name: str = "train-0", *, owner: str = "", runs: bool = False, created: str = "") -> dict[str, Any]:
    """Return a pod as the API server stores it; its container has failed once, or runs."""
    metadata: dict[str, Any] = {"name": name, "namespace": "ml", "creationTimestamp": created}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "controller": True}
        ]
    state: dict[str, Any] = {"name": "main", "restartCount": 0, "state": {"running": {}}}
    if not runs:
        state |= {"restartCount": 1, "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "main", "image": "busybox"}]},
        "status": {"phase": "Running", "containerStatuses": [state]},
    }


def _event(name: str, message: str) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "train-0", "namespace": "ml"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "Failed", "message": message}


def _why(fake: FakeApi, tmp_path: Path, *words: str) -> Result:
    with running(fake):
        return gpugate("why", "--kubeconfig", fake.kubeconfig(tmp_path), "-n", "ml", *words)


def _facts(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result.stdout)
    return document


@pytest.mark.parametrize("name", ["train-0", "pod/train-0"])
def test_state_events_and_logs_of_a_pod_are_read_from_the_cluster(name: str, tmp_path: Path) -> None:
    """The log of the last run, too, with bounds."""
    fake = FakeApi(texts={f"{PODS}/train-0/log": "CUDA out of memory\n"})
    fake.put(PODS, _pod())
    fake.put(EVENTS, _event("a", 'no runtime for "nvidia" is configured'))
    result = _why(fake, tmp_path, name, "-o", "json")
    logs = [request.query for request in fake.requests if request.path.endswith("/log")]

    assert 1 == result.exit_code, result.output
    assert ["no-nvidia-runtime", "gpu-memory"] == [cause["name"] for cause in _facts(result)["causes"]]
    assert ["true", "false"] == [log["previous"] for log in logs]
    assert {("200", "1048576")} == {(log["tailLines"], log["limitBytes"]) for log in logs}


def test_of_a_workload_the_newest_pod_that_does_not_run_is_chosen(tmp_path: Path) -> None:
    """Also if a newer one runs."""
    fake = FakeApi()
    fake.serve("apps", "v1", Deployment="deployments")
    fake.put("/apis/apps/v1/namespaces/ml/deployments", {"metadata": {"name": "llm", "namespace": "ml"}})
    for name, runs, created in (
        ("old", False, "2026-01-01"),
        ("new", False, "2026-01-02"),
        ("ok", True, "2026-01-03"),
    ):
        fake.put(PODS, _pod(name, owner="llm", runs=runs, created=f"{created}T00:00:00Z"))
    facts = _facts(_why(fake, tmp_path, "deployment/llm", "-o", "json"))
    missing = _why(fake, tmp_path, "deployment/lm")

    assert ("new", False) == (facts["pod"], facts["runs"])
    assert (2, 'error: Error from server (NotFound): deployment "lm" not found') == (
        missing.exit_code,
        missing.stderr.splitlines()[-1].partition(" (or use")[0],
    )


def test_what_may_not_be_read_is_said_and_the_rest_is_compared(tmp_path: Path) -> None:
    """Rights for logs and events are rarer than those for pods."""
    fake = FakeApi(statuses={EVENTS: 403, f"{PODS}/train-0/log": 403})
    fake.put(PODS, _pod())
    result = _why(fake, tmp_path, "train-0")

    assert 1 == result.exit_code
    assert "unknown: no known cause was found; the pod does not run" in result.stdout
    assert "– cannot list events: 403 refused by the test" in result.stdout
    assert "– cannot read the log of container 'main': 403 refused by the test" in result.stdout


def _workload(kind: str, name: str, owner: str = "", **fields: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "ml"}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner, "controller": True}
        ]
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {"kind": kind, "metadata": metadata, "spec": {"replicas": 1, "template": template}} | fields


def _denied(kind: str, name: str, message: str) -> dict[str, Any]:
    about = {"kind": kind, "name": name, "namespace": "ml"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "FailedCreate", "message": message}


DENIED = (
    'Error creating: admission webhook "validate.gpugate.dev" denied the request: Pod denied by gpugate: x'
)
FORBIDDEN = 'Error creating: pods "llm-1" is forbidden: '
QUOTA = (
    "exceeded quota: gpus, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=4, limited: 4"
)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (f"{DENIED} [rule compatibility-pgpu]", "Pod denied by gpugate: x [rule compatibility-pgpu]"),
        (FORBIDDEN + QUOTA, "exceeded quota gpus"),
        (FORBIDDEN + 'violates PodSecurity "baseline:latest": hostPID=true', "violate Pod Security baseline"),
        (
            'Internal error occurred: failed calling webhook "a.b": refused',
            "webhook a.b does not answer: refused",
        ),
        (FORBIDDEN + "error looking up service account", "error looking up service account"),
    ],
)
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "DaemonSet"])
def test_of_a_workload_without_pods_what_denies_them_is_the_cause(
    kind: str, message: str, cause: str, tmp_path: Path
) -> None:
    """In the first line, with exit status 1; of a Deployment by the events of its ReplicaSet."""
    fake = FakeApi()
    fake.serve("apps", "v1", Deployment="deployments", ReplicaSet="replicasets")
    fake.serve("batch", "v1", Job="jobs")
    fake.discovery["/apis/apps/v1"]["resources"] += [
        {"name": plural, "kind": other, "verbs": ["list"]}
        for other, plural in (("StatefulSet", "statefulsets"), ("DaemonSet", "daemonsets"))
    ]
    root = f"/apis/{'batch' if kind == 'Job' else 'apps'}/v1/namespaces/ml"
    fake.put(f"{root}/{kind.lower()}s", _workload(kind, "llm"))
    about = (kind, "llm")
    if kind == "Deployment":
        about = ("ReplicaSet", "llm-1")
        fake.put(f"{root}/replicasets", _workload(*about, owner="llm"))
    older = _denied(*about, "exceeded quota: settled")
    older["metadata"]["name"] = "older"
    older["involvedObject"]["resourceVersion"] = "7"
    fake.put(EVENTS, older | {"lastTimestamp": "2026-01-01T00:00:00Z"})
    newer = _denied(*about, f"{message}\na table") | {"lastTimestamp": "2026-01-01T00:01:00Z"}
    fake.put(EVENTS, newer)
    result = _why(fake, tmp_path, f"{kind.lower()}/llm")
    first = result.stdout.partition("\n")[0]

    assert 1 == result.exit_code, result.output
    assert first.startswith(f"{kind} ml/llm: certain: its pods are denied: "), result.stdout
    assert cause in first
    assert "a table" not in result.stdout
    assert "settled" not in result.stdout


def test_a_failure_that_a_condition_says_is_a_cause_beside_pods_that_run(tmp_path: Path) -> None:
    """Some replicas are missing; after an hour only the condition is left."""
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    condition["message"] = FORBIDDEN + QUOTA
    fake = FakeApi()
    fake.serve("apps", "v1", Deployment="deployments")
    document = _workload("Deployment", "llm", status={"conditions": [condition]})
    fake.put("/apis/apps/v1/namespaces/ml/deployments", document)
    fake.put(PODS, _pod(owner="llm", runs=True))
    (cause,) = _facts(_why(fake, tmp_path, "deployment/llm", "-o", "json"))["causes"]

    assert ("exceeded-quota", "certain") == (cause["name"], cause["certainty"])
    assert "condition ReplicaFailure of Deployment/llm" == cause["evidence"][0]["place"]


@pytest.mark.parametrize(
    ("replicas", "status", "words"), [(0, 0, "asks for no pods"), (1, 1, "created no pods")]
)
def test_a_workload_without_pods_and_events_is_said_to_ask_for_none_or_to_be_unknown(
    replicas: int, status: int, words: str, tmp_path: Path
) -> None:
    """The exit status differs."""
    fake = FakeApi()
    fake.serve("apps", "v1", Deployment="deployments")
    document = _workload("Deployment", "llm", spec={"replicas": replicas})
    fake.put("/apis/apps/v1/namespaces/ml/deployments", document)
    result = _why(fake, tmp_path, "deployment/llm")

    assert (status, True) == (result.exit_code, words in result.stdout), result.output


def test_rules_and_nodes_that_may_not_be_read_are_named_and_the_rest_is_compared(tmp_path: Path) -> None:
    """As for a developer with the role `view` in the namespace."""
    rules = "/api/v1/namespaces/kube-public/configmaps"
    fake = FakeApi(statuses={rules: 403, "/api/v1/nodes": 403}, texts={f"{PODS}/train-0/log": "OOMKilled\n"})
    fake.put(PODS, _pod())
    fake.put(EVENTS, _event("a", 'no runtime for "nvidia" is configured'))
    result = _why(fake, tmp_path, "train-0")

    assert 1 == result.exit_code, result.output
    assert "certain: the container runtime of the node has no runtime nvidia" in result.stdout
    assert "– cannot list ConfigMaps of namespace 'kube-public': 403" in result.stdout
    assert "evaluated with the built-in rules (use --rules for others)" in result.stdout
    assert "– cannot list Nodes: 403 refused by the test" in result.stdout
    assert "not compared with nodes (use --nodes FILE)" in result.stdout


def test_a_pod_that_runs_without_a_known_failure_is_no_error(tmp_path: Path) -> None:
    """The exit status is 0."""
    fake = FakeApi(texts={f"{PODS}/train-0/log": "step 1\n"})
    fake.put(PODS, _pod(runs=True))
    result = _why(fake, tmp_path, "train-0")

    assert (0, True) == (result.exit_code, "The pod runs, and no known failure was found." in result.stdout)


def test_events_that_have_expired_are_said_to_be_missing(tmp_path: Path) -> None:
    """An hour after the pod failed, nothing is left of them."""
    fake = FakeApi(texts={f"{PODS}/train-0/log": ""})
    fake.put(PODS, _pod())

    assert (
        "– no events: the API server keeps them for an hour by default"
        in _why(fake, tmp_path, "train-0").stdout
    )


def test_a_pod_that_does_not_exist_is_reported_as_kubectl_does(tmp_path: Path) -> None:
    """In one line."""
    result = _why(FakeApi(), tmp_path, "train-0")

    assert 2 == result.exit_code
    assert 'Error from server (NotFound): pods "train-0" not found' in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name a pod of a cluster, a file with it (-f FILE), or a log (--log FILE)"),
        (
            ("train-0", "-f", "pod.yaml"),
            "name a pod of a cluster, a file with it (-f FILE), or a log (--log FILE)",
        ),
        (("train-0", "--log", "log.txt"), "--log and --events are for a pod in a file, or for a log alone"),
        (("-f", "none.yaml"), "No such file or directory"),
        (("-f", "two.yaml"), "two.yaml: expected one pod as kubectl prints it, found 2 pods"),
        (("-f", "other.yaml"), "found Deployment; gpugate explain reads manifests of workloads"),
        (("-f", "bad.yaml"), "invalid pod: metadata or spec is missing"),
    ],
)
def test_wrong_usage_is_reported(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status is 2."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(yaml.safe_dump_all([_pod("a"), _pod("b")]), "utf-8")
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(_pod() | {"spec": None}), "utf-8")
    (tmp_path / "other.yaml").write_text("apiVersion: apps/v1\nkind: Deployment\n", "utf-8")
    result = gpugate("why", *words)

    assert (2, True) == (result.exit_code, message in result.stderr), result.stderr


@pytest.mark.parametrize(
    "status", [None, [], {"phase": 3, "containerStatuses": [None, {"state": "x"}], "conditions": 1}]
)
def test_a_status_of_any_shape_is_read(status: Any, tmp_path: Path) -> None:
    """Files are written by hand."""
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(_pod() | {"status": status}), "utf-8")
    events = tmp_path / "events.yaml"
    events.write_text("kind: List\nitems: [{kind: Event, involvedObject: 3}, {kind: Event}, 4]\n", "utf-8")
    result = gpugate("why", "-f", path, "--events", events)

    assert (1, True) == (result.exit_code, "no known cause was found" in result.stdout), result.output


def test_a_log_is_read_from_stdin(tmp_path: Path) -> None:
    """As `kubectl logs` pipes it; bytes that are no text are no error."""
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(_pod()), "utf-8")
    result = gpugate("why", "-f", path, "--log", "-", input=b"\xff\nCUDA out of memory\n")

    assert "seen: log of stdin, line 2: CUDA out of memory" in result.stdout


def test_a_log_alone_is_enough(tmp_path: Path) -> None:
    """The cause is likely; nothing is said about a pod, rules and nodes."""
    path = tmp_path / "llm.log"
    path.write_text(
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12040)\n", "utf-8"
    )
    result = gpugate("why", "--log", path)
    facts = _facts(gpugate("why", "--log", path, "-o", "json"))

    assert result.exit_code == 1
    assert result.stdout.startswith("log of llm.log: likely: the driver of the node is older than PyTorch's")
    assert result.stdout.endswith("\ncompared: logs: log of llm.log (1 line)\n")
    assert (facts["pod"], [cause["name"] for cause in facts["causes"]]) == (None, ["driver-too-old"])


def test_the_result_is_printed_in_chinese(tmp_path: Path) -> None:
    """Certainty, cause, fix, and where the evidence is."""
    path = tmp_path / "pod.yaml"
    pod = _pod()
    pod["status"] |= {"reason": "OOMKilled"}
    path.write_text(yaml.safe_dump(pod), "utf-8")
    text = gpugate("why", "-f", path, "--log", "-", "--lang", "zh", input="a\nCUDA out of memory\n").stdout

    assert "确定：容器使用的内存" in text
    assert "→ 提高 limits.memory" in text
    assert "stdin 的日志，第 2 行：CUDA out of memory" in text
    assert "依据：Pod 的状态：OOMKilled" in text
