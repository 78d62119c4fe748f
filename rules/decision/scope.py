"""Which requests are in scope: everything that creates pods, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rules.model.request import AdmissionRequest
from rules.model.workload_kinds import Workloads

# The mirror of a static pod: https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror
_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
# Only its pod spec is checked: its `model` becomes pods by a ServingRuntime, which are checked as pods.
_PARTLY_CHECKED: Final = ("serving.kserve.io", "InferenceService")


def out_of_scope(workloads: Workloads, request: AdmissionRequest) -> str:
    """Return why a request is out of scope, in a few words, or nothing if it is in scope."""
    if request.object is None or not workloads.holds_pods(request.group, request.kind):
        return "it holds no pods"
    is_pod = request.kind == "Pod" and not request.group
    metadata = request.object.get("metadata")
    if isinstance(metadata, dict) and (reason := _settled(workloads, metadata, is_pod)):
        return reason
    if is_pod and request.subresource == "ephemeralcontainers" and request.operation == "UPDATE":
        return ""
    if request.subresource or request.operation not in (("CREATE",) if is_pod else ("CREATE", "UPDATE")):
        return "an update of a kind that rules do not check"
    return ""


def _settled(workloads: Workloads, metadata: Mapping[str, Any], is_pod: bool) -> str:
    """Return why an object is out of scope by its metadata, or nothing."""
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    annotations, owners = metadata.get("annotations"), metadata.get("ownerReferences")
    if is_pod:
        mirrors = isinstance(annotations, dict) and _MIRROR_ANNOTATION in annotations
        return "it mirrors a static pod, which is running" if mirrors else ""
    checked = isinstance(owners, list) and any(_is_checked(workloads, owner) for owner in owners)
    return "its owner was checked" if checked else ""


def _is_checked(workloads: Workloads, owner: object) -> bool:
    """Return whether an owner controls the object, and is itself in scope."""
    if not isinstance(owner, dict) or owner.get("controller") is not True:
        return False
    of = str(owner.get("apiVersion")).rpartition("/")[0], str(owner.get("kind"))
    return of != _PARTLY_CHECKED and workloads.holds_pods(*of)
