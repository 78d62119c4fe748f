"""Additional rules: validations that are added to those of a resource's own rule."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.policy import Policy
from rules.lint.rule_set_checks import lint
from tests.support.builders import (
    container,
    decision,
    exemption,
    loaded,
    pod,
    policy,
    refused_at,
    resource_rule,
)

GPU = "nvidia.com/gpu"
OWN = resource_rule(GPU)
DEADLINE = {
    "expression": "pod.activeDeadlineSeconds > 0",
    "messageEn": "activeDeadlineSeconds in the pod",
    "fixEn": "set spec.activeDeadlineSeconds",
}
MEMORY = {"expression": "'memory' in limits", "messageEn": "a limit of memory"}


def additional(
    *validations: dict[str, str],
    key: str = "nvidia.com/*",
    name: str = "cf-crl-extra-rule",
    enabled: bool = True,
    **data: str,
) -> str:
    """Return an additional rule; data: further keys of it."""
    data = {"dataType": "string", "additional": "true"} | data
    checks = list(validations)
    return resource_rule(key, name=name, group="extra", enabled=enabled, validations=checks, **data)


def violations(rules: Policy, **limits: str) -> list[str]:
    """Return what is found in a pod of one container with these limits, as `_` for `nvidia.com/`."""
    names = {f"nvidia.com/{name}" if name != "memory" else name: value for name, value in limits.items()}
    findings = decision(rules, pod(container(names))).violations
    return [f"{finding.cause.en}; {finding.fix.en}" for finding in findings]


def test_an_additional_rule_adds_to_the_rule_of_the_resource() -> None:
    """Both have the same key, and each finds what is wrong."""
    rules = policy(OWN, additional(DEADLINE, key=GPU))
    half = pod(container({GPU: "500m"}))

    assert [
        "found nvidia.com/gpu: 1, expected activeDeadlineSeconds in the pod; set spec.activeDeadlineSeconds"
    ] == violations(rules, gpu="1")
    assert {"cf-crl-group-gpu", "cf-crl-extra-rule"} == {
        finding.rule for finding in decision(rules, half).violations
    }


def test_an_additional_rule_is_evaluated_once_for_a_container_with_several_of_its_resources() -> None:
    """At the first of them."""
    rules = policy(additional(DEADLINE, MEMORY))
    answer = decision(rules, pod(container({GPU: "1", "nvidia.com/gpumem": "8000"}), container({"cpu": "1"})))

    assert [f"spec.containers[0].resources.limits[{GPU}]"] * 2 == refused_at(answer)


def test_an_additional_rule_sets_nothing_and_checks_no_request() -> None:
    """The resource's own rule does."""
    document = pod(container({GPU: "2"}, {GPU: "2"}), activeDeadlineSeconds=60)
    answer = decision(policy(additional(DEADLINE)), document)

    assert (True, ()) == (answer.allowed, answer.patch)


def test_several_additional_rules_may_have_one_key() -> None:
    """Unlike others."""
    texts = (OWN, additional(DEADLINE), additional(MEMORY, name="cf-crl-extra-memory"))

    assert [] == [str(error) for error in loaded(*texts).errors]
    assert 2 == len(violations(policy(*texts), gpu="1"))


def test_an_additional_rule_can_be_exempted_from() -> None:
    """As others."""
    allowed = exemption("cf-crl-extra-rule", namespaces={"include": ["team"]})
    rules = policy(OWN, additional(DEADLINE), allowed)

    assert decision(rules, pod(container({GPU: "1"})), now=0).allowed


def test_a_pod_that_a_controller_completes_is_checked_when_it_is_created() -> None:
    """What is absent may be added."""
    service = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "model"},
        "spec": {"predictor": {"model": {"resources": {"limits": {GPU: "1"}}}}},
    }

    assert () == decision(policy(OWN, additional(DEADLINE)), service).violations


@pytest.mark.parametrize("enabled", [True, False])
def test_a_resource_with_additional_rules_only_has_no_rule(*, enabled: bool) -> None:
    """A misspelt name of it is named, although the glob of an additional rule matches it."""
    extra = additional(DEADLINE, enabled=enabled)
    misspelt = pod(container({"nvidia.com/gpus": "1"}), activeDeadlineSeconds=60)
    not_checked = decision(policy(OWN, extra), misspelt).not_checked

    assert ["no enabled rule for resource nvidia.com/gpus – did you mean 'nvidia.com/gpu'?"] == [
        part.reason.en for part in not_checked
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"defaultValue": "1"}, "an additional rule only adds validations; remove defaultValue"),
        (
            {"excludeResources": "a/b"},
            "an additional rule only adds validations; remove excludeResources",
        ),
        ({"runtimeClassName": "n"}, "an additional rule only adds validations; remove runtimeClassName"),
        ({"limits": "required"}, "an additional rule only adds validations; write limits: optional"),
        ({"requests": "required"}, "an additional rule only adds validations; write requests: disabled"),
    ],
)
def test_what_an_additional_rule_does_not_use_is_an_error(data: dict[str, Any], message: str) -> None:
    """With the key."""
    assert [message] == [error.message for error in loaded(additional(key=GPU, **data)).errors]


def test_a_validation_of_the_value_is_an_error_in_an_additional_rule() -> None:
    """A container may ask for several of its resources, or for shares."""
    errors = loaded(additional({"expression": "value < 9"})).errors

    message = (
        "an additional rule is evaluated once a container and has no value; use container.gpus, "
        "or limits['NAME']"
    )

    assert [message] == [error.message for error in errors]


def test_lint_compares_no_names_with_those_of_additional_rules() -> None:
    """Nor does it ask to enable all of their group."""
    off = additional(MEMORY, name="cf-crl-extra-memory", enabled=False)
    other = resource_rule("nvidia.com/gpus", excludeResources="nvidia.com/gpu-s")
    read = lint([("a", OWN), ("b", additional(DEADLINE)), ("c", off), ("d", other)], 0)

    assert ["misspelt-resource"] == [warning.code for warning in read.warnings]
