"""The versions of rules that are in force, kept in a ConfigMap: a restart loses none of them.

A rule that was broken past the webhook stays in force as it was before. A gate that starts then has never
seen that version; it finds it here. All replicas write the same, so that none has to be asked.
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
# Compressed, because a ConfigMap holds 1 MiB, and a thousand rules are more.
_KEY: Final = "rules.json.gz"
# Tries at a write that others get ahead of; each of those is as good as ours, or is followed by a better one.
_TRIES: Final = 3

_decode: Final = msgspec.json.Decoder(dict[str, str]).decode


def content_of(config_map: Mapping[str, Any]) -> str:
    """Return what makes a rule of a ConfigMap, as JSON: its annotations repeat all of it."""
    metadata = {key: config_map["metadata"].get(key) for key in ("name", "namespace", "labels")}
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": config_map.get("data")}
    return msgspec.json.encode(content, order="sorted").decode()


class RuleSnapshot:
    """One ConfigMap of the manifests, read at start and replaced when other versions come into force.

    It has to be there: so the right to create any, which cannot be held to one name, is not needed.
    """

    def __init__(self, api: Kubernetes, namespace: str) -> None:
        self._api = api
        self._complaint = ""
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/{NAME}"

    def load(self) -> Mapping[str, str] | None:
        """Return each rule ConfigMap as JSON by its name; None, and a log line, where that is not told.

        Where nothing is kept, or nothing of ours, there are none.
        """
        try:
            return self._texts(self._api.get(self._path))
        except KubernetesError as error:
            self._complain("the last good versions of rules are not known", error)
            return {} if isinstance(error, NotFound) else None

    def save(self, texts: Mapping[str, str]) -> bool:
        """Keep these versions, where others are kept; tell whether they are. A failure is logged.

        It is looked at each time, at the cost of a small read: somebody may have emptied it meanwhile.
        """
        packed = b64encode(gzip.compress(msgspec.json.encode(texts, order="sorted"), mtime=0)).decode()
        try:
            for _ in range(_TRIES):
                found = self._api.get(self._path)
                if self._texts(found) == texts:
                    break
                try:
                    self._api.replace(self._path, found | {"binaryData": {_KEY: packed}})
                    break
                except Conflict:
                    continue
        except KubernetesError as error:
            self._complain("a restart would lose the last good versions of rules", error)
            return False
        self._complaint = ""
        return True

    def _complain(self, what: str, error: KubernetesError) -> None:
        """Log what is wrong, once and not at every try."""
        complaint = f"{what}: {error}"
        if complaint != self._complaint:
            self._complaint = complaint
            _log.warning("%s", complaint)

    @staticmethod
    def _texts(config_map: Mapping[str, Any]) -> Mapping[str, str]:
        """Return what a ConfigMap holds; nothing where that is no work of ours."""
        packed = (config_map.get("binaryData") or {}).get(_KEY, "")
        try:
            return _decode(gzip.decompress(b64decode(packed))) if packed else {}
        except (ValueError, OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
            _log.warning("the last good versions of rules cannot be read: %s", error)
            return {}
