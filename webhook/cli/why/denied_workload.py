"""A workload without pods: what its controllers report about pods that they could not create."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from rules.text.i18n import Message
from webhook.cli.audit.workloads import WorkloadObject
from webhook.cli.why.failures import Source, Statement, shortened

# Reason of the event and type of the condition that controllers write if the API server rejects a pod:
# https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controller/controller_utils.go
FAILED_CREATE: Final = "FailedCreate"
_REPLICA_FAILURE: Final = "ReplicaFailure"
# ReplicaSets or Jobs of one workload that are read, the newest first.
_MOST_CHILDREN: Final = 8
_EVENT_OF: Final = Message("event of {kind}/{name}")
_CONDITION_OF: Final = Message("condition {condition} of {kind}/{name}")


class WorkloadFacts(Struct):
    """A workload that has no pods, with its events."""

    object: WorkloadObject
    children: tuple[WorkloadObject, ...] = ()  # objects that it controls, the newest first
    events: list[Mapping[str, Any]] = field(default_factory=list)  # FailedCreate, of object and children
    notes: list[str] = field(default_factory=list)  # what could not be read, and why
    logs: dict[Message, str] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: WorkloadObject, children: Sequence[WorkloadObject]) -> WorkloadFacts:
        """Return the facts of a workload and the objects that it controls."""
        newest = sorted(children, key=_created, reverse=True)
        return cls(workload, tuple(newest[:_MOST_CHILDREN]))

    @property
    def document(self) -> Mapping[str, Any]:
        """The workload as JSON."""
        return self.object.document

    @property
    def spec(self) -> Mapping[str, Any]:
        """Spec of the workload, empty if it has none."""
        spec = self.document.get("spec")
        return spec if isinstance(spec, dict) else {}

    @property
    def runs(self) -> bool:
        """Whether the workload requires no pods."""
        return self.spec.get("replicas") == 0 or self.spec.get("suspend") is True

    @property
    def fails(self) -> bool:
        """Whether a condition reports that pods cannot be created."""
        return any(True for _ in self._conditions())

    def state(self) -> str:
        """Return the state of the workload, in a few words."""
        return "no pods"

    def add_events(self, events: list[dict[str, Any]]) -> None:
        """Add the events about the workload and its children. events: all of its namespace."""
        about = {(controller.kind, controller.key.name) for controller in (self.object, *self.children)}
        self.events += [
            event for event in events if self._about(event) in about and event.get("reason") == FAILED_CREATE
        ]

    @staticmethod
    def _about(event: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return kind and name of the object of an event."""
        place = event.get("involvedObject") or {}
        return place.get("kind"), place.get("name")

    def statements(self) -> Iterator[Statement]:
        """Yield the newest event of each object; without events, the conditions.

        Older events may be outdated, and a condition keeps the message of the first failure.
        """
        newest = {self._about(event): event for event in self.events}
        for (kind, name), event in newest.items():
            text = f"{FAILED_CREATE}: {_first_line(event.get('message'))}"
            yield Statement(Source.EVENT, _EVENT_OF.having(kind=kind, name=name), text)
        if not newest:
            yield from self._conditions()

    def _conditions(self) -> Iterator[Statement]:
        for controller in (self.object, *self.children[:1]):
            status = controller.document.get("status")
            conditions = status.get("conditions") if isinstance(status, dict) else None
            for condition in conditions if isinstance(conditions, list) else ():
                if not isinstance(condition, dict) or condition.get("type") != _REPLICA_FAILURE:
                    continue
                if condition.get("status") == "True":
                    place = _CONDITION_OF.having(
                        condition=_REPLICA_FAILURE, kind=controller.kind, name=controller.key.name
                    )
                    text = f"{condition.get('reason')}: {_first_line(condition.get('message'))}"
                    yield Statement(Source.STATUS, place, text)


def _created(workload_object: WorkloadObject) -> str:
    return str(workload_object.metadata.get("creationTimestamp") or "")


def _first_line(message: object) -> str:
    """Return the first line of a message, which has the first finding."""
    return shortened(str(message or "").partition("\n")[0])
