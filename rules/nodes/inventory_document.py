"""The objects of an inventory's document, as read from JSON or YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from rules.dra.state import DRA_KINDS, GROUP
from rules.nodes.gpu_operator import CLUSTER_POLICY, DAEMON_SET, toolkit_daemon_set
from rules.nodes.gpu_operator import GROUP as GPU_OPERATOR
from rules.nodes.pools import AUTOSCALER_STATUS, POOL_KINDS

NODE: Final = "Node"
# The kinds of objects, with their API groups.
_KINDS: Final = {
    NODE: "",
    **{each.kind: each.group for each in POOL_KINDS},
    **dict.fromkeys(DRA_KINDS, GROUP),
    CLUSTER_POLICY: GPU_OPERATOR,
}


class InventoryError(ValueError):
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
        raise InventoryError(f"{path}: expected a Node, a NodeList or a list of them, got {document!r:.60}")


@cache
def _named() -> dict[str, str]:
    """Return the kinds of which only one object is read, with its name, which stands for the kind."""
    return {AUTOSCALER_STATUS.kind: AUTOSCALER_STATUS.name, DAEMON_SET: toolkit_daemon_set()}


def kind_of(found: Mapping[str, Any], path: str) -> str:
    """Return the kind of an object of an inventory. Raises InventoryError for any other."""
    kind, named = found.get("kind", NODE), _named()
    if kind in named and mapping(found, "metadata", path).get("name") == named[kind]:
        return named[kind]
    if kind not in _KINDS:
        raise InventoryError(f"{path}.kind: expected one of {', '.join(_KINDS)}, got {kind!r:.60}")
    group, version = _KINDS[kind], str(found.get("apiVersion", ""))
    if group and version and not version.startswith(f"{group}/"):  # other groups have a NodePool, too
        raise InventoryError(f"{path}.apiVersion: expected {kind} of {group}, got {version!r:.60}")
    return str(kind)


def mapping(parent: Mapping[str, Any], name: str, path: str) -> Mapping[Any, Any]:
    """Return a member of an object that is an object, empty if absent. Raises InventoryError."""
    value = parent.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InventoryError(f"{path}.{name}: expected an object, got {value!r:.60}")
    return value
