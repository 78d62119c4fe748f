"""Events, which `kubectl describe` shows: on rule ConfigMaps, why a version is not in force, and on nodes.

Source: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec

from certs.kubernetes_api import Conflict, Kubernetes, KubernetesError

_log = logging.getLogger("gpugate.cluster")

REASON: Final = "RuleRefused"
# Bytes of a message at most: https://github.com/kubernetes/api/blob/master/events/v1/types.go, `note`.
_MESSAGE_LENGTH: Final = 1024
# Characters: of an object's name at most, and of the digest in an Event's. 16 hexadecimal digits part the few
# mistakes that a ConfigMap has within the hour that an Event lives.
_NAME_LENGTH: Final = 253
_DIGEST_LENGTH: Final = 16


class Creates(Protocol):
    """Adds objects to collections, as certs.kubernetes_api.Kubernetes does."""

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Add an object; raises Conflict where one of its name is there, KubernetesError."""


def _now() -> datetime:
    return datetime.now(UTC)


def write_refusal(
    api: Kubernetes, config_map: dict[str, Any], message: str, now: Callable[[], datetime] = _now
) -> None:
    """Write the Event that this version of a ConfigMap is refused, once for all replicas and restarts.

    A failure is logged, no more: a rule's mistake is told by metric and log too.
    """
    metadata = config_map["metadata"]
    involved = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata["resourceVersion"],
    }
    write_event(api, involved, REASON, message, now)


def write_event(
    api: Creates,
    involved: dict[str, str],
    reason: str,
    message: str,
    now: Callable[[], datetime] = _now,
) -> None:
    """Write a warning on an object, once for all who say the same of it; a failure is logged, no more.

    involved: a reference to the object. One without a namespace has its Events where kubelets write theirs.
    """
    namespace, name = involved.get("namespace", "default"), involved["name"]
    # The name is what the Event says, so that the second to say it meets a conflict.
    digest = sha256(msgspec.json.encode([involved, message])).hexdigest()[:_DIGEST_LENGTH]
    time = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": namespace,
            "name": f"{name[: _NAME_LENGTH - _DIGEST_LENGTH - 1].rstrip('-.')}.{digest}",
        },
        "type": "Warning",
        "reason": reason,
        "message": _cut(message),
        "involvedObject": involved,
        "source": {"component": "gpugate"},
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
    }
    try:
        api.create(f"/api/v1/namespaces/{namespace}/events", event)
    except Conflict:
        return  # another replica was faster
    except KubernetesError as error:
        _log.warning("no Event was written on %s: %s", name, error)


def _cut(message: str) -> str:
    """Return a message as far as an Event takes it."""
    encoded = message.encode()
    if len(encoded) <= _MESSAGE_LENGTH:
        return message
    return encoded[: _MESSAGE_LENGTH - len("…".encode())].decode(errors="ignore") + "…"
