"""Match conditions on a real API server: they select only pods that request accelerators."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from certs.ca_bundle import KINDS
from rules.model.workload_kinds import built_in_workloads
from rules.schema.config_map import Loaded
from tests.e2e.cluster import ControlPlane
from tests.e2e.manifests import MANIFESTS
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node, pod
from tests.support.builders import loaded, resource_rule
from webhook.admission.handler import AdmissionHandler
from webhook.cli.inputs.session import Session
from webhook.cluster.client import ClusterApi
from webhook.cluster.match_conditions import (
    CONDITION,
    MAX_NAMES_LENGTH,
    MAX_PATTERN_LENGTH,
    expression,
    resources_of,
)
from webhook.cluster.webhook_configuration import REMOVAL_DELAY, WebhookConfigurationSync

# Only for this module: other modules share the control plane.
TEAM = "conditions-team"
DEVICE, OTHER, GPU = "vendor.com/device", "vendor.com/other", "nvidia.com/gpu"
# Seconds in which an edit of a rule is in force.
LIVE_S = 2.0
# A handler, the sync of its match conditions, and the time of that.
Replica = tuple[AdmissionHandler, WebhookConfigurationSync, list[float]]


@pytest.fixture(scope="module", autouse=True)
def _namespace(control_plane: ControlPlane) -> None:
    """Create the namespace of this module, which is deleted with the control plane."""
    control_plane.kubectl("create", "namespace", TEAM)


def built_in_expression() -> str:
    """Return the expression that gpugate writes with the built-in rules."""
    return expression(resources_of(Session().rules), built_in_workloads())


@pytest.fixture
def applied(control_plane: ControlPlane) -> Iterator[Callable[[str], None]]:
    """Apply the manifests, with the webhook unavailable; yields what adds the condition of gpugate."""
    documents = list(yaml.safe_load_all((MANIFESTS / "base/webhooks.yaml").read_text("utf-8")))
    conditions = [document["webhooks"][0]["matchConditions"] for document in documents]
    for document in documents:
        for webhook in document["webhooks"]:
            webhook["clientConfig"] = {"url": "https://127.0.0.1:1/"}

    def write(text: str) -> None:
        for condition in conditions:
            condition[:] = [one for one in condition if one["name"] != CONDITION]
            condition.append({"name": CONDITION, "expression": text})
        control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))

    control_plane.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents))
    eventually(lambda: "failed calling webhook" in create(control_plane, pod("gpu", {GPU: "1"})))
    yield write
    control_plane.kubectl("delete", "-f", "-", input=yaml.safe_dump_all(documents))


@pytest.fixture
def away(applied: Callable[[str], None], control_plane: ControlPlane) -> Callable[[str], None]:
    """Return what writes the condition of gpugate, after that of the built-in rules."""
    applied(built_in_expression())
    eventually(lambda: not create(control_plane, pod("plain", {DEVICE: "1"})))
    return applied


def create(control_plane: ControlPlane, document: str, namespace: str = TEAM) -> str:
    """Return the error of the API server for an object, which is not stored."""
    arguments = ("create", "-n", namespace, "--dry-run=server", "-f", "-")
    return control_plane.kubectl(*arguments, input=document, check=False).stderr


def of_containers(count: int, resources: dict[str, str]) -> str:
    """Return a pod with many containers."""
    document = json.loads(pod("many", resources))
    (main,) = document["spec"]["containers"]
    document["spec"]["containers"] = [main | {"name": f"c{number}"} for number in range(count)]
    return json.dumps(document)


@pytest.mark.usefixtures("away")
def test_with_the_webhook_unavailable_only_requests_for_accelerators_are_denied(
    control_plane: ControlPlane,
) -> None:
    """failurePolicy Fail; the same for Deployments. kube-system is excluded."""
    template = {"metadata": {"labels": {"a": "b"}}, "spec": json.loads(pod("x", {GPU: "1"}))["spec"]}
    deployment: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    plain = json.loads(json.dumps(deployment).replace(GPU, "cpu"))
    denied = "failed calling webhook"

    assert denied in create(control_plane, pod("gpu", {GPU: "1"}))
    assert denied in create(control_plane, json.dumps(deployment))
    assert "" == create(control_plane, pod("plain", {"cpu": "1", "memory": "1Gi"}))
    assert "" == create(control_plane, pod("plain", {"rdma/hca": "1"}))
    assert "" == create(control_plane, json.dumps(plain))
    assert "" == create(control_plane, pod("gpu", {GPU: "1"}), "kube-system")


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(("scheduler", "denied"), [("kai-scheduler", True), ("default-scheduler", False)])
def test_with_the_webhook_unavailable_a_pod_that_requests_a_gpu_by_annotation_is_denied(
    control_plane: ControlPlane, scheduler: str, *, denied: bool
) -> None:
    """If its scheduler may read the annotation; other annotations request nothing."""
    document = json.loads(pod("share", {"cpu": "1"}))
    document["spec"]["schedulerName"] = scheduler
    document["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    other = document | {"metadata": document["metadata"] | {"annotations": {"a": "b"}}}

    assert denied == ("failed calling webhook" in create(control_plane, json.dumps(document)))
    assert "" == create(control_plane, json.dumps(other))


@pytest.mark.needs_kubernetes("1.31")  # before, a claim was named in another field
@pytest.mark.usefixtures("applied")
def test_before_gpugate_writes_its_condition_pods_with_claims_are_denied(control_plane: ControlPlane) -> None:
    """A rule may name the devices that a claim asks for."""
    claiming = json.loads(pod("claims", {"cpu": "1"}))
    claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    claiming["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]

    assert "failed calling webhook" in create(control_plane, json.dumps(claiming))


@pytest.mark.usefixtures("applied")
def test_before_gpugate_writes_its_condition_pods_with_extended_resources_are_denied_and_no_others(
    control_plane: ControlPlane,
) -> None:
    """Rules may name any of them; the resources of the rules are unknown to the API server."""
    denied = "failed calling webhook"

    assert denied in create(control_plane, pod("device", {DEVICE: "1"}))
    assert "" == create(control_plane, pod("plain", {"cpu": "1", "memory": "1Gi"}))
    assert "" == create(control_plane, pod("device", {DEVICE: "1"}), "kube-system")


@pytest.mark.usefixtures("away")
def test_the_mirror_of_a_static_pod_is_never_denied(control_plane: ControlPlane) -> None:
    """The kubelet already runs it."""
    document = json.loads(pod("static", {GPU: "1"}))
    document["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    document["spec"]["nodeName"] = "somewhere"

    assert "" == create(control_plane, json.dumps(document))


def test_running_workloads_are_scaled_finished_and_deleted_with_the_webhook_unavailable(
    control_plane: ControlPlane, away: Callable[[str], None]
) -> None:
    """Status, finalizers, replicas and deletion are not selected."""
    away("false")
    document = json.loads(pod("stays", {GPU: "1"}))
    document["metadata"]["finalizers"] = ["example.com/held"]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": document["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "stays", "finalizers": ["example.com/held"]},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    eventually(lambda: not create(control_plane, json.dumps(deployment)))
    for workload in (document, deployment):
        control_plane.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(workload))
    away(expression([GPU], built_in_workloads()))
    eventually(lambda: "failed calling webhook" in create(control_plane, pod("gpu", {GPU: "1"})))

    def patch(what: str, change: dict[str, Any], *options: str) -> None:
        control_plane.kubectl("patch", what, "-n", TEAM, "--type=merge", "-p", json.dumps(change), *options)

    patch("pod/stays", {"status": {"message": "x"}}, "--subresource=status")
    patch("deployment/stays", {"spec": {"replicas": 3}})
    patch("deployment/stays", {"metadata": {"labels": {"x": "y"}}})
    for what in ("pod/stays", "deployment/stays"):
        control_plane.kubectl("delete", what, "-n", TEAM, "--wait=false", "--grace-period=0", "--force")
        patch(what, {"metadata": {"finalizers": None}})
    left = control_plane.kubectl("get", "pods,deployments", "-n", TEAM, "-o", "name").stdout

    assert "" == left


def test_with_the_webhook_unavailable_only_a_new_image_of_a_gpu_container_is_denied(
    control_plane: ControlPlane, away: Callable[[str], None]
) -> None:
    """Labels, status, tolerations, a resize and images of other containers are not selected."""
    away("false")
    control_plane.kubectl("create", "-f", "-", input=node("runs", {}, {GPU: "1", "cpu": "8"}))
    document = json.loads(pod("running", {GPU: "1", "cpu": "1"}))
    document["spec"]["nodeName"] = "runs"
    document["spec"]["containers"].append({"name": "proxy", "image": "proxy:1"})
    eventually(lambda: not create(control_plane, json.dumps(document)))
    control_plane.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(document))
    away(expression([GPU], built_in_workloads()))
    eventually(lambda: "failed calling webhook" in create(control_plane, pod("gpu", {GPU: "1"})))

    def patch(change: dict[str, Any], subresource: str = "") -> str:
        options = (f"--subresource={subresource}",) if subresource else ()
        kind = ("--type=strategic", "-p", json.dumps(change), *options)
        return control_plane.kubectl("patch", "pod/running", "-n", TEAM, *kind, check=False).stderr

    def container(name: str, **fields: Any) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": name, **fields}]}}

    smaller = {"requests": {"cpu": "500m"}}
    assert {""} == {
        patch({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}),
        patch({"metadata": {"finalizers": ["example.com/held"]}}),
        patch({"spec": {"tolerations": [{"key": "a", "operator": "Exists"}], "activeDeadlineSeconds": 1000}}),
        patch({"status": {"message": "x"}}, "status"),
        *([patch(container("main", resources=smaller), "resize")] if control_plane.resizes else []),
        patch(container("proxy", image="proxy:2")),
        patch(container("main", image="example.com/train:1")),
    }
    assert "failed calling webhook" in patch(container("main", image="example.com/train:2"))
    patch({"metadata": {"finalizers": None}})
    control_plane.kubectl("delete", "pod/running", "-n", TEAM, "--grace-period=0", "--force")
    control_plane.kubectl("delete", "node/runs")


@pytest.mark.parametrize(
    ("count", "end", "length"), [(700, "", MAX_NAMES_LENGTH), (94, "*", MAX_PATTERN_LENGTH)]
)
def test_an_expression_with_the_maximum_of_rules_is_within_the_cost_limit_of_the_api_server(
    control_plane: ControlPlane, away: Callable[[str], None], count: int, end: str, length: int
) -> None:
    """Also for a pod of two hundred containers that request other resources."""
    keys = [f"d{number}.example.com/resource{end}" for number in range(count)]
    text = expression([*keys, DEVICE], built_in_workloads())
    away(text)
    eventually(lambda: "failed calling webhook" in create(control_plane, pod("asks", {DEVICE: "1"})))

    assert 0.9 * length < len(text) - len(expression([DEVICE], built_in_workloads())) < 1.1 * length
    assert "" == create(control_plane, of_containers(200, {"cpu": "1", "example.com/others": "1"}))
    assert "failed calling webhook" in create(
        control_plane, of_containers(200, {keys[-1].replace("*", "s"): "1"})
    )


def test_an_update_of_a_pod_of_two_hundred_containers_is_within_the_cost_limit(
    control_plane: ControlPlane, away: Callable[[str], None]
) -> None:
    """All of them request an accelerator; one has a new image."""
    away("false")
    document = json.loads(of_containers(200, {GPU: "1"}))
    eventually(lambda: not create(control_plane, json.dumps(document)))
    control_plane.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(document))
    away(built_in_expression())
    eventually(lambda: "failed calling webhook" in create(control_plane, pod("gpu", {GPU: "1"})))

    def replaced(*edits: dict[str, Any]) -> str:
        options = ("--type=json", "-p", json.dumps(edits))
        return control_plane.kubectl("patch", "pod/many", "-n", TEAM, *options, check=False).stderr

    label = {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    images = [
        {"op": "replace", "path": f"/spec/containers/{at}/image", "value": "example.com/train:2"}
        for at in range(200)
    ]
    errors = [replaced(label), replaced(images[-1]), replaced(*images)]
    control_plane.kubectl("delete", "pod/many", "-n", TEAM, "--grace-period=0", "--force")

    assert "" == errors[0]
    assert all("failed calling webhook" in error for error in errors[1:])


def _conditions(control_plane: ControlPlane) -> Iterator[list[dict[str, str]]]:
    for kind in KINDS:
        document = json.loads(control_plane.kubectl("get", kind, "gpugate", "-o", "json").stdout)
        yield document["webhooks"][0]["matchConditions"]


def conditions_of(control_plane: ControlPlane) -> list[list[str]]:
    """Return the names of the conditions of each webhook."""
    return [[condition["name"] for condition in conditions] for conditions in _conditions(control_plane)]


def expressions_of(control_plane: ControlPlane) -> list[str]:
    """Return the expression of gpugate of each webhook."""
    conditions = _conditions(control_plane)
    return [
        "".join(condition["expression"] for condition in one if condition["name"] == CONDITION)
        for one in conditions
    ]


@pytest.fixture
def replica(control_plane: ControlPlane) -> Iterator[Replica]:
    """Yield a handler without rules, the sync of its match conditions, and its clock."""
    api = ClusterApi.of_kubeconfig(str(control_plane.kubeconfig))
    server, now = AdmissionHandler(Loaded()), [0.0]
    yield server, WebhookConfigurationSync(api, server, lambda: now[0]), now
    api.close()


@pytest.mark.usefixtures("away")
def test_a_new_rule_is_selected_immediately_and_an_old_one_for_a_while(
    control_plane: ControlPlane, replica: Replica
) -> None:
    """Another replica may not know the new one yet, or may still use the old one."""
    server, conditions, now = replica

    def missed(key: str) -> bool:
        return not create(control_plane, pod("next", {key: "1"}))

    assert missed(DEVICE)
    conditions.start()
    server.set_rules(loaded(resource_rule(DEVICE)))
    eventually(lambda: not missed(DEVICE), LIVE_S)
    # Both configurations are written, so that the thread has nothing more to write.
    eventually(lambda: all(DEVICE in text for text in expressions_of(control_plane)))
    conditions.stop()
    server.set_rules(loaded(resource_rule(OTHER)))
    conditions.check()
    eventually(lambda: not missed(OTHER))

    assert not missed(DEVICE)
    now[0] = REMOVAL_DELAY
    conditions.check()
    eventually(lambda: missed(DEVICE))
    assert not missed(OTHER)


@pytest.mark.usefixtures("away")
def test_while_a_rule_has_an_error_nothing_is_removed(control_plane: ControlPlane, replica: Replica) -> None:
    """Another replica may have its last good version in force."""
    server, conditions, now = replica
    server.set_rules(loaded(resource_rule(OTHER), resource_rule(DEVICE, limits="optinal")))
    conditions.check()
    now[0] = 2 * REMOVAL_DELAY
    conditions.check()
    eventually(lambda: bool(create(control_plane, pod("next", {OTHER: "1"}))))

    assert "failed calling webhook" in create(control_plane, pod("next", {GPU: "1"}))


@pytest.mark.usefixtures("away")
def test_other_conditions_stay(control_plane: ControlPlane, replica: Replica) -> None:
    """And ours is restored if it was removed."""
    _, conditions, _ = replica
    theirs = [{"name": "theirs", "expression": "true"}]
    for kind in KINDS:
        edit = [{"op": "replace", "path": "/webhooks/0/matchConditions", "value": theirs}]
        control_plane.kubectl("patch", kind, "gpugate", "--type=json", "-p", json.dumps(edit))
    conditions.check()

    assert [["theirs", CONDITION]] * 2 == conditions_of(control_plane)


@pytest.mark.usefixtures("away")
def test_nothing_is_written_if_the_conditions_are_up_to_date(
    control_plane: ControlPlane, replica: Replica
) -> None:
    """However often and by however many replicas they are checked."""
    _, conditions, _ = replica

    def versions() -> list[str]:
        query = ("-o", "jsonpath={.metadata.resourceVersion}")
        return [control_plane.kubectl("get", kind, "gpugate", *query).stdout for kind in KINDS]

    conditions.check()
    before = versions()
    conditions.check()
    WebhookConfigurationSync(conditions._api, conditions._handler).check()

    assert before == versions()
