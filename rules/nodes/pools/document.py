"""Pools of nodes that an autoscaler may add, and a tolerant reader for the objects that declare them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import Any, Final, NamedTuple

from rules.cuda.tables import Facts
from rules.kube.names import is_label_key, is_label_value, is_object_name
from rules.kube.tolerations import Taint
from rules.nodes.cloud_labels import cloud_capabilities, has_no_gpu
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities, NodeReader
from rules.text.i18n import Message


class AutoscalerStatus(NamedTuple):
    """The object in which cluster-autoscaler reports its state.

    Source: https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md
    """

    kind: str
    namespace: str
    name: str


AUTOSCALER_STATUS: Final = AutoscalerStatus("ConfigMap", "kube-system", "cluster-autoscaler-status")
KARPENTER: Final = "NodePool"


class NodePool(NamedTuple):
    """One kind of node that an autoscaler may add; undeclared facts are unknown."""

    name: str  # as users know it
    kind: str  # of the object that declares it
    labels: tuple[tuple[str, str], ...] = ()  # of a new node, which the autoscaler knows
    taints: tuple[Taint, ...] = ()
    resources: tuple[tuple[str, int], ...] | None = None  # extended resources with amounts; None: unknown
    capabilities: NodeCapabilities = NodeCapabilities()
    can_scale: bool = True  # a node can be added now
    open: tuple[str, ...] = ()  # prefixes of labels with undeclared values


# Kueue's ResourceFlavor also describes the nodes of a cluster without an autoscaler.
_FLAVOR: Final = "ResourceFlavor"


class DeclaredPools(NamedTuple):
    """The node pools that a cluster declares."""

    pools: tuple[NodePool, ...] = ()
    listed: frozenset[str] = frozenset()  # kinds whose objects are all in `pools`
    signs: frozenset[str] = frozenset()  # autoscalers with undeclared nodes, such as cluster-autoscaler
    problems: tuple[Message, ...] = ()  # of unreadable fields

    @property
    def autoscaled(self) -> bool:
        """Whether an autoscaler may add nodes."""
        return bool(self.signs or any(pool.can_scale and pool.kind != _FLAVOR for pool in self.pools))

    @property
    def lists_karpenter(self) -> bool:
        """Whether all of Karpenter's NodePools are known."""
        return KARPENTER in self.listed

    @property
    def lists_autoscaler_status(self) -> bool:
        """Whether it is known whether cluster-autoscaler runs."""
        return AUTOSCALER_STATUS.name in self.listed


# Labels or taints of a declared pool; as for a NodeProfile, more than a node group has.
MAX_ENTRIES: Final = 100
# Problems of one object; more do not help its author.
_MAX_PROBLEMS: Final = 16
# Characters of a text in a message.
_MAX_TEXT: Final = 60
# The beginning of every label.
ANY_LABEL: Final = ("",)
_NAMES: Final = LabelNames()
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# Karpenter ignores pods whose node affinity uses the hostname, or another label of its domain than these two.
# https://karpenter.sh/docs/concepts/scheduling/ and pkg/apis/v1/labels.go of kubernetes-sigs/karpenter
NODEPOOL: Final = "karpenter.sh/nodepool"
_HOSTNAME: Final = "kubernetes.io/hostname"
_KARPENTER: Final = "karpenter.sh/"
_OF_POOLS: Final = (NODEPOOL, "karpenter.sh/capacity-type")


class PoolDocument:
    """The fields of one object; an unreadable field is treated as absent, and added to `problems`."""

    __slots__ = ("_body", "facts", "kind", "name", "problems")

    def __init__(self, body: Mapping[str, Any], facts: Facts) -> None:
        self._body = body
        self.facts = facts
        self.problems: list[Message] = []
        self.kind = str(body.get("kind"))
        self.name = "?"
        name = self.field("metadata", "name")
        if isinstance(name, str) and is_object_name(name):
            self.name = name
        else:
            self.report("metadata.name", name, Message("a name"))

    def report(self, path: str, value: object, expected: Message) -> None:
        """Add a problem: a value is not the expected one."""
        where, shown = f"{self.kind} {self.name}: {path}", _shown(value)
        problem = Message(
            "{where}: expected {expected}, found {shown}; ignored",
            where=where,
            expected=expected,
            shown=shown,
        )
        if len(self.problems) < _MAX_PROBLEMS and problem not in self.problems:
            self.problems.append(problem)

    def field(self, *path: str) -> Any:
        """Return a field; None if it is absent or cannot be reached."""
        *parents, last = path
        return self.mapping(*parents).get(last)

    def mapping(self, *path: str) -> Mapping[Any, Any]:
        """Return an object; empty if it is absent or cannot be read."""
        value: Mapping[Any, Any] = self._body
        for depth, name in enumerate(path, start=1):
            member = value.get(name)
            if not isinstance(member, Mapping):
                if member is not None:
                    self.report(".".join(path[:depth]), member, Message("an object"))
                return {}
            value = member
        return value

    def objects(self, *path: str, limit: int = MAX_ENTRIES) -> Iterator[tuple[str, Mapping[Any, Any]]]:
        """Yield the objects of a list with their paths, up to the limit; a longer list is reported."""
        name, entries = ".".join(path), self.field(*path)
        if entries is None:
            return
        if not isinstance(entries, list | tuple):
            self.report(name, entries, Message("a list"))
            return
        if len(entries) > limit:
            self.report(name, len(entries), Message("at most {most} entries", most=limit))
        for at, entry in enumerate(entries[:limit]):
            if isinstance(entry, Mapping):
                yield f"{name}[{at}]", entry
            else:
                self.report(f"{name}[{at}]", entry, Message("an object"))

    def labels(self, *path: str) -> dict[str, str]:
        """Return the valid labels of an object."""
        return self.valid_labels(".".join(path), self.mapping(*path))

    def valid_labels(self, path: str, members: Mapping[Any, Any]) -> dict[str, str]:
        """Return the members that are valid labels; none if they are too many."""
        if len(members) > MAX_ENTRIES:
            self.report(path, len(members), Message("at most {most} labels", most=MAX_ENTRIES))
            return {}
        labels = {}
        for key, value in members.items():
            if is_label_key(key) and is_label_value(value):
                labels[key] = value
            else:
                self.report(path, {key: value}, Message("a label"))
        return labels

    def taints(self, *path: str) -> Iterator[Taint]:
        """Yield the valid taints of a list; an invalid taint keeps no pod away."""
        for where, entry in self.objects(*path):
            taint = Taint(entry.get("key", ""), entry.get("value") or "", entry.get("effect", ""))
            if is_taint(taint):
                yield taint
            else:
                self.report(where, dict(entry), Message("a taint"))

    @property
    def deleted(self) -> bool:
        """Whether the object is being deleted."""
        return isinstance(self.field("metadata", "deletionTimestamp"), str)

    def pool(
        self,
        labels: Mapping[str, str],
        taints: tuple[Taint, ...],
        resources: tuple[tuple[str, int], ...] | None = None,
        *,
        can_scale: bool = True,
        open_labels: tuple[str, ...] = ANY_LABEL,
    ) -> NodePool:
        """Return the node pool with these labels.

        resources: None if unknown; then empty if a label proves that the nodes have no GPU of NVIDIA.
        open_labels: prefixes of labels with undeclared values; any label if the object has problems.
        """
        if resources is None and any(has_no_gpu(self.facts, key, value) for key, value in labels.items()):
            resources = ()
        return NodePool(
            self.name,
            self.kind,
            tuple((key, value) for key, value in labels.items() if may_be_required(key)),
            taints,
            resources,
            self._capabilities(labels),
            can_scale,
            ANY_LABEL if self.problems else open_labels,
        )

    def _capabilities(self, labels: Mapping[str, str]) -> NodeCapabilities:
        reader = NodeReader(self.name, labels)
        known = reader.capabilities(_NAMES, self.facts)
        for problem in reader.problems:
            self.report(problem.key, problem.value, Message("a possible value"))
        return cloud_capabilities(labels, known)


def is_taint(taint: Taint) -> bool:
    """Return whether Kubernetes accepts a taint."""
    return is_label_key(taint.key) and is_label_value(taint.value) and taint.effect in _EFFECTS


def _shown(value: object) -> str:
    """Return a shortened value for a message."""
    shortened = Repr()
    shortened.maxlevel, shortened.maxstring = 2, _MAX_TEXT
    try:
        return shortened.repr(value)
    except ValueError:  # a number with more digits than Python writes
        return "a large number"


def may_be_required(key: str) -> bool:
    """Return whether a pod may require a label without being ignored by Karpenter."""
    return key != _HOSTNAME and (key in _OF_POOLS or not key.startswith(_KARPENTER))
