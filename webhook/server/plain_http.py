"""Plain HTTP server for metrics and probes, in a daemon thread."""

from __future__ import annotations

import asyncio
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import TYPE_CHECKING, Final

from webhook.server.connection import Connection, Connections, protocol_config
from webhook.server.wsgi_adapter import WsgiAdapter

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

# Seconds for each step of a client; a well-behaved one takes milliseconds.
_CLIENT_S: Final = 5.0
# Seconds between two requests of a connection; Prometheus scrapes every minute or more often.
_KEEP_ALIVE_S: Final = 75
# Prometheus and the kubelet have one each; beyond the limit, stalled and longest idle ones are closed.
_CONNECTIONS: Final = 64
# Bytes of a request's head; Prometheus sends a few hundred. Bodies are not accepted.
_HEAD_LIMIT: Final = 8 * 2**10


def serve_plain(app: WSGIApplication, port: int) -> int:
    """Serve an application over plain HTTP in a daemon thread, and return the port; 0 selects any free one.

    Raises OSError if the port is not available.
    """
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    listener = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    Thread(target=lambda: asyncio.run(_serve(app, listener)), name="metrics", daemon=True).start()
    bound: int = listener.getsockname()[1]
    return bound


async def _serve(app: WSGIApplication, listener: socket.socket) -> None:
    connections = Connections(_CLIENT_S, _CONNECTIONS)
    with ThreadPoolExecutor(1, "metrics") as pool:
        adapter = WsgiAdapter(app, pool, body_limit=0, body_timeout=_CLIENT_S, bodies_limit=0)
        config = protocol_config(
            adapter,
            keep_alive=_KEEP_ALIVE_S,
            head_limit=_HEAD_LIMIT,
            log_level=logging.ERROR,  # no line for each client that does not send HTTP
        )
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(config, connections), sock=listener)
        await server.serve_forever()
