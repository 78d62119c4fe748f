"""One node as the inventory stores it, read from a Node: its labels and its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from rules.kube.quantity import QuantityError, parse_quantity
from rules.kube.tolerations import Taint, read_taints
from rules.nodes.label_families import gpu_labels, gpu_resource_domains, report_driver
from rules.nodes.label_index import Fact
from rules.nodes.node_capabilities import NodeReader, Problem
from rules.nodes.runtime_modes import HostRuntime, host_runtime
from rules.text.i18n import Message, MessageError

NODE: Final = "Node"
_NO_NODES: Final = Message("{path}: expected a Node, a NodeList or a list of them, got {actual!r:.60}")
_NO_OBJECT: Final = Message("{path}: expected an object, got {actual!r:.60}")
_NO_NAME: Final = Message("{path}.metadata.name: expected the node's name, got {actual!r:.60}")


class InventoryError(MessageError):
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
        raise InventoryError(_NO_NODES.having(path=path, actual=document))


def mapping(parent: Mapping[str, Any], name: str, path: str) -> Mapping[Any, Any]:
    """Return a member of an object that is an object, empty if absent. Raises InventoryError."""
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InventoryError(_NO_OBJECT.having(path=f"{path}.{name}", actual=value))
    return value


# Stands for any resource that a node may offer again.
ANY: Final = "*"
# In a Node's document: labels that it had until some minutes ago, and that are still used.
FORMER_LABELS: Final = "//formerLabels"
# Taints that Kubernetes and Karpenter set on a node while it starts, stops, or is unwell.
_TEMPORARY: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")


class NodeState(NamedTuple):
    """The state of a Node, by its own document."""

    # The names of resources with more than zero.
    allocatable: frozenset[str]
    capacity: frozenset[str]
    ready: bool
    taints: frozenset[Taint]
    # Amounts of GPU resources: allocatable now, and after recovery if different. Other amounts change often.
    amounts: frozenset[tuple[str, int]] = frozenset()
    may_have: frozenset[tuple[str, int]] = frozenset()
    host: HostRuntime = HostRuntime()  # its own container runtime
    former_driver: bool = False  # labels of its driver are FORMER_LABELS

    @property
    def has_plugin(self) -> bool:
        """Whether a device plugin offers GPUs, or did."""
        names = self.allocatable | self.capacity
        return not gpu_resource_domains().isdisjoint(name.partition("/")[0] for name in names)


class IndexedNode(NamedTuple):
    """One node of an inventory."""

    name: str
    facts: tuple[Fact, ...]  # its labels, and other facts that the inventory indexes
    state: NodeState
    problems: tuple[Problem, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """The node's labels."""
        return {key: value for key, value in self.facts if isinstance(value, str)}

    def other(self, key: str) -> Any:
        """Return the value of a fact that is not a label; None if the node has none."""
        return next((value for name, value in self.facts if name == key), None)


def read_node(node: Mapping[str, Any], path: str) -> IndexedNode:
    """Return a Node as it is written. path: its path in a document. Raises InventoryError."""
    metadata = mapping(node, "metadata", path)
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise InventoryError(_NO_NAME.having(path=path, actual=name))
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
        frozenset(taint for taint in read_taints(spec.get("taints")) if _lasts(taint)),
        frozenset(now.items()) if is_ready else frozenset(),
        frozenset(amount for amount in most.items() if not is_ready or amount[1] > now.get(amount[0], 0)),
        host_runtime(reader.labels, mapping(status, "nodeInfo", f"{path}.status")),
        report_driver(former),
    )
    return IndexedNode(name, tuple(reader.labels.items()), state, tuple(reader.problems))


def recovering_resources(
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
    amounts = {}
    for name, quantity in quantities.items():
        if str(name).partition("/")[0] not in gpu_resource_domains():
            continue
        try:
            amount = int(parse_quantity(quantity))
        except QuantityError:
            continue
        if amount > 0:
            amounts[name] = amount
    return amounts


def _is_ready(conditions: object) -> bool:
    """Return whether a node is ready by its conditions; True without any."""
    listed = conditions if isinstance(conditions, list | tuple) else ()
    objects = (condition for condition in listed if isinstance(condition, Mapping))
    return all(condition.get("status") == "True" for condition in objects if condition.get("type") == "Ready")


def _lasts(taint: Taint) -> bool:
    """Return whether a taint keeps pods away and is not of a temporary state."""
    return taint.keeps_out and not taint.key.startswith(_TEMPORARY)
