"""The decision on a request: what is validated, what is patched, and what is allowed unchanged."""

from __future__ import annotations

import gc
import weakref
from copy import deepcopy
from typing import Any, cast

import pytest

from rules.decision import pipeline
from rules.decision.pipeline import INJECTED_ANNOTATION, Snapshot, decide
from rules.decision.policy import Policy, compile_policy
from rules.kube.json_patch import ObjectError, pointer
from rules.model.decision import ALLOWED, AdmissionRequest
from rules.model.rule import Action
from rules.model.workload_kinds import Workloads
from rules.text.paths import Path, field_path
from tests.support.builders import (
    DEVICE,
    NO_NODES,
    admitted,
    container,
    decision,
    injection_rule,
    loaded,
    nested,
    patched,
    pod,
    policy,
    refused_at,
    request,
    resource_rule,
    warning_texts,
)
from tests.support.node_builders import GPU, inventory, node
from webhook.cli.inputs.session import Session

OTHER = "vendor.com/other"
SHIPPED = compile_policy(Session().rules)
# One denies, the other completes and injects, so that nothing is allowed unchanged by chance.
DENYING = policy(resource_rule(limits="disabled"))
COMPLETING = policy(
    resource_rule(defaultValue="2"),
    resource_rule(OTHER),
    injection_rule({"env": [{"name": "A", "value": "1"}]}),
)
TEMPLATE_PATH = ("spec", "template")
OF_DEPLOYMENT = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "controller": True}]


def _workload(api_version: str, kind: str, path: Path, template: Any, **metadata: Any) -> dict[str, Any]:
    """Return an object with a pod template at a path."""
    head = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"} | metadata}
    return head | cast("dict[str, Any]", nested(path, template))


def _template(limits: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [container(limits or {DEVICE: "1"})]},
    }


def _deployment(limits: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return _workload("apps/v1", "Deployment", TEMPLATE_PATH, _template(limits), **metadata)


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        (pod(), {"operation": "DELETE"}),
        (pod(), {"operation": "DELETE", "object": None}),
        (pod(), {"operation": "CONNECT"}),
        (pod(), {"operation": "UPDATE"}),
        (pod(), {"operation": "UPDATE", "subresource": "status"}),
        (pod(), {"operation": "CREATE", "subresource": "binding"}),
        (pod(), {"operation": "CREATE", "subresource": "ephemeralcontainers"}),
        (pod(metadata={"deletionTimestamp": "2026-11-21T00:00:00Z"}), {}),
        (_deployment(deletionTimestamp="2026-11-21T00:00:00Z"), {"operation": "UPDATE"}),
        (pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}), {}),
        (_deployment(), {"operation": "DELETE"}),
        (_deployment(), {"operation": "UPDATE", "old_object": _deployment()}),
        (_deployment(annotations={"a": "b"}), {"operation": "UPDATE", "old_object": _deployment()}),
        (_deployment() | {"status": {}}, {"operation": "UPDATE", "subresource": "status"}),
        (_deployment() | {"spec": {}}, {}),
        (_workload("apps/v1", "ReplicaSet", TEMPLATE_PATH, _template(), ownerReferences=OF_DEPLOYMENT), {}),
        (
            _workload(
                "batch/v1",
                "Job",
                TEMPLATE_PATH,
                _template(),
                ownerReferences=[{"apiVersion": "batch/v1", "kind": "CronJob", "controller": True}],
            ),
            {},
        ),
        (
            _workload(
                "batch/v1",
                "Job",
                TEMPLATE_PATH,
                _template(),
                ownerReferences=[
                    {"apiVersion": "v1", "kind": "Namespace"},
                    {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "controller": True},
                ],
            ),
            {},
        ),
        (_workload("example.com/v1", "Deployment", TEMPLATE_PATH, _template()), {}),
        (_workload("v1", "Service", TEMPLATE_PATH, _template()), {}),
        (_workload("example.com/v1", "Pod", TEMPLATE_PATH, _template()), {}),
        (pod(container({"cpu": "1", "nvidia.com/gpu": "1"})), {}),
        (pod(container()), {}),
        (pod() | {"spec": {}}, {}),
        (pod() | {"spec": None}, {}),
    ],
)
def test_a_request_that_rules_do_not_apply_to_is_allowed_unchanged(
    document: dict[str, Any], fields: dict[str, Any]
) -> None:
    """Deletions, terminating objects, static pods, status, owned objects, no extended resource."""
    answer = decision(DENYING, document, **fields)

    assert ALLOWED == answer._replace(not_checked=(), audit={})


@pytest.mark.parametrize(
    "owners",
    [
        None,
        [],
        "odd",
        ["odd"],
        [{"apiVersion": "apps/v1", "kind": "Deployment"}],
        [{"apiVersion": "apps/v1", "kind": "Deployment", "controller": False}],
        [{"apiVersion": "apps/v1", "kind": "Deployment", "controller": "true"}],
        [{"apiVersion": "example.com/v1", "kind": "Deployment", "controller": True}],
        [{"apiVersion": "example.io/v1alpha1", "kind": "Rollout", "controller": True}],
        [{"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "controller": True}],
        [{"kind": None, "controller": True}],
    ],
)
def test_an_object_without_a_validated_owner_is_validated(owners: Any) -> None:
    """The owner is not the controller, or rules do not validate its whole pod template."""
    document = _workload("apps/v1", "ReplicaSet", TEMPLATE_PATH, _template(), ownerReferences=owners)

    assert not decision(DENYING, document).allowed


def test_a_job_of_a_cron_job_is_not_validated() -> None:
    """`kubectl create job --from` makes such a Job; the CronJob was validated, and the pods are."""
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "x", "controller": True}
    document = _workload("batch/v1", "Job", TEMPLATE_PATH, _template(), ownerReferences=[owner])

    assert decision(DENYING, document).allowed


def test_a_pod_is_validated_with_any_owner() -> None:
    """The rules may have changed since, and the client sets ownerReferences."""
    assert not decision(DENYING, pod(metadata={"ownerReferences": OF_DEPLOYMENT})).allowed


CUSTOM_PODS = Workloads({("example.com", "Pod"): ((),)})


def _custom_pod(limits: dict[str, Any]) -> dict[str, Any]:
    """Return a custom resource of kind Pod that is shaped like a core Pod."""
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}}
    return pod(container(limits), metadata=mirror) | {"apiVersion": "example.com/v1"}


def _custom_policy(*texts: str) -> Policy:
    return compile_policy(loaded(*texts).rules, workloads=CUSTOM_PODS)


@pytest.mark.parametrize("mutating", [True, False])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_custom_resource_of_kind_pod_is_validated_as_a_workload(operation: str, mutating: bool) -> None:
    """At CREATE and UPDATE, as its pods will be completed; the mirror annotation is that of core pods."""
    completing = _custom_policy(
        resource_rule(limits="required", defaultValue="2"),
        resource_rule(OTHER),
        injection_rule({"env": [{"name": "A", "value": "1"}]}),
    )
    denying = _custom_policy(resource_rule(limits="disabled"))
    fields: dict[str, Any] = {"operation": operation, "mutating": mutating}
    completed = decision(completing, _custom_pod({OTHER: "1"}), **fields)
    denied = decision(denying, _custom_pod({DEVICE: "1"}), **fields)

    assert (True, ()) == (completed.allowed, completed.patch)
    assert (False, [f"spec.containers[0].resources.limits[{DEVICE}]"]) == (denied.allowed, refused_at(denied))


def test_an_unchanged_custom_resource_of_kind_pod_is_not_validated_on_update() -> None:
    """Like a workload with the same template; it has no ephemeral containers to inject into."""
    denying = _custom_policy(resource_rule(limits="disabled"))
    document = _custom_pod({DEVICE: "1"})
    fields: list[dict[str, Any]] = [{"old_object": document}, {"subresource": "ephemeralcontainers"}]

    assert [ALLOWED, ALLOWED] == [
        decision(denying, document, operation="UPDATE", **field) for field in fields
    ]


@pytest.mark.parametrize("metadata", [None, [], {"annotations": 7}, {"labels": ["odd"]}])
def test_a_pod_with_malformed_metadata_is_denied_or_malformed(metadata: Any) -> None:
    """It is not allowed."""
    try:
        allowed = decision(DENYING, pod() | {"metadata": metadata}).allowed
    except ObjectError:
        allowed = False

    assert not allowed


@pytest.mark.parametrize(
    ("api_version", "kind", "path"),
    [
        ("v1", "ReplicationController", ("spec", "template")),
        ("apps/v1", "Deployment", ("spec", "template")),
        ("apps/v1", "StatefulSet", ("spec", "template")),
        ("apps/v1", "DaemonSet", ("spec", "template")),
        ("apps/v1", "ReplicaSet", ("spec", "template")),
        ("batch/v1", "Job", ("spec", "template")),
        ("batch/v1", "CronJob", ("spec", "jobTemplate", "spec", "template")),
        ("batch.volcano.sh/v1alpha1", "Job", ("spec", "tasks", 1, "template")),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", ("spec", "replicatedJobs", 0, "template", "spec", "template")),
        ("kubeflow.org/v1", "Notebook", ("spec", "template")),
    ],
)
def test_a_workload_whose_pods_would_be_denied_is_denied_with_the_path_in_its_template(
    api_version: str, kind: str, path: Path
) -> None:
    """When it is created, not when its pods are."""
    answer = decision(DENYING, _workload(api_version, kind, path, _template()))

    assert (False, [f"{field_path(path)}.spec.containers[0].resources.limits[{DEVICE}]"]) == (
        answer.allowed,
        refused_at(answer),
    )
    assert answer.denial.en.startswith(f"{kind} denied by gpugate: container 'main', {field_path(path)}.spec")


def test_a_pod_template_is_never_denied() -> None:
    """Kueue makes them for ProvisioningRequests, and would keep its quota until somebody acts."""
    document = _workload("v1", "PodTemplate", ("template",), _template())
    answer = decision(DENYING, document)

    assert (True, "", ()) == (answer.allowed, answer.denial.en, answer.patch)
    assert [Action.WARN] == [violation.action for violation in answer.violations]
    assert [f"template.spec.containers[0].resources.limits[{DEVICE}]"] == [
        violation.path for violation in answer.violations
    ]
    assert ["gpugate: container 'main', template.spec"] == [text[:40] for text in warning_texts(answer)]


@pytest.mark.parametrize(
    ("api_version", "kind"), [("apps/v1", "Deployment"), ("v1", "ReplicationController")]
)
def test_a_workload_is_validated_as_its_pods_will_be_completed_and_is_never_patched(
    api_version: str, kind: str
) -> None:
    """A missing value is allowed if it has a default."""
    rules = policy(resource_rule(limits="required", defaultValue="2"), resource_rule(OTHER))
    answer = decision(rules, _workload(api_version, kind, TEMPLATE_PATH, _template({OTHER: "1"})))

    assert (True, ()) == (answer.allowed, answer.patch)


def test_a_workload_has_the_patch_of_its_pods_on_its_template() -> None:
    """The same operations as of the pod that is made from it; none if it is denied."""
    rules = policy(resource_rule(limits="required", defaultValue="2"), resource_rule(OTHER))
    template = _template({OTHER: "1"})
    of_pod = decision(rules, {"apiVersion": "v1", "kind": "Pod", **template})
    of_workload = decision(rules, _deployment({OTHER: "1"}))
    prefix = pointer(TEMPLATE_PATH)

    assert of_pod.patch
    assert [operation["path"] for operation in of_workload.pods_patch] == [
        f"{prefix}{operation['path']}" for operation in of_pod.patch
    ]
    assert decision(rules, _deployment({OTHER: "-1"})).pods_patch == ()


@pytest.mark.parametrize("mutating", [True, False])
def test_both_endpoints_give_the_same_decision_on_a_workload(mutating: bool) -> None:
    """Its pods will be completed later."""
    rules = policy(resource_rule(limits="required", defaultValue="2"), resource_rule(OTHER))

    assert decision(rules, _deployment({OTHER: "1"}), mutating=mutating).allowed


def test_a_changed_template_is_validated_on_update() -> None:
    """An unchanged one is not."""
    answer = decision(
        DENYING, _deployment({DEVICE: "2"}), operation="UPDATE", old_object=_deployment({DEVICE: "1"})
    )

    assert not answer.allowed


def test_an_update_without_the_old_object_is_validated_as_a_whole() -> None:
    """The changed template is unknown."""
    assert not decision(DENYING, _deployment(), operation="UPDATE").allowed


def _training(**replicas: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {
            "pytorchReplicaSpecs": {name: {"template": template} for name, template in replicas.items()}
        },
    }


def test_all_templates_of_an_object_have_one_decision() -> None:
    """With all violations, warnings and rules."""
    rules = policy(
        resource_rule(),
        resource_rule(OTHER, group="others", limits="disabled", enforcementAction="warn"),
        injection_rule({"env": [{"name": "A", "value": "1"}]}),
    )
    document = _training(Master=_template({DEVICE: "0.5", OTHER: "1"}), Worker=_template({DEVICE: "-1"}))
    answer = decision(rules, document)
    master, worker = (
        f"spec.pytorchReplicaSpecs.{name}.template.spec.containers[0].resources.limits"
        for name in ("Master", "Worker")
    )

    assert [f"{master}[{DEVICE}]", f"{master}[{OTHER}]", f"{worker}[{DEVICE}]"] == refused_at(answer)
    assert answer.denial.en == (
        f"PyTorchJob denied by gpugate, 2 violations: 1. container 'main', {master}[{DEVICE}]: found 0.5,"
        " expected a whole number; use a whole number [rule cf-crl-group-device]\n"
        f"  2. container 'main', {worker}[{DEVICE}]: found -1, expected zero or more; use a positive number,"
        " or remove it [rule cf-crl-group-device]"
    )
    assert (
        False,
        (),
        ("cf-crl-group-device", "cf-crl-others-other", "injection"),
        1,
        (
            f"cf-crl-group-device (fact): {master}[{DEVICE}];"
            f" cf-crl-others-other (policy): {master}[{OTHER}];"
            f" cf-crl-group-device (fact): {worker}[{DEVICE}]"
        ),
    ) == (
        answer.allowed,
        answer.patch,
        tuple(sorted(answer.rules)),
        len(warning_texts(answer)),
        answer.audit["violations"],
    )


def test_only_the_changed_templates_are_validated_on_update() -> None:
    """An unchanged one stays allowed."""
    before = _training(Master=_template({DEVICE: "1"}), Worker=_template({DEVICE: "1"}))
    after = _training(Master=_template({DEVICE: "1"}), Worker=_template({DEVICE: "2"}))
    answer = decision(DENYING, after, operation="UPDATE", old_object=before)

    assert [
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.limits[vendor.com/device]"
    ] == (refused_at(answer))


@pytest.mark.parametrize("count", [1, 2], ids=["one", "several"])
def test_a_template_that_only_moves_is_not_validated_again(count: int) -> None:
    """One of a list has another index, of a map another name, and stays allowed."""
    bad = {f"Bad{at}": _template({DEVICE: f"{at + 2}"}) for at in range(count)}
    moved = {f"Moved{name}": template for name, template in bad.items()}
    answer = decision(DENYING, _training(**moved), operation="UPDATE", old_object=_training(**bad))
    new = decision(DENYING, _training(**moved), operation="UPDATE", old_object=_training(Other=_template()))

    assert ([], count) == (refused_at(answer), len(refused_at(new)))


def test_of_an_update_only_templates_that_rules_apply_to_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """9,900 changed templates with one GPU took 0.7 s, because all were compared with all before."""
    compared: list[Any] = []
    monkeypatch.setattr(pipeline, "_encode", compared.append)

    def training(tag: str) -> Any:
        plain = {
            f"Plain{at}": {"spec": {"containers": [container(image=f"a:{tag}{at}")]}} for at in range(300)
        }
        return _training(User=_template({DEVICE: "2" if tag == "new" else "1"}), **plain)

    answer = decision(DENYING, training("new"), operation="UPDATE", old_object=training("old"))

    assert (1, []) == (len(refused_at(answer)), compared)


def test_several_valid_templates_are_allowed() -> None:
    """The audit annotation has the injections of each."""
    answer = decision(COMPLETING, _training(Master=_template(), Worker=_template()))

    assert (True, "", "injection (main: env A); injection (main: env A)") == (
        answer.allowed,
        answer.denial.en,
        answer.audit["injected"],
    )


def test_a_pod_is_completed_injected_and_validated_in_this_order() -> None:
    """Injected variables are computed from defaults; the result is validated."""
    rules = policy(
        resource_rule(defaultValue="2", requests="fromLimits"),
        resource_rule(OTHER),
        injection_rule({"env": [{"name": "N", "fromResource": {"name": DEVICE}}]}),
    )
    document = pod(container({OTHER: "1"}))

    assert [
        {"op": "add", "path": "/spec/containers/0/resources/limits/vendor.com~1device", "value": "2"},
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": {DEVICE: "2"}},
        {"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "N", "value": "2"}]},
        {"op": "add", "path": "/metadata/annotations", "value": {INJECTED_ANNOTATION: "injection"}},
    ] == list(decision(rules, document).patch)


def test_a_denied_pod_has_no_patch() -> None:
    """Even if values would be injected."""
    rules = policy(resource_rule(defaultValue="2"), resource_rule(OTHER, limits="disabled"))
    answer = decision(rules, pod(container({OTHER: "1"})))

    assert (False, ()) == (answer.allowed, answer.patch)


def test_the_audit_annotations_have_rules_defaults_injections_and_violations() -> None:
    """Short names; the API server adds the name of the webhook as a prefix."""
    rules = policy(
        resource_rule(defaultValue="2", requests="fromLimits", runtimeClassName="vendor"),
        resource_rule(OTHER, limits="disabled", enforcementAction="warn"),
        resource_rule("vendor.com/third", limits="disabled", enforcementAction="dryrun"),
        injection_rule({"env": [{"name": "A", "value": "1"}]}, name="b"),
        injection_rule({"hostIPC": True}, name="c", enforcementAction="dryrun"),
    )
    answer = decision(rules, pod(container({OTHER: "1", "vendor.com/third": "1"})))
    limits = "spec.containers[0].resources.limits"

    assert {
        "rules": "cf-crl-group-device, cf-crl-group-other, cf-crl-group-third, b, c",
        "defaulted": f"main: limits {DEVICE}; main: requests {DEVICE}; runtimeClassName vendor",
        "injected": "b (main: env A)",
        "would-inject": "c (hostIPC True)",
        "violations": f"cf-crl-group-other (policy): {limits}[{OTHER}]",
        "dryrun": f"cf-crl-group-third (policy): {limits}[vendor.com/third]",
    } == answer.audit


def test_a_second_call_on_the_patched_pod_gives_no_patch() -> None:
    """The API server calls again after other webhooks (reinvocationPolicy IfNeeded)."""
    stored = admitted(COMPLETING, pod(container({OTHER: "1"})))

    assert () == decision(COMPLETING, stored).patch


def test_a_default_of_another_groups_resource_makes_that_group_apply() -> None:
    """In the same call."""
    rules = policy(
        resource_rule("vendor.com/mig-*", group="b", requests="fromLimits"),
        resource_rule("vendor.com/extra", group="b", defaultValue="9"),
        resource_rule("vendor.com/mig-1g", group="a", defaultValue="1"),
        resource_rule(group="a"),
    )
    stored = admitted(rules, pod(container({DEVICE: "3"})))

    assert {
        "limits": {DEVICE: "3", "vendor.com/mig-1g": "1", "vendor.com/extra": "9"},
        "requests": {"vendor.com/mig-1g": "1"},
    } == stored["spec"]["containers"][0]["resources"]
    assert stored == admitted(rules, stored)


def test_unknown_fields_are_kept() -> None:
    """In the pod, its containers and lists, for newer versions of Kubernetes."""
    document = pod(
        container({OTHER: "1"}, newField={"deep": [1, {"x": None}]}, env=[{"name": "B", "new": 1}]),
        metadata={"newMeta": {"a": 1}},
        newSpec=[{"b": 2}],
    )
    stored = admitted(COMPLETING, document)
    main = stored["spec"]["containers"][0]

    assert ({"deep": [1, {"x": None}]}, {"name": "B", "new": 1}, {"a": 1}, [{"b": 2}]) == (
        main["newField"],
        main["env"][0],
        stored["metadata"]["newMeta"],
        stored["spec"]["newSpec"],
    )


def test_a_pod_without_a_name_or_namespace_is_patched() -> None:
    """Controllers use generateName; the namespace is in the request."""
    document = pod()
    document["metadata"] = {"generateName": "train-"}

    assert {"generateName": "train-", "annotations": {INJECTED_ANNOTATION: "injection"}} == (
        admitted(COMPLETING, document)["metadata"]
    )


def test_a_pod_without_metadata_gets_metadata_with_the_annotation() -> None:
    """A pod template may have none."""
    document = pod()
    del document["metadata"]

    assert {"annotations": {INJECTED_ANNOTATION: "injection"}} == patched(
        document, decide(Snapshot(COMPLETING, NO_NODES), _request_of(document))
    )["metadata"]


def _request_of(document: Any) -> AdmissionRequest:
    return AdmissionRequest("CREATE", "", "Pod", "team", document)


def test_the_validating_endpoint_validates_a_pod_as_it_is() -> None:
    """It is called after all mutating webhooks; a required key that is absent is a violation there."""
    rules = policy(resource_rule(limits="required", defaultValue="2"), resource_rule(OTHER))
    document = pod(container({OTHER: "1"}))
    mutated = decision(rules, document)
    validated = decision(rules, document, mutating=False)

    assert (True, 1) == (mutated.allowed, len(mutated.patch))
    assert (False, (), [f"spec.containers[0].resources.limits[{DEVICE}]"]) == (
        validated.allowed,
        validated.patch,
        refused_at(validated),
    )


def test_the_validating_endpoint_injects_nothing_and_allows_a_mutated_pod() -> None:
    """Both endpoints give the same decision on it."""
    stored = admitted(COMPLETING, pod(container({OTHER: "1"})))
    answer = decision(COMPLETING, stored, mutating=False)

    assert (True, (), None) == (answer.allowed, answer.patch, answer.audit.get("injected"))


def test_a_denial_is_in_the_language_that_is_asked_for() -> None:
    """The decision is the same for all."""
    rules = policy(resource_rule(limits="disabled", descriptionZh="卡数"))
    place = f"spec.containers[0].resources.limits[{DEVICE}]"

    assert (
        f"gpugate 拒绝该 Pod：容器 'main'，{place}：当前为 1，要求 不得设置 {DEVICE} 的 limits（卡数）；"
        f"请删除 {place} [规则 cf-crl-group-device]"
    ) == decision(rules, pod()).denial.zh


def test_a_denial_has_the_violations_that_deny_and_warnings_those_that_warn() -> None:
    """Those of dryrun rules are only in the audit event."""
    rules = policy(
        resource_rule(limits="disabled"),
        resource_rule(OTHER, limits="disabled", enforcementAction="warn"),
        resource_rule("vendor.com/third", limits="disabled", enforcementAction="dryrun"),
    )
    answer = decision(rules, pod(container({DEVICE: "1", OTHER: "1", "vendor.com/third": "1"})))

    assert (["cf-crl-group-device]"], [["cf-crl-group-other]"]], 3) == (
        answer.denial.en.split("[rule ")[1:],
        [warning.split("[rule ")[1:] for warning in warning_texts(answer)],
        len(answer.violations),
    )


def test_a_long_warning_keeps_its_fix_and_its_rule() -> None:
    """API servers cut warnings at 256 characters; gpugate cuts the reason first."""
    key = f"vendor.com/{'x' * 30}"
    rule = resource_rule(key, limits="disabled", enforcementAction="warn", descriptionEn="words " * 20)
    (line,) = warning_texts(decision(policy(rule), pod(container({key: "1"}))))

    assert 256 == len(line)
    assert line.startswith("gpugate: ")
    assert line.endswith(
        f"…; remove spec.containers[0].resources.limits[{key}] [rule cf-crl-group-{'x' * 30}]"
    )


DEBUG = container(name="debug", targetContainerName="main")


def _debug(*ephemeral: dict[str, Any], before: Any = (), **fields: Any) -> Any:
    document = pod(container({DEVICE: "3"}, env=[]), ephemeralContainers=list(ephemeral))
    old = pod(container({DEVICE: "3"}, env=[]), ephemeralContainers=list(before))
    rules = policy(
        resource_rule(limits="disabled"),
        injection_rule(
            {
                "env": [{"name": "N", "fromResource": {"name": DEVICE}}],
                "hostIPC": True,
                "volumes": [{"name": "v"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ),
    )
    base = {"operation": "UPDATE", "subresource": "ephemeralcontainers", "old_object": old}
    return decision(rules, document, **base | fields)


def test_an_ephemeral_container_gets_the_variables_of_its_target_only() -> None:
    """As its target has them; the rest of a running pod cannot be changed and is not validated."""
    answer = _debug(DEBUG)

    assert (
        True,
        [{"op": "add", "path": "/spec/ephemeralContainers/0/env", "value": [{"name": "N", "value": "3"}]}],
    ) == (answer.allowed, list(answer.patch))


@pytest.mark.parametrize(
    ("ephemeral", "before"),
    [
        (container(name="debug"), []),
        (container(name="debug", targetContainerName="absent"), []),
        (DEBUG, [DEBUG]),
        (DEBUG | {"env": [{"name": "N", "value": "mine"}]}, []),
    ],
)
def test_an_ephemeral_container_without_a_target_or_already_started_is_unchanged(
    ephemeral: dict[str, Any], before: list[Any]
) -> None:
    """Its own variables are unchanged, too."""
    assert (True, ()) == ((answer := _debug(ephemeral, before=before)).allowed, answer.patch)


def test_several_ephemeral_containers_are_all_injected_and_audited() -> None:
    """In one request."""
    second = DEBUG | {"name": "second"}
    answer = _debug(DEBUG, second)

    assert (2, "injection (debug: env N, second: env N)") == (len(answer.patch), answer.audit["injected"])


@pytest.mark.parametrize("fields", [{"mutating": False}, {"object": pod()}])
def test_an_ephemeral_update_without_an_injection_is_allowed(fields: dict[str, Any]) -> None:
    """The validating endpoint injects nothing."""
    assert (True, ()) == ((answer := _debug(DEBUG, **fields)).allowed, answer.patch)


def test_an_ephemeral_update_without_the_old_object_treats_all_as_new() -> None:
    """The existing ones are unknown."""
    assert 1 == len(_debug(DEBUG, old_object=None).patch)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (pod() | {"spec": {"containers": {}}}, "spec.containers: expected a list, got an object"),
        (pod() | {"spec": 7}, "spec: expected an object, got a number"),
        (
            _workload("apps/v1", "Deployment", TEMPLATE_PATH, "odd"),
            "spec.template: expected an object, got a string",
        ),
        (
            pod(container({DEVICE: "1"}, env={"A": "1"})),
            "spec.containers[0].env: expected a list, got an object",
        ),
        (pod(metadata={"annotations": ["odd"]}), "metadata.annotations: expected an object, got a list"),
    ],
)
def test_an_object_with_a_field_of_another_type_is_malformed(document: Any, message: str) -> None:
    """No API server sends one; the message has the path."""
    with pytest.raises(ObjectError) as caught:
        decision(COMPLETING, document)

    assert message == str(caught.value)


def test_a_decision_changes_neither_policy_nor_request() -> None:
    """Other threads use them at the same time."""
    document = pod(container({OTHER: "1"}, env=[{"name": "B"}]), tolerations=[])
    review = request(document)
    before = deepcopy(review)
    first, second = (
        decide(Snapshot(COMPLETING, NO_NODES), review),
        decide(Snapshot(COMPLETING, NO_NODES), review),
    )

    assert (before, first) == (review, second)


class _Object(dict[str, Any]):
    """An object to which a weak reference is possible."""


_FAILING = injection_rule(
    {"env": [{"name": "A", "value": "1"}]}, match={"conditions": ["limits['a.com/x'] > 1"]}
)


@pytest.mark.parametrize(
    ("rules", "document"),
    [
        (
            SHIPPED,
            pod(container({GPU: "1"}), container({"nvidia.com/gpumem": "1000", GPU: "1"}, name="share")),
        ),
        (SHIPPED, pod(container({"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "8"}))),
        (SHIPPED, pod(container({"rdma/hca": "1", GPU: "1"}, securityContext={"privileged": True}))),
        (policy(_FAILING), pod()),
    ],
    ids=["gpus", "shares", "privileged", "a condition that cannot be evaluated"],
)
def test_a_decision_leaves_no_cycle_that_keeps_its_object(rules: Policy, document: dict[str, Any]) -> None:
    """The garbage collector pauses while reviews are read, and an object may have megabytes."""
    review = _Object(document)
    kept = weakref.ref(review)
    gc.collect()
    gc.disable()
    try:
        decide(Snapshot(rules, inventory(node("a"))), request(review))
        del review
        assert kept() is None
    finally:
        gc.enable()
