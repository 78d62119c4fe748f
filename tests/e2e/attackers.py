"""Attacks on the port of gpugate: crowds of connections that stall, and clients in processes of their own."""

from __future__ import annotations

import http.client
import multiprocessing
import random
import resource
import socket
import ssl
import time
from contextlib import ExitStack, contextmanager, suppress
from itertools import cycle
from typing import TYPE_CHECKING, Final, Self

from tests.e2e.daemon import HOST
from tests.support.tls import unverified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIMEOUT_S: Final = 10.0
_HEAD: Final = b"POST /mutate HTTP/1.1\r\nHost: a\r\n"
CHUNKED: Final = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
# The most connections that one test opens, and files of pytest.
_MOST_FILES: Final = 12_000


_BLIND: Final = unverified()


def client_hello() -> bytes:
    """Return the first bytes that a TLS client sends."""
    outgoing = ssl.MemoryBIO()
    tls = _BLIND.wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


# Crowds: each opens one connection that stalls in its way.


def silent(port: int) -> socket.socket:
    """Send nothing."""
    return socket.create_connection((HOST, port), timeout=_TIMEOUT_S)


def half_hello(port: int) -> socket.socket:
    """Send half of the first TLS message."""
    connection = silent(port)
    connection.sendall(_HELLO[: len(_HELLO) // 2])
    return connection


_HELLO: Final = client_hello()


def tls(port: int) -> ssl.SSLSocket:
    """Finish the TLS handshake and send no request."""
    plain = silent(port)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _BLIND.wrap_socket(plain)


def half_head(port: int) -> socket.socket:
    """Send half a head."""
    connection = tls(port)
    connection.sendall(_HEAD)
    return connection


def many_headers(port: int) -> socket.socket:
    """Send a head of as many headers as fit, without its end."""
    connection = tls(port)
    with suppress(OSError):  # refused meanwhile
        connection.sendall(_HEAD + b"ab:cd\r\n" * 9_000)
    return connection


def claimed_hello(port: int) -> socket.socket:
    """Send the beginning of a first TLS message that claims to be as long as OpenSSL allows."""
    connection = silent(port)
    connection.sendall(b"\x16\x03\x01\x40\x00\x01\x01\xff\x00\x03\x03" + bytes(2**14 - 6))
    return connection


def half_body(port: int) -> socket.socket:
    """Send a head and half a body."""
    connection = tls(port)
    connection.sendall(_HEAD + b"Content-Length: 2000\r\n\r\n" + b" " * 1000)
    return connection


def large_body(port: int) -> socket.socket:
    """Send a head and all but the last byte of a body of 6 MiB."""
    connection = tls(port)
    with suppress(OSError):  # refused meanwhile
        connection.sendall(_HEAD + b"Content-Length: %d\r\n\r\n" % _LARGE + b" " * (_LARGE - 1))
    return connection


_LARGE: Final = 6 * 2**20


@contextmanager
def crowd(open_one: Callable[[int], socket.socket], port: int, number: int) -> Iterator[list[socket.socket]]:
    """Hold so many connections while the block runs; one that the server refuses is tried once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_MOST_FILES, hard), hard))
    try:
        with ExitStack() as stack:
            held = []
            for _ in range(number):
                with suppress(OSError):
                    held.append(stack.enter_context(open_one(port)))
            yield held
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Attacks: each goes on until its process is ended.


def one_byte_chunks(port: int) -> None:
    """Send bodies in chunks of one byte, as many as a body may have."""
    request = CHUNKED + b"1\r\n \r\n" * 10_000 + b"0\r\n\r\n"
    while True:
        with suppress(OSError), tls(port) as connection:
            while True:
                connection.sendall(request)
                if not connection.recv(1000):
                    break


def a_record_for_each_byte(port: int) -> None:
    """Send a body in TLS records of one byte, many in each packet."""
    while True:
        with suppress(OSError), Records(port) as connection:
            connection.send(_HEAD + b"Content-Length: 1000000\r\n\r\n")
            while True:
                connection.send(*[b" "] * 1000)


class Records:
    """A TLS connection whose records are made apart from their sending; a context manager."""

    def __init__(self, port: int) -> None:
        self._socket = silent(port)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _BLIND.wrap_bio(self._incoming, self._outgoing)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
                self._incoming.write(self._socket.recv(65536))

    def send(self, *texts: bytes) -> None:
        """Send each text as a record of its own, all at once."""
        for text in texts:
            self._tls.write(text)
        self._socket.sendall(self._outgoing.read())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def requests_without_reading(port: int) -> None:
    """Send requests for a page, as long as the server takes any, and never read it."""
    with ExitStack() as stack:
        while True:
            with suppress(OSError):
                connection = stack.enter_context(tls(port))
                connection.settimeout(0.2)
                while True:
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 16)


def handshakes(port: int) -> None:
    """Finish handshakes and close."""
    while True:
        with suppress(OSError):
            tls(port).close()


def random_bytes(port: int) -> None:
    """Send random bytes instead of TLS."""
    chance = random.Random(1)  # noqa: S311 - no secret
    while True:
        with suppress(OSError), silent(port) as connection:
            connection.sendall(chance.randbytes(chance.choice((1, 5, 100, 20_000))))
            connection.settimeout(0.02)
            connection.recv(1000)


class Reviews:
    """Sends reviews one after another over kept connections; picklable."""

    def __init__(self, *reviews: bytes, path: str = "/mutate") -> None:
        head = _HEAD.replace(b"/mutate", path.encode())
        self._requests = [head + b"Content-Length: %d\r\n\r\n" % len(review) + review for review in reviews]

    def __call__(self, port: int) -> None:
        """Attack."""
        while True:
            with suppress(OSError, http.client.HTTPException), tls(port) as connection:
                connection.settimeout(60)
                for request in cycle(self._requests):
                    connection.sendall(request)
                    response = http.client.HTTPResponse(connection)
                    response.begin()
                    response.read()
                    if response.will_close:
                        break


@contextmanager
def attacking(attack: Callable[[int], None], port: int, clients: int) -> Iterator[None]:
    """Attack by so many clients, each in a process, while the block runs; it begins when they have begun."""
    spawning = multiprocessing.get_context("spawn")
    processes = [spawning.Process(target=attack, args=(port,), daemon=True) for _ in range(clients)]
    for process in processes:
        process.start()
    time.sleep(2.0)  # until the interpreters have started
    try:
        yield
        assert all(process.is_alive() for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.join()
