"""One resource of a cluster, followed for years: a list, then what changes, and what to do when that breaks.

An API server that is away is asked again with growing pauses. A stream that breaks goes on where it stopped;
where the API server no longer knows that place (410 Gone), or tells nothing at all, all is listed anew.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
import urllib3

from certs.periodic_task import report_bug
from webhook.cluster.client import UNANSWERED, ApiError, ClusterApi, decode_status
from webhook.telemetry import metrics

_log = logging.getLogger("gpugate.cluster")

# Seconds of one watch request; a fifth is random, so that watches opened together do not end together.
WATCH_S: Final = 300.0
# Times those seconds, a silent stream counts as stalled: an honest end comes in time.
_STALLED: Final = 1.1
# Seconds of pause after a first failure, twice that after each further one, and at most; half is random.
_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
# Refusals that say nothing of the resourceVersion: the API server starts, stops, or has too much to do.
_BUSY: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
    }
)

# What may end a request, none of them a bug.
FAILURES: Final = (ApiError, msgspec.DecodeError, *UNANSWERED)
# The first that it is; else the token to show could not be read.
_REASONS: Final = (
    (msgspec.DecodeError, "garbled"),
    (urllib3.exceptions.ReadTimeoutError, "stalled"),
    (urllib3.exceptions.NewConnectionError, "away"),
    (urllib3.exceptions.ConnectTimeoutError, "away"),
    (urllib3.exceptions.HTTPError, "cut"),
)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """What is followed. name: in logs and metrics. shape: what is read of each object, a type for msgspec.

    The shape must hold `metadata.name` and `metadata.resourceVersion`; an object without them is a failure.
    """

    name: str
    path: str
    selector: str = ""
    shape: Any = Object


@dataclass(frozen=True, slots=True)
class Listed:
    """All objects that there are; none other is."""

    objects: list[Object]


@dataclass(frozen=True, slots=True)
class Applied:
    """An object as it is now, new or changed."""

    object: Object


@dataclass(frozen=True, slots=True)
class Deleted:
    """An object as it was last."""

    object: Object


Change = Listed | Applied | Deleted


class _Event(msgspec.Struct):
    """A line of a watch; the object may be a Status or nothing but a resourceVersion."""

    type: str
    object: msgspec.Raw


class _Metadata(msgspec.Struct):
    version: str = msgspec.field(name="resourceVersion")


class _Bookmark(msgspec.Struct):
    metadata: _Metadata


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode


@dataclass(slots=True)
class _Place:
    """How far a watch is.

    version: of what was told last; empty where all has to be listed. quiet: tries in a row that told nothing.
    """

    version: str = ""
    quiet: int = 0


class Reflector:
    """Follows one resource, by any number of requests.

    pause: waits so many seconds, or until stopped. chance: returns a number from 0 to 1. watch_s: seconds of
    one request.
    """

    def __init__(
        self,
        api: ClusterApi,
        resource: Resource,
        *,
        pause: Callable[[float], object] | None = None,
        chance: Callable[[], float] = random.random,
        watch_s: float = WATCH_S,
    ) -> None:
        self.resource = resource
        self._api = api
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._chance = chance
        self._watch_s = watch_s
        self._decode = msgspec.json.Decoder(resource.shape).decode
        self._stream: urllib3.BaseHTTPResponse | None = None

    def start(self, consume: Callable[[Change], None]) -> None:
        """Hand each change to a consumer, in a thread of its own that does not keep the process alive.

        What the consumer fails with is reported as what a thread dies of, and all is listed anew.
        """
        name = f"watch {self.resource.name}"
        threading.Thread(target=self._run, args=(consume,), name=name, daemon=True).start()

    def stop(self) -> None:
        """End the changes: at once while the next one is waited for, else with the request under way."""
        self._stopped.set()
        if (stream := self._stream) is not None:
            with suppress(RuntimeError, ValueError, OSError):  # it ended by itself
                stream.shutdown()

    def changes(self) -> Generator[Change, None, None]:
        """Yield what there is, then each change, until stopped."""
        place = _Place()
        while not self._stopped.is_set():
            place.quiet += 1
            try:
                yield from self._follow(place)
                reason, told, level = "ended", "in silence", logging.DEBUG
                if place.quiet:
                    # As it should be where nothing changed. But a version of the future, which ours is
                    # after etcd was restored from a backup, is watched in silence for ever: list anew.
                    place.version, place.quiet = "", 1
            except FAILURES as error:
                reason, told, level = _reason(error), str(error), logging.WARNING
                if _loses_place(error):
                    place.version = ""
            if self._stopped.is_set():
                return
            name = self.resource.name
            metrics.WATCH_RESTARTS.labels(name, reason).inc()
            if place.quiet or reason != "ended":
                pause_s = self._pause_s(place)
                _log.log(level, "watch of %s %s, %.200s; again in %.1f s", name, reason, told, pause_s)
                self._pause(pause_s)

    def _follow(self, place: _Place) -> Iterator[Change]:
        """Yield the changes of one request, after those of a list where the place is lost."""
        if not place.version:
            yield self._list(place)
        for event in self._events(place.version):
            if event.type == "ERROR":
                status = decode_status(event.object)
                raise ApiError(status.code, status.message)
            place.quiet = 0
            metrics.WATCH_HEARD.labels(self.resource.name).set_to_current_time()
            if event.type == "BOOKMARK":
                place.version = _decode_bookmark(event.object).metadata.version
                continue
            found = _named(self._decode(event.object))
            yield Deleted(found) if event.type == "DELETED" else Applied(found)
            place.version = found["metadata"]["resourceVersion"]

    def _list(self, place: _Place) -> Listed:
        resource = self.resource
        objects, version = self._api.list(resource.path, resource.selector, resource.shape)
        if not version:
            raise msgspec.ValidationError("a list without a version")
        objects, place.version = [_named(found) for found in objects], version
        metrics.WATCH_HEARD.labels(resource.name).set_to_current_time()
        _log.info("listed %s %s, at version %s", len(objects), resource.name, place.version)
        return Listed(objects)

    def _events(self, version: str) -> Iterator[_Event]:
        """Yield the lines of one watch request, up to its end."""
        seconds = self._watch_s * (0.9 + 0.2 * self._chance())
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        if self.resource.selector:
            query["labelSelector"] = self.resource.selector
        stream = self._api.stream(self.resource.path, query, silence_s=_STALLED * seconds)
        self._stream = stream
        try:
            # Whoever stops sets the flag and then looks for a stream: one of the two is seen.
            if not self._stopped.is_set():
                yield from map(_decode_event, stream)
        finally:
            self._stream = None
            stream.close()

    def _pause_s(self, place: _Place) -> float:
        # The exponent is bounded for tries that go on for weeks.
        longest = min(LONGEST_PAUSE_S, _PAUSE_S * 2.0 ** (min(place.quiet, 10) - 1))
        return longest * (0.5 + 0.5 * self._chance())

    def _run(self, consume: Callable[[Change], None]) -> None:
        after_s = 0.0
        while not self._stopped.is_set():
            try:
                self._pause(after_s)
                for change in self.changes():
                    consume(change)
                    del change  # or all nodes of the first list are kept until something changes
            except Exception:  # noqa: BLE001 - a bug of ours, or no memory: neither must end the watch
                metrics.WATCH_RESTARTS.labels(self.resource.name, "bug").inc()
                report_bug()
                after_s = LONGEST_PAUSE_S


def _named(found: Object) -> Object:
    """Return an object; raises msgspec.ValidationError where it has no name or version."""
    metadata = found.get("metadata")
    known = isinstance(metadata, dict) and all(
        isinstance(metadata.get(key), str) for key in ("name", "resourceVersion")
    )
    if not known:
        raise msgspec.ValidationError("an object without a name or a version")
    return found


def _reason(error: Exception) -> str:
    """Return what ended a request, in a word for the metric."""
    if isinstance(error, ApiError):
        return "expired" if error.status == HTTPStatus.GONE else "refused"
    return next((word for kind, word in _REASONS if isinstance(error, kind)), "unauthenticated")


def _loses_place(error: Exception) -> bool:
    """Tell whether a failure may be the resourceVersion's own, so that all has to be listed."""
    return isinstance(error, msgspec.DecodeError) or (
        isinstance(error, ApiError) and error.status not in _BUSY
    )
