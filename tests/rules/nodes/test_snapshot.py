"""Snapshots: what is kept of objects, and what is replaced."""

from __future__ import annotations

from typing import Any

import pytest

from rules.nodes.inventory_document import inventory_of
from rules.nodes.label_families import DriverFamily, LabelNames
from rules.nodes.node_row import InventoryError
from rules.nodes.snapshot import snapshot
from tests.support.builders import pod
from tests.support.dra_builders import claim, exactly, resource_slice, taint_rule
from tests.support.dra_clusters import bare_node, claim_template, device_class, gpus_of
from tests.support.node_builders import GPU, decided, gfd, node

UUID = "6f1c9a52-0d5e-4f57-9b7c-3a5e8d2f1b40"
KARPENTER = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool"}
ZONE = "topology.kubernetes.io/zone"


def _labels(given: dict[str, str], *anonymize: str, name: str = "gpu-a.example.com") -> dict[str, str]:
    (item,) = snapshot([node(name, given)], anonymize).items
    labels: dict[str, str] = item["metadata"]["labels"]
    return labels


def test_only_what_a_decision_reads_of_a_node_is_kept() -> None:
    """Extended resources, lasting taints, that it is cordoned, and labels."""
    document = {
        "metadata": {"name": "a", "uid": UUID, "annotations": {"x": "y"}, "labels": {"pool": "red"}},
        "spec": {
            "providerID": "aws:///i-1",
            "unschedulable": True,
            "taints": [
                {"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"},
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
            ],
        },
        "status": {
            "allocatable": {"cpu": "96", GPU: "7", "vendor.com/none": "0"},
            "capacity": {"cpu": "96", GPU: "8"},
            "images": [{"names": ["x"]}],
            "nodeInfo": {"osImage": "Ubuntu 22.04.5 LTS", "kubeletVersion": "v1.36.3", "bootID": UUID},
        },
    }
    expected = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-1", "labels": {"pool": "red"}},
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": {GPU: "7"},
            "capacity": {GPU: "8"},
            "nodeInfo": {"osImage": "Ubuntu 22.04.5 LTS", "kubeletVersion": "v1.36.3"},
        },
    }

    assert [expected] == snapshot(document).items


def test_settings_of_gpu_operator_are_kept_without_other_variables() -> None:
    """These may name hosts and proxies."""
    read = {"name": "NVIDIA_CONTAINER_RUNTIME_MODE", "value": "cdi"}
    document = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy", "uid": UUID},
        "spec": {
            "cdi": {"enabled": True},
            "driver": {"repository": "registry.corp.example"},
            "toolkit": {"version": "v1.18.0", "env": [{"name": "PROXY", "value": "10.0.0.1"}, read]},
            "devicePlugin": {"version": "v0.18.0", "env": None},
        },
    }
    expected = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": {
            "cdi": {"enabled": True},
            "toolkit": {"version": "v1.18.0", "env": [read]},
            "devicePlugin": {"env": None},
        },
    }

    assert [expected] == snapshot(document).items


def test_the_daemon_set_of_the_toolkit_is_kept_without_its_registry() -> None:
    """The tag of its image is the version."""
    read = {"name": "NVIDIA_CONTAINER_RUNTIME_MODE", "value": "cdi"}
    name = "nvidia-container-toolkit-daemonset"
    container = {"name": "x", "image": "registry.corp.example/toolkit:v1.18.0", "env": [{"name": "P"}, read]}
    kept = {"image": "toolkit:v1.18.0", "env": [read]}
    documents = [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name} | more,
            "spec": {"template": {"spec": {"containers": [spec_container]}}},
        }
        for more, spec_container in (({"uid": UUID}, container), ({}, kept))
    ]

    assert [documents[1]] == snapshot(documents[0]).items


def test_a_node_that_is_not_ready_stays_so() -> None:
    """Whatever the condition says exactly."""
    document = node("a", {})
    document["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": "kubelet stopped"}]
    (item,) = snapshot(document).items

    assert [{"type": "Ready", "status": "False"}] == item["status"]["conditions"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("gpu-a.example.com", "node-1"),
        ("gpu-a", "value-1"),
        ("10.1.2.3", "value-1"),
        ("ip-10-1-2-3", "value-1"),
        ("i-0123456789abcdef0", "value-1"),
        (f"rack.{UUID}", "value-1"),
        ("eu-west-1a", "eu-west-1a"),
        ("gpu-a-pool", "gpu-a-pool"),
        ("4.18.0", "4.18.0"),
        ("", ""),
    ],
)
def test_identifying_values_of_labels_are_replaced(value: str, expected: str) -> None:
    """The node's names, UUIDs, IP addresses and IDs of AWS; others stay, as pods select nodes by them."""
    assert {"example.com/label": expected} == _labels({"example.com/label": value})


def test_the_hostname_is_always_replaced() -> None:
    """By the name of the node if it is that."""
    labels = [_labels({"kubernetes.io/hostname": value}) for value in ("gpu-a.example.com", "other")]

    assert [{"kubernetes.io/hostname": "node-1"}, {"kubernetes.io/hostname": "value-1"}] == labels


def test_labels_are_replaced_by_globs_except_those_that_report_a_fact() -> None:
    """Equal values become equal ones, on nodes and in pools; the numbers of replaced values are counted."""
    nodes = [node(name, {ZONE: zone, **gfd("12.4")}) for name, zone in (("a", "x"), ("b", "y"), ("c", "x"))]
    template = {
        "metadata": {"labels": {ZONE: "y"}},
        "spec": {"requirements": [{"key": ZONE, "operator": "In", "values": ["x", "z"]}]},
    }
    pool = {"kind": "NodePool", "metadata": {"name": "gpus"}, "spec": {"template": template}}
    simulated = snapshot([*nodes, pool], ["*"])
    zones = [item["metadata"]["labels"][ZONE] for item in simulated.items[:3]]
    declared = simulated.items[3]["spec"]["template"]

    assert ["value-1", "value-2", "value-1"] == zones
    assert [gfd("12.4")] * 3 == [
        {key: value for key, value in item["metadata"]["labels"].items() if key != ZONE}
        for item in simulated.items[:3]
    ]
    assert ({ZONE: "value-2"}, ["value-1", "value-3"]) == (
        declared["metadata"]["labels"],
        declared["spec"]["requirements"][0]["values"],
    )
    assert {ZONE: 4} == simulated.replaced


def test_labels_that_a_rule_reads_keep_their_values() -> None:
    """Even if they look like an address."""
    labels = LabelNames(driver=(DriverFamily(("example.com/driver",)),))
    document = node("a", {"example.com/driver": "10.1.2.3"})
    (item,) = snapshot(document, ["*"], [labels]).items

    assert {"example.com/driver": "10.1.2.3"} == item["metadata"]["labels"]


def test_devices_of_nodes_decide_as_before() -> None:
    """Slices follow their nodes; claims, templates and classes keep their names."""
    objects: list[Any] = [
        bare_node("gpu-a"),
        bare_node("gpu-b"),
        gpus_of("gpu-a"),
        gpus_of("gpu-b", "Tesla T4", "12.2"),
        device_class(),
        claim_template("large", "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('1Ti'))"),
        claim_template("new", "device.attributes['gpu.nvidia.com'].productName.matches('.*H100.*')"),
    ]
    for template in ("large", "new"):
        asking = pod(
            {"name": "c", "image": "team/app:cuda12.4", "resources": {"claims": [{"name": "gpu"}]}},
            resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}],
        )
        asking["metadata"]["namespace"] = "team"
        before, after = (decided(cluster, asking) for cluster in (objects, snapshot(objects).items))

        assert repr(before).replace("gpu-a", "node-1").replace("gpu-b", "node-2") == repr(after)


def test_an_allocated_device_is_found_under_its_new_pool() -> None:
    """Node, pool and UUIDs of devices are replaced; of the allocation only its devices are kept."""
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "gpu-a", "device": "gpu-0"}]
    held: dict[str, Any] = claim(exactly(), allocated=results) | {
        "metadata": {"name": "mine", "namespace": "team", "uid": UUID}
    }
    held["status"]["reservedFor"] = [{"name": "train-x"}]
    devices = resource_slice("gpu-a")
    devices["spec"]["devices"][0]["attributes"]["uuid"] = {"string": f"GPU-{UUID}"}
    items = snapshot([bare_node("gpu-a"), devices, held]).items
    dra = inventory_of(items).dra
    read = dra.devices.device("gpu.nvidia.com", "node-1", "gpu-0")

    assert {"allocation": {"devices": {"results": [results[0] | {"pool": "node-1"}]}}} == items[2]["status"]
    assert {"name": "slice-1"} == items[1]["metadata"]
    assert (True, -1, -1) == (
        read is not None and read[1] == "node-1",
        str(items).find(UUID),
        str(items).find("gpu-a"),
    )


def test_a_taint_rule_taints_the_same_devices_under_their_new_pool() -> None:
    """Its name is replaced too."""
    rule = taint_rule({"pool": "gpu-a", "device": "gpu-0"}, key=f"broken-{UUID}")
    objects = [bare_node("gpu-a"), resource_slice("gpu-a"), rule, taint_rule(None)]
    items = snapshot(objects).items
    located = inventory_of(items).dra.devices.device("gpu.nvidia.com", "node-1", "gpu-0")

    assert located is not None
    assert ["value-1:NoSchedule"] == list(map(str, located[0].taints))
    assert ({"name": "taint-rule-1"}, -1) == (items[2]["metadata"], str(items).find("gpu-a"))


def test_another_object_is_an_error() -> None:
    """As for an inventory."""
    with pytest.raises(InventoryError, match="expected one of Node"):
        snapshot({"kind": "Pod"})


@pytest.mark.parametrize(
    ("kind", "metadata", "spec"),
    [
        (KARPENTER, {}, {"limits": {GPU: 0}}),
        (KARPENTER, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}),
        (
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment"},
            {"annotations": {"cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "0"}},
            {},
        ),
    ],
)
def test_a_pool_that_cannot_scale_stays_so(
    kind: dict[str, str], metadata: dict[str, Any], spec: dict[str, Any]
) -> None:
    """By its limit, its deletion, or its maximum size."""
    (pool,) = inventory_of(
        snapshot({**kind, "metadata": {"name": "gpus", **metadata}, "spec": spec}).items
    ).node_pools.pools

    assert ("gpus", False) == (pool.name, pool.can_scale)
