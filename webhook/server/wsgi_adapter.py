"""WSGI adapter: an ASGI application that reads each request whole and calls a WSGI application once.

No thread waits for a socket: asyncio reads the body, within limits of time and size, and the application gets
the whole request. So a stalled client costs some memory but never blocks another request.
Source: PEP 3333 (WSGI 1.0.1); the ASGI HTTP specification, version 2.3.
"""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from io import BytesIO
from time import thread_time, time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Executor
    from wsgiref.types import WSGIApplication, WSGIEnvironment

    Receive = Callable[[], Awaitable[Mapping[str, Any]]]
    Send = Callable[[Mapping[str, Any]], Awaitable[None]]


# Seconds after which a body that is still incomplete is stalled; normally it takes milliseconds.
_STALLED = 1.0
# Seconds of CPU after which a request was not quick, and seconds in which the event loop's thread then
# answers none: so it is blocked for longer at most once a second.
_QUICK = 0.005
_BACKOFF = 1.0
# The start of a request target in absolute form, as sent to a proxy: RFC 9112, 3.2.2.
_ABSOLUTE = re.compile(rb"https?://([^/]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Response:
    """A whole response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(eq=False, slots=True)
class _Body:
    """A body that is being received. begun: event loop time. error: the response if it is discarded."""

    begun: float
    data: bytearray = field(default_factory=bytearray)
    error: _Response | None = None


# Seconds after which the API server retries a 503, if it arrives within the webhook's time-out. Without a
# Retry-After header it does not retry. Source: k8s.io/client-go/rest/with_retry.go.
RETRY_AFTER = "1"


def _error(status: HTTPStatus, detail: str = "") -> _Response:
    # Closed, because the client may still be sending the body.
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", RETRY_AFTER.encode()))
    return _Response(status, headers, f"{status.phrase}{detail}\n".encode())


class WsgiAdapter:
    """An ASGI application that reads each request whole, then calls a WSGI application once.

    pool: runs the application. is_quick: says by the body which requests do not wait for the pool. They run
    in the event loop's thread, because a hand-over may cost more than the answer; without a body, or for a
    while after one was not quick, in the loop's default pool. By default, none is quick. body_limit: bytes;
    longer bodies get 413, declared or chunked. body_timeout: seconds for the whole body, then 408.
    bodies_limit: bytes of all bodies together, incomplete ones and those in progress; at the limit, stalled
    bodies get 503, oldest first, and if that is not enough, the new one does. An exception of the application
    is logged by uvicorn; the client gets 500 without details.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        app: WSGIApplication,
        pool: Executor,
        *,
        body_limit: int,
        body_timeout: float,
        bodies_limit: int,
        is_quick: Callable[[bytearray], bool] = lambda _: False,
    ) -> None:
        self._app = app
        self._pool = pool
        self._is_quick = is_quick
        self._backoff_until = 0.0
        self._body_limit = body_limit
        self._body_timeout = body_timeout
        self._bodies_limit = bodies_limit
        # Used in the event loop's thread only: bytes of all bodies; incomplete bodies, oldest first.
        self._bytes = 0
        self._incomplete: dict[_Body, None] = {}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        loop = asyncio.get_running_loop()
        body = _Body(loop.time())
        self._incomplete[body] = None
        try:
            response = await self._read(receive, body)
            del self._incomplete[body]
            if response is None:
                response = await self._answer(_environ(scope, body.data), body.data)
        finally:
            self._incomplete.pop(body, None)
            self._bytes -= len(body.data)
        headers = [*response.headers, (b"date", _date(int(time())))]
        if not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _read(self, receive: Receive, body: _Body) -> _Response | None:
        """Read the request's body into `body`; return the error response if it is refused.

        A refused body is read and discarded up to twice body_limit, because a client that is still sending
        when the connection closes does not read the response.
        """
        received = 0
        try:
            async with asyncio.timeout(self._body_timeout):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return _error(HTTPStatus.BAD_REQUEST)  # the client has disconnected
                    chunk = message["body"]
                    received += len(chunk)
                    if received > self._body_limit:
                        limit = f": at most {self._body_limit} bytes"
                        self._discard(body, _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limit))
                    elif body.error is None and not self._make_room(len(chunk)):
                        self._discard(body, _error(HTTPStatus.SERVICE_UNAVAILABLE))
                    if body.error is None:
                        body.data += chunk
                        self._bytes += len(chunk)
                    if not message["more_body"] or received > 2 * self._body_limit:
                        return body.error
        except TimeoutError:
            return body.error or _error(HTTPStatus.REQUEST_TIMEOUT)

    def _make_room(self, size: int) -> bool:
        """Return whether there is room for more bytes; discard stalled bodies if needed."""
        stalled_since = asyncio.get_running_loop().time() - _STALLED
        for other in list(self._incomplete):
            if self._bytes + size <= self._bodies_limit or other.begun > stalled_since:
                break
            self._discard(other, _error(HTTPStatus.SERVICE_UNAVAILABLE))
        return self._bytes + size <= self._bodies_limit

    def _discard(self, body: _Body, error: _Response) -> None:
        """Discard a body, also the part that is still to come."""
        self._bytes -= len(body.data)
        body.data.clear()
        body.error = body.error or error

    async def _answer(self, environ: WSGIEnvironment, body: bytearray) -> _Response:
        """Call the application in the thread where it delays other requests least."""
        loop = asyncio.get_running_loop()
        if not self._is_quick(body):
            return await loop.run_in_executor(self._pool, self._call, environ)
        if not body or loop.time() < self._backoff_until:
            return await loop.run_in_executor(None, self._call, environ)
        start = thread_time()
        try:
            return self._call(environ)
        finally:
            if thread_time() - start > _QUICK:
                self._backoff_until = loop.time() + _BACKOFF

    def _call(self, environ: WSGIEnvironment) -> _Response:
        """Call the application and return its response."""
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


@lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    return formatdate(seconds, usegmt=True).encode()


def _environ(scope: Mapping[str, Any], body: bytearray) -> WSGIEnvironment:
    """Return the WSGI environment of a request; strings are bytes as Latin-1, as PEP 3333 requires."""
    host, port = scope["server"]
    path: bytes = scope["raw_path"]
    absolute = _ABSOLUTE.match(path)
    if absolute:
        path = path[absolute.end() :] or b"/"
    environ: WSGIEnvironment = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "REMOTE_ADDR": scope["client"][0] if scope["client"] else "",
        "CONTENT_LENGTH": str(len(body)),
        "SSL_CLIENT_VERIFY": "SUCCESS" if scope["state"]["verified"] else "NONE",  # the values of mod_ssl
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
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
        # The body is whole and decoded, its length is known. An underscore could be confused with a hyphen.
        elif b"_" not in name and key not in ("CONTENT_LENGTH", "TRANSFER_ENCODING"):
            earlier = environ.get(f"HTTP_{key}")
            text = value.decode("latin-1")
            environ[f"HTTP_{key}"] = text if earlier is None else f"{earlier},{text}"
    if absolute:  # it takes precedence over the Host header: RFC 9112, 3.2.2
        environ["HTTP_HOST"] = absolute[1].decode("latin-1")
    return environ
