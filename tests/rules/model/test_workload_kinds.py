"""The pods of each kind are found, also in shapes of its own."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.pipeline import Snapshot, decide
from rules.kube.pod import Pod
from rules.model.decision import AdmissionRequest
from rules.model.workload_kinds import EVERY, built_in_workloads
from rules.text.paths import field_path
from tests.support.builders import (
    DEVICE,
    NO_NODES,
    container,
    nested,
    pod,
    policy,
    resource_rule,
    warning_texts,
)

WORKLOADS = built_in_workloads()
GROUPS = {
    "AppWrapper": "workload.codeflare.dev",
    "CronWorkflow": "argoproj.io",
    "DaskCluster": "kubernetes.dask.org",
    "DynamoGraphDeployment": "nvidia.com",
    "Experiment": "kubeflow.org",
    "InferenceService": "serving.kserve.io",
    "NIMService": "apps.nvidia.com",
    "TrainJob": "trainer.kubeflow.org",
    "Workflow": "argoproj.io",
}
GPU: dict[str, Any] = container({DEVICE: "150"})
AT_MOST_100 = resource_rule(validations=[{"expression": "value <= 100"}])


def request(kind: str, spec: dict[str, Any], **metadata: Any) -> AdmissionRequest:
    """Return the creation of an object of a kind in GROUPS."""
    document = {"kind": kind, "metadata": metadata, "spec": spec}
    return AdmissionRequest("CREATE", GROUPS[kind], kind, "team", document, mutating=False)


def pods(review: AdmissionRequest) -> list[Pod]:
    """Return the pods in the object of a request."""
    document = review.object or {}
    places = WORKLOADS.pods_of(review.group, review.kind, document)
    return [Pod(document, raw, path, others) for path, (raw, others) in places.items()]


@pytest.mark.parametrize(
    "kind", [kind for kind, paths in sorted(WORKLOADS.paths.items()) if any(paths)], ids="/".join
)
def test_each_path_of_a_kind_leads_to_its_pod(kind: tuple[str, str]) -> None:
    """With members of a map or a list for `*`."""
    for steps in WORKLOADS.paths[kind]:
        for member in ("name", 0):
            path = tuple(member if step == EVERY else step for step in steps)

            assert pod() == WORKLOADS.templates_of(*kind, nested(path, pod()))[path]


@pytest.mark.parametrize(
    ("kind", "spec", "place"),
    [
        ("InferenceService", {"predictor": {"model": GPU}}, "spec.predictor.model.resources"),
        ("TrainJob", {"trainer": {"resourcesPerNode": GPU["resources"]}}, "spec.trainer.resourcesPerNode"),
        ("NIMService", {"resources": GPU["resources"]}, "spec.resources"),
        ("Workflow", {"templates": [{"container": GPU}]}, "spec.templates[0].container.resources"),
        ("Workflow", {"templates": [{"script": GPU}]}, "spec.templates[0].script.resources"),
        (
            "CronWorkflow",
            {"workflowSpec": {"templates": [{"sidecars": [{}, GPU]}]}},
            "spec.workflowSpec.templates[0].sidecars[1].resources",
        ),
        (
            "DynamoGraphDeployment",
            {"services": {"Decode": {"extraPodSpec": {"mainContainer": GPU}}}},
            "spec.services.Decode.extraPodSpec.mainContainer.resources",
        ),
        (
            "DaskCluster",
            {"worker": {"spec": {"containers": [GPU]}}},
            "spec.worker.spec.containers[0].resources",
        ),
    ],
)
def test_a_container_is_checked_where_its_kind_has_it(kind: str, spec: dict[str, Any], place: str) -> None:
    """The violation has the path in the object, and nothing is changed."""
    rules = policy(AT_MOST_100)
    (violation,) = decide(Snapshot(rules, NO_NODES), request(kind, spec)).violations

    assert f"{place}.limits[{DEVICE}]" == violation.path


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("AppWrapper", "components.0.template", "spec.components[0].template.spec.template"),
        (
            "AppWrapper",
            "resources.GenericItems.0.generictemplate",
            "spec.resources.GenericItems[0].generictemplate.spec.template",
        ),
        ("Experiment", "trialTemplate.trialSpec", "spec.trialTemplate.trialSpec.spec.template"),
    ],
)
def test_the_pods_of_a_wrapped_object_are_found_by_its_own_kind(kind: str, spec: str, path: str) -> None:
    """In the outer object."""
    wrapped = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": pod(GPU)}}
    steps = tuple(int(step) if step.isdigit() else step for step in spec.split("."))
    (pod_object,) = pods(request(kind, nested(steps, wrapped)))

    assert path == field_path(pod_object.path)


def test_the_image_of_a_nim_service_is_its_repository_and_tag() -> None:
    """As its operator joins them."""
    spec = {"image": {"repository": "nvcr.io/nim/x", "tag": "1.0"}}
    (pod_object,) = pods(request("NIMService", spec))

    assert ["nvcr.io/nim/x:1.0"] == [container_document.image for container_document in pod_object.containers]


def test_a_pod_that_a_runtime_completes_tolerates_all_taints() -> None:
    """The runtime may add tolerations."""
    (partial,) = pods(request("TrainJob", {"trainer": {}, "tolerations": []}))
    (_, complete) = pods(request("InferenceService", {"predictor": {}, "transformer": {"containers": [GPU]}}))

    assert [(True, [{"operator": "Exists"}]), (False, None)] == [
        (workload_pod.partial, workload_pod.spec.get("tolerations")) for workload_pod in (partial, complete)
    ]


def test_a_quantity_that_a_workflow_fills_in_is_not_checked() -> None:
    """Others of the container are."""
    quantities = {DEVICE: "{{inputs.parameters.gpus}}", "example.com/other": "1"}
    (pod_object,) = pods(request("Workflow", {"templates": [{"container": container(quantities)}]}))

    assert [("example.com/other",)] == [user.names for user in pod_object.users]


def test_the_metadata_of_a_pod_spec_may_be_in_it_or_apart() -> None:
    """KServe has labels in the pod spec, Argo has metadata."""
    (inline, apart) = (
        *pods(request("InferenceService", {"predictor": {"labels": {"a": "b"}}})),
        *pods(request("Workflow", {"templates": [{"metadata": {"labels": {"a": "b"}}}]})),
    )

    assert {"a": "b"} == inline.labels == apart.labels


@pytest.mark.parametrize(
    ("owner", "checked"),
    [
        ("leaderworkerset.x-k8s.io/v1 LeaderWorkerSet", False),
        ("serving.kserve.io/v1beta1 InferenceService", True),
        ("trainer.kubeflow.org/v1alpha1 TrainJob", True),
        ("workload.codeflare.dev/v1beta2 AppWrapper", True),
        ("apps.nvidia.com/v1alpha1 NIMService", True),
        ("example.com/v1 Unknown", True),
    ],
)
def test_an_object_is_checked_unless_its_owner_was_as_a_whole(owner: str, *, checked: bool) -> None:
    """A controller may have added an image or GPUs."""
    rules = policy(AT_MOST_100)
    version, kind = owner.split()
    owners = [{"apiVersion": version, "kind": kind, "name": "x", "controller": True}]
    document = {"metadata": {"ownerReferences": owners}, "spec": {"template": pod(GPU)}}
    created = AdmissionRequest("CREATE", "apps", "StatefulSet", "team", document, mutating=False)

    assert checked == bool(decide(Snapshot(rules, NO_NODES), created).violations)


@pytest.mark.parametrize("kind", ["ServingRuntime", "ClusterServingRuntime"])
def test_a_template_of_other_objects_is_never_denied(kind: str) -> None:
    """What is created from it is checked as a whole."""
    rules = policy(AT_MOST_100)
    document = {"metadata": {}, "spec": {"containers": [GPU]}}
    decision = decide(
        Snapshot(rules, NO_NODES), AdmissionRequest("CREATE", "serving.kserve.io", kind, "", document)
    )

    assert (True, 1) == (decision.allowed, len(warning_texts(decision)))


@pytest.mark.parametrize(
    ("group", "kind", "spec", "path"),
    [
        ("argoproj.io", "Rollout", {"template": pod(GPU)}, "spec.template.spec"),
        ("keda.sh", "ScaledJob", {"jobTargetRef": {"template": pod(GPU)}}, "spec.jobTargetRef.template.spec"),
        (
            "elastic.pytorch.org",
            "ElasticJob",
            {"replicaSpecs": {"Worker": {"template": pod(GPU)}}},
            "spec.replicaSpecs[Worker].template.spec",
        ),
        (
            "kai.alibabacloud.com",
            "TrainingJob",
            {"etReplicaSpecs": {"worker": {"template": pod(GPU)}}},
            "spec.etReplicaSpecs[worker].template.spec",
        ),
    ],
)
def test_pods_of_owners_outside_kubernetes_are_found(
    group: str, kind: str, spec: dict[str, Any], path: str
) -> None:
    """Where the pods of each are."""
    created = AdmissionRequest("CREATE", group, kind, "team", {"kind": kind, "spec": spec}, mutating=False)
    (violation,) = decide(Snapshot(policy(AT_MOST_100), NO_NODES), created).violations

    assert violation.path.startswith(path.replace("[", ".").replace("]", ""))


def test_the_main_container_of_dynamos_extra_pod_spec_is_found() -> None:
    """In each of the services; the operator adds the rest."""
    main = {key: value for key, value in GPU.items() if key != "name"}
    graph = request("DynamoGraphDeployment", {"services": {"w": {"extraPodSpec": {"mainContainer": main}}}})

    assert ["mainContainer"] == [
        container_document.path[-1] for one in pods(graph) for container_document in one.containers
    ]
