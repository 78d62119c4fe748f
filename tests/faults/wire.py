"""The wire between the gate and a real API server: TLS on both sides, and broken on demand."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import struct
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import trustme

from tests.e2e.daemon import HOST

if TYPE_CHECKING:
    from collections.abc import Iterator

# Close at once, with a reset: nothing that waits to be sent is.
_RESET: Final = struct.pack("ii", 1, 0)
_CHUNK: Final = 64 * 2**10


class CutError(Exception):
    """The connection breaks here, by a reset."""


class Way:
    """What a wire does to requests and answers. This one passes them on."""

    def refuses(self) -> bool:
        """Tell whether a connection is closed as soon as it is there."""
        return False

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return status, headers and body in place of the API server's; None to ask it."""
        del method, path
        return None

    def body(self, chunks: Iterator[bytes], *, watch: bool) -> Iterator[bytes]:
        """Return the body's pieces, of a watch its lines, as they go on; CutError breaks the connection."""
        del watch
        return chunks


class Wire:
    """A server on this machine that hands requests on to an API server; a context manager.

    way: what it does to those that come from now on. closing: set when it ends.
    """

    def __init__(self, url: str, ca_pem: bytes) -> None:
        """Take the API server's address, and by which CA it is known."""
        upstream = urlsplit(url)
        self.upstream = upstream.hostname or "", upstream.port or 443
        self.trust = ssl.create_default_context(cadata=ca_pem.decode())
        self.way = Way()
        self.closing = threading.Event()
        self._authority = trustme.CA()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._authority.issue_cert(HOST).configure_cert(self.context)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._server = self._listen(0)
        self.port: int = self._server.server_port

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.away()

    def kubeconfig(self, of: Path) -> Path:
        """Write a kubeconfig like another, whose API server is at the other end of this wire."""
        config: dict[str, Any] = json.loads(of.read_text("utf-8"))
        authority = base64.b64encode(self._authority.cert_pem.bytes()).decode()
        config["clusters"][0]["cluster"] = {
            "server": f"https://{HOST}:{self.port}",
            "certificate-authority-data": authority,
        }
        path = of.with_suffix(".wire")
        path.write_text(json.dumps(config), "utf-8")
        return path

    def away(self) -> None:
        """Refuse connections, as a port does at which nobody listens, and cut those that there are."""
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def back(self) -> None:
        """Listen again."""
        self._server = self._listen(self.port)

    def cut(self) -> None:
        """Break all connections by resets."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    # Not SSLSocket's own, which would take the session from the thread that reads.
                    socket.socket.shutdown(each, socket.SHUT_RD)

    def opened(self, connection: socket.socket) -> None:
        """Note a connection that `cut` breaks."""
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: socket.socket) -> None:
        """Forget it."""
        with self._lock:
            self._open.discard(connection)

    def _listen(self, port: int) -> _Server:
        server = _Server(self, port)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, wire: Wire, port: int) -> None:
        self.wire = wire
        super().__init__((HOST, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = super().get_request()
        if self.wire.way.refuses():
            _reset(plain)
            raise OSError("refused")
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The handshake comes with the first read, in the connection's own thread.
        wrap = self.wire.context.wrap_socket
        return wrap(plain, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *_: object) -> None:
        """Say nothing: connections break, which is what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle(self) -> None:
        wire = self.server.wire
        wire.opened(self.connection)
        try:
            super().handle()
        finally:
            wire.closed(self.connection)

    def do_GET(self) -> None:
        """Hand a request on, in the wire's way of the time."""
        wire = self.server.wire
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        way = wire.way
        try:
            if (canned := way.answer(self.command, self.path)) is not None:
                self._answer(*canned)
            else:
                self._ask(wire, way, content)
        except CutError:
            self.close_connection = True
            _reset(self.connection)
        except (OSError, ValueError, http.client.HTTPException):
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _ask(self, wire: Wire, way: Way, content: bytes) -> None:
        upstream = http.client.HTTPSConnection(*wire.upstream, context=wire.trust)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        try:
            upstream.request(self.command, self.path, content or None, headers)
            wire.opened(upstream.sock)
            response = upstream.getresponse()
            watch = "watch=true" in self.path and response.status == HTTPStatus.OK
            self.send_response_only(response.status)
            for name in ("Content-Type", "Date"):
                self.send_header(name, response.getheader(name, ""))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            pieces = iter(response.readline, b"") if watch else iter(lambda: response.read(_CHUNK), b"")
            for piece in way.body(pieces, watch=watch):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        finally:
            if upstream.sock is not None:
                wire.closed(upstream.sock)
            upstream.close()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        del format, arguments


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
