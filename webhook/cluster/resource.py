"""Resources of the Kubernetes API that are listed and watched, and the resources of an inventory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NotRequired, TypedDict
from urllib.parse import quote

from msgspec import Struct

from rules.nodes.devices.state import DRA_KINDS, GROUP, VERSIONS
from rules.nodes.gpu_operator import CLUSTER_POLICY, PLURAL, toolkit_daemon_set
from rules.nodes.gpu_operator import GROUP as GPU_OPERATOR
from rules.nodes.gpu_operator import VERSIONS as POLICY_VERSIONS
from rules.nodes.pools import AUTOSCALER_STATUS, POOL_KINDS

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
DAEMON_SETS: Final = "/apis/apps/v1/daemonsets"
NAMESPACES: Final = "/api/v1/namespaces"
ALL_CONFIG_MAPS: Final = "/api/v1/configmaps"
# The label of namespaces that both webhook configurations exclude.
IGNORED: Final = "gpugate.dev/ignore=true"

Object = dict[str, Any]


def config_maps(namespace: str) -> str:
    """Return the path of a namespace's ConfigMaps."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def limit_paths(namespace: str) -> dict[str, str]:
    """Return the paths of the ResourceQuotas and LimitRanges of a namespace, by kind."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}"  # it may be the text of a manifest
    return {"ResourceQuota": f"{path}/resourcequotas", "LimitRange": f"{path}/limitranges"}


class Resource(Struct, frozen=True):
    """A resource to list or watch.

    Attributes:
        name: in logs and metrics.
        selector: label selector.
        shape: decoded part of objects, a type for msgspec, with `metadata.name` and
        `metadata.resourceVersion`. fields: field selector. others: paths of older versions, used if `path`
        does not exist. read: returns the part of an object to keep, with its metadata; called in the order of
        changes.
    """

    name: str
    path: str
    selector: str = ""
    shape: Any = Object
    fields: str = ""
    others: tuple[str, ...] = ()
    read: Callable[[Object], Object] | None = None

    @property
    def selectors(self) -> dict[str, str]:
        """The parameters of a request that select objects."""
        selectors = {"labelSelector": self.selector, "fieldSelector": self.fields}
        return {name: value for name, value in selectors.items() if value}


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
    """Return the resources that declare nodes or set their container runtime, by kind.

    The key of a resource whose only read object has a fixed name is that name.
    """
    resources = {
        pool_kind.kind: _resource(pool_kind.group, pool_kind.plural, pool_kind.versions)
        for pool_kind in POOL_KINDS
    }
    resources[CLUSTER_POLICY] = _resource(GPU_OPERATOR, PLURAL, POLICY_VERSIONS, _Settings)
    status = AUTOSCALER_STATUS
    resources[status.name] = Resource(
        status.name, config_maps(status.namespace), fields=f"metadata.name={status.name}"
    )
    daemon_set = toolkit_daemon_set()
    resources[daemon_set] = Resource(
        daemon_set, DAEMON_SETS, shape=_Settings, fields=f"metadata.name={daemon_set}"
    )
    return resources


def dra_resources() -> dict[str, Resource]:
    """Return the resources of devices and claims, by kind."""
    return {kind: _resource(GROUP, plural, VERSIONS, DraObject) for kind, plural in DRA_KINDS.items()}


def _resource(group: str, plural: str, versions: Iterable[str], shape: Any = dict[str, Any]) -> Resource:
    first, *others = (f"/apis/{group}/{version}/{plural}" for version in versions)
    return Resource(plural, first, shape=shape, others=tuple(others))
