"""The HTML of `gpugate audit`, `whatif` and `matrix`: valid, and accessible on screens and on paper."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.browser.browser import Browser, invalid_html
from tests.support.command import gpugate
from tests.support.paths import ROOT

_PICTURE: Final = ROOT / "docs" / "pictures" / "audit-report.png"
_HEIGHT: Final = 900  # px of the picture
_AUDIT: Final = ("audit", "-f", "docs/reports/pods.yaml", "--nodes", "docs/compatibility/nodes.yaml")
_MATRIX: Final = ("matrix",)
_LONG: Final = (
    *("audit", "-f", "docs/worked-examples", "--nodes", "docs/compatibility/nodes.yaml"),
    *("--group-by", "team"),
)
_LONG_WHAT_IF: Final = (
    *("whatif", "-f", "docs/worked-examples", "--nodes", "docs/compatibility/nodes.yaml"),
    *("--driver", "470", "--image-cuda", "13"),
)
_WHAT_IF: Final = (
    *("whatif", "-f", "docs/whatif/workloads.yaml", "--nodes", "docs/whatif/nodes.yaml"),
    *("--driver", "gpu-v100=595"),
)


def _report(folder: Path, *arguments: str) -> Path:
    file = folder / "report.html"
    result = gpugate(*arguments, "-o", "html")
    assert (0 if arguments[0] == "matrix" else 1) == result.exit_code, result.stderr
    file.write_text(result.stdout, "utf-8")
    return file


@pytest.fixture(
    params=[(command, language) for command in (_AUDIT, _WHAT_IF, _MATRIX) for language in ("en", "zh")],
    ids=lambda param: f"{param[0][0]}-{param[1]}",
)
def report(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the report of each example, in each language."""
    monkeypatch.chdir(ROOT)
    command, language = request.param
    return _report(tmp_path, *command, "--lang", language)


def test_the_report_is_valid_html(report: Path) -> None:
    """By the standard rules, those of documents and those of accessibility."""
    assert [] == invalid_html(report)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [375, 1280])
def test_the_report_is_accessible_and_requests_nothing(
    browser: Browser, report: Path, width: int, dark: bool
) -> None:
    """With landmarks, headings, table captions and contrast; nothing is wider than the window."""
    browser.show(width=width, dark=dark)

    browser.open(report)

    assert [report.as_uri()] == browser.requests()
    assert [] == browser.console()
    assert 0 == browser.overflow()
    assert [] == browser.accessibility_violations()


@pytest.fixture(
    params=[(command, language) for command in (_LONG, _LONG_WHAT_IF) for language in ("en", "zh")],
    ids=lambda param: f"{param[0][0]}-{param[1]}",
)
def long_report(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a report of 50 workloads, in each language."""
    monkeypatch.chdir(ROOT)
    command, language = request.param
    return _report(tmp_path, *command, "--lang", language)


@pytest.mark.parametrize("width", [375, 1280])
def test_no_text_of_a_long_report_is_cut(browser: Browser, width: int, long_report: Path) -> None:
    """Of 50 workloads with tables of nodes: a cell is as wide as its content; only those tables scroll."""
    browser.show(width=width, dark=False)
    browser.open(long_report)

    cut = """
        const cells = [...document.querySelectorAll("table:not(.matrix) :is(td, th, caption)")];
        const view = document.documentElement.clientWidth;
        const isOutside = (cell) => cell.getBoundingClientRect().right > view;
        const isCut = (cell) => cell.offsetWidth && (cell.scrollWidth > cell.clientWidth || isOutside(cell));
        return [cells.length, cells.filter(isCut).map((cell) => cell.textContent)];
    """
    count, texts = browser.driver.execute_script(cut)
    assert count > 50
    assert texts == []
    assert browser.accessibility_violations() == []


def test_the_runtime_stays_when_a_wide_matrix_scrolls(browser: Browser, tmp_path: Path) -> None:
    """On a phone, with the caption on the screen."""
    browser.show(width=375, dark=False)
    browser.open(_report(tmp_path, *_MATRIX))

    left, right, view = browser.driver.execute_script("""
        const region = document.querySelector(".scroll");
        const [row, caption] = ["tbody th", "caption"].map((name) => region.querySelector(name));
        region.scrollLeft = 1000;
        const left = row.getBoundingClientRect().left;
        region.scrollLeft = 0;
        return [left, caption.getBoundingClientRect().right, region.getBoundingClientRect().right];
    """)
    assert left >= 0
    assert right <= view


def test_the_report_is_accessible_on_paper(browser: Browser, report: Path) -> None:
    """In black on white, and as a PDF."""
    browser.show(width=794, dark=True, media="print")

    browser.open(report)

    assert [] == browser.accessibility_violations()
    assert "rgb(255, 255, 255)" == browser.driver.execute_script(
        "return getComputedStyle(document.body).backgroundColor"
    )
    assert browser.pdf().startswith(b"%PDF-")


def test_the_first_key_skips_to_the_report(browser: Browser, report: Path) -> None:
    """The link is seen when it has the focus."""
    from selenium.webdriver.common.keys import Keys

    browser.open(report)
    browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    link = browser.driver.switch_to.active_element

    assert link.get_attribute("href").endswith("#report")
    assert link.rect["x"] >= 0


def test_names_of_strangers_are_no_markup(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script in a name is text; the policy of the page would not run it, either."""
    monkeypatch.chdir(ROOT)
    attack = "<script>alert(1)</script><img src=http://other.invalid/x>"
    pods = (ROOT / "docs/compatibility/pods.yaml").read_text("utf-8")
    (tmp_path / "pods.yaml").write_text(pods.replace("name: vllm", f'name: "{attack}"'), "utf-8")
    nodes = "docs/compatibility/nodes.yaml"
    report = _report(tmp_path, "audit", "-f", str(tmp_path / "pods.yaml"), "--nodes", nodes)

    browser.open(report)

    assert attack in browser.driver.execute_script("return document.body.textContent")
    assert 0 == browser.driver.execute_script("return document.querySelectorAll('script, img').length")
    assert [report.as_uri()] == browser.requests()


def test_the_picture_of_the_report_can_be_made(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """`--update-golden` writes it to docs/pictures; fonts differ between machines, so it is not compared."""
    monkeypatch.chdir(ROOT)
    browser.open(_report(tmp_path, *_AUDIT))
    picture = browser.screenshot(height=_HEIGHT)
    if request.config.getoption("--update-golden"):
        _PICTURE.write_bytes(picture)

    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    assert _PICTURE.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", [_AUDIT, _WHAT_IF], ids=["audit", "whatif"])
def test_a_report_begins_with_what_to_do(
    browser: Browser, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the first screen of a phone, above the numbers; the numbers have the colours of their findings."""
    monkeypatch.chdir(ROOT)
    browser.show(width=375, dark=False)
    browser.open(_report(tmp_path, *command))

    top, below, colours = browser.driver.execute_script("""
        const [lead, counts] = [".lead", ".counts"].map((name) => document.querySelector(name));
        const colours = [...counts.children].map((count) => getComputedStyle(count).color);
        return [lead.getBoundingClientRect().top, counts.getBoundingClientRect().top, new Set(colours).size];
    """)
    assert top < below
    assert top < 400  # px; such a screen has 667
    assert colours >= 3
