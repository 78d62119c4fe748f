"""The browser of these tests: one process, a clean state for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.browser import Browser, chromium


@pytest.fixture(scope="session")
def _chromium() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def browser(_chromium: Browser) -> Browser:
    """Return a browser that shows a light screen of 1280 px, without logs of other tests."""
    _chromium.show(width=1280)
    _chromium.open("about:blank")
    _chromium.requests()
    return _chromium
