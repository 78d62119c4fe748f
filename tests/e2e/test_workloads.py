"""Workloads are judged as their pods would be: Kubernetes' own, custom ones, and those of a configuration."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rules.load import DEFAULT_NAMESPACE
from rules.workloads import built_in_workloads, read_workloads
from tests.e2e.cluster import ControlPlane
from tests.e2e.test_conditions import create, eventually
from tests.e2e.test_control_plane import pod
from tests.serving import AUTHORITY, HOST, serving
from webhook.app import create_app
from webhook.cli.inputs import RuleSource
from webhook.gate import Gate
from webhook.match_conditions import CONDITION, expression, resources_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# Of this module's own: the other modules share the control plane.
TEAM = "workloads-team"
VCUDA_CORE = "tencent.com/vcuda-core"
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


@pytest.fixture(scope="module", autouse=True)
def _gate(control_plane: ControlPlane) -> Iterator[None]:
    """Serve the shipped rules, with one kind more, under the shipped configurations."""
    more, _ = read_workloads([("kinds.yaml", "example.com: {Train: [spec.steps.*.pod]}")])
    workloads = built_in_workloads() | more
    loaded = RuleSource(DEFAULT_NAMESPACE).load([])
    kinds = [
        ("kubeflow.org", "PyTorchJob"),
        ("serving.kserve.io", "InferenceService"),
        ("example.com", "Train"),
    ]
    definitions = [definition(*kind) for kind in kinds]
    with serving(create_app(Gate(loaded, workloads=workloads), tuple)) as server:
        documents = list(yaml.safe_load_all((ROOT / "manifests/base/webhooks.yaml").read_text("utf-8")))
        for document in documents:
            for webhook in document["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                bundle = b64encode(AUTHORITY.certificate_pem).decode()
                webhook["clientConfig"] = {"url": f"https://{HOST}:{server.port}{path}", "caBundle": bundle}
        validating = documents[1]["webhooks"][0]
        for condition in validating["matchConditions"]:
            if condition["name"] == CONDITION:
                condition["expression"] = expression(resources_of(loaded.rules), workloads)
        validating["rules"].append(
            {
                "apiGroups": ["example.com"],
                "apiVersions": ["*"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["trains"],
            }
        )
        applied = yaml.safe_dump_all([*definitions, *documents])
        control_plane.kubectl("create", "namespace", TEAM)
        control_plane.kubectl("apply", "-f", "-", input=applied)
        control_plane.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
        eventually(lambda: REFUSED in create(control_plane, pod("bad", {VCUDA_CORE: "150"}), TEAM))
        yield
        control_plane.kubectl("delete", "-f", "-", "--wait=false", input=applied)


def template(cores: str) -> dict[str, Any]:
    """Return a pod template that asks for so much of a GPU."""
    spec = json.loads(pod("x", {VCUDA_CORE: cores, "tencent.com/vcuda-memory": "8"}))["spec"]
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
    control_plane: ControlPlane, kind: str, place: str
) -> None:
    """With the path into it; one whose pods are fine is not, and is stored as it was sent."""
    eventually(
        lambda: "no matches for kind" not in create(control_plane, json.dumps(workload(kind, "20")), TEAM)
    )
    asked = ("create", "-n", TEAM, "--dry-run=server", "-o", "json", "-f", "-")
    stored = json.loads(control_plane.kubectl(*asked, input=json.dumps(workload(kind, "20"))).stdout)

    assert f"{place}.containers[0].{REFUSED}" in create(
        control_plane, json.dumps(workload(kind, "150")), TEAM
    )
    assert VCUDA_CORE in json.dumps(stored)
    assert "gpugate.dev" not in json.dumps(stored)


def test_what_was_stored_before_a_rule_is_refused_only_when_its_template_changes(
    control_plane: ControlPlane,
) -> None:
    """It may be scaled, labelled and finished."""
    name = "validatingwebhookconfiguration/gpugate"
    stored = control_plane.kubectl("get", name, "-o", "json").stdout
    control_plane.kubectl("delete", name)
    document = workload("PyTorchJob", "150", "old")
    document["metadata"]["finalizers"] = ["example.com/held"]
    eventually(lambda: not create(control_plane, json.dumps(document), TEAM))
    control_plane.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(document))
    configuration = json.loads(stored)
    for field in ("resourceVersion", "uid", "creationTimestamp"):
        configuration["metadata"].pop(field)
    control_plane.kubectl("create", "-f", "-", input=json.dumps(configuration))
    eventually(lambda: REFUSED in create(control_plane, json.dumps(document).replace("old", "new"), TEAM))

    def patch(change: dict[str, Any]) -> str:
        asked = ("patch", "pytorchjob/old", "-n", TEAM, "--type=merge", "-p", json.dumps(change))
        return control_plane.kubectl(*asked, check=False).stderr

    assert "" == patch({"metadata": {"labels": {"a": "b"}}})
    assert "" == patch({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    changed = {"template": {"metadata": {"labels": {"c": "d"}}}}
    assert REFUSED in patch({"spec": {"pytorchReplicaSpecs": {"Worker": changed}}})
    control_plane.kubectl("delete", "pytorchjob/old", "-n", TEAM, "--wait=false")
    assert "" == patch(
        {"spec": {"pytorchReplicaSpecs": {"Worker": changed}}, "metadata": {"finalizers": None}}
    )
