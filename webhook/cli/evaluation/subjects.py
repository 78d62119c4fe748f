"""Workloads as subjects of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rules import AdmissionRequest
from webhook.cli.evaluation.what_if import Subject, unbound
from webhook.cli.evaluation.workloads import Workload, WorkloadObject

_BOUND = "nodeName"


def subjects_of(workloads: Iterable[Workload]) -> Iterator[Subject]:
    """Yield a subject for each workload; objects whose pods are malformed have none of them."""
    for each in workloads:
        pods = tuple(pod.document for pod in each.pods if _is_bound(pod))
        if each.object is not None:
            yield Subject(each.namespace, each.reference, _request(each.object), pods)
        elif each.pods and each.pods[0].key == each.key:  # a pod of its own
            yield Subject(each.namespace, each.reference, _request(each.pods[0]))
        elif each.pods:
            request = _request(each.pods[0]._replace(document=unbound(each.pods[0].document)))
            yield Subject(each.namespace, each.reference, request, pods, from_pods=True)


def _request(found: WorkloadObject) -> AdmissionRequest:
    """Return the request to create an object; a pod that has been created is not completed again."""
    created = found.is_pod and "status" in found.document
    return AdmissionRequest(
        "CREATE", found.group, found.kind, found.key.namespace, found.document, mutating=not created
    )


def _is_bound(pod: WorkloadObject) -> bool:
    spec = pod.document.get("spec")
    return isinstance(spec, dict) and bool(spec.get(_BOUND))
