"""Builders of nodes, labelled as GPU Feature Discovery or a script labels them, and of GPU pods."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml

from rules.decision.pipeline import Snapshot, decide
from rules.decision.policy import Policy, compile_policy
from rules.model.decision import Decision
from rules.model.rule import Action, RuleSet
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.text.i18n import Language
from tests.support import reference_selector as reference
from tests.support.builders import config_map, container, patched, pod, request
from webhook.cli.inputs.session import Session

Node = dict[str, Any]

# Annotations by which a pod says what it needs.
CUDA = "gpugate.dev/cuda-version"
COMPUTE = "gpugate.dev/min-compute-capability"
COMPAT = "gpugate.dev/cuda-compat"
MEMORY = "gpugate.dev/min-gpu-memory"
RUNTIME_MODE = "gpugate.dev/container-runtime-mode"

GPU = "nvidia.com/gpu"
VCUDA_CORE = "tencent.com/vcuda-core"
VCUDA_MEMORY = "tencent.com/vcuda-memory"

# Product label and compute capability, as in GPU Feature Discovery.
T4 = ("Tesla-T4", "7.5")
V100 = ("Tesla-V100-SXM2-32GB", "7.0")
B200 = ("NVIDIA-B200", "10.0")
P40 = ("Tesla-P40", "6.1")
A100 = ("NVIDIA-A100-SXM4-80GB", "8.0")
H100 = ("NVIDIA-H100-80GB-HBM3", "9.0")
RTX4090 = ("NVIDIA-GeForce-RTX-4090", "8.9")

# The driver of each CUDA version, from the release notes of the toolkits.
DRIVERS = {
    "11.2": "460.32.03",
    "11.4": "470.82.01",
    "11.8": "520.61.05",
    "12.0": "525.85.12",
    "12.2": "535.104.05",
    "12.4": "550.54.15",
    "12.6": "560.35.05",
    "12.8": "570.124.06",
    "13.0": "580.65.06",
}

# What containers ask for, and what nodes of that kind offer.
SHARE = {VCUDA_CORE: "50", VCUDA_MEMORY: "8"}
VGPU = {VCUDA_CORE: "800", VCUDA_MEMORY: "640"}
MPS = {"nvidia.com/mps-core": "50", "nvidia.com/mps-memory": "8"}
HAMI = {GPU: "1", "nvidia.com/gpumem": "4096"}

VLLM = "vllm/vllm-openai:v0.8.4"
PYTORCH_11_7 = "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime"


def node(name: str, labels: dict[str, str] | None = None, **offered: str | int) -> Node:
    """Return a Node with these labels; offered: its allocatable resources, default: eight GPUs."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "status": {"allocatable": {"cpu": "96"} | (offered or {GPU: "8"})},
    }


def gfd(cuda: str, gpu: tuple[str, str] = T4, **labels: str) -> dict[str, str]:
    """Return the labels of GPU Feature Discovery for a driver's CUDA version and a GPU; labels: further."""
    product, compute = gpu
    major, minor = cuda.split(".")
    capability = compute.split(".")
    return {
        "nvidia.com/cuda.driver-version.full": DRIVERS[cuda],
        "nvidia.com/cuda.runtime-version.major": major,
        "nvidia.com/cuda.runtime-version.minor": minor,
        "nvidia.com/gpu.compute.major": capability[0],
        "nvidia.com/gpu.compute.minor": capability[1],
        "nvidia.com/gpu.product": product,
    } | labels


def plain(cuda: str, **labels: str) -> dict[str, str]:
    """Return the two labels of clusters without GPU Feature Discovery; labels: further ones."""
    major, minor = cuda.split(".")
    return {"cuda-major-version": major, "cuda-minor-version": minor} | labels


def nodes(count: int, prefix: str, labels: dict[str, str], **offered: str | int) -> list[Node]:
    """Return equal nodes `prefix-0`, `prefix-1`, …."""
    return [node(f"{prefix}-{number}", labels, **offered) for number in range(count)]


def inventory(*groups: Node | list[Node]) -> Inventory:
    """Return the inventory of nodes and of lists of nodes."""
    return inventory_of(list(groups))


@cache
def shipped_rules() -> RuleSet:
    """Return the built-in rules."""
    return Session().rules


@cache
def shipped(language: Language = Language.EN) -> Policy:
    """Return the policy of the built-in rules."""
    return compile_policy(shipped_rules(), language)


def compatibility_rule(
    *,
    name: str = "compatibility",
    match: dict[str, Any] | None = None,
    enabled: str = "true",
    data: dict[str, Any] | None = None,
    **rule: Any,
) -> str:
    """Return a CompatibilityRule's ConfigMap, for whole GPUs unless match or rule differ; data: more keys."""
    document = {"match": {"resources": [GPU]} | (match or {}), "sharing": "physical"} | rule
    labels = {"gpugate.dev/type": "CompatibilityRule", "gpugate.dev/enabled": enabled}
    return config_map(
        name, labels, {"rule.yaml": yaml.safe_dump(document, allow_unicode=True)} | (data or {})
    )


def image_catalog(*images: dict[str, Any], name: str = "images") -> str:
    """Return an ImageCatalog's ConfigMap of these rows."""
    labels = {"gpugate.dev/type": "ImageCatalog", "gpugate.dev/enabled": "true"}
    return config_map(
        name, labels, {"rule.yaml": yaml.safe_dump({"images": list(images)}, allow_unicode=True)}
    )


def node_profile(*, name: str = "profile", enabled: str = "true", **keys: Any) -> str:
    """Return a NodeProfile's ConfigMap, of pool a with eight GPUs; keys: of the document or of its offers."""
    own = {"description", "match", "labelsAtCreation", "taints", "canScale"}
    document: dict[str, Any] = {
        "match": {"nodeLabels": {"pool": "a"}},
        "labelsAtCreation": {"pool": "a"},
        "offers": {"resources": {GPU: 8}} | {key: value for key, value in keys.items() if key not in own},
    }
    document |= {key: value for key, value in keys.items() if key in own}
    labels = {"gpugate.dev/type": "NodeProfile", "gpugate.dev/enabled": enabled}
    return config_map(name, labels, {"rule.yaml": yaml.safe_dump(document, allow_unicode=True)})


def gpu_container(
    image: str, *args: str, limits: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a container that requests one GPU, with the API server's defaults; fields: further fields."""
    quantities = {GPU: "1"} if limits is None else limits
    arguments = {"args": list(args)} if args else {}
    return container(quantities, quantities, image=image, **arguments | fields)


def gpu_pod(image: str, *args: str, limits: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a pod of one such container; spec: fields of its spec, or `metadata`."""
    return pod(gpu_container(image, *args, limits=limits), **spec)


def judged(policy: Policy, nodes: Inventory, document: Any, **fields: Any) -> Decision:
    """Return the decision on the creation of an object in a cluster of nodes."""
    return decide(Snapshot(policy, nodes), request(document, **fields))


def targets(cluster: list[Node], document: Any, decision: Decision) -> list[str]:
    """Return the names of the nodes that the scheduler can select for a pod admitted with a patch."""
    spec = patched(document, decision)["spec"]
    return [document["metadata"]["name"] for document in cluster if reference.may_go(document, spec)]


def cuda_image(cuda: str) -> str:
    """Return the tag of an NVIDIA image of a CUDA version."""
    return f"team/app:cuda{cuda}"


def annotated(annotations: dict[str, str], **spec: Any) -> Any:
    """Return a pod of an unknown image with annotations; spec: fields of its spec."""
    return gpu_pod("team/app:v1", metadata={"name": "train", "annotations": annotations}, **spec)


def requiring(**env: str) -> Any:
    """Return a pod whose container has these variables."""
    return pod(
        gpu_container("team/app:v1", env=[{"name": name, "value": text} for name, text in env.items()])
    )


def legacy(*cluster: Node) -> list[Node]:
    """Return nodes whose container runtime is in its legacy mode, which evaluates variables, by a label."""
    return [
        document
        | {
            "metadata": document["metadata"]
            | {"labels": document["metadata"]["labels"] | {RUNTIME_MODE: "legacy"}}
        }
        for document in cluster
    ]


def of_class_legacy(document: Any) -> Any:
    """Return a pod with the RuntimeClass of the runtime whose own mode is always legacy."""
    return {**document, "spec": {**document["spec"], "runtimeClassName": "nvidia-legacy"}}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return required node affinity of these terms."""
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
    }


def among(key: str, *values: str) -> dict[str, Any]:
    """Return a term that requires one of these values of a label."""
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [*values]}]}


def decided(cluster: list[Node], document: Any, **fields: Any) -> Decision:
    """Return the decision of the built-in rules in a cluster."""
    return judged(shipped(), inventory(cluster), document, **fields)


def refused(decision: Decision) -> list[tuple[str, Action, str]]:
    """Return rule, action and path of each violation."""
    return [(violation.rule, violation.action, violation.path) for violation in decision.violations]


def preferred(document: Any, decision: Decision) -> list[Any]:
    """Return the preferred terms of node affinity of an admitted pod."""
    affinity = patched(document, decision)["spec"].get("affinity", {}).get("nodeAffinity", {})
    return [
        term["preference"] for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    ]


def matched(cluster: list[Node], term: Any) -> list[str]:
    """Return the nodes that a term matches."""
    return [document["metadata"]["name"] for document in cluster if reference.term_matches(document, term)]


def admitted_to(cluster: list[Node], document: Any, **fields: Any) -> list[str]:
    """Return the nodes that match an admitted pod after its patch, which a second run does not change."""
    first = decided(cluster, document, **fields)
    assert "" == first.denial.en
    again = decided(cluster, patched(document, first), **fields)
    final = decided(cluster, patched(document, first), mutating=False)
    assert (True, (), True) == (again.allowed, again.patch, final.allowed)
    return targets(cluster, document, first)
