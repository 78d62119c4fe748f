"""Node writer: writes labels and annotations to this node's object, and Events about contradictions.

It uses server-side apply with its own field manager: fields that are no longer applied are removed, and
fields of others stay (https://kubernetes.io/docs/reference/using-api/server-side-apply/). A changed label
under `gpugate.dev/` is corrected. `cuda-major-version` and `cuda-minor-version` may have another owner: if
one of them has another value, the agent sets neither and writes an Event.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from msgspec.structs import replace

from certs.kubernetes_api import Conflict
from rules.nodes.runtime_modes import host_runtime
from webhook.agent.labels import CUDA_LABELS, FACTS, NO_METADATA, NodeMetadata, differences, metadata_of
from webhook.agent.metrics import CONTRADICTIONS, PUBLISHED
from webhook.agent.nvml_probe import Probe
from webhook.cluster.events import Creates, write_event
from webhook.cluster.resource import NODES

_log = logging.getLogger("gpugate.agent")

MANAGER: Final = "gpugate-agent"
# How often a node that keeps changing is read again before it is a Conflict, as client-go's RetryOnConflict.
_ATTEMPTS: Final = 5
_CONTESTED: Final = "CudaLabelsContested"
_DIFFER: Final = "DiscoveryLabelsDiffer"
# (reason, fact) of every possible contradiction.
_KNOWN: Final = ((_CONTESTED, FACTS[1]), *((_DIFFER, fact) for fact in FACTS))


class Api(Creates, Protocol):
    """The part of ClusterApi that the agent uses. Raises KubernetesError, also without an answer."""

    def get(self, path: str) -> dict[str, Any]:
        """Return the object."""

    def apply(self, path: str, document: dict[str, Any], manager: str) -> None:
        """Apply these fields of an object (server-side apply, forced); raises Conflict."""


class NodeWriter:
    """Writes the labels of one node. take_over: overwrite CUDA labels of other owners."""

    def __init__(self, api: Api, node: str, *, take_over: bool = False) -> None:
        self._api, self._node, self._take_over = api, node, take_over
        self._path = f"{NODES}/{node}"
        self._reported: set[str] = set()

    def publish(self, probe: Probe | None) -> None:
        """Set the labels and annotations for a probe; None: there is no driver, remove them.

        A node that changes meanwhile is read again. Raises KubernetesError; Conflict if it changes each time.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                self._publish(probe)
            except Conflict:
                continue
            return
        self._publish(probe)

    def _publish(self, probe: Probe | None) -> None:
        node = self._api.get(self._path)
        if probe and _calls_hooks(node):
            probe = replace(probe, toolkit=None)
        metadata = NO_METADATA if probe is None else metadata_of(probe)
        conflicting = {} if self._take_over else conflicting_labels(node, metadata.labels)
        labels = {
            key: value for key, value in metadata.labels.items() if not (conflicting and key in CUDA_LABELS)
        }
        expected = NodeMetadata(labels, metadata.annotations)
        if _applied(node) != expected:
            changes: dict[str, Any] = {
                "name": self._node,
                # A change of the node after our read is a conflict.
                "resourceVersion": node["metadata"]["resourceVersion"],
                "labels": dict(labels),
                "annotations": dict(expected.annotations),
            }
            self._api.apply(self._path, {"apiVersion": "v1", "kind": "Node", "metadata": changes}, MANAGER)
            _log.info("node %s: %d labels applied", self._node, len(labels))
        self._report(node, probe, conflicting)
        PUBLISHED.set_to_current_time()

    def _report(self, node: Mapping[str, Any], probe: Probe | None, conflicting: Mapping[str, str]) -> None:
        """Report contradictions to NVML, each once while it lasts, and update the metric."""
        contradictions = list(_contradictions(node, probe, conflicting))
        now = {(reason, fact) for reason, fact, _ in contradictions}
        for known in _KNOWN:
            CONTRADICTIONS.labels(*known).set(known in now)
        reported = set()
        for reason, _, message in contradictions:
            reported.add(message)
            if message not in self._reported:
                _log.warning("node %s: %s", self._node, message, extra={"reason": reason})
                # The name of the node as uid, as in Events of kubelets: kubectl finds Events by it.
                involved = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}
                write_event(self._api, involved, reason, message)
        self._reported = reported


def _calls_hooks(node: Mapping[str, Any]) -> bool:
    """Return whether a node may call OCI hooks, instead of NVIDIA's runtime with the mode in its label."""
    info = (node.get("status") or {}).get("nodeInfo") or {}
    return host_runtime({}, info).by_hook


def conflicting_labels(node: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the CUDA labels of other owners with other values.

    A label whose owner is unknown, as on objects without managedFields, counts as owned by another.
    """
    present = node["metadata"].get("labels") or {}
    owners = {key: _owners(node, key) for key in CUDA_LABELS}
    return {
        key: present[key]
        for key in CUDA_LABELS
        if key in labels and key in present and present[key] != labels[key] and owners[key] != {MANAGER}
    }


def _contradictions(
    node: Mapping[str, Any], probe: Probe | None, conflicting: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (reason, fact, message) of each contradiction between NVML and labels."""
    if probe is None:
        return
    if conflicting:
        others = " and ".join(f"{key}={value}" for key, value in conflicting.items())
        message = f"the driver has CUDA {probe.cuda}, but another owner has set {others}"
        yield _CONTESTED, FACTS[1], f"{message}; remove that label, or run the agent with --take-over"
    for difference in differences(node["metadata"].get("labels") or {}, probe):
        yield _DIFFER, difference.fact, difference.message.en


def _owners(node: Mapping[str, Any], label: str) -> set[str]:
    """Return the field managers of a label."""
    entries = node["metadata"].get("managedFields") or []
    return {entry.get("manager", "") for entry in entries if f"f:{label}" in _fields(entry, "labels")}


def _fields(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the labels or annotations in an entry of managedFields, by `f:` and key."""
    metadata: Mapping[str, Any] = entry.get("fieldsV1", {}).get("f:metadata", {})
    fields: Mapping[str, Any] = metadata.get(f"f:{name}", {})
    return fields


def _applied(node: Mapping[str, Any]) -> NodeMetadata:
    """Return the labels and annotations that the agent owns on a node, with their current values."""
    metadata = node["metadata"]
    own = [entry for entry in metadata.get("managedFields") or [] if entry.get("manager") == MANAGER]

    def owned(name: str) -> dict[str, str]:
        keys = {key.removeprefix("f:") for entry in own for key in _fields(entry, name)}
        return {key: value for key, value in (metadata.get(name) or {}).items() if key in keys}

    return NodeMetadata(owned("labels"), owned("annotations"))
