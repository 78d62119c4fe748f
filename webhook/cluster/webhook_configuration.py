"""Keeps the matchConditions of both webhook configurations at the rules in force.

A rule is in force in the gate at once, for all objects that the gate is asked about. Those that no rule was
about before are missed until the condition names their resource, and nobody judges them later: so what is to
be added is written as soon as the rules are settled, and once a second where they change all the time. Taking
away is never urgent, since what is asked about for nothing is let pass. It waits until no rule here has named
the resource for SETTLING: a replica that has not heard of a rule yet does not undo what another has written.
While a rule reads wrong, nothing is taken away: another replica may have a good version of it in force.
Before the rules are known, nothing is written; where there are none, and none is wrong, the condition becomes
`false` in the end.

All replicas do this. They write the same text, so whoever comes second finds it written.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from certs.ca_bundle import KINDS, NAME
from certs.kubernetes_api import Conflict, Kubernetes, KubernetesError, NotFound
from certs.periodic_task import PeriodicTask
from webhook.cluster.match_conditions import CONDITION, PODS, expression, resources_in, resources_of
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from rules import Loaded, Workloads
    from webhook.admission.handler import AdmissionHandler

_log = logging.getLogger("gpugate.cluster")

# Seconds between two looks, two small reads each: so long may a condition be wrong that somebody overwrote.
LOOK_INTERVAL: Final = 2.0
# Seconds from a write to the next: an API server compiles all of a condition anew, which takes it longer than
# all else that a new rule is to it.
REST: Final = 1.0
# Seconds. A replica hears of a rule in a fraction of one; a slower one has lost its watch, and cannot write.
SETTLING: Final = 60.0
# Conflicts of one look; each is a step of somebody else's, and those end.
_MOST_TRIES: Final = 20
# The webhooks that are about pods and what holds them, and the condition in each that is ours.
_WEBHOOKS: Final = ("mutate.gpugate.dev", "validate.gpugate.dev")


class Conditions:
    """Keeps the conditions at what a gate has in force; work in the background, see webhook.runtime.

    clock: seconds, from any start.
    """

    awaited: Collection[str] = ()

    def __init__(
        self, api: Kubernetes, gate: AdmissionHandler, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._gate = gate
        self._clock = clock
        # By configuration: what a condition names and no rule here, and since when.
        self._unnamed: dict[str, dict[str, float]] = {}
        self._wrote = False  # in the last look
        self._looks = PeriodicTask(
            "conditions",
            self.look,
            lambda: LOOK_INTERVAL,
            _complain,
            cooldown=lambda: REST if self._wrote else 0,
        )

    def start(self) -> None:
        """Write what is in force, and again whenever that changes; returns at once."""
        self._gate.on_rules = self._looks.trigger
        self._looks.start()

    def stop(self) -> None:
        """Write no more; returns at once."""
        self._looks.stop()

    def look(self) -> None:
        """Write both configurations where they are not as they should be. Raises KubernetesError."""
        self._wrote = False
        if not self._gate.synced:
            return  # what is in force is not known yet
        snapshot = self._gate.snapshot
        for kind, workloads in zip(KINDS, (PODS, snapshot.policy.workloads), strict=True):
            self._keep(kind, workloads, snapshot.loaded)

    def _keep(self, kind: str, workloads: Workloads, loaded: Loaded) -> None:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s/{NAME}"
        for _ in range(_MOST_TRIES):
            try:
                document = self._api.get(path)
            except NotFound:
                metrics.WEBHOOKS.labels(kind).set(0)
                return
            metrics.WEBHOOKS.labels(kind).set(sum(1 for _ in _ours(document)))
            named = resources_of(loaded.rules)
            stays = self._staying(kind, _named_in(document) - named, narrowing=not loaded.errors)
            edits = list(_edits(document, expression(named | stays, workloads)))
            if not edits:
                return
            # As certs.ca_bundle does it: an old version in the result is a conflict.
            version = document["metadata"]["resourceVersion"]
            try:
                self._api.patch(path, [_replace("/metadata/resourceVersion", version), *edits])
            except Conflict as conflict:
                _log.debug("another was faster: %s", conflict)
            else:
                self._wrote = True
                _log.info("%s %s: pods that ask for %s resources are asked about", kind, NAME, len(named))
                return
        raise KubernetesError(f"{kind} {NAME} does not come to rest: others keep changing it")

    def _staying(self, kind: str, unnamed: Collection[str], *, narrowing: bool) -> set[str]:
        """Return what stays in a condition though no rule here names it."""
        now, before = self._clock(), self._unnamed.get(kind, {})
        since = self._unnamed[kind] = {name: before.get(name, now) for name in unnamed}
        return {name for name, start in since.items() if not narrowing or now - start < SETTLING}


def _complain(fault: Exception) -> None:
    _log.warning("matchConditions are not kept up: %s", fault)


def _named_in(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the resources that the conditions of our webhooks name."""
    texts = (each["expression"] for _, webhook in _ours(document) for _, each in _conditions(webhook))
    return frozenset(name for text in texts for name in resources_in(text))


def _edits(document: Mapping[str, Any], text: str) -> Iterator[dict[str, Any]]:
    """Yield the operations that write an expression into our webhooks, where another stands or none."""
    for place, webhook in _ours(document):
        where = f"/webhooks/{place}/matchConditions"
        condition = {"name": CONDITION, "expression": text}
        found = list(_conditions(webhook))
        if not webhook.get("matchConditions"):
            yield {"op": "add", "path": where, "value": [condition]}
        elif not found:
            yield {"op": "add", "path": f"{where}/-", "value": condition}
        yield from (
            _replace(f"{where}/{index}/expression", text)
            for index, each in found
            if each["expression"] != text
        )


def _ours(document: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for place, webhook in enumerate(document.get("webhooks") or ()):
        if webhook["name"] in _WEBHOOKS:
            yield place, webhook


def _conditions(webhook: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for index, each in enumerate(webhook.get("matchConditions") or ()):
        if each["name"] == CONDITION:
            yield index, each


def _replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}
