"""A headless Chromium: what a page looks like, what it logs, and what it requests."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, Final
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

_MODULES: Final = Path(__file__).parent / "node_modules"
# Rules of WCAG 2.2, levels A and AA, and what the checker calls good practice.
_AXE: Final = "axe.run().then(found => arguments[0](found.violations), error => arguments[0](String(error)))"
# Colours of a PDF, width and height in inches: A4.
_PAPER: Final = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}


class Browser:
    """A tab of a headless Chromium; `driver` is Selenium's."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, address: str | Path) -> None:
        """Load a page or a file, and forget what others logged and requested."""
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(address.as_uri() if isinstance(address, Path) else address)

    def show(self, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """Set the width of the window in px, the colour scheme, and the medium: screen or print."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": [scheme]})

    def overflow(self) -> int:
        """Return by how many px the page is wider than the window."""
        script = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
        return int(self.driver.execute_script(script))

    def screenshot(self, height: int | None = None) -> bytes:
        """Return the page as a PNG image, or its first px of height."""
        settings: dict[str, Any] = {"format": "png", "captureBeyondViewport": True}
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        area = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        settings["clip"] = area
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", settings)["data"])

    def pdf(self) -> bytes:
        """Return the page as it is printed on A4."""
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", _PAPER)["data"])

    def console(self) -> list[str]:
        """Return warnings and errors of the console since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return the addresses that the page requested since the last call, its own included."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def hosts(self) -> set[str]:
        """Return the hosts that the page requested anything from since the last call; '' is a file."""
        return {urlsplit(request).netloc for request in self.requests() if not request.startswith("data:")}

    def accessibility_violations(self) -> list[str]:
        """Return what axe-core finds in the page as it is shown now: rule, what to do, and where."""
        self.driver.execute_script((_MODULES / "axe-core" / "axe.min.js").read_text("utf-8"))
        violations: Any = self.driver.execute_async_script(_AXE)
        assert isinstance(violations, list), violations
        return [
            f"{rule['id']}: {rule['help']}: {', '.join(str(node['target']) for node in rule['nodes'])}"
            for rule in violations
        ]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Chromium and its driver, which are of the same version, and stop them."""
    program, driver = which("chromium"), which("chromedriver")
    if program is None or driver is None:
        message = "chromium or chromedriver not found; install them: apt-get install chromium chromium-driver"
        raise FileNotFoundError(message)
    options = Options()
    options.binary_location = program
    # Root, as in a container, has no sandbox there; only pages of these tests are opened.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "WARNING", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()


def invalid_html(file: Path) -> list[str]:
    """Return what html-validate reports of a file: the standard preset, and its rules for documents."""
    settings = Path(__file__).with_name("html-validate.json")
    command = [
        str(word)
        for word in (_MODULES / ".bin" / "html-validate", "--config", settings, "--formatter", "json", file)
    ]
    run = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert run.returncode in (0, 1), run.stderr
    return [
        f"{message['line']}:{message['column']}: {message['ruleId']}: {message['message']}"
        for result in json.loads(run.stdout)
        for message in result["messages"]
    ]
