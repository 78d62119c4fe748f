"""Rule snapshot: the versions of rules in force, saved in a ConfigMap so that a restart does not lose them.

If an invalid version of a rule gets past the webhook, the previous one stays in force. A process that starts
then has never seen that version and loads it from here. All replicas write the same content.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from certs.kubernetes_api import Conflict, Kubernetes, KubernetesError, NotFound

_log = logging.getLogger("gpugate.cluster")

NAME: Final = "gpugate-last-good"
# The label of ConfigMaps that the image resolver writes. They are not saved: the resolver writes each again,
# and up to 4 MiB of facts from strangers would leave no room for the rules.
MANAGED_LABEL: Final = "gpugate.dev/managed-by"
IMAGE_RESOLVER: Final = "image-resolver"
# Compressed, because a ConfigMap holds 1 MiB, and a thousand rules are more.
_KEY: Final = "rules.json.gz"
# Retries after a write conflict; a competing replica writes equivalent content, or newer content later.
_ATTEMPTS: Final = 3

_decode: Final = msgspec.json.Decoder(dict[str, str]).decode


def content_of(config_map: Mapping[str, Any]) -> str:
    """Return the content of a rule ConfigMap as JSON, without annotations, which repeat the content."""
    metadata = {key: config_map["metadata"].get(key) for key in ("name", "namespace", "labels")}
    values = {key: config_map[key] for key in ("data", "binaryData") if key in config_map}
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **values}
    return msgspec.json.encode(content, order="sorted").decode()


def must_save(config_map: Mapping[str, Any]) -> bool:
    """Return whether a rule ConfigMap belongs into the snapshot: all except those of the image resolver."""
    return (config_map["metadata"].get("labels") or {}).get(MANAGED_LABEL) != IMAGE_RESOLVER


def snapshot_path(namespace: str) -> str:
    """Return the path of the ConfigMap in gpugate's namespace."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{NAME}"


def saved_texts(config_map: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the saved versions as JSON, by name of the rule; empty, with a log line, if they are invalid."""
    packed = (config_map.get("binaryData") or {}).get(_KEY, "")
    try:
        return _decode(gzip.decompress(b64decode(packed))) if packed else {}
    except (ValueError, OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        _log.warning("the saved last good versions of rules are invalid: %s", error)
        return {}


class RuleSnapshot:
    """One ConfigMap of the manifests, read at start and replaced when other versions come into force.

    The manifests create it, because RBAC cannot limit the right to create to one name.
    """

    def __init__(self, api: Kubernetes, namespace: str) -> None:
        self._api = api
        self._logged = ""
        self._path = snapshot_path(namespace)

    def load(self) -> Mapping[str, str] | None:
        """Return the saved rule ConfigMaps as JSON, by name; None, with a log line, if they cannot be read.

        Empty if nothing was saved, or the content is invalid.
        """
        try:
            return saved_texts(self._api.get(self._path))
        except KubernetesError as error:
            self._log_once("cannot read the last good versions of rules", error)
            return {} if isinstance(error, NotFound) else None

    def save(self, texts: Mapping[str, str]) -> bool:
        """Save these versions if they differ from the saved ones; return whether they are saved.

        A failure is logged. Reads the ConfigMap each time, because somebody may have emptied it.
        """
        packed = b64encode(gzip.compress(msgspec.json.encode(texts, order="sorted"), mtime=0)).decode()
        try:
            for _ in range(_ATTEMPTS):
                config_map = self._api.get(self._path)
                if saved_texts(config_map) == texts:
                    break
                try:
                    self._api.replace(self._path, config_map | {"binaryData": {_KEY: packed}})
                    break
                except Conflict:
                    continue
        except KubernetesError as error:
            self._log_once("a restart would lose the last good versions of rules", error)
            return False
        self._logged = ""
        return True

    def _log_once(self, problem: str, error: KubernetesError) -> None:
        """Log a problem, once and not at every attempt."""
        message = f"{problem}: {error}"
        if message != self._logged:
            self._logged = message
            _log.warning("%s", message)
