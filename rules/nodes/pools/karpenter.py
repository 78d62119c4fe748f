"""NodePools of Karpenter.

Source: kubernetes-sigs/karpenter pkg/apis/v1/nodepool.go, pkg/scheduling/requirements.go and
pkg/controllers/provisioning (v1.14.1); https://karpenter.sh/docs/concepts/nodepools/
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from rules.kube.names import is_label_key, is_label_value
from rules.kube.quantity import QuantityError, parse_quantity
from rules.nodes.cloud_labels import (
    counted_resources,
    gpu_only_labels,
    has_no_gpu,
    kind_labels,
    product_of_label,
    provider_labels,
)
from rules.nodes.pools.document import NODEPOOL, NodePool, PoolDocument
from rules.text.i18n import Message

# Requirements of a NodePool: maxItems of its schema.
_MAX_REQUIREMENTS: Final = 100
# Values of one requirement: more than a cloud has instance types (about a thousand on AWS).
_MAX_VALUES: Final = 2000
# Maximum node pools of one NodePool, each with a term of affinity; about the number of instance types with
# GPUs of a cloud.
MAX_KINDS: Final = 64
_TEMPLATE: Final = ("spec", "template", "spec")
_REQUIREMENT: Final = Message("a requirement")


def read_node_pool(document: PoolDocument) -> list[NodePool]:
    """Return the node pools of a NodePool, one for each GPU name or instance type that it lists.

    A label is known if it is in the template, or if a requirement admits only one value; of several values,
    Karpenter takes the one that the pod requires. Resources are unknown even if the GPU is known, because the
    device plugin decides under which name it offers GPUs (`nvidia.com/gpu`, `nvidia.com/gpu.shared` for
    time-slicing, names of HAMi). A NodePool without GPUs of NVIDIA has none.

    can_scale is False if the NodePool is being deleted, or if a limit of zero admits no node with GPUs. It is
    True for a NodePool at its limit, because nodes that use it up may not have joined yet or may go, and for
    one that is not Ready, because it may become so.
    """
    admitted, others, without_gpu = _requirements(document)
    labels = {key: values[0] for key, values in admitted.items() if len(values) == 1}
    taints = tuple(document.taints(*_TEMPLATE, "taints"))
    can_scale = not document.deleted and not _limited_to_none(document)
    opened = (*provider_labels(document.facts), *others, *(key for key in admitted if key not in labels))
    pool = partial(document.pool, taints=taints, can_scale=can_scale, open_labels=opened)
    if without_gpu:
        return [pool(labels, resources=())]
    # Of several lists, the shortest gives the fewest terms; Karpenter then picks the cheapest type of each.
    kinds = [key for key in kind_labels(document.facts) if 1 < len(admitted.get(key, ())) <= MAX_KINDS]
    if not kinds or any(
        product_of_label(document.facts, key, labels[key])
        for key in kind_labels(document.facts)
        if key in labels
    ):
        return [pool(labels)]
    key = min(kinds, key=lambda candidate: len(admitted[candidate]))
    return [pool({**labels, key: value}) for value in admitted[key]]


def _requirements(document: PoolDocument) -> tuple[dict[str, list[str]], list[str], bool]:
    """Return the possible values of labels, labels with any value, and whether no node has a GPU of NVIDIA.

    An unreadable requirement is ignored, so that more nodes are possible, not fewer.
    """
    admitted: dict[str, list[str]] = {}
    if is_label_value(document.name):
        admitted[NODEPOOL] = [document.name]
    for label, stated in document.labels("spec", "template", "metadata", "labels").items():
        admitted.setdefault(label, [stated])
    others: list[str] = []
    excluded: dict[str, set[str]] = {}
    without_gpu = False
    for path, requirement in document.objects(*_TEMPLATE, "requirements", limit=_MAX_REQUIREMENTS):
        key, operator, values = requirement.get("key"), requirement.get("operator"), _values(requirement)
        if not isinstance(key, str) or not is_label_key(key) or values is None:
            document.report(path, dict(requirement), _REQUIREMENT)
        elif operator == "In" and values:
            allowed = set(values)
            admitted[key] = [value for value in admitted.get(key, dict.fromkeys(values)) if value in allowed]
        elif operator == "NotIn":
            excluded.setdefault(key, set()).update(values)
            others.append(key)
        elif operator == "DoesNotExist":
            without_gpu |= key in gpu_only_labels(document.facts)
        elif operator in ("Exists", "Gt", "Lt", "Gte", "Lte"):
            others.append(key)
        else:
            document.report(path, dict(requirement), _REQUIREMENT)
    possible = {}
    for label, listed in admitted.items():
        if left := [value for value in listed if value not in excluded.get(label, ())]:
            possible[label] = left
            without_gpu |= all(has_no_gpu(document.facts, label, value) for value in left)
        else:
            expected = Message("a value that all requirements admit")
            document.report(label, left, expected)
    return possible, others, without_gpu


def _values(requirement: Mapping[Any, Any]) -> list[str] | None:
    """Return the values of a requirement, or None if they cannot be read."""
    values = requirement.get("values")
    if values is None:
        return []
    if not isinstance(values, list | tuple) or len(values) > _MAX_VALUES:
        return None
    return list(values) if all(is_label_value(value) for value in values) else None


def _limited_to_none(document: PoolDocument) -> bool:
    limits = document.mapping("spec", "limits")
    return any(
        _is_zero(document, name, limits[name])
        for name in sorted(counted_resources(document.facts))
        if name in limits
    )


def _is_zero(document: PoolDocument, name: str, limit: object) -> bool:
    try:
        if isinstance(limit, str | int | float):
            return parse_quantity(limit) <= 0
    except QuantityError:
        pass
    document.report(f"spec.limits.{name}", limit, Message("a quantity"))
    return False
