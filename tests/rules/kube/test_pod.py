"""Pods and pod templates are found in every supported kind and read by container."""

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
    """The path is a path in the object of the request."""
    assert {path: TEMPLATE} == WORKLOADS.templates_of(group, kind, nested(path, TEMPLATE))


def test_all_templates_of_an_object_are_found() -> None:
    """In lists and maps, in order."""
    document = {"spec": {"workerGroupSpecs": [{"template": {"a": 1}}, {}, {"template": {"b": 1}}]}}

    assert {
        ("spec", "workerGroupSpecs", 0, "template"): {"a": 1},
        ("spec", "workerGroupSpecs", 2, "template"): {"b": 1},
    } == WORKLOADS.templates_of("ray.io", "RayCluster", document)


@pytest.mark.parametrize("document", [{}, {"spec": None}, {"spec": {}}, {"spec": {"template": None}}])
def test_an_absent_template_is_skipped(document: Any) -> None:
    """Null is absent."""
    assert {} == WORKLOADS.templates_of("apps", "Deployment", document)


@pytest.mark.parametrize(
    ("group", "kind"), [("", "Service"), ("apps", "Pod"), ("extensions", "Job"), ("", "Deployment")]
)
def test_an_unlisted_kind_has_no_pods(group: str, kind: str) -> None:
    """A kind is identified together with its API group."""
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
def test_an_object_that_does_not_match_its_kind_is_an_error(kind: str, document: Any, message: str) -> None:
    """The message has the path and the expected type."""
    with pytest.raises(ObjectError) as caught:
        WORKLOADS.templates_of("apps", kind, document)

    assert message == str(caught.value)


def test_a_string_instead_of_a_map_of_templates_is_an_error() -> None:
    """Replica specs can be a list or a map, not a string."""
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
def test_a_malformed_pod_is_an_error(document: Any, message: str) -> None:
    """The message has the path and the expected type."""
    with pytest.raises(ObjectError) as caught:
        Pod(document, document)

    assert message == str(caught.value)


def test_a_template_that_is_not_an_object_is_an_error_with_its_path() -> None:
    """The path is a path in the workload."""
    with pytest.raises(ObjectError) as caught:
        Pod({"spec": {"template": 1}}, 1, ("spec", "template"))

    assert "spec.template: expected an object, got a number" == str(caught.value)


def test_containers_have_their_kubernetes_kind() -> None:
    """A sidecar is an init container with restartPolicy Always; a regular container stays regular."""
    document = pod(
        container(name="main", restartPolicy="Always"),
        initContainers=[container(name="setup"), container(name="proxy", restartPolicy="Always")],
        ephemeralContainers=[container(name="debug")],
    )
    pod_object = Pod(document, document)

    assert {
        "main": "container",
        "setup": "init container",
        "proxy": "sidecar",
        "debug": "ephemeral container",
    } == {
        read_container.name: read_container.kind
        for read_container in (*pod_object.containers, *pod_object.ephemeral_containers)
    }


@pytest.mark.parametrize(
    "absent", [{}, {"resources": None}, {"resources": {"limits": None, "requests": None}}]
)
def test_absent_resources_read_as_empty(absent: dict[str, Any]) -> None:
    """Null is absent."""
    document = pod({"name": "main"} | absent)
    (container_document,) = Pod(document, document).containers

    assert ({}, {}) == (container_document.limits, container_document.requests)


def test_a_container_without_a_name_is_named_by_its_path() -> None:
    """So that a message can name it; an image that is not a string reads as empty."""
    document = pod({"image": 7})
    (container_document,) = Pod(document, document).containers

    assert ("spec.containers[0]", "") == (container_document.name, container_document.image)


@pytest.mark.parametrize(
    ("name", "limit", "request_", "effective"),
    [
        (DEVICE, None, None, None),
        (DEVICE, "2", None, "2"),
        (DEVICE, None, "1", "1"),
        (DEVICE, "1", "2", "1"),
        ("cpu", "2", None, "2"),
        ("cpu", "2", "1", "1"),
        ("a.kubernetes.io/device", "2", "1", "1"),
    ],
)
def test_the_limit_of_an_extended_resource_takes_precedence_over_its_request(
    name: str, limit: str | None, request_: str | None, effective: str | None
) -> None:
    """The API server denies another request; a request of any other resource may be lower than the limit."""
    document = pod(container({name: limit}, {name: request_}))
    (container_document,) = Pod(document, document).containers

    assert effective == container_document.request(name)


def _edited() -> tuple[Pod, Container]:
    document = pod(container({DEVICE: "1"}, env=[{"name": "A", "value": "1"}]))
    pod_object = Pod(document, document)
    return pod_object, pod_object.containers[0]


def test_an_injected_quantity_is_visible_to_later_reads() -> None:
    """The next rule reads the result of this one."""
    _, main = _edited()
    main.set_resource("requests", DEVICE, "1")

    assert {DEVICE: "1"} == main.requests


def test_env_is_read_after_the_edits() -> None:
    """Appended and replaced entries, in order."""
    _, main = _edited()
    main.append("env", entry={"name": "B"})
    main.replace_variable({"name": "A", "value": "2"})

    assert [{"name": "A", "value": "2"}, {"name": "B"}] == main.env


def test_variables_are_read_after_the_edits() -> None:
    """Also if they were read before the edits."""
    _, main = _edited()
    before = dict(main.variables)
    main.append("volumeMounts", entry={"name": "v", "mountPath": "/v"})
    main.append("env", entry={"name": "B"})
    appended = dict(main.variables)
    main.replace_variable({"name": "A", "value": "2"})

    first, second, replaced = {"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}
    assert [{"A": first}, {"A": first, "B": second}, {"A": replaced, "B": second}] == [
        before,
        appended,
        main.variables,
    ]


def test_an_injected_variable_may_be_set() -> None:
    """By its name, and by a part of it."""
    document = pod(container({}, env=[{"name": "A_B"}]))
    (read,) = Pod(document, document).containers
    before = [read.may_set(["A_B"], "x"), read.may_set([], "_B"), read.may_set(["B"], "C")]
    read.append("env", entry={"name": "C_D", "value": "1"})

    assert [True, True, False] == before
    assert [True, True] == [read.may_set(["C_D"], "x"), read.may_set([], "_D")]


def test_the_last_entry_of_a_variable_counts_and_is_replaced() -> None:
    """As in Kubernetes; the others stay where they are."""
    same = {"name": "A", "value": "1"}
    document = pod(container({DEVICE: "1"}, env=[same, {"name": "B"}, dict(same), {"name": "C"}]))
    (main,) = Pod(document, document).containers
    main.replace_variable({"name": "A", "value": "2"})

    assert [same, {"name": "B"}, {"name": "A", "value": "2"}, {"name": "C"}] == main.env


@pytest.mark.parametrize(
    "malformed", [None, 1, "A", ["name"], {}, {"name": None}, {"name": 1}, {"name": ["A"]}, {"name": ""}]
)
def test_an_env_entry_without_a_name_is_no_variable(malformed: Any) -> None:
    """The API server denies it."""
    document = pod(container({DEVICE: "1"}, env=[{"name": "A"}, malformed, {"name": "B"}]))
    (main,) = Pod(document, document).containers

    assert {"A": {"name": "A"}, "B": {"name": "B"}} == main.variables


def test_the_spec_is_read_after_the_edits() -> None:
    """Also of a pod spec without a template."""
    edited, _ = _edited()
    edited.set("spec", "hostIPC", value=True)
    alone = {"containers": [], "hostIPC": False}

    assert (True, False) == (edited.spec["hostIPC"], Pod(alone, alone).spec["hostIPC"])


def test_the_users_of_a_pod_request_extended_resources() -> None:
    """By limit or request, including init containers."""
    asking = [{"limits": {DEVICE: "1"}}, {"requests": {DEVICE: "1"}}, {"limits": {"cpu": "1"}}, {}]
    document = pod(*(container(name=f"c{at}", **resources) for at, resources in enumerate(asking)))
    document["spec"]["initContainers"] = [container({DEVICE: "1"}, name="init")]

    assert ["c0", "c1", "init"] == [user.name for user in Pod(document, document).users]


def test_fields_of_the_pod_are_read_after_the_edits() -> None:
    """Set and appended, including labels and annotations."""
    edited, _ = _edited()
    edited.set("metadata", "labels", "a", value="b")
    edited.set("metadata", "annotations", "c", value="d")
    edited.append("spec", "volumes", entry={"name": "v"})

    assert ("b", [{"name": "v"}], {"a": "b"}, {"c": "d"}) == (
        edited.get("metadata", "labels", "a"),
        edited.entries("spec", "volumes"),
        edited.labels,
        edited.annotations,
    )


def test_labels_and_annotations_that_are_not_strings_are_skipped() -> None:
    """Callers compare strings."""
    document = pod(metadata={"labels": {"a": 1, "b": "x"}, "annotations": []})
    pod_object = Pod(document, document)

    assert ({"b": "x"}, {}) == (pod_object.labels, pod_object.annotations)


def test_edits_of_a_template_have_their_path_in_the_workload() -> None:
    """One document can have many templates."""
    document = {"spec": {"template": TEMPLATE}}
    pod_object = Pod(document, TEMPLATE, ("spec", "template"))
    pod_object.set("spec", "hostIPC", value=True)

    assert ["/spec/template/spec/hostIPC"] == [
        operation["path"] for operation in pod_object.recorder.operations
    ]


@pytest.mark.parametrize(
    ("fields", "target"),
    [({}, ""), ({"targetContainerName": "main"}, "main"), ({"targetContainerName": 1}, "")],
)
def test_an_ephemeral_container_can_have_a_target(fields: dict[str, Any], target: str) -> None:
    """The target is optional in Kubernetes."""
    document = pod(ephemeralContainers=[container(name="debug") | fields])
    (ephemeral_container,) = Pod(document, document).ephemeral_containers

    assert target == ephemeral_container.target


def test_env_from_that_is_not_a_list_is_an_error() -> None:
    """It is read only if a rule injects variables."""
    document = pod(container({DEVICE: "1"}, envFrom={}))
    (container_document,) = Pod(document, document).containers
    with pytest.raises(ObjectError) as caught:
        _ = container_document.env_from

    assert "spec.containers[0].envFrom: expected a list, got an object" == str(caught.value)


def test_a_pod_spec_without_a_template_contains_its_labels() -> None:
    """As in an InferenceService; edits and messages have its path."""
    predictor = {"labels": {"a": "b"}, "containers": [container({DEVICE: "1"})], "minReplicas": 1}
    pod_object = Pod({"spec": {"predictor": predictor}}, predictor, ("spec", "predictor"))
    pod_object.set("spec", "hostIPC", value=True)
    pod_object.set("metadata", "annotations", "c", value="d")

    assert {"a": "b"} == pod_object.labels
    assert ("spec", "predictor", "containers", 0) == pod_object.containers[0].path
    assert ["/spec/predictor/hostIPC", "/spec/predictor/annotations"] == [
        operation["path"] for operation in pod_object.recorder.operations
    ]


def test_a_configuration_adds_kinds_and_paths() -> None:
    """Built-in kinds stay."""
    text = "argoproj.io: {Rollout: [spec.template]}\nray.io: {RayJob: [spec.more.*.template]}"
    added, errors = read_workloads([("kinds.yaml", text)])
    extended = WORKLOADS | added
    job = {"spec": {"submitterPodTemplate": TEMPLATE, "more": [{"template": TEMPLATE}]}}

    assert [] == errors
    assert {("spec", "template"): TEMPLATE} == extended.templates_of(
        "argoproj.io", "Rollout", {"spec": {"template": TEMPLATE}}
    )
    assert [("spec", "submitterPodTemplate"), ("spec", "more", 0, "template")] == list(
        extended.templates_of("ray.io", "RayJob", job)
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
                "k.yaml:3:7: [x.io].Job[0]: expected dot-separated names, with * for every member,"
                " got 'spec.tasks[*].template' – did you mean 'spec.tasks.*.template'?"
            ),
        ),
        ("x.io: {Job: [a.*.b.*.c]}", "k.yaml:1:14: [x.io].Job[0]: expected * at most once, got 'a.*.b.*.c'"),
        ("x.io: {Job: [a]}\nx.io: {Job: [a]}", "k.yaml:2:1: duplicate key 'x.io': remove one of them"),
        (
            "x.io: {Job: [a]",
            (
                "k.yaml:2:1: not YAML: while parsing a flow mapping did not find expected ',' or '}'; "
                "close each [ and {, and quote a value that begins with one"
            ),
        ),
    ],
)
def test_an_error_in_a_configuration_has_its_location(text: str, message: str) -> None:
    """And a suggestion if there is one."""
    _, errors = read_workloads([("k.yaml", text)])

    assert [message] == [str(error) for error in errors]
