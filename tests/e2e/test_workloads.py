"""Workloads are validated like their pods: built-in, custom and configured kinds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.installed import TEAM, VCUDA_CORE, VCUDA_MEMORY, Installation, Installed, running
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = f"resources.limits[{VCUDA_CORE}]: found 150"


def definition(group: str, kind: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind without a schema."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def installed(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield an installation with a configured kind, in a cluster with it and two built-in kinds."""
    cluster, folder = installation.cluster, tmp_path_factory.mktemp("workloads")
    kinds = [
        ("kubeflow.org", "PyTorchJob"),
        ("serving.kserve.io", "InferenceService"),
        ("example.com", "Train"),
    ]
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([definition(*kind) for kind in kinds]))
    cluster.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
    for document in installation.objects:
        if document["kind"] == "ValidatingWebhookConfiguration":
            document["webhooks"][0]["rules"].append(
                {
                    "apiGroups": ["example.com"],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["trains"],
                }
            )
    installation.apply()
    path = folder / "kinds.yaml"
    path.write_text("example.com: {Train: [spec.steps.*.pod]}")
    with running(installation, folder / "serve.log", f"--workloads={path}") as server:
        yield server


def template(cores: str) -> dict[str, Any]:
    """Return a pod template that requests so much of a GPU."""
    spec = json.loads(pod("x", {VCUDA_CORE: cores, VCUDA_MEMORY: "8"}))["spec"]
    return {"metadata": {"labels": {"a": "b"}}, "spec": spec}


def workload(kind: str, cores: str, name: str = "train") -> dict[str, Any]:
    """Return a workload whose pods request so much of a GPU."""
    pods = template(cores)
    api_version, spec = {
        "Deployment": ("apps/v1", {"selector": {"matchLabels": {"a": "b"}}, "template": pods}),
        "PyTorchJob": (
            "kubeflow.org/v1",
            {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"template": pods}}},
        ),
        "InferenceService": ("serving.kserve.io/v1", {"predictor": pods["spec"] | {"minReplicas": 1}}),
        "Train": ("example.com/v1", {"steps": [{}, {"pod": pods}]}),
    }[kind]
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("Deployment", "spec.template.spec"),
        ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.template.spec"),
        ("InferenceService", "spec.predictor"),
        ("Train", "spec.steps[1].pod.spec"),
    ],
)
def test_a_workload_whose_pods_would_be_denied_is_denied(installed: Installed, kind: str, place: str) -> None:
    """With the path into it; a workload with valid pods is stored unchanged."""
    invalid = json.dumps(workload(kind, "150"))
    eventually(lambda: f"{place}.containers[0].{REFUSED}" in installed.refusal(invalid))
    stored = installed.create(json.dumps(workload(kind, "20")), "--dry-run=server")

    assert isinstance(stored, dict), stored
    assert VCUDA_CORE in json.dumps(stored)
    assert "gpugate.dev" not in json.dumps(stored)


def test_a_workload_from_before_a_rule_is_denied_only_when_its_template_changes(
    installed: Installed,
) -> None:
    """It may be scaled, labeled and finished."""
    installed.cluster.kubectl("delete", "validatingwebhookconfiguration/gpugate")
    document = workload("PyTorchJob", "150", "old")
    document["metadata"]["finalizers"] = ["example.com/held"]
    eventually(lambda: not installed.refusal(json.dumps(document)))
    installed.create(json.dumps(document))
    installed.apply()
    eventually(lambda: REFUSED in installed.refusal(json.dumps(document).replace("old", "new")))

    def patch(change: dict[str, Any]) -> str:
        arguments = ("patch", "pytorchjob/old", "-n", TEAM, "--type=merge", "-p", json.dumps(change))
        return installed.cluster.kubectl(*arguments, check=False).stderr

    assert "" == patch({"metadata": {"labels": {"a": "b"}}})
    assert "" == patch({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    changed = {"template": {"metadata": {"labels": {"c": "d"}}}}
    assert REFUSED in patch({"spec": {"pytorchReplicaSpecs": {"Worker": changed}}})
    installed.cluster.kubectl("delete", "pytorchjob/old", "-n", TEAM, "--wait=false")
    assert "" == patch(
        {"spec": {"pytorchReplicaSpecs": {"Worker": changed}}, "metadata": {"finalizers": None}}
    )
