"""Fetch queue: which image is read next, with pauses for each registry and after failures of each image.

It never blocks: the caller has the clock, and takes the images that are due. Everything is bounded, because
anyone who may create a pod can name images.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Collection
from typing import Final

from msgspec import Struct

from webhook.images.errors import Reason

# Distinct images that wait.
MAX_WAITING: Final = 2000
# Images that are read at the same time, as ImageReader does.
AT_ONCE: Final = 4
# Seconds between two images of one registry; each takes two to some twenty requests. Docker Hub limits the
# requests of an address to 100 in six hours without an account: it answers 429 with Retry-After then.
INTERVAL_S: Final = 0.5
# Seconds of pause after a first failure, twice that after each further one, and at most; half is random.
# Of an image: somebody may push it, or grant the right to it.
_IMAGE_S: Final = 30.0
LONGEST_IMAGE_S: Final = 6 * 3600.0
# Of a registry that does not answer; and the longest Retry-After that is respected.
_REGISTRY_S: Final = 5.0
_LONGEST_REGISTRY_S: Final = 600.0
LONGEST_RETRY_AFTER_S: Final = 6 * 3600.0
# The exponent is bounded for weeks of failures.
_MAX_DOUBLINGS: Final = 20
# Images whose failures are remembered; and seconds after its pause for which an unused image is remembered.
MAX_FAILED: Final = 5000
_REMEMBERED_S: Final = 3600.0
# Failures whose cause is the registry and not the image.
_OF_REGISTRY: Final = frozenset({Reason.RATE_LIMITED, Reason.UNAVAILABLE, Reason.TIMEOUT})


class _Pauses(Struct):
    """Consecutive failures, and the time of the next attempt."""

    failures: int = 0
    due: float = 0.0


class FetchQueue:
    """Images that wait to be read, in the order of `add`; times are seconds of one monotonic clock.

    chance: returns a random number from 0 to 1.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._waiting: dict[str, str] = {}  # registry by image
        self._reading: dict[str, str] = {}
        self._images: dict[str, _Pauses] = {}  # those that failed
        self._registries: dict[str, _Pauses] = {}

    @property
    def waiting(self) -> int:
        """The number of images that wait for their turn."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no image waits or is being read."""
        return not (self._waiting or self._reading)

    def failures(self, images: Collection[str]) -> int:
        """Return how many of these images could not be read at the last attempt."""
        return len(self._images.keys() & set(images))

    def paused(self, now: float) -> set[str]:
        """Return the registries that are paused now, because they did not answer."""
        return {
            registry for registry, pauses in self._registries.items() if pauses.failures and pauses.due > now
        }

    def add(self, image: str, registry: str, now: float) -> None:
        """Add an image, unless it waits already, is being read or paused, or the queue is full."""
        failed = self._images.get(image)
        is_known = image in self._waiting or image in self._reading
        if not is_known and len(self._waiting) < MAX_WAITING and (failed is None or failed.due <= now):
            self._waiting[image] = registry

    def take(self, now: float) -> str | None:
        """Return the next image to read, until `succeeded` or `failed`; None if none may be read now."""
        if len(self._reading) >= AT_ONCE:
            return None
        for image, registry in self._waiting.items():
            pauses = self._registries.setdefault(registry, _Pauses())
            if pauses.due <= now:
                pauses.due = now + INTERVAL_S
                self._reading[image] = self._waiting.pop(image)
                return image
        return None

    def succeeded(self, image: str) -> None:
        """Note that an image was read."""
        registry = self._reading.pop(image)
        self._images.pop(image, None)
        if registry in self._registries:
            self._registries[registry].failures = 0

    def failed(
        self, image: str, reason: Reason | None, now: float, retry_after_s: float | None = None
    ) -> float:
        """Note that an image could not be read; return the seconds until it may be read again.

        reason: None if its facts could not be stored. retry_after_s: of the registry.
        """
        registry = self._reading.pop(image)
        pauses = self._images.setdefault(image, _Pauses())
        self._pause(pauses, now, _IMAGE_S, LONGEST_IMAGE_S)
        if reason in _OF_REGISTRY:
            of_registry = self._registries.setdefault(registry, _Pauses())
            self._pause(of_registry, now, _REGISTRY_S, _LONGEST_REGISTRY_S)
            retry_s = min(retry_after_s or 0.0, LONGEST_RETRY_AFTER_S)
            of_registry.due = max(of_registry.due, now + retry_s)
            pauses.due = max(pauses.due, of_registry.due)
        return pauses.due - now

    def retain(self, images: Collection[str], now: float) -> None:
        """Forget the images that nothing uses any more, and registries without a pause.

        Failures are remembered for an hour more: pods that come and go shorten no pause.
        """
        used = images if isinstance(images, set | frozenset | dict) else set(images)
        self._waiting = {image: registry for image, registry in self._waiting.items() if image in used}
        failed = [
            (pauses.due, image)
            for image, pauses in self._images.items()
            if image in used or pauses.due + _REMEMBERED_S > now
        ]
        if len(failed) > MAX_FAILED:
            failed = heapq.nlargest(MAX_FAILED, failed)
        self._images = {image: self._images[image] for _, image in failed}
        named = {*self._waiting.values(), *self._reading.values()}
        self._registries = {
            registry: pauses
            for registry, pauses in self._registries.items()
            if registry in named or pauses.due > now or self._remembers(pauses, now)
        }

    @staticmethod
    def _remembers(pauses: _Pauses, now: float) -> bool:
        """Return whether the failures of a registry are recent enough to count."""
        return bool(pauses.failures) and pauses.due + _LONGEST_REGISTRY_S > now

    def _pause(self, pauses: _Pauses, now: float, first_s: float, longest_s: float) -> None:
        seconds = min(longest_s, first_s * 2.0 ** min(pauses.failures, _MAX_DOUBLINGS))
        pauses.failures += 1
        pauses.due = now + seconds * (0.5 + 0.5 * self._chance())
