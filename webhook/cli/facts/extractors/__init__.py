"""The extractors, one module a source."""

from __future__ import annotations

from typing import Final

from webhook.cli.facts.extractors import (
    aws_instances,
    driver_branches,
    driver_redist,
    gpu_profiles,
    toolkit_wheels,
)
from webhook.cli.facts.extractors.base import Extractor

EXTRACTORS: Final[tuple[Extractor, ...]] = (
    aws_instances.EXTRACTOR,
    driver_branches.EXTRACTOR,
    driver_redist.EXTRACTOR,
    gpu_profiles.EXTRACTOR,
    toolkit_wheels.EXTRACTOR,
)
