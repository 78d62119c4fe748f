"""Namespace sync: labels of namespaces in a handler's snapshot."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from kubernetes.client import Configuration

from rules import Loaded
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import ClusterApi
from webhook.cluster.namespace_sync import NamespaceSync
from webhook.cluster.reflector import Applied, Deleted, Listed


def namespace(name: str, **labels: str) -> dict[str, Any]:
    """Return a Namespace; without labels, it has none at all."""
    metadata: dict[str, Any] = {"name": name, "resourceVersion": "1"}
    return {"metadata": metadata | ({"labels": labels} if labels else {})}


def synced() -> tuple[AdmissionHandler, NamespaceSync]:
    """Return a handler and its namespace sync, without an API server."""
    handler = AdmissionHandler(Loaded())
    return handler, NamespaceSync(ClusterApi(Configuration()), handler)


def known(handler: AdmissionHandler, *names: str) -> list[Any]:
    """Return the labels of namespaces in the snapshot; None if they are unknown."""
    namespaces = handler.snapshot.namespaces
    return [namespaces and namespaces.get(name) for name in names]


def test_labels_are_added_changed_and_deleted() -> None:
    """A list replaces them all; a namespace that is gone is unknown."""
    handler, sync = synced()
    states = []
    for change in (
        Listed([namespace("a", team="x"), namespace("b")]),
        Applied(namespace("b", team="y")),
        Deleted(namespace("a")),
        Listed([namespace("c")]),
    ):
        sync.on_change(change)
        states.append(known(handler, "a", "b", "c"))

    assert [
        [{"team": "x"}, {}, None],
        [{"team": "x"}, {"team": "y"}, None],
        [None, {"team": "y"}, None],
        [None, None, {}],
    ] == states


def test_a_change_of_something_else_does_not_replace_the_snapshot() -> None:
    """A controller may annotate namespaces all the time."""
    handler, sync = synced()
    sync.on_change(Listed([namespace("a", team="x")]))
    before = handler.snapshot
    sync.on_change(Applied(namespace("a", team="x")))

    assert handler.snapshot is before


def test_readiness_waits_for_the_list_or_for_its_failure() -> None:
    """Without the right to list them, labels are unknown, and nothing waits."""
    (handler, listed), (other, forbidden) = synced(), synced()
    waited = listed.awaited, forbidden.awaited
    listed.on_change(Listed([]))
    forbidden.on_unavailable(HTTPStatus.FORBIDDEN)

    assert (("namespaces",), ("namespaces",)) == waited
    assert ((), ()) == (listed.awaited, forbidden.awaited)
    assert ([None], [None]) == (known(handler, "a"), known(other, "a"))
