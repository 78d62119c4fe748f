"""Watched objects: single objects that are read often, kept in memory by watches.

RBAC can limit `list` and `watch` to a name, if the request selects that name by its fields:
https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from certs.kubernetes_api import NotFound
from webhook.cluster.reflector import Applied, Change, Listed, Reflector
from webhook.cluster.resource import Object, Resource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from webhook.cluster.client import ClusterApi


class WatchedObjects:
    """A `certs.kubernetes_api.Kubernetes` that reads the objects at some paths from memory.

    Writes and reads of other objects go to the API server. A read of a watched object goes there, too, while
    its watch has not begun or is not permitted, and after a write until the watch has reported the result: a
    writer never decides by a version that it has replaced itself.
    """

    awaited: Collection[str] = ()

    def __init__(self, api: ClusterApi, paths: Iterable[str]) -> None:
        self._api = api
        self._lock = threading.Lock()  # each object is watched by its own thread
        self._objects: dict[str, Object | None] = {}  # by path; None: it does not exist
        self._written: set[str] = set()  # paths whose newest version may not have been reported
        self._watches: Final = [
            (Reflector(api, _resource(path), unavailable=partial(self._on_unavailable, path)), path)
            for path in paths
        ]

    def start(self) -> None:
        """Start the watches."""
        for reflector, path in self._watches:
            reflector.start(partial(self.on_change, path))

    def stop(self) -> None:
        """Stop the watches; the objects in memory stay."""
        for reflector, _ in self._watches:
            reflector.stop()

    def on_change(self, path: str, change: Change) -> None:
        """Apply a change of the object at a path."""
        if isinstance(change, Listed):
            newest = next(iter(change.objects), None)
        else:
            newest = change.object if isinstance(change, Applied) else None
        with self._lock:
            self._objects[path] = newest

    def now(self) -> datetime:
        """Return the current time, aware, as the API's client does."""
        return self._api.now()

    def get(self, path: str) -> dict[str, Any]:
        """Return the object, which the caller must not change; raises NotFound, KubernetesError."""
        with self._lock:
            is_known = path in self._objects and path not in self._written
            document = self._objects.get(path)
        if not is_known:
            return self._newest(path)
        if document is None:
            raise NotFound(f"GET {path}: 404 not found")
        return document

    def create(self, path: str, document: dict[str, Any]) -> None:
        """Create an object in the collection at this path; raises Conflict, KubernetesError."""
        try:
            self._api.create(path, document)
        finally:
            self._expect(f"{path}/{document['metadata']['name']}")

    def replace(self, path: str, document: dict[str, Any]) -> None:
        """Replace the object of this resourceVersion; raises Conflict, KubernetesError."""
        try:
            self._api.replace(path, document)
        finally:
            self._expect(path)

    def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Apply RFC 6902 operations; raises NotFound, Conflict, KubernetesError."""
        try:
            self._api.patch(path, operations)
        finally:
            self._expect(path)

    def _newest(self, path: str) -> dict[str, Any]:
        """Return the object by a request; if its watch has reported this version, read from memory again."""
        try:
            document = self._api.get(path)
        except NotFound:
            self._compare(path, None)
            raise
        self._compare(path, document)
        return document

    def _compare(self, path: str, document: Object | None) -> None:
        with self._lock:
            if path in self._objects and _version(self._objects[path]) == _version(document):
                self._written.discard(path)

    def _expect(self, path: str) -> None:
        with self._lock:
            self._written.add(path)

    def _on_unavailable(self, path: str, status: int) -> None:
        """Read an object by requests again, because its watch is refused."""
        if status:  # of HTTP; an API server that is away refuses nothing
            with self._lock:
                self._objects.pop(path, None)


def _resource(path: str) -> Resource:
    collection, _, name = path.rpartition("/")
    name = unquote(name)
    return Resource(f"{collection.rpartition('/')[2]} {name}", collection, fields=f"metadata.name={name}")


def _version(document: Object | None) -> str:
    return str(document["metadata"]["resourceVersion"]) if document else ""
