"""The objects of a cluster that declare nodes which autoscalers may add, or devices and claims of DRA."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict

from rules.dra.state import DRA_KINDS, GROUP, VERSIONS
from rules.nodes.pools import AUTOSCALER_STATUS, POOL_KINDS
from webhook.cluster.resource import Resource, config_maps


class _Metadata(TypedDict):
    name: str
    resourceVersion: str
    namespace: NotRequired[str]
    creationTimestamp: NotRequired[str]


class DraObject(TypedDict):
    """The decoded part of an object of DRA: without managed fields, which are longer than the rest."""

    metadata: _Metadata
    spec: NotRequired[Any]
    status: NotRequired[Any]


def declaring_resources() -> dict[str, Resource]:
    """Return what declares nodes, by its kind; AUTOSCALER_STATUS goes by its name."""
    found = {each.kind: _resource(each.group, each.plural, each.versions) for each in POOL_KINDS}
    status = AUTOSCALER_STATUS
    found[status.name] = Resource(
        status.name, config_maps(status.namespace), fields=f"metadata.name={status.name}"
    )
    return found


def dra_resources() -> dict[str, Resource]:
    """Return what declares devices and claims, by its kind."""
    return {kind: _resource(GROUP, plural, VERSIONS, DraObject) for kind, plural in DRA_KINDS.items()}


def _resource(group: str, plural: str, versions: Iterable[str], shape: Any = dict[str, Any]) -> Resource:
    first, *others = (f"/apis/{group}/{version}/{plural}" for version in versions)
    return Resource(plural, first, shape=shape, others=tuple(others))
