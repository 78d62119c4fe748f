"""Inputs of the benchmarks: reviews as a real API server sends them, clusters of nodes, sets of rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from rules.model.decision import AdmissionRequest
from rules.model.rule import RuleSet
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.schema.config_map import Loaded
from rules.schema.loader import load_rules
from tests.support.builders import exemption, resource_rule
from tests.support.dra_clusters import (
    A100_NAME,
    DRIVER,
    H100_NAME,
    T4_NAME,
    claim_template,
    device_class,
    gpus_of,
)
from tests.support.node_builders import A100, GPU, H100, T4, V100, VGPU, gfd, node
from webhook.admission.review import decode_review
from webhook.cli.inputs.files import read_path
from webhook.cli.inputs.session import Session

ROOT: Final = Path(__file__).parents[2]
# A recorded review, which is also the envelope of the other pods.
_RECORDED: Final = "003-create-pod-no-accelerator"
# Bytes. Pods of ML frameworks have dozens of variables; the recorded ones have two.
_POD_BYTES: Final = 4096
_LABELS: Final = 60
_KINDS: Final = (("11.4", T4), ("12.2", T4), ("12.2", V100), ("12.4", A100), ("12.8", A100), ("12.8", H100))
CUDA_12_2: Final = "nvidia/cuda:12.2.0-runtime-ubuntu22.04"
OVER_ONE_CARD: Final = {"tencent.com/vcuda-core": "150", "tencent.com/vcuda-memory": "8"}
OWN_AFFINITY: Final[dict[str, Any]] = {
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
                            {"key": "pool", "operator": "NotIn", "values": ["batch"]},
                        ]
                    }
                    for zone in ("z0", "z1")
                ]
            }
        }
    },
}


def recorded(case: str) -> bytes:
    """Return a recorded review with a pod of a usual size."""
    return _encoded(json.loads((ROOT / "tests/reviews" / case / "request.json").read_text("utf-8")))


def gpu_review(
    limits: dict[str, str], image: str = CUDA_12_2, *args: str, containers: int = 1, **spec: Any
) -> bytes:
    """Return the review of a pod with so many containers of these limits; spec: its other fields."""
    review = json.loads((ROOT / "tests/reviews" / _RECORDED / "request.json").read_text("utf-8"))
    pod = review["request"]["object"]
    (first,) = pod["spec"]["containers"]
    first |= {"image": image, "args": [*args], "resources": {"limits": limits, "requests": limits}}
    pod["spec"] |= spec
    encoded = _encoded(review)
    if containers == 1:
        return encoded
    review = json.loads(encoded)
    (first,) = review["request"]["object"]["spec"]["containers"]
    review["request"]["object"]["spec"]["containers"] = [
        first | {"name": f"container-{number}"} for number in range(containers)
    ]
    return msgspec.json.encode(review)


def _encoded(review: dict[str, Any]) -> bytes:
    """Return a review with variables added to its pod, up to a usual size."""
    pod = review["request"]["object"]
    environment = pod["spec"]["containers"][0].setdefault("env", [])
    while len(msgspec.json.encode(pod)) < _POD_BYTES:
        environment.append({"name": f"VARIABLE_{len(environment)}", "value": "x" * 40})
    return msgspec.json.encode(review)


# Reviews by the work of the decision: only rules, no nodes.
BY_RULES: Final = {
    "no accelerator": recorded(_RECORDED),
    "resource rules": recorded("000-create-pod-vcuda-limits-only"),
    "default set": recorded("002-create-pod-vcuda-memory-alone"),
    "variables injected": recorded("005-create-pod-mps"),
    "denied": gpu_review(OVER_ONE_CARD),
}
# Reviews by the work of the decision: rules and nodes.
BY_NODES: Final = {
    "affinity injected": gpu_review({GPU: "1"}),
    "affinity injected, pod has affinity": gpu_review({GPU: "1"}, **OWN_AFFINITY),
    "affinity injected, for a flag": gpu_review({GPU: "1"}, "vllm/vllm-openai:v0.8.4", "--dtype=bfloat16"),
    "denied: no compatible node": gpu_review({GPU: "1"}, "team/app:cuda13.0"),
}
# Of GPUs by Dynamic Resource Allocation: products and CUDA versions; the selector of a claim; an image that
# needs what most of them have; devices of one node.
_DRA_KINDS: Final = (
    (T4_NAME, "12.2"),
    (A100_NAME, "12.4"),
    (A100_NAME, "12.8"),
    (H100_NAME, "12.8"),
    (H100_NAME, "13.0"),
)
_SELECTOR: Final = f'device.attributes["{DRIVER}"].cudaDriverVersion.compareTo(semver("12.4.0")) >= 0'
_CUDA_12_4: Final = "team/app:cuda12.4"
DEVICES: Final = 8


def claim_review() -> bytes:
    """Return the review of a pod whose container uses a claim of a template."""
    review = msgspec.json.decode(gpu_review({}, _CUDA_12_4))
    pod = review["request"]["object"]
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    _first(pod)["resources"] = {"claims": [{"name": "gpu"}]}
    return msgspec.json.encode(review)


def _first(pod: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = pod["spec"]["containers"][0]
    return container


def _image(pod: dict[str, Any], number: int) -> None:
    _first(pod)["image"] = f"registry.example.com/team-{number}/train:cuda12.2-v1"


def _name(pod: dict[str, Any], number: int) -> None:
    _first(pod)["name"] = f"train-{number}"


def _labels(pod: dict[str, Any], number: int) -> None:
    pod["metadata"]["labels"] = {"app": "train", "batch.kubernetes.io/job-name": f"train-{number}"}


def _arguments(pod: dict[str, Any], number: int) -> None:
    _first(pod)["args"] = ["train.py", f"--seed={number}"]


def _job(pod: dict[str, Any], number: int) -> None:
    for change in (_image, _name, _labels, _arguments):
        change(pod, number)


def _quantity(pod: dict[str, Any], number: int) -> None:
    for quantities in _first(pod)["resources"].values():
        quantities[next(name for name in quantities if "/" in name)] = str(100 * (number + 1))


# Reviews by the work of the decision where GPUs are devices of Dynamic Resource Allocation.
BY_DEVICES: Final = {
    "affinity injected": gpu_review({GPU: "1"}, _CUDA_12_4),
    "claim": claim_review(),
    "denied: no compatible node": gpu_review({GPU: "1"}, "team/app:cuda13.1"),
}

# Changes a pod in place by a number, so that no pod before it has the same value.
Change = Callable[[dict[str, Any], int], None]
OWN: Final[dict[str, Change]] = {
    "own image": _image,
    "own container name": _name,
    "own labels": _labels,
    "own arguments": _arguments,
    "own quantity": _quantity,
}
# Image, container name, labels and arguments.
NEW_JOB: Final[dict[str, Change]] = {"new job": _job}


def changed(body: bytes, number: int, *changes: Change) -> bytes:
    """Return a review of the same pod after changes by a number."""
    review = msgspec.json.decode(body)
    for change in changes:
        change(review["request"]["object"], number)
    return msgspec.json.encode(review)


def request_of(body: bytes) -> AdmissionRequest:
    """Return the request of a review."""
    return decode_review(body, mutating=True).request


@cache
def builtin() -> Loaded:
    """Return the built-in rules."""
    return Session().read_rules([])


def catalog() -> list[dict[str, Any]]:
    """Return the ConfigMaps of the built-in rules."""
    texts = [text for _, text in read_path(str(ROOT / "rules/catalog"))]
    documents = [document for text in texts for document in yaml.load_all(text, Loader=yaml.CSafeLoader)]
    return [document for document in documents if document["kind"] == "ConfigMap"]


def _loaded(texts: Iterable[tuple[str, str]]) -> RuleSet:
    read = load_rules(texts)
    assert not read.errors, read.errors[0]
    return read.rules


def additional_rule(number: int, default: str = "") -> str:
    """Return a resource rule of another vendor; two of them are a group. default: its default value."""
    vendor = f"vendor{number // 2}"
    checks = [{"expression": "value <= 100 || value % 100 == 0", "messageEn": "whole cards"}]
    return resource_rule(
        f"{vendor}.example.com/device{number}", group=vendor, validations=checks, defaultValue=default
    )


@cache
def with_additional(count: int) -> RuleSet:
    """Return the built-in rules and so many rules of other vendors."""
    texts = [(f"{number}.yaml", additional_rule(number)) for number in range(count)]
    return RuleSet.of([*builtin().rules, *_loaded(texts)])


def with_exemptions() -> RuleSet:
    """Return the built-in rules and an exemption from the first rule that denies a share above one card."""
    text = exemption("cf-crl-gpu-manager-*", expires="2999-12-31")
    return RuleSet.of([*builtin().rules, *_loaded([("exemption.yaml", text)])])


def node_of(number: int) -> dict[str, Any]:
    """Return a node of a cluster with node and GPU feature discovery; one of ten has no GPU.

    Two of ten are shared by GPU-Manager. Each has labels that no other has, and its strings are its own, as
    those of a node read from JSON.
    """
    name = f"ip-10-{number >> 16}-{number >> 8 & 255}-{number & 255}.eu-central-1.compute.internal"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/zone": f"z{number % 3}",
        "topology.example.com/rack": f"rack-{number // 32}",
        "node.example.com/instance-id": f"i-{number * 2654435761 % 2**64:017x}",
        "nvidia.com/gfd.timestamp": str(1_750_000_000 + number * 7),
    }
    labels |= {
        f"feature.node.kubernetes.io/cpu-cpuid.feature-{at}": "true" if (number + at) % 11 else f"v{at % 4}"
        for at in range(_LABELS - len(labels))
    }
    if number % 10 == 9:
        document = node(name, labels, cpu="96")
    else:
        resources: dict[str, str | int] = {**(VGPU if number % 10 in (3, 6) else {GPU: "8"})}
        document = node(name, labels | gfd(*_KINDS[number % len(_KINDS)]), **resources)
    read: dict[str, Any] = json.loads(json.dumps(document))
    return read


@cache
def cluster(size: int) -> Inventory:
    """Return the inventory of so many nodes."""
    return inventory_of([node_of(number) for number in range(size)])


@cache
def device_cluster(size: int) -> Inventory:
    """Return the inventory of so many nodes with GPUs by Dynamic Resource Allocation, and a template."""
    objects = [device_class(), claim_template("gpu", _SELECTOR, namespace="ml")]
    for number in range(size):
        kind = number % len(_DRA_KINDS)
        document = node_of(10 * number + 9)  # without GPUs of a device plugin
        document["metadata"]["labels"]["pool"] = f"pool-{kind}"
        objects += [document, gpus_of(document["metadata"]["name"], *_DRA_KINDS[kind], DEVICES)]
    return inventory_of(objects)
