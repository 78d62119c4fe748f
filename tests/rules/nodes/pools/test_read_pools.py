"""Nodes that autoscalers may add, read from the objects that declare them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules.kube.names import is_label_key, is_label_value
from rules.kube.tolerations import Taint
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.pools import MAX_PROBLEMS, POOL_KINDS, declared_pools, read_pools
from rules.nodes.pools.document import ANY_LABEL, NodePool
from rules.nodes.pools.karpenter import MAX_KINDS
from tests.support.pages import fences, text_of

GPU_NAME = "karpenter.k8s.aws/instance-gpu-name"
CATEGORY = "karpenter.k8s.aws/instance-category"
TYPE = "node.kubernetes.io/instance-type"
GFD = "nvidia.com/cuda.runtime-version"

NODE_POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  limits: {nvidia.com/gpu: 64}
  template:
    metadata:
      labels: {team: ml}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
      startupTaints: [{key: nvidia.com/driver-not-ready, effect: NoExecute}]
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: karpenter.k8s.aws/instance-gpu-name, operator: In, values: [t4, a100, h100], minValues: 2}
        - {key: topology.kubernetes.io/zone, operator: In, values: [us-east-1a, us-east-1b]}
        - {key: karpenter.k8s.aws/instance-gpu-count, operator: Gt, values: ["0"]}
status:
  resources: {nvidia.com/gpu: "8"}
  conditions: [{type: Ready, status: "True"}]
"""
RESOURCE_FLAVOR = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: l4-spot}
spec:
  nodeLabels:
    cloud.google.com/gke-accelerator: nvidia-l4
    cloud.google.com/gke-provisioning: spot
  nodeTaints:
    - {key: spot, value: "true", effect: NoSchedule}
    - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
"""
MACHINE_DEPLOYMENT = """
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineDeployment
metadata:
  name: gpu-a100
  namespace: clusters
  annotations:
    cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size: "0"
    cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size: "4"
    capacity.cluster-autoscaler.kubernetes.io/cpu: "32"
    capacity.cluster-autoscaler.kubernetes.io/memory: 256G
    capacity.cluster-autoscaler.kubernetes.io/gpu-type: nvidia.com/gpu
    capacity.cluster-autoscaler.kubernetes.io/gpu-count: "2"
    capacity.cluster-autoscaler.kubernetes.io/labels: "gpu=a100,nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB"
    capacity.cluster-autoscaler.kubernetes.io/taints: "nvidia.com/gpu=present:NoSchedule,a:PreferNoSchedule"
spec:
  replicas: 4
  template:
    metadata:
      labels: {node.cluster.x-k8s.io/pool: a100, cluster.x-k8s.io/cluster-name: one}
    spec:
      taints: [{key: nvidia.com/gpu, value: other, effect: NoSchedule, propagation: Always}]
status: {readyReplicas: 3}
"""
REAL = [NODE_POOL, RESOURCE_FLAVOR, MACHINE_DEPLOYMENT]


def read(text: str, changes: dict[str, Any] | None = None) -> list[NodePool]:
    """Return the pools of a document without problems."""
    pools, problems = read_changed(text, changes)

    assert [] == problems
    return pools


def read_changed(text: str, changes: dict[str, Any] | None = None) -> tuple[list[NodePool], list[str]]:
    """Return the pools and problems of a document with members replaced, by their paths; None removes one."""
    document = yaml.safe_load(text)
    for path, value in (changes or {}).items():
        *parents, last = path.split("|")
        member = document
        for name in parents:
            member = member.setdefault(name, {})
        if value is None:
            member.pop(last, None)
        else:
            member[last] = value
    pools, problems = read_pools(document)
    return pools, [problem.en for problem in problems]


def requiring(
    *requirements: tuple[str, str, list[str]], labels: dict[str, str] | None = None
) -> list[NodePool]:
    """Return the pools of a NodePool with these requirements: key, operator, values."""
    expressions = [
        {"key": key, "operator": operator, "values": values} for key, operator, values in requirements
    ]
    return read(
        NODE_POOL,
        {"spec|template|spec|requirements": expressions, "spec|template|metadata|labels": labels or {}},
    )


# Karpenter


def test_a_node_pool_gives_one_value_for_each_gpu_that_it_lists() -> None:
    """With the labels that Karpenter knows, and the permanent taints."""
    common = (("karpenter.sh/nodepool", "gpu"), ("team", "ml"), ("karpenter.sh/capacity-type", "on-demand"))
    taints = (Taint("nvidia.com/gpu", "present", "NoSchedule"),)
    facts = {
        "t4": NodeCapabilities(product="Tesla-T4"),
        "a100": NodeCapabilities(compute_capability=(8, 0)),
        "h100": NodeCapabilities(product="NVIDIA-H100-80GB-HBM3"),
    }
    expected = [
        NodePool("gpu", "NodePool", (*common, (GPU_NAME, name)), taints, None, known)
        for name, known in facts.items()
    ]

    assert expected == [pool._replace(open=()) for pool in read(NODE_POOL)]


def test_labels_that_the_provider_sets_or_a_requirement_leaves_open_may_have_any_value() -> None:
    """Karpenter gives a node the value that the pod asks for; other labels it does not know."""
    (pool,) = requiring(("team", "Exists", []), ("size", "In", ["s", "m"]), ("tier", "In", ["one"]))

    assert {"team", "size", "karpenter.", "eks.amazonaws.com/"} <= {*pool.open}
    assert not any("nvidia.com/gpu.product".startswith(prefix) or prefix == "tier" for prefix in pool.open)


@pytest.mark.parametrize("text", [RESOURCE_FLAVOR, MACHINE_DEPLOYMENT])
def test_nodes_of_other_kinds_may_have_any_label_that_is_not_declared(text: str) -> None:
    """Their machines are declared elsewhere."""
    assert [ANY_LABEL] == [pool.open for pool in read(text)]


def test_a_single_value_is_a_label_of_every_node() -> None:
    """By a requirement or by the template; a list is not, as Karpenter picks from it."""
    pools = requiring(
        (GPU_NAME, "In", ["h100"]), ("a", "In", ["1", "2"]), ("b", "Exists", []), labels={"c": "x"}
    )

    assert [(("karpenter.sh/nodepool", "gpu"), ("c", "x"), (GPU_NAME, "h100"))] == [p.labels for p in pools]


def test_requirements_with_the_same_key_are_intersected() -> None:
    """Also with NotIn, and with a label of the template."""
    pools = requiring(
        (GPU_NAME, "In", ["t4", "l4", "h100"]),
        (GPU_NAME, "NotIn", ["t4"]),
        (GPU_NAME, "In", ["h100", "t4"]),
        ("c", "In", ["x", "y"]),
        labels={"c": "x"},
    )

    assert [{"karpenter.sh/nodepool": "gpu", "c": "x", GPU_NAME: "h100"}] == [dict(p.labels) for p in pools]


def test_labels_with_which_karpenter_ignores_a_pod_are_left_out() -> None:
    """The host name, and its own labels except the NodePool and the capacity type."""
    pools = requiring(
        ("kubernetes.io/hostname", "In", ["one"]),
        ("karpenter.sh/initialized", "In", ["true"]),
        ("karpenter.sh/capacity-type", "In", ["spot"]),
    )

    assert [("karpenter.sh/nodepool", "gpu"), ("karpenter.sh/capacity-type", "spot")] == [*pools[0].labels]


def test_facts_that_the_template_states_are_known() -> None:
    """As GPU Feature Discovery labels them; they take precedence over the name of the GPU."""
    labels = {
        f"{GFD}.major": "12",
        f"{GFD}.minor": "8",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "kubernetes.io/arch": "amd64",
    }
    expected = NodeCapabilities(cuda=(12, 8), product="NVIDIA-A100-SXM4-80GB", architecture="amd64")

    assert [expected] == [p.capabilities for p in requiring((GPU_NAME, "In", ["a100"]), labels=labels)]


def test_a_list_of_cuda_versions_is_no_fact() -> None:
    """Karpenter writes one of them, not the one that the node has."""
    pools = requiring((f"{GFD}.major", "In", ["12", "13"]), (f"{GFD}.minor", "Exists", []))

    assert [NodeCapabilities()] == [pool.capabilities for pool in pools]


def test_of_several_lists_the_shortest_gives_the_kinds_of_nodes() -> None:
    """Fewer terms of affinity."""
    pools = requiring(
        (TYPE, "In", ["p5.48xlarge", "p5.4xlarge", "p4d.24xlarge"]), (GPU_NAME, "In", ["a100", "h100"])
    )

    assert [(GPU_NAME, "a100"), (GPU_NAME, "h100")] == [pool.labels[-1] for pool in pools]


def test_one_label_that_tells_the_gpu_makes_one_kind_of_node() -> None:
    """One that tells nothing does not."""
    types = (TYPE, "In", ["g5.xlarge", "g5.2xlarge"])
    known = {"karpenter.k8s.aws/instance-family": "g5"}

    assert [TYPE not in dict(pool.labels) for pool in requiring(types, labels=known)] == [True]
    assert 2 == len(requiring(types, labels={"k8s.amazonaws.com/accelerator": "nvidia"}))


def test_instance_types_give_kinds_of_nodes() -> None:
    """One without GPUs offers none; an unknown one may offer any."""
    pools = requiring((TYPE, "In", ["m5.large", "g4dn.xlarge", "gpu-xl"]))

    assert [((), None), (None, "Tesla-T4"), (None, None)] == [
        (pool.resources, pool.capabilities.product) for pool in pools
    ]


@pytest.mark.parametrize(
    "requirement",
    [
        (CATEGORY, "In", ["c", "m", "r"]),
        ("karpenter.k8s.aws/instance-gpu-count", "DoesNotExist", []),
        ("eks.amazonaws.com/instance-gpu-name", "DoesNotExist", []),
        ("karpenter.azure.com/sku-family", "In", ["D", "E"]),
        ("karpenter.k8s.aws/instance-gpu-manufacturer", "In", ["amd"]),
        (TYPE, "In", ["m5.large", "c6i.4xlarge"]),
    ],
)
def test_a_node_pool_that_excludes_gpus_offers_none(requirement: tuple[str, str, list[str]]) -> None:
    """For certain, by its requirements."""
    assert [()] == [pool.resources for pool in requiring(requirement)]


@pytest.mark.parametrize(
    "requirements",
    [
        [],
        [(CATEGORY, "In", ["c", "g"])],
        [(CATEGORY, "NotIn", ["g", "p"])],
        [("karpenter.k8s.aws/instance-generation", "Gt", ["2"])],
        [("karpenter.k8s.aws/instance-gpu-name", "Exists", [])],
        [("cloud.google.com/gke-accelerator", "DoesNotExist", [])],
        [(TYPE, "In", ["t4.xlarge"])],
    ],
)
def test_a_node_pool_that_may_add_gpus_may_offer_any(requirements: list[tuple[str, str, list[str]]]) -> None:
    """Without knowledge, nothing is excluded."""
    assert [(None, NodeCapabilities())] == [(p.resources, p.capabilities) for p in requiring(*requirements)]


@pytest.mark.parametrize(
    ("changes", "can_scale"),
    [
        ({}, True),
        ({"metadata|deletionTimestamp": "2026-11-22T20:00:00Z"}, False),
        ({"spec|limits": {"nvidia.com/gpu": 0}}, False),
        ({"spec|limits": {"nvidia.com/gpu": "0"}}, False),
        ({"spec|limits": {"cpu": "0m"}}, False),
        ({"spec|limits": {"nodes": "0"}}, False),
        ({"spec|limits": {"amd.com/gpu": 0, "example.com/npu": 0}}, True),
        ({"spec|limits": {"cpu": 1000}}, True),
        # Nodes that use it up may not have joined yet.
        ({"spec|limits": {"nvidia.com/gpu": 8}, "status|resources": {"nvidia.com/gpu": 8}}, True),
        # It may become ready.
        ({"status|conditions": [{"type": "Ready", "status": "False"}]}, True),
    ],
)
def test_a_node_pool_cannot_scale_if_it_is_deleted_or_limited_to_nothing(
    changes: dict[str, Any], can_scale: bool
) -> None:
    """Otherwise a node may come."""
    assert {can_scale} == {pool.can_scale for pool in read(NODE_POOL, changes)}


def test_too_many_kinds_of_nodes_are_one_of_which_only_the_shared_facts_are_known() -> None:
    """So that affinity stays small."""
    types = [f"g5.{size}xlarge" for size in range(MAX_KINDS + 1)]
    labels = {f"{GFD}.major": "12", f"{GFD}.minor": "8"}

    assert [(None, NodeCapabilities(cuda=(12, 8)))] == [
        (pool.resources, pool.capabilities) for pool in requiring((TYPE, "In", types), labels=labels)
    ]
    assert MAX_KINDS == len(requiring((TYPE, "In", types[1:]), labels=labels))


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ("gpu", "expected an object, found 'gpu'"),
        ({"key": "a b", "operator": "In", "values": ["x"]}, "expected a requirement"),
        ({"key": GPU_NAME, "operator": "In", "values": [8]}, "expected a requirement"),
        ({"key": GPU_NAME, "operator": "In", "values": []}, "expected a requirement"),
        ({"key": GPU_NAME, "operator": "In", "values": "t4"}, "expected a requirement"),
        ({"key": GPU_NAME, "operator": "Is", "values": ["t4"]}, "expected a requirement"),
        ({"key": GPU_NAME, "operator": "In", "values": ["t4"] * 2001}, "expected a requirement"),
    ],
)
def test_a_requirement_that_cannot_be_read_is_told_and_excludes_nothing(
    requirement: Any, problem: str
) -> None:
    """What it would have told is unknown."""
    pools, problems = read_changed(NODE_POOL, {"spec|template|spec|requirements": [requirement]})

    assert [(None, NodeCapabilities())] == [(pool.resources, pool.capabilities) for pool in pools]
    assert 1 == len(problems)
    assert problems[0].startswith("NodePool gpu: spec.template.spec.requirements[0]: ")
    assert problem in problems[0]


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            "spec|template|spec|requirements",
            [{"key": "a", "operator": "Exists"}] * 101,
            "at most 100 entries",
        ),
        ("spec|template|spec|taints", [{"key": "a", "effect": "NoSchedule"}] * 101, "at most 100 entries"),
        ("spec|template|metadata|labels", {f"k{at}": "v" for at in range(101)}, "at most 100 labels"),
        ("spec|limits|nvidia.com/gpu", "none", "spec.limits.nvidia.com/gpu: expected a quantity"),
        ("spec|limits|cpu", {"a": 1}, "spec.limits.cpu: expected a quantity"),
        ("spec|template|spec|taints", [{"key": "a", "effect": "Never"}], "taints[0]: expected a taint"),
        ("spec|template|spec|taints", "a", "spec.template.spec.taints: expected a list, found 'a'"),
    ],
)
def test_what_is_too_much_or_cannot_be_read_is_told(path: str, value: Any, problem: str) -> None:
    """A node may still come."""
    pools, problems = read_changed(NODE_POOL, {path: value})

    assert {True} == {pool.can_scale for pool in pools}
    assert 1 == len(problems)
    assert problem in problems[0]


def test_requirements_that_admit_no_value_are_told() -> None:
    """Nothing follows from them."""
    requirements = [
        {"key": GPU_NAME, "operator": "In", "values": ["t4"]},
        {"key": GPU_NAME, "operator": "NotIn", "values": ["t4"]},
    ]
    pools, problems = read_changed(NODE_POOL, {"spec|template|spec|requirements": requirements})

    assert [NodeCapabilities()] == [pool.capabilities for pool in pools]
    assert [
        f"NodePool gpu: {GPU_NAME}: expected a value that all requirements admit, found []; ignored"
    ] == problems


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": "x"},
        {"spec|template": []},
        {"spec|template|spec": 1},
        {"spec|template|spec|requirements": {"a": 1}},
        {"spec|template|metadata|labels": {"x": 1}, "spec|template|spec|requirements": "x"},
    ],
)
def test_a_node_pool_that_cannot_be_understood_may_bring_any_node(changes: dict[str, Any]) -> None:
    """Doubt never leads to a denial."""
    pools, problems = read_changed(NODE_POOL, changes)

    facts = [(pool.resources, pool.capabilities, pool.can_scale, pool.open) for pool in pools]

    assert [(None, NodeCapabilities(), True, ANY_LABEL)] == facts
    assert problems


def test_an_impossible_value_of_a_label_is_told_and_unknown() -> None:
    """Such as a random number."""
    labels = {f"{GFD}.major": "5739668317764624178", f"{GFD}.minor": "8"}
    pools, problems = read_changed(NODE_POOL, {"spec|template|metadata|labels": labels})

    assert {None} == {pool.capabilities.cuda for pool in pools}
    assert [
        f"NodePool gpu: {GFD}.major: expected a possible value, found '5739668317764624178'; ignored"
    ] == problems


# Kueue


def test_a_resource_flavor_with_node_labels_is_a_kind_of_node_that_may_come() -> None:
    """Taints that Kueue makes its pods tolerate keep none away."""
    expected = NodePool(
        "l4-spot",
        "ResourceFlavor",
        (("cloud.google.com/gke-accelerator", "nvidia-l4"), ("cloud.google.com/gke-provisioning", "spot")),
        (Taint("spot", "true", "NoSchedule"),),
        None,
        NodeCapabilities(product="NVIDIA-L4"),
        open=ANY_LABEL,
    )

    assert [expected] == read(RESOURCE_FLAVOR)


@pytest.mark.parametrize("spec", [{}, {"nodeLabels": {}}, {"nodeLabels": None}])
def test_a_resource_flavor_without_node_labels_is_about_no_nodes(spec: dict[str, Any]) -> None:
    """Such as the default flavor."""
    assert [] == read(RESOURCE_FLAVOR, {"spec": spec})


def test_a_resource_flavor_that_cannot_be_read_is_unknown() -> None:
    """It may be about any node."""
    pools, problems = read_changed(RESOURCE_FLAVOR, {"spec": {"nodeLabels": ["a"]}})

    assert [NodePool("l4-spot", "ResourceFlavor", open=ANY_LABEL)] == pools
    assert 1 == len(problems)


# Cluster API


def test_a_machine_deployment_states_its_nodes_in_annotations() -> None:
    """And labels of machines that nodes get; an annotation takes precedence over a taint with its key."""
    expected = NodePool(
        "gpu-a100",
        "MachineDeployment",
        (
            ("node.cluster.x-k8s.io/pool", "a100"),
            ("gpu", "a100"),
            ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"),
        ),
        (Taint("nvidia.com/gpu", "present", "NoSchedule"), Taint("a", "", "PreferNoSchedule")),
        (("nvidia.com/gpu", 2),),
        NodeCapabilities(product="NVIDIA-A100-SXM4-80GB"),
        open=ANY_LABEL,
    )

    assert [expected] == read(MACHINE_DEPLOYMENT)


MAX_SIZE = "metadata|annotations|cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
CAPACITY = "metadata|annotations|capacity.cluster-autoscaler.kubernetes.io/"


@pytest.mark.parametrize(
    "changes",
    [
        {MAX_SIZE: None},
        {"metadata|annotations": None},
        {
            "kind": "MachineSet",
            "metadata|ownerReferences": [{"kind": "MachineDeployment", "name": "gpu-a100"}],
        },
    ],
)
def test_a_group_that_is_not_scaled_itself_adds_no_nodes(changes: dict[str, Any]) -> None:
    """It has no maximum size, or its MachineDeployment is scaled."""
    assert [] == read(MACHINE_DEPLOYMENT, changes)


@pytest.mark.parametrize("kind", ["MachinePool", "MachineSet"])
def test_machine_pools_and_machine_sets_are_read_alike(kind: str) -> None:
    """Except the kind."""
    assert [read(MACHINE_DEPLOYMENT)[0]._replace(kind=kind)] == read(MACHINE_DEPLOYMENT, {"kind": kind})


@pytest.mark.parametrize(
    ("changes", "can_scale"),
    [
        ({}, True),
        ({"status|readyReplicas": 4}, False),
        ({"status|readyReplicas": 5}, False),
        ({MAX_SIZE: "0"}, False),
        ({"metadata|deletionTimestamp": "2026-11-22T20:00:00Z"}, False),
        ({"status": None}, True),
        ({"status|readyReplicas": True, MAX_SIZE: "1"}, True),
    ],
)
def test_a_group_cannot_scale_if_all_its_nodes_are_there(changes: dict[str, Any], can_scale: bool) -> None:
    """Those that were asked for may still join."""
    assert [can_scale] == [pool.can_scale for pool in read(MACHINE_DEPLOYMENT, changes)]


@pytest.mark.parametrize(
    "changes",
    [
        {f"{CAPACITY}gpu-type": None},
        {f"{CAPACITY}gpu-count": None},
        {f"{CAPACITY}gpu-count": "0"},
        {f"{CAPACITY}dra-driver": "gpu.nvidia.com"},
    ],
)
def test_resources_that_are_not_stated_are_unknown(changes: dict[str, Any]) -> None:
    """The infrastructure may state them, or a DRA driver offers the GPUs."""
    assert [None] == [pool.resources for pool in read(MACHINE_DEPLOYMENT, changes)]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("gpu-type", "nvidia.com/*", "expected a resource such as nvidia.com/gpu, found 'nvidia.com/*'"),
        ("gpu-type", 8, "expected a text, found 8"),
        ("gpu-count", "two", "expected a number, found 'two'"),
        ("labels", "gpu=a100,b", "expected key=value, found 'b'"),
        ("labels", "a b=c", "expected a label, found {'a b': 'c'}"),
        ("labels", ",".join(f"k{at}=v" for at in range(101)), "expected at most 100 entries, found 'k100=v'"),
        ("taints", "nvidia.com/gpu=present", "expected key=value:effect, found 'nvidia.com/gpu=present'"),
        ("taints", "a:Never", "expected key=value:effect, found 'a:Never'"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_told(name: str, value: Any, shown: str) -> None:
    """Its fact is unknown."""
    pools, problems = read_changed(MACHINE_DEPLOYMENT, {CAPACITY + name: value})

    assert 1 == len(pools)
    assert 1 == len(problems)
    assert shown in problems[0]


def test_a_maximum_size_that_cannot_be_read_admits_nodes() -> None:
    """Doubt never leads to a denial."""
    pools, problems = read_changed(MACHINE_DEPLOYMENT, {MAX_SIZE: "many"})

    assert [True] == [pool.can_scale for pool in pools]
    assert 1 == len(problems)


@pytest.mark.parametrize("annotations", ["x", ["x"], 8])
def test_a_group_whose_annotations_cannot_be_read_is_unknown(annotations: Any) -> None:
    """It may be scaled."""
    pools, problems = read_changed(MACHINE_DEPLOYMENT, {"metadata|annotations": annotations})

    assert [(None, True)] == [(pool.resources, pool.can_scale) for pool in pools]
    assert problems


# All kinds


def test_the_examples_of_the_documentation_declare_the_gpu_and_its_cuda_version() -> None:
    """Of docs/autoscaling.md."""
    page = "docs/autoscaling.md"
    pools_by_example = [read(fence.text) for fence in fences(text_of(page), page) if fence.language == "yaml"]

    assert [
        [NodeCapabilities(cuda=(13, 0), product="NVIDIA-H100-80GB-HBM3")],
        [NodeCapabilities(cuda=(12, 8), product="NVIDIA-A100-SXM4-80GB")],
    ] == [[pool.capabilities for pool in pools] for pools in pools_by_example]


def test_every_kind_has_a_reader() -> None:
    """And an object of another kind declares nothing."""
    for kind in POOL_KINDS:
        document = {"apiVersion": f"{kind.group}/{kind.versions[0]}", "kind": kind.kind, "metadata": "x"}
        pools, problems = read_pools(document)
        assert [NodePool("?", kind.kind, open=ANY_LABEL)] == pools or kind.kind == "MachineSet"
        assert problems
    assert ([], []) == read_pools({"apiVersion": "v1", "kind": "Pod"})
    assert ([], []) == read_pools({"apiVersion": ["karpenter.sh/v1"], "kind": "NodePool"})
    assert ([], []) == read_pools({"apiVersion": "example.com/v1", "kind": "NodePool"})


@pytest.mark.parametrize("name", [None, "", "A_B", "x" * 254, 8, {}])
def test_a_name_that_cannot_be_read_is_told(name: Any) -> None:
    """No label has it."""
    pools, problems = read_changed(NODE_POOL, {"metadata|name": name})

    assert {"?"} == {pool.name for pool in pools}
    assert {"team"} == {pool.labels[0][0] for pool in pools}
    assert 1 == len(problems)


def test_messages_are_short() -> None:
    """Whatever was found."""
    deep: Any = "x" * 100_000
    for _ in range(5000):
        deep = [deep]
    for value in (deep, int("f" * 5000, 16), {"a": deep}):
        document = yaml.safe_load(NODE_POOL) | {"spec": {"template": {"spec": {"requirements": [value]}}}}
        problems = read_pools(document)[1]
        assert 1 == len(problems)
        assert len(problems[0].en) < 300


def test_the_problems_of_one_object_are_limited() -> None:
    """More do not help its author."""
    assert 16 == len(read_changed(NODE_POOL, {"spec|template|spec|requirements": [*range(100)]})[1])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["In", "NotIn", GPU_NAME, "t4", "NoSchedule", "a=b", "a=b:NoSchedule", "0", "8"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["key", "operator", "values", "effect", "labels", "cpu", CATEGORY, "a b"]), inner
        )
    ),
    max_leaves=12,
)


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every member, at any depth, except those by which the reader is chosen."""
    members = document.items() if isinstance(document, dict) else enumerate(document)
    member_paths = []
    for name, member in members:
        if name not in ("apiVersion", "kind"):
            member_paths.append((*path, name))
        if isinstance(member, dict | list):
            member_paths += places(member, (*path, name))
    return member_paths


@given(st.data())
def test_whatever_stands_in_a_field_is_read(data: st.DataObject) -> None:
    """Never an exception, never a label that Kubernetes rejects, and no pool is lost by it."""
    document = yaml.safe_load(data.draw(st.sampled_from(REAL)))
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from(places(document)))
        member = document
        for name in parents:
            member = member[name]
        member[last] = data.draw(JSON)

    pools, problems = read_pools(document)

    assert len(pools) <= MAX_KINDS
    assert pools or document["kind"] != "NodePool"
    assert len(problems) <= 16
    for pool in pools:
        assert all(is_label_key(key) and is_label_value(value) for key, value in pool.labels)
        assert all(is_label_key(taint.key) for taint in pool.taints)
        assert hash(pool) is not None


def test_the_problems_of_all_objects_are_kept_up_to_a_limit() -> None:
    """For the report to a person; a faulty template may stand in every object."""
    broken = yaml.safe_load(RESOURCE_FLAVOR)
    broken["spec"]["nodeTaints"] = 5
    (problem,) = read_pools(broken)[1]

    assert (problem, problem) == declared_pools({"ResourceFlavor": [broken] * 2}).problems
    assert MAX_PROBLEMS == len(declared_pools({"ResourceFlavor": [broken] * (MAX_PROBLEMS + 1)}).problems)
