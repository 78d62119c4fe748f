"""The ways in which a wire is broken."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from tests.faults.wire import CutError, Way

_HTML: Final = b"<html><body>504 Gateway Time-out</body></html>"
# What no API server says: of a proxy, cut off, of another type, and objects that are none.
_NONSENSE: Final = (
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
_NONSENSE_LINES: Final = (
    b"<html>\n",
    b"{}\n",
    b'{"type": "ADDED", "object": {}}\n',
    b'{"type": "ADDED", "object": {"metadata": {"name": 1, "resourceVersion": []}}}\n',
    b'{"type": "DELETED", "object": null}\n',
    b'{"type": "BOOKMARK", "object": {}}\n',
)


class Slow(Way):
    """Each answer and each line of a watch comes late, and lists come piecemeal."""

    def __init__(self, late_s: float, piece: int) -> None:
        """Take the seconds, also between two pieces of so many bytes."""
        self._late_s, self._piece = late_s, piece

    def body(self, chunks: Iterator[bytes], *, watch: bool) -> Iterator[bytes]:
        """Return the body, later."""
        for chunk in chunks:
            size = len(chunk) if watch else self._piece
            for start in range(0, len(chunk), size):
                time.sleep(self._late_s)
                yield chunk[start : start + size]


class Flapping(Way):
    """Up and down by turns; who ends a turn cuts what is open."""

    def __init__(self) -> None:
        """Begin with up."""
        self.down = False

    def refuses(self) -> bool:
        """Tell whether it is down."""
        return self.down


class Refusing(Way):
    """Requests are answered by a refusal of the API server."""

    def __init__(self, status: HTTPStatus, only: str = "") -> None:
        """Take the status; of 429, when to come again is said too. only: the path that is refused, if one."""
        self._status, self._only = status, only

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return the refusal."""
        del method
        if not path.startswith(self._only):
            return None
        again = {"Retry-After": "1"} if self._status == HTTPStatus.TOO_MANY_REQUESTS else {}
        text = b'{"kind": "Status", "status": "Failure", "code": %d, "message": "broken by the test"}'
        return self._status, again, text % self._status


class Nonsense(Way):
    """Every request is answered 200 with what is no such answer, one kind after the other."""

    def __init__(self) -> None:
        """Begin with the first kind."""
        self._lock = threading.Lock()
        self._bodies, self._lines = itertools.cycle(_NONSENSE), itertools.cycle(_NONSENSE_LINES)

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return the next nonsense."""
        del method
        with self._lock:
            body = next(self._lines if "watch=true" in path else self._bodies)
        return HTTPStatus.OK, {"Content-Type": "application/json"}, body


class HalfLines(Way):
    """Half of the first line of each watch, then the end: by a reset, by an honest end, by silence."""

    def __init__(self, ends: tuple[str, ...], over: threading.Event) -> None:
        """Take the ends, of `reset`, `end` and `silence`, which come by turns; silence is until `over`."""
        self._ends, self._over, self._lock = itertools.cycle(ends), over, threading.Lock()

    def body(self, chunks: Iterator[bytes], *, watch: bool) -> Iterator[bytes]:
        """Return half a line."""
        if not watch:
            yield from chunks
            return
        line = next(chunks, b"")
        yield line[: max(1, len(line) // 2)]
        with self._lock:
            end = next(self._ends)
        if end == "reset":
            raise CutError
        if end == "silence":
            self._over.wait()


class Resets(Way):
    """Each answer breaks after some bytes, more with each, by a reset."""

    def __init__(self) -> None:
        """Begin with none."""
        self._sizes = itertools.cycle((0, 1, 100, 5_000, 50_000))
        self._lock = threading.Lock()

    def body(self, chunks: Iterator[bytes], *, watch: bool) -> Iterator[bytes]:
        """Return the beginning."""
        del watch
        with self._lock:
            left = next(self._sizes)
        for chunk in chunks:
            if left:
                yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                raise CutError
