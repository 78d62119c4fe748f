"""Kubernetes Events on the workloads whose pods are denied, for `--denial-events`.

A denied pod does not exist, so nobody would see an Event on it, and its ReplicaSet reports FailedCreate on
itself. This Event is on what a user applied: the Deployment.

Requests only note a denial; a thread writes Events, at most MAX_EVENTS each WRITE_INTERVAL.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from certs.kubernetes_api import KubernetesError, NotFound
from certs.periodic_task import PeriodicTask
from rules.kube.names import is_object_name
from webhook.admission.decision_log import Controller, controller_of
from webhook.cluster.events import MESSAGE_LENGTH, count_event
from webhook.telemetry import metrics

if TYPE_CHECKING:
    from certs.kubernetes_api import Kubernetes
    from webhook.admission.handler import AdmissionHandler
    from webhook.admission.review import Review

_log = logging.getLogger("gpugate.cluster")

REASON: Final = "AdmissionDenied"
# Seconds between two runs, and Events of one: five a second, each of at most four requests.
WRITE_INTERVAL: Final = 10.0
MAX_EVENTS: Final = 50
# Different denials that wait: 2 MB of messages.
MAX_WAITING: Final = 1000
# Seconds until the next run if no denial triggers one.
_IDLE: Final = 3600.0
# Kinds that controllers of other kinds create, and their plurals.
_CREATED: Final = {("apps/v1", "ReplicaSet"): "replicasets", ("batch/v1", "Job"): "jobs"}


class _Denial(NamedTuple):
    namespace: str
    controller: Controller
    message: str


class DenialEvents:
    """Writes an Event for each different denial of a handler, and counts equal ones in it."""

    awaited: Collection[str] = ()

    def __init__(self, api: Kubernetes, handler: AdmissionHandler) -> None:
        self._api = api
        self._waiting: dict[_Denial, int] = {}  # the number of equal ones
        self._lock = threading.Lock()
        self._task = PeriodicTask(
            "denial events",
            self.write,
            lambda: WRITE_INTERVAL if self._waiting else _IDLE,
            _log_failure,
            cooldown=lambda: WRITE_INTERVAL,
        )
        handler.on_denial = self._on_denial

    def start(self) -> None:
        """Write Events from now on; returns at once."""
        self._task.start(_IDLE)

    def stop(self) -> None:
        """Write no more Events; returns at once."""
        self._task.stop()

    def write(self) -> None:
        """Write the Events of the first denials that wait; after all, raise the first KubernetesError."""
        with self._lock:
            denials = [(denial, self._waiting.pop(denial)) for denial in [*islice(self._waiting, MAX_EVENTS)]]
        failures = []
        for denial, number in denials:
            try:
                self._write(denial, number)
            except KubernetesError as failure:
                metrics.DENIAL_EVENTS.labels("failed").inc()
                failures.append(failure)
        if failures:
            raise failures[0]

    def _on_denial(self, review: Review, message: str) -> None:
        request = review.request
        metadata = (request.object or {}).get("metadata")
        controller = controller_of(metadata) if isinstance(metadata, dict) else None
        if controller is None or review.dry_run or not is_object_name(request.namespace):
            return
        # One character more than the limit, so that the Event shows that it is cut.
        denial = _Denial(request.namespace, controller, message[: MESSAGE_LENGTH + 1])
        with self._lock:
            if denial in self._waiting or len(self._waiting) < MAX_WAITING:
                self._waiting[denial] = self._waiting.get(denial, 0) + 1
            else:
                metrics.DENIAL_EVENTS.labels("dropped").inc()
        self._task.trigger()

    def _write(self, denial: _Denial, number: int) -> None:
        if owner := self._applied(denial.namespace, denial.controller):
            involved = {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "namespace": denial.namespace,
                "name": owner.name,
                "uid": owner.uid,
            }
            count_event(self._api, involved, REASON, denial.message, number)
            metrics.DENIAL_EVENTS.labels("written").inc()

    def _applied(self, namespace: str, controller: Controller) -> Controller | None:
        """Return the controller of a ReplicaSet or Job, else itself; None if it does not exist any more.

        Raises KubernetesError.
        """
        if (plural := _CREATED.get((controller.api_version, controller.kind))) is None:
            return controller
        name = quote(controller.name, safe="")
        try:
            created = self._api.get(f"/apis/{controller.api_version}/namespaces/{namespace}/{plural}/{name}")
        except NotFound:
            return None
        metadata = created["metadata"]
        return (controller_of(metadata) or controller) if metadata.get("uid") == controller.uid else None


def _log_failure(fault: Exception) -> None:
    _log.warning("cannot write Events on the workloads of denied pods: %s", fault)
