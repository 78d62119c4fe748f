"""Listener: accepts connections as long as there are files for them, and keeps their clocks.

Source: asyncio.selector_events of CPython 3.11 to 3.13, for what happens between an accept and a protocol.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from webhook.server.connection import Connection
from webhook.server.connections import SWEEP_INTERVAL, Connections
from webhook.telemetry.logs import RateLimitFilter

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable

    from webhook.server.connections import Limits
    from webhook.server.streams import Stream
    from webhook.server.work_queue import WorkQueue

_log = logging.getLogger(__name__)
_log.addFilter(RateLimitFilter())

# Connections that asyncio accepts at once, before any of them is counted; it takes them from `backlog`.
_BATCH: Final = 16
# Connections that the kernel completes and keeps until they are accepted. A burst of more loses packets,
# which clients send again after a second.
_BACKLOG: Final = 1024
# Open files besides connections: listener, event loop, certificate, watches.
_OWN_FILES: Final = 128
# Batches whose files are open although their connections are not counted, or not any more: one that was just
# accepted, and those of connections that are being closed.
_BATCHES: Final = 4


@asynccontextmanager
async def listening(
    listener: socket.socket, limits: Limits, new_stream: Callable[[], Stream], queue: WorkQueue
) -> AsyncIterator[Listening]:
    """Accept the connections of a bound socket while the block runs; open ones are closed after it.

    limits: if fewer open files are allowed, there are fewer connections. new_stream: for each connection.
    """
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_failure)
    spare = _BATCHES * _BATCH + _OWN_FILES
    files = allow_files(limits.connections + spare)
    limits = replace(limits, connections=max(1, min(limits.connections, files - spare)))
    connections = Connections(limits, new_stream, monotonic)
    server = await loop.create_server(
        lambda: Connection(connections, queue, loop), sock=listener, backlog=_BATCH
    )
    listener.listen(_BACKLOG)
    sweeping = asyncio.create_task(_sweep(connections))
    try:
        yield Listening(listener, server, connections)
    finally:
        sweeping.cancel()
        server.close()


class Listening:
    """A running listener, to drain and finish it."""

    def __init__(self, listener: socket.socket, server: asyncio.Server, connections: Connections) -> None:
        self._listener = listener
        self._server = server
        self._connections = connections

    def drain(self) -> None:
        """Close each connection after its next response, so that clients connect to another replica."""
        self._connections.is_draining = True

    async def finish(self, linger: float) -> None:
        """Accept no more; return when all requests in progress are answered.

        linger: seconds in which connections that were just accepted may still send a request.
        """
        asyncio.get_running_loop().remove_reader(self._listener)
        # A connection that is accepted in this iteration gets its protocol in the next one. CPython 3.11
        # drops it without closing it if the server is closed by then.
        for _ in range(2):
            await asyncio.sleep(0)
        self._server.close()
        await asyncio.sleep(linger)
        while len(self._connections):
            self._connections.close_idle()
            await asyncio.sleep(0.02)


async def _sweep(connections: Connections) -> None:
    while True:
        await asyncio.sleep(SWEEP_INTERVAL)
        connections.sweep()


def _log_failure(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio reports; what clients can cause, such as too many open files, once a minute."""
    error = context.get("exception")
    if isinstance(error, OSError):
        _log.warning(f"{context['message']}: %s", error)
    else:
        _log.error(context["message"], exc_info=error)


def allow_files(count: int) -> int:
    """Raise the process's limit of open files to `count`, or to the highest allowed value; return the limit.

    Some container runtimes start it with 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return count
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
