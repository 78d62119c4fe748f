"""The node inventory: its queries and its updates."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rules.nodes.label_index
from rules.cuda.tables import Facts, built_in_tables
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.nodes.label_families import LabelNames
from rules.nodes.label_index import ShardedDict
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader, Problem
from rules.nodes.node_row import InventoryError
from rules.nodes.node_selector import candidates
from tests.support import reference_selector as reference
from tests.support.laws import EXAMPLES

A100 = {
    "nvidia.com/cuda.runtime-version.major": "12",
    "nvidia.com/cuda.runtime-version.minor": "2",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
}


GPU = "nvidia.com/gpu"


def node(name: str, labels: dict[str, Any] | None = None, **allocatable: Any) -> dict[str, Any]:
    """Return a Node."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable},
    }


# Maximum entries of a shard: one that a few nodes exceed, and the one in use.
parts = st.sampled_from([1, 128])


def shown(inventory: Inventory) -> dict[str, Any]:
    """Return the results of all queries of an inventory, by node name and so independent of bit positions."""
    labels = inventory.labels
    keys = {key for family in reference.CUDA_KEYS for key in family} | {"zone", "kubernetes.io/hostname"}
    results: dict[str, Any] = {
        "problems": sorted(inventory.problems()),
        "classes": {
            node_class.capabilities: sorted(inventory.names(node_class.members))
            for node_class in inventory.classes(inventory.everything)
        },
        "gpu": sorted(inventory.names(inventory.nodes_offering("nvidia.com/gpu"))),
        "most": inventory.largest_amount("nvidia.com/gpu"),
        "amounts": [
            (
                sorted(inventory.names(inventory.nodes_offering("nvidia.com/gpu", amount))),
                sorted(inventory.names(inventory.nodes_recovering("nvidia.com/gpu", amount))),
            )
            for amount in (1, 2, 8, 9)
        ],
    }
    for key in keys:
        results[key] = sorted(
            (str(value), sorted(inventory.names(nodes))) for value, nodes in labels.values(key)
        )
        results[f"has {key}"] = sorted(inventory.names(labels.with_key(key)))
        results[f"above {key}"] = sorted(inventory.names(labels.above(key, 4)))
        results[f"below {key}"] = sorted(inventory.names(labels.below(key, 12)))
    return results


def test_a_node_uses_the_first_configured_family_that_it_carries() -> None:
    """`families_present` returns which family each node uses, as affinity is written in its labels."""
    names = LabelNames()
    inventory = inventory_of(
        [
            node("both", {"cuda-major-version": "11", "cuda-minor-version": "8", **A100}),
            node("discovered", A100),
            node("unlabelled"),
        ]
    )
    present = inventory.families_present(names.cuda, inventory.everything)

    assert {node_class.capabilities.cuda for node_class in inventory.classes(inventory.named("both"))} == {
        (11, 8)
    }
    assert [(family.key, inventory.names(nodes)) for family, nodes in present] == [
        ("cuda-major-version", ["both"]),
        ("nvidia.com/cuda.runtime-version.major", ["discovered"]),
    ]


@pytest.mark.parametrize(
    ("quantity", "offered"), [("8", True), (8, True), ("1k", True), ("0", False), ("x", False)]
)
def test_a_node_offers_a_resource_if_more_than_zero_is_allocatable(quantity: Any, offered: bool) -> None:
    """Zero or an invalid quantity does not count."""
    inventory = inventory_of(node("one", None, gpu=quantity))

    assert inventory.names(inventory.nodes_offering("gpu")) == (["one"] if offered else [])
    assert inventory.problems() == ((Problem("one", "gpu", "x"),) if quantity == "x" else ())


def test_nodes_are_found_by_how_many_gpus_they_have_or_may_have_again() -> None:
    """Capacity counts for what is not allocatable now; an unknown amount is enough."""
    nodes = [node(f"n{at}", None, **{GPU: str(at)}) for at in range(10)]
    nodes += [
        {**node("sick", None, **{GPU: "2"}), "status": {"allocatable": {GPU: "2"}, "capacity": {GPU: "8"}}},
        {**node("gone", None), "status": {"allocatable": {}, "capacity": {GPU: "4"}}},
        node("other", None, **{"example.com/npu": "1"}),
    ]
    inventory = inventory_of(nodes)

    assert ["n8", "n9"] == sorted(inventory.names(inventory.nodes_offering(GPU, 8)))
    assert (["sick"], ["gone", "sick"]) == (
        inventory.names(inventory.nodes_recovering(GPU, 8)),
        sorted(inventory.names(inventory.nodes_recovering(GPU, 4))),
    )
    assert ["other"] == inventory.names(inventory.nodes_offering("example.com/npu", 8))
    assert (9, 0) == (inventory.largest_amount(GPU), inventory.largest_amount("example.com/npu"))


def test_an_amount_that_is_not_of_gpus_changes_nothing() -> None:
    """Some schedulers write free CPU and memory as extended resources, on every node every minute."""
    first = node("one", None, **{GPU: "8", "kubernetes.io/batch-cpu": "1000", "example.com/cpu": "1"})
    then = node("one", None, **{GPU: "8", "kubernetes.io/batch-cpu": "900", "example.com/cpu": "2"})
    inventory = inventory_of(first)

    assert inventory is inventory.with_node(then)
    assert inventory is not inventory.with_node(node("one", None, **{GPU: "7"}))


def test_nodes_with_equal_capabilities_form_one_class() -> None:
    """Other labels do not matter; classes of a set of nodes contain only those nodes."""
    inventory = inventory_of(
        [node(f"gpu-{at}", {**A100, "rack": str(at)}) for at in range(100)] + [node("cpu")]
    )
    one = inventory.named("gpu-7") | inventory.named("cpu")

    assert sorted(
        node_class.members.bit_count() for node_class in inventory.classes(inventory.everything)
    ) == [1, 100]
    assert {tuple(inventory.names(node_class.members)) for node_class in inventory.classes(one)} == {
        ("gpu-7",),
        ("cpu",),
    }


@pytest.mark.parametrize(
    "document",
    [
        node("one"),
        [node("one")],
        {"kind": "NodeList", "items": [{"metadata": {"name": "one"}}]},
        {"kind": "List", "items": [node("one")]},
        [node("one", A100), node("one")],
    ],
)
def test_nodes_are_read_from_every_document_form(document: Any) -> None:
    """A Node, a list, a NodeList from the API server, a List from kubectl."""
    inventory = inventory_of(document)

    assert inventory.names(inventory.everything) == ["one"]
    assert len(inventory) == 1
    assert inventory.labels.with_key("nvidia.com/gpu.product") == 0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("nodes", "document: expected a Node, a NodeList or a list of them, got 'nodes'"),
        (
            {"kind": "Pod"},
            (
                "document.kind: expected one of Node, NodePool, ResourceFlavor, MachineDeployment, "
                "MachinePool, MachineSet, ResourceSlice, DeviceTaintRule, DeviceClass, ResourceClaim, "
                "ResourceClaimTemplate, ClusterPolicy, got 'Pod'"
            ),
        ),
        (
            {"kind": ["Node"]},
            (
                "document.kind: expected one of Node, NodePool, ResourceFlavor, MachineDeployment, "
                "MachinePool, MachineSet, ResourceSlice, DeviceTaintRule, DeviceClass, ResourceClaim, "
                "ResourceClaimTemplate, ClusterPolicy, got ['Node']"
            ),
        ),
        (
            {"items": [node("one"), 7]},
            "document.items[1]: expected a Node, a NodeList or a list of them, got 7",
        ),
        (
            {"kind": "NodePool", "apiVersion": "compute.coreweave.com/v1alpha1"},
            "document.apiVersion: expected NodePool of karpenter.sh, got 'compute.coreweave.com/v1alpha1'",
        ),
        ([{"metadata": {}}], "document[0].metadata.name: expected the node's name, got None"),
        (node("one") | {"status": "up"}, "document.status: expected an object, got 'up'"),
        (
            {"metadata": {"name": "one", "labels": ["a"]}},
            "document.metadata.labels: expected an object, got ['a']",
        ),
    ],
)
def test_a_document_without_nodes_is_an_error_with_its_path(document: Any, message: str) -> None:
    """The fault of the caller."""
    with pytest.raises(InventoryError) as raised:
        inventory_of(document)

    assert str(raised.value) == message


@settings(max_examples=2 * EXAMPLES)
@given(
    reference.clusters,
    st.lists(
        st.one_of(reference.nodes, reference.nodes.map(lambda node: str(node["metadata"]["name"]))),
        max_size=8,
    ),
    parts,
)
def test_an_updated_inventory_equals_a_new_one(
    cluster: list[reference.Node], changes: list[reference.Node | str], part: int
) -> None:
    """Nodes are added, changed and removed in any order; earlier inventories stay unchanged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules.nodes.label_index, "_PART", part)
        current = {node["metadata"]["name"]: node for node in cluster}
        inventory = inventory_of(cluster)
        history = []
        for change in changes:
            history.append((inventory, shown(inventory)))
            if isinstance(change, str):
                inventory = inventory.without_node(change)
                current.pop(change, None)
            else:
                inventory = inventory.with_node(change)
                current[change["metadata"]["name"]] = change

    assert shown(inventory) == shown(inventory_of(list(current.values())))
    assert len(inventory) == len(current)
    assert all(shown(before) == answers for before, answers in history)


@given(
    st.lists(st.tuples(st.integers(0, 40) | st.text(min_size=1, max_size=1), st.none() | st.integers(0, 2))),
    st.sampled_from([1, 2, 5, 128]),
)
def test_a_sharded_dict_equals_a_dict(changes: list[tuple[Any, int | None]], part: int) -> None:
    """After any additions and removals; earlier copies stay unchanged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules.nodes.label_index, "_PART", part)
        now: ShardedDict[Any, int] = ShardedDict()
        expected: dict[Any, int] = {}
        history = []
        for key, value in changes:
            history.append((now, expected))
            now, expected = now.copy(), expected.copy()
            now.put(key, value)
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value

    for sharded, plain in [*history, (now, expected)]:
        assert plain == dict(sharded.items())
        assert all(plain.get(key) == sharded.get(key) for key, _ in changes)


def test_classes_are_formed_by_reading_one_node_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed node is the only one that is read again."""
    read: list[str] = []
    capabilities = NodeReader.capabilities

    def counted(reader: NodeReader, names: LabelNames, facts: Facts) -> NodeCapabilities:
        read.append(reader.labels.get("nvidia.com/gpu.product", ""))
        return capabilities(reader, names, facts)

    monkeypatch.setattr(NodeReader, "capabilities", counted)
    products = ("A100", "H100")
    inventory = inventory_of(
        [node(f"n{at}", {"nvidia.com/gpu.product": products[at % 2], "serial": str(at)}) for at in range(100)]
    )
    inventory.classes(inventory.everything)
    first = sorted(read)
    inventory = inventory.with_node(node("n0", {"nvidia.com/gpu.product": "H200"}))
    inventory.classes(inventory.everything)

    assert ["A100", "H100"] == first
    assert ["A100", "H200"] == read[2:]


def test_each_set_of_label_names_has_its_own_classes() -> None:
    """Rules with other label names get other classes; a changed node updates both."""
    names = LabelNames(product=("example.com/gpu",))
    first = inventory_of(
        [node("a", {"example.com/gpu": "X1"}), node("b", {"nvidia.com/gpu.product": "A100"})]
    )
    names_by_product = []
    for inventory in (first, first.with_node(node("c", {"example.com/gpu": "X1"}))):
        for labels in (LabelNames(), names):
            classes = inventory.classes(inventory.everything, labels)
            names_by_product.append(
                {
                    node_class.capabilities.product: sorted(inventory.names(node_class.members))
                    for node_class in classes
                }
            )

    assert [
        {None: ["a"], "A100": ["b"]},
        {"X1": ["a"], None: ["b"]},
        {None: ["a", "c"], "A100": ["b"]},
        {"X1": ["a", "c"], None: ["b"]},
    ] == names_by_product


def test_an_unchanged_node_returns_the_same_inventory() -> None:
    """Most events of a watch are heartbeats."""
    inventory = inventory_of([node("one", A100, gpu="8"), node("two", A100, gpu="8")])

    assert inventory.with_node(node("one", deepcopy(A100), gpu="8")) is inventory
    assert inventory.with_node(node("one", A100)) is not inventory
    assert inventory.without_node("three") is inventory


def test_adding_nodes_one_by_one_equals_adding_them_at_once() -> None:
    """Including host names, each the value of one node; removed nodes leave no value."""
    nodes = [node(f"n{number}", {"kubernetes.io/hostname": f"n{number}"}) for number in range(400)]
    grown = Inventory()
    for node_object in nodes:
        grown = grown.with_node(node_object)
    before = grown
    for number in range(0, 400, 2):
        grown = grown.without_node(f"n{number}")

    assert (
        [f"n{number}" for number in range(400)]
        == [*before.names(before.everything)]
        == list(inventory_of(nodes).names(before.everything))
    )
    assert [1, 0] == [grown.labels.equal("kubernetes.io/hostname", name).bit_count() for name in ("n1", "n2")]
    assert 200 == sum(1 for _ in grown.labels.values("kubernetes.io/hostname"))


def test_nodes_share_equal_facts() -> None:
    """Otherwise 10,000 nodes would need the memory of 10,000 strings for every label."""
    inventory = inventory_of(json.loads(json.dumps([node("one", A100, gpu="8"), node("two", A100, gpu="8")])))
    inventory = inventory.with_node(json.loads(json.dumps(node("three", A100, gpu="8"))))
    first, *others = (row.facts for _, row in inventory._rows.items())

    assert all(mine is theirs for other in others for mine, theirs in zip(first, other, strict=True))


def test_a_nodes_name_and_its_host_name_label_share_one_string() -> None:
    """They are nearly always equal, and take most of the memory that is unique to a node."""
    label = {"kubernetes.io/hostname": "ip-10-0-0-1.internal"}
    inventory = inventory_of(json.loads(json.dumps(node("ip-10-0-0-1.internal", label))))
    (_, row), *_ = inventory._rows.items()

    assert row.name is row.labels["kubernetes.io/hostname"]


def test_a_label_that_no_node_has_any_more_is_removed() -> None:
    """A process that runs for years must not keep every key it has seen."""
    inventory = inventory_of(node("one", {"once": "1"})).with_node(node("one", {"now": "1"}))

    assert "once" not in inventory.labels._keys
    assert inventory.labels.with_key("now") == inventory.everything


def test_positions_of_removed_nodes_are_reused() -> None:
    """The size of a set depends on the size of the cluster, not on its history."""
    inventory = inventory_of([node("first"), node("second")])
    for turn in range(50):
        inventory = inventory.with_node(node(f"spot-{turn}")).without_node(f"spot-{turn}")

    assert inventory.everything.bit_length() == 2
    assert inventory.without_node("first").with_node(node("third")).everything == 0b11


@given(st.lists(st.integers(0, 400), max_size=300), st.integers(-1, 401))
def test_gt_and_lt_are_correct_for_keys_with_many_numbers(numbers: list[int], bound: int) -> None:
    """More numbers than one stride, some on one node and some on many."""
    inventory = inventory_of([node(f"n{at}", {"serial": str(number)}) for at, number in enumerate(numbers)])

    def named(chosen: list[int]) -> list[str]:
        return [f"n{at}" for at, number in enumerate(numbers) if number in chosen]

    above = [number for number in numbers if number > bound]
    below = [number for number in numbers if number < bound]
    assert inventory.names(inventory.labels.above("serial", bound)) == named(above)
    assert inventory.names(inventory.labels.below("serial", bound)) == named(below)


def test_a_query_does_not_iterate_over_nodes() -> None:
    """It works after the rows are removed, so its time is that of the index."""
    inventory = inventory_of([node(f"gpu-{at}", {**A100, "zone": str(at % 3)}, gpu="8") for at in range(30)])
    term = {
        "matchExpressions": [
            {"key": "nvidia.com/cuda.runtime-version.major", "operator": "Gt", "values": ["11"]}
        ]
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spec = {"nodeSelector": {"zone": "1"}, "affinity": {"nodeAffinity": required}}
    inventory.classes(inventory.everything)  # read once
    inventory._rows = ShardedDict()
    nodes = candidates(inventory, spec) & inventory.nodes_offering("gpu")

    assert nodes.bit_count() == 10
    assert [node_class.members for node_class in inventory.classes(nodes)] == [nodes]


def test_nodes_are_judged_by_the_facts_of_the_inventory() -> None:
    """A GPU that is new today has a row in other facts; classes that were read before have it, too."""
    row = {"product": "X1", "label": "X1", "compute": "11.0", "arch": "x", "segment": "datacenter"}
    gpus = [row | {"source": "none", "status": "verified"}]
    newer = Facts({**built_in_tables(), "gpus": gpus}.__getitem__)
    before = inventory_of([node("new", {"nvidia.com/gpu.product": "NVIDIA-X1"})])
    before.classes(before.everything)
    after = before.with_facts(newer).with_node(node("later", {"nvidia.com/gpu.product": "NVIDIA-X1"}))
    (kind,) = after.classes(after.everything)

    assert ((11, 0), 0b11) == (kind.capabilities.gpu_capability, kind.members)
    assert [None] == [kind.capabilities.gpu_capability for kind in before.classes(before.everything)]


GKE_GPU, DRIVER_OF_ACK = "cloud.google.com/gke-accelerator", "ack.aliyun.com/nvidia-driver-version"
MIG_OF_GKE = "cloud.google.com/gke-gpu-partition-size"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({GKE_GPU: "nvidia-tesla-v100"}, ("Tesla-V100-SXM2-16GB", (7, 0), None, False)),
        ({"node.kubernetes.io/instance-type": "p3.2xlarge"}, ("Tesla-V100-SXM2-16GB", (7, 0), None, False)),
        ({"karpenter.k8s.aws/instance-gpu-name": "v100"}, (None, (7, 0), None, False)),  # 16 or 32 GB
        ({"nvidia.com/gpu.product": "Tesla-T4", GKE_GPU: "nvidia-l4"}, ("Tesla-T4", (7, 5), None, False)),
        ({DRIVER_OF_ACK: "550.90.07"}, (None, None, "550.90.07", False)),
        ({GKE_GPU: "nvidia-tesla-a100", MIG_OF_GKE: "1g.5gb"}, ("NVIDIA-A100-SXM4-40GB", (8, 0), None, True)),
        ({"node.kubernetes.io/instance-type": "m5.large"}, (None, None, None, False)),
    ],
)  # fmt: skip
def test_labels_of_clouds_report_the_gpu_of_a_node_that_no_other_label_reports(
    labels: dict[str, str], expected: tuple[Any, ...]
) -> None:
    """As they do for a node that an autoscaler may add: GKE's nodes have no other labels of GPUs."""
    cluster = inventory_of([node("cpu"), node("gpu", labels)])
    (gpu,) = (kind.capabilities for kind in cluster.classes(cluster.named("gpu")))

    assert expected == (gpu.product, gpu.gpu_capability, gpu.driver, gpu.mig_devices)


def test_nodes_with_different_labels_of_clouds_are_of_different_classes() -> None:
    """A node that gets another label moves to another class."""
    gpus = {"a": "nvidia-l4", "b": "nvidia-tesla-v100", "c": "nvidia-l4"}
    cluster = inventory_of([node(name, {GKE_GPU: gpu}) for name, gpu in gpus.items()])
    members = [kind.members for kind in cluster.classes(cluster.everything)]
    changed = cluster.with_node(node("c", {GKE_GPU: "nvidia-tesla-v100"}))

    assert [0b101, 0b010] == members
    assert [0b001, 0b110] == [kind.members for kind in changed.classes(changed.everything)]
