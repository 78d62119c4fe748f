"""Resource rules as policies of the API server; e2e/test_export.py tests their decisions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.cel.variables import INPUTS
from rules.decision.injection_stage import READ
from rules.schema.loader import load_rules
from tests.support.builders import exemption, injection_rule, resource_rule
from tests.support.command import gpugate
from tests.support.node_builders import compatibility_rule
from webhook.cli.export.policies import MEMBERS, NOT_EXPORTED, export

KEY = "vendor.com/device"
DEVICES = ("vendor.com/one", "vendor.com/two")


def _objects(*texts: str) -> dict[str, dict[str, Any]]:
    """Return the exported objects by kind and name."""
    loaded = load_rules([(f"rule-{number}", text) for number, text in enumerate(texts)])
    return {
        f"{document['kind']}/{document['metadata']['name']}": document
        for document in export(loaded.rules.resources).objects
    }


def test_a_group_is_one_validating_policy_with_its_binding() -> None:
    """For any number of rules; disabled rules are not exported."""
    objects = _objects(
        resource_rule("vendor.com/a", group="g"),
        resource_rule("vendor.com/b", group="g"),
        resource_rule("vendor.com/c", group="off", enabled=False),
    )

    assert ["ValidatingAdmissionPolicy/gpugate-g", "ValidatingAdmissionPolicyBinding/gpugate-g"] == list(
        objects
    )


def test_a_policy_excludes_the_namespaces_that_the_webhook_configurations_let_administrators_exclude() -> (
    None
):
    """By the same label."""
    configurations = yaml.safe_load_all(Path("manifests/base/webhooks.yaml").read_text())
    selectors = [
        expression
        for one in configurations
        for expression in one["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    ]
    ignored = [selector for selector in selectors if selector["key"] != "kubernetes.io/metadata.name"]
    objects = _objects(resource_rule("vendor.com/a", group="g"))
    binding = objects["ValidatingAdmissionPolicyBinding/gpugate-g"]["spec"]

    assert 2 == len(ignored)
    for condition in ignored:
        assert condition in binding["matchResources"]["namespaceSelector"]["matchExpressions"]


def test_each_action_is_a_separate_policy() -> None:
    """Because the binding has the action."""
    objects = _objects(
        resource_rule("vendor.com/a", group="g", enforcementAction="warn"),
        resource_rule("vendor.com/b", group="g", enforcementAction="dryrun"),
    )

    assert {"gpugate-g-warn": ["Warn"], "gpugate-g-dryrun": ["Audit"]} == {
        document["spec"]["policyName"]: document["spec"]["validationActions"]
        for document in objects.values()
        if document["kind"] == "ValidatingAdmissionPolicyBinding"
    }


def test_a_validation_with_another_action_is_in_the_policy_of_that_action() -> None:
    """The rule's other validations have their own policy."""
    checks = [
        {"expression": "value < 9", "messageEn": "less than 9"},
        {"expression": "value != 3", "messageEn": "not 3", "enforcementAction": "warn"},
    ]
    objects = _objects(resource_rule(KEY, group="g", validations=checks))

    assert {"gpugate-g": [False, True, False], "gpugate-g-warn": [False, False, True]} == {
        name: [
            any(
                text in validation["message"]
                for validation in objects[f"ValidatingAdmissionPolicy/{name}"]["spec"]["validations"]
            )
            for text in ("nothing", "less than 9", "not 3")
        ]
        for name in ("gpugate-g", "gpugate-g-warn")
    }


def test_a_policy_has_a_valid_object_name() -> None:
    """Although the group, a label value, has capitals and underscores."""
    assert "ValidatingAdmissionPolicy/gpugate-my-gpus.v2" in _objects(
        resource_rule(KEY, group="My_GPUs.v2", name="cf-crl-x-device")
    )


def test_a_default_is_a_mutating_policy() -> None:
    """For containers and init containers."""
    spec = _objects(resource_rule(KEY, group="g", defaultValue="20"))["MutatingAdmissionPolicy/gpugate-g"][
        "spec"
    ]
    patches = [mutation["jsonPatch"]["expression"] for mutation in spec["mutations"]]

    assert ["object.spec.containers", "object.spec.?initContainers"] == [
        patch.partition(".transformList" if number == 0 else ".orValue")[0]
        for number, patch in enumerate(patches)
    ]
    assert all('value: "20"' in patch for patch in patches)


def test_names_are_quoted() -> None:
    """Neither a description nor a key can end its string literal."""
    objects = _objects(resource_rule(KEY, group="g", descriptionEn='"quoted" \\ and\nmore'))
    (policy, _) = objects.values()

    assert '"quoted" \\ and\nmore' in policy["spec"]["validations"][0]["message"]


def test_the_command_prints_objects_and_lists_what_it_omits(tmp_path: Path) -> None:
    """Objects on stdout, the rest on stderr."""
    (tmp_path / "a.yaml").write_text(resource_rule(KEY, group="g", runtimeClassName="nvidia"), "utf-8")
    (tmp_path / "b.yaml").write_text(injection_rule({"hostIPC": True}, name="ipc"), "utf-8")
    (tmp_path / "d.yaml").write_text(compatibility_rule(name="shares"), "utf-8")
    spared = exemption("ipc", name="spared", namespaces={"include": ["a"]})
    (tmp_path / "c.yaml").write_text(spared, "utf-8")
    result = gpugate("export", tmp_path)
    listed = gpugate("export", tmp_path, "-o", "json")

    assert 0 == result.exit_code
    assert json.loads(listed.stdout)["items"] == list(yaml.safe_load_all(result.stdout))
    assert "runtimeClassName nvidia is not set" in result.stderr
    assert "ipc: not converted: policies support only resource rules" in result.stderr
    assert "shares: not converted: policies check neither drivers" in result.stderr
    assert (
        "spared: not converted: policies do not support exemptions; they also check the exempted pods"
        in result.stderr
    )


@pytest.mark.parametrize(("failure_policy", "count"), [("Fail", 0), ("Ignore", 1)])
def test_failure_policy_ignore_is_listed_as_omitted(failure_policy: str, count: int) -> None:
    """The policies of the API server deny if a validation cannot be evaluated."""
    rule = resource_rule(KEY, validations=[{"expression": "1 / value > 0"}], failurePolicy=failure_policy)
    omitted = export(load_rules([("rule", rule)]).rules.resources).omitted
    part = "failurePolicy is Fail: a validation that cannot be evaluated is violated"

    assert [("cf-crl-group-device", part)] * count == [(rule, text.en) for rule, text in omitted]


def test_a_validation_of_variables_is_listed_as_omitted() -> None:
    """A name may occur twice in a list of variables."""
    checks = [
        {"expression": "!('A' in container.env)", "messageEn": "no A"},
        {"expression": "pod.nodeName == ''", "messageEn": "no node"},
    ]
    rule = resource_rule(KEY, validations=checks)
    exported = export(load_rules([("rule", rule)]).rules.resources)
    (validations,) = [
        document["spec"]["validations"] for document in exported.objects if "validations" in document["spec"]
    ]

    assert ["!('A' in container.env) is not checked: policies do not have container.env"] == [
        text.en for _, text in exported.omitted
    ]
    assert ["no node"] == [
        text
        for text in ("no A", "no node")
        if any(text in validation["message"] for validation in validations)
    ]


def test_each_member_that_an_expression_can_name_is_exported_or_listed() -> None:
    """A new one is not forgotten."""
    variables = {"value", "limits", "requests"}

    assert INPUTS.keys() - variables == {*MEMBERS, *NOT_EXPORTED}
    assert READ.keys() == INPUTS.keys() - {"value"}


def test_related_resources_of_another_group_are_listed() -> None:
    """The policies of a group know its own rules only."""
    read = load_rules(
        [
            ("a", resource_rule("vendor.com/a", group="g", relatedResources="vendor.com/b, vendor.com/c")),
            ("b", resource_rule("vendor.com/b", group="g")),
            ("c", resource_rule("vendor.com/c", group="h")),
        ]
    )

    assert ["relatedResources vendor.com/c of other groups is not applied"] == [
        text.en for _, text in export(read.rules.resources).omitted
    ]


def test_a_rule_of_an_annotation_is_listed_as_omitted() -> None:
    """Its group has no policy."""
    rule = resource_rule("annotation/share", schedulers="gang", sharesOf="nvidia.com/gpu")
    exported = export(load_rules([("rule.yaml", rule)]).rules.resources)

    assert () == exported.objects
    assert [("cf-crl-group-share", "policies check resources, and its key is an annotation")] == [
        (name, part.en) for name, part in exported.omitted
    ]


def test_an_invalid_rule_set_is_not_exported(tmp_path: Path) -> None:
    """An incomplete rule set would deny or allow the wrong pods."""
    path = tmp_path / "rule.yaml"
    path.write_text(resource_rule(KEY, limits="optinal"), "utf-8")
    result = gpugate("export", path)

    assert (2, "") == (result.exit_code, result.stdout)
    assert "did you mean 'optional'" in result.stderr


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        (("x", "warn"), ("x-warn", "deny"), "gpugate-x-warn"),
        (("a_b", "deny"), ("a-b", "deny"), "gpugate-a-b"),
        (("A", "deny"), ("a", "deny"), "gpugate-a"),
    ],
)
def test_groups_with_the_same_policy_name_are_an_error(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str], name: str
) -> None:
    """The second would overwrite the first in the cluster."""
    for number, (group, action) in enumerate((first, second)):
        name_of_rule = f"cf-crl-{number}"  # a name may hold less than a label's value
        rule = resource_rule(DEVICES[number], name=name_of_rule, group=group, enforcementAction=action)
        (tmp_path / f"{number}.yaml").write_text(rule, "utf-8")
    result = gpugate("export", tmp_path)
    groups = " and ".join(sorted(map(repr, (first[0], second[0]))))

    assert (2, "") == (result.exit_code, result.stdout)
    assert result.stderr.endswith(f"groups {groups} have the same policy name {name}; rename one of them\n")
