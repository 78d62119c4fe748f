"""All connections of a server: what each is doing, since when, and which one is closed to make room.

Each phase has its connections in the order in which they entered it. So a sweep, four times a second, looks
only at the heads of these queues, and nothing is scheduled for a request.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.server.http import Response
    from webhook.server.streams import Stream

# Seconds between two sweeps: a limit of 10 s is at most 3 % late.
SWEEP_INTERVAL: Final = 0.25
# Bytes read from a socket at once: three typical reviews, and one record of TLS. Nothing else runs while they
# are read, and the worst of them (chunks of one byte, updates of TLS keys) take 4 to 8 ms.
_READ_SIZE: Final = 16 * 2**10
# Seconds for a client to read the last response and close; it needs no more than one lost packet takes.
_CLOSING_S: Final = 2.0
# Seconds after which a body that is still incomplete has stalled; normally it takes milliseconds.
_STALLED: Final = 1.0


class Phase(IntEnum):
    """The phase of a connection. docs/adr/0010-transport.md has a picture."""

    HANDSHAKE = 0  # from the accept to the end of the TLS handshake
    NEW = 1  # the client has not sent a request
    HEAD = 2  # it has sent a part of a head
    BODY = 3  # it has sent a head and a part of a body
    WORKING = 4  # its request is being answered
    READING = 5  # it has not read its response
    IDLE = 6  # its requests are answered
    CLOSING = 7  # all is sent; what the client still sends is discarded


# Phases whose connections are closed to make room. The others are a request that is answered, and a client
# that has used its connection and will again, as API servers do.
_EXPENDABLE: Final = (Phase.HANDSHAKE, Phase.NEW, Phase.HEAD, Phase.BODY, Phase.READING, Phase.CLOSING)


class Limits(Struct, frozen=True):
    """Limits for clients. Sizes in bytes, times in seconds.

    Attributes:
        connections: open connections, counted from the accept.
        client_timeout: for each step of a client: handshake, head from its first byte, body, reading the
        response. keep_alive: between two requests. body_limit: of one body. bodies_limit: of all bodies
        together: incomplete ones, and those of requests in progress.
    """

    connections: int
    client_timeout: float
    keep_alive: float
    body_limit: int
    bodies_limit: int

    def seconds(self, phase: Phase) -> float | None:
        """Return how long a connection may be in a phase; None for as long as it takes."""
        if phase is Phase.WORKING:
            return None
        if phase is Phase.CLOSING:
            return _CLOSING_S
        return self.keep_alive if phase in (Phase.NEW, Phase.IDLE) else self.client_timeout


class Member(Protocol):
    """A connection, for those that only count and end it."""

    def time_out(self) -> None:
        """End because the time of the phase is over."""

    def abort(self) -> None:
        """End at once."""

    def reject(self, response: Response) -> None:
        """Send a response to the request that is being received, and end."""


class Connections:
    """The open connections of a server. Used in the event loop's thread only.

    new_stream: makes the stream of a connection. clock: returns seconds of a monotonic clock.

    Attributes:
        is_draining: whether connections are closed after their next response.
        read_buffer: one for all connections; its bytes are copied before another connection is read.
        bodies: bytes of all bodies.
    """

    def __init__(self, limits: Limits, new_stream: Callable[[], Stream], clock: Callable[[], float]) -> None:
        self.limits = limits
        self.new_stream = new_stream
        self.clock = clock
        self.is_draining = False
        self.read_buffer = memoryview(bytearray(_READ_SIZE))
        self.bodies = 0
        self._phases: tuple[dict[Member, float], ...] = tuple({} for _ in Phase)  # each by its number

    def __len__(self) -> int:
        return sum(map(len, self._phases))

    def add(self, connection: Member) -> None:
        """Count a new connection; make room for it if there are too many."""
        if len(self) < self.limits.connections or self._make_room():
            self._phases[Phase.HANDSHAKE][connection] = self.clock()
        else:
            connection.abort()

    def move(self, connection: Member, before: Phase, after: Phase) -> None:
        """Record that a connection enters a phase now; it may be the same phase again."""
        del self._phases[before][connection]
        self._phases[after][connection] = self.clock()

    def remove(self, connection: Member, phase: Phase) -> None:
        """Forget a closed connection."""
        self._phases[phase].pop(connection, None)  # it may be gone already, to make room

    def sweep(self) -> None:
        """Close the connections whose time is over."""
        now = self.clock()
        for phase in Phase:
            seconds = self.limits.seconds(phase)
            if seconds is None:
                continue
            late = []
            for connection, since in self._phases[phase].items():
                if now - since < seconds:
                    break
                late.append(connection)
            for connection in late:
                connection.time_out()

    def take(self, size: int, refusal: Response) -> bool:
        """Return whether there is memory for more bytes of a body, and count them.

        size: number of bytes. If needed, bodies that have stalled are refused, the oldest first. refusal: the
        response to them.
        """
        if self.bodies + size > self.limits.bodies_limit:
            stalled_since = self.clock() - _STALLED
            for connection, since in list(self._phases[Phase.BODY].items()):
                if since > stalled_since or self.bodies + size <= self.limits.bodies_limit:
                    break
                connection.reject(refusal)
            if self.bodies + size > self.limits.bodies_limit:
                return False
        self.bodies += size
        return True

    def close_idle(self) -> None:
        """Close the connections that have no request."""
        for phase in (Phase.HANDSHAKE, Phase.NEW, Phase.IDLE, Phase.CLOSING):
            for connection in list(self._phases[phase]):
                connection.time_out()

    def _make_room(self) -> bool:
        """Close the oldest connection of the largest expendable phase, else the longest idle connection.

        So clients that stall in the same way displace each other. Returns False if all connections work.
        """
        crowd = max((self._phases[phase] for phase in _EXPENDABLE), key=len) or self._phases[Phase.IDLE]
        oldest = next(iter(crowd), None)
        if oldest is None:
            return False
        del crowd[oldest]  # it is closed in the event loop's next iteration, after others may have come
        oldest.abort()
        return True
