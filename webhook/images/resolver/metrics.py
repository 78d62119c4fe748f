"""Metrics of the image resolver. Their labels are constants of this program, never names of images."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from webhook.telemetry.metrics import WATCH_HEARD, WATCH_RESTARTS

REGISTRY: Final = CollectorRegistry()

IMAGES: Final = Gauge(
    "gpugate_images",
    "Images that containers with accelerators use: known without a registry, read, not read yet, failed, or "
    "omitted because there are too many",
    ("state",),
    registry=REGISTRY,
)
FETCHES: Final = Counter(
    "gpugate_image_fetches_total",
    "Attempts to read an image: ok, unchanged (a tag that was checked again), full (no room for its facts), "
    "or the reason of the failure",
    ("result",),
    registry=REGISTRY,
)
QUEUE: Final = Gauge("gpugate_image_queue", "Images that wait to be read", registry=REGISTRY)
PAUSED: Final = Gauge(
    "gpugate_image_registries_paused", "Registries that are not asked for a while", registry=REGISTRY
)
STORED: Final = Gauge("gpugate_image_stored", "Images whose facts are stored", registry=REGISTRY)
OLDEST: Final = Gauge(
    "gpugate_image_oldest_timestamp_seconds",
    "Time when the image whose facts are the oldest was read; 0 without any",
    registry=REGISTRY,
)
WRITTEN: Final = Gauge(
    "gpugate_image_written_timestamp_seconds",
    "Time of the last step after which the ConfigMaps contained all facts; 0 before the first",
    registry=REGISTRY,
)
WRITE_FAILURES: Final = Counter(
    "gpugate_image_write_failures_total", "Failed writes of ConfigMaps", registry=REGISTRY
)
for _of_watches in (WATCH_HEARD, WATCH_RESTARTS):
    REGISTRY.register(_of_watches)
