"""Laws of the verdict over nodes that are ready, nodes that may come back, and nodes that may be added."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from hypothesis import event, given, settings
from hypothesis import strategies as st

from rules.cuda.requirements import container_facts
from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy
from rules.kube.pod import Pod
from rules.kube.tolerations import Taint
from rules.model.decision import Decision
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader
from rules.nodes.pools.document import DeclaredPools, NodePool
from tests.support import reference_selector as selector
from tests.support import reference_verdict as reference
from tests.support.builders import (
    container,
    loaded,
    patched,
    pod,
    policy,
    request,
    warning_texts,
)
from tests.support.laws import EXAMPLES
from tests.support.node_builders import (
    COMPUTE,
    CUDA,
    GPU,
    H100,
    T4,
    V100,
    Node,
    compatibility_rule,
    cuda_image,
    gfd,
)
from tests.support.reference_verdict import INSTANCE_TYPE, KARPENTER_LABEL, Cluster, Needs

# Random examples of each law; 5000 take some minutes.
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
MODE: Final = "nvidia-device-enable"
ZONE: Final = "topology.kubernetes.io/zone"
TEAM: Final = "example.com/team"
RULES: Final[tuple[dict[str, Any], ...]] = (
    {"deviceMode": "pgpu"},
    {"minorVersionCompatibility": "warn"},
    {"migSlices": "deny", "minComputeCapability": "7.5", "newerMajorVersions": "warn"},
)


@cache
def policy_of(rule: int) -> tuple[Policy, Any]:
    """Return the policy of one of RULES, and the rule."""
    text = compatibility_rule(**RULES[rule], checks={"sharedMemory": "off"})
    (compiled_rule,) = loaded(text).rules.compatibility
    return policy(text), compiled_rule


# Labels of nodes


def joined(*parts: dict[str, str]) -> dict[str, str]:
    """Return all labels of some parts."""
    return {key: value for part in parts for key, value in part.items()}


def only(labels: dict[str, str], missing: str) -> dict[str, str]:
    """Return labels without those that contain a word."""
    return {key: value for key, value in labels.items() if not missing or missing not in key}


gpu_facts = st.builds(gfd, st.sampled_from(["12.2", "12.8", "13.0"]), st.sampled_from([V100, T4, H100]))
facts = st.one_of(
    gpu_facts,
    gpu_facts,
    gpu_facts,
    st.builds(only, gpu_facts, st.sampled_from(["cuda", "gpu.compute", "gpu."])),
    st.sampled_from([{}, {"nvidia.com/gpu.present": "true"}]),
)
modes = st.sampled_from(
    [{}, {}, {}, {}, {MODE: "pgpu"}, {MODE: "vgpu"}, {"nvidia.com/mig-1g.5gb.count": "7"}]
)
zones = st.sampled_from([{}, {ZONE: "a"}, {ZONE: "b"}, {TEAM: "red"}])
types = st.sampled_from([{}, {}, {INSTANCE_TYPE: "t1"}, {INSTANCE_TYPE: "t2"}])
brought = st.sampled_from([{}, {}, {}, {KARPENTER_LABEL: "p0"}, {KARPENTER_LABEL: "p1"}])
labels = st.builds(joined, facts, modes, zones, types)
karpenter_labels = st.builds(joined, facts, modes, zones, types, brought)

OFFERS: Final = {"allocatable": {GPU: "8"}, "capacity": {GPU: "8"}}
FEW: Final[dict[str, Any]] = {"status": {"allocatable": {GPU: "2"}, "capacity": {GPU: "2"}}}
UNHEALTHY: Final[dict[str, Any]] = {"status": {"allocatable": {GPU: "2"}, "capacity": {GPU: "8"}}}
AWAY: Final[tuple[dict[str, Any], ...]] = (
    {"status": {"allocatable": {GPU: "0"}, "capacity": {GPU: "8"}}},
    {"status": {"allocatable": {GPU: "0"}, "capacity": {GPU: "2"}}},
    {"status": {"allocatable": {GPU: "2"}, "capacity": {GPU: "2"}}, "spec": {"unschedulable": True}},
    {"status": {"allocatable": {"cpu": "96"}}},
    {"status": OFFERS | {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
    {"status": OFFERS, "spec": {"unschedulable": True}},
)
READY: Final[dict[str, Any]] = {"status": OFFERS | {"conditions": [{"type": "Ready", "status": "True"}]}}
here = st.sampled_from([READY, READY, READY, FEW, UNHEALTHY])
states = st.one_of(here, here, st.sampled_from(AWAY))
node_taints = st.sampled_from(
    [
        [],
        [],
        [],
        [{"key": GPU, "value": "present", "effect": "NoSchedule"}],
        [{"key": GPU, "effect": "PreferNoSchedule"}],
        [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
    ]
)


def node(labels: dict[str, str], state: dict[str, Any], taints: list[Any]) -> Node:
    """Return a node without a name."""
    return {
        "kind": "Node",
        "metadata": {"labels": labels},
        "status": state["status"],
        "spec": state.get("spec", {}) | {"taints": taints},
    }


def named(nodes: list[Node]) -> list[Node]:
    """Return nodes, each with a name of its own."""
    return [
        node_object | {"metadata": node_object["metadata"] | {"name": f"n{at}"}}
        for at, node_object in enumerate(nodes)
    ]


def node_lists(labels: st.SearchStrategy[dict[str, str]]) -> st.SearchStrategy[list[Node]]:
    """Return lists of nodes with such labels: in any state, all ready, or none of them."""
    some = [
        st.lists(st.builds(node, labels, state, node_taints), max_size=4)
        for state in (states, here, st.sampled_from(AWAY))
    ]
    return st.one_of(some[0], *some).map(named)


# Pools


def capabilities(labels: dict[str, str]) -> NodeCapabilities:
    """Return what labels say of a GPU and its driver."""
    return NodeReader("", labels).capabilities(LabelNames())


def pool_of(gpu: dict[str, str], labels: dict[str, str], further: dict[str, Any]) -> NodePool:
    """Return a pool without a name. further: fields, and whether it declares the labels of its GPU."""
    fields = {key: value for key, value in further.items() if key != "declared"}
    declared = joined(labels, gpu if further["declared"] else {})
    return NodePool("", labels=tuple(sorted(declared.items())), capabilities=capabilities(gpu), **fields)


def named_pools(pools: list[NodePool]) -> list[NodePool]:
    """Return pools, each with a name and with that as its label, unless it has no labels."""
    return [
        pool._replace(
            name=f"p{at}",
            labels=tuple(sorted({**dict(pool.labels), KARPENTER_LABEL: f"p{at}"}.items()))
            if pool.labels
            else (),
        )
        for at, pool in enumerate(pools)
    ]


pool_labels = st.builds(joined, st.sampled_from([{TEAM: "blue"}, {}, {ZONE: "a"}]), types)
pools = st.lists(
    st.builds(
        pool_of,
        facts,
        pool_labels,
        st.fixed_dictionaries(
            {
                "kind": st.sampled_from(["NodePool", "NodeProfile", "ResourceFlavor", "MachineDeployment"]),
                "taints": st.sampled_from(
                    [(), (), (), (Taint(GPU, "present"),), (Taint(GPU, "", "PreferNoSchedule"),)]
                ),
                "resources": st.sampled_from(
                    [None, None, None, ((GPU, 8),), ((GPU, 8),), ((GPU, 2),), (), (("amd.com/gpu", 8),)]
                ),
                "can_scale": st.sampled_from([True, True, True, True, True, False]),
                "open": st.sampled_from([(), (), ("",), ("example.com/",)]),
                "declared": st.sampled_from([False, False, True]),
            }
        ),
    ),
    max_size=3,
).map(named_pools)

clusters = st.builds(
    Cluster, node_lists(karpenter_labels), st.one_of(st.just([]), pools), st.booleans(), st.booleans()
)
without_autoscaler = node_lists(labels).map(Cluster)
with_pools = st.builds(Cluster, node_lists(karpenter_labels), pools, st.just(False), st.just(True))


def inventory_of_cluster(cluster: Cluster) -> Inventory:
    """Return the inventory of a cluster."""
    listed = frozenset({"NodePool"}) if cluster.listed else frozenset()
    signs = frozenset({"cluster-autoscaler-status"}) if cluster.signs else frozenset()
    return inventory_of(cluster.nodes).with_pools(DeclaredPools(tuple(cluster.pools), listed, signs))


# Pods

keys = st.sampled_from([ZONE, TEAM, INSTANCE_TYPE, KARPENTER_LABEL, "nvidia.com/gpu.product"])
VALUES: Final = ["a", "b", "red", "t1", "t2", "p0", "p1", T4[0], H100[0]]
expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": keys,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=4, unique=True),
        }
    ),
    st.fixed_dictionaries({"key": keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
terms = st.lists(
    st.lists(expressions, min_size=1, max_size=2).map(lambda members: {"matchExpressions": members}),
    min_size=1,
    max_size=2,
)
selectors = st.sampled_from(
    [
        {ZONE: "a"},
        {TEAM: "red"},
        {INSTANCE_TYPE: "t1"},
        {KARPENTER_LABEL: "p0"},
        {"nvidia.com/gpu.product": H100[0]},
    ]
)
tolerations = st.sampled_from(
    [
        [{"key": GPU, "operator": "Exists"}],
        [{"operator": "Exists"}],
        [{"key": GPU, "value": "present", "effect": "NoSchedule"}],
        [{"key": GPU, "value": "absent"}],
    ]
)
free_specs = st.fixed_dictionaries({}, optional={"tolerations": tolerations})
selecting = st.fixed_dictionaries(
    {},
    optional={
        "tolerations": tolerations,
        "nodeSelector": selectors,
        "affinity": terms.map(
            lambda selector_terms: {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": selector_terms}
                }
            }
        ),
    },
)
bound = st.fixed_dictionaries({"nodeName": st.sampled_from(["n0", "n1", "n9"])})
specs = st.one_of(free_specs, free_specs, selecting, selecting, bound)
wishes = st.fixed_dictionaries(
    {
        "image": st.sampled_from([*map(cuda_image, ("12.4", "12.4", "13.0")), "team/app:v1"]),
        "gpus": st.sampled_from(["1", "1", "4", "4", "8"]),
    },
    optional={CUDA: st.sampled_from(["11.8", "12.4", "13.0"]), COMPUTE: st.sampled_from(["7.5", "8.0"])},
)


def pod_of(spec: dict[str, Any], wished: list[dict[str, str]]) -> Any:
    """Return a pod with a container for each wish: its image, and what annotations say of it."""
    containers = [
        container({GPU: wish["gpus"]}, {GPU: wish["gpus"]}, name=f"c{at}", image=wish["image"])
        for at, wish in enumerate(wished)
    ]
    annotations = {
        f"{key}.c{at}": value
        for at, wish in enumerate(wished)
        for key, value in wish.items()
        if key not in ("image", "gpus")
    }
    return pod(*containers, metadata={"name": "train", "annotations": annotations}, **spec)


pods = st.builds(pod_of, specs, st.lists(wishes, min_size=1, max_size=2))
free_pods = st.builds(pod_of, free_specs, st.lists(wishes, min_size=1, max_size=2))
rules = st.integers(0, len(RULES) - 1)


def needs_of(rule: int, document: Any) -> Needs:
    """Return the needs of the containers of a pod under a rule."""
    judge, compiled_rule = policy_of(rule)
    read = Pod(document, document)
    annotations = document["metadata"]["annotations"]
    return [
        (compiled_rule.sharing, judge.requirements_of(container_facts(container_document, annotations)))
        for container_document in read.containers
    ]


def decided(rule: int, cluster: Cluster, document: Any, **fields: Any) -> Decision:
    """Return the decision on the creation of a pod."""
    return decide(Snapshot(policy_of(rule)[0], inventory_of_cluster(cluster)), request(document, **fields))


def required_terms(document: Any) -> list[Any] | None:
    """Return the required terms of node affinity of a pod; None if it has none."""
    required: list[Any] | None = reference.selector_terms(document["spec"])
    return required


def reachable(nodes: list[Node], document: Any) -> frozenset[str]:
    """Return the names of the nodes that a pod's own selectors match."""
    return frozenset(
        reference.name_of(node_object)
        for node_object in nodes
        if selector.may_go(node_object, document["spec"])
    )


def labelled(node: Node, labels: dict[str, str]) -> Node:
    """Return a node that has some labels, too."""
    return node | {"metadata": node["metadata"] | {"labels": node["metadata"]["labels"] | labels}}


def added(before: Any, after: Any) -> list[list[Any]]:
    """Return what each required term of a patched pod has in addition to those of the pod as written."""
    own = [term["matchExpressions"] for term in required_terms(before) or [{"matchExpressions": []}]]
    added_terms = []
    for term in required_terms(after) or []:
        assert "matchFields" not in term
        expressions = term["matchExpressions"]
        (at,) = [
            len(own_expressions)
            for own_expressions in own
            if expressions[: len(own_expressions)] == own_expressions
        ][:1] or [0]
        added_terms.append(expressions[at:])
    return added_terms


@settings(max_examples=7 * EXAMPLES)
@given(clusters, pods, rules)
def test_the_verdict_is_that_of_the_table(cluster: Cluster, document: Any, rule: int) -> None:
    """Allowed or denied, with or without a warning."""
    expected = reference.verdict(cluster, document["spec"], needs_of(rule, document))
    decision = decided(rule, cluster, document)

    event(f"{expected.allowed} {expected.warned}")
    assert (expected.allowed, expected.warned) == (
        decision.allowed,
        decision.allowed and bool(warning_texts(decision)),
    )


@settings(max_examples=7 * EXAMPLES)
@given(clusters, pods, rules)
def test_no_pod_is_denied_while_an_entry_may_run_it(cluster: Cluster, document: Any, rule: int) -> None:
    """Or while nodes may come of which nothing is known, unless the pod is bound to its node."""
    entries = reference.entries(cluster, document["spec"], needs_of(rule, document))
    levels = [node_level for group in (entries.ready, entries.away, entries.pools) for _, node_level in group]

    if reference.excess(cluster, document["spec"]):
        return
    undeclared = cluster.undeclared and not document["spec"].get("nodeName")
    if undeclared or any(map(reference.may_fit, levels)):
        assert "" == decided(rule, cluster, document).denial.en


@settings(max_examples=7 * EXAMPLES)
@given(st.one_of(without_autoscaler, clusters), pods, rules)
def test_affinity_admits_exactly_the_ready_nodes_that_fit_and_those_of_the_named_pools(
    cluster: Cluster, document: Any, rule: int
) -> None:
    """Among the candidates; if none fits for certain and no autoscaler is present, those that may.

    If the pod selects no node, among the others, once they have the labels that it selects.
    """
    needs, spec = needs_of(rule, document), document["spec"]
    expected = reference.verdict(cluster, spec, needs)
    if not expected.allowed:
        return
    result = patched(document, decided(rule, cluster, document))
    if expected.free:
        assert required_terms(document) == required_terms(result)
        return
    if expected.elsewhere:
        selected = spec.get("nodeSelector", {})
        if not (required_terms(document) or any(key.startswith("nvidia.com/") for key in selected)):
            later = [labelled(node_object, selected) for node_object in expected.among]
            assert expected.admitted == reachable(later, result)
        return
    last = {
        reference.name_of(node_object)
        for node_object in expected.among
        if (
            reference.is_of_pools(expected.bringing, node_object)
            if expected.bringing
            else reference.is_of_last_terms(cluster, spec, needs, node_object)
        )
    }
    assert expected.admitted | last == reachable([*expected.among], result)


@settings(max_examples=7 * EXAMPLES)
@given(with_pools, free_pods, rules)
def test_affinity_has_only_what_autoscalers_understand(cluster: Cluster, document: Any, rule: int) -> None:
    """No NotIn, no field, no name of a node, no label that Karpenter restricts, no term of absent labels."""
    result = patched(document, decided(rule, cluster, document))
    preferred = result["spec"].get("affinity", {}).get("nodeAffinity", {}).get(PREFERRED, [])
    soft = [preference["preference"]["matchExpressions"] for preference in preferred]
    assert not any(expression["operator"] == "NotIn" for term in soft for expression in term)
    for term in added(document, result):
        assert [] == [expression for expression in term if expression["operator"] == "NotIn"]
        keys = {expression["key"] for expression in term}
        assert "kubernetes.io/hostname" not in keys
        assert {KARPENTER_LABEL} >= {key for key in keys if key.startswith("karpenter.sh/")}
        absent = {expression["key"] for expression in term if expression["operator"] == "DoesNotExist"}
        if cluster.autoscaled:
            assert keys - absent or not (absent - {MODE}), term


@settings(max_examples=7 * EXAMPLES)
@given(with_pools, free_pods, rules)
def test_affinity_brings_nodes_of_exactly_the_pools_that_fit(
    cluster: Cluster, document: Any, rule: int
) -> None:
    """By their labels at creation; if none fits for certain, of those that may, or of a type that fits.

    After a node fits, those that may are open unless a present node of them is not compatible.
    """
    needs = needs_of(rule, document)
    result = patched(document, decided(rule, cluster, document))
    if not (cluster.autoscaled and required_terms(result)):
        return
    expected = reference.verdict(cluster, document["spec"], needs)
    types = reference.types_that_fit(cluster, needs)
    counted = not reference.excess(cluster, document["spec"])
    pools = reference.entries(cluster, document["spec"], needs, counted=counted).pools
    ways = [] if expected.bringing else reference.ways_in(cluster, pools, needs)
    for pool, level in pools:
        brought = selector.may_go(reference.new_node(pool), result["spec"])
        by_type = dict(pool.labels).get(INSTANCE_TYPE) in types
        if pool in expected.bringing or (pool in ways and pool.labels):
            assert brought
        elif not (reference.fits(level) or (by_type and reference.may_fit(level))):
            assert not brought


@settings(max_examples=7 * EXAMPLES)
@given(clusters, pods, rules)
def test_a_second_decision_changes_nothing(cluster: Cluster, document: Any, rule: int) -> None:
    """The patched pod is allowed, and gets no further patch."""
    first = decided(rule, cluster, document)
    if first.allowed:
        result = patched(document, first)
        again, final = decided(rule, cluster, result), decided(rule, cluster, result, mutating=False)
        assert (True, (), True) == (again.allowed, again.patch, final.allowed)


@settings(max_examples=7 * EXAMPLES)
@given(clusters, pods, rules, st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_pools_makes_no_difference(
    cluster: Cluster, document: Any, rule: int, random: Any
) -> None:
    """Neither to the verdict nor to the nodes that are admitted."""
    other = cluster._replace(
        nodes=random.sample(cluster.nodes, len(cluster.nodes)),
        pools=random.sample(cluster.pools, len(cluster.pools)),
    )
    one, two = decided(rule, cluster, document), decided(rule, other, document)

    assert (one.allowed, len(warning_texts(one))) == (two.allowed, len(warning_texts(two)))
    assert reachable(cluster.nodes, patched(document, one)) == reachable(
        cluster.nodes, patched(document, two)
    )
