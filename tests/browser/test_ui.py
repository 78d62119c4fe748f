"""The page of `gpugate ui` in a real browser: what a user sees, and that nothing goes elsewhere."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.browser.browser import Browser, invalid_html
from tests.support.paths import ROOT
from tests.support.ui_page import origin_of, ui_process

# Seconds until the page shows an answer; it takes a few hundred milliseconds.
_PATIENCE_S = 20
_NO_KERNEL = "CUDA error: no kernel image is available for execution on the device "
# The elements with clipped text: only matrices scroll sideways.
_CUT = """
    const isCut = (node) => node.offsetWidth > 1 && !node.closest(".scroll")
        && node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== "inline";
    return [...document.querySelectorAll("main *")].filter(isCut).map((node) => node.outerHTML.slice(0, 200));
"""
_PICTURE = ROOT / "docs" / "pictures" / "ui.png"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of a running page."""
    with ui_process() as url:
        yield url


class Page:
    """The page in a browser."""

    def __init__(self, browser: Browser, address: str) -> None:
        self.browser = browser
        browser.open(address)
        self.until(lambda: self.text("verdict") != "")

    def __call__(self, name: str) -> WebElement:
        """Return the element with an id."""
        return self.browser.driver.find_element(By.ID, name)

    def all(self, selector: str) -> list[WebElement]:
        """Return the elements of a CSS selector."""
        elements: list[WebElement] = self.browser.driver.find_elements(By.CSS_SELECTOR, selector)
        return elements

    def text(self, name: str) -> str:
        """Return the text that an element shows."""
        return str(self(name).text)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        WebDriverWait(self.browser.driver, _PATIENCE_S).until(lambda _: condition())

    def choose(self, name: str, text: str) -> None:
        """Choose an option by the text that it shows."""
        Select(self(name)).select_by_visible_text(text)

    def replace(self, area: str, old: str, new: str) -> None:
        """Select a text in a text area and type another."""
        script = (
            "const [area, old] = arguments; const at = area.value.indexOf(old); area.focus();"
            "area.setSelectionRange(at, at + old.length); return at"
        )
        assert self.browser.driver.execute_script(script, self(area), old) >= 0
        self(area).send_keys(new)

    def marks(self, level: str) -> list[int]:
        """Return the numbers of the lines of the pod's text that are marked."""
        script = (
            "const lines = [...document.querySelectorAll('#pod-panel .lines > div')];"
            "return lines.flatMap((line, at) => line.className === arguments[0] ? [at + 1] : [])"
        )
        numbers: list[int] = self.browser.driver.execute_script(script, level)
        return numbers

    def value(self, area: str) -> str:
        """Return what a text field contains."""
        return str(self(area).get_property("value"))

    def show(self, view: str) -> None:
        """Show the view `pod`, `log` or `matrix`, and wait for its content."""
        content = {"pod": "objects", "log": "log-verdict", "matrix": "tables"}[view]
        self.browser.driver.execute_script("arguments[0].replaceChildren()", self(content))
        self(f"tab-{view}").click()
        self.until(lambda: bool(self(content).text))


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Yield the page with its first example: bfloat16 on a T4."""
    yield Page(browser, address)
    browser.driver.execute_script("sessionStorage.clear()")


def test_the_example_is_denied_until_its_dtype_is_half(page: Page) -> None:
    """The verdict changes while one types, and the token is no longer in the address."""
    driver = page.browser.driver
    assert "✗ denied Deployment ml/serve" == page.text("verdict")
    assert "needs compute capability 8.0 or higher" in page.text("objects")
    assert page.text("objects").count("denied") == 0
    assert [22] == page.marks("deny")

    page.replace("pod", "- --dtype=bfloat16", "- --dtype=half")
    page.until(lambda: "denied" not in page.text("verdict"))

    assert "✓ unchanged; its pods: ✎ patched Deployment ml/serve" == page.text("verdict")
    assert "1 of 2 nodes" in page.text("objects")
    assert [] == page.marks("deny")
    assert driver.current_url.endswith("/")


def test_a_text_that_was_typed_is_never_lost(page: Page) -> None:
    """It is `your own text` from its first letter; it comes back after an example, and after a reload."""
    page.replace("pod", "name: serve", "name: mine")
    page.until(lambda: "ml/mine" in page.text("verdict"))
    assert "your own text" == Select(page("example")).first_selected_option.text

    page.choose("example", "A driver too old for the image")
    page.until(lambda: "ml/mine" not in page.text("verdict"))
    page.choose("example", "your own text")
    page.until(lambda: "ml/mine" in page.text("verdict"))
    page.browser.driver.refresh()
    page.until(lambda: "ml/mine" in page.text("verdict"))

    assert "your own text" == Select(page("example")).first_selected_option.text
    assert "name: mine" in page.value("pod")


def test_an_error_in_the_text_is_shown_at_its_line(page: Page) -> None:
    """A button selects the line."""
    page.replace("pod", "name: serve", "name: serve: twice")
    page.until(lambda: bool(page.all("#errors li")))

    (error,) = page.all("#errors li")
    assert "line 6" in error.text
    assert "quote a value that contains" in error.text
    assert [6] == page.marks("error")
    assert "✗ errors: 1" == page.text("verdict")

    error.find_element(By.TAG_NAME, "button").click()
    script = (
        "const a = document.getElementById('pod'); return a.value.slice(a.selectionStart, a.selectionEnd)"
    )
    assert "  name: serve: twice" == page.browser.driver.execute_script(script)


def test_the_keyboard_indents_and_undoes_what_it_wrote(page: Page) -> None:
    """Enter keeps the indentation, Tab adds to it, and Escape lets Tab leave; all can be undone."""
    text = page.value("pod")
    page.replace("pod", "nvidia.com/gpu: 1", "nvidia.com/gpu: 1" + Keys.ENTER + "a:" + Keys.ENTER + "b: 1")
    assert page.value("pod").endswith("nvidia.com/gpu: 1\n              a:\n                b: 1\n")

    page("pod").send_keys(Keys.TAB)
    assert page.value("pod").endswith("  b: 1  \n")
    page("pod").send_keys(Keys.SHIFT, Keys.TAB)
    page("pod").send_keys(Keys.NULL, Keys.CONTROL, "/")
    assert page.value("pod").endswith("# b: 1  \n")
    page("pod").send_keys(Keys.NULL, Keys.CONTROL, "z" * 40)
    assert text == page.value("pod")

    page("pod").send_keys(Keys.NULL, Keys.ESCAPE, Keys.TAB)
    assert "pod" != page.browser.driver.switch_to.active_element.get_attribute("id")


@pytest.mark.parametrize("width", [375, 1280])
def test_each_line_is_as_high_as_its_number_says(page: Page, width: int) -> None:
    """The copy with numbers and colours wraps as the text does, in Chinese, too."""
    page.browser.show(width=width)
    words = "a word, ein-Bindestrich/und:Pfade, 要求计算能力 8.0 及以上（T4 为 7.5）。 "
    for long in (words * 9, "x" * 400, "  - --flag=" + "y" * 200 + "  ", "# " + words * 5):
        page.replace("pod", page.value("pod"), long)
        page("pod").send_keys(Keys.ENTER, "end")

        heights = page.browser.driver.execute_script(
            "const area = arguments[0]; area.style.height = 0; const height = area.scrollHeight;"
            "area.style.height = ''; return [height, area.previousElementSibling.scrollHeight]",
            page("pod"),
        )
        lines = page.browser.driver.execute_script(
            "return [...arguments[0].previousElementSibling.children]"
            ".reduce((sum, line) => sum + line.offsetHeight, 16)",
            page("pod"),
        )
        assert heights[0] == lines


def test_a_long_text_has_a_number_for_each_line(page: Page) -> None:
    """Of one line, as JSON is, and of many."""
    script = (
        "const [area, text] = arguments; area.value = text; area.dispatchEvent(new Event('input'));"
        "return area.previousElementSibling.children.length"
    )
    for text, lines in (('{"a": "' + "x" * 100_000 + '"}', 1), ("a: 1 # b\n" * 3000, 3001)):
        assert lines == page.browser.driver.execute_script(script, page("pod"), text)
        page("pod").send_keys(Keys.CONTROL, Keys.HOME, Keys.NULL, "#")
        assert page.value("pod") == f"#{text}"
    assert [] == page.browser.console()


def test_an_empty_text_is_no_error(page: Page) -> None:
    """A hint says what to write."""
    page.replace("pod", page.value("pod"), " ")
    page.until(lambda: "choose an example" in page.text("verdict"))

    assert "none" in (page("verdict").get_attribute("class") or "")
    assert "" == page.text("errors")


def test_a_pod_that_no_node_can_take_has_no_green_mark(page: Page) -> None:
    """The example of a taint."""
    page.choose("example", "A taint without a toleration")
    page.until(lambda: "Pending: none of the nodes can take it" in page.text("verdict"))

    assert "yellow" in (page("verdict").get_attribute("class") or "")


def test_a_certain_fix_is_applied_and_undone(page: Page) -> None:
    """By a button beside it; the result follows."""
    page.choose("example", "Four processes and two GPUs")
    page.until(lambda: bool(page.all("button.apply")))
    text = page.value("pod")

    page.all("button.apply")[0].click()
    page.until(lambda: "denied" not in page.text("verdict"))
    assert text.replace("parallel-size=4", "parallel-size=2") == page.value("pod")

    page("pod").send_keys(Keys.CONTROL, "z")
    assert text == page.value("pod")


def test_a_pasted_log_has_causes_at_its_lines(page: Page) -> None:
    """It is kept over a reload, as all texts are."""
    page.show("log")
    page("log").send_keys(f"loading\nRuntimeError: {_NO_KERNEL}")
    page.until(lambda: "Causes found: 1" in page.text("log-verdict"))
    assert "likely" in page.text("causes")
    assert "use a GPU that the image is built for" in page.text("causes")

    page.browser.driver.refresh()
    page.until(lambda: page.text("verdict") != "")
    page.show("log")
    page.until(lambda: "line 2" in page.text("causes"))
    page.all("#causes button.line")[0].click()
    script = (
        "const a = document.getElementById('log'); return a.value.slice(a.selectionStart, a.selectionEnd)"
    )
    assert page.browser.driver.execute_script(script).startswith("RuntimeError: CUDA error")


def test_an_error_in_the_nodes_is_shown_in_their_text(page: Page) -> None:
    """And the text with the nodes is opened from it."""
    page("tab-node-text").click()
    page.replace("node-text", "kind: Node", "kind: Nope")
    page.until(lambda: bool(page.all("#errors li")))

    assert "nodes, line 1" in page.text("errors")
    assert "expected one of Node" in page.text("errors")


def test_a_patch_is_shown_as_a_diff_with_the_nodes_that_are_left(page: Page) -> None:
    """The example of an older driver."""
    page.choose("example", "A driver too old for the image")
    page.until(lambda: "patched" in page.text("verdict"))

    assert "+ affinity:" in [" ".join(element.text.split()) for element in page.all(".diff .added")]
    assert "1 of 2 nodes" in page.text("objects")
    assert "a100" in page.text("objects")


def test_a_cell_of_the_matrix_shows_its_reason(page: Page) -> None:
    """Beside the table, which does not move."""
    page.show("matrix")
    cell = page.all(".matrix .incompatible")[0]
    place = cell.rect

    cell.click()
    assert place == cell.rect

    assert "CUDA 13.5, A100, driver 550.54.15" in page.text("reasons")
    assert "whether the image has cuda-compat · cudaErrorInsufficientDriver (35)" in page.text("reasons")


@pytest.mark.parametrize("width", [375, 1280])
def test_all_drivers_and_gpus_are_in_the_matrix_without_nodes(page: Page, width: int) -> None:
    """Its headings are in one line; on a wide screen, all columns are in sight."""
    page.browser.show(width=width)
    page.choose("nodes", "no nodes")
    page.show("matrix")
    script = """
        const heads = [...document.querySelectorAll(".matrix thead tr")].map((row) => row.offsetHeight);
        const parts = [...document.querySelectorAll(".scroll")];
        return [Math.max(...heads), Math.max(...parts.map((part) => part.scrollWidth - part.clientWidth))];
    """
    height, scrolled = page.browser.driver.execute_script(script)

    assert height < 30
    assert width < 900 or scrolled <= 0


def test_views_are_chosen_by_the_keyboard(page: Page) -> None:
    """With the arrows, as in every list of tabs."""
    page("tab-pod").send_keys(Keys.ARROW_LEFT)
    page.until(lambda: bool(page.all(".matrix button")))

    assert page("view-matrix").is_displayed()
    assert not page("view-pod").is_displayed()


def test_names_in_a_pod_are_text_and_nothing_else(page: Page) -> None:
    """Nothing that the user or a manifest writes becomes an element."""
    page.replace("pod", "name: serve", "name: '<img src=x onerror=alert(1)>'")
    page.until(lambda: "<img" in page.text("verdict"))

    assert [] == page.all("img")
    assert [] == page.browser.console()


@pytest.mark.parametrize(
    "screen",
    [(1280, False), (1280, True), (375, False), (375, True)],
    ids=["wide", "wide-dark", "small", "small-dark"],
)
@pytest.mark.parametrize("view", ["pod", "log", "matrix"])
@pytest.mark.parametrize("language", ["English", "中文"])
def test_a_view_fits_its_window_and_is_accessible(
    page: Page, language: str, view: str, screen: tuple[int, bool], tmp_path: Path
) -> None:
    """Nothing is logged, and no other host is asked. screen: its width in px, and whether it is dark."""
    page.browser.show(width=screen[0], dark=screen[1])
    page.choose("language", language)
    page.choose("example", page.all("#example option")[3].text)
    page.show(view)
    if view == "matrix":
        page.all(".matrix .incompatible")[0].click()
    if view == "log":
        page("log").send_keys(_NO_KERNEL * 3)
        page.until(lambda: bool(page.text("causes")))
    (tmp_path / "view.png").write_bytes(page.browser.screenshot())

    assert page.browser.overflow() <= 0
    assert [] == page.browser.driver.execute_script(_CUT)
    assert [] == page.browser.accessibility_violations()
    assert [] == page.browser.console()
    assert {page.browser.driver.current_url.split("/")[2]} == page.browser.hosts()


def test_a_case_is_saved_and_opened_again(page: Page, tmp_path: Path) -> None:
    """With the comments of its author."""
    _download_to(page, tmp_path)
    page.replace("pod", "# Change", "# I would change")
    page("save").click()
    page.until((tmp_path / "case.yaml").exists)

    page.choose("example", "A share of a GPU")
    page.until(lambda: "Pod ml/train" in page.text("verdict"))
    page("file").send_keys(str(tmp_path / "case.yaml"))
    page.until(lambda: "ml/serve" in page.text("verdict"))

    assert "# I would change --dtype" in page.value("pod")
    page("pod").send_keys(Keys.CONTROL, "z")
    assert "name: train" in page.value("pod")


def test_a_case_becomes_a_rule_test_that_passes(page: Page, tmp_path: Path) -> None:
    """`gpugate test` runs the file that is saved."""
    _download_to(page, tmp_path)
    page("save-test").click()
    page.until((tmp_path / "case.test.yaml").exists)

    command = [sys.executable, "-m", "webhook", "test", str(tmp_path / "case.test.yaml")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert "1 case in 1 file: 1 passed, 0 failed\n" in run.stdout
    assert 0 == run.returncode


def test_a_page_of_another_origin_gets_no_answer(browser: Browser, page: Page, tmp_path: Path) -> None:
    """Even with the cookie in the browser."""
    assert page.text("verdict")
    address = origin_of(browser.driver.current_url)
    other = tmp_path / "other.html"
    other.write_text("<!DOCTYPE html><title>other</title>", "utf-8")
    browser.open(other)

    script = (
        "const done = arguments[1]; fetch(arguments[0], {method: 'POST', body: '{}', credentials: 'include'})"
        ".then((answer) => done(answer.status), (error) => done(error.name))"
    )
    assert "TypeError" == browser.driver.execute_async_script(script, f"{address}/api/evaluate")
    assert any("blocked by CORS policy" in message for message in browser.console())


def test_the_page_is_valid_html(page: Page, tmp_path: Path) -> None:
    """As its script fills it. Hashes of files are for those that other hosts serve."""
    page.show("matrix")
    page.show("log")
    page.show("pod")
    file = tmp_path / "page.html"
    script = "return document.documentElement.outerHTML"
    file.write_text(f"<!DOCTYPE html>\n{page.browser.driver.execute_script(script)}\n", "utf-8")

    assert [] == [problem for problem in invalid_html(file) if "require-sri" not in problem]


def test_the_picture_of_the_pages_is_of_this_page(page: Page, request: pytest.FixtureRequest) -> None:
    """It is made by `--update-golden`; fonts differ between machines, so only its size is compared."""
    page.browser.show(width=1280)
    picture = page.browser.screenshot()
    if request.config.getoption("--update-golden"):
        _PICTURE.write_bytes(picture)

    assert b"\x89PNG" == _PICTURE.read_bytes()[:4]
    assert 1280 == int.from_bytes(_PICTURE.read_bytes()[16:20])


def _download_to(page: Page, folder: Path) -> None:
    settings = {"behavior": "allow", "downloadPath": str(folder)}
    page.browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", settings)
