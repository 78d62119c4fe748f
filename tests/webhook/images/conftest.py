"""A fake registry with one image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_registry import FakeRegistry, fake_registry
from tests.support.image_builders import CUDA_ENV
from tests.support.image_reading import image


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[FakeRegistry]:
    """Yield a registry with the image team/app:1, for linux/amd64."""
    with fake_registry(tmp_path) as server:
        image(server, "team/app", CUDA_ENV)
        yield server
