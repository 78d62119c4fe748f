"""Reflector: lists one resource of a cluster, then watches its changes, and recovers from failures.

If the API server is unreachable, it retries with growing pauses. A broken watch resumes at its last
resourceVersion; if that has expired (410 Gone), or the watch sends nothing, the resource is listed again.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import msgspec
import urllib3
from msgspec import Struct

from certs.periodic_task import report_bug
from webhook.cluster.client import UNANSWERED, ApiError, ClusterApi, decode_status
from webhook.cluster.connection_errors import network_error_text
from webhook.cluster.resource import Object, Resource
from webhook.telemetry import metrics

_log = logging.getLogger("gpugate.cluster")

# Seconds of one watch request; a fifth is random, so that watches opened together do not end together.
WATCH_S: Final = 300.0
# A stream without data for this multiple of those seconds is stalled: the API server ends it in time.
_STALLED: Final = 1.1
# Seconds of pause after a first failure, twice that after each further one, and at most; half is random.
_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
# Statuses of a resource that does not exist, or is not permitted.
_ABSENT: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN})
# Errors that are not about the resourceVersion: the API server starts, stops, or is overloaded.
_BUSY: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    }
)

# Exceptions that may end a request without a bug.
FAILURES: Final = (ApiError, msgspec.DecodeError, *UNANSWERED)
# Values of a metric's label; the first match counts. Without one, the token could not be read.
_REASONS: Final = (
    (msgspec.DecodeError, "garbled"),
    (urllib3.exceptions.ReadTimeoutError, "stalled"),
    (urllib3.exceptions.NewConnectionError, "away"),
    (urllib3.exceptions.ConnectTimeoutError, "away"),
    (urllib3.exceptions.HTTPError, "cut"),
)


class Listed(Struct, frozen=True):
    """All existing objects."""

    objects: list[Object]


class Applied(Struct, frozen=True):
    """A new or changed object, in its current state."""

    object: Object


class Deleted(Struct, frozen=True):
    """A deleted object, in its last state."""

    object: Object


Change = Listed | Applied | Deleted


class _Event(msgspec.Struct):
    """A line of a watch; the object may be a Status, or have only a resourceVersion."""

    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion")


class _Bookmark(msgspec.Struct):
    metadata: _Metadata


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode


class _Position(Struct):
    """Position of a watch."""

    version: str = ""  # the last resourceVersion; empty if a list is required
    quiet: int = 0  # consecutive attempts without an event
    absent: bool = False  # whether the resource was absent or not permitted since the last list


class Reflector:
    """Lists and watches one resource, with any number of requests.

    Args:
        api: of the cluster.
        resource: to list and watch.
        unavailable: for a resource that may be absent or not permitted: called with the status of HTTP, or 0,
            whenever it cannot be listed.
        pause: waits for a number of seconds, or until stopped.
        chance: returns a random number from 0 to 1.
        watch_s: seconds of one request.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        api: ClusterApi,
        resource: Resource,
        *,
        unavailable: Callable[[int], object] | None = None,
        pause: Callable[[float], object] | None = None,
        chance: Callable[[], float] = random.random,
        watch_s: float = WATCH_S,
    ) -> None:
        self.resource = resource
        self._path = resource.path
        self._api = api
        self._stopped = threading.Event()
        self._unavailable = unavailable
        self._pause = pause or self._stopped.wait
        self._chance = chance
        self._watch_s = watch_s
        self._decode = msgspec.json.Decoder(resource.shape).decode
        self._stream: urllib3.BaseHTTPResponse | None = None

    def start(self, consume: Callable[[Change], None]) -> None:
        """Pass each change to a consumer, in a daemon thread.

        An exception of the consumer is reported as a bug, and the resource is listed again.
        """
        name = f"watch {self.resource.name}"
        threading.Thread(target=self._run, args=(consume,), name=name, daemon=True).start()

    def stop(self) -> None:
        """Stop: immediately while it waits for a change, otherwise after the current request."""
        self._stopped.set()
        if (stream := self._stream) is not None:
            with suppress(RuntimeError, ValueError, OSError):  # it has ended by itself
                stream.shutdown()

    def changes(self) -> Generator[Change, None, None]:
        """Yield the existing objects, then each change, until stopped."""
        position = _Position()
        while not self._stopped.is_set():
            position.quiet += 1
            try:
                yield from self._list_and_watch(position)
                reason, message, level = "ended", "without an event", logging.DEBUG
                if position.quiet:
                    # Normal if nothing changed. But after etcd is restored from a backup, our version may be
                    # newer than all others, and the API server never sends an event: list again.
                    position.version, position.quiet = "", 1
            except FAILURES as error:
                reason, level = _reason(error), logging.WARNING
                message = network_error_text(error, self._api.url) if _is_unanswered(error) else str(error)
                if _requires_list(error):
                    position.version = ""
                if self._unavailable and not position.version:
                    status = error.status if isinstance(error, ApiError) else 0
                    self._unavailable(status)
                    if status in _ABSENT:  # no failure: there is no series of it, and one line in the log
                        metrics.forget_watch(self.resource.name)
                        reason, level = "absent", logging.DEBUG if position.absent else logging.INFO
                        position.absent = True
            if self._stopped.is_set():
                return
            name = self.resource.name
            if reason != "absent":
                metrics.WATCH_RESTARTS.labels(name, reason).inc()
            if position.quiet or reason != "ended":
                pause_s = self._pause_s(position)
                _log.log(level, "watch of %s %s, %.200s; retrying in %.1f s", name, reason, message, pause_s)
                self._pause(pause_s)

    def _list_and_watch(self, position: _Position) -> Iterator[Change]:
        """Yield the changes of one watch request, after a list if one is required."""
        if not position.version:
            yield self._list(position)
        for event in self._events(position.version):
            if event.type == "ERROR":
                status = decode_status(event.object)
                raise ApiError(status.code, status.message)
            position.quiet = 0
            metrics.WATCH_HEARD.labels(self.resource.name).set_to_current_time()
            if event.type == "BOOKMARK":
                position.version = _decode_bookmark(event.object).metadata.version
                continue
            document = _named(self._decode(event.object))
            if self.resource.read and event.type != "DELETED":
                document = self.resource.read(document)
            yield Deleted(document) if event.type == "DELETED" else Applied(document)
            position.version = document["metadata"]["resourceVersion"]

    def _list(self, position: _Position) -> Listed:
        resource = self.resource
        if position.absent and not self._api.serves_group(resource.path):
            raise ApiError(HTTPStatus.NOT_FOUND, "its API group is not served")
        objects, version, self._path = self._api.list_newest(resource)
        if not version:
            raise msgspec.ValidationError("a list without a resourceVersion")
        objects, position.version = [_named(document) for document in objects], version
        position.absent = False
        metrics.WATCH_HEARD.labels(resource.name).set_to_current_time()
        _log.info("listed %s %s at resourceVersion %s", len(objects), resource.name, position.version)
        return Listed(objects)

    def _events(self, version: str) -> Iterator[_Event]:
        """Yield the lines of one watch request, up to its end."""
        seconds = self._watch_s * (0.9 + 0.2 * self._chance())
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
            **self.resource.selectors,
        }
        stream = self._api.stream(self._path, query, read_timeout_s=_STALLED * seconds)
        self._stream = stream
        try:
            # `stop` sets the flag and then reads the stream: one of the two is seen.
            if not self._stopped.is_set():
                yield from map(_decode_event, stream)
        finally:
            self._stream = None
            stream.close()

    def _pause_s(self, position: _Position) -> float:
        # The exponent is bounded for weeks of retries.
        longest = min(LONGEST_PAUSE_S, _PAUSE_S * 2.0 ** (min(position.quiet, 10) - 1))
        return longest * (0.5 + 0.5 * self._chance())

    def _run(self, consume: Callable[[Change], None]) -> None:
        after_s = 0.0
        while not self._stopped.is_set():
            try:
                self._pause(after_s)
                for change in self.changes():
                    consume(change)
                    del change  # or the first list keeps all nodes in memory until something changes
            except Exception:  # noqa: BLE001 - a bug or no memory: neither may end the watch
                metrics.WATCH_RESTARTS.labels(self.resource.name, "bug").inc()
                report_bug()
                after_s = LONGEST_PAUSE_S


def _named(document: Object) -> Object:
    """Return an object; raises msgspec.ValidationError if it has no name or resourceVersion."""
    metadata = document.get("metadata")
    known = isinstance(metadata, dict) and all(
        isinstance(metadata.get(key), str) for key in ("name", "resourceVersion")
    )
    if not known:
        raise msgspec.ValidationError("an object without a name or a resourceVersion")
    return document


def _reason(error: Exception) -> str:
    """Return the reason why a request ended, as a value of the metric's label."""
    if isinstance(error, ApiError):
        return "expired" if error.status == HTTPStatus.GONE else "refused"
    return next((word for kind, word in _REASONS if isinstance(error, kind)), "unauthenticated")


def _is_unanswered(error: Exception) -> bool:
    """Return whether the API server sent no complete answer."""
    return isinstance(error, urllib3.exceptions.HTTPError | OSError)


def _requires_list(error: Exception) -> bool:
    """Return whether a failure may be caused by the resourceVersion, so that a list is required."""
    return isinstance(error, msgspec.DecodeError) or (
        isinstance(error, ApiError) and error.status not in _BUSY
    )
