"""One HTTP/1.1 connection: its phases, from the accept to the end. It parses nothing and decides nothing.

Source: RFC 9112 (HTTP/1.1); docs/adr/0010-transport.md.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Final

from webhook.server.connections import Phase
from webhook.server.http import failure
from webhook.server.request_parser import Progress, RequestParser
from webhook.server.streams import StreamError

if TYPE_CHECKING:
    from webhook.server.connections import Connections
    from webhook.server.http import Request, Response
    from webhook.server.streams import Stream
    from webhook.server.work_queue import Pending, WorkQueue

# Records that are read from one connection before others have their turn: some 10 KB of a client that sends
# single bytes, in a fifth of a millisecond.
_TURN: Final = 64
# The phases in which no request can be read.
_BLOCKED: Final = frozenset((Phase.WORKING, Phase.READING, Phase.CLOSING))
_NO_MEMORY: Final = failure(HTTPStatus.SERVICE_UNAVAILABLE, "too many bodies at once")
_TIMED_OUT: Final = failure(HTTPStatus.REQUEST_TIMEOUT)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.BufferedProtocol):
    """One connection of a server, with TLS or without; see Phase.

    connections: all connections of the server. queue: answers requests.
    """

    __slots__ = (
        "_all",
        "_discardable",
        "_has_body",
        "_has_received",
        "_is_advancing",
        "_is_last",
        "_is_lost",
        "_is_reading_paused",
        "_is_writing_paused",
        "_loop",
        "_parser",
        "_pending",
        "_phase",
        "_queue",
        "_stream",
        "_taken",
        "_transport",
        "_working_size",
    )

    def __init__(self, connections: Connections, queue: WorkQueue, loop: asyncio.AbstractEventLoop) -> None:
        self._all, self._queue, self._loop = connections, queue, loop
        self._transport: asyncio.Transport
        self._phase = Phase.HANDSHAKE
        # Made when the first bytes come, so that a silent client costs little.
        self._stream: Stream
        self._has_received = False
        self._parser: RequestParser | None = None
        # Of the request in progress: its place in the queue unless it is answered at once, the bytes of its
        # body, and whether its response has one.
        self._pending: Pending | None = None
        self._working_size = 0
        self._has_body = True
        self._is_last = False  # the connection closes after the current response
        self._is_lost = self._is_advancing = False
        self._is_reading_paused = self._is_writing_paused = False
        self._taken = 0  # bytes of bodies that are counted for this connection
        # Bytes that are discarded while it closes: a client that cannot send does not read the response.
        self._discardable = 2 * connections.limits.body_limit

    # Called by asyncio.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of TCP
        """Count the connection."""
        self._transport = transport
        self._all.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - part of the interface
        """Return the buffer for the next bytes."""
        return self._all.read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes out of the buffer and work on them."""
        if self._phase is Phase.CLOSING:
            self._discardable -= nbytes
            if self._discardable < 0:
                self._transport.abort()
            return
        if not self._has_received:
            self._has_received = True
            self._stream = self._all.new_stream()
        self._stream.receive(self._all.read_buffer[:nbytes])
        self._advance()

    def pause_writing(self) -> None:
        """Remember that the client does not read as fast as it sends requests."""
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        """Go on after the client has read."""
        self._is_writing_paused = False
        if self._phase is Phase.READING:
            self._enter(self._phase_after_response())
            self._advance()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - part of the interface
        """Free the memory of the connection; a request that still waits for a worker is cancelled."""
        self._is_lost = True
        self._all.remove(self, self._phase)
        if self._pending is not None and self._pending.cancel():
            self._working_size = 0
        self._release(self._taken - self._working_size)
        if self._parser is not None:
            self._parser.close()
            self._parser = None

    # Called by all connections.

    def time_out(self) -> None:
        """End the connection because the time of its phase is over."""
        if self._phase in (Phase.HEAD, Phase.BODY):
            self.reject(_TIMED_OUT)
        elif self._phase in (Phase.NEW, Phase.IDLE) and not self._transport.is_closing():
            self._stream.close()
            self._flush()
            self._transport.close()
        else:
            self._transport.abort()

    def abort(self) -> None:
        """End the connection at once."""
        self._transport.abort()

    def reject(self, response: Response) -> None:
        """Send a response to a request that no application sees, and close."""
        self._is_last = True
        self._release(self._taken)
        if self._parser is not None:
            self._parser.discard()
        self._send(response)

    # Reading.

    def _advance(self) -> None:
        """Work on the received bytes: one request and some records, then it is the turn of others."""
        if self._is_advancing:
            return
        self._is_advancing = True
        try:
            again = self._take_turn()
        finally:
            self._is_advancing = False
        if self._is_lost or self._transport.is_closing():
            return
        if again:
            self._loop.call_soon(self._advance)
        # Bytes that are not read now wait partly here, and otherwise at the client.
        pause = self._phase is not Phase.CLOSING and self._stream.is_unread
        if pause != self._is_reading_paused:
            self._is_reading_paused = pause
            (self._transport.pause_reading if pause else self._transport.resume_reading)()

    def _take_turn(self) -> bool:
        """Return whether there is more to work on now."""
        if self._transport.is_closing():
            return False
        has_answered = False
        for _ in range(_TURN):
            if self._phase in _BLOCKED:
                return False
            parser = self._parser
            if parser is not None and (parser.requests or parser.failure):
                if has_answered:
                    return True
                has_answered = True
                if parser.requests:
                    self._begin(parser.requests.popleft())
                elif parser.failure:
                    self.reject(parser.failure)
            elif not self._read():
                return False
        return True

    def _read(self) -> bool:
        """Read the next record; return whether there was one."""
        stream = self._stream
        try:
            if self._phase is not Phase.HANDSHAKE:
                data = stream.read()
            elif stream.handshake():
                self._enter(Phase.NEW)
                self._flush()
                data = stream.read()
            else:
                data = None
        except StreamError:
            data = b""  # the bytes to send include a message for the client
        if not data:
            self._flush()
            if data is not None:
                self._transport.close()
            return False
        if self._parser is None:
            self._parser = self._new_parser(stream)
        self._parser.feed(data)
        if self._parser.progress is not Progress.NONE and self._phase is not Phase.CLOSING:
            phase = self._phase_of_progress()
            if phase is not self._phase:
                self._enter(phase)
        return True

    def _new_parser(self, stream: Stream) -> RequestParser:
        peer = self._transport.get_extra_info("peername")
        return RequestParser(
            client=peer[0] if peer else "",
            is_verified=stream.is_verified(),
            body_limit=self._all.limits.body_limit,
            take=self._take,
            on_continue=self._ask_for_body,
        )

    def _take(self, size: int) -> bool:
        if not self._all.take(size, _NO_MEMORY):
            return False
        if self._phase is Phase.CLOSING:  # its own body was the one that had stalled longest
            self._all.bodies -= size
            return False
        self._taken += size
        return True

    def _release(self, size: int) -> None:
        self._taken -= size
        self._all.bodies -= size

    def _ask_for_body(self) -> None:
        self._stream.write(_CONTINUE)
        self._flush()

    # Answering.

    def _begin(self, request: Request) -> None:
        self._is_last = request.is_last
        self._working_size = len(request.body)
        self._has_body = request.method != "HEAD"
        pending = self._queue.submit(request, self._answer)
        if pending is not None:
            self._pending = pending
            self._enter(Phase.WORKING)

    def _answer(self, response: Response) -> None:
        """Send the response to the current request."""
        self._pending = None
        self._release(self._working_size)
        self._working_size = 0
        if self._is_lost or self._transport.is_closing():
            return
        self._send(response, has_body=self._has_body)
        self._advance()

    def _send(self, response: Response, *, has_body: bool = True) -> None:
        """Send a response in one write, and enter the next phase."""
        self._is_last |= self._all.is_draining or _CLOSE in response.headers
        stream, transport = self._stream, self._transport
        stream.write(_encode(response, has_body=has_body, is_last=self._is_last))
        if self._is_last:
            stream.close()
        transport.write(stream.to_send())
        if self._is_last:
            with suppress(OSError):  # the client has reset the connection
                transport.write_eof()
        self._enter(Phase.READING if self._is_writing_paused else self._phase_after_response())

    def _flush(self) -> None:
        if data := self._stream.to_send():
            self._transport.write(data)

    # Phases.

    def _enter(self, phase: Phase) -> None:
        self._all.move(self, self._phase, phase)
        self._phase = phase

    def _phase_after_response(self) -> Phase:
        return Phase.CLOSING if self._is_last else self._phase_of_progress()

    def _phase_of_progress(self) -> Phase:
        progress = self._parser.progress if self._parser else Progress.NONE
        if progress is Progress.NONE:
            return Phase.IDLE
        return Phase.HEAD if progress is Progress.HEAD else Phase.BODY


_CLOSE: Final = ("Connection", "close")


def _encode(response: Response, *, has_body: bool, is_last: bool) -> bytes:
    """Return a response as it is sent."""
    status, body, content_type, headers = response
    more = "connection: close\r\n" if is_last else ""
    for name, value in headers:
        more += f"{name.lower()}: {value}\r\n" if name != "Connection" else ""
    head = b"%s%d\r\n%s\r\n" % (_start(status, content_type, int(time())), len(body), more.encode("latin-1"))
    return head + body if has_body else head


@lru_cache(maxsize=64)  # some for each second
def _start(status: int, content_type: str, seconds: int) -> bytes:
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {content_type}\r\n"
        f"date: {formatdate(seconds, usegmt=True)}\r\ncontent-length: "
    ).encode("latin-1")
