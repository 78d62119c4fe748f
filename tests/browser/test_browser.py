"""The checks of pages find what they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.browser import Browser, invalid_html

_PAGE = (
    '<!DOCTYPE html>\n<html lang="en"><head><title>t</title></head>'
    "<body><main><h1>t</h1>{}</main></body></html>\n"
)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Return a file for a page."""
    return tmp_path / "page.html"


def test_a_page_without_faults_has_no_violations(browser: Browser, page: Path) -> None:
    """Nothing is logged, and only the file is requested."""
    page.write_text(_PAGE.format("<p>text</p>"), "utf-8")

    browser.open(page)

    assert [] == browser.accessibility_violations()
    assert [] == browser.console()
    assert [page.as_uri()] == browser.requests()
    assert 0 == browser.overflow()
    assert [] == invalid_html(page)


def test_invalid_html_is_found(page: Path) -> None:
    """A block in a text."""
    page.write_text(_PAGE.format("<p><span><div>text</div></span></p>"), "utf-8")

    assert "element-permitted-content" in {problem.split(": ")[1] for problem in invalid_html(page)}


def test_low_contrast_is_found(browser: Browser, page: Path) -> None:
    """By the accessibility checker, in the colours that are shown."""
    page.write_text(_PAGE.format('<p style="color: #bbb">text</p>'), "utf-8")

    browser.open(page)

    assert ["color-contrast"] == [
        accessibility_violation.split(": ")[0]
        for accessibility_violation in browser.accessibility_violations()
    ]


def test_an_error_of_a_script_and_a_request_to_another_host_are_found(browser: Browser, page: Path) -> None:
    """The host of the request does not exist, so its failure is logged, too."""
    script = '<script>fetch("http://other.invalid/x").catch(() => undefined); missing()</script>'
    page.write_text(_PAGE.format(script), "utf-8")

    browser.open(page)

    assert "other.invalid" in browser.hosts()
    assert any("missing is not defined" in message for message in browser.console())


def test_a_page_that_is_wider_than_the_window_is_found(browser: Browser, page: Path) -> None:
    """By as many px."""
    page.write_text(_PAGE.format('<div style="width: 2000px">text</div>'), "utf-8")
    browser.show(width=375)

    browser.open(page)

    assert browser.overflow() > 1600
