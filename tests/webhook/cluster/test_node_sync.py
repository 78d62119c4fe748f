"""Node sync: changes of nodes in a handler's inventory."""

from __future__ import annotations

from kubernetes.client import Configuration

from rules import Loaded
from tests.support.node_builders import gfd, node
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import ClusterApi
from webhook.cluster.node_sync import NodeSync
from webhook.cluster.reflector import Applied, Deleted, Listed
from webhook.telemetry.metrics import REGISTRY


def synced() -> tuple[AdmissionHandler, NodeSync]:
    """Return a handler and its node sync, without an API server."""
    handler = AdmissionHandler(Loaded())
    return handler, NodeSync(ClusterApi(Configuration()), handler)


def test_a_heartbeat_without_a_relevant_change_does_not_replace_the_snapshot() -> None:
    """There is no copy and no swap."""
    handler, sync = synced()
    sync.on_change(Listed([node("one", gfd("12.2"))]))
    before = handler.snapshot
    sync.on_change(Applied(node("one", gfd("12.2"))))

    assert handler.snapshot is before


def test_nodes_are_added_changed_and_deleted() -> None:
    """A list replaces them all."""
    handler, sync = synced()
    counts = []
    for change in (
        Listed([node("one"), node("two")]),
        Applied(node("three")),
        Deleted(node("one")),
        Listed([node("four")]),
    ):
        sync.on_change(change)
        counts.append(sorted(handler.snapshot.inventory.names(handler.snapshot.inventory.everything)))

    assert [["one", "two"], ["one", "three", "two"], ["three", "two"], ["four"]] == counts
    assert 1 == REGISTRY.get_sample_value("gpugate_inventory_nodes")
