"""HTTPS server: serves an application over TLS and HTTP/1.1 in one process that can be drained.

Why gpugate has its own: docs/adr/0010-transport.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING

from certs.authority import CertificateError
from webhook.server.connections import Limits
from webhook.server.http import BODY_LIMIT, Lane, Work
from webhook.server.listener import listening
from webhook.server.streams import TlsStream
from webhook.server.work_queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.server.http import Application, Request, Schedule
    from webhook.server.tls import TlsCertificate

_log = logging.getLogger(__name__)

# Bytes of all bodies together: nine of the maximum size, or ten thousand typical reviews of 6 KB.
BODIES_LIMIT = 64 * 2**20
# Seconds between two reads of the certificate: two small files, or the pair that CertRotator has in memory.
_RELOAD_INTERVAL = 1.0
# Seconds for which a thread that works on a long review blocks the event loop each time; 5 ms by default.
_SWITCH_INTERVAL = 0.001
# Seconds after the listener is closed in which connections that were just accepted may still send a request.
_LINGER = 0.25


class ServerConfig(Limits, frozen=True):
    """Listen address and limits for clients. Sizes in bytes, times in seconds.

    Attributes:
        host: `::` accepts IPv6 and, if the kernel allows it, IPv4.
        port: 0 for any free port.
    """

    # Each API server keeps 25 idle connections and has at most 200 mutating requests in flight by default.
    connections: int = 1000
    # A well-behaved client takes milliseconds for a step, and gives up after timeoutSeconds: 5 in the
    # manifests, 30 at most.
    client_timeout: float = 10.0
    # The API server closes a connection that is idle for 90 s. The server must not close first: a review on a
    # closing connection fails, and is not sent again.
    keep_alive: float = 120.0
    body_limit: int = BODY_LIMIT
    bodies_limit: int = BODIES_LIMIT
    host: str = "0.0.0.0"  # noqa: S104 - a pod does not know its address
    port: int = 8443
    # Endpoints and kube-proxy take a few seconds to send the last clients to other replicas.
    drain_seconds: float = 5.0


def _all_quick(_: Request) -> Work:
    return Work(Lane.QUICK)


class Server:
    """Serves an application until it is drained; the port is bound at construction.

    port: the port that it listens on. Raises OSError if the address is not available.

    Args:
        application: answers requests.
        config: address and limits.
        tls: the serving certificate.
        on_drain: called when the drain begins, in the thread of `run`, to make readiness false.
        schedule: returns how to answer a request; see WorkQueue.
    """

    def __init__(
        self,
        application: Application,
        config: ServerConfig,
        tls: TlsCertificate,
        on_drain: Callable[[], None] | None = None,
        *,
        schedule: Schedule = _all_quick,
    ) -> None:
        self._application = application
        self._schedule = schedule
        self._config = config
        self._tls = tls
        self._on_drain = on_drain
        self._socket = socket.create_server(
            (config.host, config.port),
            family=socket.AF_INET6 if ":" in config.host else socket.AF_INET,
            dualstack_ipv6=config.host == "::" and socket.has_dualstack_ipv6(),
        )
        # Accepted connections inherit it. asyncio sets it only on sockets with a protocol number, which
        # accepted ones lack; without it a response of two segments waits for the client's delayed ACK, 40 ms.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._socket.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop
        self._draining = asyncio.Event()
        self._thread = threading.Thread(target=self.run, name="server")
        self._running = threading.Event()

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT, drain, and return the exit status 0; a second signal exits at once.

        Signals are handled in the main thread only.
        """
        sys.setswitchinterval(_SWITCH_INTERVAL)
        asyncio.run(self._serve())
        return 0

    def start(self) -> None:
        """Run in a new thread; returns when requests are served."""
        self._thread.start()
        self._running.wait()

    def stop(self) -> None:
        """Drain, as after a signal, and return when done; only after `start`."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._draining.set)
        self._thread.join()

    async def _serve(self) -> None:
        config = self._config
        self._loop = loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(signum, self._handle_signal, signum)
        with WorkQueue(self._application, self._schedule) as queue:
            async with listening(
                self._socket, config, lambda: TlsStream(self._tls.context), queue
            ) as connections:
                reloading = asyncio.create_task(self._reload_certificate())
                self._running.set()
                await self._draining.wait()
                if self._on_drain is not None:
                    self._on_drain()
                connections.drain()
                await asyncio.sleep(config.drain_seconds)
                reloading.cancel()
                await connections.finish(_LINGER)

    def _handle_signal(self, signum: int) -> None:
        if self._draining.is_set():
            os._exit(128 + signum)  # the shell's status for a signal; does not wait for threads
        self._draining.set()

    async def _reload_certificate(self) -> None:
        while True:
            await asyncio.sleep(_RELOAD_INTERVAL)
            try:
                if self._tls.reload():
                    _log.info("the serving certificate was replaced")
            except (CertificateError, OSError) as error:
                _log.warning("cannot replace the serving certificate: %s", error)
