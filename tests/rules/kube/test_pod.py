"""Pods and pod templates are found in every kind that has them, and read container by container."""

from __future__ import annotations

from typing import Any

import pytest

from rules.kube.json_patch import ObjectError
from rules.kube.pod import Container, Pod
from rules.model.workload_kinds import built_in_workloads
from rules.schema.workload_kinds import read_workloads
from rules.text.paths import Path
from tests.support.builders import DEVICE, container, nested, pod

WORKLOADS = built_in_workloads()
TEMPLATE: dict[str, Any] = {"spec": {"containers": [container({DEVICE: "1"})]}}


@pytest.mark.parametrize(
    ("group", "kind", "path"),
    [
        ("", "Pod", ()),
        ("", "PodTemplate", ("template",)),
        ("", "ReplicationController", ("spec", "template")),
        ("apps", "Deployment", ("spec", "template")),
        ("apps", "StatefulSet", ("spec", "template")),
        ("apps", "DaemonSet", ("spec", "template")),
        ("apps", "ReplicaSet", ("spec", "template")),
        ("batch", "Job", ("spec", "template")),
        ("batch", "CronJob", ("spec", "jobTemplate", "spec", "template")),
        ("batch.volcano.sh", "Job", ("spec", "tasks", 0, "template")),
        ("jobset.x-k8s.io", "JobSet", ("spec", "replicatedJobs", 0, "template", "spec", "template")),
        ("kubeflow.org", "JAXJob", ("spec", "jaxReplicaSpecs", "Worker", "template")),
        ("kubeflow.org", "MPIJob", ("spec", "mpiReplicaSpecs", "Worker", "template")),
        ("kubeflow.org", "Notebook", ("spec", "template")),
        ("kubeflow.org", "PaddleJob", ("spec", "paddleReplicaSpecs", "Worker", "template")),
        ("kubeflow.org", "PyTorchJob", ("spec", "pytorchReplicaSpecs", "Master", "template")),
        ("kubeflow.org", "TFJob", ("spec", "tfReplicaSpecs", "PS", "template")),
        ("kubeflow.org", "XGBoostJob", ("spec", "xgbReplicaSpecs", "Worker", "template")),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", ("spec", "leaderWorkerTemplate", "workerTemplate")),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", ("spec", "leaderWorkerTemplate", "leaderTemplate")),
        ("ray.io", "RayCluster", ("spec", "headGroupSpec", "template")),
        ("ray.io", "RayCluster", ("spec", "workerGroupSpecs", 0, "template")),
        ("ray.io", "RayJob", ("spec", "rayClusterSpec", "workerGroupSpecs", 0, "template")),
        ("ray.io", "RayJob", ("spec", "submitterPodTemplate")),
        ("serving.kserve.io", "InferenceService", ("spec", "predictor")),
        ("serving.kserve.io", "InferenceService", ("spec", "transformer")),
        ("serving.kserve.io", "InferenceService", ("spec", "explainer")),
        ("ray.io", "RayService", ("spec", "rayClusterConfig", "headGroupSpec", "template")),
    ],
)
def test_the_pod_template_of_a_kind_is_found(group: str, kind: str, path: Path) -> None:
    """The path leads into the object as it was sent."""
    assert {path: TEMPLATE} == WORKLOADS.templates_of(group, kind, nested(path, TEMPLATE))


def test_all_templates_of_an_object_are_found() -> None:
    """In lists and in maps, in their order."""
    document = {"spec": {"workerGroupSpecs": [{"template": {"a": 1}}, {}, {"template": {"b": 1}}]}}

    assert {
        ("spec", "workerGroupSpecs", 0, "template"): {"a": 1},
        ("spec", "workerGroupSpecs", 2, "template"): {"b": 1},
    } == WORKLOADS.templates_of("ray.io", "RayCluster", document)


@pytest.mark.parametrize("document", [{}, {"spec": None}, {"spec": {}}, {"spec": {"template": None}}])
def test_an_absent_template_is_no_template(document: Any) -> None:
    """Null is absent."""
    assert {} == WORKLOADS.templates_of("apps", "Deployment", document)


@pytest.mark.parametrize(
    ("group", "kind"), [("", "Service"), ("apps", "Pod"), ("extensions", "Deployment"), ("", "Deployment")]
)
def test_a_kind_that_is_not_listed_holds_no_pods(group: str, kind: str) -> None:
    """The API group belongs to a kind's name."""
    assert (False, {}) == (
        WORKLOADS.holds_pods(group, kind),
        WORKLOADS.templates_of(group, kind, {"spec": {"template": TEMPLATE}}),
    )


@pytest.mark.parametrize(
    ("kind", "document", "message"),
    [
        ("Deployment", {"spec": []}, "spec: expected an object, got a list"),
        ("Deployment", {"spec": "x"}, "spec: expected an object, got a string"),
    ],
)
def test_an_object_that_is_not_shaped_as_its_kind_is_refused(kind: str, document: Any, message: str) -> None:
    """The message says where and what."""
    with pytest.raises(ObjectError) as caught:
        WORKLOADS.templates_of("apps", kind, document)

    assert message == str(caught.value)


def test_members_of_what_is_no_object_are_refused() -> None:
    """Replica specs may be a list or a map, not a text."""
    with pytest.raises(ObjectError) as caught:
        WORKLOADS.templates_of("kubeflow.org", "TFJob", {"spec": {"tfReplicaSpecs": "x"}})

    assert "spec.tfReplicaSpecs: expected an object, got a string" == str(caught.value)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"metadata": []}, "metadata: expected an object, got a list"),
        ({"spec": "x"}, "spec: expected an object, got a string"),
        ({"spec": {"containers": {}}}, "spec.containers: expected a list, got an object"),
        ({"spec": {"containers": [1]}}, "spec.containers[0]: expected an object, got a number"),
        (
            {"spec": {"initContainers": [{"resources": []}]}},
            "spec.initContainers[0].resources: expected an object, got a list",
        ),
        (
            {"spec": {"containers": [{}, {"resources": {"limits": "x"}}]}},
            "spec.containers[1].resources.limits: expected an object, got a string",
        ),
        (
            {"spec": {"containers": [{"resources": {"requests": [1]}}]}},
            "spec.containers[0].resources.requests: expected an object, got a list",
        ),
    ],
)
def test_a_pod_that_is_not_shaped_as_one_is_refused(document: Any, message: str) -> None:
    """The message says where and what."""
    with pytest.raises(ObjectError) as caught:
        Pod(document, document)

    assert message == str(caught.value)


def test_a_template_that_is_no_object_is_refused_with_its_path() -> None:
    """The path leads into the workload."""
    with pytest.raises(ObjectError) as caught:
        Pod({"spec": {"template": 1}}, 1, ("spec", "template"))

    assert "spec.template: expected an object, got a number" == str(caught.value)


def test_containers_are_told_by_how_kubernetes_runs_them() -> None:
    """A sidecar is an init container that restarts always; a regular one may say so and stays regular."""
    document = pod(
        container(name="main", restartPolicy="Always"),
        initContainers=[container(name="setup"), container(name="proxy", restartPolicy="Always")],
        ephemeralContainers=[container(name="debug")],
    )
    found = Pod(document, document)

    assert {
        "main": "container",
        "setup": "init container",
        "proxy": "sidecar",
        "debug": "ephemeral container",
    } == {each.name: each.kind for each in (*found.containers, *found.ephemeral_containers)}


@pytest.mark.parametrize(
    "absent", [{}, {"resources": None}, {"resources": {"limits": None, "requests": None}}]
)
def test_absent_resources_read_as_none(absent: dict[str, Any]) -> None:
    """Null is absent."""
    document = pod({"name": "main"} | absent)
    (found,) = Pod(document, document).containers

    assert ({}, {}) == (found.limits, found.requests)


def test_a_container_without_a_name_is_called_by_its_place() -> None:
    """So that a message can name it; what is no text is no image."""
    document = pod({"image": 7})
    (found,) = Pod(document, document).containers

    assert ("spec.containers[0]", "") == (found.name, found.image)


@pytest.mark.parametrize(
    ("limits", "requests", "effective"),
    [({}, {}, None), ({DEVICE: "2"}, {}, "2"), ({DEVICE: "2"}, {DEVICE: "1"}, "1"), ({}, {DEVICE: "1"}, "1")],
)
def test_the_request_of_a_resource_is_its_limit_where_it_is_absent(
    limits: dict[str, str], requests: dict[str, str], effective: str | None
) -> None:
    """As the API server will have it."""
    document = pod(container(limits, requests))
    (found,) = Pod(document, document).containers

    assert effective == found.request(DEVICE)


def _edited() -> tuple[Pod, Container]:
    document = pod(container({DEVICE: "1"}, env=[{"name": "A", "value": "1"}]))
    found = Pod(document, document)
    return found, found.containers[0]


def test_a_quantity_that_is_put_in_is_read_from_then_on() -> None:
    """The next rule judges what this one has done."""
    _, main = _edited()
    main.set_resource("requests", DEVICE, "1")

    assert {DEVICE: "1"} == main.requests


def test_env_is_read_after_the_edits() -> None:
    """Appended and replaced entries, in order."""
    _, main = _edited()
    main.append("env", {"name": "B"})
    main.replace_env(0, {"name": "A", "value": "2"})

    assert [{"name": "A", "value": "2"}, {"name": "B"}] == main.env


def test_names_of_variables_are_read_after_the_edits() -> None:
    """They were read before too."""
    _, main = _edited()
    before = main.variables
    main.append("volumeMounts", {"name": "v", "mountPath": "/v"})
    main.append("env", {"name": "B"})
    appended = main.variables
    main.replace_env(0, {"name": "C"})

    assert [["A"], ["A", "B"], ["C", "B"]] == [before, appended, main.variables]


@pytest.mark.parametrize("odd", [None, 1, "A", ["name"], {}, {"name": None}, {"name": 1}, {"name": ["A"]}])
def test_an_entry_of_env_without_a_name_has_its_place_among_the_names(odd: Any) -> None:
    """The API server refuses it; what stands behind keeps its number."""
    document = pod(container({DEVICE: "1"}, env=[{"name": "A"}, odd, {"name": "B"}]))

    assert ["A", "", "B"] == Pod(document, document).containers[0].variables


def test_the_spec_is_read_after_the_edits() -> None:
    """Also where it stands alone."""
    found, _ = _edited()
    found.set("spec", "hostIPC", value=True)
    alone = {"containers": [], "hostIPC": False}

    assert (True, False) == (found.spec["hostIPC"], Pod(alone, alone).spec["hostIPC"])


def test_the_users_of_a_pod_ask_for_extended_resources() -> None:
    """By limit or request, init containers too."""
    asking = [{"limits": {DEVICE: "1"}}, {"requests": {DEVICE: "1"}}, {"limits": {"cpu": "1"}}, {}]
    document = pod(*(container(name=f"c{at}", **asked) for at, asked in enumerate(asking)))
    document["spec"]["initContainers"] = [container({DEVICE: "1"}, name="init")]

    assert ["c0", "c1", "init"] == [each.name for each in Pod(document, document).users]


def test_fields_of_the_pod_are_read_after_the_edits() -> None:
    """Set and appended, labels and annotations too."""
    found, _ = _edited()
    found.set("metadata", "labels", "a", value="b")
    found.set("metadata", "annotations", "c", value="d")
    found.append("spec", "volumes", entry={"name": "v"})

    assert ("b", [{"name": "v"}], {"a": "b"}, {"c": "d"}) == (
        found.get("metadata", "labels", "a"),
        found.entries("spec", "volumes"),
        found.labels,
        found.annotations,
    )


def test_labels_and_annotations_that_are_no_text_are_passed_over() -> None:
    """Whoever compares texts gets texts."""
    document = pod(metadata={"labels": {"a": 1, "b": "x"}, "annotations": []})
    found = Pod(document, document)

    assert ({"b": "x"}, {}) == (found.labels, found.annotations)


def test_edits_of_a_template_are_at_their_place_in_the_workload() -> None:
    """One document, many templates."""
    document = {"spec": {"template": TEMPLATE}}
    found = Pod(document, TEMPLATE, ("spec", "template"))
    found.set("spec", "hostIPC", value=True)

    assert ["/spec/template/spec/hostIPC"] == [operation["path"] for operation in found.recorder.operations]


@pytest.mark.parametrize(
    ("fields", "target"),
    [({}, ""), ({"targetContainerName": "main"}, "main"), ({"targetContainerName": 1}, "")],
)
def test_an_ephemeral_container_has_a_target_where_it_names_one(fields: dict[str, Any], target: str) -> None:
    """Kubernetes lets it name none."""
    document = pod(ephemeralContainers=[container(name="debug") | fields])
    (found,) = Pod(document, document).ephemeral_containers

    assert target == found.target


def test_env_from_that_is_no_list_is_refused() -> None:
    """It is read only where a rule puts variables in."""
    document = pod(container({DEVICE: "1"}, envFrom={}))
    (found,) = Pod(document, document).containers
    with pytest.raises(ObjectError) as caught:
        _ = found.env_from

    assert "spec.containers[0].envFrom: expected a list, got an object" == str(caught.value)


def test_a_pod_spec_without_a_template_has_its_labels_in_it() -> None:
    """As in an InferenceService; edits and messages are at its own place."""
    predictor = {"labels": {"a": "b"}, "containers": [container({DEVICE: "1"})], "minReplicas": 1}
    found = Pod({"spec": {"predictor": predictor}}, predictor, ("spec", "predictor"))
    found.set("spec", "hostIPC", value=True)
    found.set("metadata", "annotations", "c", value="d")

    assert {"a": "b"} == found.labels
    assert ("spec", "predictor", "containers", 0) == found.containers[0].path
    assert ["/spec/predictor/hostIPC", "/spec/predictor/annotations"] == [
        operation["path"] for operation in found.recorder.operations
    ]


def test_a_configuration_adds_kinds_and_paths() -> None:
    """Those that ship stay."""
    text = "argoproj.io: {Rollout: [spec.template]}\nray.io: {RayJob: [spec.more.*.template]}"
    added, errors = read_workloads([("kinds.yaml", text)])
    found = WORKLOADS | added
    job = {"spec": {"submitterPodTemplate": TEMPLATE, "more": [{"template": TEMPLATE}]}}

    assert [] == errors
    assert {("spec", "template"): TEMPLATE} == found.templates_of(
        "argoproj.io", "Rollout", {"spec": {"template": TEMPLATE}}
    )
    assert [("spec", "submitterPodTemplate"), ("spec", "more", 0, "template")] == list(
        found.templates_of("ray.io", "RayJob", job)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- x", "k.yaml:1:1: expected an object of API groups, got a list"),
        (
            "apps/v1: {}",
            (
                "k.yaml:1:1: [apps/v1]: expected an API group without its version, got 'apps/v1'"
                " – did you mean 'apps'?"
            ),
        ),
        ("x.io: [Job]", "k.yaml:1:1: [x.io]: expected an object of kinds, got a list"),
        (
            "x.io: {pytorchjobs: [spec]}",
            (
                "k.yaml:1:8: [x.io].pytorchjobs: expected a kind, such as PyTorchJob, got 'pytorchjobs'"
                " – did you mean 'PyTorchJob'?"
            ),
        ),
        (
            "x.io:\n  Job: spec.template",
            "k.yaml:2:8: [x.io].Job: expected a list of paths, such as [spec.template], got a string",
        ),
        (
            "x.io: {Job: [1]}",
            "k.yaml:1:14: [x.io].Job[0]: expected a path, such as spec.template, got a number",
        ),
        (
            "x.io:\n  Job:\n    - spec.tasks[*].template",
            (
                "k.yaml:3:7: [x.io].Job[0]: expected names parted by dots, and * for every member,"
                " got 'spec.tasks[*].template' – did you mean 'spec.tasks.*.template'?"
            ),
        ),
        ("x.io: {Job: [a.*.b.*.c]}", "k.yaml:1:14: [x.io].Job[0]: expected * at most once, got 'a.*.b.*.c'"),
        ("x.io: {Job: [a]}\nx.io: {Job: [a]}", "k.yaml:2:1: duplicate key 'x.io': remove one of them"),
        (
            "x.io: {Job: [a]",
            "k.yaml:2:1: not YAML: while parsing a flow mapping did not find expected ',' or '}'",
        ),
    ],
)
def test_a_mistake_in_a_configuration_is_told_with_its_place(text: str, message: str) -> None:
    """And with what was meant, where that can be guessed."""
    _, errors = read_workloads([("k.yaml", text)])

    assert [message] == [str(error) for error in errors]
