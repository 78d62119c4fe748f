"""Nodes that an autoscaler may add, by node profiles: they keep a pod from being denied, and are brought."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rules.decision.policy import Policy, compile_policy
from rules.kube.tolerations import Taint
from rules.model.decision import Decision
from rules.model.rule import NodeProfile
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools.document import DeclaredPools, NodePool
from rules.text.i18n import Text
from rules.text.yaml_document import Location
from tests.support.builders import warning_texts
from tests.support.node_builders import GPU, T4, Node, gfd, gpu_pod, inventory, judged, node, shipped_rules

POOL = "karpenter.sh/nodepool"
H100 = NodeCapabilities(product="NVIDIA-H100-80GB-HBM3", cuda=(13, 0), driver="580.65.06")
OLD_T4 = node("t4", gfd("12.2", T4))
# It needs CUDA 12.4 and bfloat16: no T4 runs it.
NEEDY = gpu_pod("vllm/vllm-openai:v0.8.4", "--dtype=bfloat16")


def profile(name: str, capabilities: NodeCapabilities = H100, **fields: Any) -> NodeProfile:
    """Return the profile of a pool of this name; fields: others than the usual ones."""
    return replace(
        NodeProfile(
            name=name,
            description=Text(),
            enabled=True,
            location=Location("profiles.yaml", 1, 1),
            match=((POOL, name),),
            labels=((POOL, name),),
            taints=(),
            resources=((GPU, 8),),
            capabilities=capabilities,
        ),
        **fields,
    )


def policy(*profiles: NodeProfile) -> Policy:
    """Return the policy of the built-in rules and these profiles."""
    return compile_policy(replace(shipped_rules(), profiles=profiles))


def decided(document: Any, nodes: list[Node], *profiles: NodeProfile) -> Decision:
    """Return the decision in a cluster with these nodes and profiles."""
    return judged(policy(*profiles), inventory(nodes), document)


def terms(decision: Decision) -> list[Any]:
    """Return the terms of the injected affinity."""
    affinity = decision.patch[0]["value"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(affinity["nodeSelectorTerms"])


def in_pool(*names: str) -> list[Any]:
    """Return a term for each pool."""
    return [{"matchExpressions": [{"key": POOL, "operator": "In", "values": [name]}]} for name in names]


def test_a_pod_that_only_a_pool_can_run_is_allowed_and_brings_its_node() -> None:
    """With a note that names the pool; without it the pod is denied."""
    assert not decided(NEEDY, [OLD_T4]).allowed
    decision = decided(NEEDY, [OLD_T4], profile("h100"))

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    assert [
        "no node is compatible now; an autoscaler can add one: NodeProfile h100 (NVIDIA-H100-80GB-HBM3)"
    ] == [note.en for note in decision.notes]
    assert in_pool("h100") == terms(decision)


def test_a_cluster_without_nodes_brings_the_first_one() -> None:
    """Scale from zero."""
    decision = decided(NEEDY, [], profile("h100"), profile("t4", NodeCapabilities(product="Tesla-T4")))

    assert decision.allowed
    assert in_pool("h100") == terms(decision)


def test_the_labels_of_a_pool_are_the_last_term_if_nodes_are_compatible() -> None:
    """So that the pod can also go to a new node."""
    cluster = [OLD_T4, node("h100", gfd("13.0", ("NVIDIA-H100-80GB-HBM3", "9.0")))]

    assert in_pool("h100") == terms(decided(NEEDY, cluster, profile("h100")))[-1:]


def test_a_pool_of_which_a_fact_is_unknown_is_a_warning_and_injects_nothing() -> None:
    """Its nodes may be compatible."""
    decision = decided(NEEDY, [OLD_T4], profile("any", NodeCapabilities()))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert "NodeProfile any may bring one" in warning_texts(decision)[0]


@pytest.mark.parametrize(
    "other",
    [
        profile("pool", NodeCapabilities(product="Tesla-T4", cuda=(13, 0), driver="580.65.06")),
        profile("pool", can_scale=False),
        profile("pool", enabled=False),
        profile("pool", resources=(("amd.com/gpu", 8),)),
    ],
    ids=["too old a GPU", "it cannot grow", "disabled", "other resources"],
)
def test_a_pool_that_brings_no_compatible_node_does_not_keep_a_pod_from_being_denied(
    other: NodeProfile,
) -> None:
    """Whatever the reason is."""
    assert not decided(NEEDY, [OLD_T4], other).allowed


def test_a_pool_that_fits_but_is_not_tolerated_is_no_reason_to_deny_and_its_taint_is_told() -> None:
    """As for nodes: a toleration may still be added."""
    taint = Taint("nvidia.com/gpu", "present")
    decision = decided(NEEDY, [OLD_T4], profile("h100", taints=(taint,)))

    assert (True, ()) == (decision.allowed, decision.patch)
    assert warning_texts(decision)[0].startswith(
        "gpugate: container 'main': the pod does not tolerate taint nvidia.com/gpu=present:NoSchedule of the "
    )
    assert "; tolerate {key: nvidia.com/gpu" in warning_texts(decision)[0]
    misfit = NodeCapabilities(product="Tesla-T4", cuda=(13, 0), driver="580.65.06")
    assert not decided(NEEDY, [OLD_T4], profile("t4", misfit, taints=(taint,))).allowed


def test_a_tolerated_taint_does_not_exclude_a_pool() -> None:
    """As for the scheduler."""
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    document = gpu_pod("vllm/vllm-openai:v0.8.4", "--dtype=bfloat16", tolerations=tolerations)

    assert decided(document, [OLD_T4], profile("h100", taints=(Taint("nvidia.com/gpu", "present"),))).allowed


@pytest.mark.parametrize(("selector", "allowed"), [({POOL: "h100"}, True), ({"team": "ml"}, False)])
def test_a_pod_brings_no_node_by_labels_that_it_does_not_have_when_it_is_created(
    selector: dict[str, str], allowed: bool
) -> None:
    """An autoscaler knows no others."""
    labels = gfd("12.2", T4) | selector
    document = gpu_pod("vllm/vllm-openai:v0.8.4", "--dtype=bfloat16", nodeSelector=selector)

    assert allowed is decided(document, [node("t4", labels)], profile("h100")).allowed


def test_a_denial_names_the_pools_that_bring_no_compatible_node_either() -> None:
    """After the table of nodes."""
    message = decided(
        NEEDY, [OLD_T4], profile("t4", NodeCapabilities(product="Tesla-T4", cuda=(13, 0)))
    ).denial.en

    assert message.splitlines()[-1].startswith(
        "    NodeProfile t4 (Tesla-T4): compute capability 7.5, below 8.0"
    )


def test_affinity_keeps_pods_from_a_pool_that_does_not_fit_although_all_nodes_do() -> None:
    """Karpenter would add the cheapest node; if every pool fits, nothing is injected."""
    labels = gfd("13.0", ("NVIDIA-H100-80GB-HBM3", "9.0")) | {POOL: "h100"}
    unfit = profile("t4", NodeCapabilities(product="Tesla-T4", cuda=(13, 0)))

    assert () == decided(NEEDY, [node("h100", labels)], profile("h100")).patch
    decision = decided(NEEDY, [node("h100", labels)], profile("h100"), unfit)
    assert in_pool("h100") == terms(decision)[-1:]
    assert len(terms(decision)) > 1


@pytest.mark.parametrize(
    ("selector", "brings"),
    [
        ({"kubernetes.io/arch": "amd64"}, True),
        ({"topology.kubernetes.io/zone": "a"}, True),
        ({POOL: "h100"}, True),
        ({POOL: "other"}, False),
        ({"team": "red"}, False),
    ],
)
def test_labels_that_every_node_has_need_not_be_declared(selector: dict[str, str], *, brings: bool) -> None:
    """A pool that does not say its zone has one; a label of the users' own it has only if it says so."""
    document = NEEDY | {"spec": NEEDY["spec"] | {"nodeSelector": selector}}
    labelled = node("t4", gfd("12.2", T4, **selector))

    assert brings == decided(document, [labelled], profile("h100")).allowed


def test_without_any_node_a_pod_is_denied_only_if_no_pool_can_run_it() -> None:
    """A cluster at zero: the message has the pools."""
    assert decided(NEEDY, [], profile("h100")).allowed
    unknown = decided(NEEDY, [], profile("any", NodeCapabilities()))
    assert (True, True) == (unknown.allowed, "NodeProfile any may bring one" in warning_texts(unknown)[0])
    denied = decided(NEEDY, [], profile("t4", NodeCapabilities(product="Tesla-T4", cuda=(13, 0))))
    assert (False, True) == (denied.allowed, "NodeProfile t4 (Tesla-T4)" in denied.denial.en)


def test_nothing_is_injected_where_all_nodes_and_all_pools_fit() -> None:
    """The autoscaler then chooses freely."""
    fits = node("h100", gfd("13.0", ("NVIDIA-H100-80GB-HBM3", "9.0")))

    assert () == decided(NEEDY, [fits], profile("h100")).patch
    assert decided(NEEDY, [fits]).patch


def test_from_zero_nothing_is_injected_where_every_pool_fits() -> None:
    """A term for one of them would have the autoscaler buy that one."""
    assert () == decided(NEEDY, [], profile("h100"), profile("h100-2")).patch


def test_a_pool_that_may_fit_is_preferred_to_one_that_certainly_does_not() -> None:
    """An autoscaler would bring the cheapest node, which does not run the pod."""
    unknown = NodeCapabilities(product="NVIDIA-H100-80GB-HBM3")
    misfit = profile("t4", NodeCapabilities(product="Tesla-T4"))
    decision = decided(NEEDY, [OLD_T4], profile("h100", unknown), misfit)

    assert (True, in_pool("h100")) == (decision.allowed, terms(decision))
    assert "NodeProfile h100 (NVIDIA-H100-80GB-HBM3) may bring one" in warning_texts(decision)[0]
    assert () == decided(NEEDY, [OLD_T4], profile("h100", unknown)).patch

    from_zero = decided(NEEDY, [], profile("h100", unknown), misfit)
    assert (True, in_pool("h100")) == (from_zero.allowed, terms(from_zero))


def test_a_pool_that_may_fit_is_not_the_only_way_where_others_are_not_declared() -> None:
    """One of those may be the one that fits."""
    pools = (
        NodePool("h100", "NodePool", ((POOL, "h100"),), capabilities=NodeCapabilities(product=H100.product)),
        NodePool("t4", "NodePool", ((POOL, "t4"),), capabilities=NodeCapabilities(product="Tesla-T4")),
    )
    patches = []
    for signs in (frozenset[str](), frozenset({"cluster-autoscaler-status"})):
        cluster = inventory([OLD_T4]).with_pools(DeclaredPools(pools, frozenset({"NodePool"}), signs))
        verdict = judged(policy(), cluster, NEEDY)
        assert (True, True) == (verdict.allowed, "NodePool h100" in warning_texts(verdict)[0])
        patches.append(bool(verdict.patch))

    assert [True, False] == patches


def test_a_pool_of_unknown_size_may_have_what_is_too_much_for_another() -> None:
    """A node of the other has fewer GPUs."""
    pools = [
        NodePool(name, "NodePool", ((POOL, name),), resources=resources, capabilities=H100)
        for name, resources in (("few", ((GPU, 4),)), ("any", None))
    ]
    cluster = inventory([OLD_T4]).with_pools(DeclaredPools(tuple(pools), frozenset({"NodePool"})))
    document = gpu_pod("vllm/vllm-openai:v0.8.4", "--dtype=bfloat16", limits={GPU: 8})
    verdict = judged(policy(), cluster, document)

    assert (True, in_pool("any")) == (verdict.allowed, terms(verdict)), verdict
