"""Folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
ROOT: Final = TESTS.parent
