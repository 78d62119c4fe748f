"""Fake registry over HTTPS, which answers by a table and records what it is asked."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from certs.authority import make_leaf
from tests.support.image_builders import Blob
from tests.support.serving import AUTHORITY, HOST

REGISTRY: Final = "registry.test"
OTHER: Final = "other.test"
# Seconds between two bytes of a slow answer.
_DRIP_S: Final = 0.02


@dataclass(frozen=True)
class Asked:
    """A received request. host: without the port. client: the port of the client, one for each connection."""

    method: str
    host: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    client: int = 0

    @property
    def authorization(self) -> str:
        """The credentials in it."""
        return self.headers.get("Authorization", "")


@dataclass(frozen=True)
class Reply:
    """An answer. slow: its body never ends, one byte at a time; slow_head: its head."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    slow: bool = False
    slow_head: bool = False


@dataclass
class FakeRegistry:
    """Answers by path, each a reply or a function of the request; anything else is 404. port: of HTTPS."""

    replies: dict[str, Reply | Callable[[Asked], Reply]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    closing: threading.Event = field(default_factory=threading.Event)

    def put(self, repository: str, tag: str, top: Blob, *others: Blob) -> None:
        """Add an image: its manifest or index by tag and digest, and the documents below it by digest."""
        self.replies[f"/v2/{repository}/manifests/{tag}"] = _reply(top)
        for blob in (top, *others):
            for kind in ("manifests", "blobs"):
                self.replies[f"/v2/{repository}/{kind}/{blob.digest}"] = _reply(blob)

    def reference(self, name: str, host: str = REGISTRY) -> str:
        """Return a reference of this registry."""
        return f"{host}:{self.port}/{name}"

    def url(self, path: str, host: str = REGISTRY) -> str:
        """Return a URL of this registry."""
        return f"https://{host}:{self.port}{path}"

    def answer(self, request: Asked) -> Reply:
        """Return the reply to a request."""
        self.asked.append(request)
        reply = self.replies.get(request.path.partition("?")[0], Reply(404))
        return reply if isinstance(reply, Reply) else reply(request)


def _reply(blob: Blob) -> Reply:
    headers = {"Content-Type": blob.media_type, "Docker-Content-Digest": blob.digest}
    return Reply(200, headers, blob.body)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, registry: FakeRegistry, *arguments: Any) -> None:
        self._registry = registry
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:
        del format, args

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_CONNECT = do_GET  # noqa: N815

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        host = self.headers.get("Host", "").partition(":")[0]
        headers, client = dict(self.headers), self.client_address[1]
        reply = self._registry.answer(Asked(self.command, host, self.path, headers, body, client))
        if reply.slow_head:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            self._drip()
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.slow:
            self.end_headers()
            self._drip()
            return
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def _drip(self) -> None:
        """Send one byte after the other until the client ends the connection."""
        self.close_connection = True
        try:
            while not self._registry.closing.wait(_DRIP_S):
                self.wfile.write(b" ")
        except OSError:
            pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that end a connection, which is what the tests are about."""


@contextmanager
def fake_registry(folder: Path) -> Iterator[FakeRegistry]:
    """Serve a registry on 127.0.0.1 for the names registry.test and other.test, with the CA of the tests."""
    pair = make_leaf(AUTHORITY, (REGISTRY, OTHER, "localhost", HOST), datetime.now(UTC))
    (folder / "tls.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    with _served(context) as registry:
        yield registry


@contextmanager
def plain_registry() -> Iterator[FakeRegistry]:
    """Serve a registry over HTTP."""
    with _served(None) as registry:
        yield registry


@contextmanager
def _served(context: ssl.SSLContext | None) -> Iterator[FakeRegistry]:
    registry = FakeRegistry()
    server = _Server((HOST, 0), partial(_Handler, registry))
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        registry.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()
