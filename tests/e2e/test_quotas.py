"""What preview says of ResourceQuotas is what a real API server does.

No quota controller runs: a test writes what is used. The API server adds the pods that it creates.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.e2e.serve_process import eventually
from tests.support.command import gpugate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import ControlPlane

GPU: Final = "nvidia.com/gpu"
GPUS: Final = f"requests.{GPU}"
DEADLINE: Final = {"activeDeadlineSeconds": 60}
CLASS: Final = {"priorityClassName": "quota-test"}
DEFAULTS: Final = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "defaults"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}]},
}
PRIORITY: Final = {
    "scopeSelector": {
        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["quota-test"]}]
    }
}


def container(name: str = "main", gpus: int | str = 1, **more: Any) -> dict[str, Any]:
    """Return a container that requests GPUs. more: its other requests, or fields."""
    fields = {"restartPolicy": more.pop("restart")} if "restart" in more else {}
    limits = {GPU: gpus} if gpus else {}
    resources = {"limits": limits, "requests": {**limits, **more}}
    return {"name": name, "image": "example.com/train:1", "resources": resources, **fields}


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "train"},
        "spec": {"containers": [*containers], **spec},
    }


def limit(cluster: ControlPlane, namespace: str, quota: dict[str, Any], used: dict[str, str]) -> None:
    """Create a quota of a namespace, with what is used of it."""
    document = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": quota}
    cluster.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(document))
    zeros = dict.fromkeys(quota["hard"], "0")
    status = {"status": {"hard": quota["hard"], "used": zeros | used}}
    patch = ("patch", "quota", "team", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    cluster.kubectl(*patch, "-n", namespace)


def rejection(cluster: ControlPlane, namespace: str, document: dict[str, Any], *flags: str) -> str:
    """Create an object and return the error of the API server; empty if it is created."""
    create = ("create", "-n", namespace, "-f", "-", *flags)
    return cluster.kubectl(*create, input=json.dumps(document), check=False).stderr


def previewed(
    cluster: ControlPlane, namespace: str, document: dict[str, Any], folder: Path
) -> list[dict[str, Any]]:
    """Return what preview says of quotas of the cluster."""
    path = folder / "pod.json"
    path.write_text(json.dumps(document))
    options = ("--kubeconfig", str(cluster.kubeconfig), "-n", namespace, "-o", "json")
    result = gpugate("preview", "-f", path, *options)
    assert 0 == result.exit_code, result.stderr
    (manifest,) = json.loads(result.stdout)["objects"]
    quotas: list[dict[str, Any]] = manifest["quotas"]
    return quotas


class Case(NamedTuple):
    """A quota, the GPUs that are used of it, a pod, and the error of the API server, or empty."""

    name: str
    quota: dict[str, Any]
    used: str
    pod: dict[str, Any]
    error: str = ""


FOUR: Final = {"hard": {GPUS: "4"}}
TERMINATING: Final = {"hard": {GPUS: "0"}, "scopes": ["Terminating"]}
EXCEEDED: Final = "exceeded quota: team"
SIDECAR: Final = container("side", 2, restart="Always")
CASES: Final = (
    Case("used-up", FOUR, "4", pod(container()), EXCEEDED),
    Case("room", FOUR, "3", pod(container())),
    Case("too-many", FOUR, "3", pod(container(gpus=2)), EXCEEDED),
    Case("no-gpu", FOUR, "4", pod(container(gpus=0))),
    Case(
        "init-with-sidecar",
        FOUR,
        "1",
        pod(container(), initContainers=[SIDECAR, container("init", 2)]),
        EXCEEDED,
    ),
    Case("init-before-sidecar", FOUR, "1", pod(container(), initContainers=[container("init", 3), SIDECAR])),
    Case(
        "must-specify",
        {"hard": {GPUS: "4", "requests.cpu": "8", "limits.memory": "1Ti"}},
        "0",
        pod(container()),
        "must specify limits.memory for: main; requests.cpu for: main",
    ),
    Case("cpu", {"hard": {GPUS: "4", "cpu": "8"}}, "0", pod(container(cpu="9")), EXCEEDED),
    Case(
        "cpu-fits",
        {"hard": {GPUS: "4", "requests.cpu": "1500m"}},
        "0",
        pod(container(cpu="1"), container("b", cpu="500m")),
    ),
    Case(
        "resources-of-the-pod",
        {"hard": {GPUS: "4", "requests.cpu": "8"}},
        "0",
        pod(container(), resources={"requests": {"cpu": "2"}}),
    ),
    Case("pods", {"hard": {GPUS: "4", "pods": "0"}}, "0", pod(container()), EXCEEDED),
    Case("scope", TERMINATING, "0", pod(container(), **DEADLINE), EXCEEDED),
    Case("other-scope", TERMINATING, "0", pod(container())),
    Case("class", {"hard": {GPUS: "0"}} | PRIORITY, "0", pod(container(), **CLASS), EXCEEDED),
)


# The Kubernetes that a case needs, if it is newer than gpugate's oldest.
NEEDS: Final = {"resources-of-the-pod": "1.34"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, marks=[pytest.mark.needs_kubernetes(NEEDS[case.name])] if case.name in NEEDS else []
        )
        for case in CASES
    ],
    ids=lambda case: case.name,
)
def test_preview_says_of_a_pod_what_the_api_server_does(
    control_plane: ControlPlane, tmp_path: Path, case: Case
) -> None:
    """It is rejected with the same quota and resources, or created."""
    namespace = f"quota-{case.name}"
    control_plane.kubectl("create", "namespace", namespace)
    if "scopeSelector" in case.quota:
        priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1}
        named = priority | {"metadata": {"name": CLASS["priorityClassName"]}}
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(named))
    limit(control_plane, namespace, case.quota, {GPUS: case.used})
    selected: dict[str, Any] = DEADLINE if "scopes" in case.quota else {}
    selected = CLASS if "scopeSelector" in case.quota else selected
    probe = pod(container(gpus=99, cpu="1"), **selected)
    eventually(lambda: "quota: team" in rejection(control_plane, namespace, probe, "--dry-run=server"))

    exceeded = previewed(control_plane, namespace, case.pod, tmp_path)
    rejected = rejection(control_plane, namespace, case.pod)
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")

    assert case.error in rejected
    assert [bool(case.error)] * 2 == [bool(rejected), bool(exceeded)]
    assert all(name in rejected for quota in exceeded for name in (quota["quota"], *quota["resources"]))


def test_a_limit_range_gives_what_a_quota_requires(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The API server sets its defaults before it compares the quota."""
    limit(control_plane, namespace, {"hard": {GPUS: "4", "limits.cpu": "1500m"}}, {})
    control_plane.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(DEFAULTS))
    one, two = pod(container()), pod(container(), container("b"))
    eventually(lambda: not rejection(control_plane, namespace, one, "--dry-run=server"))
    (exceeded,) = previewed(control_plane, namespace, two, tmp_path)

    assert [] == previewed(control_plane, namespace, one, tmp_path)
    assert ["limits.cpu"] == exceeded["resources"]
    assert "exceeded quota: team, requested: limits.cpu=2" in rejection(control_plane, namespace, two)
    assert "" == rejection(control_plane, namespace, one)


def test_audit_names_a_quota_that_is_used_up_which_view_may_read(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The API server counts the pod that it creates."""
    limit(control_plane, namespace, {"hard": {GPUS: "1"}}, {})
    probe = pod(container(gpus=2))
    eventually(lambda: "quota: team" in rejection(control_plane, namespace, probe, "--dry-run=server"))
    assert "" == rejection(control_plane, namespace, pod(container()))
    options = ("--kubeconfig", str(control_plane.kubeconfig), "-n", namespace)
    audited = gpugate("audit", *options)
    # The controller that aggregates it to `view` does not run here.
    view = json.loads(
        control_plane.kubectl("get", "clusterrole", "system:aggregate-to-view", "-o", "json").stdout
    )
    listed = {name for rule in view["rules"] if "list" in rule["verbs"] for name in rule["resources"]}

    assert (
        f"warning: ResourceQuota 'team': namespace {namespace} uses 1 of 1 {GPUS}; "
        "the API server will reject further pods"
    ) in audited.stderr
    assert {"resourcequotas", "limitranges"} <= listed
