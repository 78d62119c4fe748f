"""Malicious clients do not keep well-behaved ones from an answer."""

from __future__ import annotations

import json
import logging
import random
import resource
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from shutil import which
from subprocess import PIPE, STDOUT
from typing import TYPE_CHECKING

import pytest

import webhook.server.connections
import webhook.server.listener
from tests.support.serving import (
    HOST,
    PATIENCE,
    STALLS,
    TRUSTING,
    answers,
    ask,
    client_context,
    config,
    connect,
    half_body,
    new_pair,
    serving,
    stalled,
)
from tests.support.webhooks import body, builtin_handler, pod
from webhook.admission.app import create_server_application
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.server.server import Server

# Seconds that the server waits for a stalled client: longer than others wait for an answer.
LONG = 3600
REVIEW = body(pod({"nvidia.com/gpu": "1"}))
HEAD = b"POST /mutate HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
STATUS = len(b"HTTP/1.1 200")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve the built-in rules with usual limits."""
    with serving(create_server_application(builtin_handler()), config(client_timeout=LONG)) as running:
        yield running


def is_answered(port: int) -> bool:
    """Send a review over a new connection; return whether the answer allows it."""
    status, answer = ask(port, "/mutate", REVIEW)
    return status == 200 and json.loads(answer)["response"]["allowed"] is True


def test_requests_are_answered_despite_stalled_clients_of_every_kind_and_a_burst(server: Server) -> None:
    """64 of each kind at once, and forty new clients."""
    with ExitStack() as stack:
        for stall in STALLS.values():
            stack.enter_context(stalled(stall, server.port, 64))
        with ThreadPoolExecutor(40) as clients:
            answered = list(clients.map(is_answered, [server.port] * 40))

    assert all(answered)


def test_bodies_that_stall_cannot_use_up_the_memory_for_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest incomplete ones are discarded to make room."""
    monkeypatch.setattr(webhook.server.connections, "_STALLED", 0)
    with (
        serving(
            create_server_application(builtin_handler()), config(bodies_limit=3500, client_timeout=LONG)
        ) as server,
        stalled(half_body, server.port, 3),
    ):
        assert all(is_answered(server.port) for _ in range(4))


def test_a_body_over_the_limit_is_refused_without_reading_it_all(server: Server) -> None:
    """A gigabyte is declared; the answer comes after less than a thirtieth of it."""
    sent = 0
    with connect(server.port) as connection:
        connection.sendall(HEAD + f"Content-Length: {2**30}\r\n\r\n".encode())
        with suppress(OSError):
            while sent < 2**30:
                connection.sendall(b" " * 2**20)
                sent += 2**20

    assert sent < 2**25


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
        (b"GET https://localhost HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET ftp://localhost/healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET /../healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"404"),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET /%ff%00 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"404"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 50_000 + b"\r\n", b"431"),
        (b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"431"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", b"400"),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"404"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", b"400"),
    ],
)
def test_invalid_http_is_refused_and_the_server_keeps_serving(
    server: Server, request_: bytes, status: bytes
) -> None:
    """HTTP/2, absolute and unusual targets, endless heads, contradictory lengths, upgrades."""
    received = b""
    with connect(server.port) as connection, suppress(OSError):  # closed while the client is still sending
        connection.sendall(request_)
        while b"\r\n\r\n" not in received and (more := connection.recv(65536)):
            received += more

    assert received[:STATUS] in (b"HTTP/1.1 " + status, b"")
    assert is_answered(server.port)


def test_many_tiny_chunks_are_one_body(server: Server) -> None:
    """A thousand chunks of one byte cost no more than their bytes."""
    review = REVIEW.ljust(1000)
    chunks = b"".join(b"1;ext=%d\r\n%c\r\n" % (at, byte) for at, byte in enumerate(review))
    raw = answers(connect(server.port), HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")

    assert raw.startswith(b"HTTP/1.1 200")


def test_the_limit_of_open_files_is_raised_to_what_connections_need() -> None:
    """Container runtimes start a process with 1,024, which idle clients use up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with serving(create_server_application(builtin_handler()), config(connections=1000)) as server:
            assert is_answered(server.port)
            raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert raised == (1192 if hard == resource.RLIM_INFINITY else min(1192, hard))


def test_with_fewer_open_files_fewer_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise idle ones would block new ones."""
    monkeypatch.setattr(webhook.server.listener, "allow_files", lambda _: 128 + 64 + 1)
    with serving(create_server_application(builtin_handler()), config(connections=1000)) as server:
        idle = connect(server.port)
        assert is_answered(server.port)
        with idle:
            assert b"" == idle.recv(1)


def test_weak_ciphers_are_refused(server: Server) -> None:
    """Ciphers of TLS 1.2 without forward secrecy, authenticated encryption, or any encryption."""

    def accepts(cipher: str) -> bool:
        context = client_context()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(f"{cipher}:@SECLEVEL=0")
        try:
            connect(server.port, context=context).close()
        except (ssl.SSLError, ConnectionError):
            return False
        return True

    ciphers = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA", "AES128-SHA", "NULL", "ADH"]

    assert [accepts(cipher) for cipher in ciphers] == [True, False, False, False, False]


def ended(port: int, data: bytes) -> bool:
    """Send bytes instead of TLS; return whether the server then ends the connection."""
    with socket.create_connection((HOST, port), timeout=PATIENCE) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:  # it has ended already
            return True
        return True


def changed(data: bytes, chance: random.Random) -> bytes:
    """Return bytes of which a few are others."""
    result = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        result[chance.randrange(len(result))] ^= chance.randrange(1, 256)
    return bytes(result)


def test_what_is_not_tls_ends_the_connection_and_is_not_logged(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """First messages that were changed, cut or longer than allowed, random bytes, plain HTTP, alerts."""
    chance = random.Random(0)  # noqa: S311 - no secret
    hello = first_message()
    inputs = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x80\x2e\x01\x00\x02",  # SSL 2
        b"\x15\x03\x03\x00\x02\x01\x00" * 100,
        b"\x16\x03\x01\xff\xff" + bytes(2**17),
        b"\x17\x03\x03\x00\x00" * 5000,
        *(changed(hello, chance) for _ in range(200)),
        *(hello[:length] for length in range(0, len(hello), 10)),
        *(chance.randbytes(length) for length in (1, 5, 100, 2**15) for _ in range(20)),
    ]

    assert [data for data in inputs if not ended(server.port, data)] == []
    assert is_answered(server.port)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def first_message() -> bytes:
    """Return the ClientHello of a client."""
    outgoing = ssl.MemoryBIO()
    is_finished(TRUSTING.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost"))
    return outgoing.read()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_record_that_was_changed_or_cut_ends_the_connection(
    server: Server, version: ssl.TLSVersion, caplog: pytest.LogCaptureFixture
) -> None:
    """After the handshake: nothing of it is worked on."""
    context = client_context()
    context.maximum_version = version
    chance = random.Random(0)  # noqa: S311 - no secret
    for number in range(20):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection((HOST, server.port), timeout=PATIENCE) as connection:
            while not is_finished(tls):
                connection.sendall(outgoing.read())
                incoming.write(connection.recv(65536))
            tls.write(HEAD + b"Content-Length: 0\r\n\r\n")
            record = outgoing.read()
            connection.sendall(changed(record, chance) if number % 2 else record[: -1 - number])
            with suppress(OSError):  # it has ended already
                connection.shutdown(socket.SHUT_WR)
            while received := read_until_reset(connection):
                incoming.write(received)
        with suppress(ssl.SSLError):
            assert b"HTTP/1.1" not in tls.read()

    assert is_answered(server.port)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def is_finished(tls: ssl.SSLObject) -> bool:
    """Go on with a handshake; return whether it is finished."""
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
        return True
    return False


def read_until_reset(connection: socket.socket) -> bytes:
    """Return the next bytes; none at the end or after a reset."""
    connection.settimeout(PATIENCE)
    with suppress(ConnectionError):
        return connection.recv(65536)
    return b""


@pytest.mark.skipif(which("openssl") is None, reason="Python cannot renegotiate")
def test_a_client_cannot_renegotiate(server: Server) -> None:
    """Each time would cost as much as a handshake, for one packet."""
    command = ["openssl", "s_client", "-connect", f"{HOST}:{server.port}", "-tls1_2"]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=STDOUT) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        seen = b""
        while b"Verify return code" not in seen:
            seen += client.stdout.readline()
        client.stdin.write(b"R\n")
        client.stdin.flush()
        output = client.communicate(timeout=PATIENCE)[0]

    assert b"no renegotiation" in output


def test_no_file_of_the_key_remains_after_it_is_loaded() -> None:
    """Python reads keys from files only, so there is one for a moment, in shared memory."""
    pair, before = new_pair(), set(files_in_memory())
    TlsCertificate(lambda: pair)

    assert not [path for path in set(files_in_memory()) - before if pair.key_pem in path.read_bytes()]


def files_in_memory() -> Iterator[Path]:
    """Yield the files in shared memory."""
    return (path for path in Path("/dev/shm").iterdir() if path.is_file())


def test_requests_are_answered_after_a_flood_of_connections_that_close_at_once(server: Server) -> None:
    """Resets before, during and after the handshake."""
    for at in range(300):
        plain = socket.create_connection((HOST, server.port), timeout=PATIENCE)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset on close
        if at % 3:
            plain.sendall(b"\x16\x03\x01\x02\x00\x01")
        plain.close()

    assert is_answered(server.port)
