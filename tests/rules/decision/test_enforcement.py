"""The cap on the effect of decisions: nothing is denied, and what enforcement would do is reported."""

from __future__ import annotations

from typing import Any

import pytest

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy, compile_policy
from rules.decision.size_limit import MOST_READ
from rules.model.decision import Decision, Effect
from rules.model.rule import Action
from tests.support.builders import (
    DEVICE,
    NO_NODES,
    container,
    decision,
    exemption,
    injection_rule,
    loaded,
    pod,
    request,
    resource_rule,
    warning_texts,
)
from tests.support.node_builders import gfd, gpu_pod, inventory, node, shipped_rules

OTHER = "vendor.com/other"
DENYING = resource_rule(limits="disabled")
# A container that has only OTHER gets the default of DEVICE.
COMPLETING = (resource_rule(limits="required", defaultValue="2"), resource_rule(OTHER))
INJECTING = injection_rule({"env": [{"name": "A", "value": "1"}]})


def _policy(cap: Action, *texts: str) -> Policy:
    return compile_policy(loaded(*texts).rules, enforcement=cap)


def _decisions(cap: Action, document: Any, *texts: str) -> list[Decision]:
    """Return the decisions of both endpoints."""
    return [decision(_policy(cap, *texts), document, mutating=number) for number in (True, False)]


@pytest.mark.parametrize("cap", [Action.WARN, Action.DRYRUN])
def test_nothing_is_denied_under_a_cap_and_what_would_be_is_told(cap: Action) -> None:
    """Each violation has the action of its rule, too, and so has the audit event."""
    for answer in _decisions(cap, pod(), DENYING):
        (violation,) = answer.violations

        assert (True, "", Effect.DENY) == (answer.allowed, answer.denial.en, answer.withheld)
        assert (cap, Action.DENY) == (violation.action, violation.rule_action)
        assert f"{cap.value}, would deny" == answer.audit["enforcement-action"]


def test_a_dry_run_answers_nothing_to_the_user() -> None:
    """No warning, no patch: the audit event lists violations and changes as those of a dry run."""
    warning = resource_rule(OTHER, group="others", limits="disabled", enforcementAction="warn")
    document = pod(container({DEVICE: "1", OTHER: "1"}))
    dry, _ = _decisions(Action.DRYRUN, document, DENYING, warning, INJECTING)
    completed, validated = _decisions(Action.DRYRUN, pod(container({OTHER: "1"})), *COMPLETING)

    assert ((), (), Effect.DENY) == (warning_texts(dry), dry.patch, dry.withheld)
    assert {"rules", "would-inject", "dryrun", "enforcement-action"} == dry.audit.keys()
    assert "cf-crl-group-device (policy)" in dry.audit["dryrun"]
    assert "cf-crl-others-other (policy)" in dry.audit["dryrun"]
    assert ((), Effect.PATCH, None) == (completed.patch, completed.withheld, validated.withheld)
    assert f"main: limits {DEVICE}" in completed.audit["would-default"]
    assert "dryrun, would patch" == completed.audit["enforcement-action"]
    assert "dryrun" == validated.audit["enforcement-action"]


def test_a_dry_run_validates_a_pod_as_it_would_be_completed() -> None:
    """It arrives at /validate without the default, which it would have got."""
    assert [(), ()] == [
        answer.violations for answer in _decisions(Action.DRYRUN, pod(container({OTHER: "1"})), *COMPLETING)
    ]


def test_a_dry_run_lists_the_node_affinity_that_it_does_not_inject_and_warn_injects_none() -> None:
    """That of a compatibility rule; such a rule that only warns leaves the pod as it is, too."""
    nodes = inventory(
        node("new", gfd("12.4"), **{"nvidia.com/gpu": "8"}),
        node("old", gfd("11.4"), **{"nvidia.com/gpu": "8"}),
    )
    enforced, warned, dry = (
        decide(
            Snapshot(compile_policy(shipped_rules(), enforcement=cap), nodes),
            request(gpu_pod("nvidia/cuda:12.1.0-base-ubuntu22.04")),
        )
        for cap in Action
    )

    assert ["injected", None, "would be injected"] == [
        capped.audit.get("node-affinity") for capped in (enforced, warned, dry)
    ]
    assert ((), Effect.PATCH) == (dry.patch, dry.withheld)
    assert "nodeAffinity" not in repr(warned.patch)


def test_a_cap_of_warn_completes_pods_as_without_it_and_warns_of_what_would_be_denied() -> None:
    """A pod that would be denied is completed, too."""
    (enforced, _), (warned, _) = (
        _decisions(cap, pod(container({OTHER: "1"})), *COMPLETING, INJECTING)
        for cap in (Action.DENY, Action.WARN)
    )
    denied, _ = _decisions(Action.WARN, pod(container({OTHER: "1", DEVICE: "x"})), *COMPLETING, INJECTING)

    assert (enforced.patch, {**enforced.audit, "enforcement-action": "warn"}) == (warned.patch, warned.audit)
    assert warned.withheld is None
    assert denied.allowed
    assert "env" in repr(denied.patch)
    assert any("found x" in text for text in warning_texts(denied))


def test_a_denied_pod_has_no_patch_without_a_cap() -> None:
    """And its answer says nothing of caps."""
    document = pod(container({OTHER: "1", DEVICE: "x"}))
    denied, _ = _decisions(Action.DENY, document, *COMPLETING, INJECTING)

    assert (False, (), None) == (denied.allowed, denied.patch, denied.withheld)
    assert "enforcement-action" not in denied.audit
    assert [None] == list({violation.rule_action for violation in denied.violations})


def test_a_cap_never_raises_the_action_of_a_rule() -> None:
    """A dry run stays one under a cap of warn."""
    dry = resource_rule(limits="disabled", enforcementAction="dryrun")
    capped, _ = _decisions(Action.WARN, pod(), dry)

    assert [Action.DRYRUN] == [violation.action for violation in capped.violations]
    assert ((), None) == (warning_texts(capped), capped.withheld)


@pytest.mark.parametrize("cap", [Action.WARN, Action.DRYRUN])
def test_an_object_that_is_too_large_to_check_is_allowed_under_a_cap(cap: Action) -> None:
    """And counted under the name of the limit."""
    document = pod(*(container({DEVICE: "1"}, name=f"c{number}") for number in range(MOST_READ + 1)))
    for answer in _decisions(cap, document, DENYING):
        assert (True, Effect.DENY, ["size-limit"]) == (
            answer.allowed,
            answer.withheld,
            [violation.rule for violation in answer.violations],
        )


@pytest.mark.parametrize("cap", [Action.WARN, Action.DRYRUN])
def test_workloads_are_capped_like_pods(cap: Action) -> None:
    """All templates of an object together."""
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train"},
        "spec": {"template": {"spec": {"containers": [container({DEVICE: "1"})]}}},
    }
    answer = decide(Snapshot(_policy(cap, DENYING), NO_NODES), request(document))

    assert (True, Effect.DENY, bool(cap is Action.WARN)) == (
        answer.allowed,
        answer.withheld,
        bool(warning_texts(answer)),
    )


def test_an_answer_without_any_finding_names_the_cap() -> None:
    """So that an audit event always says how it was decided."""
    dry, _ = _decisions(Action.DRYRUN, pod(container({"cpu": "1"})), DENYING)

    assert {"enforcement-action": "dryrun"} == dry.audit


def test_what_is_exempted_is_not_withheld() -> None:
    """Enforcement would admit it."""
    exempt = exemption("cf-crl-*", expires="2099-12-31")
    answer = decision(_policy(Action.DRYRUN, DENYING, exempt), pod(), now=0)

    assert None is answer.withheld
    assert () == answer.violations
