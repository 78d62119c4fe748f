"""More GPUs than any node has, and which nodes are candidates by how many they have (`gpuCount`)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rules.nodes.inventory import Inventory
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools import AUTOSCALER_STATUS, declared_pools
from rules.nodes.pools.document import DeclaredPools, NodePool
from tests.support.builders import container, pod, policy, warning_texts
from tests.support.cpu_time import loops
from tests.support.dra_clusters import A100_NAME, bare_node, device_class, gpus_of
from tests.support.node_builders import (
    A100,
    GPU,
    H100,
    T4,
    V100,
    VCUDA_CORE,
    VCUDA_MEMORY,
    Node,
    compatibility_rule,
    cuda_image,
    decided,
    gfd,
    inventory,
    judged,
    node,
    shipped,
    targets,
)

IMAGE = cuda_image("12.4")
# Several GPUs need shared memory, which is another check.
SHM = {"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}]}
VOLUMES = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
EIGHT = [node(f"a100-{at}", gfd("12.4", A100)) for at in range(2)]
MIG = "nvidia.com/mig-1g.5gb"


def asking(*numbers: int | dict[str, str], **spec: Any) -> Any:
    """Return a pod with a container for each number of GPUs, or for each set of resources."""
    limits = [number if isinstance(number, dict) else {GPU: str(number)} for number in numbers]
    containers = [
        container(limit, limit, name=f"c{at}", image=IMAGE, **SHM) for at, limit in enumerate(limits)
    ]
    return pod(*containers, volumes=VOLUMES, **spec)


def initialized(init: list[tuple[int, bool]], *numbers: int) -> Any:
    """Return a pod with init containers, each with its GPUs and whether it is a sidecar."""
    containers = [
        container({GPU: str(number)}, {GPU: str(number)}, name=f"i{at}", image=IMAGE, **SHM)
        | ({"restartPolicy": "Always"} if sidecar else {})
        for at, (number, sidecar) in enumerate(init)
    ]
    return asking(*numbers, initContainers=containers)


def with_pool(resources: tuple[tuple[str, int], ...] | None, *nodes: Node) -> Inventory:
    """Return the inventory of nodes and of one pool of H100."""
    gpu = NodeCapabilities(cuda=(13, 0), driver="580.65.06", product=H100[0], compute_capability=(9, 0))
    pool = NodePool("big", "NodePool", (("pool", "big"),), resources=resources, capabilities=gpu)
    return inventory([*nodes]).with_pools(DeclaredPools((pool,), frozenset({"NodePool"})))


def test_16_gpus_where_nodes_have_8_are_denied_and_the_fix_passes() -> None:
    """The complaint: the pod stays Pending for ever, with "Insufficient nvidia.com/gpu"."""
    decision = decided(EIGHT, asking(16))

    assert not decision.allowed
    (violation,) = decision.violations
    assert (
        "container 'c0': the pod requests 16 nvidia.com/gpu, no node has more than 8" == violation.reason.en
    )
    assert "request at most 8 in one pod; use several pods for more" == violation.fix.en
    assert "spec.containers[0].resources.limits[nvidia.com/gpu]" == violation.path
    assert "fact" == violation.basis
    assert (True, ()) == (decided(EIGHT, asking(8)).allowed, warning_texts(decided(EIGHT, asking(8))))


def test_the_containers_of_a_pod_count_together_and_the_finding_is_said_once() -> None:
    """The scheduler needs one node for all of them."""
    decision = decided(EIGHT, asking(6, 6, {}))

    (violation,) = decision.violations
    assert (
        "container 'c0': the pod requests 12 nvidia.com/gpu (6 in this container), no node has more than 8"
        == violation.reason.en
    )
    assert decided(EIGHT, asking(4, 4)).allowed


@pytest.mark.parametrize(
    ("init", "numbers", "allowed"),
    [
        ([(8, False)], (8,), True),
        ([(16, False)], (1,), False),
        ([(16, False), (1, False)], (1,), False),
        ([(1, False)], (9,), False),
        ([(4, True)], (4,), True),
        ([(4, True)], (5,), False),
        ([(4, True), (5, False)], (1,), False),
        ([(5, False), (4, True)], (1,), True),
    ],
)
def test_init_containers_run_before_the_others_and_sidecars_with_them(
    init: list[tuple[int, bool]], numbers: tuple[int, ...], allowed: bool
) -> None:
    """As Kubernetes sums up what a pod requests."""
    assert allowed == decided(EIGHT, initialized(init, *numbers)).allowed


@pytest.mark.parametrize(
    ("offered", "asked", "limit"),
    [
        ({MIG: "7"}, {MIG: "9"}, "9 nvidia.com/mig-1g.5gb, no node has more than 7"),
        (
            {VCUDA_CORE: "800", VCUDA_MEMORY: "640"},
            {VCUDA_CORE: "1600", VCUDA_MEMORY: "1000"},
            "1600 tencent.com/vcuda-core, no node has more than 800",
        ),
        ({"nvidia.com/gpu.shared": "4"}, {"nvidia.com/gpu.shared": "5"}, "5 nvidia.com/gpu.shared"),
    ],
)
def test_other_resources_of_gpus_count_likewise(
    offered: dict[str, str], asked: dict[str, str], limit: str
) -> None:
    """MIG devices, and hundredths of cards."""
    decision = decided([node("one", gfd("12.4", A100), **offered)], asking(asked))

    assert not decision.allowed
    assert limit in decision.denial.en


@pytest.mark.parametrize(
    ("offered", "asked"),
    [
        ({VCUDA_CORE: "800", VCUDA_MEMORY: "240"}, {VCUDA_CORE: "20", VCUDA_MEMORY: "8192"}),
        ({"nvidia.com/mps-core": "100", "nvidia.com/mps-memory": "15"}, {"nvidia.com/mps-memory": "4096"}),
    ],
)
def test_more_memory_of_shares_than_any_node_has_is_denied(
    offered: dict[str, str], asked: dict[str, str]
) -> None:
    """In MiB, where blocks of 256 MiB or GiB are meant, for example."""
    nodes = [node("one", gfd("12.4", A100), **offered)]
    name, amount = [*asked.items()][-1]
    decision = decided(nodes, asking(asked))

    assert not decision.allowed
    assert f"the pod requests {amount} {name}, no node has more than {offered[name]}" in decision.denial.en
    assert "fact" in {violation.basis for violation in decision.violations}
    assert not [text for text in (decision.denial.en, *warning_texts(decision)) if "no GPU has more" in text]
    assert decided(nodes, asking(asked | {name: offered[name]})).allowed


def hami(amount: str, *nodes: Node) -> tuple[bool, tuple[str, ...]]:
    """Return whether a share of GPU memory is admitted on nodes, and the warnings about it."""
    decision = decided([*nodes], asking({GPU: "1", "nvidia.com/gpumem": amount}))
    return decision.allowed, tuple(text for text in warning_texts(decision) if "gpumem" in text)


def test_a_share_in_bytes_is_a_wrong_unit_and_nothing_else() -> None:
    """The number of bytes is no number of MiB that nodes or GPUs could have."""
    counted = node("counted", gfd("12.4", A100), **{GPU: "1", "nvidia.com/gpumem": "81920"})
    for nodes in ([node("t4", gfd("12.4", T4))], [counted]):
        decision = decided(nodes, asking({GPU: "1", "nvidia.com/gpumem": "10Gi"}))
        assert (False, ()) == (decision.allowed, warning_texts(decision))
        assert ["cf-crl-hami-gpumem"] == [violation.rule for violation in decision.violations]


def test_a_share_of_more_memory_than_any_gpu_has_is_warned_about() -> None:
    """HAMi's memory is in no node's allocatable resources, and a setting may scale it: not certain."""
    small, large = node("t4", gfd("12.4", T4)), node("a100", gfd("12.4", A100))
    allowed, (warning,) = hami("20000", small)

    assert allowed
    assert "nvidia.com/gpumem is 20000Mi of GPU memory, and no GPU has more than" in warning
    most = re.search(r"write at most (\d+) for nvidia.com/gpumem", warning)
    assert most
    for amount, nodes in (
        (most[1], (small,)),
        ("20000", (small, large)),
        ("20000", (small, node("unknown"))),
    ):
        assert (True, ()) == hami(amount, *nodes)


GPU_MEM = "aliyun.com/gpu-mem"


@pytest.mark.parametrize(
    ("resource", "offered", "amount", "labels", "warned"),
    [
        (GPU_MEM, "30", "20", {}, True),
        (GPU_MEM, "30", "15", {}, False),
        (GPU_MEM, "30", "20", {"aliyun.com/gpu-count": "2"}, False),  # of two cards
        (GPU_MEM, "30720", "8192", {}, False),  # in MiB, by a setting of the plugin
        (VCUDA_MEMORY, "120", "100", {}, True),
    ],
)
def test_mission_1_a_share_that_nodes_count_is_of_one_gpu(
    resource: str, offered: str, amount: str, labels: dict[str, str], warned: bool
) -> None:
    """The node has as much, but on two cards."""
    document = asking({resource: amount})
    document["metadata"]["labels"] = labels
    decision = decided([node("t4", gfd("12.4", T4), **{resource: offered})], document)
    warnings = [text for text in warning_texts(decision) if "and no GPU has more than" in text]

    assert decision.allowed
    assert warned is bool(warnings)


@pytest.mark.parametrize(
    ("amounts", "count", "kind", "warned"),
    [
        (["15000", "15000", "15000"], "2", "containers", True),
        (["15000", "15000", "15000"], "4", "containers", False),
        (["15000", "15000", "15000"], None, "containers", False),  # the number of cards is unknown
        (["15000", "15000", "15000"], "2", "initContainers", False),  # one after the other
        (["10000", "10000", "10000"], "2", "containers", False),
        (["20000", "20000"], "1", "containers", False),  # each is warned about by itself
    ],
)
def test_mission_21_the_shares_of_a_pod_are_compared_with_all_gpus_of_a_node(
    amounts: list[str], count: str | None, kind: str, warned: bool
) -> None:
    """HAMi's scheduler may place them on several cards; its settings may scale the memory: not certain."""
    requests = [{GPU: "1", "nvidia.com/gpumem": amount} for amount in amounts]
    containers = [container(limits, limits) | {"name": f"c{at}"} for at, limits in enumerate(requests)]
    document = pod(containers[0])
    document["spec"][kind] = [*document["spec"].get(kind, ()), *containers[1:]]
    labels = gfd("12.4", T4) | ({"nvidia.com/gpu.count": count} if count else {})
    decision = decided([node("t4", labels, **{GPU: "20"})], document)
    expected = (
        "request 45000Mi of GPU memory with nvidia.com/gpumem, and all GPUs of a node have at most 32Gi"
    )

    assert decision.allowed
    assert warned is any(expected in text for text in warning_texts(decision))


def test_a_share_is_not_compared_where_nodes_may_be_added() -> None:
    """Theirs may be larger."""
    document = asking({GPU: "1", "nvidia.com/gpumem": "200000"})
    decision = judged(shipped(), with_pool(None, node("t4", gfd("12.4", T4))), document)

    assert not [text for text in warning_texts(decision) if "no GPU has more than" in text]


def test_a_resource_that_no_node_offers_belongs_to_a_scheduler_and_excludes_nothing() -> None:
    """HAMi's memory and cores are in no node's allocatable resources."""
    hami = {GPU: "1", "nvidia.com/gpumem": "40960", "nvidia.com/gpucores": "100"}

    assert decided(EIGHT, asking(hami)).allowed


def test_a_node_that_has_too_few_is_no_candidate() -> None:
    """The T4 node is compatible, but the pod can only go to the V100 node, which is not."""
    document = pod(
        container({GPU: "4"}, {GPU: "4"}, image="vllm/vllm-openai:v0.8.4", args=["--dtype=bfloat16"])
    )
    cluster = [node("a100", gfd("12.4", A100), **{GPU: "2"}), node("v100", gfd("12.4", V100))]
    decision = decided(cluster, document)

    assert not decision.allowed
    assert "(1 node checked)" in decision.denial.en
    assert "1 × NVIDIA-A100-SXM4-80GB" in decision.denial.en  # compatible, but not by its resources


def away(amount: str) -> Node:
    """Return a node whose GPUs are not offered now."""
    status = {"allocatable": {GPU: "0"}, "capacity": {GPU: amount}}
    return node("away", gfd("12.4", H100)) | {"status": status}


def test_a_node_that_is_not_ready_and_has_enough_is_waited_for() -> None:
    """Its capacity says how many it has."""
    decision = decided([*EIGHT, away("16")], asking(16))

    assert decision.allowed
    (warning,) = warning_texts(decision)
    assert "no ready node offers 16 nvidia.com/gpu (1 not ready)" in warning
    assert not decided([*EIGHT, away("8")], asking(16)).allowed


def test_a_node_that_is_not_ready_and_has_too_few_is_not_waited_for() -> None:
    """The only nodes with enough GPUs have an old driver."""
    old = node("old", gfd("11.4", T4))

    assert not decided([old, away("2")], asking(4)).allowed
    assert decided([old, away("4")], asking(4)).allowed


def test_devices_of_dra_are_enough_for_any_number() -> None:
    """Their number is not compared."""
    cluster = inventory(bare_node("dra"), gpus_of("dra", A100_NAME), device_class(), EIGHT)
    decision = judged(shipped(), cluster, asking(16))

    assert (True, ()) == (decision.allowed, decision.violations)


def test_a_node_of_which_a_gpu_is_unhealthy_may_have_it_again() -> None:
    """Allocatable is below capacity while the device plugin reports a GPU as unhealthy."""
    sick = node("sick", gfd("12.4", A100)) | {"status": {"allocatable": {GPU: "7"}, "capacity": {GPU: "8"}}}

    assert decided([sick], asking(8)).allowed
    (warning,) = warning_texts(decided([sick], asking(8)))
    assert "no ready node offers 8 nvidia.com/gpu now (1 may offer them again)" in warning
    assert () == warning_texts(decided([sick], asking(7)))
    assert not decided([sick], asking(9)).allowed


def test_a_pool_that_has_enough_is_brought() -> None:
    """Its affinity leads there, and a pool with too few does not."""
    decision = judged(shipped(), with_pool(((GPU, 16),), *EIGHT), asking(16))

    assert (True, ()) == (decision.allowed, warning_texts(decision))
    assert ["no node is compatible now; an autoscaler can add one: NodePool big (NVIDIA-H100-80GB-HBM3)"] == [
        note.en for note in decision.notes
    ]
    denied = judged(shipped(), with_pool(((GPU, 4),), *EIGHT), asking(16))
    assert "no node has more than 8" in denied.denial.en
    only = judged(shipped(), with_pool(((GPU, 4),)), asking(16))
    assert "no node has more than 4" in only.denial.en


def test_a_pool_of_which_the_resources_are_unknown_may_have_enough() -> None:
    """A Karpenter NodePool does not say how many GPUs its nodes have: a warning."""
    decision = judged(shipped(), with_pool(None, *EIGHT), asking(16))

    assert decision.allowed
    (warning,) = warning_texts(decision)
    assert "the pod requests 16 nvidia.com/gpu, no node has more than 8" in warning
    assert "policy" not in warning


def test_where_an_autoscaler_may_add_unknown_nodes_it_is_a_warning() -> None:
    """As in the table of results; `noFittingNode: deny` denies there, too."""
    cluster = [node("a100", gfd("12.4", A100) | {"karpenter.sh/nodepool": "a"})]
    forced = policy(compatibility_rule(noFittingNode="deny"))

    assert (True, 1) == (
        decided(cluster, asking(16)).allowed,
        len(warning_texts(decided(cluster, asking(16)))),
    )
    assert not judged(forced, inventory(cluster), asking(16)).allowed


@pytest.mark.parametrize(
    "label",
    [
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "alpha.eksctl.io/nodegroup-name",
        "kubernetes.azure.com/agentpool",
        "alibabacloud.com/nodepool-id",
    ],
)
def test_a_file_of_nodes_of_managed_pools_is_a_warning(label: str) -> None:
    """It shows no empty pools; `noFittingNode: deny`, or a cluster without autoscaler, denies."""
    cluster = [node("a100", gfd("12.4", A100) | {label: "a"})]
    forced = policy(compatibility_rule(noFittingNode="deny"))
    read = inventory(cluster).with_pools(declared_pools({AUTOSCALER_STATUS.name: []}))
    decision = decided(cluster, asking(16))

    assert (True, 1) == (decision.allowed, len(warning_texts(decision)))
    assert "the pod requests 16 nvidia.com/gpu, no node has more than 8" in warning_texts(decision)[0]
    assert not judged(forced, inventory(cluster), asking(16)).allowed
    assert ["fact"] == [violation.basis for violation in judged(shipped(), read, asking(16)).violations]


def test_a_file_of_nodes_of_karpenter_and_all_its_pools_denies() -> None:
    """It shows what may come; without the pools, it is a warning."""
    nodes = inventory(node("a100", gfd("12.4", A100) | {"karpenter.sh/nodepool": "gone"}))
    listed = nodes.with_pools(DeclaredPools((), frozenset({"NodePool"})))

    assert ["fact"] == [violation.basis for violation in judged(shipped(), listed, asking(16)).violations]
    assert judged(shipped(), nodes, asking(16)).allowed


def test_a_node_that_the_pod_excludes_is_named_as_such() -> None:
    """Not the number is wrong, but the selector."""
    cluster = [*EIGHT, node("big", gfd("12.4", H100) | {"size": "big"}, **{GPU: "16"})]
    decision = decided(cluster, asking(16, nodeSelector={"nvidia.com/gpu.product": A100[0]}))

    assert decision.allowed
    assert "each of the 1 nodes that offer 16 nvidia.com/gpu is excluded by" in warning_texts(decision)[0]
    assert f"nodeSelector nvidia.com/gpu.product={A100[0]}" in warning_texts(decision)[0]


@pytest.mark.parametrize(
    ("effect", "allowed", "warnings"),
    [("deny", False, 0), ("warn", True, 1), ("dryrun", True, 0), ("off", True, 0)],
)
def test_the_rule_sets_the_effect(effect: str, allowed: bool, warnings: int) -> None:
    """A warning changes nothing else: the pod gets its affinity."""
    cluster = [*EIGHT, node("old", gfd("11.4", T4))]
    decision = judged(policy(compatibility_rule(checks={"gpuCount": effect})), inventory(cluster), asking(16))

    assert (allowed, warnings) == (decision.allowed, len(warning_texts(decision)) if allowed else 0)
    assert allowed == bool(decision.patch)
    assert ("dryrun" == effect) == bool(
        [violation for violation in decision.violations if "16" in violation.reason.en and allowed]
    )


@pytest.mark.parametrize(("effect", "allowed"), [("deny", False), ("off", True), ("dryrun", True)])
def test_a_check_that_is_off_leaves_nodes_with_too_few_as_candidates(effect: str, allowed: bool) -> None:
    """As if nothing were known of amounts; so does a dry run."""
    cluster = [node("new", gfd("12.4", A100), **{GPU: "2"}), node("old", gfd("11.4", T4))]
    decision = judged(policy(compatibility_rule(checks={"gpuCount": effect})), inventory(cluster), asking(4))

    assert allowed == decision.allowed
    assert not allowed or ["new"] == targets(cluster, asking(4), decision)


def test_the_time_is_linear_in_the_resources_of_all_containers() -> None:
    """Of as many as the size limit allows. A sum for each resource over all containers takes 8 loops more."""
    limits = [{f"nvidia.com/mig-{at}g.5gb": "1"} for at in range(900)]
    largest_pod = pod(
        *({"name": f"p{at}", "image": IMAGE} for at in range(8500)),
        *(
            {"name": f"c{at}", "image": IMAGE, "resources": {"limits": limit}}
            for at, limit in enumerate(limits)
        ),
    )
    nodes, rules = inventory(EIGHT), policy(compatibility_rule(match={"resources": ["nvidia.com/mig-*"]}))

    assert judged(rules, nodes, largest_pod).allowed
    assert loops(lambda: judged(rules, nodes, largest_pod)) < 18


def test_a_pod_that_asks_for_more_than_any_node_has_together_is_told_to_ask_for_less() -> None:
    """Some node has enough of each, but none of both."""
    cluster = [
        node("whole", gfd("12.4", A100), **{GPU: "8", MIG: "1"}),
        node("slices", gfd("12.4", A100), **{GPU: "4", MIG: "8"}),
    ]
    decision = decided(cluster, asking({GPU: "8"}, {MIG: "8"}))

    assert decision.allowed
    (warning,) = warning_texts(decision)
    assert f"no ready node offers 8 {GPU}, 8 {MIG}; request fewer, or add nodes" in warning
    assert () == warning_texts(decided(cluster, asking({GPU: "4"}, {MIG: "8"})))
