"""The objects of a cluster, besides nodes, of which an inventory is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired, TypedDict

from rules.dra.state import DRA_KINDS, GROUP, VERSIONS
from rules.nodes.gpu_operator import CLUSTER_POLICY, PLURAL, toolkit_daemon_set
from rules.nodes.gpu_operator import GROUP as GPU_OPERATOR
from rules.nodes.gpu_operator import VERSIONS as POLICY_VERSIONS
from rules.nodes.pools import AUTOSCALER_STATUS, POOL_KINDS
from webhook.cluster.resource import DAEMON_SETS, Resource, config_maps


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


class _Settings(TypedDict):
    """The decoded part of a ClusterPolicy or a DaemonSet."""

    metadata: _Metadata
    spec: NotRequired[Any]


def declaring_resources() -> dict[str, Resource]:
    """Return what declares nodes, or sets their container runtime, by its kind.

    Kinds of which only one object is read go by its name.
    """
    found = {each.kind: _resource(each.group, each.plural, each.versions) for each in POOL_KINDS}
    found[CLUSTER_POLICY] = _resource(GPU_OPERATOR, PLURAL, POLICY_VERSIONS, _Settings)
    status = AUTOSCALER_STATUS
    found[status.name] = Resource(
        status.name, config_maps(status.namespace), fields=f"metadata.name={status.name}"
    )
    daemon_set = toolkit_daemon_set()
    found[daemon_set] = Resource(
        daemon_set, DAEMON_SETS, shape=_Settings, fields=f"metadata.name={daemon_set}"
    )
    return found


def dra_resources() -> dict[str, Resource]:
    """Return what declares devices and claims, by its kind."""
    return {kind: _resource(GROUP, plural, VERSIONS, DraObject) for kind, plural in DRA_KINDS.items()}


def _resource(group: str, plural: str, versions: Iterable[str], shape: Any = dict[str, Any]) -> Resource:
    first, *others = (f"/apis/{group}/{version}/{plural}" for version in versions)
    return Resource(plural, first, shape=shape, others=tuple(others))
