"""A pod, its events and its logs, from a cluster or files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.cli.audit.workloads import WorkloadObject
from webhook.cli.why.failures import Source, Statement, log_statements, shortened

# States of containers, in the order in which they count: https://kubernetes.io/docs/reference/kubernetes-api/
_STATES: Final = (("state", "waiting"), ("state", "terminated"), ("lastState", "terminated"))
_STATUSES: Final = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@dataclass(slots=True)
class PodFacts:
    """What is known of a pod. logs: text by its place; notes: what could not be read, and why."""

    pod: Mapping[str, Any]
    events: list[Mapping[str, Any]] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

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
        found = self.pod.get("status")
        return found if isinstance(found, dict) else {}

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
            isinstance(each.get("state"), dict)
            and "running" in each["state"]
            and not each.get("restartCount")
            for kind, each in containers
            if kind == "containerStatuses"
        )
        return phase == "Succeeded" or (phase == "Running" and bool(containers) and running)

    def _containers(self) -> list[tuple[str, Mapping[str, Any]]]:
        lists = {kind: self.status.get(kind) for kind in _STATUSES}
        return [
            (kind, each)
            for kind, statuses in lists.items()
            for each in (statuses if isinstance(statuses, list) else ())
            if isinstance(each, dict)
        ]

    def crashed(self) -> list[tuple[str, bool]]:
        """Return the containers whose logs matter, each with whether its last run is meant."""
        found = []
        for _, each in self._containers():
            states = (each.get(key) for key in ("state", "lastState"))
            state, last = (value if isinstance(value, dict) else {} for value in states)
            name = str(each.get("name"))
            if "terminated" in last:
                found.append((name, True))
            if "running" in state or "terminated" in state:
                found.append((name, False))
        return found

    def state(self) -> str:
        """Return phase and reason of the pod, and the reasons of its containers, in one line."""
        texts = [str(self.status.get("phase") or "Unknown")]
        texts += [str(reason)] if (reason := self.status.get("reason")) else []
        for name, _, found in self._states():
            if reason := found.get("reason"):
                code = f", exit code {found['exitCode']}" if "exitCode" in found else ""
                texts.append(f"container {name!r}: {reason}{code}")
        return shortened("; ".join(dict.fromkeys(texts)))

    def _states(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Yield the container, the kind of state and the state of each that waits or has ended."""
        for _, each in self._containers():
            for name, kind in _STATES:
                of = each.get(name)
                if isinstance(of, dict) and isinstance(found := of.get(kind), dict):
                    yield str(each.get("name")), kind, found

    def statements(self) -> Iterator[Statement]:
        """Yield what status, events and logs say, in this order; of scheduling only until there is a node."""
        words = (self.status.get("reason"), self.status.get("message"))
        if text := " ".join(str(each) for each in words if each):
            yield Statement(Source.STATUS, "status of the pod", shortened(text))
        conditions = self.status.get("conditions")
        for each in conditions if isinstance(conditions, list) and not self.scheduled else ():
            if isinstance(each, dict) and each.get("status") == "False" and each.get("message"):
                place = f"condition {each.get('type')}"
                yield Statement(Source.STATUS, place, shortened(str(each["message"])))
        for name, _, found in self._states():
            text = " ".join(str(found[key]) for key in ("reason", "message") if found.get(key))
            if text:
                yield Statement(Source.STATUS, f"status of container {name!r}", shortened(text))
        for each in self.events:
            reason = str(each.get("reason", ""))
            if not (self.scheduled and reason == "FailedScheduling"):
                text = f"{reason}: {each.get('message') or each.get('note') or ''}"
                yield Statement(Source.EVENT, "event", shortened(text))
        for place, text in self.logs.items():
            yield from log_statements(place, text)


def events_of(pod: Mapping[str, Any], documents: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return the events about a pod among objects, by its name."""
    name = pod.get("metadata", {}).get("name")
    found: list[Mapping[str, Any]] = []
    for each in documents:
        if isinstance(each, dict) and each.get("kind") == "Event":
            about = each.get("involvedObject") or each.get("regarding") or {}
            if isinstance(about, dict) and about.get("name") in (name, None):
                found.append(each)
    return found
