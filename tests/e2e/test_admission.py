"""A real API server calls gpugate over TLS, with its CA in the caBundle; the result is that of preview."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.schema.config_map import DEFAULT_NAMESPACE
from tests.e2e.installed import CUDA, GPU, OFFERED, TEAM, VCUDA_CORE, VCUDA_MEMORY, Installed
from tests.e2e.manifests import run
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node, pod
from tests.support.builders import injection_rule, resource_rule


def _refusal(installed: Installed, document: str) -> str:
    done = installed.cluster.kubectl("create", "-n", TEAM, "-f", "-", input=document, check=False)
    assert 0 != done.returncode
    return done.stderr


def test_a_pod_that_violates_a_rule_is_denied_with_place_and_fix(installed: Installed) -> None:
    """kubectl prints the whole message."""
    message = _refusal(installed, pod("bad", {VCUDA_CORE: "150"}))

    assert 'admission webhook "mutate.gpugate.dev" denied the request: Pod denied by gpugate: ' in message
    assert f"spec.containers[0].resources.limits[{VCUDA_CORE}]: found 150, expected 1 to 100" in message


def test_the_audit_event_of_a_denial_names_its_rule_or_its_limit(installed: Installed) -> None:
    """Of pods and of rules; the control plane writes audit events of service accounts."""
    cluster = installed.cluster
    cluster.kubectl("create", "serviceaccount", "audited", "-n", TEAM)
    user = cluster.service_account(TEAM, "audited")
    binding = ("create", "clusterrolebinding", "audited", "--clusterrole=cluster-admin")
    cluster.kubectl(*binding, f"--serviceaccount={TEAM}:audited")
    many = {VCUDA_CORE: "20"} | {f"example.com/device-{at}": "1" for at in range(300)}
    documents = [
        pod("bad", {VCUDA_CORE: "150"}),
        pod("large", many),
        json.dumps(yaml.safe_load(resource_rule("vendor.com/device", limits="optinal"))),
    ]
    for document in documents:
        arguments = (
            "create",
            "--kubeconfig",
            str(user),
            "-f",
            "-",
            *(() if "kube-public" in document else ("-n", TEAM)),
        )
        assert cluster.kubectl(*arguments, input=document, check=False).returncode
    events = [json.loads(line) for line in cluster.audit.read_text().splitlines()]
    violations = [
        (name, text)
        for event in events
        if event["user"]["username"] == f"system:serviceaccount:{TEAM}:audited"
        for name, text in event.get("annotations", {}).items()
        if name.endswith("/violations")
    ]
    cluster.kubectl("delete", "clusterrolebinding", "audited")

    where = f"spec.containers[0].resources.limits[{VCUDA_CORE}]"
    assert (
        "mutate.gpugate.dev/violations",
        f"cf-crl-gpu-manager-vcuda-core (policy): {where}",
    ) == violations[0]
    assert "mutate.gpugate.dev/violations" == violations[1][0]
    assert violations[1][1].startswith("size-limit (limit): spec.containers[0] ")
    assert (
        "validate.rules.gpugate.dev/violations",
        "cf-crl-group-device (policy): data.limits",
    ) == violations[2]


def test_a_deployment_whose_pods_would_be_denied_is_denied_immediately(installed: Installed) -> None:
    """With the path into its template."""
    labels = {"app": "bad"}
    template = {"metadata": {"labels": labels}, "spec": json.loads(pod("bad", {VCUDA_CORE: "150"}))["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "bad"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    message = _refusal(installed, json.dumps(deployment))

    assert f"spec.template.spec.containers[0].resources.limits[{VCUDA_CORE}]: found 150" in message


def test_a_native_sidecar_gets_its_mps_variables(installed: Installed) -> None:
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
    created = installed.cluster.kubectl(
        "create", "-n", TEAM, "-f", "-", "-o", "json", input=json.dumps(document)
    )
    (sidecar,) = json.loads(created.stdout)["spec"]["initContainers"]

    assert [
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "30"},
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=4G"},
    ] == sidecar["env"]


def test_mission_6_an_injected_class_gives_a_pod_its_priority(installed: Installed) -> None:
    """The API server calculates it before gpugate sees the pod, and again; what a user writes stays."""
    classes = [
        {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
        for name, value in (("gpu", 1000), ("own", 7))
    ]
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    inject = {
        "priorityClassName": "gpu",
        "activeDeadlineSeconds": 3600,
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    }
    rule = injection_rule(inject, name="injection-priority", match={"resources": [VCUDA_CORE]})
    own, document = json.loads(pod("own", {VCUDA_CORE: "20"})), pod("any", {VCUDA_CORE: "20"})
    own["spec"] |= {"priorityClassName": "own", "activeDeadlineSeconds": 60}
    own["spec"]["containers"][0]["securityContext"] = {"capabilities": {"drop": ["ALL"]}}
    for applied in (*(json.dumps(kind | node_class) for node_class in classes), rule):
        installed.cluster.kubectl("create", "-f", "-", input=applied)
    fields = ("priorityClassName", "priority", "preemptionPolicy", "activeDeadlineSeconds")

    def stored(text: str) -> Any:
        created = installed.create(text, "--dry-run=server")
        assert not isinstance(created, str), created
        security = created["spec"]["containers"][0].get("securityContext", {})
        return [created["spec"].get(field) for field in fields], security.get("capabilities")

    try:
        eventually(lambda: stored(document) == (["gpu", 1000, "Never", 3600], {"add": ["IPC_LOCK"]}))
        assert (["own", 7, "Never", 60], {"add": ["IPC_LOCK"], "drop": ["ALL"]}) == stored(json.dumps(own))
    finally:
        installed.cluster.kubectl("delete", "configmap", "-n", "kube-public", "injection-priority")


def test_a_debugging_container_gets_the_variables_of_its_target(installed: Installed) -> None:
    """`kubectl debug --target` starts it."""
    document = pod("debugged", {"nvidia.com/mps-core": "30"})
    installed.cluster.kubectl("create", "-n", TEAM, "-f", "-", input=document)
    installed.cluster.kubectl(
        "debug", "-n", TEAM, "debugged", "--image=busybox", "--target=main", "--container=debug"
    )
    stored = json.loads(installed.cluster.kubectl("get", "pod", "-n", TEAM, "debugged", "-o", "json").stdout)
    (debug,) = stored["spec"]["ephemeralContainers"]

    assert [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "30"}] == debug["env"]


def test_a_new_image_of_a_running_pod_must_run_on_its_node(installed: Installed) -> None:
    """No other update of the pod reaches gpugate, by the number of its reviews."""
    document = json.loads(pod("updated", {GPU: "1", "cpu": "1"}).replace("example.com/train:1", CUDA_11_8))
    document["spec"]["nodeName"] = "runs"
    installed.cluster.kubectl("create", "-f", "-", input=node("runs", CUDA, OFFERED | {"cpu": "8"}))
    eventually(lambda: installed.server.sample("gpugate_inventory_nodes") == 2)
    installed.cluster.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(document))

    def patch(change: dict[str, Any], subresource: str = "") -> tuple[str, float]:
        """Patch the pod; return the error, and how many reviews gpugate answered."""
        before = installed.server.reviews()
        options = (f"--subresource={subresource}",) if subresource else ()
        command = ("patch", "pod/updated", "-n", TEAM, "-p", json.dumps(change), *options)
        error = installed.cluster.kubectl(*command, check=False).stderr
        return error, installed.server.reviews() - before

    def main(**fields: Any) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": "main", **fields}]}}

    smaller = {"requests": {"cpu": "500m"}}
    denied, reviews = patch(main(image=CUDA_12_4))
    others = [
        patch(main(image=CUDA_12_2)),
        patch({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/held"]}}),
        patch({"status": {"message": "x"}}, "status"),
        *([patch(main(resources=smaller), "resize")] if installed.cluster.resizes else []),
        patch({"metadata": {"finalizers": None}}),
    ]
    shown = installed.cluster.kubectl("get", "pod", "-n", TEAM, "updated", "-o", "json").stdout
    installed.cluster.kubectl("delete", "pod", "-n", TEAM, "updated", "--force")
    installed.cluster.kubectl("delete", "node", "runs")
    eventually(lambda: installed.server.sample("gpugate_inventory_nodes") == 1)

    assert 'webhook "validate.gpugate.dev" denied the request: Pod denied by gpugate: node runs' in denied
    assert [1, 1, *[0] * len(others[1:])] == [reviews, *(count for _, count in others)]
    assert {""} == {error for error, _ in others}
    assert CUDA_12_2 == json.loads(shown)["spec"]["containers"][0]["image"]


def test_preview_uses_the_rules_of_a_cluster(installed: Installed, tmp_path: Path) -> None:
    """Only those that are in force there."""
    path = tmp_path / "pod.json"
    path.write_text(pod("asks", {VCUDA_MEMORY: "8"}))
    preview = f'gpugate preview --kubeconfig "$KUBECONFIG" -o patch -f {path}'
    before = json.loads(run(installed.cluster, preview).stdout)
    switch = ("label", "configmap", "-n", DEFAULT_NAMESPACE, "cf-crl-gpu-manager-vcuda-core", "--overwrite")
    installed.cluster.kubectl(*switch, "features.cpaas.io/enabled=false")
    after = json.loads(run(installed.cluster, preview).stdout)
    installed.cluster.kubectl(*switch, "features.cpaas.io/enabled=true")

    assert ["/spec/containers/0/resources/limits/tencent.com~1vcuda-core"] == [
        edit["path"] for edit in before
    ]
    assert [] == after


# Ten nodes of four kinds, by what their names begin with: the driver's CUDA, GPU, compute capability, count.
KINDS = {
    "t4-11": ("11.4", "Tesla-T4", "7.5", 3),
    "t4-12": ("12.2", "Tesla-T4", "7.5", 2),
    "a100": ("12.4", "NVIDIA-A100-SXM4-80GB", "8.0", 3),
    "h100": ("12.8", "NVIDIA-H100-80GB-HBM3", "9.0", 2),
}
CUDA_11_8, CUDA_12_2 = "team/app:cuda11.8", "team/app:cuda12.2"
CUDA_12_4 = "team/app:cuda12.4"  # known by name alone: the rule compares versions
CUDA_13 = "team/app:cuda13.0"


@pytest.fixture
def ten_nodes(installed: Installed) -> Iterator[None]:
    """Add nodes with labels of GPU Feature Discovery, and wait until gpugate knows them."""
    names = []
    for kind, (cuda, product, compute, count) in KINDS.items():
        versions = zip(("major", "minor"), cuda.split("."), compute.split("."), strict=True)
        labels = {"nvidia.com/gpu.product": product}
        for part, driver, capability in versions:
            labels[f"nvidia.com/cuda.runtime-version.{part}"] = driver
            labels[f"nvidia.com/gpu.compute.{part}"] = capability
        for number in range(count):
            names.append(f"{kind}-{number}")
            installed.cluster.kubectl("create", "-f", "-", input=node(names[-1], labels, OFFERED))
    eventually(lambda: installed.server.sample("gpugate_inventory_nodes") == len(names) + 1, 30)
    yield
    installed.cluster.kubectl("delete", "nodes", *names)
    eventually(lambda: installed.server.sample("gpugate_inventory_nodes") == 1)


@pytest.mark.usefixtures("ten_nodes")
def test_the_scheduler_binds_cuda_pods_only_to_compatible_nodes(installed: Installed) -> None:
    """Five of ten nodes have a driver for CUDA 12.4; by chance, not all thirty pods would be on those."""
    if not installed.cluster.schedules:
        pytest.skip("no kube-scheduler among the binaries")
    names = [f"train-{number}" for number in range(30)]
    documents = [pod(name, {GPU: "1"}).replace("example.com/train:1", CUDA_12_4) for name in names]
    installed.cluster.kubectl("create", "-n", TEAM, "-f", "-", input="\n".join(documents))
    where = ("wait", "-n", TEAM, *(f"pod/{name}" for name in names), "--for=condition=PodScheduled")
    installed.cluster.kubectl(*where, "--timeout=50s")
    listed = json.loads(installed.cluster.kubectl("get", "pods", "-n", TEAM, "-o", "json").stdout)["items"]
    bound = {
        shown_pod["spec"]["nodeName"].rpartition("-")[0]
        for shown_pod in listed
        if shown_pod["metadata"]["name"] in names
    }
    installed.cluster.kubectl("delete", "pods", "-n", TEAM, *names, "--force")

    assert {"a100", "h100"} == bound


@pytest.mark.usefixtures("ten_nodes")
def test_a_pod_without_a_compatible_node_is_denied_with_a_table_of_nodes(installed: Installed) -> None:
    """Suggested fixes first; then count, GPU, driver and reason of the three most frequent kinds of nodes."""
    refusal = _refusal(
        installed,
        pod("future", {GPU: "1"}).replace("example.com/train:1", CUDA_13),
    )

    rows = [
        kind
        for kind, (cuda, product, compute, count) in KINDS.items()
        if re.search(rf"^\s*{count}\s+{product}\s.*\s{cuda}\s+{compute}\s", refusal, re.MULTILINE)
    ]
    first, *_ = refusal.splitlines()

    assert ["t4-11", "a100", "h100"] == rows
    assert "… and 3 more" in refusal
    assert "suggested fixes: " in first
