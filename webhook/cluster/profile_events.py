"""Kubernetes Events on the ConfigMaps of node profiles that their present nodes contradict.

All replicas write the same Events, so that each is there once. An Event lives for an hour: one is written
again when its difference returns, when the profile changes, and after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from http import HTTPStatus
from itertools import islice
from typing import Final

from certs.kubernetes_api import Kubernetes, KubernetesError
from certs.periodic_task import PeriodicTask
from rules import Snapshot
from rules.lint.profile_differences import differences_of_rules
from webhook.admission.handler import AdmissionHandler
from webhook.cluster.client import ApiError
from webhook.cluster.events import create_event, reference
from webhook.cluster.resource import Object

_log = logging.getLogger("gpugate.cluster")

REASON: Final = "ProfileDiffers"
# Seconds between two checks. While nodes join, their labels change every few seconds.
CHECK_INTERVAL: Final = 30.0
# Events of one check; more do not help, and `gpugate nodes` lists all.
MAX_EVENTS: Final = 20


class ProfileEvents:
    """Writes the Events of a handler's rules and nodes, until it is not permitted to.

    config_map: returns the newest rule ConfigMap with a name, or None.
    """

    awaited: Collection[str] = ()

    def __init__(
        self, api: Kubernetes, handler: AdmissionHandler, config_map: Callable[[str], Object | None]
    ) -> None:
        self._api, self._handler, self._config_map = api, handler, config_map
        self._checked: Snapshot | None = None
        self._written: frozenset[tuple[str, str, str]] = frozenset()  # name, resourceVersion, message
        self._task = PeriodicTask("profile events", self.check, lambda: CHECK_INTERVAL, _log_failure)

    def start(self) -> None:
        """Check periodically; returns at once."""
        self._task.start()

    def stop(self) -> None:
        """Stop checking; returns at once."""
        self._task.stop()

    def check(self) -> None:
        """Write the Events that are missing if rules or nodes have changed. Raises KubernetesError."""
        snapshot = self._handler.snapshot
        if snapshot is self._checked or not self._handler.synced:
            return
        events = set()
        for name, message in islice(_differences(snapshot, self._handler.stale), MAX_EVENTS):
            if (config_map := self._config_map(name)) is None:
                continue  # deleted a moment ago
            event = (name, config_map["metadata"]["resourceVersion"], message)
            if event not in self._written:
                self._write(config_map, message)
            events.add(event)
        self._checked, self._written = snapshot, frozenset(events)

    def _write(self, config_map: Object, message: str) -> None:
        try:
            create_event(self._api, reference(config_map), REASON, message)
        except KubernetesError as error:
            if isinstance(error.__cause__, ApiError) and error.__cause__.status == HTTPStatus.FORBIDDEN:
                self.stop()
            raise


def _differences(snapshot: Snapshot, stale: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each profile in force that differs from its nodes, with a message that names no node.

    Nodes come and go, and each other message would be another Event.
    """
    for difference in differences_of_rules(snapshot.policy.rules, snapshot.inventory):
        message = (
            f"node profile and reality differ: {difference.fact} is {difference.stated} in the profile, but "
            f"{difference.reported} on present nodes; correct the profile, or the labels in its match; "
            "`gpugate nodes` names the nodes"
        )
        if difference.profile not in stale:
            yield difference.profile, message


def _log_failure(fault: Exception) -> None:
    _log.warning("cannot write Events on node profiles: %s", fault)
