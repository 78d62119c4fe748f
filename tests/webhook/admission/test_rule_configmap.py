"""Rule ConfigMaps are validated at admission: every error with its place; other ConfigMaps are allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules.text.i18n import Language
from tests.support.builders import config_map, exemption, injection_rule, loaded, resource_rule
from tests.support.cpu_time import loops
from tests.support.node_builders import compatibility_rule, node_profile
from tests.support.paths import TESTS
from tests.support.webhooks import body, builtin_handler
from webhook.admission.handler import AdmissionHandler

RECORDED = TESTS / "reviews/018-create-configmap-cf-crl-gpu-manager-vcuda-core/request.json"


def answer(
    handler: AdmissionHandler, document: str | dict[str, Any] | None, old: str | None = None, **request: Any
) -> dict[str, Any]:
    """Return the response of /validate to a ConfigMap in the namespace of rules."""
    parsed = yaml.safe_load(document) if isinstance(document, str) else document
    fields = {"namespace": "kube-public", "oldObject": yaml.safe_load(old) if old else None}
    content = body(parsed, **{"operation": "UPDATE" if old else "CREATE"} | fields | request)
    response: dict[str, Any] = json.loads(handler.answer("validate", content))["response"]
    return response


def denial(handler: AdmissionHandler, document: str, old: str | None = None) -> list[str]:
    """Return the lines of a denial, whose code must be 403."""
    response = answer(handler, document, old)
    assert (False, 403, "Forbidden") == (
        response["allowed"],
        response["status"]["code"],
        response["status"]["reason"],
    )
    lines: list[str] = response["status"]["message"].split("\n")
    return lines


def handler(*texts: str) -> AdmissionHandler:
    """Return a handler with these rules in force."""
    return AdmissionHandler(loaded(*texts))


def recorded(**data: str) -> bytes:
    """Return a recorded review of the creation of a rule, with some keys of its data changed."""
    review = json.loads(RECORDED.read_text("utf-8"))
    review["request"]["object"]["data"] |= data
    return json.dumps(review).encode()


def test_a_valid_recorded_rule_is_allowed() -> None:
    """It does not conflict with the rule of the same name in force: it is its next version."""
    response = json.loads(builtin_handler().answer("validate", recorded()))["response"]

    assert {"uid": response["uid"], "allowed": True} == response


def test_every_error_of_a_recorded_rule_is_reported_with_its_path() -> None:
    """In the format that kubectl prints."""
    content = recorded(limits="optinal", requests="never")
    response = json.loads(builtin_handler().answer("validate", content))["response"]

    assert (
        "ConfigMap denied by gpugate, 2 violations: "
        "1. data.limits: expected one of disabled, required, optional, got 'optinal'"
        " – did you mean 'optional'? [rule cf-crl-gpu-manager-vcuda-core]\n"
        "  2. data.requests: expected one of disabled, required, fromLimits, got 'never'"
        " [rule cf-crl-gpu-manager-vcuda-core]"
    ) == response["status"]["message"]


def test_an_error_in_rule_yaml_is_reported_with_its_line_there() -> None:
    """Lines are counted from the line below `rule.yaml: |`."""
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}
    text = "match:\n  resources: [a.com/b]\n  imagess: [x]\ninject: {hostIPC: 1}\n"
    lines = denial(handler(), config_map("mine", labels, {"rule.yaml": text}))

    assert (
        "ConfigMap denied by gpugate, 2 violations: 1. rule.yaml:3:3: match.imagess: unknown key 'imagess'"
        " – did you mean 'images'? [rule mine]"
    ) == lines[0]
    assert lines[1].startswith("  2. rule.yaml:4:19: inject.hostIPC: expected a boolean, got a number")


def test_an_error_in_a_setting_in_the_data_is_reported_with_its_path() -> None:
    """Next to `rule.yaml`, where an overlay can patch it."""
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}
    text = "match:\n  resources: [a.com/b]\ninject: {hostIPC: true}\n"
    data = {"enforcementAction": "dry-run", "rule.yaml": text}
    (line,) = denial(handler(), config_map("mine", labels, data))

    assert (
        "ConfigMap denied by gpugate: data.enforcementAction: expected one of inject, dryrun, got 'dry-run'"
        " – did you mean 'dryrun'? [rule mine]"
    ) == line


MISTAKES = {
    "pod.namespce == 'a'": "column 1: unexpected `pod.namespce` – did you mean `pod.namespace`?",
    "container.nam == 'a'": "column 1: unexpected `container.nam` – did you mean `container.name`?",
    'pod.labels == "1"': "column 1: unexpected `pod.labels` – did you mean `pod.labels['key']`?",
    "pod.hostIPC == 'yes'": "column 16: unexpected `'yes'` – did you mean `true`?",
    "limits.foo > 1": "column 1: unexpected `limits.foo` – did you mean `limits['vendor.com/foo']`?",
}


@pytest.mark.parametrize("expression", MISTAKES)
def test_an_expression_that_no_pod_satisfies_is_denied_in_each_kind_of_rule(expression: str) -> None:
    """With its place; in force it would fail for every pod of the resource."""
    match = {"conditions": [expression]}
    denied = [
        denial(handler(), document)
        for document in (
            resource_rule(validations=[{"expression": expression}]),
            injection_rule({"hostIPC": True}, match=match),
            compatibility_rule(match=match),
        )
    ]
    paths = ["validations:1:15: data.validations[0].expression: ", "rule.yaml:", "rule.yaml:"]

    for path, (line,) in zip(paths, denied, strict=True):
        assert line.startswith(f"ConfigMap denied by gpugate: {path}")
        assert f"CEL: {MISTAKES[expression]} [rule " in line


def test_invalid_yaml_is_reported_with_its_line_in_rule_yaml() -> None:
    """The path alone does not help."""
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}
    (line,) = denial(handler(), config_map("mine", labels, {"rule.yaml": "match: {}\ninject: [\n"}))

    assert line.startswith("ConfigMap denied by gpugate: rule.yaml:3:1: data[rule.yaml]: not YAML:")


def test_an_error_in_a_document_of_one_line_is_reported_with_its_path() -> None:
    """There is no line to count."""
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}
    (*_, line) = denial(handler(), config_map("mine", labels, {"rule.yaml": "matches: {}"}))

    assert line.startswith("  2. matches: unknown key 'matches'")


def test_a_rule_that_claims_the_resource_of_another_is_denied() -> None:
    """Unless it is disabled."""
    first, second = resource_rule(name="cf-crl-first-device"), resource_rule(name="cf-crl-second-device")
    (line,) = denial(handler(first), second)

    assert (
        "ConfigMap denied by gpugate: data.key: 'vendor.com/device' is also used by cf-crl-first-device "
        "(0.yaml); keep one rule, or disable the others by label [rule cf-crl-second-device]"
    ) == line
    assert answer(handler(first), resource_rule(name="cf-crl-second-device", enabled=False))["allowed"]


def test_an_edit_of_a_rule_does_not_conflict_with_itself() -> None:
    """A resource that the edit gives up is free."""
    rule = resource_rule()

    assert answer(handler(rule), resource_rule(limits="required"), rule)["allowed"]


@pytest.mark.parametrize("document", [resource_rule(), resource_rule(prefix="features.alauda.io/")])
def test_a_rule_cannot_lose_its_label(document: str) -> None:
    """It would stop without a message; delete or disable it instead."""
    bare = yaml.safe_load(document)
    del bare["metadata"]["labels"]
    (line,) = denial(handler(document), yaml.safe_dump(bare), document)

    headline = "ConfigMap denied by gpugate: metadata.labels: "
    assert line.startswith(f"{headline}a resource rule requires the label features.cpaas.io/type")


def test_a_rule_without_its_document_and_label_is_an_ordinary_config_map() -> None:
    """Its content is not validated."""
    document = injection_rule({"hostIPC": True})

    assert answer(handler(document), config_map("injection", {}, {"other": "thing"}), document)["allowed"]


def test_a_deletion_is_always_allowed() -> None:
    """So is an object with a deletionTimestamp."""
    broken = resource_rule(limits="optinal")
    leaving = yaml.safe_load(broken)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z"

    assert answer(handler(), None, broken, operation="DELETE")["allowed"]
    assert answer(handler(), leaving, resource_rule())["allowed"]


def test_a_change_outside_the_rule_is_allowed() -> None:
    """A new annotation does not break a rule that is already broken."""
    broken = resource_rule(limits="optinal")
    annotated = yaml.safe_load(broken)
    annotated["metadata"]["annotations"] = {"seen": "yes"}

    assert answer(handler(), annotated, broken)["allowed"]


def test_a_config_map_without_rule_labels_is_allowed() -> None:
    """Whatever its content is."""
    document = config_map("cf-crl-strange", {"app": "x"}, {"rule.yaml": "nonsense"})

    assert {"allowed": True} == {k: v for k, v in answer(handler(), document).items() if k != "uid"}


def test_a_rule_in_another_namespace_causes_a_warning() -> None:
    """It has no effect there, and may belong to another webhook."""
    response = answer(handler(), resource_rule(limits="optinal"), namespace="team")

    assert (
        True,
        ["gpugate: rules are read only from namespace kube-public; this rule in team has no effect"],
    ) == (response["allowed"], response["warnings"])


def test_lint_warnings_are_warnings_of_the_response() -> None:
    """The name must end in the name of the key."""
    response = answer(handler(), resource_rule(name="cf-crl-other"))

    assert response["allowed"]
    assert response["warnings"][0].startswith("gpugate: metadata.name: expected to end in -device")
    assert response["warnings"][0].endswith(" [rule cf-crl-other]")


def test_the_answer_on_a_rule_is_in_the_language_of_the_server() -> None:
    """The denial with its errors, and the warnings."""
    denied = answer(builtin_handler(Language("zh")), resource_rule(limits="optinal"))
    warned = answer(builtin_handler(Language("zh")), resource_rule(name="cf-crl-other"))

    assert denied["status"]["message"].startswith(
        "gpugate 拒绝该 ConfigMap：data.limits: 要求 disabled、required、optional 之一，当前为 'optinal'"
    )
    assert warned["warnings"][0].startswith("gpugate: metadata.name: 要求与 key ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.dictionaries(st.sampled_from(["rule.yaml", "key", "limits", "a"]), st.text(max_size=20) | JSON)


@given(st.sampled_from([resource_rule(), injection_rule({"hostIPC": True})]), TEXTS, JSON)
def test_any_content_of_a_rule_gets_a_decision(document: str, data: dict[str, Any], other: Any) -> None:
    """No content causes an internal error with code 500."""
    parsed = yaml.safe_load(document)
    parsed["data"] = data
    parsed["metadata"] |= {"annotations": other, "name": other}
    response = answer(handler(), parsed)

    assert response["allowed"] or response["status"]["code"] == 403


@pytest.mark.parametrize("metadata", [None, [], "x"])
def test_an_object_without_metadata_is_a_bad_request(metadata: object) -> None:
    """No API server sends one."""
    response = answer(handler(), {"kind": "ConfigMap", "metadata": metadata}, resource_rule())

    assert (False, 400) == (response["allowed"], response["status"]["code"])
    assert "metadata: expected an object" in response["status"]["message"]


def test_lint_warnings_about_a_rule_together_with_those_in_force_are_reported() -> None:
    """`kubectl apply` prints them; lint warnings about other rules are not reported."""
    in_force = handler(
        resource_rule(), exemption("cf-crl-*", name="old", expires="2020-01-01"), exemption("a", name="new")
    )
    text = exemption("cf-crl-group-devices", name="new", expires="2999-01-01")

    unknown = "rules[0]: 'cf-crl-group-devices' does not match any rule"
    unknown += " – did you mean 'cf-crl-group-device'?; lint exemptions together with their rules"
    general = "rules: exempts every pod; set namespaces, podSelector or serviceAccounts, or disable the rules"

    assert [f"gpugate: {unknown} [rule new]", f"gpugate: {general} [rule new]"] == answer(in_force, text)[
        "warnings"
    ]


def test_an_exemption_that_any_tenant_can_claim_is_a_warning() -> None:
    """With what to add; the exemption is applied."""
    selector = {"matchLabels": {"app": "x"}}
    text = exemption("cf-crl-*", name="new", expires="2999-01-01", podSelector=selector)
    response = answer(handler(resource_rule()), text)

    (warning,) = response["warnings"]

    assert response["allowed"]
    assert warning == (
        "gpugate: podSelector: any tenant can claim this exemption: who creates a pod chooses its labels and "
        "service account; add namespaces.include [rule new]"
    )


def test_an_exemption_with_an_invalid_reason_is_denied() -> None:
    """Exemptions are validated like other rules."""
    (line,) = denial(handler(), exemption("a").replace("a trial", "7"))

    assert line.endswith("reason: expected a string, got a number: quote it [rule exemption]")


def test_a_node_profile_is_checked_together_with_those_in_force() -> None:
    """Denied if it is invalid; a warning if it has the labels of another profile."""
    in_force = handler(node_profile(name="old", cuda="13.0"))
    (line,) = denial(in_force, node_profile(cuda="130"))
    (warning,) = answer(in_force, node_profile(name="new", cuda="12.4"))["warnings"]

    assert line.endswith("offers.cuda: expected a CUDA version such as '12.4', got '130' [rule profile]")
    assert warning.startswith("gpugate: labelsAtCreation: old (")
    assert warning.endswith(" [rule new]")


def test_an_exemption_that_has_expired_is_logged_with_each_rule_set(caplog: pytest.LogCaptureFixture) -> None:
    """Once; pods that are denied because of it get a message, too."""
    handler(
        exemption("a", name="old", expires="2020-01-01"), exemption("a", name="new", expires="2999-01-01")
    )

    assert ["exemption old expired at 2020-01-01 and has no effect"] == caplog.messages


@pytest.mark.parametrize("line", ["key{}: 1\n", "- {}\n", "k{}: [1, 2, 3]\n"])
def test_a_rule_with_thousands_of_errors_is_denied_in_the_time_of_a_hundred(line: str) -> None:
    """The first hundred are reported with their places, and the number of the others."""
    text = "".join(line.format(at) for at in range(5000))
    content = config_map("many", {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}, {})
    document = yaml.safe_load(content) | {"data": {"rule.yaml": text}}
    reading = loops(lambda: yaml.safe_load(text))
    answers = list[dict[str, Any]]()
    took = loops(lambda: answers.append(answer(handler(), document)))
    response = answers[0]

    assert (False, 403) == (response["allowed"], response["status"]["code"])
    assert 110 > response["status"]["message"].count("\n")
    assert 100 + 10 * reading > took
