"""Which requests are a concern of the rules: whatever makes pods, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rules.model.request import AdmissionRequest
from rules.model.workload_kinds import Workloads

# A static pod's stand-in: https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror
_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
# Only what in it is a pod spec is judged: a ServingRuntime makes pods of the rest, `model`, judged as pods.
_PARTLY_JUDGED: Final = ("serving.kserve.io", "InferenceService")


def unjudged(workloads: Workloads, request: AdmissionRequest) -> str:
    """Return why a request is no concern of the rules, in a few words, or nothing where it is judged."""
    if request.object is None or not workloads.holds_pods(request.group, request.kind):
        return "it holds no pods"
    is_pod = request.kind == "Pod" and not request.group
    metadata = request.object.get("metadata")
    if isinstance(metadata, dict) and (reason := _settled(workloads, metadata, is_pod)):
        return reason
    if is_pod and request.subresource == "ephemeralcontainers" and request.operation == "UPDATE":
        return ""
    if request.subresource or request.operation not in (("CREATE",) if is_pod else ("CREATE", "UPDATE")):
        return "nothing in it that rules are about can change"
    return ""


def _settled(workloads: Workloads, metadata: Mapping[str, Any], is_pod: bool) -> str:
    """Return why an object needs no verdict any more, by its metadata, or nothing."""
    if metadata.get("deletionTimestamp"):
        return "it is being deleted"
    annotations, owners = metadata.get("annotations"), metadata.get("ownerReferences")
    if is_pod:
        mirrors = isinstance(annotations, dict) and _MIRROR_ANNOTATION in annotations
        return "it mirrors a static pod, which runs already" if mirrors else ""
    judged = isinstance(owners, list) and any(_judged(workloads, owner) for owner in owners)
    return "what it was made from was judged" if judged else ""


def _judged(workloads: Workloads, owner: object) -> bool:
    """Tell whether an owner makes the object, and is one that is judged itself."""
    if not isinstance(owner, dict) or owner.get("controller") is not True:
        return False
    of = str(owner.get("apiVersion")).rpartition("/")[0], str(owner.get("kind"))
    return of != _PARTLY_JUDGED and workloads.holds_pods(*of)
