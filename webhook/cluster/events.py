"""Kubernetes Events: why a rule ConfigMap is not in force; on node profiles, nodes and workloads.

Source: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec

from certs.kubernetes_api import Conflict, Kubernetes, KubernetesError

_log = logging.getLogger("gpugate.cluster")

REASON: Final = "RuleRefused"
# Bytes of a message at most: https://github.com/kubernetes/api/blob/master/events/v1/types.go, `note`.
MESSAGE_LENGTH: Final = 1024
# Characters: of an object's name at most, and of the digest in an Event's. 16 hexadecimal digits distinguish
# the few errors that a ConfigMap has within the hour that an Event lives.
_NAME_LENGTH: Final = 253
_DIGEST_LENGTH: Final = 16


class Creates(Protocol):
    """An API that creates objects, as certs.kubernetes_api.Kubernetes does."""

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Create an object; raises Conflict if one with this name exists, KubernetesError."""


def _now() -> datetime:
    return datetime.now(UTC)


def write_rule_event(
    api: Kubernetes, config_map: dict[str, Any], message: str, now: Callable[[], datetime] = _now
) -> None:
    """Write the Event that this version of a ConfigMap is refused, once for all replicas and restarts.

    A failure is only logged, because a metric and the log also report the error of the rule.
    """
    write_event(api, reference(config_map), REASON, message, now)


def reference(config_map: dict[str, Any]) -> dict[str, str]:
    """Return the reference of an Event to this version of a ConfigMap."""
    metadata = config_map["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata["resourceVersion"],
    }


def write_event(
    api: Creates,
    involved: dict[str, str],
    reason: str,
    message: str,
    now: Callable[[], datetime] = _now,
) -> None:
    """Write a Warning Event as `create_event` does; a failure is only logged."""
    try:
        create_event(api, involved, reason, message, now)
    except KubernetesError as error:
        _log.warning("cannot write an Event on %s: %s", involved["name"], error)


def create_event(
    api: Creates,
    involved: dict[str, str],
    reason: str,
    message: str,
    now: Callable[[], datetime] = _now,
) -> None:
    """Write a Warning Event on an object, once for all replicas with the same message.

    involved: a reference to the object. If it has no namespace, its Events go where kubelets write theirs.
    Raises KubernetesError.
    """
    path, event = _event(involved, reason, message, now())
    with suppress(Conflict):  # another replica was faster
        api.create(path, event)


def count_event(api: Kubernetes, involved: dict[str, str], reason: str, message: str, number: int) -> None:
    """Write a Warning Event on an object as `create_event` does, and count in it what happened again.

    number: how often it happened since the last time. If two replicas count at the same moment, the number of
    one may be lost. Raises KubernetesError.
    """
    path, event = _event(involved, reason, message, api.now(), number)
    try:
        api.create(path, event)
    except Conflict:
        path = f"{path}/{event['metadata']['name']}"
        count = (api.get(path).get("count") or 0) + number
        changes = {"/count": count, "/lastTimestamp": event["lastTimestamp"]}
        api.patch(path, [{"op": "add", "path": field, "value": value} for field, value in changes.items()])


def _event(
    involved: dict[str, str], reason: str, message: str, now: datetime, count: int = 1
) -> tuple[str, dict[str, Any]]:
    """Return the collection of a Warning Event on an object, and the Event.

    Its name is a digest of the content, so that a second Event with the same content is a conflict.
    """
    namespace, name = involved.get("namespace", "default"), involved["name"]
    digest = sha256(msgspec.json.encode([involved, message])).hexdigest()[:_DIGEST_LENGTH]
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": namespace,
            "name": f"{name[: _NAME_LENGTH - _DIGEST_LENGTH - 1].rstrip('-.')}.{digest}",
        },
        "type": "Warning",
        "reason": reason,
        "message": _truncated(message),
        "involvedObject": involved,
        "source": {"component": "gpugate"},
        "count": count,
        "firstTimestamp": time,
        "lastTimestamp": time,
    }
    return f"/api/v1/namespaces/{namespace}/events", event


def _truncated(message: str) -> str:
    """Return a message within the limit of an Event."""
    encoded = message.encode()
    if len(encoded) <= MESSAGE_LENGTH:
        return message
    return encoded[: MESSAGE_LENGTH - len("…".encode())].decode(errors="ignore") + "…"
