"""Folders of the repository that tests read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

TESTS: Final = Path(__file__).parents[1]
ROOT: Final = TESTS.parent

# Manifests that other people wrote, which are no part of the project; docs/contributing.md has the variable.
MANIFESTS: Final = Path(os.environ.get("GPUGATE_MANIFESTS", os.devnull))
needs_manifests: Final = pytest.mark.skipif(
    not MANIFESTS.is_dir(), reason="GPUGATE_MANIFESTS names no folder of manifests"
)
