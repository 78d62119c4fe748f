"""What gpugate says of pods is what happens to them on real nodes.

CUDA itself cannot be shown without a GPU: here a pod fails by what scheduler, kubelet and runtime do.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.e2e.daemon import reserve_port
from tests.e2e.installed import TEAM, Installed, install, running
from tests.e2e.node.images import write_image
from tests.e2e.node.pods import created, gpus_in, pod
from tests.e2e.node.real_cluster import DRIVER_570, Driver, Node, RealCluster
from tests.e2e.serve_process import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(300)

# gpugate knows its CUDA version by its name; its content is that of any image here.
CUDA_12_2: Final = "nvidia/cuda:12.2.0-base-ubuntu22.04"
CUDA_12_8: Final = "nvidia/cuda:12.8.1-base-ubuntu22.04"
DRIVER_580: Final = Driver("580.65.06", 13000)
# Which gpugate does not check: the same pod goes through there.
EXCLUDED: Final = "kube-system"
COMPUTE: Final = "gpugate.dev/min-compute-capability"
LABEL: Final = ("-m", "webhook", "node", "label")
GPU_CLASS: Final[dict[str, Any]] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]},
}


@pytest.fixture(scope="module")
def installed(real: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield gpugate in the cluster, whose nodes have the labels of their agents, and the images."""
    folder = tmp_path_factory.mktemp("gpugate")
    for name in (CUDA_12_2, CUDA_12_8):
        real.import_image(write_image(folder / "image.tar", f"docker.io/{name}"))
    for node in real.nodes.values():
        _label(real, node)
    with reserve_port() as held:
        installation = install(real.control, held.getsockname()[1])
        try:
            with running(installation, folder / "serve.log") as server:
                real.kubectl("delete", "node", "fits")  # it is none
                account = ("get", "serviceaccount", "default", "--ignore-not-found", "-o", "name")
                for namespace in (TEAM, EXCLUDED):
                    eventually(lambda name=namespace: bool(real.kubectl(*account, "-n", name).stdout))  # type: ignore[misc]
                yield server
        finally:  # for other tests; rules do nothing alone
            left = [document for document in installation.objects if document["kind"] != "ConfigMap"]
            real.kubectl("delete", "--ignore-not-found", "-f", "-", input=yaml.safe_dump_all(left))
            real.kubectl("delete", "namespace", TEAM)


def _label(real: RealCluster, node: Node) -> dict[str, str]:
    """Run the agent once in a node; return its labels."""
    agent = (
        sys.executable,
        "-P",
        *LABEL,
        f"--kubeconfig={real.control.kubeconfig}",
        f"--node-name={node.name}",
    )
    node.run(*agent)
    return labels_of(real, node)


def labels_of(real: RealCluster, node: Node) -> dict[str, str]:
    """Return the labels of a node."""
    labels: dict[str, str] = json.loads(real.kubectl("get", "node", node.name, "-o", "json").stdout)[
        "metadata"
    ]["labels"]
    return labels


def _requiring(name: str, capability: str, **options: Any) -> dict[str, Any]:
    needs = pod(name, 1, image=CUDA_12_2, **options)
    needs["metadata"]["annotations"] = {COMPUTE: capability}
    return needs


def _node_of(real: RealCluster, name: str) -> str:
    return real.kubectl("get", "pod", name, "-n", TEAM, "-o", "jsonpath={.spec.nodeName}").stdout


@pytest.mark.parametrize("node", ["gpu-1", "gpu-2"])
def test_a_pod_that_is_admitted_for_a_node_runs_there_with_its_gpu(
    real: RealCluster, installed: Installed, node: str
) -> None:
    """With a program that is linked to libcuda; gpu-2 needs the runtime `nvidia` for that."""
    admitted = pod("admitted", 1, image=CUDA_12_2, nodeSelector={"kubernetes.io/hostname": node})
    admitted["spec"]["runtimeClassName"] = "nvidia"
    assert "" == installed.refusal(json.dumps(admitted))

    with created(real, admitted, namespace=TEAM) as outcomes:
        assert ["Running"] == [outcome.reason for outcome in outcomes], outcomes
        assert 1 == len(gpus_in(real, "admitted", TEAM))
        assert node == _node_of(real, "admitted")
        done = real.kubectl("exec", "-n", TEAM, "admitted", "--", "cuda-program", check=False)
    assert 0 == done.returncode, done.stderr


def test_affinity_keeps_a_pod_from_an_incompatible_node(real: RealCluster, installed: Installed) -> None:
    """Also once the compatible one is full: the ninth pod waits, while a pod without requirement runs."""
    del installed
    pods = [_requiring(f"needs-{number}", "8.0") for number in range(9)]
    with created(real, *pods, pod("needs-nothing", 1, image=CUDA_12_2), namespace=TEAM) as outcomes:
        nodes = {_node_of(real, pod_object["metadata"]["name"]) for pod_object in pods}
        (waits,) = [outcome for outcome in outcomes if outcome.reason == "Unschedulable"]

        assert {"gpu-1", ""} == nodes
        assert "gpu-2" == _node_of(real, "needs-nothing")
        assert "Insufficient nvidia.com/gpu" in waits.message
        assert "didn't match Pod's node affinity" in waits.message


def test_more_gpus_than_a_node_has_are_denied_and_never_scheduled(
    real: RealCluster, installed: Installed
) -> None:
    """As the message says."""
    many = pod("many", 16, image=CUDA_12_2)

    assert "requests 16 nvidia.com/gpu, no node has more than 8" in installed.refusal(json.dumps(many))
    with created(real, many, namespace=EXCLUDED) as (outcome,):
        assert "Unschedulable" == outcome.reason
        assert "2 Insufficient nvidia.com/gpu" in outcome.message


def test_a_variable_that_replaces_the_device_plugins_is_a_warning_and_gives_other_gpus(
    real: RealCluster, installed: Installed
) -> None:
    """All of the node, although the pod requests one."""
    del installed
    chosen = {"nodeName": "gpu-2", "runtimeClassName": "nvidia", "image": CUDA_12_2}
    pods = [pod("all", 1, env={"NVIDIA_VISIBLE_DEVICES": "all"}, **chosen)]

    assert "the container may see other GPUs than its own" in _warnings(real, pods[0])
    with created(real, *pods, namespace=TEAM):
        assert [0, 1] == gpus_in(real, "all", TEAM)


def test_the_labels_of_a_node_follow_its_driver(real: RealCluster, installed: Installed) -> None:
    """The agent watches: a pod is admitted with the newer driver alone, and runs with that."""
    node = real.nodes["gpu-1"]
    needs = pod("needs", 1, image=CUDA_12_8, nodeSelector={"kubernetes.io/hostname": "gpu-1"})
    needs["metadata"]["annotations"] = {
        "gpugate.dev/cuda-version": "13.0",
        "gpugate.dev/cuda-compat": "false",
    }
    with _agent(real, node):
        denied = installed.refusal(json.dumps(needs))
        node.install_driver(DRIVER_580)
        eventually(lambda: installed.refusal(json.dumps(needs)) == "")
        with created(real, needs, namespace=TEAM) as (outcome,):
            loaded = real.kubectl("exec", "-n", TEAM, "needs", "--", "ls", "/usr/lib64").stdout
        node.install_driver(DRIVER_570)
        eventually(lambda: installed.refusal(json.dumps(needs)) == denied)

    assert "the driver has CUDA 12.8, below 13.0" in denied
    assert "Running" == outcome.reason
    assert "libcuda.so.580.65.06" in loaded


def test_a_claim_for_a_device_is_prepared_and_one_for_none_is_a_warning_and_never_allocated(
    real: RealCluster, installed: Installed
) -> None:
    """By a DRA driver instead of the device plugin: the container has the GPU of its claim."""
    del installed
    apply = ("apply", "-f", "-")
    real.kubectl(*apply, input=json.dumps(GPU_CLASS))
    with real.nodes["gpu-1"].dra_driver():
        for capability in ("8.0.0", "9.0.0"):
            real.kubectl(*apply, "-n", TEAM, input=json.dumps(_claim(capability)))
        fits, never = (_claiming(capability) for capability in ("8.0.0", "9.0.0"))
        eventually(lambda: "claim 'gpu'" in _warnings(real, never))

        assert "" == _warnings(real, fits)
        with created(real, fits, namespace=TEAM) as (outcome,):
            assert "Running" == outcome.reason, outcome
            assert 1 == len(gpus_in(real, "claims-8-0-0", TEAM))
        assert "no device that it selects is on a node that the pod can use" in _warnings(real, never)
        with created(real, never, namespace=TEAM) as (outcome,):
            assert "Unschedulable" == outcome.reason
            assert "cannot allocate all claims" in outcome.message


def _warnings(real: RealCluster, document: dict[str, Any]) -> str:
    """Return what kubectl says about a pod that it would create: warnings, or why it is denied."""
    create = ("create", "-n", TEAM, "--dry-run=server", "-f", "-")
    return real.kubectl(*create, input=json.dumps(document), check=False).stderr


def _claim(capability: str) -> dict[str, Any]:
    attribute = 'device.attributes["gpu.nvidia.com"].cudaComputeCapability'
    selector = {"cel": {"expression": f'{attribute}.compareTo(semver("{capability}")) >= 0'}}
    exactly = {"deviceClassName": GPU_CLASS["metadata"]["name"], "selectors": [selector]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": _name(capability)},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def _claiming(capability: str) -> dict[str, Any]:
    name = _name(capability)
    claiming = pod(name, image=CUDA_12_2, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])
    claiming["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return claiming


def _name(capability: str) -> str:
    return f"claims-{capability.replace('.', '-')}"


@contextmanager
def _agent(real: RealCluster, node: Node) -> Iterator[None]:
    options = (
        f"--kubeconfig={real.control.kubeconfig}",
        f"--node-name={node.name}",
        "--watch",
        "--interval=1",
    )
    node.start("agent", sys.executable, "-P", *LABEL, *options)
    try:
        yield
    finally:
        node.stop("agent")
