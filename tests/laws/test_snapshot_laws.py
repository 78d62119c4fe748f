"""Laws of snapshots: the same decisions as with the original, and nothing that identifies nodes."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from rules.decision.pipeline import Snapshot, decide
from rules.nodes.inventory_document import inventory_of
from rules.nodes.pools import POOL_KINDS, PoolKind
from rules.nodes.snapshot import CopiedObjects, snapshot
from tests.laws.test_inventory_laws import (
    TEAM,
    ZONE,
    facts,
    karpenter_labels,
    node_lists,
    pods,
    policy_of,
    rules,
)
from tests.support.builders import request
from tests.support.laws import EXAMPLES
from tests.support.node_builders import GPU, Node
from tests.support.reference_verdict import INSTANCE_TYPE, KARPENTER_LABEL

HOSTNAME: Final = "kubernetes.io/hostname"
MACHINE: Final = "example.com/machine"
UUID: Final = "6f1c9a52-0d5e-4f57-9b7c-3a5e8d2f1b40"
CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
MAX_SIZE: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
# Names as long as those of a snapshot, as warnings are cut at a number of characters.
# Names as long as those of a snapshot, as warnings are cut at a number of characters.
NAME: Final = re.compile(r"\bhost-(\d)")


def identified(nodes: list[Node]) -> list[Node]:
    """Return nodes as a cluster has them: with a hostname, and facts that no decision reads."""
    named_nodes = []
    for at, node_object in enumerate(nodes):
        name = f"host-{at}"
        labels = node_object["metadata"]["labels"] | {HOSTNAME: name, MACHINE: f"m-{UUID}"}
        metadata = {"name": name, "uid": UUID, "labels": labels, "annotations": {"owner": name}}
        status = node_object["status"] | {"addresses": [{"type": "Hostname", "address": name}]}
        spec = node_object["spec"] | {"providerID": f"aws:///eu/{name}"}
        named_nodes.append(node_object | {"metadata": metadata, "spec": spec, "status": status})
    return named_nodes


def naming(document: Any, names: dict[str, str]) -> Any:
    """Return a document in which nodes have other names."""
    return json.loads(NAME.sub(lambda match: names.get(match[0], match[0]), json.dumps(document)))


by_hostname = st.sampled_from([{}, {}, {HOSTNAME: "host-0"}, {HOSTNAME: "host-1"}])
clusters = node_lists(karpenter_labels).map(identified)


def selecting(document: Any, labels: dict[str, str]) -> Any:
    """Return a pod that selects labels, too, and is bound to nodes by the names of `identified`."""
    spec = dict(document["spec"])
    if labels:
        spec["nodeSelector"] = {**spec.get("nodeSelector", {}), **labels}
    if "nodeName" in spec:
        spec["nodeName"] = spec["nodeName"].replace("n", "host-")
    return document | {"spec": spec}


@settings(max_examples=7 * EXAMPLES)
@given(clusters, st.builds(selecting, pods, by_hostname), rules)
def test_a_snapshot_decides_as_the_original(nodes: list[Node], document: Any, rule: int) -> None:
    """Result, patch, messages and warnings, if the pod names nodes as the snapshot does."""
    policy, copied = policy_of(rule)[0], snapshot(nodes)
    names = dict(copied.names)
    original = decide(Snapshot(policy, inventory_of(nodes)), request(document))
    decided = decide(Snapshot(policy, inventory_of(copied.items)), request(naming(document, names)))

    assert NAME.sub(lambda match: names.get(match[0], match[0]), repr(original)) == repr(decided)


@settings(max_examples=7 * EXAMPLES)
@given(clusters)
def test_a_snapshot_has_no_name_of_a_node_and_no_uuid(nodes: list[Node]) -> None:
    """Neither in names nor in labels; equal values become equal ones."""
    copied = snapshot(nodes)
    text = json.dumps(copied.items)
    machines = {item["metadata"]["labels"][MACHINE] for item in copied.items}

    assert ([], -1) == (NAME.findall(text), text.find(UUID))
    assert ({"value-1"} if nodes else set()) == machines
    assert copied.items == snapshot(nodes).items


@settings(max_examples=7 * EXAMPLES)
@given(clusters)
def test_a_snapshot_of_a_snapshot_is_the_same(nodes: list[Node]) -> None:
    """So that a file does not change when it is anonymised again."""
    once = snapshot(nodes).items

    assert once == snapshot(once).items


# Objects that declare nodes

junk = st.sampled_from([None, 5, "text", [], {}, [5], {"a": 5}])
texts = st.sampled_from(["a", "b", "not valid!", 5, ""])
some_labels = st.one_of(
    st.dictionaries(st.sampled_from([ZONE, TEAM, INSTANCE_TYPE, "bad key"]), texts, max_size=3), facts, junk
)
some_taints = st.one_of(st.just([{"key": GPU, "value": "present", "effect": "NoSchedule"}]), junk)
requirement = st.fixed_dictionaries(
    {"key": st.sampled_from([ZONE, INSTANCE_TYPE, KARPENTER_LABEL, 5]), "operator": texts | st.just("In")},
    optional={"values": st.one_of(st.lists(texts, max_size=3), junk)},
)
metadata = st.fixed_dictionaries(
    {"name": st.sampled_from(["pool-a", "pool-b", 5])},
    optional={
        "uid": st.just(UUID),
        "deletionTimestamp": st.sampled_from(["2026-01-01T00:00:00Z", 5]),
        "labels": some_labels,
        "ownerReferences": st.sampled_from([[{"kind": "MachineDeployment", "name": "x"}], [5], 5]),
        "annotations": st.one_of(
            junk,
            st.fixed_dictionaries(
                {MAX_SIZE: st.sampled_from(["0", "3", "x"])},
                optional={
                    f"{CAPACITY}labels": st.sampled_from(["zone=a,team=b", "zone", 5]),
                    f"{CAPACITY}taints": st.sampled_from([f"{GPU}=present:NoSchedule", "x"]),
                    f"{CAPACITY}gpu-type": st.sampled_from([GPU, "*"]),
                    f"{CAPACITY}gpu-count": st.sampled_from(["8", "x"]),
                    f"{CAPACITY}dra-driver": st.just("gpu.nvidia.com"),
                    "owner": st.just("team"),
                },
            ),
        ),
    },
)
template = st.one_of(
    junk,
    st.fixed_dictionaries(
        {},
        optional={
            "metadata": st.one_of(junk, st.fixed_dictionaries({"labels": some_labels})),
            "spec": st.one_of(
                junk,
                st.fixed_dictionaries(
                    {}, optional={"taints": some_taints, "requirements": st.lists(requirement | junk)}
                ),
            ),
        },
    ),
)
pool_specs = st.one_of(
    junk,
    st.fixed_dictionaries(
        {},
        optional={
            "template": template,
            "limits": st.sampled_from([{GPU: 0}, {GPU: "8"}, {"cpu": "x"}, 5]),
            "nodeLabels": some_labels,
            "nodeTaints": some_taints,
            "tolerations": st.sampled_from([[{"operator": "Exists"}], [5], 5]),
            "weight": st.just(5),
        },
    ),
)


@settings(max_examples=7 * EXAMPLES)
@given(
    kind=st.sampled_from(POOL_KINDS),
    metadata=metadata,
    spec=pool_specs,
    status=st.sampled_from([None, {"readyReplicas": 3}, {"replicas": 3}]),
)
def test_a_snapshot_declares_the_nodes_of_the_original(
    kind: PoolKind, metadata: Any, spec: Any, status: Any
) -> None:
    """With the same problems, whatever the object contains."""
    version = f"{kind.group}/{kind.versions[0]}"
    document = {
        "apiVersion": version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }
    copied: CopiedObjects = snapshot([document])

    assert inventory_of([document]).node_pools == inventory_of(copied.items).node_pools
    assert -1 == json.dumps(copied.items).find(UUID)
