"""Writes what NVML says to this node's object: its own labels and annotations, and Events on contradictions.

Written by server-side apply under a field manager of its own: what is no longer applied goes, and what others
wrote stays (https://kubernetes.io/docs/reference/using-api/server-side-apply/). A label under `gpugate.dev/`
that somebody changed is put right. `cuda-major-version` and `cuda-minor-version` may be somebody else's: if
one of them has another value, the agent sets neither, and an Event says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from webhook.agent.labels import CUDA_LABELS, FACTS, NOTHING, Told, differences, told_by
from webhook.agent.metrics import CONTRADICTIONS, PUBLISHED
from webhook.agent.nvml_probe import Probe
from webhook.cluster.client import NODES
from webhook.cluster.events import Creates, write_event

_log = logging.getLogger("gpugate.agent")

MANAGER: Final = "gpugate-agent"
_CONTESTED: Final = "CudaLabelsContested"
_DIFFER: Final = "DiscoveryLabelsDiffer"
# (reason, fact) of every contradiction that there may be.
_KNOWN: Final = ((_CONTESTED, FACTS[1]), *((_DIFFER, fact) for fact in FACTS))


class Api(Creates, Protocol):
    """What the agent asks of an API server. Raises KubernetesError, also where there is no answer."""

    def get(self, path: str) -> dict[str, Any]:
        """Return the object."""

    def apply(self, path: str, document: dict[str, Any], manager: str) -> None:
        """Own just these fields of an object (server-side apply, forced); raises Conflict."""


class NodeWriter:
    """Keeps one node's object at what NVML says.

    take_over: also where others have the CUDA labels otherwise.
    """

    def __init__(self, api: Api, node: str, *, take_over: bool = False) -> None:
        self._api, self._node, self._take_over = api, node, take_over
        self._path = f"{NODES}/{node}"
        self._said: set[str] = set()

    def publish(self, probe: Probe | None) -> None:
        """Make the node say what NVML says; None: there is no driver, so nothing.

        Raises KubernetesError; Conflict where the node changed meanwhile. Then it is to be tried again.
        """
        node = self._api.get(self._path)
        told = NOTHING if probe is None else told_by(probe)
        held = {} if self._take_over else contested(node, told.labels)
        labels = {key: value for key, value in told.labels.items() if not (held and key in CUDA_LABELS)}
        wanted = Told(labels, told.annotations)
        if _applied(node) != wanted:
            metadata: dict[str, Any] = {
                "name": self._node,
                # Whoever changes the node between our look and our writing goes first.
                "resourceVersion": node["metadata"]["resourceVersion"],
                "labels": dict(labels),
                "annotations": dict(wanted.annotations),
            }
            self._api.apply(self._path, {"apiVersion": "v1", "kind": "Node", "metadata": metadata}, MANAGER)
            _log.info("node %s: %d labels applied", self._node, len(labels))
        self._report(node, probe, held)
        PUBLISHED.set_to_current_time()

    def _report(self, node: Mapping[str, Any], probe: Probe | None, held: Mapping[str, str]) -> None:
        """Say what contradicts NVML, each contradiction once while it lasts, and keep the metric at it."""
        found = list(_contradictions(node, probe, held))
        now = {(reason, fact) for reason, fact, _ in found}
        for known in _KNOWN:
            CONTRADICTIONS.labels(*known).set(known in now)
        said = set()
        for reason, _, message in found:
            said.add(message)
            if message not in self._said:
                _log.warning("node %s: %s", self._node, message, extra={"reason": reason})
                # A kubelet names a node for its uid, too, and by that kubectl finds the Events.
                involved = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}
                write_event(self._api, involved, reason, message)
        self._said = said


def contested(node: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, str]:
    """Return those of the CUDA labels that somebody else set to another value, as they are set.

    Where nobody is known to have set one, as on objects without managedFields, it counts as another's.
    """
    present = node["metadata"].get("labels") or {}
    owners = {key: _owners(node, key) for key in CUDA_LABELS}
    return {
        key: present[key]
        for key in CUDA_LABELS
        if key in labels and key in present and present[key] != labels[key] and owners[key] != {MANAGER}
    }


def _contradictions(
    node: Mapping[str, Any], probe: Probe | None, held: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (reason, fact, message) of each."""
    if probe is None:
        return
    if held:
        others = " and ".join(f"{key}={value}" for key, value in held.items())
        message = f"the driver has CUDA {probe.cuda}, and somebody else set {others}"
        yield _CONTESTED, FACTS[1], f"{message}; remove that, or run the agent with --take-over"
    for each in differences(node["metadata"].get("labels") or {}, probe):
        yield (
            _DIFFER,
            each.fact,
            f"{each.fact}: the labels of GPU Feature Discovery say {each.label}, NVML says {each.nvml}",
        )


def _owners(node: Mapping[str, Any], label: str) -> set[str]:
    """Return the managers of a label."""
    entries = node["metadata"].get("managedFields") or []
    return {each.get("manager", "") for each in entries if f"f:{label}" in _fields(each, "labels")}


def _fields(entry: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return what an entry of managedFields has of the labels or annotations, by `f:` and key."""
    metadata: Mapping[str, Any] = entry.get("fieldsV1", {}).get("f:metadata", {})
    fields: Mapping[str, Any] = metadata.get(f"f:{name}", {})
    return fields


def _applied(node: Mapping[str, Any]) -> Told:
    """Return what the agent has applied to a node, with the values that are there now."""
    metadata = node["metadata"]
    own = [each for each in metadata.get("managedFields") or [] if each.get("manager") == MANAGER]

    def mine(name: str) -> dict[str, str]:
        keys = {key.removeprefix("f:") for each in own for key in _fields(each, name)}
        return {key: value for key, value in (metadata.get(name) or {}).items() if key in keys}

    return Told(mine("labels"), mine("annotations"))
