"""The effect of an optional check, which its rule sets: deny, warn, dryrun or off."""

from __future__ import annotations

from typing import Any

import pytest

from rules.model.decision import Decision
from tests.support.builders import policy, warning_texts
from tests.support.node_builders import GPU, compatibility_rule, gfd, gpu_pod, inventory, judged, nodes

VLLM = "vllm/vllm-openai:v0.9.0"
TOO_FEW = gpu_pod(VLLM, "--tensor-parallel-size=4", limits={GPU: "2"})


def decided(*clusters: Any, document: Any = TOO_FEW, action: str = "deny", **checks: str) -> Decision:
    """Return the decision with these effects; other checks are off."""
    off = dict.fromkeys(("gpuCount", "taints", "sharedMemory", "sharedGpuCount", "architecture"), "off")
    rule = compatibility_rule(enforcementAction=action, checks=off | checks)
    return judged(policy(rule), inventory(*clusters), document)


def shown(decision: Decision) -> tuple[bool, list[str], int]:
    """Return whether it is allowed, the action of each violation, and the number of warnings."""
    return (
        decision.allowed,
        [violation.action for violation in decision.violations],
        len(warning_texts(decision)),
    )


@pytest.mark.parametrize(
    ("effect", "result"),
    [
        ("deny", (False, ["deny"], 0)),
        ("warn", (True, [], 1)),
        ("dryrun", (True, ["dryrun"], 0)),
        ("off", (True, [], 0)),
    ],
)
def test_the_rule_sets_the_effect_of_a_check(effect: str, result: tuple[bool, list[str], int]) -> None:
    """A dry run is a violation that nobody is told, and nothing else."""
    assert result == shown(decided(parallelism=effect))


@pytest.mark.parametrize(
    ("action", "result"), [("warn", (True, ["warn"], 1)), ("dryrun", (True, ["dryrun"], 0))]
)
def test_no_check_is_stricter_than_its_rule(action: str, result: tuple[bool, list[str], int]) -> None:
    """A rule that warns denies nothing, and one that is a dry run says nothing."""
    assert result == shown(decided(parallelism="deny", action=action))


def test_a_dry_run_of_a_check_leaves_the_rest_of_the_rule_as_it_is() -> None:
    """The affinity and the denials of the rule are those without it."""
    cluster = nodes(1, "new", gfd("12.8")) + nodes(1, "old", gfd("11.4"))
    fits = gpu_pod("team/vllm:cuda12.8", "--tensor-parallel-size=4", limits={GPU: "2"})
    without, tried = (decided(cluster, document=fits, parallelism=effect) for effect in ("off", "dryrun"))
    none = decided(nodes(1, "old", gfd("11.4")), document=fits, parallelism="dryrun")

    assert without.patch == tried.patch
    assert without.patch
    assert ([], ["dryrun"]) == ([*without.violations], [violation.action for violation in tried.violations])
    assert ["deny", "dryrun"] == sorted(violation.action for violation in none.violations)


def test_several_rules_tell_a_finding_once() -> None:
    """By the strictest of them."""
    rules = [
        compatibility_rule(
            name=f"compatibility-{effect}", checks={"parallelism": effect, "sharedMemory": "off"}
        )
        for effect in ("warn", "deny")
    ]
    decision = judged(policy(*rules), inventory(), TOO_FEW)

    assert [("compatibility-deny", "deny")] == [
        (violation.rule, violation.action) for violation in decision.violations
    ]
    assert () == warning_texts(decision)


def test_a_denial_by_a_check_that_is_certain_rests_on_facts() -> None:
    """Its message names no setting: the program would fail whatever the rule says."""
    (violation,) = decided(parallelism="deny").violations

    assert "policy" not in violation.message.en
    assert ("fact", "spec.containers[0].resources.limits[nvidia.com/gpu]") == (
        violation.basis,
        violation.path,
    )
