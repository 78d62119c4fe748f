"""Laws of caches and recorders: a decision depends on the request, the policy and the nodes alone."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.decision.pipeline import Snapshot, decide
from rules.decision.trace import explain
from rules.kube.json_patch import ObjectError
from rules.model.decision import AdmissionRequest, Decision
from rules.nodes.inventory import Inventory
from rules.nodes.inventory_document import inventory_of
from rules.text import bounded_cache
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
from tests.support.laws import EXAMPLES
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

CHUNK: Final = 250  # requests that are decided in mixed order, by one policy

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
    exemption("first", "compatibility", name="short", expires="2025-12-31", namespaces={"include": ["team"]}),
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

# Values in which pods differ: first those that Python or a quantity takes for equal, and JSON does not.
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
    "now": [0.0, 1.77e9, math.inf],  # before both exemptions expire, between, after
    "mutating": [True, False],
    "nodes": [(), (0,), (1,), (0, 1), (0, 1, 2), (0, 1, 2, 3)],
}


# Values of a pod that rules complete and send to compatible nodes.
ORDINARY: Final[dict[str, Any]] = {
    **{name: values[0] for name, values in FIELDS.items()},
    "gpu": None,
    "image": cuda_image("12.2"),
    "second": None,
    "annotation": 1,
    "operator": "NotIn",
    "zone": "1",
    "mounts": [],
    "volumes": [],
    "tolerations": [],
    "from": [],
    "ipc": None,
    "account": "default",
    "selector": {},
    "now": math.inf,
    "nodes": (0, 1, 2, 3),
}


def _present(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _request(values: dict[str, Any]) -> tuple[AdmissionRequest, float]:
    """Return the request of one value for each of FIELDS, and its time."""
    limits = _present(**{name: values[{DEVICE: "limit", GPU: "gpu"}[name]] for name in values["order"]})
    variable = _present(name=values["variable"], value=values["value"], valueFrom=values["source"])
    main = container(
        limits,
        _present(**{DEVICE: values["request"]}),
        name=values["name"],
        env=[{"name": "B", "value": "bfloat16"}, variable],
        args=[values["word"]],
        **_present(image=values["image"], envFrom=values["from"], volumeMounts=values["mounts"]),
    )
    zone = {"key": "zone", "operator": values["operator"], "values": [values["zone"]]}
    document = pod(
        *[container(name="before")] * values["place"],
        main,
        *[main | {"name": values["second"]}] * bool(values["second"]),
        metadata={
            "labels": _present(put=values["label"], job=values["job"]) | values["labels"],
            "annotations": _present(**{CUDA: values["annotation"], "team/job": values["job"]}),
        },
        affinity=required({"matchExpressions": [zone]}, {"matchExpressions": [{**zone, "key": "pool"}]}),
        **_present(
            nodeName=values["node"],
            nodeSelector=values["selector"],
            serviceAccountName=values["account"],
            volumes=values["volumes"],
            tolerations=values["tolerations"],
            runtimeClassName=values["runtime"],
            schedulerName=values["scheduler"],
            hostIPC=values["ipc"],
        ),
    )
    if values["kind"] == "Deployment":
        document = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": document}}
    created = request(document, mutating=values["mutating"], namespace=values["namespace"])
    return created, values["now"]


def _text(decide_it: Callable[[], Decision]) -> str:
    """Return everything in a decision, in which 1 is not True; or what is wrong with the pod."""
    try:
        return repr(decide_it())
    except ObjectError as error:
        return str(error)


def _with_empty_caches(texts: Iterable[str], values: dict[str, Any]) -> str:
    """Return the decision of a new policy on new nodes, after all caches of values are cleared."""
    for name, module in [*sys.modules.items()]:
        for member in vars(module).values() if name.startswith("rules.") else ():
            if isinstance(cache := getattr(member, "__self__", None), bounded_cache._Cache):
                cache.clear()
            elif hasattr(member, "cache_clear") and member.cache_parameters()["maxsize"]:  # not a table
                member.cache_clear()
    rules, cluster = policy(*texts), _cluster(values["nodes"])
    return _text(lambda: decide(Snapshot(rules, cluster), *_request(values)))


def _cluster(numbers: Iterable[int]) -> Inventory:
    return inventory_of([NODES[number] for number in numbers])


@pytest.mark.parametrize("field", FIELDS)
@settings(max_examples=1 + EXAMPLES // 10)
@given(
    st.lists(st.sampled_from(RULES), min_size=4, unique=True),
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in FIELDS.items()}),
)
def test_a_decision_does_not_depend_on_what_was_decided_before(
    field: str, texts: list[str], first: dict[str, Any]
) -> None:
    """For pods that differ in one field, on nodes that come and go."""
    warm = policy(*texts)
    clusters = {numbers: _cluster(numbers) for numbers in FIELDS["nodes"]}
    pods = [first | {field: value} for value in FIELDS[field]]
    warm_answers = [
        _text(lambda values=values: decide(Snapshot(warm, clusters[values["nodes"]]), *_request(values)))  # type: ignore[misc]
        for values in [*pods, *pods]
    ]

    assert [_with_empty_caches(texts, values) for values in pods] * 2 == warm_answers


@pytest.mark.timeout(60 + EXAMPLES)
@pytest.mark.parametrize("seed", range(4))
def test_a_decision_does_not_depend_on_its_recorder_nor_on_its_turn(seed: int) -> None:
    """Each request is decided twice for admission and twice for explain, all in random order."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    clusters = {numbers: _cluster(numbers) for numbers in FIELDS["nodes"]}
    for _ in range(1 + EXAMPLES // 100):
        texts = chance.sample(RULES, chance.randint(4, len(RULES)))
        compiled = policy(*texts)
        requests = [
            ORDINARY | {name: chance.choice(FIELDS[name]) for name in chance.sample([*FIELDS], number)}
            for number in (chance.randint(0, 6) for _ in range(CHUNK))
        ]
        turns = [(at, explained) for at in range(CHUNK) for explained in (False, True) for _ in range(2)]
        decisions_by_request: dict[int, set[str]] = {at: set() for at in range(CHUNK)}
        for at, explained in chance.sample(turns, len(turns)):
            cluster, timed = clusters[requests[at]["nodes"]], _request(requests[at])
            decisions_by_request[at].add(
                _text(lambda: explain(Snapshot(compiled, cluster), *timed).decision)  # noqa: B023
                if explained
                else _text(lambda: decide(Snapshot(compiled, cluster), *timed))  # noqa: B023
            )

        assert [] == [requests[at] for at, decisions in decisions_by_request.items() if len(decisions) != 1]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from([None, *KINDS])), min_size=2))
def test_a_decision_does_not_depend_on_when_nodes_were_evaluated(
    changes: list[tuple[str, tuple[str, tuple[str, str]] | None]],
) -> None:
    """Before each node that joins, changes or leaves, or only at the end."""
    rules, created = policy(*RULES), request(gpu_pod(cuda_image("12.0"), nodeSelector={"zone": "a"}))
    evaluated = unused = inventory_of(node("old", gfd("11.4", T4, zone="a")))
    for name, kind in changes:
        joining = node(name, gfd(*kind, zone="b")) if kind else None
        evaluated, unused = (
            nodes.with_node(joining) if joining else nodes.without_node(name) for nodes in (evaluated, unused)
        )
        decide(Snapshot(rules, evaluated), created)

    assert decide(Snapshot(rules, unused), created) == decide(Snapshot(rules, evaluated), created)
