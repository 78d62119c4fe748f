"""A pod, its events and its logs, from a cluster or files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rules.text.i18n import Message
from webhook.cli.audit.workloads import WorkloadObject
from webhook.cli.why.failures import Source, Statement, log_statements, shortened

# States of containers, in the order in which they count: https://kubernetes.io/docs/reference/kubernetes-api/
_STATES: Final = (("state", "waiting"), ("state", "terminated"), ("lastState", "terminated"))
_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_STATUS_OF_POD: Final = Message("status of the pod")
_STATUS_OF_CONTAINER: Final = Message("status of container {name!r}")
_CONDITION: Final = Message("condition {type}")
_EVENT: Final = Message("event")


@dataclass(slots=True)
class PodFacts:
    """A pod with its events and logs."""

    pod: Mapping[str, Any]
    events: list[Mapping[str, Any]] = field(default_factory=list)
    logs: dict[Message, str] = field(default_factory=dict)  # text by the name of the log
    notes: list[str] = field(default_factory=list)  # what could not be read, and why

    @property
    def object(self) -> WorkloadObject:
        """The pod as an object of its kind."""
        return WorkloadObject("", "Pod", self.pod)

    @property
    def document(self) -> Mapping[str, Any]:
        """The pod as JSON."""
        return self.pod

    @property
    def status(self) -> Mapping[str, Any]:
        """Status of the pod, empty if it has none."""
        status = self.pod.get("status")
        return status if isinstance(status, dict) else {}

    @property
    def scheduled(self) -> bool:
        """Whether the pod has a node."""
        spec = self.pod.get("spec")
        return isinstance(spec, dict) and bool(spec.get("nodeName"))

    @property
    def runs(self) -> bool:
        """Whether all containers run and none has been restarted, or the pod has succeeded."""
        containers = self._containers()
        phase = self.status.get("phase")
        running = all(
            isinstance(container.get("state"), dict)
            and "running" in container["state"]
            and not container.get("restartCount")
            for kind, container in containers
            if kind == "containerStatuses"
        )
        return phase == "Succeeded" or (phase == "Running" and bool(containers) and running)

    def _containers(self) -> list[tuple[str, Mapping[str, Any]]]:
        lists = {kind: self.status.get(kind) for kind in _STATUSES}
        return [
            (kind, container)
            for kind, statuses in lists.items()
            for container in (statuses if isinstance(statuses, list) else ())
            if isinstance(container, dict)
        ]

    def crashed(self) -> list[tuple[str, bool]]:
        """Return the logs to read, as (container, whether the log is that of its previous run)."""
        logs = []
        for _, container in self._containers():
            states = (container.get(key) for key in ("state", "lastState"))
            state, last = (value if isinstance(value, dict) else {} for value in states)
            name = str(container.get("name"))
            if "terminated" in last:
                logs.append((name, True))
            if "running" in state or "terminated" in state:
                logs.append((name, False))
        return logs

    def state(self) -> str:
        """Return phase and reason of the pod, and the reasons of its containers, in one line."""
        texts = [str(self.status.get("phase") or "Unknown")]
        texts += [str(reason)] if (reason := self.status.get("reason")) else []
        for name, _, state in self._states():
            if reason := state.get("reason"):
                code = f", exit code {state['exitCode']}" if "exitCode" in state else ""
                texts.append(f"container {name!r}: {reason}{code}")
        return shortened("; ".join(dict.fromkeys(texts)))

    def _states(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield (container, kind of state, state) for each state `waiting` or `terminated`."""
        for _, container in self._containers():
            for name, kind in _STATES:
                states = container.get(name)
                if isinstance(states, dict) and isinstance(state := states.get(kind), dict):
                    yield str(container.get("name")), kind, state

    def statements(self) -> Iterator[Statement]:
        """Yield the lines of status, events and logs, in this order; no scheduling if there is a node."""
        words = (self.status.get("reason"), self.status.get("message"))
        if text := " ".join(str(word) for word in words if word):
            yield Statement(Source.STATUS, _STATUS_OF_POD, shortened(text))
        conditions = self.status.get("conditions")
        for condition in conditions if isinstance(conditions, list) and not self.scheduled else ():
            if (
                isinstance(condition, dict)
                and condition.get("status") == "False"
                and condition.get("message")
            ):
                place = _CONDITION.having(type=condition.get("type"))
                yield Statement(Source.STATUS, place, shortened(str(condition["message"])))
        for name, _, state in self._states():
            text = " ".join(str(state[key]) for key in ("reason", "message") if state.get(key))
            if text:
                yield Statement(Source.STATUS, _STATUS_OF_CONTAINER.having(name=name), shortened(text))
        for event in self.events:
            reason = str(event.get("reason", ""))
            if not (self.scheduled and reason == "FailedScheduling"):
                text = f"{reason}: {event.get('message') or event.get('note') or ''}"
                yield Statement(Source.EVENT, _EVENT, shortened(text))
        for log, text in self.logs.items():
            yield from log_statements(log, text)


def events_of(pod: Mapping[str, Any], documents: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the events about a pod among objects, by its name."""
    name = pod.get("metadata", {}).get("name")
    events: list[Mapping[str, Any]] = []
    for document in documents:
        if isinstance(document, dict) and document.get("kind") == "Event":
            about = document.get("involvedObject") or document.get("regarding") or {}
            if isinstance(about, dict) and about.get("name") in (name, None):
                events.append(document)
    return events
