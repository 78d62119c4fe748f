"""Workloads: the objects that people change, each with the pods that run for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rules import Workloads

# Steps from a pod to the object that people change: Pod, Job, JobSet, TrainJob, and others of that kind.
_MAX_OWNERS: Final = 8
# Phases of pods that have ended: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
_ENDED_PHASES: Final = ("Succeeded", "Failed")
# Conditions of a Job that has ended: https://kubernetes.io/docs/concepts/workloads/controllers/job/
_ENDED_CONDITIONS: Final = ("Complete", "Failed")
_DEFAULT_NAMESPACE: Final = "default"


class Key(NamedTuple):
    """What identifies an object of a cluster. group: empty for the core API."""

    group: str
    kind: str
    namespace: str
    name: str


class WorkloadObject(NamedTuple):
    """An object that is or contains pods. source: file and line; empty for one of a cluster."""

    group: str
    kind: str
    document: Mapping[str, Any]
    source: str = ""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Metadata of the object, empty if it has none."""
        found = self.document.get("metadata")
        return found if isinstance(found, dict) else {}

    @property
    def key(self) -> Key:
        """What identifies the object."""
        where, name = self.metadata.get("namespace"), self.metadata.get("name")
        return Key(self.group, self.kind, str(where or _DEFAULT_NAMESPACE), str(name or ""))

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
            isinstance(each, dict) and each.get("type") in _ENDED_CONDITIONS and each.get("status") == "True"
            for each in (conditions if isinstance(conditions, list) else ())
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """An object that people change, and its pods.

    object: the object with the pod templates; None for a pod of its own, and if only the pods are known.
    pods: those that have not ended. children: what the object controls that is no pod, as ReplicaSets.
    """

    key: Key
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
        """Everything to evaluate: the object, if it is known, and the pods."""
        return self.pods if self.object is None else (self.object, *self.pods)


def workload_objects(
    documents: Iterable[tuple[str, Mapping[str, Any]]], kinds: Workloads
) -> Iterator[WorkloadObject]:
    """Yield the objects that are or contain pods among (source, document) pairs."""
    for source, document in documents:
        group, kind = str(document.get("apiVersion", "")).rpartition("/")[0], str(document.get("kind"))
        if kinds.holds_pods(group, kind):
            yield WorkloadObject(group, kind, document, source)


def workloads_in(objects: Iterable[WorkloadObject]) -> list[Workload]:
    """Return the workloads among objects that are or contain pods, in the order of their first objects.

    An object counts for the highest of its controllers that is among the objects; a pod without one of these
    counts for its own controller, which is known by name only. What has ended is left out, and so is an
    object whose controller is among them: the controller makes it again. Linear in the objects.
    """
    found = list(objects)
    known = {each.key: each for each in found if each.key.name}
    tops: dict[Key | int, WorkloadObject] = {}
    pods: dict[Key | int, list[WorkloadObject]] = {}
    children: dict[Key | int, list[WorkloadObject]] = {}
    keys: dict[Key | int, Key] = {}
    for each in found:
        if each.has_ended:
            continue
        top = _top(each, known)
        key = _controller(top) or top.key if top.is_pod else top.key
        place: Key | int = key if key.name else id(each)  # objects without a name are not the same
        keys[place] = key
        if each.is_pod:
            pods.setdefault(place, []).append(each)
        elif top is each:
            tops.setdefault(place, each)
        else:
            children.setdefault(place, []).append(each)
    return [
        Workload(key, tops.get(place), tuple(pods.get(place, ())), tuple(children.get(place, ())))
        for place, key in keys.items()
        if place in tops or place in pods
    ]


def _top(each: WorkloadObject, known: Mapping[Key, WorkloadObject]) -> WorkloadObject:
    """Return the highest controller of an object among the known objects; without one, the object."""
    for _ in range(_MAX_OWNERS):
        owner = _controller(each)
        if owner is None or (above := known.get(owner)) is None:
            break
        each = above
    return each


def _controller(each: WorkloadObject) -> Key | None:
    """Return the controller of an object."""
    owners = each.metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller"):
            group = str(owner.get("apiVersion", "")).rpartition("/")[0]
            return Key(group, str(owner.get("kind", "")), each.key.namespace, str(owner.get("name", "")))
    return None
