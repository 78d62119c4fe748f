"""Modes of the proxy that break requests and responses."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from tests.faults.proxy import CutError, ProxyMode

_HTML: Final = b"<html><body>504 Gateway Time-out</body></html>"
# Invalid responses: a page of an HTTP proxy, truncated JSON, another type, and invalid objects.
_INVALID: Final = (
    _HTML,
    b'{"kind": "List", "metadata": {"resourceVersion": "1"}, "items": [{"meta',
    b"[]",
    b"{}",
    b"null",
    b'{"metadata": {"resourceVersion": "1"}, "items": null}',
    b'{"metadata": {"resourceVersion": "1"}, "items": [{}]}',
    b'{"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": 1, "resourceVersion": []}}]}',
    b'{"metadata": null, "data": "none", "webhooks": {}}',
)
_INVALID_LINES: Final = (
    b"<html>\n",
    b"{}\n",
    b'{"type": "ADDED", "object": {}}\n',
    b'{"type": "ADDED", "object": {"metadata": {"name": 1, "resourceVersion": []}}}\n',
    b'{"type": "DELETED", "object": null}\n',
    b'{"type": "BOOKMARK", "object": {}}\n',
)


class Slow(ProxyMode):
    """Each response and each line of a watch is late, and lists arrive in pieces."""

    def __init__(self, late_s: float, piece: int) -> None:
        """Take the delay in seconds, also between two pieces, and the bytes of a piece."""
        self._late_s, self._piece = late_s, piece

    def body(self, chunks: Iterator[bytes], *, watch: bool) -> Iterator[bytes]:
        """Return the body with delays."""
        for chunk in chunks:
            size = len(chunk) if watch else self._piece
            for start in range(0, len(chunk), size):
                time.sleep(self._late_s)
                yield chunk[start : start + size]


class Flapping(ProxyMode):
    """Alternately up and down; the caller switches `down` and resets open connections."""

    def __init__(self) -> None:
        """Start in the state up."""
        self.down = False

    def refuses(self) -> bool:
        """Return whether it is down."""
        return self.down


class Refusing(ProxyMode):
    """Requests get an error response of an API server."""

    def __init__(self, status: HTTPStatus, only: str = "") -> None:
        """Take the status; 429 has a Retry-After header. only: a path prefix; others are forwarded."""
        self._status, self._only = status, only

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return the error response."""
        del method
        if not path.startswith(self._only):
            return None
        headers = {"Retry-After": "1"} if self._status == HTTPStatus.TOO_MANY_REQUESTS else {}
        text = b'{"kind": "Status", "status": "Failure", "code": %d, "message": "broken by the test"}'
        return self._status, headers, text % self._status


class Errors(ProxyMode):
    """Requests are alternately answered 500 and 429."""

    def __init__(self) -> None:
        """Start with 500."""
        statuses = HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.TOO_MANY_REQUESTS
        self._modes = itertools.cycle(map(Refusing, statuses))

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return the next error response."""
        return next(self._modes).answer(method, path)


class Hanging(ProxyMode):
    """Requests are read and not answered; at the end, their connections are reset."""

    def __init__(self, over: threading.Event) -> None:
        """Take the end."""
        self._over = over

    def answer(self, method: str, path: str) -> None:
        """Answer nothing."""
        del method, path
        self._over.wait()
        raise CutError


class InvalidBodies(ProxyMode):
    """Every request is answered 200 with an invalid body, one kind after the other."""

    def __init__(self) -> None:
        """Start with the first kind."""
        self._lock = threading.Lock()
        self._bodies, self._lines = itertools.cycle(_INVALID), itertools.cycle(_INVALID_LINES)

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return the next invalid body."""
        del method
        with self._lock:
            body = next(self._lines if "watch=true" in path else self._bodies)
        return HTTPStatus.OK, {"Content-Type": "application/json"}, body


class HalfLines(ProxyMode):
    """Half of the first line of each watch, then a reset, a normal end, or no more data."""

    def __init__(self, ends: tuple[str, ...], over: threading.Event) -> None:
        """Take the ends to alternate: `reset`, `end` or `hang`; `hang` lasts until `over`."""
        self._ends, self._over, self._lock = itertools.cycle(ends), over, threading.Lock()

    def body(self, chunks: Iterator[bytes], *, watch: bool) -> Iterator[bytes]:
        """Return half of the first line of a watch."""
        if not watch:
            yield from chunks
            return
        line = next(chunks, b"")
        yield line[: max(1, len(line) // 2)]
        with self._lock:
            end = next(self._ends)
        if end == "reset":
            raise CutError
        if end == "hang":
            self._over.wait()


class Resets(ProxyMode):
    """Each response is reset after some bytes, more each time."""

    def __init__(self) -> None:
        """Start with no bytes."""
        self._sizes = itertools.cycle((0, 1, 100, 5_000, 50_000))
        self._lock = threading.Lock()

    def body(self, chunks: Iterator[bytes], *, watch: bool) -> Iterator[bytes]:
        """Return the first bytes of the body."""
        del watch
        with self._lock:
            left = next(self._sizes)
        for chunk in chunks:
            if left:
                yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                raise CutError
