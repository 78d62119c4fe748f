"""Resolver: reads the images that a cluster uses and no catalogue knows, and writes facts about them.

One process does this. Two at the same time, for example during a rollout by hand, write the same facts: the
later write is a conflict, and is repeated in the next step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Protocol

from certs.kubernetes_api import Kubernetes, KubernetesError, NotFound
from certs.periodic_task import PeriodicTask
from rules.kube.image_reference import Image
from rules.schema.config_map import DOCUMENT_KEY
from webhook.cluster.client import ClusterApi
from webhook.cluster.reflector import Reflector
from webhook.cluster.resource import config_maps
from webhook.images.errors import ImageError, Reason
from webhook.images.inspection import InspectedImage, Row
from webhook.images.resolver import metrics
from webhook.images.resolver.fact_store import LABELS, TIMES_ANNOTATION, Content, FactStore
from webhook.images.resolver.fetch_queue import FetchQueue
from webhook.images.resolver.image_use import WATCHED, ImageUse, PullSecret, UsedImage
from webhook.images.resolver.known_rules import KnownRules, rules_resource

_log = logging.getLogger("gpugate.images")

# Seconds from a change or an answer to the step that uses it: `kubectl apply` of many files is one change,
# and each write makes the gate read a ConfigMap. The same from one step to the next while images wait.
_COALESCE_S: Final = 0.5
# Seconds between steps without changes: for pauses that end, tags that are read again, and ages.
_IDLE_S: Final = 10.0
# Seconds without a step after which the process counts as hung; a step takes milliseconds, and the longest
# call to the API server some ten seconds for each ConfigMap.
HUNG_S: Final = 300.0
_FULL: Final = "full"


class Reader(Protocol):
    """Reads images, as ImageReader does."""

    def inspect(self, image: Image, platforms: Sequence[str] = ()) -> Future[InspectedImage]:
        """Return the configs of an image."""

    def digest(self, image: Image) -> Future[str]:
        """Return the digest that a tag has now."""


class Resolver:
    """The state of a resolver, and its step.

    namespace: of the rules. monotonic: returns seconds of a monotonic clock. clock: returns seconds since the
    epoch.
    """

    def __init__(
        self,
        api: Kubernetes,
        reader: Reader,
        namespace: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._reader, self._path = api, reader, config_maps(namespace)
        self._monotonic, self._clock = monotonic, clock
        self.on_change: Callable[[], None] = lambda: None
        self.rules = KnownRules(namespace, self._changed)
        self.use = ImageUse(self._changed)
        self.used: Mapping[str, UsedImage] = {}
        self.store = FactStore()
        self._queue = FetchQueue()
        self._reading: dict[str, Future[InspectedImage] | Future[str]] = {}
        self._is_loaded = False
        self._images: Mapping[str, UsedImage] | None = None  # all; `used` has those that are not known
        self._stepped_at = monotonic()

    @property
    def awaited(self) -> list[str]:
        """The resources that were not listed yet."""
        return [*self.rules.awaited, *self.use.awaited]

    @property
    def is_hung(self) -> bool:
        """Whether the last step ended minutes ago."""
        return self._monotonic() - self._stepped_at > HUNG_S

    @property
    def pause_s(self) -> float:
        """Seconds until the next step, if nothing changes."""
        return _IDLE_S if self._queue.is_idle else _COALESCE_S

    def secrets(self, key: str) -> Sequence[PullSecret]:
        """Return the pull secrets of the objects that use an image; called from any thread."""
        used = self.used.get(key)
        return used.secrets if used else ()

    def step(self) -> None:
        """Apply changes, start to read images that are due, and write facts.

        Raises KubernetesError if facts could not be written; the next step repeats that.
        """
        try:
            self._apply_rules()
            if not self.awaited:
                self._advance(self._monotonic(), self._clock())
        finally:
            self._stepped_at = self._monotonic()

    def _changed(self) -> None:
        self.on_change()

    def _apply_rules(self) -> None:
        if self.rules.awaited:
            return
        if not self._is_loaded:
            for name, content in self.rules.own().items():
                self.store.load(name, content, self._clock())
            self._is_loaded = True
            _log.info("%d images known from earlier", len(self.store))
        if self.rules.update():
            self.use.set_resources(self.rules.resources)
            self.store.keep(lambda key: not self.rules.is_stated(key))
            if not self.rules.resources:
                _log.warning("there are no compatibility rules, so no image is read; are they installed?")
        for name, content in self.rules.own().items():
            self.store.seen(name, content)

    def _advance(self, now: float, wall: float) -> None:
        images = self.use.images()
        if images is not self._images:
            self._images = images
            self.used = {key: used for key, used in images.items() if not self.rules.is_known(key)}
        for done in [key for key, future in self._reading.items() if future.done()]:
            self._handle_result(done, self._reading.pop(done), now, wall)
        self.store.use(self.used, wall)
        self._queue.retain(self.used, now)
        for name, used in self.used.items():
            if self.store.must_reread(name, wall):
                self._queue.add(name, used.image.registry, now)
        while (key := self._queue.take(now)) is not None:
            image = self.used[key].image
            self._read(key, self._reader.digest(image) if key in self.store else self._reader.inspect(image))
        self._observe(len(images), now)
        self._write(wall)

    def _read(self, key: str, future: Future[InspectedImage] | Future[str]) -> None:
        self._reading[key] = future
        future.add_done_callback(lambda _: self.on_change())

    def _handle_result(
        self, key: str, future: Future[InspectedImage] | Future[str], now: float, wall: float
    ) -> None:
        """Handle the result of reading an image, or its error."""
        error = future.exception()
        if error is None:
            self._handle_success(key, future.result(), now, wall)
        elif isinstance(error, ImageError):
            self._failed(key, error.reason, str(error), now, error.retry_after_s)
        else:
            self._failed(key, Reason.INVALID, "an internal error", now)
            raise error

    def _handle_success(self, key: str, result: InspectedImage | str, now: float, wall: float) -> None:
        if isinstance(result, str):
            if result != self.store.digest(key) and key in self.used:
                self._read(key, self._reader.inspect(self.used[key].image))
                return
            if result == self.store.digest(key):
                self.store.confirm(key, wall)
                metrics.FETCHES.labels("unchanged").inc()
            self._queue.succeeded(key)
            return
        rows = self._rows(key, result)
        try:
            has_room = self._put(key, result.digest, rows, wall)
        except ValueError as error:
            self._failed(key, Reason.INVALID, str(error), now)
            return
        if not has_room:
            self._failed(key, None, "no room: all stored images are in use", now)
            return
        self._queue.succeeded(key)
        metrics.FETCHES.labels("ok").inc()
        cuda = dict.fromkeys(str(config.cuda or "unknown") for config in result.platforms)
        _log.info("image %s: read, CUDA %s, %s", key, ", ".join(cuda), result.digest)

    def _put(self, key: str, digest: str, rows: list[Row], wall: float) -> bool:
        """Store facts; requirements that are too long or invalid are left out. Raises ValueError."""
        try:
            return self.store.put(key, digest, rows, wall, self.used.keys())
        except ValueError:
            without = [{name: fact for name, fact in row.items() if name != "require"} for row in rows]
            return self.store.put(key, digest, without, wall, self.used.keys())

    def _rows(self, key: str, image: InspectedImage) -> list[Row]:
        omitted = "cuda" if self.rules.knows_cuda(key) else ""
        return [{name: fact for name, fact in row.items() if name != omitted} for row in image.facts()]

    def _failed(
        self, key: str, reason: Reason | None, text: str, now: float, retry_after_s: float | None = None
    ) -> None:
        """Note, count and log that an image was not read. reason: None if there is no room for its facts."""
        pause_s = self._queue.failed(key, reason, now, retry_after_s)
        word = reason or _FULL
        metrics.FETCHES.labels(word).inc()
        _log.warning("image %s: not read (%s): %s; next attempt in %.0f s", key, word, text, pause_s)

    def _write(self, wall: float) -> None:
        """Write the ConfigMaps that changed. Raises KubernetesError after all were tried."""
        failure: KubernetesError | None = None
        for name, content in self.store.pending().items():
            try:
                self._write_one(name, content)
            except KubernetesError as error:
                metrics.WRITE_FAILURES.inc()
                failure = error
            else:
                self.store.written(name, content, wall)
        if failure:
            raise failure
        metrics.WRITTEN.set(wall)

    def _write_one(self, name: str, content: Content) -> None:
        """Write one ConfigMap; one that has never held an image is not created for nothing."""
        try:
            config_map = self._api.get(f"{self._path}/{name}")
        except NotFound:
            if content.catalog:
                self._api.create(self._path, _document({"metadata": {"name": name}}, content))
            return
        document = _document(config_map, content)
        if document != config_map:
            self._api.replace(f"{self._path}/{name}", document)

    def _observe(self, images: int, now: float) -> None:
        read = sum(key in self.store for key in self.used)
        failed = self._queue.failures(self.used)
        states = {
            "known": images - len(self.used),
            "read": read,
            "failed": failed,
            "unread": max(len(self.used) - read - failed, 0),
            "omitted": self.use.omitted,
        }
        for state, number in states.items():
            metrics.IMAGES.labels(state).set(number)
        metrics.QUEUE.set(self._queue.waiting)
        metrics.PAUSED.set(len(self._queue.paused(now)))
        metrics.STORED.set(len(self.store))
        metrics.OLDEST.set(self.store.oldest or 0)


def _document(config_map: Mapping[str, Any], content: Content) -> dict[str, Any]:
    """Return a ConfigMap with new content; without images, it does not have the labels of a rule."""
    metadata = config_map["metadata"]
    labels = {name: value for name, value in (metadata.get("labels") or {}).items() if name not in LABELS}
    annotations = {**(metadata.get("annotations") or {}), TIMES_ANNOTATION: content.times}
    if not content.catalog:
        del annotations[TIMES_ANNOTATION]
    changed = {
        "labels": labels | (LABELS if content.catalog else {}),
        "annotations": annotations,
    }
    other_metadata = {name: value for name, value in metadata.items() if name not in changed}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        **config_map,
        "metadata": other_metadata | {name: value for name, value in changed.items() if value},
        "data": {DOCUMENT_KEY: content.catalog} if content.catalog else {},
    }


class ResolverService:
    """Watches a cluster and runs the steps of a resolver in threads, until stopped."""

    def __init__(self, api: ClusterApi, resolver: Resolver, namespace: str) -> None:
        self._resolver = resolver
        rules = Reflector(api, rules_resource(namespace))
        self._watches: list[tuple[Reflector, Callable[..., None]]] = [(rules, resolver.rules.change)]
        for resource, steps in WATCHED:
            self._watches.append((Reflector(api, resource), partial(resolver.use.change, resource, steps)))
        self._task = PeriodicTask(
            "images",
            resolver.step,
            lambda: resolver.pause_s,
            lambda fault: _log.warning("facts about images are not written: %s", fault),
            cooldown=lambda: _COALESCE_S,
        )
        resolver.on_change = self._task.trigger

    def start(self) -> None:
        """Start the threads; returns at once."""
        for reflector, consume in self._watches:
            reflector.start(consume)
        self._task.start()

    def stop(self) -> None:
        """Stop soon; returns at once."""
        for reflector, _ in self._watches:
            reflector.stop()
        self._task.stop()
