"""Options and settings that all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support.laws import EXAMPLES

# Timings on shared machines are noise, and a failure has to be the same for everybody.
settings.register_profile("gpugate", deadline=None, derandomize=True, max_examples=EXAMPLES, print_blob=True)
settings.load_profile("gpugate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes golden answers anew."""
    parser.addoption("--update-golden", action="store_true", help="write the golden answers of reviews anew")
