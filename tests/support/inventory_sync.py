"""Inventory syncs without an API server."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from rules.nodes.devices.state import DRA_KINDS
from rules.nodes.gpu_operator import CLUSTER_POLICY, toolkit_daemon_set
from rules.nodes.pools import AUTOSCALER_STATUS, POOL_KINDS
from webhook.cluster.inventory_sync import InventorySync
from webhook.cluster.reflector import Listed

OPERATOR = (CLUSTER_POLICY, toolkit_daemon_set())
# Every kind that is watched besides nodes.
KINDS = (*(pool_kind.kind for pool_kind in POOL_KINDS), AUTOSCALER_STATUS.name, *OPERATOR, *DRA_KINDS)


def only_nodes(sync: InventorySync, *nodes: dict[str, Any]) -> None:
    """List these nodes, in a cluster that has none of the other kinds."""
    sync.on_nodes(Listed(list(nodes)))
    for kind in KINDS:
        sync.on_unavailable(kind, HTTPStatus.NOT_FOUND)
