"""An inventory from a document: nodes, node pools, devices and settings, as read from JSON or YAML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from rules.cuda.tables import BUILT_IN, Facts
from rules.nodes.devices.state import DRA_KINDS, GROUP, dra_state
from rules.nodes.gpu_operator import CLUSTER_POLICY, DAEMON_SET, read_operator, toolkit_daemon_set
from rules.nodes.gpu_operator import GROUP as GPU_OPERATOR
from rules.nodes.inventory import Inventory
from rules.nodes.node_row import NODE, InventoryError, mapping, objects_of
from rules.nodes.pools import AUTOSCALER_STATUS, POOL_KINDS, declared_pools
from rules.text.i18n import Joined, Message

# The kinds of objects, with their API groups.
_KINDS: Final = {
    NODE: "",
    **{pool_kind.kind: pool_kind.group for pool_kind in POOL_KINDS},
    **dict.fromkeys(DRA_KINDS, GROUP),
    CLUSTER_POLICY: GPU_OPERATOR,
}
_OTHER_GROUP: Final = Message("{path}.apiVersion: expected {kind} of {group}, got {actual!r:.60}")
_OTHER_KIND: Final = Message("{path}.kind: expected one of {kinds}, got {actual!r:.60}")


def inventory_of(document: object, facts: Facts = BUILT_IN) -> Inventory:
    """Return the inventory of a document.

    document: a Node, an object of POOL_KINDS or DRA_KINDS, cluster-autoscaler's status, settings of GPU
    Operator, or a List or list of them. If several nodes have the same name, the last one is used. facts:
    what is known of GPUs and drivers. Raises InventoryError for anything else.
    """
    nodes: list[tuple[Mapping[str, Any], str]] = []
    others: dict[str, list[Mapping[str, Any]]] = {}
    for item, path in objects_of(document, "document"):
        if (kind := kind_of(item, path)) == NODE:
            nodes.append((item, path))
        else:
            others.setdefault(kind, []).append(item)
    dra = {kind: others.pop(kind) for kind in DRA_KINDS if kind in others}
    operator = (others.pop(kind, []) for kind in (CLUSTER_POLICY, toolkit_daemon_set()))
    empty = Inventory().with_operator(read_operator(*operator)).with_facts(facts)
    after = empty.with_nodes(nodes).with_pools(declared_pools(others, facts=facts))
    return after.with_dra(dra_state(dra)) if dra else after


@cache
def _named() -> dict[str, str]:
    """Return the names of objects that are read as the only ones of their kind; used as names of kinds."""
    return {AUTOSCALER_STATUS.kind: AUTOSCALER_STATUS.name, DAEMON_SET: toolkit_daemon_set()}


def kind_of(item: Mapping[str, Any], path: str) -> str:
    """Return the kind of an object of an inventory. Raises InventoryError for any other."""
    kind, named = item.get("kind", NODE), _named()
    if isinstance(kind, str):
        if kind in named and mapping(item, "metadata", path).get("name") == named[kind]:
            return named[kind]
        if kind in _KINDS:
            group, version = _KINDS[kind], str(item.get("apiVersion", ""))
            if group and version and not version.startswith(f"{group}/"):  # other groups also have a NodePool
                raise InventoryError(_OTHER_GROUP.having(path=path, kind=kind, group=group, actual=version))
            return kind
    raise InventoryError(_OTHER_KIND.having(path=path, kinds=Joined(", ", _KINDS), actual=kind))
