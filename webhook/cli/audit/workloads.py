"""Workloads: the objects that people change, each with the pods that run for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import Struct

from rules import Workloads
from webhook.cli.inputs.objects import ObjectSource

# Steps from a pod to the object that people change: Pod, Job, JobSet, TrainJob, and others of that kind.
_MAX_OWNERS: Final = 8
# Phases of pods that have ended: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
_ENDED_PHASES: Final = ("Succeeded", "Failed")
# Conditions of a Job that has ended: https://kubernetes.io/docs/concepts/workloads/controllers/job/
_ENDED_CONDITIONS: Final = ("Complete", "Failed")
_DEFAULT_NAMESPACE: Final = "default"


class ObjectKey(NamedTuple):
    """The identity of an object of a cluster."""

    group: str  # empty for the core API
    kind: str
    namespace: str
    name: str


class WorkloadObject(NamedTuple):
    """An object that is or contains pods."""

    group: str
    kind: str
    document: Mapping[str, Any]
    source: ObjectSource | None = None  # None for an object of a cluster

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the object, empty if it has none."""
        metadata = self.document.get("metadata")
        return metadata if isinstance(metadata, dict) else {}

    @property
    def key(self) -> ObjectKey:
        """Identity of the object."""
        where, name = self.metadata.get("namespace"), self.metadata.get("name")
        return ObjectKey(self.group, self.kind, str(where or _DEFAULT_NAMESPACE), str(name or ""))

    @property
    def place(self) -> str:
        """File and line, or else kind, namespace and name."""
        return str(self.source or f"{self.kind} {self.key.namespace}/{self.key.name}")

    @property
    def is_pod(self) -> bool:
        """Whether the object is a pod."""
        return (self.group, self.kind) == ("", "Pod")

    @property
    def has_ended(self) -> bool:
        """Whether the object is a pod or Job that has ended, and so is not started again."""
        status = self.document.get("status")
        if not isinstance(status, dict):
            return False
        conditions = status.get("conditions") if (self.group, self.kind) == ("batch", "Job") else None
        return (self.is_pod and status.get("phase") in _ENDED_PHASES) or any(
            isinstance(condition, dict)
            and condition.get("type") in _ENDED_CONDITIONS
            and condition.get("status") == "True"
            for condition in (conditions if isinstance(conditions, list) else ())
        )


class Workload(Struct, frozen=True):
    """An object that people change, and its pods.

    Attributes:
        object: the object with the pod templates; None for a pod without controller, and if only pods are
        known. pods: pods that have not ended. children: other objects that the object controls, such as
        ReplicaSets.
    """

    key: ObjectKey
    object: WorkloadObject | None
    pods: tuple[WorkloadObject, ...] = ()
    children: tuple[WorkloadObject, ...] = ()

    @property
    def namespace(self) -> str:
        """Namespace of the object; `default` if it has none."""
        return self.key.namespace

    @property
    def reference(self) -> str:
        """Kind and name, as `Deployment/web`."""
        return f"{self.key.kind}/{self.key.name}"

    @property
    def objects(self) -> tuple[WorkloadObject, ...]:
        """The objects to evaluate: the object, if it is known, and the pods."""
        return self.pods if self.object is None else (self.object, *self.pods)


def workload_objects(
    documents: Iterable[tuple[ObjectSource | None, Mapping[str, Any]]], kinds: Workloads
) -> Iterator[WorkloadObject]:
    """Yield the objects that are or contain pods among (source, document) pairs."""
    for source, document in documents:
        group, kind = str(document.get("apiVersion", "")).rpartition("/")[0], str(document.get("kind"))
        if kinds.holds_pods(group, kind):
            yield WorkloadObject(group, kind, document, source)


def workloads_in(objects: Iterable[WorkloadObject]) -> list[Workload]:
    """Return the workloads among objects that are or contain pods, in the order of their first objects.

    An object belongs to its highest controller among the objects. A pod without such a controller belongs to
    its own controller, of which only the name is known. Pods and Jobs that have ended are left out. An object
    with a controller among the objects is not evaluated: the controller creates it again. Linear in the
    objects.
    """
    all_objects = list(objects)
    known = {
        workload_object.key: workload_object for workload_object in all_objects if workload_object.key.name
    }
    tops: dict[ObjectKey | int, WorkloadObject] = {}
    pods: dict[ObjectKey | int, list[WorkloadObject]] = {}
    children: dict[ObjectKey | int, list[WorkloadObject]] = {}
    keys: dict[ObjectKey | int, ObjectKey] = {}
    for workload_object in all_objects:
        if workload_object.has_ended:
            continue
        top = _top(workload_object, known)
        key = _controller(top) or top.key if top.is_pod else top.key
        place: ObjectKey | int = (
            key if key.name else id(workload_object)
        )  # objects without a name are not the same
        keys[place] = key
        if workload_object.is_pod:
            pods.setdefault(place, []).append(workload_object)
        elif top is workload_object:
            tops.setdefault(place, workload_object)
        else:
            children.setdefault(place, []).append(workload_object)
    return [
        Workload(key, tops.get(place), tuple(pods.get(place, ())), tuple(children.get(place, ())))
        for place, key in keys.items()
        if place in tops or place in pods
    ]


def _top(workload_object: WorkloadObject, known: Mapping[ObjectKey, WorkloadObject]) -> WorkloadObject:
    """Return the highest controller of an object among the known objects, or else the object."""
    for _ in range(_MAX_OWNERS):
        owner = _controller(workload_object)
        if owner is None or (above := known.get(owner)) is None:
            break
        workload_object = above
    return workload_object


def _controller(workload_object: WorkloadObject) -> ObjectKey | None:
    """Return the controller of an object."""
    owners = workload_object.metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            return ObjectKey(
                group, str(owner.get("kind", "")), workload_object.key.namespace, str(owner.get("name", ""))
            )
    return None
