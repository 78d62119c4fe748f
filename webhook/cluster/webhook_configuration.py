"""Keeps the matchConditions of both webhook configurations up to date with the rules in force.

A new rule is in force immediately for all objects that the API server sends to the webhook. Objects with a
resource that no rule named before are not sent until the condition names it, and are never validated later:
so a resource is added as soon as the rules are known, at most once per COOLDOWN. Removal is not urgent, since
an unnecessary review allows the object. A resource is removed after no rule of this replica has named it for
REMOVAL_DELAY, so that a replica whose watch is late does not undo the write of another. While a rule has an
error, nothing is removed: another replica may have a good version of it in force. Before the rules are known,
nothing is written; without any rules or errors, the condition finally becomes `false`.

All replicas do this. They write the same text, so that only the first one writes.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from certs.ca_bundle import KINDS, NAME, configuration_path
from certs.kubernetes_api import Conflict, Kubernetes, KubernetesError, NotFound
from certs.periodic_task import PeriodicTask
from webhook.cluster.match_conditions import CONDITION, PODS, expression, resources_in, resources_of
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from rules import Loaded, Workloads
    from webhook.admission.handler import AdmissionHandler

_log = logging.getLogger("gpugate.cluster")

# Seconds between two checks of both objects, which are in memory; an overwritten condition is wrong for so
# long.
CHECK_INTERVAL: Final = 2.0
# Seconds from a write to the next: an API server compiles the whole condition again, which is its largest
# cost of a new rule.
COOLDOWN: Final = 1.0
# Seconds. A replica receives a rule in a fraction of one; a slower one has lost its watch, and cannot write.
REMOVAL_DELAY: Final = 60.0
# Write conflicts in one check; each is a finite step of another writer.
_MAX_ATTEMPTS: Final = 20
# The webhooks for pods and workloads, which have the condition.
_WEBHOOKS: Final = ("mutate.gpugate.dev", "validate.gpugate.dev")


class WebhookConfigurationSync:
    """Keeps the matchConditions up to date with a handler's rules. clock: a monotonic clock, in seconds."""

    awaited: Collection[str] = ()

    def __init__(
        self, api: Kubernetes, handler: AdmissionHandler, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._handler = handler
        self._clock = clock
        # By configuration: resources that a condition names and no rule here, and since when.
        self._unnamed: dict[str, dict[str, float]] = {}
        self._wrote = False  # in the last check
        self._task = PeriodicTask(
            "match conditions",
            self.check,
            lambda: CHECK_INTERVAL,
            _log_failure,
            cooldown=lambda: COOLDOWN if self._wrote else 0,
        )

    def start(self) -> None:
        """Write the conditions, and again whenever the rules change; returns at once."""
        self._handler.on_rules = self._task.trigger
        self._task.start()

    def stop(self) -> None:
        """Stop writing; returns at once."""
        self._task.stop()

    def check(self) -> None:
        """Write both configurations if they are not up to date. Raises KubernetesError."""
        self._wrote = False
        if not self._handler.synced:
            return  # the rules are not known yet
        loaded = self._handler.loaded
        for kind, workloads in zip(KINDS, (PODS, self._handler.snapshot.policy.workloads), strict=True):
            self._update(kind, workloads, loaded)

    def _update(self, kind: str, workloads: Workloads, loaded: Loaded) -> None:
        path = configuration_path(kind)
        for _ in range(_MAX_ATTEMPTS):
            try:
                document = self._api.get(path)
            except NotFound:
                metrics.WEBHOOKS.labels(kind).set(0)
                return
            metrics.WEBHOOKS.labels(kind).set(sum(1 for _ in _own_webhooks(document)))
            rule_resources = resources_of(loaded.rules)
            kept_resources = self._resources_to_keep(
                kind, _named_in(document) - rule_resources, may_remove=not loaded.errors
            )
            edits = list(_edits(document, expression(rule_resources | kept_resources, workloads)))
            if not edits:
                return
            # As in certs.ca_bundle: an old version in the result is a conflict.
            version = document["metadata"]["resourceVersion"]
            try:
                self._api.patch(path, [_replace("/metadata/resourceVersion", version), *edits])
            except Conflict as conflict:
                _log.debug("write conflict, trying again: %s", conflict)
            else:
                self._wrote = True
                _log.info(
                    "%s %s: matchConditions select pods with %s resources", kind, NAME, len(rule_resources)
                )
                return
        raise KubernetesError(f"{kind} {NAME}: cannot write matchConditions: others keep changing the object")

    def _resources_to_keep(self, kind: str, unnamed: Collection[str], *, may_remove: bool) -> set[str]:
        """Return the resources that stay in a condition although no rule here names them."""
        now, before = self._clock(), self._unnamed.get(kind, {})
        since = self._unnamed[kind] = {name: before.get(name, now) for name in unnamed}
        return {name for name, start in since.items() if not may_remove or now - start < REMOVAL_DELAY}


def _log_failure(fault: Exception) -> None:
    _log.warning("matchConditions are not up to date: %s", fault)


def _named_in(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the resources that the conditions name."""
    texts = (
        condition["expression"]
        for _, webhook in _own_webhooks(document)
        for _, condition in _conditions(webhook)
    )
    return frozenset(name for text in texts for name in resources_in(text))


def _edits(document: Mapping[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Yield the operations that set the expression where it is missing or different."""
    for place, webhook in _own_webhooks(document):
        where = f"/webhooks/{place}/matchConditions"
        condition = {"name": CONDITION, "expression": text}
        conditions = list(_conditions(webhook))
        if not webhook.get("matchConditions"):
            yield {"op": "add", "path": where, "value": [condition]}
        elif not conditions:
            yield {"op": "add", "path": f"{where}/-", "value": condition}
        yield from (
            _replace(f"{where}/{index}/expression", text)
            for index, condition in conditions
            if condition["expression"] != text
        )


def _own_webhooks(document: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for place, webhook in enumerate(document.get("webhooks") or ()):
        if webhook["name"] in _WEBHOOKS:
            yield place, webhook


def _conditions(webhook: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for index, condition in enumerate(webhook.get("matchConditions") or ()):
        if condition["name"] == CONDITION:
            yield index, condition


def _replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}
