"""Resources of the Kubernetes API: which objects are listed and watched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

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
