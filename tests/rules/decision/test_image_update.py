"""Updates of pods: a new image is checked as at creation, and nothing else is."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy
from rules.decision.size_limit import MOST_NAMES, RULE
from rules.model.decision import ALLOWED, Decision
from tests.support.builders import (
    container,
    exemption,
    patched,
    pod,
    policy,
    request,
    resource_rule,
    warning_texts,
)
from tests.support.dra_clusters import A100_NAME, T4_NAME, bare_node, claim_template, device_class, gpus_of
from tests.support.node_builders import (
    CUDA,
    GPU,
    H100,
    compatibility_rule,
    cuda_image,
    gfd,
    gpu_container,
    gpu_pod,
    inventory,
    node,
    nodes,
    shipped,
)

CLUSTER = inventory(
    nodes(1, "old", gfd("12.2")), nodes(1, "new", gfd("13.0", H100)), node("unknown"), node("other", cpu="8")
)
OLD, NEWER, NEWEST = cuda_image("12.2"), cuda_image("12.8"), cuda_image("13.0")


# Of a label that the node of the pod had when it was bound.
OF_TEAM: dict[str, Any] = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "team", "operator": "Exists"}]}]
        }
    }
}


def updated(
    before: Any, after: Any, rules: Policy | None = None, now: float = math.inf, **fields: Any
) -> Decision:
    """Return the decision on the update of a pod."""
    fields_of_update = {"operation": "UPDATE", "old_object": before, "mutating": False} | fields
    return decide(Snapshot(rules or shipped(), CLUSTER), request(after, **fields_of_update), now)


@pytest.mark.parametrize(
    ("image", "spec", "allowed"),
    [
        (NEWEST, {"nodeName": "old-0"}, False),
        (cuda_image("11.8"), {"nodeName": "old-0"}, True),
        ("busybox", {"nodeName": "old-0"}, True),
        (NEWEST, {"nodeName": "new-0"}, True),
        (NEWEST, {"nodeName": "unknown"}, True),
        (NEWEST, {"nodeName": "other"}, True),
        (NEWEST, {"nodeName": "gone"}, True),
        (NEWEST, {}, True),
        (NEWEST, {"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}}, False),
        (NEWEST, {"nodeName": "old-0", "nodeSelector": {"team": "a"}}, False),
        (NEWEST, {"nodeName": "old-0", "affinity": OF_TEAM}, False),
        (NEWEST, {"nodeName": "old-0", "metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}}, True),
        (
            NEWEST,
            {"nodeName": "old-0", "metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}},
            True,
        ),
        (NEWEST, {"nodeName": "old-0", "metadata": {"annotations": {CUDA: "12.2"}}}, True),
    ],
)
def test_a_new_image_must_run_on_the_node_of_the_pod(image: str, spec: dict[str, Any], allowed: bool) -> None:
    """A pod that is not bound may go to any node that it selects; labels of its own node may have changed."""
    decision = updated(gpu_pod(OLD, **spec), gpu_pod(image, **spec))

    assert allowed == decision.allowed
    assert () == decision.patch


def test_the_message_names_the_node_and_its_place() -> None:
    """The pod cannot move."""
    decision = updated(gpu_pod(OLD, nodeName="old-0"), gpu_pod(NEWEST, nodeName="old-0"))

    assert decision.denial.en.startswith(
        "Pod denied by gpugate: node old-0 is not compatible with container 'main': image tag `cuda13.0`"
    )
    assert {"compatibility-pgpu (policy): spec.containers[0].image"} == {decision.audit["violations"]}


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {CUDA: "13.0"}}},
        {"tolerations": [{"operator": "Exists"}]},
        {"activeDeadlineSeconds": 5},
        {"nodeName": "old-0"},
    ],
)
def test_other_updates_of_a_pod_are_allowed_whatever_it_violates(change: dict[str, Any]) -> None:
    """It is there already."""
    assert ALLOWED == updated(
        gpu_pod(NEWEST, nodeName="old-0"), gpu_pod(NEWEST, **{"nodeName": "old-0"} | change)
    )
    assert ALLOWED == updated(gpu_pod(OLD), gpu_pod(OLD, limits={GPU: "2000"}))


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        (NEWEST, "other/app:cuda13.0", True),
        (NEWEST, NEWER, False),
        (NEWEST, OLD, True),
        ("busybox", NEWER, False),
    ],
)
def test_what_the_old_image_violates_as_well_is_not_denied(before: str, after: str, allowed: bool) -> None:
    """The same violation only: an image that requires another version has another one."""
    decision = updated(gpu_pod(before, nodeName="old-0"), gpu_pod(after, nodeName="old-0"))

    assert (allowed, ()) == (decision.allowed, warning_texts(decision))


def test_a_violation_of_resources_does_not_block_a_new_image() -> None:
    """They cannot change, and were admitted."""
    rules = policy(compatibility_rule(), resource_rule(GPU, limits="disabled"))
    pods = [gpu_pod(image, nodeName="old-0") for image in (OLD, cuda_image("11.8"), NEWEST)]

    assert [True, False] == [updated(pods[0], after, rules).allowed for after in pods[1:]]
    assert ["compatibility"] == [violation.rule for violation in updated(pods[0], pods[2], rules).violations]


def test_only_containers_with_a_new_image_are_checked() -> None:
    """Init containers and sidecars, too; a container without a GPU never."""

    def several(main: str, init: str, proxy: str) -> Any:
        document = gpu_pod(main, nodeName="old-0")
        document["spec"]["initContainers"] = [gpu_container(init) | {"name": "init"}]
        document["spec"]["containers"].append(container(name="proxy", image=proxy))
        return document

    before = several(NEWEST, NEWER, "a")
    after = [several(NEWEST, NEWER, NEWEST), several(NEWEST, OLD, "a"), several(NEWEST, NEWEST, "a")]

    assert [True, True, False] == [updated(before, changed).allowed for changed in after]
    assert ["spec.initContainers[0].image"] == [
        violation.path for violation in updated(before, after[2]).violations
    ]


def test_a_new_image_must_run_on_the_devices_of_the_claims_of_its_container() -> None:
    """Of those on the pod's own node."""
    cluster = inventory(
        [bare_node("t4"), bare_node("a100"), device_class(), claim_template("gpu")],
        [gpus_of("t4", T4_NAME, "12.2"), gpus_of("a100", A100_NAME, "13.0")],
    )

    def claiming(image: str, bound_to: str) -> Any:
        main = {"name": "main", "image": image, "resources": {"claims": [{"name": "gpu"}]}}
        claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        return pod(main, resourceClaims=claims, nodeName=bound_to)

    def allowed(before: str, after: str, bound_to: str) -> bool:
        pods = [claiming(image, bound_to) for image in (before, after)]
        review = request(pods[1], operation="UPDATE", old_object=pods[0], mutating=False)
        return decide(Snapshot(shipped(), cluster), review).allowed

    # Of CUDA 13.0. NVIDIA's DRA driver loads the compatibility libraries that other images may have.
    newest = "pytorch/pytorch:2.9.0-cuda13.0-cudnn9-runtime"
    other = f"mirror.example/{newest}"
    assert [False, False, True, True] == [
        allowed(OLD, newest, "t4"),
        allowed(OLD, other, "t4"),
        allowed(newest, other, "t4"),
        allowed(OLD, newest, "a100"),
    ]


def test_an_exemption_covers_updates_until_it_expires() -> None:
    """As at creation."""
    rules = policy(compatibility_rule(), exemption("compatibility", expires="2026-12-31"))
    before, after = (gpu_pod(image, nodeName="old-0") for image in (OLD, NEWEST))

    assert [True, False] == [updated(before, after, rules, now).allowed for now in (0, 4e9)]
    assert {"exempted": "compatibility (exemption)"} == updated(before, after, rules, 0).audit


def test_a_rule_that_warns_warns_once() -> None:
    """With the same message as at creation, and never if the old image has the same violation."""
    rules = policy(compatibility_rule(enforcementAction="warn"))
    before, after, same = (gpu_pod(image, nodeName="old-0") for image in (OLD, NEWEST, "other/app:cuda13.0"))
    (warning,) = warning_texts(updated(before, after, rules))

    assert "node old-0 is not compatible with container 'main'" in warning
    assert () == warning_texts(updated(after, same, rules))


def test_a_pod_that_is_not_bound_is_warned_if_its_affinity_is_not_that_of_the_new_image() -> None:
    """It cannot change; a pod that had no such affinity before gets no further warning."""
    before = gpu_pod(OLD)
    stored = patched(before, decide(Snapshot(shipped(), CLUSTER), request(before)))
    images = [cuda_image("11.8"), NEWEST]
    same, other = (stored | {"spec": stored["spec"] | gpu_pod(image)["spec"]} for image in images)
    (warning,) = warning_texts(updated(stored, other))

    assert "the pod's node affinity cannot change and is not that of the new image" in warning
    assert () == warning_texts(updated(stored, same))
    assert () == warning_texts(updated(gpu_pod(NEWER), gpu_pod(NEWEST)))


def test_the_mutating_endpoint_leaves_updates_to_the_validating_one() -> None:
    """A running pod is never patched."""
    before, after = (gpu_pod(image, nodeName="old-0") for image in (OLD, NEWEST))

    assert ALLOWED == updated(before, after, mutating=True)


def test_a_container_that_was_not_there_is_checked() -> None:
    """The API server denies it afterwards."""
    assert not updated({}, gpu_pod(NEWEST, nodeName="old-0")).allowed
    assert not updated(None, gpu_pod(NEWEST, nodeName="old-0")).allowed


def test_the_size_limit_applies_to_updates() -> None:
    """Of an image; other updates are allowed without a look at the pod."""
    large = {GPU: "1"} | {f"a.com/b{at}": "1" for at in range(2 * MOST_NAMES + 1)}
    before, after = (gpu_pod(image, limits=large, nodeName="old-0") for image in (OLD, NEWEST))

    assert [RULE] == [violation.rule for violation in updated(before, after).violations]
    assert ALLOWED == updated(before, before | {"metadata": {"labels": {"a": "b"}}})


def test_a_pod_and_the_one_that_it_replaces_share_one_budget() -> None:
    """To read the variables of each takes two thirds of it; equal ones are read once."""

    def requiring(image: str, last: str) -> Any:
        document = gpu_pod(image, nodeName="old-0")
        text = "cuda>=11.0 " * 300 + last
        document["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_REQUIRE_X", "value": text}]
        return document

    after = requiring(NEWEST, "cuda>=11.1")
    alone, equal, different = (
        updated(before, after)
        for before in (
            gpu_pod(OLD, nodeName="old-0"),
            requiring(OLD, "cuda>=11.1"),
            requiring(OLD, "cuda>=11.2"),
        )
    )

    assert ["compatibility-pgpu"] == [violation.rule for violation in alone.violations]
    assert [RULE] == [violation.rule for violation in different.violations]
    assert alone.allowed is equal.allowed is different.allowed is False
