"""A cluster of five pools and its workloads, of which the generator knows what a change of drivers does.

The nodes after a change are written here by hand, and what breaks follows from how each workload was made:
nothing here uses the code of `gpugate whatif`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GPU = "nvidia.com/gpu"

# Images of NVIDIA whose NVIDIA_REQUIRE_CUDA lists branch 535 among older ones, but not 545, and admits any
# driver with their own CUDA version or a newer one.
LISTS_BRANCHES = "nvidia/cuda:12.4.1-base-ubuntu22.04"
CUDA_13 = "nvidia/cuda:13.0.0-base-ubuntu24.04"
CUDA_11_8 = "nvidia/cuda:11.8.0-base-ubuntu22.04"
# Below 590, as an author may write it.
OLD_ONLY = "cuda>=11.8,driver<590"


@dataclass(frozen=True)
class Pool:
    """A pool of equal nodes, by the label of its provider."""

    name: str
    label: str
    product: str
    compute: str
    driver: str
    cuda: str


POOLS = (
    Pool("v100", "cloud.google.com/gke-nodepool", "Tesla-V100-SXM2-32GB", "7.0", "535.104.05", "12.2"),
    Pool("t4", "eks.amazonaws.com/nodegroup", "Tesla-T4", "7.5", "535.104.05", "12.2"),
    Pool("a100", "kubernetes.azure.com/agentpool", "NVIDIA-A100-SXM4-80GB", "8.0", "550.54.15", "12.4"),
    Pool("h100", "alpha.eksctl.io/nodegroup-name", "NVIDIA-H100-80GB-HBM3", "9.0", "570.124.06", "12.8"),
    Pool("l4", "alibabacloud.com/nodepool-id", "NVIDIA-L4", "8.9", "550.54.15", "12.4"),
)
# The version and the CUDA version of the branches that tests change to, by the release notes of the toolkits.
BRANCHES = {"545": ("545.23.08", "12.3"), "580": ("580.95.05", "13.0"), "595": ("595.71.05", "13.2")}


@dataclass(frozen=True)
class Made:
    """A workload, and the pools that it selects. shape: how it was made."""

    document: dict[str, Any]
    pools: tuple[str, ...]
    shape: str

    @property
    def name(self) -> str:
        """Kind and name, as the command prints it."""
        return f"{self.document['kind']}/{self.document['metadata']['name']}"

    def breaks(self, pool: str, branch: str) -> bool:
        """Return whether another branch on a pool leaves it no node, although it has one now."""
        if self.pools != (pool,) or (pool == "v100" and self.shape == "cuda 13"):
            return False  # CUDA 13 has no code for Volta: it is denied now
        if pool == "v100" and int(branch) > 580:  # the last branch of Volta
            return True
        if self.shape == "old drivers only":
            return int(branch) >= 590
        return self.shape in ("lists branches", "cuda 13") and branch == "545"


def nodes(changed: Mapping[str, str] | None = None, per_pool: int = 60) -> list[dict[str, Any]]:
    """Return the nodes of all pools. changed: another branch, by pool."""
    cluster_nodes = []
    for pool in POOLS:
        driver, cuda = pool.driver, pool.cuda
        if branch := (changed or {}).get(pool.name):
            driver, cuda = BRANCHES[branch]
        cluster_nodes += [_node(f"{pool.name}-{at}", pool, driver, cuda) for at in range(per_pool)]
    return cluster_nodes


def _node(name: str, pool: Pool, driver: str, cuda: str) -> dict[str, Any]:
    parts, (major, minor) = driver.split("."), cuda.split(".")
    labels = {
        pool.label: pool.name,
        "kubernetes.io/hostname": name,
        "gpugate.dev/container-runtime-mode": "legacy",
        "nvidia.com/gpu.product": pool.product,
        "nvidia.com/gpu.compute.major": pool.compute.split(".")[0],
        "nvidia.com/gpu.compute.minor": pool.compute.split(".")[1],
        "nvidia.com/cuda.driver-version.full": driver,
        "nvidia.com/cuda.driver-version.major": parts[0],
        "nvidia.com/cuda.driver-version.minor": parts[1],
        "nvidia.com/cuda.driver-version.revision": parts[2],
        "nvidia.com/cuda.runtime-version.full": cuda,
        "nvidia.com/cuda.runtime-version.major": major,
        "nvidia.com/cuda.runtime-version.minor": minor,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {GPU: "8"}, "capacity": {GPU: "8"}},
    }


def workloads(number: int = 2000) -> list[Made]:
    """Return workloads of all shapes and kinds in turn, in five namespaces."""
    return [_made(at) for at in range(number)]


def _made(at: int) -> Made:
    shape = ("plain", "lists branches", "old drivers only", "cuda 13", "two pools", "any node", "no GPU")[
        at % 7
    ]
    pool, other = POOLS[at // 7 % 5], POOLS[(at // 7 + 1) % 5]
    limits = {"limits": {GPU: "1"}}
    container: dict[str, Any] = {
        "name": "main",
        "image": CUDA_11_8,
        "command": ["./app"],
        "resources": limits,
    }
    spec: dict[str, Any] = {"containers": [container]}
    pools: tuple[str, ...] = (pool.name,)
    match shape:
        case "lists branches":
            container["image"] = LISTS_BRANCHES
        case "old drivers only":
            container["env"] = [{"name": "NVIDIA_REQUIRE_CUDA", "value": OLD_ONLY}]
        case "cuda 13":
            container["image"] = CUDA_13
        case "two pools":
            terms = [{"matchExpressions": [_is_in(required_pool)]} for required_pool in (pool, other)]
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            spec["affinity"], pools = {"nodeAffinity": required}, (pool.name, other.name)
        case "any node":
            pools = tuple(pool.name for pool in POOLS)
        case "no GPU":
            container["resources"], pools = {"limits": {"cpu": "1"}}, ()
    if len(pools) == 1:
        spec["nodeSelector"] = {pool.label: pool.name}
    return Made(_object(at, spec), pools, shape)


def _is_in(pool: Pool) -> dict[str, Any]:
    return {"key": pool.label, "operator": "In", "values": [pool.name]}


def _object(at: int, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a Deployment, StatefulSet, CronJob or pod."""
    metadata = {"name": f"w{at}", "namespace": f"team-{at % 5}"}
    template = {"metadata": {"labels": {"app": f"w{at}"}}, "spec": spec}
    match at % 4:
        case 0:
            body: dict[str, Any] = {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "spec": {"template": template},
            }
        case 1:
            body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {"template": template}}
        case 2:
            job = {"jobTemplate": {"spec": {"template": template}}}
            body = {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"schedule": "0 0 * * *", **job}}
        case _:
            body = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    return {**body, "metadata": metadata}


def pod_of(made: Made) -> dict[str, Any]:
    """Return the pod of a workload, as its controller would create it."""
    body = made.document
    spec = body["spec"]
    if body["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    if body["kind"] != "Pod":
        spec = spec["template"]["spec"]
    metadata = body["metadata"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
