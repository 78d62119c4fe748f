"""What a decision does not check is part of it, each with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from rules.cuda.requirements import ANNOTATIONS
from rules.cuda.versions import CudaVersion
from rules.decision import not_checked
from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy, compile_policy
from rules.model.decision import ALLOWED, NO_NODES, UNKNOWN_CUDA, UNKNOWN_VERSION, AdmissionRequest, Decision
from rules.nodes.inventory import Inventory
from rules.schema.workload_kinds import read_workloads
from tests.support.builders import (
    DEVICE,
    container,
    injection_rule,
    nested,
    pod,
    policy,
    request,
    resource_rule,
)
from tests.support.builders import NO_NODES as EMPTY
from tests.support.node_builders import GPU, gfd, inventory, nodes, shipped
from webhook.cli.inputs.session import Session

SHIPPED = compile_policy(Session().rules)
RULE = policy(resource_rule())


def reasons(decision: Decision) -> list[str]:
    """Return the reasons of what is not checked, in English."""
    return [reason.en for _, reason in decision.not_checked]


def of_pod(document: dict[str, Any], rules: Policy = RULE) -> list[str]:
    """Return the reasons for a pod."""
    return reasons(decide(Snapshot(rules, EMPTY), request(document)))


def of_kind(group: str, kind: str, document: dict[str, Any]) -> Decision:
    """Return the decision on an object of a kind."""
    document = document | {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind}
    return decide(Snapshot(RULE, EMPTY), AdmissionRequest("CREATE", group, kind, "team", document))


# Resources without a rule


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvida.com/gpu", "nvidia.com/gpu"),
        ("NVIDIA.com/GPU", "nvidia.com/gpu"),
        ("nvidia.com/mig1g.5gb", "nvidia.com/mig-*"),
        ("tencent.com/vcuda-cores", "tencent.com/vcuda-core"),
    ],
)
def test_a_misspelt_resource_is_not_checked_and_the_right_name_is_suggested(name: str, meant: str) -> None:
    assert [f"no enabled rule for resource {name} – did you mean {meant!r}?"] == of_pod(
        pod(container({name: 1})), SHIPPED
    )


@pytest.mark.parametrize("name", ["acme.com/npu", "nvidia.com/nvswitch", "example.com/gpu"])
def test_a_resource_without_a_rule_is_not_checked(name: str) -> None:
    """No other name is suggested."""
    assert [f"no enabled rule for resource {name}"] == of_pod(pod(container({name: 1})), SHIPPED)


@pytest.mark.parametrize("name", ["cpu", DEVICE])
def test_a_resource_of_a_rule_is_checked(name: str) -> None:
    """As are those of Kubernetes, by Kubernetes."""
    assert [] == of_pod(pod(container({name: 1})))


def test_a_resource_of_an_injection_rule_is_checked() -> None:
    """Although its name is similar to another."""
    match: dict[str, Any] = {"resources": ["vendor.com/devices"]}
    rules = policy(resource_rule("vendor.com/device"), injection_rule({"hostIPC": True}, match=match))

    assert [] == of_pod(pod(container({"vendor.com/devices": 1})), rules)


def test_a_resource_of_a_disabled_rule_is_not_checked() -> None:
    """It is spelt right."""
    rules = policy(resource_rule(enabled=False))

    assert [f"no enabled rule for resource {DEVICE}"] == of_pod(pod(container({DEVICE: 1})), rules)


def test_each_container_of_a_workload_has_the_path_of_its_resource() -> None:
    """Once for limits and requests; in the audit event, too."""
    asks = {"resources": {part: {"acme.com/npu": 1} for part in ("limits", "requests")}}
    template = {"spec": {"containers": [{"name": "main"}], "initContainers": [{"name": "warm", **asks}]}}
    documents = of_kind("apps", "Deployment", {"spec": {"template": template}})
    path = "spec.template.spec.initContainers[0].resources.limits[acme.com/npu]"

    assert [path] == [place.path for place in documents.not_checked]
    assert f"{path}: no enabled rule for resource acme.com/npu" == documents.audit["not-checked"]


def test_findings_are_bounded() -> None:
    """An object may have thousands."""
    names = {f"acme.com/npu-{number}": 1 for number in range(100)}

    assert not_checked.MOST == len(of_pod(pod(container(names))))


# Annotations


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "cuda-versions",
            "unknown annotation gpugate.dev/cuda-versions – did you mean gpugate.dev/cuda-version?",
        ),
        (
            "cuda-versoin",
            "unknown annotation gpugate.dev/cuda-versoin – did you mean gpugate.dev/cuda-version?",
        ),
        (
            "cuda-versoin.main",
            "unknown annotation gpugate.dev/cuda-versoin.main – did you mean gpugate.dev/cuda-version.main?",
        ),
        ("priority", f"unknown annotation gpugate.dev/priority; known annotations: {', '.join(ANNOTATIONS)}"),
        (
            "cuda-version.mian",
            "annotation gpugate.dev/cuda-version.mian is for container 'mian', which the pod does not have",
        ),
    ],
)
def test_an_annotation_that_nothing_reads_is_not_checked(name: str, reason: str) -> None:
    document = pod(container({DEVICE: 1}), metadata={"annotations": {f"gpugate.dev/{name}": "12.4"}})
    decision = decide(Snapshot(RULE, EMPTY), request(document))

    assert [(f"metadata.annotations[gpugate.dev/{name}]", reason)] == [
        (path, text.en) for path, text in decision.not_checked
    ]


@pytest.mark.parametrize(
    "name",
    [
        "gpugate.dev/cuda-version",
        "gpugate.dev/cuda-version.main",
        "gpugate.dev/framework",
        "gpugate.dev/injected",
        "team/cuda",
    ],
)
def test_an_annotation_that_is_read_is_checked(name: str) -> None:
    """Those of others are theirs."""
    assert [] == of_pod(pod(container({DEVICE: 1}), metadata={"annotations": {name: "12.4"}}))


# Nodes


@pytest.mark.parametrize(("name", "told"), [(GPU, True), ("amd.com/gpu", False), ("cpu", False)])
def test_without_nodes_cuda_is_not_checked(name: str, *, told: bool) -> None:
    """Without it, the pod seems compatible with all nodes."""
    decision = decide(Snapshot(shipped(), EMPTY), request(pod(container({name: 1}))))

    assert told is (NO_NODES in [reason for _, reason in decision.not_checked])


@pytest.mark.parametrize("known", [EMPTY, inventory(nodes(1, "n", gfd("12.4")))])
def test_an_accelerator_that_runs_no_cuda_has_no_cuda_to_check(known: Inventory) -> None:
    """With nodes and without; its container is not counted as one of unknown CUDA version either."""
    decision = decide(Snapshot(SHIPPED, known), request(pod(container({"amd.com/gpu": 1}))))

    assert ([], ()) == (reasons(decision), decision.cuda_versions)


def test_a_decision_has_the_cuda_version_that_each_container_needs() -> None:
    """With its source; None if nothing says it."""
    images = "nvidia/cuda:12.4.1-base-ubuntu22.04", "team/app:v1"
    document = pod(*(container({GPU: 1}, name=f"c{at}", image=image) for at, image in enumerate(images)))

    assert ((CudaVersion(12, 4), "nvidia/cuda"), UNKNOWN_VERSION) == decide(
        Snapshot(shipped(), EMPTY), request(document)
    ).cuda_versions


def test_the_audit_event_does_not_say_that_no_nodes_are_known() -> None:
    """It is no property of the pod."""
    assert "not-checked" not in decide(Snapshot(shipped(), EMPTY), request(pod(container({GPU: 1})))).audit


@pytest.mark.parametrize(
    ("image", "env", "told"),
    [
        ("team/train:v7", {}, True),
        ("nvidia/cuda:12.2.0-base-ubuntu22.04", {}, False),
        ("team/train:v7", {"CUDA_VERSION": "12.2.0"}, False),
        ("team/train:v7", {"NVIDIA_REQUIRE_CUDA": "cuda>=12.2"}, False),
    ],
)
def test_with_nodes_cuda_is_not_checked_only_of_an_image_of_which_nothing_is_known(
    image: str, env: dict[str, str], *, told: bool
) -> None:
    """The audit event does not say it: a metric counts such images."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    document = pod(container({GPU: 1}, image=image, env=variables))
    decision = decide(Snapshot(shipped(), inventory(nodes(1, "n", gfd("12.2")))), request(document))

    assert ([("spec.containers[0].image", UNKNOWN_CUDA)] if told else []) == [*decision.not_checked]
    assert "not-checked" not in decision.audit


# Kinds


@pytest.mark.parametrize(
    ("path", "configured"),
    [
        (("spec", "template"), "spec.template"),
        (("spec", "replicaSpecs", "Worker", "template"), "spec.replicaSpecs.*.template"),
        (("spec", "tasks", 3, "pod"), "spec.tasks.*.pod"),
    ],
)
def test_an_unknown_kind_with_a_pod_has_the_line_that_makes_it_checked(
    path: tuple[str | int, ...], configured: str
) -> None:
    """The suggestion works, for lists and for maps of names."""
    inner = [None] * 3 if 3 in path else None
    document = nested(path, pod()) if inner is None else {"spec": {"tasks": [{}, {}, {}, {"pod": pod()}]}}
    (reason,) = reasons(of_kind("example.com", "Train", document))

    line = f"example.com: {{Train: [{configured}]}}"
    added, errors = read_workloads([("kinds.yaml", line)])

    assert (
        "unknown kind Train of API group 'example.com', but it contains a pod; to check it, write in the "
        f"file of --workloads: {line}"
    ) == reason
    assert [] == errors
    assert [pod()] == [*added.templates_of("example.com", "Train", document).values()]


def test_an_unknown_kind_that_requests_a_resource_has_no_line() -> None:
    """No path of the configuration describes its shape."""
    document = {"spec": {"backend": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}}
    documents = of_kind("example.com", "Play", document)

    assert ["spec.backend.resources.limits"] == [place.path for place in documents.not_checked]
    assert "in a shape that no path of --workloads describes" in reasons(documents)[0]


def test_an_unknown_kind_with_a_pod_in_a_list_of_a_list_has_no_line() -> None:
    """A path has one `*`."""
    (reason,) = reasons(of_kind("example.com", "Train", {"spec": {"groups": [{"tasks": [{"pod": pod()}]}]}}))

    assert "contains a pod in a list of a list, which no path of --workloads describes" in reason


def test_a_kind_of_kubernetes_in_the_wrong_group_has_the_right_one() -> None:
    (reason,) = reasons(of_kind("apps", "Pod", pod()))

    assert "apiVersion apps/v1 has no known kind Pod – did you mean apiVersion v1?" == reason


@pytest.mark.parametrize(
    ("group", "kind", "document"),
    [
        ("", "Service", {"spec": {"ports": [{"port": 80}]}}),
        ("", "ConfigMap", {"data": {"pod": "spec: {containers: [{image: a}]}"}}),
        ("example.com", "Train", {"spec": {"containers": "x"}, "status": pod()}),
        ("example.com", "Train", {}),
    ],
)
def test_an_object_without_pods_is_skipped_without_a_word(
    group: str, kind: str, document: dict[str, Any]
) -> None:
    assert ALLOWED is of_kind(group, kind, document)


def test_what_a_controller_adds_is_not_checked() -> None:
    """A known part of a kind that no path describes."""
    spec = {"driver": {"gpu": {"name": "nvidia.com/gpu", "quantity": 1}}}
    (place,) = of_kind("sparkoperator.k8s.io", "SparkApplication", {"spec": spec}).not_checked

    assert ("spec.driver.gpu", True) == (place.path, place.reason.en.startswith("Spark's operator adds"))


def test_a_kind_whose_runtime_has_all_containers_is_not_checked() -> None:
    documents = of_kind("serving.kserve.io", "InferenceService", {"spec": {"predictor": {}}})

    assert [
        "InferenceService has no containers of its own here; what is created from it is checked"
    ] == reasons(documents)


def test_a_quantity_that_a_workflow_fills_in_is_not_checked() -> None:
    spec = {"templates": [{"container": container({"nvidia.com/gpu": "{{inputs.parameters.gpus}}"})}]}
    (place,) = of_kind("argoproj.io", "Workflow", {"spec": spec}).not_checked

    assert "spec.templates[0].container.resources.limits[nvidia.com/gpu]" == place.path


def test_a_large_unknown_object_is_read_in_part() -> None:
    """A pod behind that is not found."""
    document = {"spec": {"items": [{} for _ in range(not_checked.MOST_READ)], "template": pod()}}

    assert ALLOWED is of_kind("example.com", "Train", document)


def test_a_pod_without_accelerators_has_nothing_unchecked() -> None:
    """It takes the cheapest path."""
    assert ALLOWED is decide(Snapshot(RULE, EMPTY), request(pod(container({"cpu": 1}))))
