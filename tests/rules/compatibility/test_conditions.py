"""Conditions of compatibility rules: one that cannot be evaluated does not switch the rule off."""

from __future__ import annotations

from typing import Any

import pytest

from rules.cel.cost_limits import MAX_ENTRIES
from rules.decision.pipeline import Snapshot, decide
from rules.decision.trace import RuleOutcome, explain
from rules.model.decision import Decision
from tests.support.builders import pod, policy, request, warning_texts
from tests.support.node_builders import (
    GPU,
    compatibility_rule,
    cuda_image,
    gfd,
    gpu_container,
    inventory,
    nodes,
)

OLD = inventory(nodes(1, "old", gfd("11.4")))
MANY = {f"key-{at}": "1" for at in range(MAX_ENTRIES + 1)}


def decided(condition: str, **metadata: Any) -> Decision:
    """Return the decision on a pod that no node is compatible with, as admission and explain make it."""
    text = compatibility_rule(match={"conditions": [condition]})
    created = request(pod(gpu_container(cuda_image("12.4")), metadata=metadata))
    decision = decide(Snapshot(policy(text), OLD), created)
    explained = explain(Snapshot(policy(text), OLD), created)
    assert decision == explained.decision
    return decision


@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize(("expected", "allowed"), [("yes", False), ("no", True)])
def test_other_labels_and_annotations_do_not_matter_to_a_condition_that_names_one(
    where: str, expected: str, allowed: bool
) -> None:
    """However many there are; the condition is evaluated, without a warning."""
    decision = decided(f"pod.{where}['team/gpu'] == '{expected}'", **{where: MANY | {"team/gpu": "yes"}})

    assert (allowed, ()) == (decision.allowed, warning_texts(decision))


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_pod_with_too_many_labels_for_a_condition_is_denied(where: str) -> None:
    """The condition names all of them and would be false: labels do not switch the rule off."""
    condition = f"pod.{where}.exists(key, key == 'absent')"
    decision = decided(condition, **{where: MANY})

    assert decided(condition).allowed
    assert not decision.allowed
    warning = (
        "gpugate: container 'main': a condition of the rule could not be evaluated, so the rule applies: "
        f"more than {MAX_ENTRIES} {where}; the rule is at fault: ask its owner to fix the expression "
        "[rule compatibility]"
    )
    assert (warning,) == warning_texts(decision)


def test_a_condition_on_an_absent_resource_makes_the_rule_apply() -> None:
    """`'x' in limits && limits['x'] > 1` asks for it without an error."""
    absent = decided("limits['vendor.com/x'] > 1")

    assert not absent.allowed
    assert "so the rule applies: no such key: 'vendor.com/x'; " in warning_texts(absent)[0]
    assert decided("'vendor.com/x' in limits && limits['vendor.com/x'] > 1").allowed


def test_a_false_condition_wins_over_one_that_cannot_be_evaluated() -> None:
    """The rule does not apply, whichever comes first, and there is no warning."""
    document = pod(gpu_container(cuda_image("12.4")))
    fails, false = "limits['vendor.com/x'] > 1", "container.name == 'other'"
    for conditions in ([fails, false], [false, fails]):
        rules = policy(compatibility_rule(match={"conditions": conditions}))
        decision = decide(Snapshot(rules, OLD), request(document))
        assert (True, ()) == (decision.allowed, warning_texts(decision))


def test_explain_shows_the_rule_as_matched_with_the_warning() -> None:
    """Because it applied."""
    text = compatibility_rule(match={"conditions": [f"limits['vendor.com/x'] > limits['{GPU}']"]})
    created = request(pod(gpu_container(cuda_image("12.4"))))
    explanation = explain(Snapshot(policy(text), OLD), created)
    ((evaluation,),) = [container.evaluations for trace in explanation.pods for container in trace.containers]

    assert RuleOutcome.MATCHED is evaluation.outcome
    assert (1, 1) == (len(evaluation.notices), len(evaluation.violations))
