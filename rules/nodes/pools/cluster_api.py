"""Node groups of Cluster API that cluster-autoscaler scales.

Source: kubernetes/autoscaler cluster-autoscaler/cloudprovider/clusterapi, README.md, clusterapi_utils.go and
clusterapi_unstructured.go (2026-08-22)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from rules.kube.names import is_resource_pattern, parse_int64
from rules.kube.tolerations import Taint
from rules.nodes.pools.document import MAX_ENTRIES, NodePool, PoolDocument, is_taint
from rules.text.glob import is_glob
from rules.text.i18n import Message

_MAX_SIZE: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
_CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
LABELS_ANNOTATION: Final = f"{_CAPACITY}labels"
_TAINTS: Final = f"{_CAPACITY}taints"
_GPU_TYPE: Final = f"{_CAPACITY}gpu-type"
_GPU_COUNT: Final = f"{_CAPACITY}gpu-count"
_DRA_DRIVER: Final = f"{_CAPACITY}dra-driver"
# Characters of an annotation; Kubernetes limits all annotations of an object to 256 KiB.
_MAX_TEXT: Final = 256 * 1024
# Labels of machines with these domains, or domains below them, are set on their nodes.
# https://cluster-api.sigs.k8s.io/reference/api/metadata-propagation#machine
_NODE_ROLE: Final = "node-role.kubernetes.io"
_DOMAINS: Final = ("node-restriction.kubernetes.io", "node.cluster.x-k8s.io")
_COUNT: Final = Message("a number")


def read_annotations() -> tuple[str, ...]:
    """Return the annotations that are read."""
    return (_MAX_SIZE, LABELS_ANNOTATION, _TAINTS, _GPU_TYPE, _GPU_COUNT, _DRA_DRIVER)


def read_node_group(document: PoolDocument) -> list[NodePool]:
    """Return the node pool of a MachineDeployment, MachinePool or MachineSet.

    The list is empty if cluster-autoscaler does not scale it: it has no maximum size, or a MachineDeployment
    owns it. Resources are known if annotations state them. can_scale is False if the group is being deleted,
    its maximum is zero, or as many nodes are ready; until then, requested nodes may still join.
    """
    annotations = document.mapping("metadata", "annotations")
    if _owned(document) or (_MAX_SIZE not in annotations and not document.problems):
        return []
    labels = {
        key: value
        for key, value in document.labels("spec", "template", "metadata", "labels").items()
        if _on_nodes(key)
    }
    labels |= document.valid_labels(LABELS_ANNOTATION, dict(_pairs(document)))
    taints = (*document.taints("spec", "template", "spec", "taints"), *_taints(document))
    by_key = {(taint.key, taint.effect): taint for taint in taints}
    return [
        document.pool(
            labels,
            tuple(by_key.values()),
            _resources(document),
            can_scale=not document.deleted and not _full(document),
        )
    ]


def _owned(document: PoolDocument) -> bool:
    owners = document.objects("metadata", "ownerReferences")
    return document.kind == "MachineSet" and any(
        owner.get("kind") == "MachineDeployment" for _, owner in owners
    )


def _on_nodes(key: str) -> bool:
    domain = key.partition("/")[0]
    return domain == _NODE_ROLE or any(f".{domain}".endswith(f".{parent}") for parent in _DOMAINS)


def _full(document: PoolDocument) -> bool:
    maximum = _number(document, _MAX_SIZE)
    ready = document.field("status", "readyReplicas")
    if maximum is None:
        return False
    return maximum == 0 or (type(ready) is int and ready >= maximum)


def _resources(document: PoolDocument) -> tuple[tuple[str, int], ...] | None:
    """Return the GPUs of one node; None if they are not stated, or offered by a DRA driver."""
    name, count = _text(document, _GPU_TYPE), _number(document, _GPU_COUNT)
    if not name or not count or _text(document, _DRA_DRIVER):
        return None
    if is_resource_pattern(name) and not is_glob(name):
        return ((name, count),)
    document.report(_GPU_TYPE, name, Message("a resource such as nvidia.com/gpu"))
    return None


def _pairs(document: PoolDocument) -> Iterator[tuple[str, str]]:
    """Yield the labels of the annotation: `key=value,key=value`."""
    for pair in _parts(document, LABELS_ANNOTATION):
        key, equals, value = pair.partition("=")
        if equals:
            yield key, value
        else:
            document.report(LABELS_ANNOTATION, pair, Message("key=value"))


def _taints(document: PoolDocument) -> Iterator[Taint]:
    """Yield the taints of the annotation: `key=value:effect,key:effect`."""
    for entry in _parts(document, _TAINTS):
        left, _, effect = entry.rpartition(":")
        key, _, value = left.partition("=")
        taint = Taint(key, value, effect)
        if is_taint(taint):
            yield taint
        else:
            document.report(_TAINTS, entry, Message("key=value:effect"))


def _parts(document: PoolDocument, name: str) -> Iterator[str]:
    text = _text(document, name)
    parts = (part for part in text.split(",") if part)
    yield from islice(parts, MAX_ENTRIES)
    if more := next(parts, None):
        document.report(name, more, Message("at most {most} entries", most=MAX_ENTRIES))


def _text(document: PoolDocument, name: str) -> str:
    """Return an annotation; empty if it is absent or cannot be read."""
    text = document.field("metadata", "annotations", name)
    if isinstance(text, str) and len(text) <= _MAX_TEXT:
        return text
    if text is not None:
        document.report(name, text, Message("a text"))
    return ""


def _number(document: PoolDocument, name: str) -> int | None:
    """Return the number of an annotation; None if it is absent or cannot be read."""
    if not (text := _text(document, name)):
        return None
    if (number := parse_int64(text)) is None:
        document.report(name, text, _COUNT)
    return number
