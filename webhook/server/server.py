"""HTTPS server: serves a WSGI application over TLS and HTTP/1.1 in one process that can be drained.

Why gpugate has its own server: docs/adr/0001-server.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
import threading
from asyncio.sslproto import SSLProtocol
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn

from certs.authority import CertificateError
from webhook.server.connection import Connection, Connections, protocol_config
from webhook.server.wsgi_adapter import WsgiAdapter
from webhook.telemetry.logs import RateLimitFilter

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.types import WSGIApplication

    from webhook.server.tls import TlsCertificate

_log = logging.getLogger(__name__)
# For uvicorn's warnings about requests that are not HTTP or ask for a WebSocket.
_rate_limit = RateLimitFilter()

# Bytes. etcd accepts 1.5 MiB in a request by default and kube-apiserver 3 MiB in a resource; an
# AdmissionReview contains object and oldObject, so 2 x 3 MiB, and 1 MiB for its envelope (user, options,
# escapes).
BODY_LIMIT = 7 * 2**20
# Bytes of all bodies together: nine of the maximum size, or ten thousand typical reviews of 6 KB.
BODIES_LIMIT = 64 * 2**20
# Bytes. A request head of the API server has a few hundred; 16 KiB is the default of h11.
_HEAD_LIMIT = 16 * 2**10
# Seconds between two reads of the certificate: two small files, or the pair that CertRotator has in memory.
_RELOAD_INTERVAL = 1.0
# Seconds for which a thread that works on a long review blocks the event loop each time; 5 ms by default.
_SWITCH_INTERVAL = 0.001
# Open files in addition to connections: listener, event loop, certificate, watches.
_OWN_FILES = 128
# Seconds for a client to answer the TLS close before the connection is aborted. A stalled one never answers.
_CLOSE_TIMEOUT = 1.0
# Seconds after the listener is closed in which connections that were just accepted may still send a request.
_LINGER = 0.25
# Bytes. asyncio gives each TLS connection a read buffer of 256 KiB, zeroed and so resident: an idle one takes
# 248 KiB of memory, and 76 KiB with this. A typical review fits ten times; a long one is read in more pieces.
SSLProtocol.max_size = 64 * 2**10


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Listen address and limits for clients. Sizes in bytes, times in seconds.

    port: 0 for any free one. host: `::` accepts IPv6 and, if the kernel allows it, IPv4.
    """

    host: str = "0.0.0.0"  # noqa: S104 - a pod does not know its address
    port: int = 8443
    body_limit: int = BODY_LIMIT
    bodies_limit: int = BODIES_LIMIT
    # For each step of a client: handshake, head from its first byte, body, reading the response. A
    # well-behaved one takes milliseconds, and gives up after timeoutSeconds: 5 in the manifests, 30 at most.
    client_timeout: float = 10.0
    # The API server closes a connection that is idle for 90 s. The server must not close first: a review on a
    # closing connection fails, and is not sent again.
    keep_alive: int = 120
    # For reviews that may take long; the others do not wait for them. A decision is CPU-bound: more threads
    # are not faster, and they block the event loop. The second one is there in case a call never returns.
    threads: int = 2
    # Each API server keeps 25 idle connections and has at most 200 mutating requests in flight by default.
    connections: int = 1000
    backlog: int = 1024
    # Endpoints and kube-proxy take a few seconds to send the last clients to other replicas.
    drain_seconds: float = 5.0


class Server:
    """Serves a WSGI application until it is drained; the port is bound at construction.

    on_drain: called when the drain begins, in the thread of `run`, to make readiness false. is_quick: says by
    the body which requests are answered in the event loop, see WsgiAdapter. port: the port it listens on.
    Raises OSError if the address is not available.
    """

    def __init__(
        self,
        app: WSGIApplication,
        config: ServerConfig,
        tls: TlsCertificate,
        on_drain: Callable[[], None] | None = None,
        *,
        is_quick: Callable[[bytes | bytearray], bool] = lambda _: False,
    ) -> None:
        logging.getLogger("uvicorn.error").addFilter(_rate_limit)
        self._app = app
        self._config = config
        self._tls = tls
        self._on_drain = on_drain
        self._is_quick = is_quick
        self._socket = socket.create_server(
            (config.host, config.port),
            family=socket.AF_INET6 if ":" in config.host else socket.AF_INET,
            dualstack_ipv6=config.host == "::" and socket.has_dualstack_ipv6(),
            backlog=config.backlog,
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
        self._loop.call_soon_threadsafe(self._draining.set)
        self._thread.join()

    async def _serve(self) -> None:
        config = self._config
        # As many again may be in their handshakes. If fewer open files are allowed, the limit is lower.
        files = _allow_files(2 * config.connections + _OWN_FILES)
        limit = max(1, min(config.connections, (files - _OWN_FILES) // 2))
        self._loop = loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(signum, self._handle_signal, signum)
        connections = Connections(config.client_timeout, limit)
        with ThreadPoolExecutor(config.threads, "wsgi") as pool:
            protocol_config = self._protocol_config(pool)
            listener = await loop.create_server(
                lambda: Connection(protocol_config, connections),
                sock=self._socket,
                backlog=config.backlog,
                ssl=self._tls.listener_context,
                ssl_handshake_timeout=config.client_timeout,
                ssl_shutdown_timeout=_CLOSE_TIMEOUT,
            )
            reloading = asyncio.create_task(self._reload_certificate())
            self._running.set()
            await self._draining.wait()
            if self._on_drain is not None:
                self._on_drain()
            connections.drain()
            await asyncio.sleep(config.drain_seconds)
            reloading.cancel()
            listener.close()
            await asyncio.sleep(_LINGER)
            while connections.connections:
                for connection in list(connections.connections):
                    connection.shutdown()
                await asyncio.sleep(0.02)

    def _protocol_config(self, pool: ThreadPoolExecutor) -> uvicorn.Config:
        config = self._config
        adapter = WsgiAdapter(
            self._app,
            pool,
            is_quick=self._is_quick,
            body_limit=config.body_limit,
            body_timeout=config.client_timeout,
            bodies_limit=config.bodies_limit,
        )
        return protocol_config(
            adapter, keep_alive=config.keep_alive, head_limit=_HEAD_LIMIT, log_level=logging.WARNING
        )

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


def _allow_files(count: int) -> int:
    """Raise the process's limit of open files to `count`, or as far as allowed; return the limit.

    Some container runtimes start it with 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return count
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
