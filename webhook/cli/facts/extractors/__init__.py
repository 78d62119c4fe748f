"""The extractors: one module a subject, one entry a source."""

from __future__ import annotations

from typing import Final

from webhook.cli.facts.extractors.drivers import DRIVER_EXTRACTORS
from webhook.cli.facts.extractors.gpus import GPU_EXTRACTORS
from webhook.cli.facts.extractors.images import IMAGE_EXTRACTORS

# In the order of tables.GENERATED.
EXTRACTORS: Final = tuple(
    sorted((*GPU_EXTRACTORS, *DRIVER_EXTRACTORS, *IMAGE_EXTRACTORS), key=lambda extractor: extractor.table)
)
