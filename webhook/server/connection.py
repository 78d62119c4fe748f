"""HTTP/1.1 connections: client time-outs, and which one is closed when there are too many.

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


# Seconds after which a client that has not sent its whole request is stalled; normally it takes milliseconds.
_STALLED = 1.0


def protocol_config(app: Any, *, keep_alive: int, head_limit: int, log_level: int) -> uvicorn.Config:
    """Return the uvicorn configuration for the connections of an ASGI application.

    keep_alive: seconds between two requests. head_limit: bytes of a request head. log_level: minimum level of
    uvicorn's messages; they go to `logging`, without uvicorn's handlers, formats and access log.
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
    """The open connections of a server: idle ones and those that are receiving a request, oldest first.

    client_timeout: seconds for a request head, from its first byte, and for reading a response. limit: number
    of connections; beyond it one is closed, so that stalled or idle clients do not block others.
    """

    def __init__(self, client_timeout: float, limit: int) -> None:
        super().__init__()
        self.client_timeout = client_timeout
        self.limit = limit
        self.idle: dict[Connection, None] = {}
        # Connections that are receiving a request, with its start time; oldest first.
        self.receiving: dict[Connection, float] = {}

    def make_room(self, now: float) -> None:
        """Close the connection that has stalled longest within a request; if none has, the longest idle one.

        now: seconds of the event loop's clock.
        """
        stalled = next(iter(self.receiving), None)
        if stalled is not None and now - self.receiving[stalled] > _STALLED:
            del self.receiving[stalled]
            stalled.transport.abort()
        else:
            oldest = next(iter(self.idle))
            del self.idle[oldest]
            oldest.timeout_keep_alive_handler()

    def drain(self) -> None:
        """Close each connection after its next response, so that clients connect to another replica."""
        self.default_headers = [(b"connection", b"close")]


class Connection(H11Protocol):
    """One HTTP/1.1 connection of uvicorn, with additional time-outs.

    A connection without a first request is idle, as between two requests: the API server opens a connection
    for each concurrent call and keeps unused ones for later. But a request head that has begun must end, and
    a response must be read.
    """

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config, connections, app_state={})
        self._all = connections
        self._head_timer = _Timeout(self, connections.client_timeout)
        self._response_timer = _Timeout(self, connections.client_timeout)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Wait for the first request; close another connection if there are too many."""
        self._buffered = _BufferedTransport(transport, self.loop)
        super().connection_made(self._buffered)  # type: ignore[arg-type]  # has all methods that are called
        self.app_state["verified"] = bool(transport.get_extra_info("peercert"))
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        self._all.idle[self] = None
        if len(self.connections) > self._all.limit:
            self._all.make_room(self.loop.time())

    def data_received(self, data: bytes) -> None:
        """Let uvicorn parse; start the timer when a request head begins, stop it when the head ends."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._all.idle.pop(self, None)
            self._head_timer.stop()
        else:
            self._head_timer.start()
        self._update_receiving(begun=self.conn.their_state is h11.IDLE)

    def on_response_complete(self) -> None:
        """Send the response; become idle unless the next request has begun or the client has disconnected."""
        self._buffered.send()
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and self in self.connections:
            self._all.idle[self] = None
        self._update_receiving(begun=False)

    def _update_receiving(self, *, begun: bool) -> None:
        """Record whether a request is being received. begun: its head is."""
        receiving = begun or self.conn.their_state is h11.SEND_BODY
        if receiving and self in self.connections:
            self._all.receiving.setdefault(self, self.loop.time())
        else:
            self._all.receiving.pop(self, None)

    def pause_writing(self) -> None:
        """Start the timer of a response that the client does not read."""
        super().pause_writing()
        self._response_timer.start()

    def resume_writing(self) -> None:
        """Stop the timer of the response."""
        super().resume_writing()
        self._response_timer.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection and stop its timers, which would keep it in memory."""
        super().connection_lost(exc)
        self._all.idle.pop(self, None)
        self._all.receiving.pop(self, None)
        self._unset_keepalive_if_required()
        self._head_timer.stop()
        self._response_timer.stop()

    def shutdown(self) -> None:
        """Close the connection after the current request; may be called repeatedly."""
        if not self.transport.is_closing():
            super().shutdown()


class _BufferedTransport:
    """A transport that buffers writes until `send`, so that head and body of a response leave together.

    Without `send` they leave at the end of this iteration of the event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Buffer the bytes."""
        if not self._written:
            self._loop.call_soon(self.send)
        self._written.append(data)

    def send(self) -> None:
        """Send the buffered bytes now."""
        if self._written:
            self._transport.write(b"".join(self._written))
            self._written.clear()

    def close(self) -> None:
        """Send the buffered bytes and close."""
        self.send()
        self._transport.close()


class _Timeout:
    """A timer that aborts a connection unless it is stopped in time."""

    def __init__(self, connection: Connection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the timer, unless it is running."""
        if self._timer is None:
            connection = self._connection
            self._timer = connection.loop.call_later(self._seconds, connection.transport.abort)

    def stop(self) -> None:
        """Stop the timer, if it is running."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
