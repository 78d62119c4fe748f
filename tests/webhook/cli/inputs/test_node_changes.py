"""Changes of nodes: drivers, pools, profiles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rules import RuleSet
from rules.cuda.tables import BUILT_IN, certain_branches
from rules.model.rule import NodeProfile
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Text
from rules.text.yaml_document import Location
from tests.support.what_if_clusters import POOLS, nodes
from webhook.cli.inputs.node_changes import (
    ChangeError,
    DriverChange,
    EditableInventory,
    parse_driver,
    with_driver,
    with_nodes,
    with_profiles,
    without_pool,
)

_POOL_KEY = "karpenter.sh/nodepool"


def _capabilities(state: EditableInventory) -> dict[str, NodeCapabilities]:
    inventory = state.inventory()
    classes = inventory.classes(inventory.everything)
    return {
        name: node_class.capabilities
        for node_class in classes
        for name in inventory.names(node_class.members)
    }


def _profile(name: str, product: str) -> NodeProfile:
    return NodeProfile(
        name=name,
        description=Text(),
        enabled=True,
        location=Location(name),
        match=((_POOL_KEY, name),),
        labels=((_POOL_KEY, name),),
        taints=(),
        resources=(("nvidia.com/gpu", 8),),
        capabilities=NodeCapabilities(product=product, driver="550.54.15", cuda=(12, 4)),
    )


@given(
    st.sampled_from(POOLS),
    st.sampled_from([branch for branch in certain_branches(BUILT_IN) if branch >= 470]),
)
def test_a_driver_changes_the_nodes_of_its_pool_only(pool: Any, branch: int) -> None:
    """Their driver and CUDA version are those of the branch; all else, and all other nodes, stay."""
    state = EditableInventory.of(nodes(per_pool=2), RuleSet())
    before = _capabilities(state)
    driver = parse_driver(str(branch))
    after, affected = with_driver(state, DriverChange(pool.name, driver))
    of_pool = {name for name in before if name.startswith(f"{pool.name}-")}
    expected = {
        name: replace(capabilities, driver=str(driver.version), cuda=driver.cuda)
        if name in of_pool
        else capabilities
        for name, capabilities in before.items()
    }
    assert (expected, of_pool) == (_capabilities(after), set(affected.nodes))


def test_changing_a_driver_back_gives_the_same_nodes() -> None:
    """All labels are as they were."""
    state = EditableInventory.of(nodes(per_pool=2), RuleSet())
    there, _ = with_driver(state, DriverChange("t4", parse_driver("595")))
    back, _ = with_driver(there, DriverChange("t4", parse_driver("535.104.05")))
    assert (False, state) == (there == state, back)


def test_a_branch_means_its_newest_release_with_a_toolkit() -> None:
    """Of 580, an older one would be too old for minor version compatibility."""
    assert ("580.95.05", (13, 0)) == (str(parse_driver("580").version), parse_driver("580").cuda)
    assert "580.65.06" == str(parse_driver("580.65.06").version)


def test_a_newer_driver_than_all_known_ones_has_at_least_the_newest_cuda() -> None:
    """Drivers are backward compatible."""
    assert [((13, 5), None), ((13, 5), 620), ((13, 5), 620)] == [
        (parse_driver(text).cuda, parse_driver(text).by) for text in ("620", "621.10", "700")
    ]


@pytest.mark.parametrize("text", ["", "abc", "596", "12.4", "595x"])
def test_an_unknown_driver_is_an_error(text: str) -> None:
    """Also a CUDA version, of which no driver branch exists."""
    with pytest.raises(ChangeError):
        parse_driver(text)


def test_nodes_are_selected_by_gpu_and_by_label_too() -> None:
    """By the name of the model in any case, or by the product as the label has it."""
    state, driver = EditableInventory.of(nodes(per_pool=1), RuleSet()), parse_driver("595")
    selectors = ("V100", "tesla-v100-sxm2-32gb", "kubernetes.io/hostname=v100-0", "v100")
    nodeses = [with_driver(state, DriverChange(selector, driver))[1].nodes for selector in selectors]
    assert [{"v100-0"}] * 4 == nodeses
    assert len(POOLS) == len(with_driver(state, DriverChange("", driver))[1].nodes)


def test_a_name_of_a_pool_and_of_a_gpu_on_other_nodes_is_ambiguous() -> None:
    """The message says how to write each of them."""
    cluster_nodes = nodes(per_pool=1)
    cluster_nodes[0]["metadata"]["labels"][POOLS[0].label] = "t4"  # a pool of V100s with this name
    cluster_nodes[1]["metadata"]["labels"][POOLS[1].label] = "other"
    with pytest.raises(ChangeError) as error:
        with_driver(EditableInventory.of(cluster_nodes, RuleSet()), DriverChange("t4", parse_driver("595")))
    assert "write cloud.google.com/gke-nodepool=t4 for the pool, or nvidia.com/gpu.product=Tesla-T4" in str(
        error.value
    )


def test_an_unknown_name_is_an_error_that_suggests_one() -> None:
    """Of pools and GPUs; of labels, too."""
    state, driver = EditableInventory.of(nodes(per_pool=1), RuleSet()), parse_driver("595")
    for selector, suggested in (("v10", "v100"), ("kubernetes.io/hostname=v100-9", "v100-0")):
        with pytest.raises(ChangeError, match=f"did you mean .*{suggested}"):
            with_driver(state, DriverChange(selector, driver))
    with pytest.raises(ChangeError, match="did you mean 'v100'"):
        without_pool(state, "v1000")


def test_a_node_with_gpus_that_reports_no_driver_reports_it_then() -> None:
    """A node without GPUs stays as it is."""
    labels = {"nvidia.com/gpu.product": "Tesla-T4"}
    cluster_nodes = [
        {"metadata": {"name": "gpu", "labels": labels}},
        {"metadata": {"name": "cpu", "labels": {}}},
    ]
    after, affected = with_driver(
        EditableInventory.of(cluster_nodes, RuleSet()), DriverChange("", parse_driver("580"))
    )
    reported = _capabilities(after)
    assert ("580.95.05", (13, 0)) == (reported["gpu"].driver, reported["gpu"].cuda)
    assert {"gpu"} == affected.nodes
    assert NodeCapabilities() == reported["cpu"]


def test_profiles_and_declared_pools_get_the_driver_and_are_removed() -> None:
    """By name, or by the label of the pool; labels at creation stay."""
    rules = RuleSet(profiles=(_profile("gpu-h100", "NVIDIA-H100-80GB-HBM3"), _profile("gpu-l4", "NVIDIA-L4")))
    state = EditableInventory.of([], rules)
    after, affected = with_driver(state, DriverChange("gpu-h100", parse_driver("580")))
    first, second = after.rules.profiles
    assert ("580.95.05", (13, 0)) == (first.capabilities.driver, first.capabilities.cuda)
    assert (rules.profiles[0].labels, rules.profiles[1]) == (first.labels, second)
    assert {"gpu-h100"} == affected.pools
    gone, _ = without_pool(state, "gpu-l4")
    assert (rules.profiles[0],) == gone.rules.profiles


def test_a_nodepool_of_karpenter_is_removed_with_its_nodes() -> None:
    """The object and what the inventory declares by it."""
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu"},
        "spec": {"template": {"spec": {"requirements": []}}},
    }
    node = {"kind": "Node", "metadata": {"name": "one", "labels": {_POOL_KEY: "gpu"}}}
    state = EditableInventory.of([pool, node], RuleSet())
    assert 1 == len(state.inventory().node_pools.pools)
    after, affected = without_pool(state, "gpu")
    assert not after.objects
    assert not after.inventory().node_pools.pools
    assert {"one"} == affected.nodes


def test_devices_of_dra_report_the_driver_of_their_node() -> None:
    """In the attributes of the devices, which take precedence over labels."""
    attributes = {
        "type": {"string": "gpu"},
        "productName": {"string": "Tesla T4"},
        "driverVersion": {"version": "535.104.5"},
        "cudaDriverVersion": {"version": "12.2.0"},
    }
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": "t4-0",
        "pool": {"name": "t4-0", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": attributes}],
    }
    devices = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": spec,
    }
    state = EditableInventory.of([*nodes(per_pool=1), devices], RuleSet())
    after, _ = with_driver(state, DriverChange("t4", parse_driver("595")))
    assert ("595.71.05", (13, 2)) == (
        _capabilities(after)["t4-0"].driver,
        _capabilities(after)["t4-0"].cuda,
    )


def test_added_nodes_replace_those_of_the_same_name() -> None:
    """Others are added."""
    state = EditableInventory.of(nodes(per_pool=1), RuleSet())
    after, affected = with_nodes(state, nodes({"v100": "580"}, per_pool=2))
    assert 10 == len(after.nodes)
    assert {node["metadata"]["name"] for node in nodes(per_pool=2)} == affected.nodes
    assert "580.95.05" == _capabilities(after)["v100-0"].driver


def test_an_added_profile_replaces_that_of_the_same_name() -> None:
    """It says which nodes may come, and is no node."""
    old, new = _profile("gpu", "NVIDIA-L4"), _profile("gpu", "NVIDIA-L40S")
    after, affected = with_profiles(EditableInventory.of([], RuleSet(profiles=(old,))), (new,))
    assert (new,) == after.rules.profiles
    assert (frozenset[str](), {"gpu"}) == (affected.nodes, set(affected.pools))


def test_no_object_is_changed() -> None:
    """The functions return new objects."""
    cluster_nodes, again = nodes(per_pool=1), nodes(per_pool=1)
    state = EditableInventory.of(cluster_nodes, RuleSet())
    with_driver(state, DriverChange("", parse_driver("595")))
    without_pool(state, "t4")
    assert again == cluster_nodes
