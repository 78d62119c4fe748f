"""One HTTP/1.1 connection: how long its client may take, and when it makes room for another.

Source: RFC 9112 (HTTP/1.1); the webhook client of the API server, k8s.io/apiserver/pkg/util/webhook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import asyncio


# Seconds in which an honest client has sent its request by far; it takes milliseconds.
_STALLED = 1.0


def protocol_config(app: Any, *, keep_alive: int, head_limit: int, log_level: int) -> uvicorn.Config:
    """Return what connections of an ASGI application are made with.

    keep_alive: seconds between two requests. head_limit: bytes of a request's head. log_level: from which on
    uvicorn's own words are told; by `logging`, without its handlers, formats and access log.
    """
    config = uvicorn.Config(
        app,
        interface="asgi3",
        ws="none",
        proxy_headers=False,
        log_config=None,
        log_level=log_level,
        access_log=False,
        timeout_keep_alive=keep_alive,
        h11_max_incomplete_event_size=head_limit,
    )
    config.load()
    return config


class Connections(ServerState):
    """The open connections of a server, and which of them wait for a request, the longest waiting first.

    client_timeout: seconds for a head, from its first byte on, and for reading an answer. limit: connections;
    beyond it one is closed, so that clients who stall or are silent do not keep others out.
    """

    def __init__(self, client_timeout: float, limit: int) -> None:
        super().__init__()
        self.client_timeout = client_timeout
        self.limit = limit
        self.waiting: dict[Connection, None] = {}
        # Those in the middle of a request, by when they began it; the longest first.
        self.sending: dict[Connection, float] = {}

    def make_room(self, now: float) -> None:
        """Close the connection that stalls longest within a request, or if none does, that waits longest.

        now: in the event loop's seconds.
        """
        stalled = next(iter(self.sending), None)
        if stalled is not None and now - self.sending[stalled] > _STALLED:
            del self.sending[stalled]
            stalled.transport.abort()
        else:
            longest = next(iter(self.waiting))
            del self.waiting[longest]
            longest.timeout_keep_alive_handler()

    def drain(self) -> None:
        """Make each answer from now on the last of its connection, so that clients go elsewhere."""
        self.default_headers = [(b"connection", b"close")]


class Connection(H11Protocol):
    """One HTTP/1.1 connection of uvicorn, with the time-outs that uvicorn does not have.

    Silent from the start is as idle as between two requests: the API server dials a connection for each
    concurrent call and keeps spare ones, unused, for its next. But a head that has begun has to end, and an
    answer has to be read.
    """

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config, connections, app_state={})
        self._all = connections
        self._head_clock = _Clock(self, connections.client_timeout)
        self._answer_clock = _Clock(self, connections.client_timeout)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Wait for the first request; close another connection where there are too many."""
        self._gathering = _Gathering(transport, self.loop)
        super().connection_made(self._gathering)  # type: ignore[arg-type]  # it has all that is called
        self.app_state["verified"] = bool(transport.get_extra_info("peercert"))
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        self._all.waiting[self] = None
        if len(self.connections) > self._all.limit:
            self._all.make_room(self.loop.time())

    def data_received(self, data: bytes) -> None:
        """Let uvicorn parse; start the clock of a head that has begun, stop it at the head's end."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._all.waiting.pop(self, None)
            self._head_clock.stop()
        else:
            self._head_clock.start()
        self._note_sending(begun=self.conn.their_state is h11.IDLE)

    def on_response_complete(self) -> None:
        """Send the answer; wait for the next request, unless it is here already or the client has gone."""
        self._gathering.send()
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self in self.connections:
            self._all.waiting[self] = None
        self._note_sending(begun=False)

    def _note_sending(self, *, begun: bool) -> None:
        """Note whether the client is in the middle of a request; begun: of its head."""
        middle = begun or self.conn.their_state is h11.SEND_BODY
        if middle and self in self.connections:
            self._all.sending.setdefault(self, self.loop.time())
        else:
            self._all.sending.pop(self, None)

    def pause_writing(self) -> None:
        """Start the clock of an answer that the client does not read."""
        super().pause_writing()
        self._answer_clock.start()

    def resume_writing(self) -> None:
        """Stop that clock."""
        super().resume_writing()
        self._answer_clock.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and with it every clock that would keep it in memory."""
        super().connection_lost(exc)
        self._all.waiting.pop(self, None)
        self._all.sending.pop(self, None)
        self._unset_keepalive_if_required()
        self._head_clock.stop()
        self._answer_clock.stop()

    def shutdown(self) -> None:
        """Close the connection, after the request that it is at; may be called again and again."""
        if not self.transport.is_closing():
            super().shutdown()


class _Gathering:
    """A transport that keeps what is written until `send`: the head of an answer, until its body is there.

    What nobody sends goes out at the end of this turn of the event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Have the bytes sent soon."""
        if not self._written:
            self._loop.call_soon(self.send)
        self._written.append(data)

    def send(self) -> None:
        """Send what was written, at once."""
        if self._written:
            self._transport.write(b"".join(self._written))
            self._written.clear()

    def close(self) -> None:
        """Close, after what was written."""
        self.send()
        self._transport.close()


class _Clock:
    """Cuts a connection where it is not stopped within so many seconds of its start."""

    def __init__(self, connection: Connection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start, unless it runs already."""
        if self._timer is None:
            connection = self._connection
            self._timer = connection.loop.call_later(self._seconds, connection.transport.abort)

    def stop(self) -> None:
        """Stop, if it runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
