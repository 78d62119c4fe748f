"""Taints of nodes: a pod goes only where it tolerates them; by default that is a warning (`taints`)."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rules.kube.tolerations import Taint
from rules.nodes.label_families import TOLERATIONS_RULE, gpu_tolerations
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools.document import DeclaredPools, NodePool
from tests.support.builders import policy, warning_texts
from tests.support.node_builders import (
    A100,
    T4,
    Node,
    compatibility_rule,
    cuda_image,
    decided,
    gfd,
    gpu_pod,
    inventory,
    judged,
    node,
    shipped_rules,
)

KEY = "nvidia.com/gpu"
GPU_TAINT = {"key": KEY, "value": "present", "effect": "NoSchedule"}
OLD = node("old", gfd("11.4", T4))
NEEDY = cuda_image("12.4")


def tainted(name: str, labels: dict[str, str], *taints: dict[str, str]) -> Node:
    """Return a node with these taints."""
    return node(name, labels) | {"spec": {"taints": list(taints)}}


NEW = tainted("new", gfd("12.4", A100), GPU_TAINT)


def test_a_pod_that_tolerates_no_compatible_node_is_warned_of_the_taint() -> None:
    """A toleration may still be added after the gate has decided, so this is no denial."""
    decision = decided([OLD, NEW], gpu_pod(NEEDY))

    assert (True, True) == (decision.allowed, bool(decision.patch))
    warning = (
        "gpugate: container 'main': the pod does not tolerate taint nvidia.com/gpu=present:NoSchedule of the "
        "compatible nodes …; tolerate {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}, "
        "or enable rule injection-gpu-tolerations [rule compatibility-pgpu]"
    )
    assert (warning,) == warning_texts(decision)


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": KEY, "operator": "Exists"},
        {"key": KEY, "value": "present", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ],
)
def test_the_fix_works_a_pod_that_tolerates_the_taint_gets_no_warning(toleration: dict[str, str]) -> None:
    """Whatever form its toleration has."""
    decision = decided([OLD, NEW], gpu_pod(NEEDY, tolerations=[toleration]))

    assert (True, ()) == (decision.allowed, warning_texts(decision))


def fixes(text: str) -> list[dict[str, str]]:
    """Return the tolerations in a message."""
    listed = text.partition("; tolerate ")[2].rpartition("}")[0]
    document: list[dict[str, str]] = yaml.safe_load(f"[{listed}}}]")
    return document


@pytest.mark.parametrize(
    ("taints", "covered"),
    [
        ([GPU_TAINT], True),
        ([{"key": "sku", "value": "gpu", "effect": "NoSchedule"}], True),
        ([{"key": "sku", "value": "other", "effect": "NoSchedule"}], False),
        ([{"key": "dedicated", "value": "team-a", "effect": "NoExecute"}, GPU_TAINT], False),
        ([{"key": "dedicated", "effect": "NoSchedule"}], False),
    ],
)
def test_the_suggested_tolerations_suffice_for_the_nodes_that_need_the_fewest(
    taints: list[dict[str, str]], covered: bool
) -> None:
    """The rule that adds them for managed clouds is named if it adds all of them."""
    third = {"key": "third", "effect": "NoSchedule"}
    cluster = [tainted("new", gfd("12.4", A100), *taints)]
    cluster += [tainted("other", gfd("12.4", A100), *taints, third)]
    (warning,) = warning_texts(decided(cluster, gpu_pod(NEEDY)))

    assert covered == ("enable rule injection-gpu-tolerations" in warning)
    fixed = gpu_pod(NEEDY, tolerations=fixes(warning))
    assert (True, ()) == (decided(cluster, fixed).allowed, warning_texts(decided(cluster, fixed)))


def test_the_named_rule_adds_these_tolerations() -> None:
    """It is shipped, but disabled."""
    (rule,) = [injection for injection in shipped_rules().injections if injection.name == TOLERATIONS_RULE]

    assert gpu_tolerations() == [dict(toleration) for toleration in rule.inject.tolerations]
    assert not rule.enabled


@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(
    ("effect", "allowed", "warnings", "recorded"),
    [("deny", False, 0, True), ("warn", True, 1, False), ("dryrun", True, 0, True), ("off", True, 0, False)],
)
def test_the_rule_sets_the_effect(
    effect: str, allowed: bool, warnings: int, recorded: bool, pool: bool
) -> None:
    """Of a node, or of nodes that may be added."""
    nodes = inventory([OLD] if pool else [OLD, NEW])
    if pool:
        gpu = NodeCapabilities(cuda=(12, 4), product=A100[0], compute_capability=(8, 0))
        new = NodePool("new", "NodePool", (("pool", "new"),), (Taint(KEY, "present"),), None, gpu)
        nodes = nodes.with_pools(DeclaredPools((new,), frozenset({"NodePool"})))
    rule = policy(compatibility_rule(checks={"taints": effect}))
    decision = judged(rule, nodes, gpu_pod(NEEDY))

    assert allowed == decision.allowed
    assert warnings == (len(warning_texts(decision)) if allowed else 0)
    assert recorded == bool(decision.violations)
    if not allowed:
        (violation,) = decision.violations
        assert ("spec.tolerations", "policy") == (violation.path, violation.basis)
        assert "can change checks.taints" in violation.fix.en
        fixed = gpu_pod(NEEDY, tolerations=[{"key": KEY, "operator": "Exists"}])
        assert judged(rule, nodes, fixed).allowed


def test_taints_are_no_reason_to_deny_where_an_autoscaler_may_add_unknown_nodes() -> None:
    """They may have other taints."""
    brought = tainted("new", gfd("12.4", A100) | {"karpenter.sh/nodepool": "a"}, GPU_TAINT)
    decision = judged(
        policy(compatibility_rule(checks={"taints": "deny"})), inventory(brought), gpu_pod(NEEDY)
    )

    assert (True, 1) == (decision.allowed, len(warning_texts(decision)))


def test_a_pod_is_denied_if_no_node_is_compatible_tolerated_or_not() -> None:
    """No toleration would help."""
    decision = decided([OLD, tainted("old-2", gfd("11.4", A100), GPU_TAINT)], gpu_pod(NEEDY))

    assert not decision.allowed
    assert "(2 nodes checked)" in decision.denial.en


@pytest.mark.parametrize(
    "taint",
    [
        {"key": KEY, "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"},
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
    ],
)
def test_a_taint_that_passes_or_keeps_no_pod_away_is_not_told(taint: dict[str, str]) -> None:
    """It is a state of the node."""
    assert () == warning_texts(decided([tainted("new", gfd("12.4", A100), taint)], gpu_pod(NEEDY)))


def test_a_pod_with_a_node_name_is_not_asked_for_tolerations() -> None:
    """The scheduler does not see it."""
    assert () == warning_texts(decided([NEW], gpu_pod(NEEDY, nodeName="new")))


@pytest.mark.parametrize("broken", [None, "text", [1], [{"key": 1}], {"key": "a"}, [{"key": ["a"]}]])
def test_taints_and_tolerations_of_any_shape_are_read(broken: Any) -> None:
    """What is none of them is left out."""
    shapeless = node("new", gfd("12.4", A100)) | {"spec": {"taints": broken}}

    assert decided([shapeless], gpu_pod(NEEDY, tolerations=broken)).allowed
    assert warning_texts(decided([NEW], gpu_pod(NEEDY, tolerations=broken)))
