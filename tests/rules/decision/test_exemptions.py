"""Exemptions: a rule has no effect on pods that are exempted from it, until the exemption expires."""

from __future__ import annotations

import calendar
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy
from rules.schema.exemption import instant
from tests.support.builders import (
    DEVICE,
    admitted,
    container,
    decision,
    exemption,
    injection_rule,
    loaded,
    pod,
    policy,
    request,
    resource_rule,
    warning_texts,
)
from tests.support.node_builders import compatibility_rule, cuda_image, gpu_pod, inventory, nodes, plain

NOW = calendar.timegm((2026, 12, 31, 23, 59, 59))
LIMIT = "cf-crl-group-device"
DENYING = resource_rule(limits="disabled")
EXPECTED = "expected a date such as 2026-12-31, or a time with zone such as 2026-12-31T18:00:00Z"
NO_TIMES = ("soon", "", "2026-12-31T18:00:00", "2026-12-31T24:00:00Z", "31.12.2026", "２０２６-12-31")


def exempting(*rules: str, **rest: Any) -> Policy:
    """Return a policy that denies a DEVICE, with an exemption."""
    return policy(DENYING, exemption(*rules, **rest))


@pytest.mark.parametrize("rule", [LIMIT, "cf-crl-*", "*", "cf-crl-group-devic?"])
def test_an_exempted_rule_denies_nothing_and_is_in_the_audit_annotations(rule: str) -> None:
    """By name or glob; the user gets no warning."""
    answer = decision(exempting(rule), pod(), NOW)

    assert (True, (), ()) == (answer.allowed, warning_texts(answer), answer.rules)
    assert {"exempted": f"{LIMIT} (exemption)"} == answer.audit


def test_an_exempted_rule_neither_completes_nor_injects() -> None:
    """It has no effect; the other rules have."""
    rules = [
        resource_rule(defaultValue="2", runtimeClassName="nvidia"),
        resource_rule("vendor.com/other", defaultValue="3"),
        injection_rule({"env": [{"name": "A", "value": "1"}]}, name="exempted"),
        injection_rule({"env": [{"name": "B", "value": "1"}]}, name="other"),
    ]
    document = pod(container({"vendor.com/other": "1"}), container({DEVICE: "1"}, name="second"))
    result = admitted(policy(*rules, exemption(LIMIT, "exempted")), document, now=NOW)

    assert [None, "3"] == [
        result["spec"]["containers"][0]["resources"]["limits"].get(DEVICE),
        result["spec"]["containers"][1]["resources"]["limits"].get("vendor.com/other"),
    ]
    assert ["B"] == [entry["name"] for entry in result["spec"]["containers"][1]["env"]]
    assert "runtimeClassName" not in result["spec"]


def test_an_exempted_compatibility_rule_neither_denies_nor_injects_affinity() -> None:
    """For any nodes."""
    rules = policy(compatibility_rule(), exemption("compatibility"))
    cluster = inventory(nodes(1, "old", plain("11.7")), nodes(1, "new", plain("12.4")))
    incompatible, compatible = gpu_pod(cuda_image("13.0")), gpu_pod(cuda_image("12.4"))

    def outcome(document: Any, now: float) -> tuple[bool, bool]:
        answer = decide(Snapshot(rules, cluster), request(document), now)
        return answer.allowed, bool(answer.patch)

    assert [(False, False), (True, True)] == [
        outcome(document, NOW + 1) for document in (incompatible, compatible)
    ]
    assert [(True, False), (True, False)] == [
        outcome(document, NOW) for document in (incompatible, compatible)
    ]


@pytest.mark.parametrize(
    ("scope", "metadata", "spec", "exempt"),
    [
        ({"namespaces": {"include": ["team*"]}}, {}, {}, True),
        ({"namespaces": {"include": ["other"]}}, {}, {}, False),
        ({"namespaces": {"exclude": ["team"]}}, {}, {}, False),
        ({"podSelector": {"matchLabels": {"app": "x"}}}, {"labels": {"app": "x"}}, {}, True),
        ({"podSelector": {"matchLabels": {"app": "x"}}}, {"labels": {"app": "y"}}, {}, False),
        ({"podSelector": {"matchLabels": {"app": "x"}}}, {}, {}, False),
        ({"serviceAccounts": ["train*"]}, {}, {"serviceAccountName": "trainer"}, True),
        ({"serviceAccounts": ["train*"]}, {}, {"serviceAccount": "trainer"}, True),
        ({"serviceAccounts": ["train*"]}, {}, {"serviceAccountName": "other"}, False),
        ({"serviceAccounts": ["train*"]}, {}, {}, False),
        ({"serviceAccounts": ["default"]}, {}, {}, True),
        ({"serviceAccounts": ["default"]}, {}, {"serviceAccountName": 7}, True),
        (
            {"serviceAccounts": ["trainer"], "namespaces": {"include": ["other"]}},
            {},
            {"serviceAccountName": "trainer"},
            False,
        ),
    ],
)
def test_an_exemption_covers_pods_by_namespace_labels_and_service_account(
    scope: dict[str, Any], metadata: dict[str, Any], spec: dict[str, Any], exempt: bool
) -> None:
    """All criteria must match; a pod without a service account runs as `default`."""
    answer = decision(exempting(LIMIT, **scope), pod(metadata=metadata, **spec), NOW)

    assert exempt is answer.allowed


def test_a_workload_is_exempted_as_its_pods_will_be() -> None:
    """By the labels and the service account of its template."""
    scope = {"podSelector": {"matchLabels": {"app": "x"}}, "serviceAccounts": ["trainer"]}
    template = pod(metadata={"labels": {"app": "x"}}, serviceAccountName="trainer")
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}}

    assert decision(exempting(LIMIT, **scope), deployment, NOW).allowed


def test_both_endpoints_give_the_same_decision_on_an_exempted_pod() -> None:
    """The validating endpoint allows it, too."""
    assert decision(exempting(LIMIT), pod(), NOW, mutating=False).allowed


@pytest.mark.parametrize(
    ("now", "allowed"), [(NOW, True), (NOW + 1, False), (float("inf"), False)], ids=["last", "past", "never"]
)
def test_an_exemption_has_no_effect_after_its_last_day(now: float, allowed: bool) -> None:
    """A denied user gets a warning; without a time, all exemptions have expired."""
    line = f"gpugate: exemption exemption expired at 2026-12-31; ask its owner to renew it [rule {LIMIT}]"
    answer = decision(exempting(LIMIT), pod(), now)

    assert (allowed, () if allowed else (line,)) == (answer.allowed, warning_texts(answer))


def test_an_expired_exemption_causes_no_warning_without_a_violation() -> None:
    """Nor for pods that it did not cover."""
    expired = exemption(LIMIT, expires="2020-01-01", namespaces={"include": ["other"]})

    assert () == warning_texts(
        decision(policy(resource_rule(), exemption(LIMIT, expires="2020-01-01")), pod(), NOW)
    )
    assert () == warning_texts(decision(policy(DENYING, expired), pod(), NOW))


def test_a_disabled_exemption_has_no_effect() -> None:
    """Disabled by its label, like a rule."""
    assert not decision(exempting(LIMIT, enabled=False), pod(), NOW).allowed


def test_of_several_exemptions_the_first_that_applies_is_used() -> None:
    """Expired ones are skipped."""
    rules = policy(
        DENYING,
        exemption(LIMIT, name="old", expires="2020-01-01"),
        exemption(LIMIT, name="foreign", namespaces={"include": ["other"]}),
        exemption(LIMIT, name="new"),
    )

    assert f"{LIMIT} (new)" == decision(rules, pod(), NOW).audit["exempted"]


def test_an_injected_label_exempts_from_nothing() -> None:
    """Exemptions apply to a pod as it was submitted."""
    rules = policy(
        injection_rule({"labels": {"app": "x"}}),
        DENYING,
        exemption(LIMIT, podSelector={"matchLabels": {"app": "x"}}),
    )

    assert not decision(rules, pod(), NOW).allowed


def test_an_exempted_rule_with_a_broken_condition_causes_no_warning() -> None:
    """It has no effect on the pod."""
    rule = injection_rule(
        {"hostIPC": True}, name="broken", match={"conditions": ["limits['a.com/absent'] > 1"]}
    )

    assert () == warning_texts(decision(policy(rule, exemption("broken")), pod(), NOW))


@given(st.datetimes(timezones=st.timezones()), st.sampled_from("tT "))
def test_a_time_of_rfc_3339_is_parsed_as_by_python(time: datetime, separator: str) -> None:
    """In any zone, whole seconds."""
    time = time.replace(microsecond=0)
    offset = time.utcoffset()
    if offset is None or offset.total_seconds() % 60 or abs(offset.total_seconds()) >= 86_400:
        return
    text = time.isoformat(separator)

    assert time.timestamp() == instant(text)


def test_a_date_is_the_end_of_its_day_in_utc() -> None:
    """`expires` is the last day."""
    assert [instant("2024-03-01T00:00:00Z"), NOW + 1] == [instant("2024-02-29"), instant("2026-12-31")]


@pytest.mark.parametrize(
    ("expires", "error"),
    [
        ("2026-02-29", "the day does not exist: '2026-02-29'"),
        ("2026-13-01", "the day does not exist: '2026-13-01'"),
        ("0000-01-01", "the day does not exist: '0000-01-01'"),
        *((text, f"{EXPECTED}; got {text!r}") for text in NO_TIMES),
    ],
)
def test_an_invalid_expiry_is_an_error(expires: str, error: str) -> None:
    """A time without a zone is ambiguous."""
    (mistake,) = loaded(exemption("a", expires=expires)).errors

    assert ("expires", error) == (mistake.path, mistake.message)


@pytest.mark.parametrize("key", ["reason", "expires", "rules"])
def test_reason_expires_and_rules_are_required(key: str) -> None:
    """Every exemption has all of them."""
    text = exemption("a").replace(f"{key}:", "unknown:")

    assert f"required key {key!r} is missing" in [error.message for error in loaded(text).errors]
