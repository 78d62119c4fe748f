"""The effect of a change on one workload: what counts, and what is only unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rules import AdmissionRequest, Policy, RuleSet, Snapshot, compile_policy
from rules.nodes.inventory_document import inventory_of
from rules.text.i18n import Text
from tests.support.builders import loaded
from tests.support.node_builders import A100, Node, gfd, gpu_pod, node, node_profile, shipped, shipped_rules
from webhook.cli.inputs.node_changes import Change
from webhook.cli.whatif.compare import ClusterState, Impact, WorkloadChange, WorkloadRequest, compare

POOL = "example.com/pool"
KARPENTER = "karpenter.sh/nodepool"
CHANGE = Change(Text("a change", zh="一项变更"))
NAMES = ("a", "b")


def workload(*pods: dict[str, Any], from_pods: bool = False, **spec: Any) -> WorkloadRequest:
    """Return a Deployment of a pod with one GPU, and its pods. spec: other fields of a pod."""
    template = {"spec": gpu_pod("nvidia/cuda:12.2.0-base-ubuntu22.04", **spec)["spec"]}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team"},
        "spec": {"template": template},
    }
    request = AdmissionRequest("CREATE", "apps", "Deployment", "team", document)
    return WorkloadRequest("team", "Deployment/web", request, pods, from_pods)


def on(name: str) -> dict[str, Any]:
    """Return a pod of the workload that runs on a node."""
    return gpu_pod("nvidia/cuda:12.2.0-base-ubuntu22.04", nodeName=name)


def in_pools(*names: str, cuda: str = "12.4", key: str = POOL) -> list[Node]:
    """Return a node for each pool, with its name."""
    return [node(name, {**gfd(cuda, A100), key: name}) for name in names]


def change(
    subject: WorkloadRequest, before: Sequence[Node], after: Sequence[Node], policies: Sequence[Policy] = ()
) -> WorkloadChange:
    """Return what a change of nodes does to a workload. policies: before and after, if not the built-in."""
    was, then = (
        ClusterState(Snapshot(policy, inventory_of(list(nodes)), {}), 0)
        for policy, nodes in zip(policies or (shipped(), shipped()), (before, after), strict=True)
    )
    (workload_object,) = compare([subject], was, then, [CHANGE]).workloads
    return workload_object


def test_pods_that_have_to_move_count_also_if_the_workload_selects_other_nodes_by_now() -> None:
    """They were created before it did."""
    later = workload(on("a"), nodeSelector={POOL: "b"})
    changes = change(later, in_pools(*NAMES), in_pools("b"))

    assert (Impact.FEWER_NODES, 0, 1) == (changes.effect, changes.before.moving, changes.after.moving)
    assert changes.before.nodes == changes.after.nodes == frozenset({"b"})
    assert Impact.UNCHANGED is change(later, in_pools(*NAMES), in_pools(*NAMES)).effect


def test_a_pool_that_cannot_grow_any_more_counts_like_a_node() -> None:
    """Its profile is gone, all nodes are there."""
    labels = {POOL: "a"}
    facts = {"product": A100[0], "driver": "550.54", "cuda": "12.4"}
    profile = node_profile(match={"nodeLabels": labels}, labelsAtCreation=labels, **facts)
    rules = shipped_rules()
    more = RuleSet.of([*rules, *loaded(profile).rules])
    changes = change(workload(), in_pools("a"), in_pools("a"), (compile_policy(more), compile_policy(rules)))

    assert Impact.FEWER_NODES is changes.effect
    assert (["profile"], []) == (sorted(changes.before.pools), sorted(changes.after.pools))
    assert changes.before.nodes == changes.after.nodes == frozenset({"a"})


@pytest.mark.parametrize(("from_pods", "effect"), [(False, Impact.BREAKS), (True, Impact.UNKNOWN)])
def test_of_a_workload_that_is_known_by_its_pods_only_the_affinity_may_be_that_of_an_earlier_decision(
    effect: Impact, *, from_pods: bool
) -> None:
    """A new pod of its controller may have another one."""
    subject = workload(from_pods=from_pods, nodeSelector={POOL: "a"})

    assert effect is change(subject, in_pools(*NAMES), in_pools("b")).effect


@pytest.mark.parametrize(("key", "effect"), [(POOL, Impact.BREAKS), (KARPENTER, Impact.UNKNOWN)])
def test_where_an_autoscaler_adds_nodes_that_are_not_declared_nothing_breaks_for_certain(
    key: str, effect: Impact
) -> None:
    """It may add one that the workload selects."""
    subject = workload(nodeSelector={key: "a"})
    changes = change(subject, in_pools(*NAMES, key=key), in_pools("b", key=key))

    assert effect is changes.effect
    assert [reason.line for reason in changes.after.reasons] == [changes.headline]


def test_a_node_of_which_nothing_is_known_may_run_the_workload() -> None:
    """Without labels of its GPU."""
    subject = workload(nodeSelector={POOL: "a"})
    changes = change(subject, in_pools("a"), [node("a", {POOL: "a"})])

    assert Impact.UNKNOWN is changes.effect
    assert "labels do not report" in changes.headline
