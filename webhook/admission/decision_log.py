"""What was decided, told to metrics and log.

A server tells of many at once: one by one, each in between requests, they take twice the CPU.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rules.model.workload_kinds import built_in_workloads
from webhook.telemetry import metrics
from webhook.telemetry.logs import log_event

if TYPE_CHECKING:
    from rules import Decision
    from webhook.admission.review import Review

_log = logging.getLogger("gpugate.admission")
# From it the kind that stands in a metric's label is bounded: whatever else is asked is `other`.
_KINDS: Final = frozenset({"ConfigMap", *(kind for _, kind in built_in_workloads().paths)})
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_LONGEST_NAME: Final = 253  # characters of a DNS subdomain, as Kubernetes bounds names
# Decisions that a server tells of at once, in half a millisecond, and seconds after which it tells of fewer.
_MANY: Final = 64
_SOON_S: Final = 0.2


class Entry(NamedTuple):
    """One decision, in short: it holds on to nothing of the object.

    at: seconds since the epoch. violations: rule and action of each. edits: of the patch. seconds: it took.
    """

    at: float
    endpoint: str
    uid: str
    kind: str
    namespace: str
    name: str
    operation: str
    dry_run: bool
    allowed: bool
    rules: tuple[str, ...]
    cuda_sources: tuple[str, ...]
    violations: tuple[tuple[str, str], ...]
    edits: int
    seconds: float


class DecisionLog:
    """Counts and logs decisions: at once, or while it gathers, soon. Any thread may write to it."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._many = 1
        self._settling = threading.Lock()

    def note(self, endpoint: str, review: Review, decision: Decision, seconds: float) -> None:
        """Note the decision on a review, which took so many seconds."""
        request, found = review.request, decision.violations
        entry = Entry(
            time(),
            endpoint,
            review.uid[:_LONGEST_NAME],
            request.kind[:_LONGEST_NAME],
            request.namespace[:_LONGEST_NAME],
            review.name[:_LONGEST_NAME],
            request.operation if request.operation in _OPERATIONS else "other",
            review.dry_run,
            decision.allowed,
            decision.rules,
            decision.cuda_sources,
            tuple([(each.rule, each.action.value) for each in found]) if found else (),
            len(decision.patch),
            seconds,
        )
        self._entries.append(entry)
        if len(self._entries) >= self._many:
            self.settle()

    def settle(self) -> None:
        """Count and log what was noted."""
        with self._settling:
            while self._entries:
                entry = self._entries.popleft()
                try:
                    _count(entry)
                    _tell(entry)
                except Exception as error:  # noqa: BLE001 - a bug of ours must cost this one line, not others
                    metrics.ERRORS.labels("internal").inc()
                    _log.error("a decision was not told: %s", type(error).__name__)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Settle many at once, until the block ends."""
        self._many, over = _MANY, threading.Event()

        def settle_soon() -> None:
            while not over.wait(_SOON_S):
                self.settle()

        threading.Thread(target=settle_soon, name="ledger", daemon=True).start()
        try:
            yield
        finally:
            over.set()
            self._many = 1
            self.settle()


def shown(text: str) -> str:
    """Return a text of a request as a log may hold it: one line, no longer than a name can be."""
    short = text[:_LONGEST_NAME]
    if short.isprintable():
        return short
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in short)


def _count(entry: Entry) -> None:
    endpoint, allowed = entry.endpoint, "true" if entry.allowed else "false"
    kind = entry.kind if entry.kind in _KINDS else "other"
    requests, durations = metrics.admissions_of(endpoint, kind, entry.operation, allowed)
    requests.inc()
    durations.observe(entry.seconds)
    for source in entry.cuda_sources:
        metrics.counter_of(metrics.CUDA_SOURCES, endpoint, source).inc()
    for name in entry.rules:
        metrics.counter_of(metrics.RULE_MATCHES, endpoint, name).inc()
    for rule, action in entry.violations:
        metrics.counter_of(metrics.RULE_RESULTS, endpoint, rule, action).inc()


def _tell(entry: Entry) -> None:
    violated: dict[str, list[str]] = {}
    for rule, action in dict.fromkeys(entry.violations):
        violated.setdefault(action, []).append(rule)
    facts: dict[str, Any] = {
        "uid": shown(entry.uid),
        "endpoint": entry.endpoint,
        "kind": shown(entry.kind),
        "namespace": shown(entry.namespace),
        "object": shown(entry.name),
        "operation": entry.operation,
        "dryRun": entry.dry_run,
        "rules": list(entry.rules),
        "violations": violated,
        "verdict": "allow" if entry.allowed else "deny",
        "edits": entry.edits,
        "microseconds": round(entry.seconds * 1e6),
    }
    log_event(_log, f"{facts['verdict']} {facts['kind']} {facts['namespace']}/{facts['object']}", facts, entry.at)
