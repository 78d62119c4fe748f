"""Events on rule ConfigMaps, which `kubectl describe` shows: why a version of a rule is not in force.

Source: https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

from certs.kube import Conflict, Kubernetes, KubernetesError

_log = logging.getLogger("gpugate.cluster")

REASON: Final = "RuleRefused"
# Bytes of a message at most: https://github.com/kubernetes/api/blob/master/events/v1/types.go, `note`.
_MESSAGE_LENGTH: Final = 1024
# Characters: of an object's name at most, and of the digest in an Event's. 16 hexadecimal digits part the few
# mistakes that a ConfigMap has within the hour that an Event lives.
_NAME_LENGTH: Final = 253
_DIGEST_LENGTH: Final = 16


def write_refusal(
    api: Kubernetes,
    config_map: dict[str, Any],
    message: str,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
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
    # The name is what the Event says, so that the second to say it meets a conflict.
    digest = sha256(msgspec.json.encode([involved, message])).hexdigest()[:_DIGEST_LENGTH]
    time = now().strftime("%Y-%m-%dT%H:%M:%SZ")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": metadata["namespace"],
            "name": f"{metadata['name'][: _NAME_LENGTH - _DIGEST_LENGTH - 1].rstrip('-.')}.{digest}",
        },
        "type": "Warning",
        "reason": REASON,
        "message": _cut(message),
        "involvedObject": involved,
        "source": {"component": "gpugate"},
        "count": 1,
        "firstTimestamp": time,
        "lastTimestamp": time,
    }
    path = f"/api/v1/namespaces/{metadata['namespace']}/events"
    try:
        api.create(path, event)
    except Conflict:
        return  # another replica was faster
    except KubernetesError as error:
        _log.warning("no Event was written on %s: %s", metadata["name"], error)


def _cut(message: str) -> str:
    """Return a message as far as an Event takes it."""
    encoded = message.encode()
    if len(encoded) <= _MESSAGE_LENGTH:
        return message
    return encoded[: _MESSAGE_LENGTH - len("…".encode())].decode(errors="ignore") + "…"
