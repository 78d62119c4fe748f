"""Which requests are in scope: everything that creates pods, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rules.model.request import AdmissionRequest
from rules.model.workload_kinds import Workloads
from rules.text.i18n import Text

# The mirror of a static pod: https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror
_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

_NO_PODS: Final = Text("no known kind of pods or workloads", "不是已知的 Pod 或工作负载类型")
_UNCHECKED_UPDATE: Final = Text("an update of a kind that rules do not check", "规则不检查此类更新")
_DELETED: Final = Text("it is being deleted", "正在被删除")
_MIRROR: Final = Text("it mirrors a static pod, which is running", "是静态 Pod 的镜像，该静态 Pod 已在运行")
_OWNER_CHECKED: Final = Text("its owner was checked", "其所属对象已检查")


def out_of_scope(workloads: Workloads, request: AdmissionRequest) -> Text | None:
    """Return why a request is out of scope, in a few words, or None if it is in scope."""
    if request.object is None or not workloads.holds_pods(request.group, request.kind):
        return _NO_PODS
    is_pod = request.kind == "Pod" and not request.group
    metadata = request.object.get("metadata")
    if isinstance(metadata, dict) and (reason := _settled(workloads, metadata, is_pod)):
        return reason
    if is_pod and request.subresource == "ephemeralcontainers" and request.operation == "UPDATE":
        return None
    # The images of a pod may change, which is validated; there is nothing to patch.
    updates = not (is_pod and request.mutating)
    if request.subresource or request.operation not in (("CREATE", "UPDATE") if updates else ("CREATE",)):
        return _UNCHECKED_UPDATE
    return None


def _settled(workloads: Workloads, metadata: Mapping[str, Any], is_pod: bool) -> Text | None:
    """Return why an object is out of scope by its metadata, or None."""
    if metadata.get("deletionTimestamp"):
        return _DELETED
    annotations, owners = metadata.get("annotations"), metadata.get("ownerReferences")
    if is_pod:
        mirrors = isinstance(annotations, dict) and _MIRROR_ANNOTATION in annotations
        return _MIRROR if mirrors else None
    checked = isinstance(owners, list) and any(_is_checked(workloads, owner) for owner in owners)
    return _OWNER_CHECKED if checked else None


def _is_checked(workloads: Workloads, owner: object) -> bool:
    """Return whether an owner controls the object, and its templates are those of the object."""
    if not isinstance(owner, dict) or owner.get("controller") is not True:
        return False
    return workloads.is_complete(str(owner.get("apiVersion")).rpartition("/")[0], str(owner.get("kind")))
