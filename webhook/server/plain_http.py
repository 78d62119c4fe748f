"""Plain HTTP server for metrics and probes, in a daemon thread."""

from __future__ import annotations

import asyncio
import socket
from threading import Thread
from typing import TYPE_CHECKING, Final

from webhook.server.connections import Limits
from webhook.server.http import Lane, Work
from webhook.server.listener import listening
from webhook.server.streams import PlainStream
from webhook.server.work_queue import WorkQueue
from webhook.server.wsgi import wsgi_application

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

# Prometheus and the kubelet have one connection each, and send no bodies. A well-behaved client takes
# milliseconds for each step, and Prometheus scrapes every minute or more often.
_LIMITS: Final = Limits(connections=64, client_timeout=5.0, keep_alive=75.0, body_limit=0, bodies_limit=0)


def serve_plain(app: WSGIApplication, port: int) -> int:
    """Serve an application over plain HTTP in a daemon thread, and return the port; 0 selects any free one.

    Raises OSError if the port is not available.
    """
    dual_stack = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual_stack else socket.AF_INET
    listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual_stack)
    Thread(target=lambda: asyncio.run(_serve(app, listener)), name="metrics", daemon=True).start()
    bound: int = listener.getsockname()[1]
    return bound


async def _serve(app: WSGIApplication, listener: socket.socket) -> None:
    with WorkQueue(wsgi_application(app, scheme="http"), lambda _: Work(Lane.OTHER)) as queue:
        async with listening(listener, _LIMITS, PlainStream, queue):
            await asyncio.Event().wait()
