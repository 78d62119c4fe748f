"""Reference implementation of node selection by the documentation: node by node, no code of the product.

Source: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
Also random nodes and pods, with which the product is compared to it.
"""

from __future__ import annotations

import string
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Json = Any
Node = dict[str, Any]

_ALPHANUMERIC = string.ascii_letters + string.digits


class InvalidError(Exception):
    """The API server would deny this."""


def _is_label_value(value: Json) -> bool:
    if not isinstance(value, str) or len(value) > 63:
        return False
    inside = all(character in _ALPHANUMERIC + "-_." for character in value)
    return value == "" or (inside and value[0] in _ALPHANUMERIC and value[-1] in _ALPHANUMERIC)


def _is_subdomain(value: str) -> bool:
    lower = string.ascii_lowercase + string.digits
    return 0 < len(value) <= 253 and all(
        part
        and part[0] in lower
        and part[-1] in lower
        and all(character in lower + "-" for character in part)
        for part in value.split(".")
    )


def _is_label_key(key: Json) -> bool:
    if not isinstance(key, str) or key.count("/") > 1:
        return False
    prefix, slash, name = key.rpartition("/")
    return name != "" and _is_label_value(name) and (not slash or _is_subdomain(prefix))


def _number(text: str) -> int | None:
    if not text or any(character not in string.digits for character in text):
        return None
    return int(text) if int(text) < 2**63 else None


def labels_of(node: Node) -> dict[str, str]:
    """Return the valid labels of a node."""
    labels = node["metadata"]["labels"].items()
    return {key: value for key, value in labels if _is_label_key(key) and _is_label_value(value)}


def _values(requirement: Json) -> list[str]:
    values = requirement.get("values")
    values = [] if values is None else values
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InvalidError
    return values


def _expression_matches(labels: dict[str, str], requirement: Json) -> bool:
    if not isinstance(requirement, dict) or not _is_label_key(requirement.get("key")):
        raise InvalidError
    key, operator, values = requirement["key"], requirement.get("operator"), _values(requirement)
    if not all(_is_label_value(value) for value in values):
        raise InvalidError
    if operator in ("In", "NotIn"):
        if not values:
            raise InvalidError
        inside = key in labels and labels[key] in values
        return inside if operator == "In" else not inside
    if operator in ("Exists", "DoesNotExist"):
        if values:
            raise InvalidError
        return (key in labels) is (operator == "Exists")
    if operator in ("Gt", "Lt"):
        if len(values) != 1 or _number(values[0]) is None:
            raise InvalidError
        number, bound = _number(labels.get(key, "")), _number(values[0])
        if number is None or bound is None:
            return False
        return number > bound if operator == "Gt" else number < bound
    raise InvalidError


def _field_matches(name: str, requirement: Json) -> bool:
    if not isinstance(requirement, dict) or requirement.get("key") != "metadata.name":
        raise InvalidError
    values, operator = _values(requirement), requirement.get("operator")
    if len(values) != 1 or not _is_subdomain(values[0]) or operator not in ("In", "NotIn"):
        raise InvalidError
    return (name == values[0]) is (operator == "In")


def term_matches(node: Node, term: Json) -> bool:
    """Return whether a nodeSelectorTerm matches a node."""
    if not isinstance(term, dict):
        return False
    expressions, fields = term.get("matchExpressions"), term.get("matchFields")
    expressions = [] if expressions is None else expressions
    fields = [] if fields is None else fields
    if not isinstance(expressions, list) or not isinstance(fields, list) or not (expressions or fields):
        return False
    try:
        # Lists, not generators: an invalid expression counts at any position.
        held = [_expression_matches(labels_of(node), expression) for expression in expressions]
        held += [_field_matches(node["metadata"]["name"], field) for field in fields]
    except InvalidError:
        return False
    return all(held)


def terms_match(node: Node, terms: Json) -> bool:
    """Return whether at least one nodeSelectorTerm matches a node."""
    return isinstance(terms, list) and any(term_matches(node, term) for term in terms)


def may_go(node: Node, spec: Json) -> bool:
    """Return whether a node matches a pod's spec; the selectors of a bound pod do not count."""
    if spec.get("nodeName") not in (None, ""):
        return bool(spec["nodeName"] == node["metadata"]["name"])
    selector = spec.get("nodeSelector")
    if selector is not None:
        if not isinstance(selector, dict):
            return False
        labels = labels_of(node)
        if not all(isinstance(value, str) and labels.get(key) == value for key, value in selector.items()):
            return False
    value: Json = spec
    for name in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        if not isinstance(value, dict):
            return False
        value = value.get(name)
        if value is None:
            return True
    return isinstance(value, dict) and terms_match(node, value.get("nodeSelectorTerms"))


def with_required(spec: Json, terms: Json) -> Json:
    """Return a copy of a pod's spec with these required nodeSelectorTerms."""
    changed = deepcopy(spec)
    place = changed
    for name in ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        place[name] = place.get(name) or {}
        place = place[name]
    place["nodeSelectorTerms"] = terms
    return changed


# Families of version labels as the product has them by default, and what they may hold.
CUDA_KEYS = (
    ("cuda-major-version", "cuda-minor-version"),
    ("nvidia.com/cuda.runtime-version.major", "nvidia.com/cuda.runtime-version.minor"),
    ("nvidia.com/cuda.runtime-version.full",),
    ("nvidia.com/cuda.runtime.major", "nvidia.com/cuda.runtime.minor"),
)
CAPABILITY_KEYS = (("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor"),)


def told_version(node: Node, families: tuple[tuple[str, ...], ...]) -> tuple[int, int | None] | None:
    """Return the version in a node's labels: the major, and the minor if it is valid; below 100 each."""
    labels = labels_of(node)
    for keys in families:
        if keys[0] in labels:
            whole = len(keys) == 1
            parts = labels[keys[0]].split(".") if whole else [labels.get(key, "") for key in keys]
            numbers = [None if (number := _number(part)) is None or number > 99 else number for part in parts]
            major, minor = numbers[0], numbers[1] if len(numbers) > 1 else None
            return None if major is None or (whole and minor is None) else (major, minor)
    return None


_NUMBERS = ["0", "1", "3", "4", "5", "8", "11", "12", "13", "012"]
_ODD = ["", "twelve", "-1", "+3", "12.4", "1_2", "9223372036854775807", "9223372036854775808", "0" * 20 + "4"]
_NAMES = [f"node-{number}" for number in range(6)]
_PLAIN_KEYS = ["zone", "kubernetes.io/hostname", "example.com/rack"]
_VERSION_KEYS = sorted({key for family in CUDA_KEYS + CAPABILITY_KEYS for key in family})

plain_values = st.sampled_from(["a", "b", "c", *_NUMBERS[:4]])
numbers = st.sampled_from(_NUMBERS)
version_values = st.one_of(numbers, numbers, numbers, st.sampled_from(_ODD))
whole_versions = st.one_of(
    st.builds("{}.{}".format, numbers, numbers), st.sampled_from(["12", "12.4.1", ".", "x.4"])
)
junk: st.SearchStrategy[Json] = st.recursive(
    st.sampled_from([None, True, 0, 12, 1.5, "", "a", "In"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)


def _labels(keys: list[str]) -> st.SearchStrategy[dict[str, str]]:
    def value(key: str) -> st.SearchStrategy[str]:
        if key.endswith("full"):
            return whole_versions
        return version_values if key in _VERSION_KEYS else plain_values

    return st.fixed_dictionaries({}, optional={key: value(key) for key in keys})


def _node(name: str, labels: dict[str, str]) -> Node:
    gpus = "0" if "zone" in labels else "4" if len(labels) % 2 else "8"
    allocatable = {"cpu": "8", "nvidia.com/gpu": gpus}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": allocatable},
    }


nodes = st.builds(_node, st.sampled_from(_NAMES), _labels(_PLAIN_KEYS + _VERSION_KEYS))
clusters = st.lists(nodes, max_size=8, unique_by=lambda node: node["metadata"]["name"])

_keys = st.sampled_from([*_PLAIN_KEYS, *_VERSION_KEYS[:6]])
_lists = st.lists(st.one_of(plain_values, version_values), min_size=1, max_size=3)
_expressions = st.one_of(
    st.fixed_dictionaries({"key": _keys, "operator": st.sampled_from(["In", "NotIn"]), "values": _lists}),
    st.fixed_dictionaries({"key": _keys, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
    st.fixed_dictionaries(
        {
            "key": _keys,
            "operator": st.sampled_from(["Gt", "Lt"]),
            "values": numbers.map(lambda number: [number]),
        }
    ),
)
_fields = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.sampled_from(_NAMES).map(lambda name: [name]),
    }
)
_odd_expressions = st.one_of(
    junk,
    st.fixed_dictionaries(
        {
            "key": st.one_of(_keys, st.sampled_from(["", "a b", "A/b", "a/b/c", "-a", "x" * 64]), junk),
            "operator": st.one_of(st.sampled_from(["In", "NotIn", "Exists", "Gt", "Lt", "in", "="]), junk),
        },
        optional={"values": st.one_of(_lists, st.lists(st.sampled_from([*_ODD, "a b", "x" * 64])), junk)},
    ),
)


def _terms(expressions: st.SearchStrategy[Json], fields: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(expressions, max_size=4),
            "matchFields": st.lists(fields, max_size=2),
        },
    )


sound_terms = _terms(_expressions, _fields)
any_terms = st.one_of(
    sound_terms,
    sound_terms,
    _terms(st.one_of(_expressions, _odd_expressions), st.one_of(_fields, _odd_expressions)),
    junk,
)
term_lists = st.lists(st.one_of(sound_terms, sound_terms, any_terms), max_size=4)


def _required(terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


_affinities = st.one_of(
    term_lists.map(_required),
    term_lists.map(_required),
    junk.map(_required),
    junk,
    junk.map(lambda value: {"nodeAffinity": value}),
    junk.map(lambda value: {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": value}}),
)
pod_specs = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": st.one_of(st.dictionaries(_keys, version_values, max_size=2), junk),
        "affinity": _affinities,
        "nodeName": st.one_of(st.sampled_from(["", *_NAMES]), junk),
    },
)
