"""Annotations of a pod that request something of GPUs count as limits of one container."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.pipeline import Snapshot, decide
from rules.model.decision import ALLOWED, Decision
from rules.text.i18n import Language
from tests.support.builders import (
    container,
    decision,
    injection_rule,
    loaded,
    patched,
    pod,
    policy,
    request,
    resource_rule,
    warning_texts,
)
from tests.support.node_builders import (
    GPU,
    compatibility_rule,
    cuda_image,
    gfd,
    inventory,
    node,
    nodes,
    targets,
)

SHARE, MEMORY = "annotation/share", "annotation/example.com/memory"
READ: Any = {"schedulers": "gang, other", "sharesOf": GPU, "containerFrom": "share-of"}
OF_SHARE = resource_rule(SHARE, dataType="float", **READ)
OF_MEMORY = resource_rule(MEMORY, name="cf-crl-group-memory", resourceUnit="1Mi", **READ)


def sharing(annotations: dict[str, Any], *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a pod with annotations, of the scheduler that reads them."""
    main = container() | {"name": "main"}
    return pod(*(containers or (main,)), metadata={"annotations": annotations}, schedulerName="gang", **spec)


def found(decided: Decision) -> list[tuple[str, str]]:
    """Return the path of each violation, and what it says."""
    return [(violation.path, violation.cause.en) for violation in decided.violations]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5", []),
        ("0", []),
        ("5e-1", []),
        (".5", []),
        ("500m", ["found 500m, expected a number without a unit"]),
        ("half", ["found half, expected a number without a unit"]),
        ("", ["found , expected a number without a unit"]),
        ("-1", ["found -1, expected zero or more"]),
    ],
)
def test_an_annotation_is_a_number_without_a_unit(text: str, expected: list[str]) -> None:
    """Schedulers read no quantities of Kubernetes in it."""
    decided = decision(policy(OF_SHARE), sharing({"share": text}))

    assert [("metadata.annotations.share", cause) for cause in expected] == found(decided)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2000", ""), ("16Gi", "use 16384: 16Gi is 16384 units of 1Mi"), ("1.5", "use a whole number")],
)
def test_a_whole_number_is_suggested_in_the_unit_of_the_rule(text: str, expected: str) -> None:
    """As for a resource."""
    decided = decision(policy(OF_MEMORY), sharing({"example.com/memory": text}))

    assert [expected] * bool(expected) == [violation.fix.en for violation in decided.violations]


@pytest.mark.parametrize("scheduler", [None, "", "default-scheduler", "unknown"])
def test_an_annotation_that_the_scheduler_of_the_pod_does_not_read_requests_nothing(
    scheduler: str | None,
) -> None:
    """It may mean something else to somebody else."""
    document = sharing({"share": "half"})
    document["spec"]["schedulerName"] = scheduler

    assert decision(policy(OF_SHARE), document) == ALLOWED


@pytest.mark.parametrize(("target", "expected"), [(None, "main"), ("side", "side"), ("first", "first")])
def test_another_annotation_names_the_container_and_the_first_one_is_the_default(
    target: str | None, expected: str
) -> None:
    """Init containers, too."""
    rule = injection_rule({"env": [{"name": "A", "value": "1"}]}, match={"resources": [SHARE]})
    names = {"share": "0.5"} | ({"share-of": target} if target else {})
    document = sharing(
        names,
        container() | {"name": "main"},
        container() | {"name": "side"},
        initContainers=[container() | {"name": "first"}],
    )
    after = patched(document, decision(policy(OF_SHARE, rule), document))
    containers = [*after["spec"]["containers"], *after["spec"]["initContainers"]]

    assert [expected] == [
        container_document["name"] for container_document in containers if "env" in container_document
    ]


def test_a_name_of_no_container_is_read_as_the_first_so_that_a_rule_can_compare_them() -> None:
    """`container.name` is not that of the annotation."""
    validation = {"expression": "pod.annotations['share-of'] == container.name", "messageEn": "a container"}
    rule = resource_rule(SHARE, dataType="float", validations=[validation], **READ)

    decided = decision(policy(rule), sharing({"share": "0.5", "share-of": "typo"}))

    assert [("metadata.annotations.share", "found 0.5, expected a container")] == found(decided)


def test_expressions_and_exclusions_see_it_as_a_limit() -> None:
    """By its name with the prefix."""
    validation = {"expression": f"value < 1.0 && limits['{SHARE}'] == 0.5", "messageEn": "a half"}
    rule = resource_rule(SHARE, dataType="float", excludeResources=GPU, validations=[validation], **READ)
    whole = container({GPU: "1"}) | {"name": "main"}

    assert [] == found(decision(policy(rule), sharing({"share": "0.5"})))
    assert [("metadata.annotations.share", "found 0.6, expected a half")] == found(
        decision(policy(rule), sharing({"share": "0.6"}))
    )
    assert [
        "found 0.5 together with nvidia.com/gpu, expected only one of annotation/share and nvidia.com/gpu"
    ] == [
        cause
        for _, cause in found(decision(policy(rule, resource_rule(GPU)), sharing({"share": "0.5"}, whole)))
    ]


CLUSTER = [
    *nodes(1, "old", gfd("12.2"), **{GPU: 8}),
    *nodes(1, "new", gfd("12.8"), **{GPU: 8}),
    node("plain", cpu="8"),
]
COMPATIBLE = compatibility_rule(match={"resources": [SHARE]}, sharing="physical")


def test_the_pod_is_compared_with_nodes_that_offer_the_devices() -> None:
    """No node offers the annotation; without it, nothing is compared."""
    rules = policy(OF_SHARE, COMPATIBLE)
    document = sharing({"share": "0.5"}, container(image=cuda_image("12.8")) | {"name": "main"})
    decided = decide(Snapshot(rules, inventory(CLUSTER)), request(document))
    too_new = sharing({"share": "0.5"}, container(image=cuda_image("13.0")) | {"name": "main"})

    assert ["new-0"] == targets(CLUSTER, document, decided)
    assert not decide(Snapshot(rules, inventory(CLUSTER)), request(too_new)).allowed
    too_new["metadata"] = {}
    assert decide(Snapshot(rules, inventory(CLUSTER)), request(too_new)) == ALLOWED


def test_a_cluster_without_such_devices_is_said() -> None:
    """By the name of the resource that nodes offer."""
    document = sharing({"share": "0.5"}, container(image=cuda_image("12.8")) | {"name": "main"})
    decided = decide(Snapshot(policy(OF_SHARE, COMPATIBLE), inventory(CLUSTER[2])), request(document))

    (warning,) = warning_texts(decided)
    assert GPU in warning


def test_an_update_of_the_image_is_checked() -> None:
    """As of a container that requests a resource."""
    rules = policy(OF_SHARE, COMPATIBLE)
    before, after = (
        sharing({"share": "0.5"}, container(image=cuda_image(cuda)) | {"name": "main"})
        for cuda in ("12.2", "13.0")
    )
    fields: dict[str, Any] = {"operation": "UPDATE", "old_object": before, "mutating": False}

    assert not decide(Snapshot(rules, inventory(CLUSTER)), request(after, **fields)).allowed


def test_the_template_of_a_workload_is_checked() -> None:
    """Its violations are at their places there."""
    template = sharing({"share": "half"})
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {"template": template}}
    decided = decision(policy(OF_SHARE), document)

    assert ["spec.template.metadata.annotations.share"] == [
        violation.path for violation in decided.violations
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"key": "vendor.com/device", "schedulers": "gang"}, "only a key annotation/NAME has it"),
        ({"schedulers": ""}, "expected the schedulerNames of the schedulers that read the annotation"),
        ({"schedulers": "default-scheduler"}, "expected the schedulerNames"),
        ({"sharesOf": ""}, "expected the name of a resource that nodes offer"),
        ({"key": "annotation/sha*"}, "expected the name of one annotation"),
        ({"limits": "required"}, "expected limits: optional, requests: disabled"),
        ({"requests": "fromLimits"}, "expected limits: optional, requests: disabled"),
        ({"defaultValue": "1"}, "an annotation has no default"),
    ],
)
def test_a_rule_with_keys_that_contradict_an_annotation_is_an_error(data: Any, expected: str) -> None:
    """A rule of a resource has none of these keys."""
    rule = resource_rule(**({"key": SHARE} | READ | data) | {"name": "cf-crl-group-share"})

    assert any(expected in error.line(Language.EN) for error in loaded(rule).errors)
