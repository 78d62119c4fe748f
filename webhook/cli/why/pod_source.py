"""A pod, its events and its logs, from a cluster or files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from rules.text.i18n import Message
from webhook.cli.audit.workloads import WorkloadObject
from webhook.cli.why.failures import Source, Statement, log_statements, shortened

# States of containers, in the order in which they count: https://kubernetes.io/docs/reference/kubernetes-api/
_STATES: Final = (("state", "waiting"), ("state", "terminated"), ("lastState", "terminated"))
_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_STATUS_OF_POD: Final = Message("status of the pod")
_STATUS_OF_CONTAINER: Final = Message("status of container {name!r}")
# What a container wrote to its termination log, or the end of its log: terminationMessagePolicy.
_LAST_WORDS: Final = Message("termination message of container {name!r}")
# Reasons of terminated containers of which the message is the container runtime's, not the container's:
# https://github.com/containerd/containerd/blob/v2.4.2/internal/cri/server/helpers.go
_OF_RUNTIME: Final = frozenset({"StartError", "ContainerCannotRun"})
_CONDITION: Final = Message("condition {type}")
# Of a pod whose sandbox and network exist (KEP-3085): https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
_SANDBOX: Final = "PodReadyToStartContainers"
# Health of a device that a container has (KEP-4680); a driver that reports none has the health Unknown.
_HEALTH: Final = "allocatedResourcesStatus"
_UNHEALTHY: Final = "Unhealthy"
# Of a pod that the scheduler does not consider yet:
# https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
_GATED: Final = "SchedulingGated"
_EVENT: Final = Message("event")


class PodFacts(Struct):
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
    def name(self) -> str:
        """Name of the pod."""
        return self.object.key.name

    @property
    def spec(self) -> Mapping[str, Any]:
        """Spec of the pod, empty if it has none."""
        spec = self.pod.get("spec")
        return spec if isinstance(spec, dict) else {}

    @property
    def created(self) -> str:
        """When the pod was created, as the API server writes it, or ""."""
        return str(self.object.metadata.get("creationTimestamp") or "")

    @property
    def status(self) -> Mapping[str, Any]:
        """Status of the pod, empty if it has none."""
        status = self.pod.get("status")
        return status if isinstance(status, dict) else {}

    @property
    def scheduled(self) -> bool:
        """Whether the pod has a node."""
        return bool(self.spec.get("nodeName"))

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
        """Yield the lines of status, events and logs, in this order; no scheduling if there is a node.

        Events from before the last start of a container are left out: what they report was over then.
        """
        words = (self.status.get("reason"), self.status.get("message"))
        if text := " ".join(str(word) for word in words if word):
            yield Statement(Source.STATUS, _STATUS_OF_POD, shortened(text))
        yield from self._conditions()
        for name, kind, state in self._states():
            reason, message = (str(state.get(key) or "") for key in ("reason", "message"))
            if kind == "terminated" and reason not in _OF_RUNTIME:
                yield from log_statements(_LAST_WORDS.having(name=name), message)
                message = ""
            if text := " ".join(filter(None, (reason, message))):
                yield Statement(Source.STATUS, _STATUS_OF_CONTAINER.having(name=name), shortened(text))
        yield from self._unhealthy_devices()
        started = self._last_start()
        for event in self.events:
            reason = str(event.get("reason", ""))
            is_over = started and _time_of(event) and _time_of(event) < started
            if not (is_over or (self.scheduled and reason == "FailedScheduling")):
                text = f"{reason}: {event.get('message') or event.get('note') or ''}"
                yield Statement(Source.EVENT, _EVENT, shortened(text))
        for log, text in self.logs.items():
            yield from log_statements(log, text)

    def _conditions(self) -> Iterator[Statement]:
        """Yield why a pod has no node; of a Pending pod with a node, that it has no sandbox yet."""
        conditions = self.status.get("conditions")
        for condition in conditions if isinstance(conditions, list) else ():
            if not isinstance(condition, dict) or condition.get("status") != "False":
                continue
            kind, message = condition.get("type"), str(condition.get("message") or "")
            if condition.get("reason") == _GATED:
                gates = (str(gate.get("name")) for gate in _objects(self.spec.get("schedulingGates")))
                message = f"{_GATED} {', '.join(gates)}"
            if self.scheduled:
                is_open = kind == _SANDBOX and self.status.get("phase") == "Pending"
                message = f"{_SANDBOX} False {message}".rstrip() if is_open else ""
            if message:
                yield Statement(Source.STATUS, _CONDITION.having(type=kind), shortened(message))

    def _unhealthy_devices(self) -> Iterator[Statement]:
        """Yield a line for each device of a container that its plugin or driver reports as unhealthy."""
        for _, container in self._containers():
            place = _STATUS_OF_CONTAINER.having(name=str(container.get("name")))
            for resource in _objects(container.get(_HEALTH)):
                for device in _objects(resource.get("resources")):
                    if device.get("health") == _UNHEALTHY:
                        words = (_HEALTH, resource.get("name"), device.get("resourceID"), _UNHEALTHY)
                        text = f"{' '.join(map(str, words))} {device.get('message') or ''}"
                        yield Statement(Source.STATUS, place, shortened(text.rstrip()))

    def _last_start(self) -> str:
        """Return when a container of the pod was last started, as the API server writes it, or ""."""
        states = (
            state
            for _, container in self._containers()
            for name in ("state", "lastState")
            if isinstance(container.get(name), dict)
            for state in container[name].values()
            if isinstance(state, dict)
        )
        return max((str(state.get("startedAt") or "") for state in states), default="")


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _time_of(event: Mapping[str, Any]) -> str:
    """Return when an event was last seen, as the API server writes it to the second, or ""."""
    series = event.get("series")
    last = series.get("lastObservedTime") if isinstance(series, dict) else None
    return str(last or event.get("lastTimestamp") or event.get("eventTime") or "")


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
