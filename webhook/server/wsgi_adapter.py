"""From a request as ASGI brings it, piece by piece, to one call of a WSGI application.

No thread ever waits for a socket: asyncio reads the body, within limits of time and size, and the application
gets the request whole. So a client that stalls costs some memory and nobody's turn.
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


# Seconds in which an honest client has sent its body by far; it takes milliseconds.
_STALLED = 1.0
# Seconds of CPU beyond which a request was not quick, and seconds in which the event loop's thread answers
# none then: so it is held up for longer once a second at most.
_QUICK = 0.005
_CAREFUL = 1.0
# The start of a request target in absolute form, as for a proxy: RFC 9112, 3.2.2.
_ABSOLUTE = re.compile(rb"https?://([^/]*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Response:
    """A whole answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(eq=False, slots=True)
class _Body:
    """A body on its way. begun: in the event loop's seconds. refusal: why it is thrown away, if it is."""

    begun: float
    data: bytearray = field(default_factory=bytearray)
    refusal: _Response | None = None


# Seconds after which the API server asks again for which there was no room, or no rules yet. It does so
# only where it is told when, and within the webhook's time-out. Source: k8s.io/client-go/rest/with_retry.go.
RETRY_AFTER = "1"


def _refusal(status: HTTPStatus, detail: str = "") -> _Response:
    # Closed, because the rest of the body may still be on its way.
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        headers.append((b"retry-after", RETRY_AFTER.encode()))
    return _Response(status, headers, f"{status.phrase}{detail}\n".encode())


class WsgiAdapter:
    """An ASGI application that reads a request whole, then calls a WSGI application once.

    pool: where the application is called. is_quick: tells by its body which request is answered before those
    that wait for the pool: in the event loop's thread, since handing it to another may cost more than the
    answer, or where it has no body or one was not quick after all, in the loop's own pool. By default, none.
    body_limit: bytes; longer bodies get 413, declared or chunked. body_timeout: seconds for the whole body,
    then 408. bodies_limit: bytes of all bodies together, in reading and in work; where one would pass it,
    those that stall get 503, the longest first, and if that is not enough it does.
    An exception of the application is logged by uvicorn and answered 500, without a word of it.
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
        self._careful_until = 0.0
        self._body_limit = body_limit
        self._body_timeout = body_timeout
        self._bodies_limit = bodies_limit
        # Only the event loop's thread touches these: bytes of all bodies; those on their way, oldest first.
        self._held = 0
        self._coming: dict[_Body, None] = {}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        loop = asyncio.get_running_loop()
        body = _Body(loop.time())
        self._coming[body] = None
        try:
            response = await self._read(receive, body)
            del self._coming[body]
            if response is None:
                response = await self._answer(_environ(scope, body.data), body.data)
        finally:
            self._coming.pop(body, None)
            self._held -= len(body.data)
        headers = [*response.headers, (b"date", _date(int(time())))]
        if not any(name == b"content-length" for name, _ in headers):
            headers.append((b"content-length", str(len(response.body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})

    async def _read(self, receive: Receive, body: _Body) -> _Response | None:
        """Put the request's body into `body`; return the refusal where it is not to be answered.

        What is refused is read on and thrown away up to another body_limit, because a client that still sends
        when the connection closes does not read why.
        """
        received = 0
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
                        self._refuse(body, _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, limit))
                    elif body.refusal is None and not self._make_room(len(chunk)):
                        self._refuse(body, _refusal(HTTPStatus.SERVICE_UNAVAILABLE))
                    if body.refusal is None:
                        body.data += chunk
                        self._held += len(chunk)
                    if not message["more_body"] or received > 2 * self._body_limit:
                        return body.refusal
        except TimeoutError:
            return body.refusal or _refusal(HTTPStatus.REQUEST_TIMEOUT)

    def _make_room(self, size: int) -> bool:
        """Tell whether there is room for more bytes; where there is none, bodies that stall are given up."""
        stalled_since = asyncio.get_running_loop().time() - _STALLED
        for other in list(self._coming):
            if self._held + size <= self._bodies_limit or other.begun > stalled_since:
                break
            self._refuse(other, _refusal(HTTPStatus.SERVICE_UNAVAILABLE))
        return self._held + size <= self._bodies_limit

    def _refuse(self, body: _Body, refusal: _Response) -> None:
        """Throw away what there is of a body; what is still to come is not kept."""
        self._held -= len(body.data)
        body.data.clear()
        body.refusal = body.refusal or refusal

    async def _answer(self, environ: WSGIEnvironment, body: bytearray) -> _Response:
        """Call the application where it keeps the fewest others waiting."""
        loop = asyncio.get_running_loop()
        if not self._is_quick(body):
            return await loop.run_in_executor(self._pool, self._call, environ)
        if not body or loop.time() < self._careful_until:
            return await loop.run_in_executor(None, self._call, environ)
        start = thread_time()
        try:
            return self._call(environ)
        finally:
            if thread_time() - start > _QUICK:
                self._careful_until = loop.time() + _CAREFUL

    def _call(self, environ: WSGIEnvironment) -> _Response:
        """Call the application and gather what it says."""
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
    """Return the WSGI environment of a request; texts are bytes as Latin-1, as PEP 3333 wants them."""
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
        "SSL_CLIENT_VERIFY": "SUCCESS" if scope["state"]["verified"] else "NONE",  # mod_ssl's words
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
        # The body is whole, its length known, its coding gone. An underscore could pass for a hyphen.
        elif b"_" not in name and key not in ("CONTENT_LENGTH", "TRANSFER_ENCODING"):
            earlier = environ.get(f"HTTP_{key}")
            text = value.decode("latin-1")
            environ[f"HTTP_{key}"] = text if earlier is None else f"{earlier},{text}"
    if absolute:  # it counts, not the header: RFC 9112, 3.2.2
        environ["HTTP_HOST"] = absolute[1].decode("latin-1")
    return environ
