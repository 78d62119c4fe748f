"""A pod's spec to the matching nodes, compared with the reference implementation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rules.nodes.inventory_document import inventory_of
from rules.nodes.node_selector import candidates
from tests.fuzz.mutator import texts
from tests.support import reference_selector as reference

if TYPE_CHECKING:
    from collections.abc import Iterator

_LABELS: tuple[dict[str, str], ...] = (
    {},
    {"zone": "east", "cores": "64", "kubernetes.io/hostname": "n1"},
    {"zone": "", "cores": "9223372036854775807", "cuda-major-version": "12", "cuda-minor-version": "4"},
    {"zone": "west", "cores": "064", "cuda-major-version": "12", "cuda-minor-version": "10"},
    {"cores": "many", "cuda-major-version": "9223372036854775808", "cuda-minor-version": "0"},
    {"cores": "-1", "a.b-c/d_e.f": "0", "rack": "7"},
)
_NODES = [
    {
        "kind": "Node",
        "metadata": {"name": f"n{at}", "labels": labels},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    }
    for at, labels in enumerate(_LABELS)
]
_INVENTORY = inventory_of(_NODES)


def seeds() -> Iterator[bytes]:
    """Yield specs of every operator."""
    expressions: list[dict[str, Any]] = [
        {"key": key, "operator": operator} | ({"values": values} if values else {})
        for key in ("zone", "cores", "cuda-major-version")
        for operator, values in (
            ("In", ["east", "12"]),
            ("NotIn", ["west", ""]),
            ("Exists", []),
            ("DoesNotExist", []),
            ("Gt", ["11"]),
            ("Lt", ["065"]),
        )
    ]
    fields = [
        {"key": "metadata.name", "operator": operator, "values": ["n1"]} for operator in ("In", "NotIn")
    ]
    for expression in expressions:
        yield _spec([{"matchExpressions": [expression]}, {"matchFields": fields}])
    yield _spec([{"matchExpressions": expressions[:2], "matchFields": fields[1:]}, {}], nodeName="n3")
    yield json.dumps({"nodeSelector": {"zone": "east", "rack": "7"}, "nodeName": ""}).encode()


def _spec(terms: list[dict[str, Any]], **fields: Any) -> bytes:
    return json.dumps(reference.with_required(fields, terms)).encode()


def words() -> Iterator[str]:
    """Yield the strings of specs and nodes."""
    for seed in seeds():
        yield from texts(json.loads(seed))
    yield from texts(_NODES)


def check(data: bytes) -> None:
    """For any spec, valid or not."""
    try:
        spec = json.loads(data)
    except (ValueError, RecursionError):
        return
    if not isinstance(spec, dict):
        return
    expected = {f"n{at}" for at, node in enumerate(_NODES) if reference.may_go(node, spec)}
    assert set(_INVENTORY.names(candidates(_INVENTORY, spec))) == expected
