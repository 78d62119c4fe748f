"""Rule ConfigMaps are judged at admission: every mistake with its place; what is no rule is let pass."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules.text.i18n import Language
from tests.support.builders import config_map, exemption, injection_rule, loaded, resource_rule
from tests.support.paths import TESTS
from tests.support.webhooks import body, shipped_gate
from webhook.admission.handler import AdmissionHandler
from webhook.admission.review import ReviewError

RECORDED = TESTS / "reviews/018-create-configmap-cf-crl-gpu-manager-vcuda-core/request.json"


def answer(
    gate: AdmissionHandler, document: str | dict[str, Any] | None, old: str | None = None, **request: Any
) -> dict[str, Any]:
    """Return what /validate answers for a ConfigMap in the rules' namespace."""
    parsed = yaml.safe_load(document) if isinstance(document, str) else document
    fields = {"namespace": "kube-public", "oldObject": yaml.safe_load(old) if old else None}
    content = body(parsed, **{"operation": "UPDATE" if old else "CREATE"} | fields | request)
    response: dict[str, Any] = json.loads(gate.answer("validate", content))["response"]
    return response


def refusal(gate: AdmissionHandler, document: str, old: str | None = None) -> list[str]:
    """Return the lines of a refusal, which must be one by 403."""
    response = answer(gate, document, old)
    assert (False, 403, "Forbidden") == (
        response["allowed"],
        response["status"]["code"],
        response["status"]["reason"],
    )
    lines: list[str] = response["status"]["message"].split("\n")
    return lines


def gate(*texts: str) -> AdmissionHandler:
    """Return a gate with these rules in force."""
    return AdmissionHandler(loaded(*texts))


def recorded(**data: str) -> bytes:
    """Return what the API server sent when a rule was created, with some keys of its data changed."""
    review = json.loads(RECORDED.read_text("utf-8"))
    review["request"]["object"]["data"] |= data
    return json.dumps(review).encode()


def test_a_sound_rule_is_let_pass_as_it_was_recorded() -> None:
    """The rule of the same name that is in force is no conflict: this is its next version."""
    response = json.loads(shipped_gate().answer("validate", recorded()))["response"]

    assert {"uid": response["uid"], "allowed": True} == response


def test_every_mistake_of_a_recorded_rule_is_told_with_its_path() -> None:
    """As kubectl prints it."""
    content = recorded(limits="optinal", requests="never")
    response = json.loads(shipped_gate().answer("validate", content))["response"]

    assert (
        "gpugate refuses this ConfigMap: 2 things to change\n"
        "  1. data.limits: expected one of disabled, required, optional, got 'optinal'"
        " – did you mean 'optional'? [rule cf-crl-gpu-manager-vcuda-core]\n"
        "  2. data.requests: expected one of disabled, required, fromLimits, got 'never'"
        " [rule cf-crl-gpu-manager-vcuda-core]"
    ) == response["status"]["message"]


def test_a_mistake_in_a_rules_document_is_told_with_its_line_there() -> None:
    """The author counts from the line below `rule.yaml: |`."""
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}
    text = "match:\n  resources: [a.com/b]\n  imagess: [x]\ninject: {hostIPC: 1}\n"
    lines = refusal(gate(), config_map("mine", labels, {"rule.yaml": text}))

    assert (
        "  1. rule.yaml:3:3: match.imagess: unknown key 'imagess' – did you mean 'images'? [rule mine]"
        == lines[1]
    )
    assert lines[2].startswith("  2. rule.yaml:4:19: inject.hostIPC: expected a boolean, got a number")


def test_a_document_that_is_no_yaml_is_told_with_its_line_there() -> None:
    """The path alone would say little."""
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}
    (_, line) = refusal(gate(), config_map("mine", labels, {"rule.yaml": "match: {}\ninject: [\n"}))

    assert line.startswith("  1. rule.yaml:3:1: data[rule.yaml]: not YAML:")


def test_a_document_of_one_line_is_told_by_its_path() -> None:
    """There is no line to count."""
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}
    (*_, line) = refusal(gate(), config_map("mine", labels, {"rule.yaml": "matches: {}"}))

    assert line.startswith("  3. matches: unknown key 'matches'")


def test_a_rule_that_claims_the_resource_of_another_is_refused() -> None:
    """Unless it is switched off."""
    first, second = resource_rule(name="cf-crl-first-device"), resource_rule(name="cf-crl-second-device")
    (_, line) = refusal(gate(first), second)

    assert (
        "  1. data.key: 'vendor.com/device' is claimed by cf-crl-first-device (0.yaml) too; keep one, or "
        "switch the others off by label [rule cf-crl-second-device]"
    ) == line
    assert answer(gate(first), resource_rule(name="cf-crl-second-device", enabled=False))["allowed"]


def test_an_edit_of_a_rule_is_no_conflict_with_itself() -> None:
    """Nor is the resource given up by the edit still claimed."""
    rule = resource_rule()

    assert answer(gate(rule), resource_rule(limits="required"), rule)["allowed"]


@pytest.mark.parametrize("document", [resource_rule(), resource_rule(prefix="features.alauda.io/")])
def test_a_rule_cannot_lose_its_label_and_stay(document: str) -> None:
    """It would be out of force without a word; delete it, or switch it off."""
    bare = yaml.safe_load(document)
    del bare["metadata"]["labels"]
    (_, line) = refusal(gate(document), yaml.safe_dump(bare), document)

    assert line.startswith("  1. metadata.labels: a resource rule needs the label features.cpaas.io/type")


def test_a_rule_without_its_document_and_label_is_none_any_more() -> None:
    """Whatever it holds now is its owner's."""
    document = injection_rule({"hostIPC": True})

    assert answer(gate(document), config_map("injection", {}, {"other": "thing"}), document)["allowed"]


def test_a_deletion_is_always_let_pass() -> None:
    """And an object that is on its way out."""
    broken = resource_rule(limits="optinal")
    leaving = yaml.safe_load(broken)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z"

    assert answer(gate(), None, broken, operation="DELETE")["allowed"]
    assert answer(gate(), leaving, resource_rule())["allowed"]


def test_a_change_that_does_not_touch_the_rule_is_let_pass() -> None:
    """Who annotates a rule that is broken already did not break it."""
    broken = resource_rule(limits="optinal")
    annotated = yaml.safe_load(broken)
    annotated["metadata"]["annotations"] = {"seen": "yes"}

    assert answer(gate(), annotated, broken)["allowed"]


def test_a_config_map_without_our_labels_is_none_of_our_business() -> None:
    """Whatever it looks like."""
    document = config_map("cf-crl-strange", {"app": "x"}, {"rule.yaml": "nonsense"})

    assert {"allowed": True} == {k: v for k, v in answer(gate(), document).items() if k != "uid"}


def test_a_rule_in_another_namespace_is_warned_of() -> None:
    """It has no effect there, and may be another gate's."""
    response = answer(gate(), resource_rule(limits="optinal"), namespace="team")

    assert (
        True,
        ["gpugate reads rules from namespace kube-public alone: in team this one has no effect"],
    ) == (response["allowed"], response["warnings"])


def test_what_is_doubtful_is_warned_of() -> None:
    """The name has to end in the key's."""
    response = answer(gate(), resource_rule(name="cf-crl-other"))

    assert response["allowed"]
    assert response["warnings"][0].startswith("metadata.name: expected to end in -device")


def test_the_refusal_of_a_rule_comes_in_chinese_too() -> None:
    """Its headline; mistakes are told in the words of the format."""
    response = answer(shipped_gate(Language.ZH), resource_rule(limits="optinal"))

    assert response["status"]["message"].startswith("gpugate 拒绝该 ConfigMap：有 1 处需要修改")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.dictionaries(st.sampled_from(["rule.yaml", "key", "limits", "a"]), st.text(max_size=20) | JSON)


@given(st.sampled_from([resource_rule(), injection_rule({"hostIPC": True})]), TEXTS, JSON)
def test_whatever_stands_in_a_rule_it_gets_a_verdict(document: str, data: dict[str, Any], other: Any) -> None:
    """None is a bug of ours, which would be counted and answered by 500."""
    parsed = yaml.safe_load(document)
    parsed["data"] = data
    parsed["metadata"] |= {"annotations": other, "name": other}
    response = answer(gate(), parsed)

    assert response["allowed"] or response["status"]["code"] == 403


@pytest.mark.parametrize("metadata", [None, [], "x"])
def test_an_object_without_metadata_is_a_bad_request(metadata: object) -> None:
    """No API server sends one."""
    with pytest.raises(ReviewError, match="metadata: expected an object"):
        answer(gate(), {"kind": "ConfigMap", "metadata": metadata}, resource_rule())


def test_what_is_doubtful_about_a_rule_beside_those_in_force_is_a_warning() -> None:
    """`kubectl apply` prints it; what is doubtful about the others is none of its business."""
    in_force = gate(
        resource_rule(), exemption("cf-crl-*", name="old", expires="2020-01-01"), exemption("a", name="new")
    )
    text = exemption("cf-crl-group-devices", name="new", expires="2999-01-01")

    nothing = "rules[0]: 'cf-crl-group-devices' names no rule here that decides anything"
    nothing += " – did you mean 'cf-crl-group-device'?; check exemptions together with the rules they are for"

    assert [
        nothing,
        "rules: exempts every pod; name namespaces, podSelector or serviceAccounts, or switch the rules off",
    ] == answer(in_force, text)["warnings"]


def test_an_exemption_without_a_reason_is_refused() -> None:
    """Exemptions are judged as all rules are."""
    (_, line) = refusal(gate(), exemption("a").replace("a trial", "7"))

    assert line.endswith("reason: expected a string, got a number: quote it [rule exemption]")


def test_an_exemption_that_has_expired_is_logged_with_each_rule_set(caplog: pytest.LogCaptureFixture) -> None:
    """Once; pods that are refused for it are told besides."""
    gate(exemption("a", name="old", expires="2020-01-01"), exemption("a", name="new", expires="2999-01-01"))

    assert ["exemption old expired at 2020-01-01 and has no effect"] == caplog.messages


@pytest.mark.parametrize("line", ["key{}: 1\n", "- {}\n", "k{}: [1, 2, 3]\n"])
def test_a_rule_of_thousands_of_mistakes_is_refused_in_the_time_of_a_hundred(line: str) -> None:
    """The first hundred are told, with their places, and how many there are besides."""
    text = "".join(line.format(at) for at in range(5000))
    content = config_map("many", {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}, {})
    document = yaml.safe_load(content) | {"data": {"rule.yaml": text}}
    started = time.thread_time()
    yaml.safe_load(text)
    reading = time.thread_time() - started
    started = time.thread_time()
    response = answer(gate(), document)

    assert (False, 403) == (response["allowed"], response["status"]["code"])
    assert 110 > response["status"]["message"].count("\n")
    assert 1 + 10 * reading > time.thread_time() - started
