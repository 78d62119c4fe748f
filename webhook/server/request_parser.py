"""Request parser: from the bytes of a connection to whole requests, within bounds.

llhttp, the parser of Node.js, reads HTTP/1.1 strictly: no request has two readings. What it leaves to
servers is checked here. Source: RFC 9112 (HTTP/1.1); https://github.com/nodejs/llhttp.
"""

from __future__ import annotations

import re
from collections import deque
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

import httptools

from webhook.server.http import Request, failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.server.http import Response

# Bytes of a request that are not its body: head, frames of chunks, their extensions, trailers. The API
# server sends a head of a few hundred; chunks of 4 KiB, Go's, of the longest body need 14 KiB. The bound is
# also one of work: the parser calls back for each chunk and header, 13,000 times at most.
OVERHEAD_LIMIT: Final = 64 * 2**10
# Headers of a request, its trailers, and headers of all requests of one connection that wait. The API
# server sends ten. One of a few bytes takes 170 in memory: 34 MB in all of 1,000 connections.
MAX_HEADERS: Final = 100
# Requests of one connection that wait for the one before. The API server sends none before it has its answer.
MAX_WAITING: Final = 16
# The start of a request target in absolute form, as sent to a proxy: RFC 9112, 3.2.2.
_ABSOLUTE: Final = re.compile(rb"https?://([^/?]*)", re.IGNORECASE)
_VERSIONS: Final = ("1.1", "1.0")
_MAX_DIGITS: Final = 20  # of Content-Length; llhttp reads more if they begin with zeros


class Progress(Enum):
    """The part of the current request that was received."""

    NONE = auto()
    HEAD = auto()  # a part of its head
    BODY = auto()  # its head, and perhaps a part of its body


class _Rejected(Exception):  # noqa: N818 - never leaves this module
    """Ends the parser's work inside a callback; `failure` has the reason."""


class RequestParser:
    """Reads the requests of one connection.

    client, is_verified: of each Request. body_limit: bytes; a longer body is a failure, declared or not.
    take: returns whether there is memory for so many more bytes of the body. on_continue: called when the
    client waits for `100 Continue` before it sends its body.

    Attributes:
        requests: whole requests in their order, after each `feed`.
        failure: the response to what follows the requests, after which nothing is parsed; or None.
        progress: of the current request.
    """

    __slots__ = (
        "_body",
        "_body_limit",
        "_client",
        "_head",
        "_headers",
        "_is_verified",
        "_on_continue",
        "_overhead",
        "_parser",
        "_take",
        "_target",
        "_version",
        "failure",
        "progress",
        "requests",
    )

    def __init__(
        self,
        *,
        client: str,
        is_verified: bool,
        body_limit: int,
        take: Callable[[int], bool],
        on_continue: Callable[[], None],
    ) -> None:
        self._client, self._is_verified = client, is_verified
        self._body_limit, self._take, self._on_continue = body_limit, take, on_continue
        self.requests: deque[Request] = deque()
        self.failure: Response | None = None
        self.progress = Progress.NONE
        self._overhead = 0
        self._target = b""
        self._version = ""
        self._head: list[tuple[bytes, bytes]] = []
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._parser = httptools.HttpRequestParser(self)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the connection; never raises. At most RECORD bytes."""
        self._overhead += len(data)  # bodies are subtracted, and a whole request starts again
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:  # a request for another protocol is answered in this one
            self.requests[-1].is_last = True
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Rejected):
                raise
        except httptools.HttpParserError as error:
            self._set_failure(HTTPStatus.BAD_REQUEST, str(error).lower())
        if len(self._headers) > MAX_HEADERS:
            self._refuse_headers()
        self._check_overhead()

    def discard(self) -> None:
        """Free the requests that are held, whole ones and the current one."""
        self.requests.clear()
        self._body = self._target = b""
        self._headers, self._head = [], []

    def close(self) -> None:
        """Free everything; httptools' parser and this refer to each other."""
        self.discard()
        del self._parser

    # Callbacks of httptools; an exception ends the parsing.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.progress = Progress.HEAD
        self._target, self._headers, self._body = b"", [], b""

    def on_url(self, part: bytes) -> None:
        """Take a part of the request target."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer, which nothing reads."""
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Check the head."""
        self.progress = Progress.BODY
        self._version = version = self._parser.get_http_version()
        if version not in _VERSIONS:
            self._reject(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if len(self._headers) > MAX_HEADERS:
            self._reject_headers()
        self._head, self._headers = self._headers, []
        last = dict(self._head)
        if b"host" not in last and version == "1.1":
            self._reject_host()
        if len(last) < len(self._head) and sum(name == b"host" for name, _ in self._head) > 1:
            self._reject_host()
        digits = last.get(b"content-length", b"0")
        length = int(digits) if len(digits) < _MAX_DIGITS else self._body_limit + 1
        coding = last.get(b"transfer-encoding", b"").lower()
        expects = last.get(b"expect", b"").lower() == b"100-continue"
        if coding and (coding != b"chunked" or version != "1.1"):
            self._reject(HTTPStatus.BAD_REQUEST, "the only transfer coding is chunked, in HTTP/1.1")
        if (coding or length) and self._parser.should_upgrade():
            self._reject(HTTPStatus.BAD_REQUEST, "a request for another protocol has no body")
        if length > self._body_limit:
            self._reject_body()
        if expects and (length or coding) and version == "1.1":
            self._on_continue()

    def on_body(self, part: bytes) -> None:
        """Take a part of the body."""
        size = len(part)
        self._overhead -= size
        if len(self._body) + size > self._body_limit:
            self._reject_body()
        if not self._take(size):
            self._reject(HTTPStatus.SERVICE_UNAVAILABLE, "too many bodies at once")
        if not self._body:
            self._body = part
        elif isinstance(self._body, bytearray):
            self._body += part
        else:  # grows in place: the whole body is in memory once
            self._body = bytearray(self._body)
            self._body += part

    def on_message_complete(self) -> None:
        """Add the request."""
        if len(self._headers) > MAX_HEADERS:  # trailers
            self._reject_headers()
        # The rest of the bytes that were read with its end counts as well: a request in advance.
        self._check_overhead()
        if self.failure:
            raise _Rejected
        if self.requests and self._waits_for_too_many():
            detail = f"at most {MAX_WAITING} requests, with {MAX_HEADERS} headers, in advance"
            self._reject(HTTPStatus.TOO_MANY_REQUESTS, detail)
        target, headers = self._target, self._head
        if not target.startswith(b"/") and (absolute := _ABSOLUTE.match(target)):
            # Its host takes precedence over the header: RFC 9112, 3.2.2.
            target = target[absolute.end() :]
            headers = [(name, absolute[1] if name == b"host" else value) for name, value in headers]
        path, _, query = target.partition(b"?")
        if b"%" in path:
            path = unquote_to_bytes(path)
        request = Request(
            self._parser.get_method().decode("ascii"),
            path.decode("latin-1") or "/",
            query.decode("latin-1"),
            self._version,
            headers,
            self._body,
            self._client,
            self._is_verified,
            # HTTP/1.0 keeps a connection only if the server agrees, which this one does not.
            self._version == "1.0" or not self._parser.should_keep_alive(),
        )
        self.requests.append(request)
        self.progress = Progress.NONE
        self._overhead = 0
        self._body = b""

    def _waits_for_too_many(self) -> bool:
        waiting = sum(len(request.headers) for request in self.requests)
        return len(self.requests) == MAX_WAITING or waiting + len(self._head) > MAX_HEADERS

    def _check_overhead(self) -> None:
        if self._overhead > OVERHEAD_LIMIT:
            self._set_failure(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                f"at most {OVERHEAD_LIMIT} bytes of head, chunk headers and trailers",
            )

    def _refuse_headers(self) -> None:
        self._set_failure(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {MAX_HEADERS} headers")

    def _reject_headers(self) -> None:
        self._refuse_headers()
        raise _Rejected

    def _reject_host(self) -> None:
        self._reject(HTTPStatus.BAD_REQUEST, "exactly one Host header is required")

    def _reject_body(self) -> None:
        self._reject(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {self._body_limit} bytes")

    def _reject(self, status: HTTPStatus, detail: str = "") -> None:
        self._set_failure(status, detail)
        raise _Rejected

    def _set_failure(self, status: HTTPStatus, detail: str = "") -> None:
        if self.failure is None:
            self.failure = failure(status, detail)
            self._body = self._target = b""
            self._headers, self._head = [], []
