"""A real Karpenter, in a cluster with gpugate: it adds the nodes on which the pods run, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.e2e.cluster import ControlPlane, assets
from tests.e2e.cluster import missing as absent
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import TEAM, Installed, install, running
from tests.e2e.karpenter import (
    INSTANCE_TYPE,
    Machines,
    Record,
    instance_type,
    karpenter,
    missing,
    node_pool,
)
from tests.e2e.manifests import Object
from tests.e2e.serve_process import eventually
from tests.support.node_builders import COMPUTE, CUDA, GPU, H100, T4, gfd

# Seconds of a wait of kubectl.
WAIT: Final = "--timeout=50s"
# Instance types, the cheaper one first.
T4_TYPE, H100_TYPE = "g4dn.2xlarge", "p5.4xlarge"
GPU_POOL: Final = node_pool("gpu")
TYPES: Final = [instance_type(T4_TYPE, 0.8, "t4"), instance_type(H100_TYPE, 6.9, "h100")]
# What GPU Feature Discovery writes on their nodes, by the type.
LABELS: Final = {T4_TYPE: gfd("12.2", T4), H100_TYPE: gfd("12.8", H100)}
OLD_DRIVER, NEW_DRIVER = gfd("12.2", H100), gfd("13.0", H100)
KNOWN: Final = {label for labels in (*LABELS.values(), OLD_DRIVER, NEW_DRIVER) for label in labels.items()}
# The requirements of pods: every driver; only that of the H100; a GPU newer than the T4.
OLD, NEW = {CUDA: "12.1"}, {CUDA: "12.8"}
BF16: Final = {COMPUTE: "8.0"}
MAJOR, MINOR = "nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor"
MODE: Final = "nvidia-device-enable"


def pod(name: str, needs: dict[str, str], limits: dict[str, str] | None = None, **spec: Any) -> Object:
    """Return a Pod with one GPU. needs: annotations. limits: instead of the GPU. spec: other fields."""
    resources = {"limits": {GPU: "1"} if limits is None else limits}
    container = {"name": "main", "image": "example.com/train:1", "resources": resources}
    metadata = {"name": name, "annotations": needs}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
    }


def required(key: str, operator: str, *values: str) -> Object:
    """Return an affinity with one required expression."""
    terms = [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


@dataclass
class Cluster:
    """A cluster with Karpenter and gpugate.

    nodes: how many remain after a test. pools: the NodePools that it has, as they were created.
    """

    installed: Installed
    machines: Machines
    record: Record
    nodes: int = 0
    pools: tuple[Object, ...] = ()

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """Run kubectl and return what it prints."""
        return self.installed.cluster.kubectl(*args, input=input).stdout

    def create(self, document: Object, *flags: str) -> Object:
        """Create a pod through the webhook and return it as the API server stores it."""
        created = self.installed.create(json.dumps(document), *flags)
        assert not isinstance(created, str), created
        return created

    def affinity(self, document: Object) -> Object:
        """Return the affinity that a pod would have; empty if none."""
        affinity: Object = self.create(document, "--dry-run=server")["spec"].get("affinity", {})
        return affinity

    def said(self, document: Object) -> str:
        """Return the warnings or the refusal of a pod."""
        created = ("create", "-n", TEAM, "--dry-run=server", "-f", "-")
        return self.installed.cluster.kubectl(*created, input=json.dumps(document), check=False).stderr

    def running(self, name: str) -> str:
        """Wait until a pod runs, and return the type of its node."""
        self.kubectl("wait", "-n", TEAM, f"pod/{name}", "--for=condition=Ready", WAIT)
        node = json.loads(self.kubectl("get", "node", self.node_of(name), "-o", "json"))
        return str(node["metadata"]["labels"][INSTANCE_TYPE])

    def node_of(self, name: str) -> str:
        """Return the name of a pod's node."""
        return self.kubectl("get", "pod", "-n", TEAM, name, "-o", "jsonpath={.spec.nodeName}")

    def run(self, document: Object) -> str:
        """Create a pod, wait until it runs, and return the type of its node."""
        return self.running(self.create(document)["metadata"]["name"])

    def offer(self, *pools: Object) -> None:
        """Have these NodePools, and no nodes."""
        if self.nodes:
            self.empty()
        if self.pools != pools:
            self.kubectl("delete", "nodepools", "--all", WAIT)
            self.kubectl("create", "-f", "-", input="\n".join(map(json.dumps, pools)))
            self.kubectl("wait", "nodepools", "--all", "--for=condition=Ready", WAIT)
            self.pools = pools

    def withdraw(self, pool: str) -> None:
        """Delete a NodePool."""
        self.pools = ()
        self.kubectl("delete", "nodepool", pool, WAIT)

    def consolidate(self, *, after: str) -> None:
        """Set the time without a change after which a node may be consolidated."""
        patch = json.dumps({"spec": {"disruption": {"consolidateAfter": after}}})
        self.kubectl("patch", "nodepool", "gpu", "--type=merge", "-p", patch)

    def empty(self) -> None:
        """Delete all pods and nodes."""
        self.kubectl("delete", "pods", "-n", TEAM, "--all", "--force")
        self.nodes = 0
        self.shrink(self.kubectl("get", "nodeclaims", "-o", "jsonpath={.items[*].metadata.name}").split())

    def shrink(self, claims: list[str]) -> None:
        """Delete NodeClaims, and wait until gpugate knows that their nodes are gone."""
        if claims:
            self.machines.stop(claims)
            self.kubectl("delete", "nodeclaims", *claims, WAIT)
        eventually(lambda: self.installed.server.sample("gpugate_inventory_nodes") == self.nodes)
        self.record.restart()

    def fill(self) -> None:
        """Have a labelled node of each type, whose GPUs are in use."""
        if self.nodes:
            return
        self.offer(GPU_POOL)
        for name, kind in (("t4", T4_TYPE), ("h100", H100_TYPE)):
            self.create(pod(name, {}, nodeSelector={INSTANCE_TYPE: kind}))
        for name in ("t4", "h100"):
            self.running(name)
        eventually(lambda: self.affinity(pod("asks", NEW)) != {})
        # A pod that only gpugate keeps there.
        self.kubectl("delete", "pod", "-n", TEAM, "h100", "--force")
        assert H100_TYPE == self.run(pod("stays", NEW))
        self.nodes = 2
        self.record.restart()


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster with Karpenter and no nodes."""
    binaries, folder = assets(), tmp_path_factory.mktemp("karpenter")
    if absent(binaries) or not (binaries / "kube-scheduler").is_file() or missing():
        pytest.skip("no Karpenter or Kubernetes: run `make e2e-assets`")
    with (
        reserve_port() as held,
        ControlPlane(binaries, folder / "cluster", scheduler=True) as control_plane,
        karpenter(control_plane, TYPES, folder),
        running(install(control_plane, held.getsockname()[1]), folder / "serve.log") as installed,
    ):
        control_plane.kubectl("delete", "nodes", "--all")
        with Machines(control_plane, LABELS) as machines, Record(control_plane, KNOWN) as record:
            yield Cluster(installed, machines, record)


@pytest.fixture(autouse=True)
def _labels(clusters: Cluster) -> Iterator[None]:
    """Check that no Node and no NodeClaim has a label that gpugate cannot read, at any time."""
    yield
    assert set() == clusters.record.unexpected()


@pytest.fixture
def cluster(clusters: Cluster) -> Iterator[Cluster]:
    """Yield the cluster without nodes, with one NodePool of all instance types."""
    clusters.offer(GPU_POOL)
    yield clusters
    clusters.empty()


@pytest.fixture
def pools(clusters: Cluster) -> Iterator[Cluster]:
    """Yield the cluster without nodes, with a NodePool for each instance type."""
    clusters.offer(node_pool("t4", T4_TYPE), node_pool("h100", H100_TYPE))
    yield clusters
    clusters.empty()


@pytest.fixture
def labelled(clusters: Cluster) -> Iterator[Cluster]:
    """Yield the same with labels of the driver in the NodePools."""
    t4, h100 = ({key: LABELS[kind][key] for key in (MAJOR, MINOR)} for kind in (T4_TYPE, H100_TYPE))
    clusters.offer(node_pool("t4", T4_TYPE, labels=t4), node_pool("h100", H100_TYPE, labels=h100))
    yield clusters
    clusters.empty()


@pytest.fixture
def full(clusters: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with one NodePool and a labelled node of each type, whose GPUs are in use."""
    clusters.fill()
    yield clusters
    clusters.kubectl("delete", "pods", "-n", TEAM, "new", "old", "--force", "--ignore-not-found")
    clusters.machines.early, clusters.machines.labels = False, LABELS
    clusters.shrink(clusters.record.claims)


def test_a_pod_without_gpus_gets_one_node(cluster: Cluster) -> None:
    """Karpenter works."""
    assert T4_TYPE == cluster.run(pod("plain", {}, {"cpu": "1"}))
    assert 1 == len(cluster.record.claims)


def test_a_required_label_that_karpenter_does_not_know_adds_no_node(cluster: Cluster) -> None:
    """gpugate must not require GPU Feature Discovery's labels alone."""
    cluster.create(pod("strict", {}, affinity=required(MAJOR, "Gt", "11")))
    unknown = f'label "{MAJOR}" does not have known values'
    eventually(
        lambda: any(
            (about, reason) == ("strict", "FailedScheduling") and unknown in message
            for about, reason, message in cluster.record.events
        )
    )

    assert [] == cluster.record.claims


def test_of_an_excluded_value_karpenter_makes_a_label_that_gpugate_cannot_read(cluster: Cluster) -> None:
    """gpugate must not exclude values of a label that new nodes do not have; every test looks for this."""
    cluster.run(pod("excludes", {}, affinity=required(MODE, "NotIn", "mps", "vgpu")))
    ((key, value),) = cluster.record.unexpected()

    assert (MODE, True) == (key, value.isdecimal())


def test_a_pod_that_requires_a_newer_driver_gets_one_node_of_the_type_that_fits(full: Cluster) -> None:
    """Although the other type is cheaper, and the nodes of both are full."""
    assert H100_TYPE == full.run(pod("new", NEW))
    assert 1 == len(full.record.claims)


def test_a_pod_that_every_node_fits_gets_one_node_of_the_cheaper_type(full: Cluster) -> None:
    """As without gpugate."""
    assert T4_TYPE == full.run(pod("old", OLD))
    assert 1 == len(full.record.claims)


def test_labels_that_come_before_the_pod_and_do_not_fit_add_no_further_node(full: Cluster) -> None:
    """The new node has an older driver than the others of its type; the pod is bound to it nevertheless."""
    full.machines.early, full.machines.labels = True, {**LABELS, H100_TYPE: OLD_DRIVER}

    assert H100_TYPE == full.run(pod("new", NEW))
    assert 1 == len(full.record.claims)


def test_consolidation_leaves_a_running_pod_where_it_fits(full: Cluster) -> None:
    """Karpenter finds no cheaper node for it."""
    node = full.node_of("stays")
    full.consolidate(after="0s")
    decided = (node, "Unconsolidatable", "Can't replace with a cheaper node")
    eventually(lambda: decided in full.record.events, 30)
    full.consolidate(after="1h")

    assert node == full.node_of("stays")
    assert [] == full.record.claims


def test_from_zero_nodes_a_pod_gets_one_node_of_the_pool_whose_gpu_fits(pools: Cluster) -> None:
    """The instance types of the NodePools tell the GPU."""
    eventually(lambda: pools.affinity(pod("bf16", BF16)) != {})

    assert H100_TYPE == pools.run(pod("bf16", BF16))
    assert 1 == len(pools.record.claims)


def test_from_zero_nodes_a_pod_gets_one_node_of_the_only_pool_that_may_fit(pools: Cluster) -> None:
    """The driver of that pool is unknown, and the GPU of the other, which is cheaper, is too old."""
    needs = pod("both", NEW | BF16)
    eventually(lambda: "NodePool h100" in pools.said(needs) and pools.affinity(needs) != {})

    assert H100_TYPE == pools.run(needs)
    assert 1 == len(pools.record.claims)


def test_from_zero_nodes_a_pod_gets_one_node_of_the_pool_whose_labels_fit(labelled: Cluster) -> None:
    """The NodePools state the labels of GPU Feature Discovery."""
    eventually(lambda: labelled.affinity(pod("new", NEW)) != {})

    assert H100_TYPE == labelled.run(pod("new", NEW))
    assert 1 == len(labelled.record.claims)


def test_a_pod_that_fits_all_nodes_and_pools_gets_no_affinity_and_one_node(labelled: Cluster) -> None:
    """Of the cheaper type."""
    eventually(lambda: labelled.affinity(pod("new", NEW)) != {})

    assert {} == labelled.affinity(pod("old", OLD))
    assert T4_TYPE == labelled.run(pod("old", OLD))
    assert 1 == len(labelled.record.claims)


def test_a_pod_is_admitted_while_a_node_pool_may_bring_its_node_which_the_warning_names(
    pools: Cluster,
) -> None:
    """Without the NodePool it is denied."""
    assert T4_TYPE == pools.run(pod("old", OLD, nodeSelector={INSTANCE_TYPE: T4_TYPE}))
    needs = pod("bf16", NEW | BF16)
    eventually(lambda: "NodePool h100" in pools.said(needs))
    admitted = pools.installed.refusal(json.dumps(needs))
    pools.withdraw("h100")
    eventually(lambda: pools.installed.refusal(json.dumps(needs)) != "")
    denied = pools.installed.refusal(json.dumps(needs))

    assert "" == admitted
    assert "denied the request: Pod denied by gpugate: no schedulable node is compatible" in denied
    assert "NodePool t4 (Tesla-T4): compute capability 7.5, below 8.0" in denied


def test_a_node_pool_whose_nodes_have_another_driver_by_now_adds_one_node(labelled: Cluster) -> None:
    """The labels that it states are of an older image of its nodes."""
    eventually(lambda: labelled.affinity(pod("new", NEW)) != {})
    labelled.machines.early, labelled.machines.labels = True, {**LABELS, H100_TYPE: NEW_DRIVER}
    try:
        assert H100_TYPE == labelled.run(pod("new", NEW))
        assert 1 == len(labelled.record.claims)
    finally:
        labelled.machines.early, labelled.machines.labels = False, LABELS
