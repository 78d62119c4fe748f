"""A small, anonymous copy of an inventory's document, with the fields that decisions read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, NamedTuple

from rules.nodes.devices.state import CLAIM, DEVICE_CLASS, SLICE, TAINT_RULE, TEMPLATE
from rules.nodes.gpu_operator import CLUSTER_POLICY, managed_label, read_variables, toolkit_daemon_set
from rules.nodes.inventory import INSTANCE_TYPE
from rules.nodes.inventory_document import kind_of
from rules.nodes.label_families import LabelNames, autoscaler_labels, gpu_labels
from rules.nodes.node_row import NODE, IndexedNode, objects_of, read_node
from rules.nodes.pools import AUTOSCALER_STATUS
from rules.nodes.pools.cluster_api import LABELS_ANNOTATION, read_annotations
from rules.nodes.runtime_modes import NODE_INFO, host_labels
from rules.text.glob import glob

# Source: https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetesiohostname
_HOSTNAME: Final = "kubernetes.io/hostname"
# A UUID, an IPv4 address in a name, or the 17 hexadecimal digits of an ID of AWS.
# Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/resource-ids.html
_IDENTIFIES: Final = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?<![0-9])[0-9]{1,3}(-[0-9]{1,3}){3}(?![0-9])"
    r"|(?<![0-9a-f])[0-9a-f]{17}(?![0-9a-f])",
    re.IGNORECASE,
)
_TEMPLATE_SPEC: Final = ("spec", "template", "spec")
_TEMPLATE_LABELS: Final = ("spec", "template", "metadata", "labels")
_DELETED: Final = ("metadata", "deletionTimestamp")
_OWNERS: Final = ("metadata", "ownerReferences")
_ANNOTATIONS: Final = ("metadata", "annotations")
_CLUSTER_API: Final = (_DELETED, _OWNERS, _ANNOTATIONS, _TEMPLATE_LABELS, (*_TEMPLATE_SPEC, "taints"))
_NODE_GROUP: Final = (*_CLUSTER_API, ("status", "readyReplicas"))
_TAINTED_POOL: Final = ("spec", "deviceSelector", "pool")
_CLAIM_NAMES: Final = (("metadata", "namespace"),)
# The fields of each kind that are read, besides version and name.
_FIELDS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "NodePool": (
        _DELETED,
        _TEMPLATE_LABELS,
        (*_TEMPLATE_SPEC, "taints"),
        (*_TEMPLATE_SPEC, "requirements"),
        ("spec", "limits"),
    ),
    "ResourceFlavor": (_DELETED, ("spec", "nodeLabels"), ("spec", "nodeTaints"), ("spec", "tolerations")),
    "MachineDeployment": _NODE_GROUP,
    "MachinePool": _NODE_GROUP,
    "MachineSet": _NODE_GROUP,
    AUTOSCALER_STATUS.name: (("metadata", "namespace"),),
    DEVICE_CLASS: (
        ("metadata", "creationTimestamp"),
        ("spec", "selectors"),
        ("spec", "extendedResourceName"),
    ),
    SLICE: (("spec", "driver"), ("spec", "pool"), ("spec", "nodeName"), ("spec", "devices")),
    TAINT_RULE: (("spec", "deviceSelector"), ("spec", "taint")),
    CLAIM: (*_CLAIM_NAMES, ("spec", "devices", "requests"), ("status", "allocation")),
    TEMPLATE: (*_CLAIM_NAMES, ("spec", "spec", "devices", "requests")),
    CLUSTER_POLICY: (
        ("spec", "cdi"),
        ("spec", "toolkit", "enabled"),
        ("spec", "toolkit", "version"),
        ("spec", "toolkit", "env"),
        ("spec", "devicePlugin", "env"),
    ),
    toolkit_daemon_set(): ((*_TEMPLATE_SPEC, "containers"),),
}
_ENV: Final = (("spec", "toolkit"), ("spec", "devicePlugin"))


class CopiedObjects(NamedTuple):
    """The copied objects of a cluster."""

    items: list[dict[str, Any]]
    names: Mapping[str, str]  # of nodes, by original name
    replaced: Mapping[str, int]  # number of replaced values by label


def snapshot(
    document: object, anonymize: Iterable[str] = (), labels: Iterable[LabelNames] = (LabelNames(),)
) -> CopiedObjects:
    """Return the snapshot of a document that `inventory_of` accepts. Raises InventoryError for others.

    Decisions on pods that select no replaced value stay the same. Nodes are numbered in order; equal values
    are replaced by equal values. These values are replaced: hostnames, names of the own node, and values with
    a UUID, an IP address or an ID of AWS. Labels that report a fact are never replaced.

    anonymize: globs of further keys whose values are replaced.
    labels: the labels that the rules read.
    """
    rows: dict[str, tuple[IndexedNode, Mapping[str, Any]]] = {}
    others: list[tuple[str, Mapping[str, Any]]] = []
    for item, path in objects_of(document, "document"):
        if (kind := kind_of(item, path)) == NODE:
            row = read_node(item, path)
            rows[row.name] = row, item
        else:
            others.append((kind, item))
    anonymizer = _Anonymizer(rows, anonymize, tuple(labels))
    items = [anonymizer.node(row, node) for row, node in rows.values()]
    items += [anonymizer.other(kind, other) for kind, other in others]
    return CopiedObjects(items, anonymizer.names, dict(sorted(anonymizer.replaced.items())))


class _Anonymizer:
    """Replaces values that identify nodes; equal values by equal values."""

    def __init__(
        self, nodes: Collection[str], anonymize: Iterable[str], labels: tuple[LabelNames, ...]
    ) -> None:
        width = len(str(len(nodes)))
        self.names = {name: f"node-{at:0{width}}" for at, name in enumerate(nodes, start=1)}
        self.replaced: Counter[str] = Counter()
        self._values: dict[str, str] = {}
        self._pools: dict[str, str] = {}
        self._slices = self._taint_rules = 0
        self._keys = [glob(pattern) for pattern in anonymize]
        self._labels = labels
        self._facts = {*gpu_labels(), *autoscaler_labels(), INSTANCE_TYPE, managed_label(), *host_labels()}

    def node(self, row: IndexedNode, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a Node with the fields that `read_node` reads."""
        state, spec, status = row.state, document.get("spec") or {}, document.get("status") or {}
        own = {row.name, row.name.partition(".")[0]}
        given = {"allocatable": state.allocatable, "capacity": state.capacity}
        kept: dict[str, Any] = {}
        for name, resources in given.items():
            quantities = status.get(name) or {}
            # Decisions read extended resources only.
            if amounts := {key: quantities[key] for key in quantities if key in resources and "/" in key}:
                kept[name] = amounts
        node_info = status.get("nodeInfo") or {}
        if info := {key: node_info[key] for key in NODE_INFO if node_info.get(key)}:
            kept["nodeInfo"] = info
        cordoned = spec.get("unschedulable") is True
        if not (state.ready or cordoned):
            kept["conditions"] = [{"type": "Ready", "status": "False"}]
        taints = [
            {key: value for key, value in taint._asdict().items() if value} for taint in sorted(state.taints)
        ]
        parts = {"unschedulable": True} if cordoned else {}
        return {
            "apiVersion": "v1",
            "kind": NODE,
            "metadata": {"name": self.names[row.name], "labels": self._of(row.labels, own)},
            **({"spec": parts | ({"taints": taints} if taints else {})} if parts or taints else {}),
            "status": kept,
        }

    def other(self, kind: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object of another kind with the fields that are read."""
        kept: dict[str, Any] = {}
        for path in (("apiVersion",), ("kind",), ("metadata", "name"), *_FIELDS[kind]):
            _copy(document, kept, path)
        if kind == SLICE:
            self._slice(kept)
        elif kind == TAINT_RULE:
            self._taint_rule(kept)
        elif kind == CLAIM:
            self._claim(kept)
        elif kind == CLUSTER_POLICY:
            _keep_read_variables(kept)
        elif kind == toolkit_daemon_set():
            _keep_read_container(kept)
        else:
            self._pool(kept)
        return kept

    def _of(self, labels: Mapping[Any, Any], own: Collection[str] = ()) -> dict[Any, Any]:
        copied = {key: self._label(key, value, own) for key, value in labels.items()}
        self.replaced.update(key for key, value in copied.items() if value != labels[key])
        return copied

    def _label(self, key: object, value: object, own: Collection[str] = ()) -> Any:
        """Return the value of a label. own: the names of its node."""
        if not (isinstance(key, str) and isinstance(value, str) and value) or self._is_fact(key):
            return value
        chosen = key == _HOSTNAME or value in own or any(pattern.fullmatch(key) for pattern in self._keys)
        return self._value(value) if chosen or _identifies(value) else value

    def _is_fact(self, key: str) -> bool:
        return key in self._facts or any(names.among([key]) for names in self._labels)

    def _value(self, value: str) -> str:
        return self.names.get(value) or self._values.setdefault(value, f"value-{len(self._values) + 1}")

    def _pool(self, kept: dict[str, Any]) -> None:
        """Replace the labels of an object that declares nodes, in place."""
        for *path, last in (_TEMPLATE_LABELS, ("spec", "nodeLabels")):
            parent = _member(kept, path)
            if isinstance(parent, dict) and isinstance(parent.get(last), Mapping):
                parent[last] = self._of(parent[last])
        template = _member(kept, _TEMPLATE_SPEC)
        requirements = template.get("requirements") if isinstance(template, dict) else None
        if isinstance(template, dict) and isinstance(requirements, list | tuple):
            template["requirements"] = list(map(self._requirement, requirements))
        metadata = kept.get("metadata")
        if not isinstance(metadata, dict):
            return
        if isinstance(owners := metadata.get("ownerReferences"), list | tuple):
            metadata["ownerReferences"] = [
                {"kind": owner.get("kind")} if isinstance(owner, Mapping) else owner for owner in owners
            ]
        if isinstance(annotations := metadata.get("annotations"), Mapping):
            read = {key: value for key, value in annotations.items() if key in read_annotations()}
            if isinstance(text := read.get(LABELS_ANNOTATION), str):
                read[LABELS_ANNOTATION] = ",".join(map(self._pair, text.split(",")))
            metadata["annotations"] = read

    def _requirement(self, requirement: Any) -> Any:
        """Return a requirement of a NodePool."""
        values = requirement.get("values") if isinstance(requirement, Mapping) else None
        if not isinstance(values, list | tuple):
            return requirement
        return {**requirement, "values": [self._label(requirement.get("key"), value) for value in values]}

    def _pair(self, pair: str) -> str:
        """Return `key=value` of an annotation."""
        key, equals, value = pair.partition("=")
        return f"{key}{equals}{self._label(key, value)}"

    def _slice(self, kept: dict[str, Any]) -> None:
        """Replace node, pool and identifying attributes of a ResourceSlice, in place."""
        self._slices += 1
        kept["metadata"] = {"name": f"slice-{self._slices}"}
        spec = kept.get("spec")
        if not isinstance(spec, dict):
            return
        if isinstance(pool := spec.get("pool"), Mapping) and isinstance(pool.get("name"), str):
            spec["pool"] = {**pool, "name": self._device_pool(pool["name"])}
        node = spec.get("nodeName")
        if isinstance(node, str) and node:
            spec["nodeName"] = self.names.get(node) or self._value(node)
        if "devices" in spec:
            spec["devices"] = self._texts(spec["devices"], node)

    def _taint_rule(self, kept: dict[str, Any]) -> None:
        """Replace the pool of a DeviceTaintRule, and identifying texts, in place."""
        self._taint_rules += 1
        kept["metadata"] = {"name": f"taint-rule-{self._taint_rules}"}
        spec = self._texts(kept.get("spec"), None)
        selector = spec.get("deviceSelector") if isinstance(spec, dict) else None
        if isinstance(selector, dict) and isinstance(pool := _member(kept, _TAINTED_POOL), str):
            selector["pool"] = self._device_pool(pool)
        kept["spec"] = spec

    def _claim(self, kept: dict[str, Any]) -> None:
        """Remove everything but the devices of an allocation, in place."""
        status = kept.get("status")
        allocation = status.get("allocation") if isinstance(status, dict) else None
        if not isinstance(allocation, Mapping) or not allocation:
            return
        results = _member(allocation, ("devices", "results"))
        read = [self._result(result) for result in results] if isinstance(results, list) else results
        kept["status"] = {"allocation": {"devices": {"results": read}}}

    def _result(self, result: Any) -> Any:
        """Return one allocated device."""
        if not isinstance(result, Mapping):
            return result
        fields = {key: result[key] for key in ("request", "driver", "pool", "device") if key in result}
        if isinstance(pool := fields.get("pool"), str):
            fields["pool"] = self._device_pool(pool)
        return fields

    def _device_pool(self, name: str) -> str:
        """Return the name of a pool of devices; usually it is the node's name."""
        return self.names.get(name) or (name and self._pools.setdefault(name, f"pool-{len(self._pools) + 1}"))

    def _texts(self, value: Any, node: object) -> Any:
        """Return a JSON value without identifying texts. node: the node of the devices."""
        if isinstance(value, Mapping):
            return {key: self._texts(member, node) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self._texts(item, node) for item in value]
        if isinstance(value, str) and (value == node or _IDENTIFIES.search(value)):
            return self._value(value)
        return value


def _keep_read_variables(policy: dict[str, Any]) -> None:
    """Remove the variables of a ClusterPolicy that are not read, in place."""
    for parent in filter(None, (_member(policy, path) for path in _ENV)):
        if isinstance(parent, dict) and "env" in parent:
            parent["env"] = _read_only(parent["env"])


def _keep_read_container(daemon_set: dict[str, Any]) -> None:
    """Reduce the toolkit's container to its image without a registry and the variables that are read."""
    parent = _member(daemon_set, _TEMPLATE_SPEC)
    if isinstance(parent, dict) and isinstance(containers := parent.get("containers"), list):
        parent["containers"] = [
            {"image": str(first.get("image", "")).rpartition("/")[2], "env": _read_only(first.get("env"))}
            for first in containers[:1]
            if isinstance(first, Mapping)
        ]


def _read_only(variables: Any) -> Any:
    """Return the variables that are read; a value that is not a list stays unchanged."""
    if not isinstance(variables, list | tuple):
        return variables
    names = read_variables()
    return [entry for entry in variables if isinstance(entry, Mapping) and entry.get("name") in names]


def _identifies(value: str) -> bool:
    """Return whether the value of a label identifies one machine."""
    return _IDENTIFIES.search(value) is not None or _address(value) is not None


def _address(value: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(value)
    except ValueError:
        return None


def _copy(source: Mapping[str, Any], target: dict[str, Any], path: tuple[str, ...]) -> None:
    """Copy the field at a path, if present; a parent that is not an object is copied unchanged."""
    name, *rest = path
    if name not in source:
        return
    if rest and isinstance(source[name], Mapping):
        _copy(source[name], target.setdefault(name, {}), tuple(rest))
    else:
        target[name] = source[name]


def _member(value: Any, path: Iterable[str]) -> Any:
    """Return the field at a path; None if it cannot be reached."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
