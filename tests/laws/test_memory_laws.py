"""Memories are not seen: a decision does not depend on what was decided before, nor on what no gist tells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.compatibility.node_evaluation import node_evaluator
from rules.cuda import nvidia_require as require
from rules.decision.pipeline import decide
from rules.decision.policy import Policy
from rules.decision.recorder import DecisionRecorder
from rules.kube.json_patch import ObjectError
from rules.model.request import AdmissionRequest
from rules.nodes import node_affinity as affinity
from rules.nodes import node_selector as selector
from rules.nodes.inventory import Inventory
from tests.support.builders import (
    DEVICE,
    container,
    exemption,
    injection_rule,
    pod,
    policy,
    request,
    resource_rule,
)
from tests.support.node_builders import (
    CUDA,
    GPU,
    H100,
    T4,
    VLLM,
    compatibility_rule,
    cuda_image,
    gfd,
    gpu_pod,
    node,
    required,
)

RULES: Final = [
    resource_rule(
        validations=[{"expression": "value == 1"}, {"expression": "container.image != 'team/app:v1'"}],
        enforcementAction="warn",
    ),
    resource_rule(
        "vendor.com/*",
        group="all",
        dataType="float",
        requests="fromLimits",
        validations=[{"expression": "limits.all(name, limits[name] < 2)"}],
        enforcementAction="warn",
    ),
    resource_rule(GPU, group="gpu", excludeResources=DEVICE, defaultValue="1"),
    injection_rule(
        {"env": [{"name": "A", "value": "12.4"}], "labels": {"put": "in"}},
        name="first",
        match={"resources": ["vendor.com/*"], "conditions": ["limits['vendor.com/device'] == 1"]},
        override=True,
    ),
    injection_rule(
        {"env": [{"name": "COUNT", "fromResource": {"name": DEVICE}}], "annotations": {CUDA: "11.4"}},
        name="second",
        match={"podSelector": {"matchLabels": {"put": "in"}}},
    ),
    injection_rule(
        {
            "volumes": [{"name": "v", "emptyDir": {}}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "runtimeClassName": "r",
            "schedulerName": "s",
            "hostIPC": True,
        },
        name="third",
        match={"namespaces": {"exclude": ["other"]}},
    ),
    injection_rule(
        {"env": [{"name": "A", "value": "1"}, {"name": "DTYPE", "value": "bfloat16"}]},
        name="fourth",
        match={"conditions": ["'job' in pod.labels && pod.annotations['team/job'] != '1'"]},
        enforcementAction="dryrun",
    ),
    injection_rule(
        {"env": [{"name": "IMAGE", "value": "1"}]},
        name="fifth",
        match={"images": ["*:v1"], "conditions": ["container.image.contains('app') || 'put' in pod.labels"]},
    ),
    injection_rule(
        {"env": [{"name": "LABEL", "value": "1"}]},
        name="sixth",
        match={
            "conditions": [
                "container.image.contains('vllm') || pod.labels.exists(key, pod.labels[key].contains('1'))",
                "container.name != 'other' || limits.size() > 1",
            ]
        },
    ),
    injection_rule(
        {"env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": "--dtype=bfloat16"}]},
        name="seventh",
        match={"resources": [GPU], "conditions": ["!pod.labels.exists(key, key == 'app')"]},
    ),
    exemption("cf-crl-group-*", expires="2026-12-31", serviceAccounts=["trial"]),
    exemption(
        "first",
        "compatibility",
        name="short",
        expires="2025-12-31",
        namespaces={"include": ["team"]},
    ),
    compatibility_rule(match={"resources": [GPU, DEVICE]}),
    compatibility_rule(name="trial", sharing="virtual", enforcementAction="warn"),
]
DEVICES: Final[dict[str, str | int]] = {GPU: "1", DEVICE: 1}
NODES: Final = [
    node("a", gfd("11.4", T4, zone="a"), **DEVICES),
    node("b", gfd("12.2", T4, zone="b")),
    node("c", gfd("12.4", H100, zone="1"), **DEVICES),
    node("b", gfd("13.0", T4, zone="b")),
]

KINDS: Final = [(cuda, gpu) for cuda in ("11.4", "12.2", "12.4", "13.0") for gpu in (T4, H100)]

# What tells one pod from another: first what is one for Python or as a quantity, and is not the same in JSON.
ONES: Final = ["1", 1, True, 1.0, "1.0", "1000m"]
FIELDS: Final[dict[str, list[Any]]] = {
    "limit": [*ONES, "2", "0", None, "", [], {}],
    "request": [None, *ONES, "2", {}],
    "gpu": [*ONES, None, "0"],
    "order": [(DEVICE, GPU), (GPU, DEVICE)],
    "name": ["main", "other", "a-1", "a, b", "a: env A", "⟪0⟫", 1, True],
    "second": ["main", "other", "a-1", None],
    "image": [VLLM, cuda_image("12.2"), cuda_image("13.0"), "team/app:v1", "team/app:v2", "b:v1", 1, True],
    "variable": ["A", "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA", "VLLM_ADDITIONAL_ARGS", 1, True],
    "value": ["12.4", "cuda>=12.4", "--dtype=bfloat16", "$(B)", 1, True, None],
    "source": [None, {"secretKeyRef": {"name": "s", "key": "k"}}],
    "word": ["--dtype=bfloat16", "--dtype=$(B)", "$(A)", "--seed=1", "--seed=2", "vllm", 1, True],
    "label": ["in", "1", "2", 1, True],
    "labels": [{}, {"app": "a"}, {"app": "b"}, {"other": "1"}, {"other": "11"}, {"other": None}],
    "annotation": ["12.2", "12.4", "1", 1, True],
    "operator": ["In", "NotIn", "Gt", "Exists", 1, True],
    "zone": ["a", "1", 1, True, 1.0],
    "job": ["1", "2", 1, None],
    "volumes": [[{"name": "v"}], [{"name": "w"}], [], None, "v"],
    "mounts": [[{"name": "w", "mountPath": "/v"}], [{"name": "w", "mountPath": "/w"}], [], 1],
    "tolerations": [[{"operator": "Exists"}], [{"key": "gpu", "value": "x"}], [], None],
    "runtime": ["", "r", "t", None, 1],
    "scheduler": ["default-scheduler", "s", "t", ""],
    "ipc": [True, False, None, 1],
    "from": [[{"configMapRef": {"name": "c"}}], [{"prefix": "C", "secretRef": {"name": "c"}}], [], None, {}],
    "account": ["trial", "default", 1, None],
    "node": ["", "a", "b", 1, None],
    "selector": [{"zone": "a"}, {"zone": "1"}, {"zone": 1}, {}, None],
    "place": [0, 1],
    "kind": ["Pod", "Deployment"],
    "namespace": ["team", "other"],
    "now": [0.0, 1.77e9, math.inf],  # before two exemptions expire, between, after
    "mutating": [True, False],
    "nodes": [(), (0,), (1,), (0, 1), (0, 1, 2), (0, 1, 2, 3)],
}


def _present(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _asked(asked: dict[str, Any]) -> tuple[AdmissionRequest, float]:
    limits = _present(**{name: asked[{DEVICE: "limit", GPU: "gpu"}[name]] for name in asked["order"]})
    variable = _present(name=asked["variable"], value=asked["value"], valueFrom=asked["source"])
    main = container(
        limits,
        _present(**{DEVICE: asked["request"]}),
        name=asked["name"],
        env=[{"name": "B", "value": "bfloat16"}, variable],
        args=[asked["word"]],
        **_present(image=asked["image"], envFrom=asked["from"], volumeMounts=asked["mounts"]),
    )
    zone = {"key": "zone", "operator": asked["operator"], "values": [asked["zone"]]}
    document = pod(
        *[container(name="before")] * asked["place"],
        main,
        *[main | {"name": asked["second"]}] * bool(asked["second"]),
        metadata={
            "labels": _present(put=asked["label"], job=asked["job"]) | asked["labels"],
            "annotations": _present(**{CUDA: asked["annotation"], "team/job": asked["job"]}),
        },
        affinity=required({"matchExpressions": [zone]}, {"matchExpressions": [{**zone, "key": "pool"}]}),
        **_present(
            nodeName=asked["node"],
            nodeSelector=asked["selector"],
            serviceAccountName=asked["account"],
            volumes=asked["volumes"],
            tolerations=asked["tolerations"],
            runtimeClassName=asked["runtime"],
            schedulerName=asked["scheduler"],
            hostIPC=asked["ipc"],
        ),
    )
    if asked["kind"] == "Deployment":
        document = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": document}}
    asking = request(document, mutating=asked["mutating"], namespace=asked["namespace"])
    return asking, asked["now"]


def _told(
    rules: Policy,
    cluster: Inventory,
    asking: AdmissionRequest,
    now: float = math.inf,
    notes: type[DecisionRecorder] | None = None,
) -> str:
    """Return all of the decision on a pod, in which 1 is not true; or what is wrong with the pod."""
    try:
        return repr(decide(rules, cluster, asking, now, notes))
    except ObjectError as error:
        return str(error)


def _afresh(texts: Iterable[str], asked: dict[str, Any]) -> str:
    """Return the same of rules and nodes that were never asked before, by the whole pod, not by its gist."""
    node_evaluator.cache_clear()
    for memory in (selector._read, affinity._additions, require._read):
        memory.__self__.clear()  # type: ignore[union-attr]
    return _told(policy(*texts), _cluster(asked["nodes"]), *_asked(asked), DecisionRecorder)


def _cluster(numbers: Iterable[int]) -> Inventory:
    return Inventory.of([NODES[each] for each in numbers])


@pytest.mark.parametrize("field", FIELDS)
@settings(max_examples=12)
@given(
    st.lists(st.sampled_from(RULES), min_size=4, unique=True),
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in FIELDS.items()}),
)
def test_a_decision_does_not_depend_on_what_was_decided_before(
    field: str, texts: list[str], first: dict[str, Any]
) -> None:
    """On pods that differ in one thing, with nodes that come and go."""
    warm = policy(*texts)
    kept = {numbers: _cluster(numbers) for numbers in FIELDS["nodes"]}
    asked = [first | {field: value} for value in FIELDS[field]]
    found = [_told(warm, kept[each["nodes"]], *_asked(each)) for each in [*asked, *asked]]

    assert [_afresh(texts, each) for each in asked] * 2 == found


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from([None, *KINDS])), min_size=2))
def test_a_decision_does_not_depend_on_when_the_nodes_were_looked_at(
    changes: list[tuple[str, tuple[str, tuple[str, str]] | None]],
) -> None:
    """Before each node that joins, changes or leaves, or at the end alone."""
    rules, asking = policy(*RULES), request(gpu_pod(cuda_image("12.0"), nodeSelector={"zone": "a"}))
    looked_at = left_alone = Inventory.of(node("old", gfd("11.4", T4, zone="a")))
    for name, kind in changes:
        joining = node(name, gfd(*kind, zone="b")) if kind else None
        looked_at, left_alone = (
            each.with_node(joining) if joining else each.without_node(name)
            for each in (looked_at, left_alone)
        )
        _told(rules, looked_at, asking)

    assert _told(rules, left_alone, asking) == _told(rules, looked_at, asking)
