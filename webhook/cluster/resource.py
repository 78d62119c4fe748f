"""Resources of the Kubernetes API that are listed and watched, and those of which an inventory is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NotRequired, TypedDict
from urllib.parse import quote

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
    """Return by kind the paths of what limits the pods of a namespace."""
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}"  # it may be the text of a manifest
    return {"ResourceQuota": f"{path}/resourcequotas", "LimitRange": f"{path}/limitranges"}


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource to list or watch.

    name: in logs and metrics. selector: by labels; fields: by fields. shape: the decoded part of objects, for
    msgspec; it must have `metadata.name` and `metadata.resourceVersion`, an object without them is a failure.
    others: the paths of older versions, used where the first does not exist. read: returns what is kept of
    each object, with its metadata; called in the order of changes.
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
        found = {"labelSelector": self.selector, "fieldSelector": self.fields}
        return {name: value for name, value in found.items() if value}


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
