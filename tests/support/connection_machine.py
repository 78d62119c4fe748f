"""One connection of the server without sockets, threads and time: all that happens to it is a call."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from webhook.server.connection import Connection
from webhook.server.connections import Connections, Limits, Phase
from webhook.server.http import Request, Response
from webhook.server.streams import PlainStream

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.server.streams import Stream

LIMITS = Limits(connections=2, client_timeout=10, keep_alive=120, body_limit=100, bodies_limit=150)


class Wire(asyncio.Transport):
    """A transport that keeps what is written. is_paused: whether reading is."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_paused = self.has_ended = self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the peer's address."""
        return ("192.0.2.1", 40000) if name == "peername" else default

    def write(self, data: Any) -> None:
        """Keep the bytes; there are none after the end."""
        assert not self.has_ended
        assert not self.is_closed
        self.sent += data

    def write_eof(self) -> None:
        """End what is sent."""
        self.has_ended = True

    def pause_reading(self) -> None:
        """Read no more for now."""
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        """Read again."""
        assert self.is_paused
        self.is_paused = False

    def is_closing(self) -> bool:
        """Return whether the transport is closed."""
        return self.is_closed

    def close(self) -> None:
        """Close."""
        self.is_closed = True

    def abort(self) -> None:
        """Close."""
        self.is_closed = True


class _Place:
    """The place of a request in the queue."""

    def __init__(self, machine: Machine, job: tuple[Request, Callable[[Response], None]]) -> None:
        self._machine, self._job = machine, job

    def cancel(self) -> bool:
        """Remove the request, if it still waits."""
        if self._job in self._machine.waiting:
            self._machine.waiting.remove(self._job)
            return True
        return False


class Machine:
    """A connection and what surrounds it. `at_once`: whether requests are answered before `submit` returns.

    Raises AssertionError where the connection breaks a promise to asyncio or to the other connections.
    """

    def __init__(
        self, *, at_once: bool = True, limits: Limits = LIMITS, stream: Callable[[], Stream] = PlainStream
    ) -> None:
        self.now = 0.0
        self.at_once = at_once
        self.requests: list[Request] = []
        self.waiting: list[tuple[Request, Callable[[Response], None]]] = []
        self.soon: deque[Callable[[], object]] = deque()
        self.connections = Connections(limits, stream, lambda: self.now)
        self.wire = Wire()
        self.connection = Connection(self.connections, self, self)  # type: ignore[arg-type]  # both in part
        self.is_lost = False
        self.connection.connection_made(self.wire)

    # What the connection calls.

    def submit(self, request: Request, respond: Callable[[Response], None]) -> _Place | None:
        """Answer a request with its body, at once or when `answer` is called."""
        self.requests.append(request)
        if self.at_once:
            respond(Response(200, bytes(request.body)))
            return None
        self.waiting.append((request, respond))
        return _Place(self, self.waiting[-1])

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call later."""
        self.soon.append(call)

    # What happens to the connection.

    def receive(self, data: bytes) -> None:
        """Receive bytes, in pieces as long as the read buffer; none if it does not read."""
        buffer = self.connection.get_buffer(-1)
        for start in range(0, len(data), len(buffer)):
            if self.wire.is_closed or self.is_lost or self.wire.is_paused:
                return
            part = data[start : start + len(buffer)]
            buffer[: len(part)] = part
            self.connection.buffer_updated(len(part))
            self.run()

    def answer(self) -> None:
        """Answer the request that waits longest."""
        if self.waiting:
            request, respond = self.waiting.pop(0)
            respond(Response(200, bytes(request.body)))
            self.run()

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.connections.sweep()
        self.run()

    def run(self) -> None:
        """Call what was to be called soon; what was closed is lost then, and what is wrong fails."""
        while self.soon:
            self.soon.popleft()()
        if self.wire.is_closed and not self.is_lost:
            self.lose()
        assert self.connections.bodies >= 0
        assert len(self.connections) == (not self.is_lost)
        if not self.is_lost and self.phase not in (Phase.WORKING, Phase.READING):
            assert not self.wire.is_paused

    def lose(self) -> None:
        """Lose the connection."""
        self.is_lost = True
        self.connection.connection_lost(None)

    @property
    def phase(self) -> Phase:
        """The phase of the connection."""
        (phase,) = (phase for phase in Phase if self.connections._phases[phase])
        return phase
