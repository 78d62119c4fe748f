"""Decision log: counts decisions in metrics and writes them to the log.

A server processes them in batches: one by one, between requests, they take twice the CPU.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from rules.cuda.tables import BUILT_IN, Facts, toolkits
from rules.model.rule import Action
from rules.model.workload_kinds import built_in_workloads
from webhook.telemetry import metrics
from webhook.telemetry.logs import log_event

if TYPE_CHECKING:
    import prometheus_client

    from rules import Decision
    from rules.cuda.versions import CudaVersion
    from rules.model.decision import NeededCuda
    from webhook.admission.review import Review

_log = logging.getLogger("gpugate.admission")
# Bounds the values of a metric's label: any other kind is `other`.
_KINDS: Final = frozenset({"ConfigMap", *(kind for _, kind in built_in_workloads().paths)})
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_MAX_NAME_LENGTH: Final = 253  # characters of a DNS subdomain, the limit of Kubernetes names
# Owners among which the controller is looked for, and violations whose paths are logged: more are rare.
_MAX_OWNERS: Final = 8
_MAX_PATHS: Final = 8
# Decisions of a full batch, which takes half a millisecond, and seconds after which a smaller one is flushed.
_BATCH_SIZE: Final = 64
_FLUSH_INTERVAL_S: Final = 0.2


# A time series of a counter: the metric, and the values of its labels.
_Series: TypeAlias = "tuple[prometheus_client.Counter, *tuple[str, ...]]"


class Entry(NamedTuple):
    """Summary of one decision; it keeps no reference to the object."""

    at: float  # seconds since the epoch
    endpoint: str
    uid: str
    kind: str
    namespace: str
    name: str  # of the object, or its generateName with `*` at its end
    owner: str  # kind and name of the controller, or empty
    user: str
    operation: str
    dry_run: bool
    allowed: bool
    rules: tuple[str, ...]
    cuda_versions: tuple[NeededCuda, ...]
    violations: tuple[tuple[str, str, str, str], ...]  # rule, action, basis, and action of the rule
    paths: tuple[str, ...]  # of the first violations
    declared: tuple[str, ...]
    edits: int  # number of patch operations
    withheld: str  # as in a Decision
    enforcement: str  # the cap of --enforcement-action
    seconds: float  # duration


class Controller(NamedTuple):
    """The controller of an object, by its ownerReference, which anybody can write; each text is bounded."""

    api_version: str
    kind: str
    name: str
    uid: str


class DecisionLog:
    """Counts and logs decisions: immediately, or in batches inside `batching`. Thread-safe.

    enforcement: the cap of `--enforcement-action` on the decisions. facts: those in force.
    """

    def __init__(self, enforcement: Action = Action.DENY, facts: Facts = BUILT_IN) -> None:
        self.facts = facts
        self._enforcement = enforcement.value
        self._entries: deque[Entry] = deque()
        self._batch_size = 1
        self._flushing = threading.Lock()

    def record(self, endpoint: str, review: Review, decision: Decision, seconds: float) -> None:
        """Record the decision on a review. seconds: its duration."""
        request, violations = review.request, decision.violations
        metadata = (request.object or {}).get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        controller = controller_of(metadata)
        entry = Entry(
            time(),
            endpoint,
            review.uid[:_MAX_NAME_LENGTH],
            request.kind[:_MAX_NAME_LENGTH],
            request.namespace[:_MAX_NAME_LENGTH],
            (review.name or _name(metadata))[:_MAX_NAME_LENGTH],
            f"{controller.kind}/{controller.name}"[:_MAX_NAME_LENGTH] if controller else "",
            review.user[:_MAX_NAME_LENGTH],
            request.operation if request.operation in _OPERATIONS else "other",
            review.dry_run,
            decision.allowed,
            decision.rules,
            decision.cuda_versions,
            tuple(
                [
                    (
                        violation.rule,
                        violation.action.value,
                        violation.basis.value,
                        (violation.rule_action or violation.action).value,
                    )
                    for violation in violations
                ]
            )
            if violations
            else (),
            tuple([violation.path[:_MAX_NAME_LENGTH] for violation in violations[:_MAX_PATHS]]),
            decision.declared,
            len(decision.patch),
            decision.withheld.value if decision.withheld else "",
            self._enforcement,
            seconds,
        )
        self._entries.append(entry)
        if len(self._entries) >= self._batch_size:
            self.flush()

    def flush(self) -> None:
        """Count and log the recorded decisions."""
        with self._flushing:
            counted: Counter[_Series] = Counter()
            known = toolkits(self.facts)
            for _ in range(len(self._entries)):
                entry = self._entries.popleft()
                try:
                    counted.update(_series_of(entry, known))
                    _log_entry(entry)
                except Exception as error:  # noqa: BLE001 - a bug of ours must cost this one line, not others
                    metrics.ERRORS.labels("internal").inc()
                    _log.error("a decision was not logged: %s", type(error).__name__)
            for (metric, *labels), number in counted.items():
                metrics.counter_of(metric, *labels).inc(number)

    @contextmanager
    def batching(self) -> Iterator[None]:
        """Flush in batches until the block ends."""
        self._batch_size, over = _BATCH_SIZE, threading.Event()

        def flush_periodically() -> None:
            while not over.wait(_FLUSH_INTERVAL_S):
                self.flush()

        threading.Thread(target=flush_periodically, name="decision log", daemon=True).start()
        try:
            yield
        finally:
            over.set()
            self._batch_size = 1
            self.flush()


def _name(metadata: Mapping[str, Any]) -> str:
    """Return the name of an object; without a name, its generateName with `*` at its end."""
    if name := _text(metadata, "name"):
        return name
    return f"{beginning}*" if (beginning := _text(metadata, "generateName")) else ""


def controller_of(metadata: Mapping[str, Any]) -> Controller | None:
    """Return the controller of an object, None if it is not among the first owners."""
    owners = metadata.get("ownerReferences")
    for owner in owners[:_MAX_OWNERS] if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller") is True:
            return Controller(*[_text(owner, key) for key in ("apiVersion", "kind", "name", "uid")])
    return None


def _text(mapping: Mapping[str, Any], key: str) -> str:
    """Return the beginning of a text; empty for another value, because the object may be malformed."""
    value = mapping.get(key)
    return value[: _MAX_NAME_LENGTH - 1] if isinstance(value, str) else ""


def printable(text: str) -> str:
    """Return a text of a request in a form that is safe to log: one line, at most as long as a name."""
    short = text[:_MAX_NAME_LENGTH]
    if short.isprintable():
        return short
    return "".join(character if character.isprintable() else "\ufffd" for character in short)


def _series_of(entry: Entry, toolkits: Container[CudaVersion]) -> list[_Series]:
    """Return the time series that count an entry, and observe its duration."""
    endpoint, operation, allowed = entry.endpoint, entry.operation, "true" if entry.allowed else "false"
    kind = entry.kind if entry.kind in _KINDS else "other"
    metrics.duration_of(endpoint, kind, operation, allowed).observe(entry.seconds)
    series: list[_Series] = [(metrics.REQUESTS, endpoint, kind, operation, allowed, entry.enforcement)]
    if entry.withheld:
        series.append((metrics.WITHHELD, endpoint, kind, operation, entry.withheld, entry.enforcement))
    series += [
        (metrics.CUDA_VERSIONS, endpoint, source, _bounded(cuda, toolkits))
        for cuda, source in entry.cuda_versions
    ]
    series += [(metrics.RULE_MATCHES, endpoint, name) for name in entry.rules]
    series += [(metrics.RULE_RESULTS, endpoint, *violation) for violation in entry.violations]
    return series


def _bounded(cuda: CudaVersion | None, toolkits: Container[CudaVersion]) -> str:
    """Return the CUDA version of a toolkit as text; another one, which anybody can write, is `other`."""
    if cuda is None:
        return "unknown"
    return str(cuda) if cuda in toolkits else "other"


def _log_entry(entry: Entry) -> None:
    violated: dict[str, list[str]] = {}
    for rule, action in dict.fromkeys([violation[:2] for violation in entry.violations]):
        violated.setdefault(action, []).append(rule)
    fields: dict[str, Any] = {
        "uid": printable(entry.uid),
        "endpoint": entry.endpoint,
        "kind": printable(entry.kind),
        "namespace": printable(entry.namespace),
        "object": printable(entry.name),
        "owner": printable(entry.owner),
        "user": printable(entry.user),
        "operation": entry.operation,
        "dryRun": entry.dry_run,
        "rules": list(entry.rules),
        "violations": violated,
        "paths": [printable(path) for path in dict.fromkeys(entry.paths)],
        "bases": sorted({basis for _, _, basis, _ in entry.violations}),
        "declared": list(entry.declared),
        "verdict": "allow" if entry.allowed else "deny",
        "enforcementAction": entry.enforcement,
        "withheld": entry.withheld,
        "edits": entry.edits,
        "microseconds": round(entry.seconds * 1e6),
    }
    verdict = fields["verdict"] + (f" (would {entry.withheld})" if entry.withheld else "")
    log_event(
        _log,
        f"{verdict} {fields['kind']} {fields['namespace']}/{fields['object']}",
        fields,
        entry.at,
    )
