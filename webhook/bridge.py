"""From a request as ASGI brings it, piece by piece, to one call of a WSGI application.

No thread ever waits for a socket: asyncio reads the body, within limits of time and size, and a thread of the
pool gets the request whole. So a client that stalls costs some memory and nobody's turn.
Source: PEP 3333 (WSGI 1.0.1); the ASGI HTTP specification, version 2.3.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Executor
    from wsgiref.types import WSGIApplication, WSGIEnvironment

    Receive = Callable[[], Awaitable[Mapping[str, Any]]]
    Send = Callable[[Mapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Response:
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def _refusal(status: HTTPStatus, detail: str = "") -> _Response:
    # Closed, because the rest of the body may still be on its way.
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    return _Response(status, headers, f"{status.phrase}{detail}\n".encode())


class Bridge:
    """An ASGI application that reads a request whole, then calls a WSGI application once, in the pool.

    body_limit: bytes; longer bodies get 413, declared or chunked. body_timeout: seconds for the whole body,
    then 408. bodies_limit: bytes of all bodies together, in reading and in work; what would pass it gets 503.
    An exception of the application is logged by uvicorn and answered 500, without a word of it.
    """

    def __init__(
        self,
        app: WSGIApplication,
        pool: Executor,
        *,
        body_limit: int,
        body_timeout: float,
        bodies_limit: int,
    ) -> None:
        self._app = app
        self._pool = pool
        self._body_limit = body_limit
        self._body_timeout = body_timeout
        self._bodies_limit = bodies_limit
        self._held = 0  # bytes of all bodies; only the event loop's thread touches it

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        body = bytearray()
        try:
            response = await self._read(receive, body)
            if response is None:
                loop = asyncio.get_running_loop()
                response = await loop.run_in_executor(self._pool, self._call, _environ(scope, body))
        finally:
            self._held -= len(body)
        headers = [*response.headers, (b"date", formatdate(usegmt=True).encode())]
        if not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _read(self, receive: Receive, body: bytearray) -> _Response | None:
        """Put the request's body into `body`; return the refusal where it is not to be answered.

        What is refused is read on and thrown away up to another body_limit, because a client that still sends
        when the connection closes does not read why.
        """
        received = 0
        refusal: _Response | None = None
        try:
            async with asyncio.timeout(self._body_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return _refusal(HTTPStatus.BAD_REQUEST)  # there is nobody left to send it to
                    chunk = message["body"]
                    received += len(chunk)
                    if received > self._body_limit:
                        limit = f": at most {self._body_limit} bytes"
                        refusal = _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limit)
                    elif self._held + len(chunk) > self._bodies_limit:
                        refusal = _refusal(HTTPStatus.SERVICE_UNAVAILABLE)
                    if refusal is None:
                        body += chunk
                        self._held += len(chunk)
                    else:
                        self._held -= len(body)
                        body.clear()
                    if not message["more_body"] or received > 2 * self._body_limit:
                        return refusal
        except TimeoutError:
            return refusal or _refusal(HTTPStatus.REQUEST_TIMEOUT)

    def _call(self, environ: WSGIEnvironment) -> _Response:
        """Call the application and gather what it says; runs in a thread of the pool."""
        started: list[tuple[str, list[tuple[str, str]]]] = []
        written: list[bytes] = []

        def start_response(
            status: str, headers: list[tuple[str, str]], _error: object = None
        ) -> Callable[[bytes], None]:
            started.append((status, headers))
            return written.append

        result = self._app(environ, start_response)
        try:
            written.extend(result)
        finally:
            if hasattr(result, "close"):
                result.close()
        status, headers = started[-1]  # an application may start again, to report an error
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return _Response(int(status[:3]), encoded, b"".join(written))


def _environ(scope: Mapping[str, Any], body: bytearray) -> WSGIEnvironment:
    """Return the WSGI environment of a request; texts are bytes as Latin-1, as PEP 3333 wants them."""
    host, port = scope["server"]
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "REMOTE_ADDR": scope["client"][0] if scope["client"] else "",
        "CONTENT_LENGTH": str(len(body)),
        "SSL_CLIENT_VERIFY": "SUCCESS" if scope["state"]["verified"] else "NONE",  # mod_ssl's words
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https",
        "wsgi.input": BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in scope["headers"]:
        key = name.decode("latin-1").upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            environ[key] = value.decode("latin-1")
        # The body is whole, its length known, its coding gone. An underscore could pass for a hyphen.
        elif b"_" not in name and key not in ("CONTENT_LENGTH", "TRANSFER_ENCODING"):
            earlier = environ.get(f"HTTP_{key}")
            text = value.decode("latin-1")
            environ[f"HTTP_{key}"] = text if earlier is None else f"{earlier},{text}"
    return environ
