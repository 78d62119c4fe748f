"""A proxy with TLS on both sides that can break connections: to a real API server, or to a registry."""

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

# SO_LINGER that resets on close and discards unsent data.
_RESET: Final = struct.pack("ii", 1, 0)
_CHUNK: Final = 64 * 2**10


class CutError(Exception):
    """The connection breaks here with a reset."""


class ProxyMode:
    """What the proxy does with requests and responses. This mode forwards them."""

    def refuses(self) -> bool:
        """Return whether new connections are refused."""
        return False

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return status, headers and body instead of the server; None to forward the request."""
        del method, path
        return None

    def body(self, chunks: Iterator[bytes], *, watch: bool) -> Iterator[bytes]:
        """Return the chunks of the body, or the lines of a watch; CutError breaks the connection."""
        del watch
        return chunks


class Proxy:
    """A local server that forwards requests to another server; a context manager.

    mode: what it does with new requests. closing: set when it ends.
    """

    def __init__(self, url: str, ca_pem: bytes) -> None:
        """Take the address of the other server and its CA."""
        upstream = urlsplit(url)
        self.upstream = upstream.hostname or "", upstream.port or 443
        self.trust = ssl.create_default_context(cadata=ca_pem.decode())
        self.mode = ProxyMode()
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
        self.close_port()

    @property
    def ca_pem(self) -> bytes:
        """The CA of its certificate."""
        return bytes(self._authority.cert_pem.bytes())

    def kubeconfig(self, of: Path) -> Path:
        """Write a copy of a kubeconfig that connects through this proxy."""
        config: dict[str, Any] = json.loads(of.read_text("utf-8"))
        authority = base64.b64encode(self.ca_pem).decode()
        config["clusters"][0]["cluster"] = {
            "server": f"https://{HOST}:{self.port}",
            "certificate-authority-data": authority,
        }
        path = of.with_suffix(".proxy")
        path.write_text(json.dumps(config), "utf-8")
        return path

    def close_port(self) -> None:
        """Refuse new connections, like a closed port, and reset open ones."""
        self._server.shutdown()
        self._server.server_close()
        self.cut()

    def open_port(self) -> None:
        """Listen on the same port again."""
        self._server = self._listen(self.port)

    def cut(self) -> None:
        """Reset all open connections."""
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    # Not SSLSocket's own method, which would take the session from the thread that reads.
                    socket.socket.shutdown(connection, socket.SHUT_RD)

    def opened(self, connection: socket.socket) -> None:
        """Register a connection for `cut`."""
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

    def __init__(self, proxy: Proxy, port: int) -> None:
        self.proxy = proxy
        super().__init__((HOST, port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = super().get_request()
        if self.proxy.mode.refuses():
            _reset(plain)
            raise OSError("refused")
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The handshake happens at the first read, in the thread of the connection.
        wrap = self.proxy.context.wrap_socket
        return wrap(plain, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, *_: object) -> None:
        """Log nothing: broken connections are intended."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle(self) -> None:
        proxy = self.server.proxy
        proxy.opened(self.connection)
        try:
            super().handle()
        finally:
            proxy.closed(self.connection)

    def do_GET(self) -> None:
        """Forward a request, in the current mode of the proxy."""
        proxy = self.server.proxy
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        mode = proxy.mode
        try:
            if (canned := mode.answer(self.command, self.path)) is not None:
                self._answer(*canned)
            else:
                self._ask(proxy, mode, content)
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

    def _ask(self, proxy: Proxy, mode: ProxyMode, content: bytes) -> None:
        upstream = http.client.HTTPSConnection(*proxy.upstream, context=proxy.trust)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        try:
            upstream.request(self.command, self.path, content or None, headers)
            proxy.opened(upstream.sock)
            response = upstream.getresponse()
            watch = "watch=true" in self.path and response.status == HTTPStatus.OK
            self.send_response_only(response.status)
            for name in ("Content-Type", "Date"):
                self.send_header(name, response.getheader(name, ""))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            pieces = iter(response.readline, b"") if watch else iter(lambda: response.read(_CHUNK), b"")
            for piece in mode.body(pieces, watch=watch):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        finally:
            if upstream.sock is not None:
                proxy.closed(upstream.sock)
            upstream.close()

    def log_message(self, format: str, *arguments: object) -> None:
        del format, arguments


def _reset(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()
