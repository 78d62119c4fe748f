"""Clients of a webhook over TLS, as the API server is one: HTTP/1.1, kept connections."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle
from statistics import quantiles
from time import perf_counter, sleep
from typing import Final
from urllib.parse import urlsplit

# Seconds for an answer; the API server itself gives up after 30 at most.
_PATIENCE: Final = 30.0
# Requests of each connection that are not measured: handshake, and memory that is allocated once.
_WARMING: Final = 3


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook: its URL `https://HOST:PORT/PATH`, and the TLS context of its clients."""

    url: str
    context: ssl.SSLContext

    def connect(self) -> ssl.SSLSocket:
        """Return a connection to it."""
        at = urlsplit(self.url)
        plain = socket.create_connection((at.hostname or "", at.port or 443), timeout=_PATIENCE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.context.wrap_socket(plain, server_hostname=at.hostname)

    def request(self, body: bytes) -> bytes:
        """Return the bytes of a request with a review."""
        at = urlsplit(self.url)
        path = f"{at.path or '/'}{'?' if at.query else ''}{at.query}"
        head = f"POST {path} HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send a request; return the body of the answer, which must be 200 with a Content-Length."""
    connection.sendall(request)
    received = b""
    while b"\r\n\r\n" not in received:
        received += _chunk(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"answered {head.splitlines()[0].decode()}: {body[:200]!r}")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
    while len(body) < length:
        body += _chunk(connection)
    return body


def _chunk(connection: socket.socket) -> bytes:
    chunk = connection.recv(65536)
    if not chunk:
        raise ConnectionError("connection closed before the answer was complete")
    return chunk


class Load:
    """Kept connections to a webhook, and the requests that they send, again and again in the same order."""

    def __init__(self, connections: Sequence[socket.socket], requests: Sequence[bytes]) -> None:
        """Take connections and requests."""
        self._connections = connections
        self._requests = cycle(requests)  # shared by all connections
        self._pool = ThreadPoolExecutor(len(connections))
        self.flood(_WARMING * len(connections))

    def flood(self, count: int) -> float:
        """Send so many requests in total, one at a time on each connection; return requests per second."""
        share = max(1, count // len(self._connections))

        def send(connection: socket.socket) -> None:
            for _ in range(share):
                exchange(connection, next(self._requests))

        start = perf_counter()
        list(self._pool.map(send, self._connections))
        return share * len(self._connections) / (perf_counter() - start)

    def paced(self, count: int, rate: float) -> list[float]:
        """Send so many requests at a fixed rate per second; return the milliseconds of each answer.

        Latency counts from when a request was due: a pause of the server delays all requests due in it.
        """
        start = perf_counter()
        number = len(self._connections)

        def send(index: int) -> list[float]:
            times = []
            for turn in range(index, count, number):
                due = start + turn / rate
                sleep(max(0.0, due - perf_counter()))
                exchange(self._connections[index], next(self._requests))
                times.append((perf_counter() - due) * 1e3)
            return times

        return [time_ for times in self._pool.map(send, range(number)) for time_ in times]

    def close(self) -> None:
        """End its threads; the caller closes the connections."""
        self._pool.shutdown()


@contextmanager
def load(webhook: Webhook, bodies: Sequence[bytes], connections: int) -> Iterator[Load]:
    """Yield a load of so many connections."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(webhook.connect()) for _ in range(connections)]
        sender = Load(sockets, [webhook.request(body) for body in bodies])
        stack.callback(sender.close)
        yield sender


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile of values."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def retrying(call: Callable[[], bool], within: float, pause: float = 0.005) -> None:
    """Call until the result is true; TimeoutError after so many seconds."""
    deadline = perf_counter() + within
    while not call():
        if perf_counter() > deadline:
            raise TimeoutError(f"not within {within} s")
        sleep(pause)
