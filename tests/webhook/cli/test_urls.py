"""Files at http and https addresses: content, limits and errors."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.command import gpugate
from tests.support.paths import ROOT
from webhook.cli.inputs import files as urls

POD: Final = ROOT / "docs/examples/denied.yaml"


class _Files(http.server.BaseHTTPRequestHandler):
    """Serves the pod at /pod.yaml, sends /moved there, and never ends /slow and /large."""

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/pod.yaml")
            self.end_headers()
        elif self.path in ("/pod.yaml", "/slow", "/large"):
            self.send_response(200)
            self.end_headers()
            self._write()
        else:
            self.send_error(404)

    def _write(self) -> None:
        self.wfile.write(POD.read_bytes())
        while self.path != "/pod.yaml":
            self.wfile.write(b"#" * (1 << 16 if self.path == "/large" else 1))

    def log_message(self, format: str, *arguments: object) -> None:
        del format, arguments


@pytest.fixture
def site() -> Iterator[str]:
    """Yield the address of a server."""
    with _serving() as address:
        yield address


@contextmanager
def _serving() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("path", ["/pod.yaml", "/moved"])
@pytest.mark.parametrize("words", [("preview", "-f"), ("preview",), ("explain", "-f"), ("audit", "-f")])
def test_objects_are_read_from_a_url(words: tuple[str, ...], path: str, site: str) -> None:
    """Redirects are followed."""
    assert 1 == gpugate(*words, f"{site}{path}").exit_code


def test_positions_in_a_url_are_those_of_a_file(site: str) -> None:
    """With the address as the name."""
    facts = json.loads(gpugate("preview", f"{site}/pod.yaml", "-o", "json").stdout)

    assert f"{site}/pod.yaml:2" == facts["objects"][0]["source"]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/none.yaml", "server reported 404 Not Found"),
        ("/large", "more than 1 MiB"),
        ("/slow", "no end after 0 seconds"),
    ],
)
def test_a_url_that_cannot_be_read_is_one_line(
    path: str, why: str, site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Size and time are bounded; the exit status is 2."""
    monkeypatch.setattr(urls, "_MAX_BYTES", 1 << 20)
    monkeypatch.setattr(urls, "_WHOLE_S", 0.2 if path == "/slow" else 60.0)
    result = gpugate("preview", f"{site}{path}")

    assert (2, f'error: unable to read URL "{site}{path}": {why}\n') == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:1/a", "dial tcp 127.0.0.1:1: connect: connection refused"),
        ("http://nowhere.invalid/a", "dial tcp: lookup nowhere.invalid: no such host"),
        ("http://[::1", "Invalid IPv6 URL"),
        ("http://user:word@nowhere.invalid:x/a", "nonnumeric port: 'x'"),
    ],
)
def test_a_url_without_an_answer_is_one_line(url: str, why: str) -> None:
    """In the words of kubectl."""
    result = gpugate("lint", url)

    assert (2, f'error: unable to read URL "{url}": {why}\n') == (result.exit_code, result.stderr)


def test_a_test_at_a_url_cannot_be_updated(site: str, tmp_path: Path) -> None:
    """Nor can one from stdin."""
    del tmp_path

    assert "--update cannot be used with stdin or a URL" in gpugate("test", "--update", f"{site}/a").stderr
