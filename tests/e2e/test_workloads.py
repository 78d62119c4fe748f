"""Workloads are judged as their pods would be: Kubernetes' own, custom ones, and those of a configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.gate import eventually
from tests.e2e.installed import TEAM, VCUDA_CORE, VCUDA_MEMORY, Installation, Installed, running
from tests.e2e.test_control_plane import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

REFUSED = f"resources.limits[{VCUDA_CORE}]: found 150"


def definition(group: str, kind: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind whose objects may hold anything."""
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
    """Yield a gate with one kind more, in a cluster that has it and two that ship, as the page says."""
    cluster, folder = installation.cluster, tmp_path_factory.mktemp("workloads")
    kinds = [
        ("kubeflow.org", "PyTorchJob"),
        ("serving.kserve.io", "InferenceService"),
        ("example.com", "Train"),
    ]
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([definition(*kind) for kind in kinds]))
    cluster.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
    for each in installation.objects:
        if each["kind"] == "ValidatingWebhookConfiguration":
            each["webhooks"][0]["rules"].append(
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
    with running(installation, folder / "serve.log", f"--workloads={path}") as gate:
        yield gate


def template(cores: str) -> dict[str, Any]:
    """Return a pod template that asks for so much of a GPU."""
    spec = json.loads(pod("x", {VCUDA_CORE: cores, VCUDA_MEMORY: "8"}))["spec"]
    return {"metadata": {"labels": {"a": "b"}}, "spec": spec}


def workload(kind: str, cores: str, name: str = "train") -> dict[str, Any]:
    """Return a workload whose pods ask for so much of a GPU."""
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
def test_a_workload_whose_pods_would_be_refused_is_refused(
    installed: Installed, kind: str, place: str
) -> None:
    """With the path into it; one whose pods are fine is not, and is stored as it was sent."""
    refused = json.dumps(workload(kind, "150"))
    eventually(lambda: f"{place}.containers[0].{REFUSED}" in installed.refusal(refused))
    stored = installed.create(json.dumps(workload(kind, "20")), "--dry-run=server")

    assert isinstance(stored, dict), stored
    assert VCUDA_CORE in json.dumps(stored)
    assert "gpugate.dev" not in json.dumps(stored)


def test_what_was_stored_before_a_rule_is_refused_only_when_its_template_changes(
    installed: Installed,
) -> None:
    """It may be scaled, labelled and finished."""
    installed.cluster.kubectl("delete", "validatingwebhookconfiguration/gpugate")
    document = workload("PyTorchJob", "150", "old")
    document["metadata"]["finalizers"] = ["example.com/held"]
    eventually(lambda: not installed.refusal(json.dumps(document)))
    installed.create(json.dumps(document))
    installed.apply()
    eventually(lambda: REFUSED in installed.refusal(json.dumps(document).replace("old", "new")))

    def patch(change: dict[str, Any]) -> str:
        asked = ("patch", "pytorchjob/old", "-n", TEAM, "--type=merge", "-p", json.dumps(change))
        return installed.cluster.kubectl(*asked, check=False).stderr

    assert "" == patch({"metadata": {"labels": {"a": "b"}}})
    assert "" == patch({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    changed = {"template": {"metadata": {"labels": {"c": "d"}}}}
    assert REFUSED in patch({"spec": {"pytorchReplicaSpecs": {"Worker": changed}}})
    installed.cluster.kubectl("delete", "pytorchjob/old", "-n", TEAM, "--wait=false")
    assert "" == patch(
        {"spec": {"pytorchReplicaSpecs": {"Worker": changed}}, "metadata": {"finalizers": None}}
    )
