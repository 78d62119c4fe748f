"""Quotas in `gpugate preview` and `gpugate audit`: what the API server rejects although gpugate admits it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from tests.support.command import gpugate
from tests.support.fake_api import FakeApi, running

GPU = "nvidia.com/gpu"
GPUS = f"requests.{GPU}"
QUOTAS = "/api/v1/namespaces/ml/resourcequotas"
RANGES = "/api/v1/namespaces/ml/limitranges"


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a ResourceQuota as `kubectl get quota -o yaml` prints it."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": "ml"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


def spec_of(gpus: int = 1, **requests: str) -> dict[str, Any]:
    """Return the spec of a pod that requests GPUs and other resources."""
    resources = {"limits": {GPU: gpus}, "requests": {**requests, GPU: gpus}}
    return {"containers": [{"name": "main", "image": "team/app:v1", "resources": resources}]}


def pod(gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """Return a Pod of namespace ml."""
    metadata = {"name": "train", "namespace": "ml"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec_of(gpus), **spec}}


def workload(kind: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a kind."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": spec,
    }


def run(
    folder: Path, *documents: dict[str, Any], command: str = "preview", more: tuple[str, ...] = ()
) -> Result:
    """Run a command on a file of objects."""
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(documents), "utf-8")
    return gpugate(command, "-f", path, *more)


def messages(folder: Path, *documents: dict[str, Any]) -> list[str]:
    """Return the messages of quotas about the objects in a file."""
    objects = json.loads(run(folder, *documents, more=("-o", "json")).stdout)["objects"]
    return [exceeded["message"] for preview in objects for exceeded in preview["quotas"]]


def test_a_quota_that_is_used_up_is_shown_with_the_pod_and_changes_no_verdict(tmp_path: Path) -> None:
    """It is the API server that rejects the pod: the exit status is 0."""
    result = run(tmp_path, quota({GPUS: "4"}, {GPUS: "4"}), pod())

    assert (
        f"    quota ResourceQuota 'team': namespace ml has 0 of 4 {GPUS} left, this pod needs 1; the API "
        "server will reject it: request less, delete other pods, or raise the quota"
    ) in result.stdout.splitlines()
    assert 0 == result.exit_code


def test_a_quota_with_room_is_not_shown(tmp_path: Path) -> None:
    """Nor one of another namespace."""
    elsewhere = quota({GPUS: "0"}) | {"metadata": {"name": "other", "namespace": "web"}}

    assert [] == messages(tmp_path, quota({GPUS: "4"}, {GPUS: "3"}), elsewhere, pod())


def test_json_names_quota_and_resource(tmp_path: Path) -> None:
    """Whatever the output, the message is there."""
    documents = quota({GPUS: "4"}, {GPUS: "3"}), pod(2)
    (_, preview) = json.loads(run(tmp_path, *documents, more=("-o", "json")).stdout)["objects"]
    (of_team,) = preview["quotas"]

    assert ("team", "ml", [GPUS]) == (of_team["quota"], of_team["namespace"], of_team["resources"])
    assert f"namespace ml has 1 of 4 {GPUS} left, this pod needs 2" in of_team["message"]
    assert of_team["message"] in run(tmp_path, *documents, more=("-o", "yaml")).stderr


@pytest.mark.parametrize(
    ("kind", "version", "spec", "room"),
    [
        (
            "Deployment",
            "apps/v1",
            {"replicas": 3, "template": {"spec": spec_of()}},
            "2 of 3 pods that need 3",
        ),
        ("Deployment", "apps/v1", {"replicas": 2, "template": {"spec": spec_of()}}, None),
        (
            "StatefulSet",
            "apps/v1",
            {"replicas": 2, "template": {"spec": spec_of(2)}},
            "1 of 2 pods that need 4",
        ),
        ("Job", "batch/v1", {"parallelism": 3, "template": {"spec": spec_of()}}, "2 of 3 pods that need 3"),
        (
            "CronJob",
            "batch/v1",
            {"jobTemplate": {"spec": {"parallelism": 3, "template": {"spec": spec_of()}}}},
            "2 of 3 pods that need 3",
        ),
        (
            "PyTorchJob",
            "kubeflow.org/v1",
            {
                "pytorchReplicaSpecs": {
                    "Master": {"replicas": 1, "template": {"spec": spec_of()}},
                    "Worker": {"replicas": 3, "template": {"spec": spec_of()}},
                }
            },
            "2 of 4 pods that need 4",
        ),
        (
            "JobSet",
            "jobset.x-k8s.io/v1alpha2",
            {
                "replicatedJobs": [
                    {"replicas": 2, "template": {"spec": {"parallelism": 2, "template": {"spec": spec_of()}}}}
                ]
            },
            "2 of 4 pods that need 4",
        ),
    ],
)
def test_of_a_workload_it_is_said_how_many_pods_fit(
    tmp_path: Path, kind: str, version: str, spec: dict[str, Any], room: str | None
) -> None:
    """All templates together, as many times as the object says."""
    texts = messages(tmp_path, quota({GPUS: "4"}, {GPUS: "2"}), workload(kind, version, spec))

    assert (
        [f"room for {room}; the API server will reject the others unless they run already"] if room else []
    ) == [text[text.index("room") : text.index(": request less")] for text in texts]


def test_of_a_workload_with_one_pod_no_others_are_said_to_be_rejected(tmp_path: Path) -> None:
    """A Job without parallelism."""
    job = workload("Job", "batch/v1", {"template": {"spec": spec_of(3)}})
    (message,) = messages(tmp_path, quota({GPUS: "4"}, {GPUS: "2"}), job)

    assert "left, one pod needs 3; the API server will reject it unless it runs already: request" in message


def test_the_steps_of_a_workflow_are_not_added(tmp_path: Path) -> None:
    """It is unknown which of them run at the same time; each must fit. A template alone makes no pods."""
    workflow = workload(
        "Workflow", "argoproj.io/v1alpha1", {"steps": [spec_of(), spec_of(3)], "parallelism": 9}
    )
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text('argoproj.io: {Workflow: ["spec.steps.*"]}', "utf-8")
    template = workload("PodTemplate", "v1", {}) | {"template": {"spec": spec_of(9)}}
    documents = quota({GPUS: "4"}, {GPUS: "2"}), workflow, template
    result = run(tmp_path, *documents, more=("--workloads", str(kinds)))

    assert 1 == result.stdout.count("ResourceQuota 'team'")
    assert "one pod needs 3" in result.stdout


def test_the_pods_that_a_quota_does_not_count_are_not_reported(tmp_path: Path) -> None:
    """By its scopes. If a default priority class may decide, the message says that it is not checked."""
    priority: dict[str, Any] = {
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    }
    (unsure,) = messages(tmp_path, quota({GPUS: "0"}, **priority), pod())

    assert [] == messages(tmp_path, quota({GPUS: "0"}, scopes=["Terminating"]), pod())
    assert 1 == len(messages(tmp_path, quota({GPUS: "0"}, **priority), pod(priorityClassName="high")))
    assert unsure.endswith("(not checked: whether the quota counts this pod, by its scope PriorityClass)")


def test_a_quota_of_cpu_requires_it_of_each_container_unless_a_limit_range_sets_it(tmp_path: Path) -> None:
    """As the API server says: must specify."""
    of_cpu = quota({"requests.cpu": "8", "limits.memory": "1Ti"})
    defaults = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": "ml"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}]},
    }

    (message,) = messages(tmp_path, of_cpu, pod())

    assert (
        "ResourceQuota 'team' of namespace ml requires limits.memory, requests.cpu in each container, which "
        "container 'main' lacks; the API server will reject such a pod: set it, or a default in a LimitRange"
    ) == message
    assert [] == messages(tmp_path, of_cpu, defaults, pod())


def test_a_denied_pod_does_not_reach_the_quota(tmp_path: Path) -> None:
    """What gpugate denies is not reported twice."""
    half = pod() | {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: "500m"}}}]}}
    result = run(tmp_path, quota({GPUS: "0"}), half)

    assert 1 == result.exit_code
    assert "ResourceQuota 'team'" not in result.stdout


def cluster(folder: Path, fake: FakeApi) -> tuple[str, ...]:
    """Return the options for a cluster with built-in rules."""
    return "--kubeconfig", str(fake.kubeconfig(folder)), "--rules", "rules/catalog/nvidia-by-model"


def test_the_quotas_of_a_cluster_are_read(tmp_path: Path) -> None:
    """Of the namespaces in the files, once each; a quota in the files replaces it."""
    fake = FakeApi()
    fake.put(QUOTAS, quota({GPUS: "4"}, {GPUS: "4"}))
    with running(fake):
        options = cluster(tmp_path, fake)
        result = run(tmp_path, pod(), pod(), more=options)
        raised = run(tmp_path, pod(), quota({GPUS: "8"}, {GPUS: "4"}), more=options)

    assert 2 == result.stdout.count(f"namespace ml has 0 of 4 {GPUS} left")
    assert "left" not in raised.stdout
    paths = [request.path for request in fake.requests if request.path in (QUOTAS, RANGES)]
    assert [QUOTAS, RANGES] * 2 == paths


def test_quotas_that_may_not_be_read_are_not_checked(tmp_path: Path) -> None:
    """One warning a namespace; the pods are evaluated."""
    fake = FakeApi()
    fake.statuses[QUOTAS] = 403
    with running(fake):
        result = run(tmp_path, pod(), pod(), more=cluster(tmp_path, fake))

    assert 1 == result.stderr.count(
        "warning: quota not checked: cannot list ResourceQuotas of namespace 'ml': 403"
    )
    assert 0 == result.exit_code


def test_the_namespace_of_a_manifest_is_one_segment_of_the_path(tmp_path: Path) -> None:
    """Whatever its author writes."""
    fake = FakeApi()
    odd = pod() | {"metadata": {"name": "train", "namespace": "../../nodes"}}
    with running(fake):
        run(tmp_path, odd, more=cluster(tmp_path, fake))

    assert "/api/v1/namespaces/..%2F..%2Fnodes/resourcequotas" in [request.path for request in fake.requests]


def test_audit_shows_the_quotas_of_gpu_pods_that_are_used_up(tmp_path: Path) -> None:
    """Not what GPU pods do not use, and no quota with room; the table and the exit status stay."""
    full = quota({GPUS: "1", "pods": "9", "services": "0"}, {GPUS: "1", "pods": "1"})
    plain = pod() | {
        "metadata": {"name": "web", "namespace": "web"},
        "spec": {"containers": [{"name": "main"}]},
    }
    of_web = quota({"pods": "1"}, {"pods": "1"}) | {"metadata": {"name": "web", "namespace": "web"}}
    documents = pod(), full, plain, of_web
    result = run(tmp_path, *documents, command="audit")
    (full_quota,) = json.loads(run(tmp_path, *documents, command="audit", more=("-o", "json")).stdout)[
        "quotas"
    ]

    message = (
        f"ResourceQuota 'team': namespace ml uses 1 of 1 {GPUS}; the API server will reject further pods"
    )
    assert f"warning: {message}" == result.stderr.splitlines()[-1]
    assert 0 == result.exit_code
    assert {"quota": "team", "namespace": "ml", "resources": [GPUS], "message": message} == full_quota


def test_a_pod_is_decided_with_the_defaults_of_a_limit_range(tmp_path: Path) -> None:
    """As the server does: the API server sets them before it calls webhooks."""
    ranges = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "gpus", "namespace": "ml"},
        "spec": {"limits": [{"type": "Container", "default": {GPU: "1"}}]},
    }
    serve = {"name": "main", "image": "vllm/vllm-openai:v0.9.2", "args": ["--tensor-parallel-size", "4"]}
    result = run(tmp_path, ranges, pod(containers=[serve]))

    assert 1 == result.exit_code
    assert "vLLM needs 4 GPUs for `--tensor-parallel-size 4`, the container requests 1" in result.stdout
    assert f"note: {tmp_path}/objects.yaml:12: a LimitRange of namespace ml sets a default of {GPU}" in (
        " ".join(result.stderr.split())
    )
    written = serve | {"resources": {"limits": {GPU: "4"}}}
    fixed = run(tmp_path, ranges, pod(containers=[written]))
    assert (0, "") == (fixed.exit_code, fixed.stderr)
