"""Namespace sync: watches the labels of namespaces, for expressions of rules.

Without the right to list namespaces their labels are unknown: no rule that names them denies a pod.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import NotRequired, TypedDict

from rules.nodes.label_index import ShardedDict
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import ClusterApi
from webhook.cluster.reflector import Applied, Change, Deleted, Listed, Reflector
from webhook.cluster.resource import NAMESPACES, Resource

_NAME = "namespaces"


class _Metadata(TypedDict):
    name: str
    resourceVersion: str
    labels: NotRequired[dict[str, str]]


class Namespace(TypedDict):
    """The decoded part of a Namespace."""

    metadata: _Metadata


class NamespaceSync:
    """Watches namespaces, and sets their labels in a handler. on_synced: called after each change."""

    def __init__(self, api: ClusterApi, handler: AdmissionHandler) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self._labels: ShardedDict[str, Mapping[str, str]] = ShardedDict()
        resource = Resource(_NAME, NAMESPACES, shape=Namespace)
        self._reflector = Reflector(api, resource, unavailable=self.on_unavailable)
        self.awaited: Collection[str] = (_NAME,)
        self.on_synced: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start the watch."""
        self._reflector.start(self.on_change)

    def stop(self) -> None:
        """Stop the watch; the handler keeps the labels."""
        self._reflector.stop()

    def on_change(self, change: Change) -> None:
        """Apply a change of namespaces."""
        with self._lock:
            labels: ShardedDict[str, Mapping[str, str]]
            match change:
                case Listed(objects):
                    labels = ShardedDict()
                    for namespace in objects:
                        labels.put(namespace["metadata"]["name"], _labels(namespace))
                case Applied(namespace):
                    if self._labels.get(namespace["metadata"]["name"]) == _labels(namespace):
                        return  # another field has changed
                    labels = self._labels.copy()
                    labels.put(namespace["metadata"]["name"], _labels(namespace))
                case Deleted(namespace):
                    labels = self._labels.copy()
                    labels.put(namespace["metadata"]["name"], None)
            self._labels = labels
            self._handler.set_namespaces(labels)
            self.awaited = ()
        self.on_synced()

    def on_unavailable(self, status: int) -> None:
        """Handle that namespaces cannot be listed: what is known stays, but nothing is waited for."""
        del status
        self.awaited = ()
        self.on_synced()


def _labels(namespace: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Mapping[str, str]:
    return namespace["metadata"].get("labels") or {}
