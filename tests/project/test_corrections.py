"""Each test that docs/corrections.md names exists."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.support.paths import ROOT

_TEST: Final = re.compile(r"`(tests/[\w/.-]+\.py)::(\w+)`")
_NAMED: Final = sorted(set(_TEST.findall((ROOT / "docs/corrections.md").read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("path", "name"), _NAMED)
def test_a_test_that_holds_a_correction_exists(path: str, name: str) -> None:
    source = (ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^(?:    )?def {name}\(", source, re.MULTILINE)


def test_the_page_names_tests() -> None:
    assert _NAMED
