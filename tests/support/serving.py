"""A real server in a thread, well-behaved clients, and clients that stall; for tests."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from msgspec.structs import replace

from certs.authority import make_authority, make_leaf
from webhook.admission.work import schedule
from webhook.server.server import Server, ServerConfig
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from certs.authority import KeyPair
    from webhook.server.http import Application

HOST = "127.0.0.1"
NAMES = ("localhost", HOST)
AUTHORITY = make_authority("test CA", datetime.now(UTC))
# Seconds. A well-behaved request takes milliseconds; after this it was not answered, on a busy machine too.
PATIENCE = 30.0

QUICK = ServerConfig(host=HOST, port=0, client_timeout=PATIENCE, drain_seconds=0)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for a condition; twice the patience, as it may take several steps."""
    deadline = time.monotonic() + 2 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def new_pair() -> KeyPair:
    """Return a new serving certificate of the CA that the clients here trust."""
    return make_leaf(AUTHORITY, NAMES, datetime.now(UTC))


def encrypted(key_pem: bytes) -> bytes:
    """Return the same key, encrypted with a password."""
    key = load_pem_private_key(key_pem, password=None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))


@contextmanager
def serving(
    application: Application, config: ServerConfig = QUICK, tls: TlsCertificate | None = None
) -> Iterator[Server]:
    """Serve the application in a thread while the block runs, then drain."""
    pair = new_pair()
    server = Server(application, config, tls or TlsCertificate(lambda: pair), schedule=schedule)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def client_context(authority_pem: bytes = AUTHORITY.certificate_pem) -> ssl.SSLContext:
    """Return the context of a client that trusts one CA and verifies names."""
    return ssl.create_default_context(cadata=authority_pem.decode())


TRUSTING = client_context()


def connect(port: int, name: str = "localhost", context: ssl.SSLContext = TRUSTING) -> ssl.SSLSocket:
    """Return a TLS connection; for an IP address, the client sends no server name (SNI)."""
    plain = socket.create_connection((HOST, port), timeout=PATIENCE)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname=name)


def answers(connection: socket.socket, data: bytes) -> bytes:
    """Send the bytes unchanged and return the response until the server closes."""
    with connection:
        connection.sendall(data)
        received = bytearray()
        while chunk := connection.recv(65536):
            received += chunk
        return bytes(received)


@contextmanager
def client(port: int) -> Iterator[http.client.HTTPSConnection]:
    """Yield an HTTP/1.1 client that keeps its connection while the block runs."""
    connection = http.client.HTTPSConnection("localhost", port, timeout=PATIENCE, context=TRUSTING)
    try:
        yield connection
    finally:
        connection.close()


def ask(
    port: int, path: str = "/", body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    """Send one request over a new connection; return status and body."""
    with client(port) as connection:
        connection.request("GET" if body is None else "POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read()


def silent_tcp(port: int) -> socket.socket:
    """Connect and send nothing, like a scanner."""
    return socket.create_connection((HOST, port), timeout=PATIENCE)


def silent_tls(port: int) -> socket.socket:
    """Finish the TLS handshake and send nothing, like a spare connection of the API server."""
    return connect(port)


def half_head(port: int) -> socket.socket:
    """Send a part of the head and stop."""
    connection = connect(port)
    connection.sendall(b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nX-")
    return connection


def half_body(port: int) -> socket.socket:
    """Send a head and half of its body, and stop."""
    connection = connect(port)
    connection.sendall(
        b"POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n" + b" " * 1000
    )
    return connection


STALLS: dict[str, Callable[[int], socket.socket]] = {
    "silent TCP": silent_tcp,
    "silent TLS": silent_tls,
    "half a head": half_head,
    "half a body": half_body,
}


@contextmanager
def stalled(stall: Callable[[int], socket.socket], port: int, count: int) -> Iterator[list[socket.socket]]:
    """Keep so many stalled connections open while the block runs."""
    with ExitStack() as stack:
        yield [stack.enter_context(stall(port)) for _ in range(count)]


def config(**changes: float) -> ServerConfig:
    """Return the quick configuration with some changes."""
    return replace(QUICK, **changes)
