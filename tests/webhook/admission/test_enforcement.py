"""The cap of `--enforcement-action` on answers: in responses, metrics and the log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import yaml

from rules import Language
from rules.model.rule import Action
from tests.support.builders import DEVICE, config_map, loaded, resource_rule
from tests.support.webhooks import body, pod
from webhook.admission.handler import AdmissionHandler
from webhook.telemetry import metrics

CAPS = [Action.WARN, Action.DRYRUN]
ALWAYS = [{"expression": "value < 1", "messageEn": "never"}]
RULE = resource_rule(limits="required", validations=ALWAYS)


def _handler(cap: Action, *texts: str) -> AdmissionHandler:
    return AdmissionHandler(loaded(*texts or (RULE,)), Language.EN, enforcement=cap)


def _answer(handler: AdmissionHandler, document: Any) -> Any:
    return json.loads(handler.answer("validate", body(document)))["response"]


@pytest.mark.parametrize("cap", CAPS)
def test_every_answer_names_the_cap_in_an_audit_annotation(cap: Action) -> None:
    """Also those without any finding."""
    handler = _handler(cap)
    named = [
        _answer(handler, document)["auditAnnotations"]["enforcement-action"]
        for document in (pod({DEVICE: "1"}), pod())
    ]

    assert [f"{cap.value}, would deny", cap.value] == named


def test_only_warn_warns() -> None:
    """A dry run is not noticed by users."""
    warned, dry = (_answer(_handler(cap), pod({DEVICE: "1"})) for cap in CAPS)

    assert [True, True] == [warned["allowed"], dry["allowed"]]
    assert "found 1, expected never" in warned["warnings"][0]
    assert "warnings" not in dry


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("is_bug", [False, True])
def test_what_gpugate_fails_on_is_allowed_under_a_cap(
    cap: Action, is_bug: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A malformed object, and an object that causes an internal error; a dry run does not warn."""
    handler, document = _handler(cap), pod({DEVICE: "1"})
    if is_bug:
        monkeypatch.setattr("webhook.admission.handler.decide", lambda *_, **__: 1 / 0)
    else:
        document["spec"]["containers"] = "none"
    response = _answer(handler, document)

    assert response["allowed"]
    assert "allowed without checks" in response["auditAnnotations"]["error"]
    assert cap.value == response["auditAnnotations"]["enforcement-action"]
    assert (cap is Action.WARN) is ("warnings" in response)


@pytest.mark.parametrize("cap", CAPS)
def test_a_rule_with_mistakes_is_denied_under_a_cap(cap: Action) -> None:
    """The cap is for what rules decide; a rule with mistakes would never decide anything."""
    labels = {"gpugate.dev/type": "InjectionRule", "gpugate.dev/enabled": "true"}
    document = config_map("broken", labels, {"rule.yaml": "inject: 1"})
    review = body(yaml.safe_load(document), namespace="kube-public")

    assert not json.loads(_handler(cap).answer("validate", review))["response"]["allowed"]


def _value(metric: Any, **labels: str) -> float:
    return metric.labels(**labels)._value.get()  # type: ignore[no-any-return]


@pytest.mark.parametrize("cap", CAPS)
def test_metrics_count_what_enforcement_would_do(cap: Action) -> None:
    """Objects by effect, violations by rule; `action` is what was done."""
    request = {"endpoint": "validate", "kind": "Pod", "operation": "CREATE"}
    withheld = request | {"effect": "deny", "enforcement_action": cap.value}
    violated = {"endpoint": "validate", "rule": "cf-crl-group-device", "basis": "policy"}
    violated |= {"action": cap.value, "rule_action": "deny"}
    allowed = request | {"allowed": "true", "enforcement_action": cap.value}
    series = ((metrics.WITHHELD, withheld), (metrics.RULE_RESULTS, violated), (metrics.REQUESTS, allowed))
    before = [_value(metric, **labels) for metric, labels in series]
    _answer(_handler(cap), pod({DEVICE: "1"}))

    assert [value + 1 for value in before] == [_value(metric, **labels) for metric, labels in series]
    assert 1 == _value(metrics.ENFORCEMENT, action=cap.value)


def test_each_log_line_has_the_cap_and_what_enforcement_would_do(caplog: pytest.LogCaptureFixture) -> None:
    """The verdict is what the API server was told."""
    completing = resource_rule(requests="fromLimits")
    for cap, document, *texts in (
        (Action.DRYRUN, pod({DEVICE: "1"})),
        (Action.DRYRUN, pod({DEVICE: "1"}), completing),
        (Action.WARN, pod({DEVICE: "1"})),
        (Action.DENY, pod({DEVICE: "1"})),
    ):
        with caplog.at_level(logging.INFO, "gpugate.admission"):
            _handler(cap, *texts).answer("mutate", body(document, name="train"))

    assert [
        ("allow (would deny) Pod ml/train", "allow", "dryrun", "deny"),
        ("allow (would patch) Pod ml/train", "allow", "dryrun", "patch"),
        ("allow (would deny) Pod ml/train", "allow", "warn", "deny"),
        ("deny Pod ml/train", "deny", "deny", ""),
    ] == [
        (line.message, *(vars(line)[name] for name in ("verdict", "enforcementAction", "withheld")))
        for line in caplog.records
    ]
