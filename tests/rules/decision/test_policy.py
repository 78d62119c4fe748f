"""A policy finds the rules that a container's resources bring in, and only those that are switched on."""

from __future__ import annotations

import pytest

from tests.support.builders import DEVICE, injection_rule, policy, resource_rule

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
def test_the_rules_of_every_group_that_a_resource_belongs_to_are_found_once(
    names: tuple[str, ...], rules: list[str]
) -> None:
    """By name or glob, group by group."""
    compiled = policy(resource_rule(), resource_rule(OTHER), resource_rule("vendor.com/mig-*", group="mig"))

    assert rules == [rule.name for rule in compiled.groups_of(names)]


def test_injection_rules_are_found_in_the_order_of_their_names() -> None:
    """Each once, however many of its resources are asked for."""
    compiled = policy(
        injection_rule({"hostIPC": True}, name="b", match={"resources": [DEVICE, "vendor.com/*"]}),
        injection_rule({"hostIPC": True}, name="a", match={"resources": [OTHER]}),
        injection_rule({"hostIPC": True}, name="c", match={"resources": ["absent.com/x"]}),
    )

    assert ["a", "b"] == [rule.name for rule in compiled.injections_of((DEVICE, OTHER))]


def test_rules_that_are_switched_off_are_not_found() -> None:
    """A group of none is no group."""
    compiled = policy(
        resource_rule(enabled=False),
        resource_rule(OTHER),
        injection_rule({"hostIPC": True}, enabled=False),
    )

    assert [(), ["cf-crl-group-other"], ()] == [
        compiled.groups_of((DEVICE,)),
        [rule.name for rule in compiled.groups_of((OTHER,))],
        compiled.injections_of((DEVICE,)),
    ]


def test_an_empty_policy_finds_nothing() -> None:
    """It starts and serves with the rules it has."""
    compiled = policy()

    assert ((), ()) == (compiled.groups_of((DEVICE,)), compiled.injections_of((DEVICE,)))
