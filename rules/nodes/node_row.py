"""One node as the inventory stores it, read from a Node: its labels and its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from rules.kube.quantity import QuantityError, parse_quantity
from rules.kube.tolerations import Taint, read_taints
from rules.nodes.label_families import gpu_labels, gpu_resource_domains, tell_driver
from rules.nodes.label_index import Fact
from rules.nodes.node_capabilities import NodeReader, Problem
from rules.nodes.runtime_modes import HostRuntime, host_runtime

NODE: Final = "Node"


class InventoryError(ValueError):
    """The document does not contain nodes. The fault of the caller, never of an API server."""


def objects_of(document: object, path: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each object of a document with its path."""
    if isinstance(document, Mapping):
        kind = document.get("kind", "List" if "items" in document else NODE)
        if isinstance(kind, str) and kind.endswith("List"):
            yield from objects_of(document.get("items") or [], f"{path}.items")
        else:
            yield document, path
    elif isinstance(document, list | tuple):
        for at, item in enumerate(document):
            yield from objects_of(item, f"{path}[{at}]")
    else:
        raise InventoryError(f"{path}: expected a Node, a NodeList or a list of them, got {document!r:.60}")


def mapping(parent: Mapping[str, Any], name: str, path: str) -> Mapping[Any, Any]:
    """Return a member of an object that is an object, empty if absent. Raises InventoryError."""
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InventoryError(f"{path}.{name}: expected an object, got {value!r:.60}")
    return value


# Stands for any resource that a node may offer again.
ANY: Final = "*"
# In a Node's document: labels that it had until some minutes ago, and that count for now.
FORMER_LABELS: Final = "//formerLabels"
# Taints that Kubernetes and Karpenter set on a node while it starts, stops, or is unwell.
_PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")


class NodeState(NamedTuple):
    """What a Node says of itself; resources: names of those with more than zero.

    amounts: those of the resources of GPUs that are allocatable; may_have: those that it does not have now,
    but may have when it is ready again. Other amounts may change every minute, and are not kept. host: its
    own container runtime. former_driver: labels of its driver are FORMER_LABELS.
    """

    allocatable: frozenset[str]
    capacity: frozenset[str]
    ready: bool
    taints: frozenset[Taint]
    amounts: frozenset[tuple[str, int]] = frozenset()
    may_have: frozenset[tuple[str, int]] = frozenset()
    host: HostRuntime = HostRuntime()
    former_driver: bool = False

    @property
    def has_plugin(self) -> bool:
        """Whether a device plugin offers GPUs, or did."""
        names = self.allocatable | self.capacity
        return not gpu_resource_domains().isdisjoint(name.partition("/")[0] for name in names)


class NodeRow(NamedTuple):
    """One node. facts: its labels, and what else the inventory indexes. state: as its Node says."""

    name: str
    facts: tuple[Fact, ...]
    state: NodeState
    problems: tuple[Problem, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return {key: value for key, value in self.facts if isinstance(value, str)}

    def other(self, key: str) -> Any:
        """Return the value of a fact that is not a label; None if the node has none."""
        return next((value for name, value in self.facts if name == key), None)


def read_node(node: Mapping[str, Any], path: str) -> NodeRow:
    """Return a Node as it is written; path: its path in a document. Raises InventoryError."""
    metadata = mapping(node, "metadata", path)
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise InventoryError(f"{path}.metadata.name: expected the node's name, got {name!r:.60}")
    former = mapping(node, FORMER_LABELS, path)
    reader = NodeReader(name, {**mapping(metadata, "labels", f"{path}.metadata"), **former})
    status, spec = mapping(node, "status", path), mapping(node, "spec", path)
    allocatable = mapping(status, "allocatable", f"{path}.status")
    capacity = mapping(status, "capacity", f"{path}.status")
    is_ready = spec.get("unschedulable") is not True and _is_ready(status.get("conditions"))
    now, whole = _amounts(allocatable), _amounts(capacity)
    most = {name: max(now.get(name, 0), whole.get(name, 0)) for name in {**now, **whole}}
    state = NodeState(
        reader.resources(allocatable),
        reader.resources(capacity),
        is_ready,
        frozenset(each for each in read_taints(spec.get("taints")) if _lasts(each)),
        frozenset(now.items()) if is_ready else frozenset(),
        frozenset(each for each in most.items() if not is_ready or each[1] > now.get(each[0], 0)),
        host_runtime(reader.labels, mapping(status, "nodeInfo", f"{path}.status")),
        tell_driver(former),
    )
    return NodeRow(name, tuple(reader.labels.items()), state, tuple(reader.problems))


def returning_resources(
    offered: frozenset[str], state: NodeState, may_offer: frozenset[str], labels: Iterable[Fact]
) -> frozenset[str]:
    """Return the extended resources that a node does not offer now, but may offer again."""
    before = frozenset(name for name in offered | state.capacity | may_offer if "/" in name)
    missing = before - offered if state.ready else before
    if not gpu_resource_domains().isdisjoint(name.partition("/")[0] for name in before):
        return missing
    return missing | {ANY} if any(key in gpu_labels() for key, _ in labels) else missing


def _amounts(quantities: Mapping[Any, Any]) -> dict[str, int]:
    """Return the amounts above zero of the resources that stand for GPUs."""
    found = {}
    for name, quantity in quantities.items():
        if str(name).partition("/")[0] not in gpu_resource_domains():
            continue
        try:
            amount = int(parse_quantity(quantity))
        except QuantityError:
            continue
        if amount > 0:
            found[name] = amount
    return found


def _is_ready(conditions: object) -> bool:
    """Return whether the conditions of a node say that it is ready; without any it is."""
    found = conditions if isinstance(conditions, list | tuple) else ()
    kinds = (each for each in found if isinstance(each, Mapping) and each.get("type") == "Ready")
    return all(each.get("status") == "True" for each in kinds)


def _lasts(taint: Taint) -> bool:
    """Return whether a taint keeps pods away and says nothing about a state that passes."""
    return taint.keeps_out and not taint.key.startswith(_PASSING)
