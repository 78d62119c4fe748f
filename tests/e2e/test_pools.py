"""gpugate against the cluster as it will be: declared pools and nodes that come back, on a real API server.

No autoscaler runs: NodePools are objects, which only gpugate reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from rules.nodes.pools import AUTOSCALER_STATUS
from tests.e2e.assets import build
from tests.e2e.cluster import ControlPlane, assets
from tests.e2e.cluster import missing as absent
from tests.e2e.daemon import reserve_port
from tests.e2e.installed import TEAM, Installed, install, running
from tests.e2e.karpenter import GPU_NAME, INSTANCE_TYPE, missing, node_pool
from tests.e2e.manifests import Object, run
from tests.e2e.serve_process import eventually
from tests.e2e.test_control_plane import node
from tests.support.node_builders import COMPUTE, CUDA, GPU, H100, T4, VLLM, gfd

# Seconds in which a change of the cluster is in force, and a busy machine has bound a pod.
LIVE_S: Final = 2.0
SOON_S: Final = 15.0
# Seconds after which a kind that was absent is read: those for which the API groups count as known, the
# longest pause of a watch, and the list.
RETRIED_S: Final = 65.0
OFFERED: Final = {GPU: "8", "cpu": "8", "memory": "64Gi", "pods": "110"}
NODEPOOL: Final = "karpenter.sh/nodepool"
H100_LABELS: Final = gfd("12.8", H100)
T4_LABELS: Final = gfd("12.2", T4)
T4_NODE, H100_NODE = node("t4", T4_LABELS, OFFERED), node("h100", H100_LABELS, OFFERED)
H100_TYPE: Final = "p5.4xlarge"
H100_POOL: Final = node_pool("h100", H100_TYPE, labels=H100_LABELS)
# Its driver is not known.
H100_BY_TYPE: Final = node_pool("h100", H100_TYPE)
T4_POOL: Final = node_pool("t4", "g4dn.2xlarge", labels=T4_LABELS)
# The term of the first of them, without what GPU Feature Discovery may write anew on its nodes.
OF_H100_POOL: Final = {NODEPOOL: "h100", INSTANCE_TYPE: H100_TYPE}
MAJOR: Final = "nvidia.com/cuda.runtime-version.major"
DEFINITION: Final = "nodepools.karpenter.sh"
# What cannot be read in NodePools, by its path; Karpenter's definition admits none of it.
BROKEN: Final[dict[str, Object]] = {
    "spec: expected an object": {"spec": "text"},
    "spec.limits: expected an object": {"spec": {"limits": [1]}},
    "spec.template.spec.requirements: expected a list": {
        "spec": {"template": {"spec": {"requirements": "text"}}}
    },
    "spec.template.spec.requirements[0]: expected a requirement": {
        "spec": {"template": {"spec": {"requirements": [{"key": INSTANCE_TYPE, "operator": "Like"}]}}}
    },
    f"{MAJOR}: expected a possible value": {
        "spec": {"template": {"metadata": {"labels": {MAJOR: "6129484611666145821"}}}}
    },
}
DENIED: Final = "Pod denied by gpugate: no schedulable node is compatible with container 'main'"


def pod(name: str = "asks", gpus: int = 8, **spec: Any) -> Object:
    """Return a Pod that no T4 runs, and no driver older than CUDA 12.8. spec: other fields."""
    metadata = {"name": name, "annotations": {CUDA: "12.8", COMPUTE: "8.0"}}
    container: Object = {
        "name": "main",
        "image": "example.com/train:1",
        "resources": {"limits": {GPU: str(gpus)}},
    }
    container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "volumes": volumes, **spec},
    }


ASKS: Final = pod()


@dataclass
class Cluster:
    """A cluster with gpugate and the kind NodePool. log: of gpugate."""

    installed: Installed
    log: Path

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """Run kubectl and return what it prints."""
        return self.installed.cluster.kubectl(*args, input=input).stdout

    def have(self, *objects: Object | str) -> None:
        """Create objects; texts are JSON."""
        documents = [document if isinstance(document, str) else json.dumps(document) for document in objects]
        self.kubectl("create", "-f", "-", input="\n".join(documents))

    def tried(self, document: Object) -> tuple[list[dict[str, str]] | None, str]:
        """Return the terms of affinity that a pod would have, None if denied; and what kubectl prints."""
        created = ("create", "-n", TEAM, "--dry-run=server", "-o", "json", "-f", "-")
        done = self.installed.cluster.kubectl(*created, input=json.dumps(document), check=False)
        return (None if done.returncode else terms(json.loads(done.stdout))), done.stderr

    def said(self, document: Object = ASKS) -> str:
        """Return what kubectl prints about a pod that would be created: warnings, or the refusal."""
        return self.tried(document)[1]

    def terms(self, document: Object = ASKS) -> list[dict[str, str]] | None:
        """Return the terms of affinity that a pod would have; None if it would be denied."""
        return self.tried(document)[0]

    def bound(self, name: str) -> str:
        """Wait until a pod is bound, and return the name of its node."""
        self.kubectl("wait", "-n", TEAM, f"pod/{name}", "--for=condition=PodScheduled", "--timeout=30s")
        return self.kubectl("get", "pod", "-n", TEAM, name, "-o", "jsonpath={.spec.nodeName}")

    def bind(self, document: Object) -> str:
        """Create a pod, wait until it is bound, and return the name of its node."""
        self.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(document))
        return self.bound(document["metadata"]["name"])

    def shown(self, command: str) -> str:
        """Run a command line, and return what it prints."""
        done = run(self.installed.cluster, command)
        return done.stdout + done.stderr

    def logged(self, text: str) -> int:
        """Return how many lines of gpugate's log contain a text."""
        return sum(text in line for line in self.log.read_text("utf-8").splitlines())

    def failed_lists(self) -> int:
        """Return how often gpugate asked for NodePools in vain, by the audit log of the API server."""
        events = map(json.loads, self.installed.cluster.audit.read_text("utf-8").splitlines())
        return sum(
            (event["verb"], event.get("objectRef", {}).get("resource"), event["responseStatus"]["code"])
            == ("list", "nodepools", 404)
            for event in events
        )

    def empty(self) -> None:
        """Delete all pods, nodes, NodePools and signs of an autoscaler."""
        status = AUTOSCALER_STATUS
        self.kubectl("delete", "pods", "-n", TEAM, "--all", "--force")
        self.kubectl("delete", "nodes,nodepools", "--all")
        self.kubectl("delete", "configmap", "-n", status.namespace, status.name, "--ignore-not-found")
        eventually(lambda: self.installed.server.sample("gpugate_inventory_nodes") == 0)


def terms(document: Object) -> list[dict[str, str]]:
    """Return the required terms of a pod: by label, the values of `In`, or the operator with its values."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = document["spec"].get("affinity", {}).get("nodeAffinity", {}).get(required, {})
    alternatives = []
    for term in affinity.get("nodeSelectorTerms", []):
        written = [
            (expression["key"], expression["operator"], expression.get("values", []))
            for expression in term["matchExpressions"]
        ]
        alternatives.append(
            {key: " ".join(values if how == "In" else [how, *values]) for key, how, values in written}
        )
    return alternatives


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster without nodes."""
    binaries, folder = assets(), tmp_path_factory.mktemp("pools")
    if absent(binaries) or not (binaries / "kube-scheduler").is_file() or missing():
        pytest.skip("no Kubernetes, or no Karpenter with its CRDs: run `make e2e-assets`")
    log = folder / "serve.log"
    with reserve_port() as held, ControlPlane(binaries, folder / "cluster", scheduler=True) as control_plane:
        define(control_plane)
        with running(install(control_plane, held.getsockname()[1]), log) as installed:
            cluster = Cluster(installed, log)
            cluster.empty()
            yield cluster


def define(control_plane: ControlPlane) -> None:
    """Create the definition of NodePools, as Karpenter has it."""
    control_plane.kubectl("create", "-f", str(build.karpenter() / "karpenter.sh_nodepools.yaml"))
    control_plane.kubectl("wait", "crd", DEFINITION, "--for=condition=Established")


@pytest.fixture
def cluster(clusters: Cluster) -> Iterator[Cluster]:
    """Yield the cluster without nodes and pools."""
    yield clusters
    clusters.empty()


def test_if_only_ready_nodes_fit_affinity_admits_exactly_them(cluster: Cluster) -> None:
    """The first row of the table: of three pods that take whole nodes, two are bound."""
    newer, old = node("newer", gfd("13.0", H100), OFFERED), node("old", gfd("12.2", H100), OFFERED)
    cluster.have(T4_NODE, H100_NODE, newer, old)
    eventually(lambda: cluster.installed.server.sample("gpugate_inventory_nodes") == 4)
    said = cluster.said()
    bound = {cluster.bind(pod("first")), cluster.bind(pod("second"))}
    cluster.have({**pod("third"), "metadata": {**pod("third")["metadata"], "namespace": TEAM}})
    cluster.kubectl("wait", "-n", TEAM, "pod/third", "--for=condition=PodScheduled=false", "--timeout=30s")

    assert ("", {"h100", "newer"}) == (said, bound)


def test_if_a_ready_node_and_a_pool_fit_the_last_term_has_the_labels_of_its_new_nodes(
    cluster: Cluster,
) -> None:
    """The second row: the terms of the first come before it."""
    cluster.have(T4_NODE, H100_NODE)
    eventually(lambda: bool(cluster.terms()))
    exact = cluster.terms()
    assert exact is not None
    cluster.have(H100_POOL)
    eventually(lambda: cluster.tried(ASKS) == ([*exact, OF_H100_POOL], ""), SOON_S)

    assert "h100" == cluster.bind(ASKS)


def test_if_only_a_pool_fits_the_pod_gets_the_labels_of_its_new_nodes(cluster: Cluster) -> None:
    """The third row: it is bound to the node that comes, whose driver is newer by now."""
    cluster.have(T4_NODE, H100_POOL, T4_POOL)
    eventually(lambda: cluster.tried(ASKS) == ([OF_H100_POOL], ""), SOON_S)
    cluster.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(ASKS))
    cluster.kubectl("wait", "-n", TEAM, "pod/asks", "--for=condition=PodScheduled=false", "--timeout=30s")
    cluster.have(node("comes", {**OF_H100_POOL, **gfd("13.0", H100)}, OFFERED))

    assert "comes" == cluster.bound("asks")


def test_if_only_a_pool_may_fit_kubectl_prints_a_warning_that_names_it(cluster: Cluster) -> None:
    """The fourth row: nothing is injected."""
    cluster.have(T4_NODE, H100_BY_TYPE)
    eventually(lambda: "may bring one" in cluster.said(), SOON_S)
    injected, said = cluster.tried(ASKS)

    assert [] == injected
    assert "Warning: " in said
    assert "container 'main': no node is compatible; NodePool h100" in said


def test_if_no_node_and_no_pool_fits_the_pod_is_denied_with_a_row_for_each_pool(cluster: Cluster) -> None:
    """The fifth row."""
    cluster.have(T4_NODE, T4_POOL)
    eventually(lambda: "NodePool t4" in cluster.said(), SOON_S)
    injected, said = cluster.tried(ASKS)

    assert injected is None
    assert DENIED in said
    (row,) = [line for line in said.splitlines() if line.startswith("    NodePool t4 (Tesla-T4): ")]
    assert "CUDA 12.2, below 12.8" in row
    assert "compute capability 7.5, below 8.0" in row


def test_if_an_autoscaler_declares_no_nodes_the_pod_is_admitted_with_a_warning(cluster: Cluster) -> None:
    """The sixth row: denied once cluster-autoscaler is gone."""
    status = AUTOSCALER_STATUS
    cluster.have(T4_NODE)
    cluster.kubectl("create", "configmap", "-n", status.namespace, status.name)
    eventually(lambda: cluster.said().startswith("Warning: "), SOON_S)
    warned = cluster.tried(ASKS)
    cluster.kubectl("delete", "configmap", "-n", status.namespace, status.name)
    eventually(lambda: DENIED in cluster.said(), LIVE_S)

    assert [] == warned[0]
    assert "no schedulable node is compatible with container 'main'" in warned[1]


def test_a_bf16_pod_is_admitted_as_long_as_a_node_pool_brings_its_gpu(cluster: Cluster) -> None:
    """An image of vLLM; the GPU of the NodePool is known by its name."""
    bf16 = pod(gpus=1)
    bf16["metadata"]["annotations"] = {}
    bf16["spec"]["containers"][0] |= {"image": VLLM, "args": ["--dtype=bfloat16"]}
    by_name = node_pool("big")
    requirement = {"key": GPU_NAME, "operator": "In", "values": ["h100"]}
    by_name["spec"]["template"]["spec"]["requirements"] = [requirement]
    cluster.have(T4_NODE, by_name)
    eventually(lambda: "NodePool big (NVIDIA-H100-80GB-HBM3)" in cluster.said(bf16), SOON_S)
    injected = cluster.terms(bf16)
    cluster.kubectl("delete", "nodepool", "big")
    eventually(lambda: cluster.terms(bf16) is None, LIVE_S)

    assert [] == injected
    assert "compute capability 7.5" in cluster.said(bf16)


def test_a_node_whose_driver_is_upgraded_counts_as_one_that_comes_back(cluster: Cluster) -> None:
    """Pods are admitted with a warning, and steered once it offers GPUs again."""
    upgraded = json.loads(H100_NODE)
    upgraded["status"]["allocatable"] = {**OFFERED, GPU: "0"}
    cluster.have(T4_NODE, upgraded)
    eventually(lambda: "nodes that are not ready may be" in cluster.said(), SOON_S)
    warned = cluster.tried(ASKS)
    offered = json.dumps({"status": {"allocatable": OFFERED}})
    cluster.kubectl("patch", "node", "h100", "--subresource=status", "-p", offered)
    eventually(lambda: bool(cluster.terms()), LIVE_S)

    assert ([], True) == (warned[0], warned[1].startswith("Warning: "))
    assert ("", "h100") == (cluster.said(), cluster.bind(ASKS))


def test_a_pod_that_tolerates_no_compatible_node_is_warned_of_its_taint(cluster: Cluster) -> None:
    """With a toleration it is bound there."""
    tainted = json.loads(H100_NODE)
    tainted["spec"] = {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}
    cluster.have(T4_NODE, tainted)
    eventually(lambda: "taint team=red:NoSchedule" in cluster.said(), SOON_S)
    warned = cluster.said()
    tolerating = pod(tolerations=[{"key": "team", "operator": "Exists"}])

    assert "Warning: " in warned
    assert "does not tolerate taint team=red:NoSchedule of the compatible nodes" in warned
    assert ("", "h100") == (cluster.said(tolerating), cluster.bind(tolerating))


def test_labels_that_vanish_from_a_node_count_for_some_minutes(cluster: Cluster) -> None:
    """As while MIG partitions its GPUs: pods are steered to it, and bound once the labels are back."""
    cluster.have(T4_NODE, H100_NODE)
    eventually(lambda: bool(cluster.terms()), SOON_S)
    before = cluster.tried(ASKS)
    cluster.kubectl("label", "node", "h100", *(f"{key}-" for key in H100_LABELS))
    eventually(lambda: cluster.logged("node h100 lost its label") == 1, SOON_S)
    after = cluster.tried(ASKS)
    cluster.kubectl("create", "-n", TEAM, "-f", "-", input=json.dumps(ASKS))
    cluster.kubectl("label", "node", "h100", *(f"{key}={value}" for key, value in H100_LABELS.items()))

    assert before == after
    assert "h100" == cluster.bound("asks")


@pytest.fixture
def unvalidated(cluster: Cluster) -> Iterator[Cluster]:
    """Yield the cluster with NodePools of any content."""
    shown = cluster.kubectl("get", "crd", DEFINITION, "-o", "jsonpath={.spec.versions}")
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}

    def define_versions(versions: list[Object]) -> None:
        edit = json.dumps({"spec": {"versions": versions}})
        cluster.kubectl("patch", "crd", DEFINITION, "--type=merge", "-p", edit)

    define_versions([version])
    yield cluster
    cluster.kubectl("delete", "nodepools", "--all")
    define_versions(json.loads(shown))


def test_what_cannot_be_read_in_a_node_pool_is_unknown(unvalidated: Cluster) -> None:
    """No bug is logged, no pod denied; `gpugate nodes` reports what it is."""
    cluster = unvalidated
    cluster.have(T4_NODE)
    pools = [
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": f"broken-{at}"}, **fields}
        for at, fields in enumerate(BROKEN.values())
    ]
    documents = "\n".join(map(json.dumps, pools))
    apply = ("apply", "--server-side", "--validate=false", "-f", "-")
    # The API server uses a changed definition a moment later.
    eventually(lambda: not cluster.installed.cluster.kubectl(*apply, input=documents, check=False).returncode)
    eventually(lambda: "2 more may bring one" in cluster.said(), SOON_S)
    injected = cluster.terms()
    listed = cluster.shown("gpugate nodes --context e2e")

    assert [] == injected
    assert [f"NodePool broken-{at}: {problem}" for at, problem in enumerate(BROKEN)] == re.findall(
        r"^warning: (NodePool \S+: .*), found .*; ignored$", listed, re.MULTILINE
    )
    assert 0 == cluster.logged('"level":"ERROR"')


@pytest.mark.timeout(300)  # an API server may keep watches for two minutes, until requests have ended
def test_a_definition_that_is_deleted_takes_its_pools_along_until_it_is_back(cluster: Cluster) -> None:
    """gpugate stays ready, and reports the absence once."""
    gone, ready = "watch of nodepools absent", set[bool]()

    def verdict() -> list[dict[str, str]] | None:
        ready.add(cluster.installed.server.ready())
        return cluster.terms()

    cluster.have(T4_NODE, H100_POOL)
    eventually(lambda: verdict() == [OF_H100_POOL], SOON_S)
    before, lists = cluster.logged(gone), cluster.failed_lists()
    cluster.kubectl("delete", "crd", DEFINITION)
    try:
        eventually(lambda: verdict() is None)
        eventually(lambda: cluster.failed_lists() > lists)
    finally:
        define(cluster.installed.cluster)
    cluster.have(H100_POOL)
    eventually(lambda: verdict() == [OF_H100_POOL], RETRIED_S)

    assert ({True}, 1) == (ready, cluster.logged(gone) - before)


def test_the_commands_read_the_pools_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """`gpugate nodes` lists them, and `gpugate preview` names the one that can bring a node."""
    cluster.have(T4_NODE, H100_POOL)
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(ASKS))
    listed = cluster.shown("gpugate nodes --context e2e")
    previewed = cluster.shown(f'gpugate preview --kubeconfig "$KUBECONFIG" -f {path}')

    assert ["1 Tesla-T4", "- NVIDIA-H100-80GB-HBM3"] == [
        " ".join(line.split()[:2]) for line in listed.splitlines()[1:]
    ]
    assert listed.endswith("may come  NodePool/h100\n")
    named = "an autoscaler can add one: NodePool h100 (NVIDIA-H100-80GB-HBM3)"
    assert f"note no node is compatible now; {named}" in previewed
    assert "1 object: 1 patched, 0 denied" in previewed
