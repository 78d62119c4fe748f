"""A policy returns the plan for a container's resources: the enabled rules that apply, in their order."""

from __future__ import annotations

import pytest

from rules.decision.policy import Plan
from tests.support.builders import DEVICE, container, decision, injection_rule, pod, policy, resource_rule
from tests.support.node_builders import compatibility_rule

OTHER = "vendor.com/other"


@pytest.mark.parametrize(
    ("names", "rules"),
    [
        ((), []),
        (("cpu", "memory"), []),
        ((DEVICE,), ["cf-crl-group-device", "cf-crl-group-other"]),
        ((OTHER, DEVICE), ["cf-crl-group-device", "cf-crl-group-other"]),
        (("vendor.com/mig-1g",), ["cf-crl-mig-mig"]),
        (
            ("vendor.com/mig-1g", "cpu", "vendor.com/mig-2g", OTHER),
            ["cf-crl-mig-mig", "cf-crl-group-device", "cf-crl-group-other"],
        ),
    ],
)
def test_a_plan_has_the_rules_of_every_group_that_a_resource_belongs_to_once(
    names: tuple[str, ...], rules: list[str]
) -> None:
    """By name or glob, group by group."""
    compiled = policy(resource_rule(), resource_rule(OTHER), resource_rule("vendor.com/mig-*", group="mig"))

    assert rules == [rule.name for rule in compiled.plan_for(names).resources]


@pytest.mark.parametrize("requested", [DEVICE, OTHER])
def test_a_plan_has_related_rules_of_other_groups(requested: str) -> None:
    """Whichever of the two names the other; a key that no rule has changes nothing."""
    compiled = policy(
        resource_rule(relatedResources=f"{OTHER}, vendor.com/none"),
        resource_rule(OTHER, group="own", limits="required"),
        resource_rule("vendor.com/third", group="own", name="cf-crl-own-third", enabled=False),
    )
    rules = {rule.name for rule in compiled.plan_for((requested,)).resources}

    assert {"cf-crl-group-device", "cf-crl-own-other"} == rules
    assert not decision(compiled, pod(container({DEVICE: "1"}))).allowed
    assert decision(compiled, pod(container({DEVICE: "1", OTHER: "1"}))).allowed


def test_related_rules_of_one_group_apply_once() -> None:
    """As without relatedResources."""
    texts = resource_rule(relatedResources=OTHER), resource_rule(OTHER)
    names = [rule.name for rule in policy(*texts).plan_for((OTHER,)).resources]

    assert ["cf-crl-group-device", "cf-crl-group-other"] == names


def test_a_plan_has_injection_and_compatibility_rules_in_the_order_of_their_names() -> None:
    """Each once, even if several of its resources are requested."""
    matches = {"b": [DEVICE, "vendor.com/*"], "a": [OTHER], "c": ["absent.com/x"]}
    compiled = policy(
        *(
            injection_rule({"hostIPC": True}, name=name, match={"resources": resources})
            for name, resources in matches.items()
        ),
        *(
            compatibility_rule(name=f"compatibility-{name}", match={"resources": resources})
            for name, resources in matches.items()
        ),
    )
    plan = compiled.plan_for((DEVICE, OTHER))

    assert (["a", "b"], ["compatibility-a", "compatibility-b"]) == (
        [rule.name for rule in plan.injections],
        [rule.name for rule in plan.compatibility],
    )


def test_disabled_rules_are_in_no_plan() -> None:
    """A group whose rules are all disabled does not exist."""
    compiled = policy(
        resource_rule(enabled=False), resource_rule(OTHER), injection_rule({"hostIPC": True}, enabled=False)
    )

    assert Plan((), (), (), (DEVICE,)) == compiled.plan_for((DEVICE,))
    assert ["cf-crl-group-other"] == [rule.name for rule in compiled.plan_for((OTHER,)).resources]


def test_the_plan_of_an_empty_policy_is_empty() -> None:
    """The webhook starts and serves without rules."""
    assert Plan((), (), (), (DEVICE,)) == policy().plan_for((DEVICE,))
