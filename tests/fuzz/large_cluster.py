"""A large cluster and strict rules, in which large objects are decided: 10,000 nodes of 100 kinds."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from msgspec.structs import replace

from rules.decision.policy import Policy, compile_policy
from rules.model.rule import Action, RuleSet
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.text.i18n import Language
from tests.bench.cases import builtin
from tests.support.builders import exemption, injection_rule, loaded
from tests.support.dra_clusters import A100_NAME, H100_NAME, T4_NAME, claim_template, device_class, gpus_of
from tests.support.node_builders import (
    A100,
    DRIVERS,
    GPU,
    H100,
    P40,
    RTX4090,
    T4,
    V100,
    compatibility_rule,
    gfd,
    node,
    node_profile,
)

NAMESPACE: Final = "ml"
NODES: Final = 10_000
KINDS: Final = 100
# Kinds of GPUs; with the versions of CUDA that DRIVERS has, and whether the CPU is another, 108.
_GPUS: Final = (T4, V100, P40, A100, H100, RTX4090)
_DEVICES: Final = ((T4_NAME, "12.2"), (A100_NAME, "12.4"), (A100_NAME, "12.8"), (H100_NAME, "13.0"))
_SELECTOR: Final = 'device.attributes["gpu.nvidia.com"].cudaDriverVersion.compareTo(semver("12.4.0")) >= 0'
# Templates of claims: with one request, with as many as the API allows, with the longest selectors.
TEMPLATES: Final = ("one", "most", "long")
_TAINT: Final = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def _node_of(number: int) -> dict[str, Any]:
    kind = number % KINDS
    versions = list(DRIVERS)
    gpu, cuda = _GPUS[kind % len(_GPUS)], versions[kind // len(_GPUS) % len(versions)]
    labels = gfd(cuda, gpu) | {
        "kubernetes.io/hostname": f"node-{number}",
        "kubernetes.io/arch": "amd64" if kind < len(_GPUS) * len(versions) else "arm64",
        "topology.kubernetes.io/zone": f"z{number % 3}",
        "node.kubernetes.io/instance-type": f"type-{kind}",
        "rack-position": f"{number}",
    }
    document = node(
        f"node-{number}", labels, **{GPU: "8", "nvidia.com/gpu.shared": "8", "tencent.com/vcuda-core": "8"}
    )
    if number % 4 == 0:
        document["spec"] = {"taints": [_TAINT]}
    return document


def _with_devices() -> list[dict[str, Any]]:
    objects = [device_class(), *_templates()]
    for number in range(NODES // 100):
        name = f"dra-{number}"
        objects += [node(name, {"pool": f"p{number % 7}"}, cpu="96"), gpus_of(name, *_DEVICES[number % 4])]
    return objects


def _templates() -> list[dict[str, Any]]:
    one = claim_template("one", _SELECTOR, namespace=NAMESPACE)
    most = claim_template("most", _SELECTOR, namespace=NAMESPACE)
    long = claim_template("long", _SELECTOR, namespace=NAMESPACE)
    for document, length in ((most, 0), (long, 90)):
        devices = document["spec"]["spec"]["devices"]
        exact = devices["requests"][0]["exactly"]
        selectors = exact["selectors"] + [
            {"cel": {"expression": " && ".join([_SELECTOR] * (length or 1))}} for _ in range(1)
        ]
        several = [{"name": f"s{at}", **exact, "selectors": selectors} for at in range(8)]
        devices["requests"] = [{"name": f"r{at}", "firstAvailable": several} for at in range(32)]
    return [one, most, long]


def nodes() -> list[dict[str, Any]]:
    """Return the nodes, without those that have devices of DRA."""
    return [_node_of(at) for at in range(NODES)]


@cache
def inventory(number: int) -> Inventory:
    """Return the cluster; number: 1 for one with devices of DRA, too."""
    return inventory_of([*nodes(), *(_with_devices() if number else ())])


@cache
def policy(number: int) -> Policy:
    """Return the built-in rules; 1: which only warn; 2: and some by labels; 3: and pools, in Chinese."""
    rules = builtin().rules
    if number == 1:
        warning = (replace(rule, action=Action.WARN) for rule in rules.compatibility)
        return compile_policy(
            RuleSet.of([rule for rule in rules if rule not in rules.compatibility] + [*warning])
        )
    if number == 0:
        return compile_policy(rules)
    texts = [
        compatibility_rule(
            name=f"own-{at}",
            match={
                "resources": [GPU, "nvidia.com/*"],
                "podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                "conditions": ["!('x' in pod.labels)", "!('y' in pod.annotations)"],
            },
        )
        for at in range(3)
    ]
    texts.append(exemption("own-0", expires="2999-12-31"))
    texts.append(
        injection_rule(
            {"env": [{"name": "A", "value": "b"}], "labels": {"injected": "yes"}, "volumeMounts": []},
            match={"resources": [GPU]},
        )
    )
    if number == 3:
        texts += [
            node_profile(
                name=f"profile-{at}",
                match={"nodeLabels": {"pool": f"p{at}"}},
                labelsAtCreation={"pool": f"p{at}"},
                taints=[_TAINT | {"value": f"v{at}"}],
            )
            for at in range(100)
        ]
    own = loaded(*texts)
    assert not own.errors, own.errors[0]
    language = Language("zh") if number == 3 else Language.EN
    return compile_policy(RuleSet.of([*rules, *own.rules]), language)
