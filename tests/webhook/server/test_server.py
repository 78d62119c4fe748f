"""The server answers requests despite malicious clients, enforces its limits, and drains without loss."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest

import webhook.server.connections
import webhook.server.server
from tests.support.serving import (
    HOST,
    PATIENCE,
    STALLS,
    TRUSTING,
    answers,
    ask,
    client,
    config,
    connect,
    half_body,
    new_pair,
    serving,
    silent_tls,
    stalled,
)
from webhook.admission.work import schedule
from webhook.server.http import Request, Response
from webhook.server.server import Server, ServerConfig
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def application(request: Request) -> Response:
    """Return the request as JSON; fail on /fail."""
    if request.path == "/fail":
        raise RuntimeError(f"secret of {request.path}")
    fields = {name: getattr(request, name) for name in ("method", "path", "query", "version", "client")}
    headers = [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.headers]
    content = {**fields, "headers": headers, "body": request.body.decode("latin-1")}
    return Response(404 if request.path == "/unknown" else 200, json.dumps(content).encode())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve with usual limits."""
    with serving(application) as running:
        yield running


def request_of(server: Server, path: str = "/", body: bytes | None = None, **headers: str) -> dict[str, Any]:
    """Return a request as the application gets it."""
    status, answer = ask(server.port, path, body, headers)
    assert status == 200
    return dict(json.loads(answer))


def statuses(raw: bytes) -> list[bytes]:
    """Return the status codes of the responses in a stream."""
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", raw)


# --- requests


def test_the_application_gets_method_path_query_headers_and_body(server: Server) -> None:
    """Names of headers in lower case, values as sent."""
    request = request_of(
        server, "/mutate?timeout=5s", b'{"a": 1}', **{"Content-Type": "application/json", "X-A": "b"}
    )

    assert {
        "method": "POST",
        "path": "/mutate",
        "query": "timeout=5s",
        "version": "1.1",
        "client": "127.0.0.1",
        "body": '{"a": 1}',
    }.items() <= request.items()
    assert [["content-type", "application/json"], ["x-a", "b"]] == request["headers"][-2:]


def test_a_path_reaches_the_application_as_its_bytes(server: Server) -> None:
    """Percent-encoded UTF-8 as Latin-1."""
    assert request_of(server, "/Gr%C3%B6%C3%9Fe")["path"].encode("latin-1").decode() == "/Größe"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("https://gate.example:8443/mutate?timeout=5s", ("/mutate", "timeout=5s", "gate.example:8443")),
        ("HTTP://gate.example/mutate", ("/mutate", "", "gate.example")),
        ("https://gate.example?timeout=5s", ("/", "timeout=5s", "gate.example")),
        ("/https://gate.example/mutate", ("/https://gate.example/mutate", "", "of-the-header")),
    ],
)
def test_the_host_of_an_absolute_target_takes_precedence(
    server: Server, target: str, expected: tuple[str, str, str]
) -> None:
    """The Host header is then ignored: RFC 9112, 3.2.2."""
    head = f"GET {target} HTTP/1.1\r\nHost: of-the-header\r\nConnection: close\r\n\r\n".encode()
    request = json.loads(answers(connect(server.port), head).partition(b"\r\n\r\n")[2])

    assert expected == (request["path"], request["query"], dict(request["headers"])["host"])


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    """The last one closes the connection."""
    heads = [
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    ]
    last = b"GET /unknown HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    raw = answers(connect(server.port), b"".join([*heads, last]))

    assert statuses(raw) == [b"200", b"200", b"404"]
    assert raw.index(b'"/1"') < raw.index(b'"/2"') < raw.index(b'"/unknown"')


def test_a_head_request_gets_no_body(server: Server) -> None:
    """With the length that the body would have, and a date."""
    raw = answers(connect(server.port), b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    head, _, body = raw.lower().partition(b"\r\n\r\n")

    assert body == b""
    assert b"\r\ncontent-length: " in head
    assert b"\r\ndate: " in head


def test_a_response_is_one_tls_record(server: Server) -> None:
    """Head and body together; a second record could wait 40 ms for an acknowledgement."""
    with connect(server.port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        head, _, body = connection.recv(2**16).partition(b"\r\n\r\n")

    assert b"content-length: %d" % len(body) in head.lower()


def test_a_response_ends_with_the_end_of_tls(server: Server) -> None:
    """Without close_notify a client could not tell an end from an attack: RFC 8446, 6.1."""
    plain = socket.create_connection((HOST, server.port), timeout=PATIENCE)
    with TRUSTING.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        while connection.recv(65536):
            pass


def test_connections_of_a_burst_are_completed_while_the_server_is_busy() -> None:
    """By the kernel; otherwise a client would send its first packet again after a second."""
    begun, finish = threading.Event(), threading.Event()

    def slow(_: Request) -> Response:
        begun.set()
        finish.wait(PATIENCE)
        return Response(200, b"")

    server = Server(slow, config(), TlsCertificate(new_pair))  # answers in the event loop's thread
    server.start()
    with ThreadPoolExecutor(1) as threads, ExitStack() as stack:
        answer = threads.submit(ask, server.port)
        begun.wait(PATIENCE)
        for _ in range(100):
            stack.enter_context(socket.create_connection((HOST, server.port), timeout=0.9))
        finish.set()
        status = answer.result()[0]
    server.stop()

    assert 200 == status


def test_connections_accepted_while_the_listener_closes_are_closed() -> None:
    """Without waiting for the garbage collector; the others of the burst are reset by the kernel."""
    begun, finish = threading.Event(), threading.Event()

    def slow(_: Request) -> Response:
        begun.set()
        finish.wait(PATIENCE)
        return Response(200, b"")

    server = Server(slow, config(), TlsCertificate(new_pair))  # answers in the event loop's thread
    server.start()
    gc.disable()
    try:
        with ThreadPoolExecutor(2) as threads, ExitStack() as stack:
            answer = threads.submit(ask, server.port)
            begun.wait(PATIENCE)
            burst = [
                stack.enter_context(socket.create_connection((HOST, server.port), timeout=PATIENCE))
                for _ in range(100)
            ]
            stopped = threads.submit(server.stop)
            time.sleep(0.05)
            finish.set()
            stopped.result()

            assert [b""] * 100 == [rest(connection) for connection in burst]
            assert 200 == answer.result()[0]
    finally:
        gc.enable()


def rest(connection: socket.socket) -> bytes:
    """Return what a server sends before it closes; nothing if it resets the connection."""
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""


def test_a_long_response_does_not_wait_for_acknowledgements(server: Server) -> None:
    """Otherwise each last segment would be 40 ms late. Accepted connections inherit the option."""
    assert 1 == server._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_may_ask_before_it_sends_its_body(server: Server) -> None:
    """Expect: 100-continue is answered before the body is sent."""
    with connect(server.port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")

        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")


def test_requests_that_are_not_http_are_not_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """No client can fill a disk with them."""
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n"
    for request in (b"nonsense\r\n\r\n", upgrade):
        answers(connect(server.port), request)

    assert not caplog.records


def test_an_exception_is_answered_500_and_logged_but_not_shown_to_the_client(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither its message, which may quote the request, nor the body is logged; the next one is answered."""
    status, answer = ask(server.port, "/fail", b"body-of-an-object")

    assert (status, answer) == (500, b"Internal Server Error\n")
    assert "RuntimeError" in caplog.text
    assert "secret of /fail" not in caplog.text
    assert "body-of-an-object" not in caplog.text
    assert ask(server.port)[0] == 200


# --- limits


def test_a_client_that_is_still_sending_reads_why_it_was_refused(server: Server) -> None:
    """Nearly twice the default limit of 7 MiB, sent without reading the response."""
    body = b"x" * (27 * 2**19)

    assert [ask(server.port, body=body)[0] for _ in range(5)] == [413] * 5


def test_bodies_that_together_pass_the_limit_get_503_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory is bounded; it is free again after the bodies end."""
    monkeypatch.setattr(webhook.server.connections, "_STALLED", 2 * PATIENCE)
    with serving(application, config(bodies_limit=2500)) as server:
        with stalled(half_body, server.port, 2):
            refused = ask_until(server.port, 503, b"x" * 1000)
            with client(server.port) as connection:
                connection.request("POST", "/", b"x" * 1000)
                assert "1" == connection.getresponse().headers["Retry-After"]
        accepted = ask_until(server.port, 200, b"x" * 1000)

    assert (refused, accepted) == (503, 200)


def ask_until(port: int, expected: int, body: bytes) -> int:
    """Ask until the status is the expected one, or for PATIENCE; return the last."""
    deadline = time.monotonic() + PATIENCE
    while (status := ask(port, body=body)[0]) != expected and time.monotonic() < deadline:
        pass
    return status


def test_an_incomplete_body_gets_408() -> None:
    """After the client time-out; the connection is closed."""
    with serving(application, config(client_timeout=1.5)) as server:
        assert statuses(answers(half_body(server.port), b"")) == [b"408"]


def test_an_idle_connection_is_closed_after_the_keep_alive_time() -> None:
    """Whether it was used or not."""
    with serving(application, config(keep_alive=1)) as server:
        started = time.monotonic()
        used, unused = connect(server.port), connect(server.port)
        raw = answers(used, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

        assert answers(unused, b"") == b""
        assert statuses(raw) == [b"200"]
        assert 0.9 < time.monotonic() - started


def test_the_default_keep_alive_is_longer_than_the_api_servers() -> None:
    """It is 90 s there; if the server closed first, a review would be lost."""
    assert ServerConfig().keep_alive > 90


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS.keys())
def test_every_request_is_answered_despite_eighty_stalled_clients(
    server: Server, stall: Callable[[int], socket.socket]
) -> None:
    """They occupy memory, but no thread."""
    with stalled(stall, server.port, 80):
        answered = [ask(server.port)[0] for _ in range(20)]

    assert answered == [200] * 20


def test_a_burst_of_forty_new_clients_is_answered(server: Server) -> None:
    """All at once, each with a new handshake."""
    with ThreadPoolExecutor(40) as clients:
        answered = list(clients.map(lambda _: ask(server.port, body=b"{}")[0], range(40)))

    assert answered == [200] * 40


# --- drain


def test_a_server_that_has_stopped_may_be_stopped_again() -> None:
    """Whoever started it need not know."""
    with serving(application) as server:
        server.stop()
        server.stop()

        with pytest.raises(ConnectionRefusedError):
            connect(server.port)


def test_a_request_in_progress_is_finished_before_the_server_stops() -> None:
    """New connections are refused meanwhile."""
    begun, finish = threading.Event(), threading.Event()

    def slow(request: Request) -> Response:
        begun.set()
        finish.wait(PATIENCE)
        return application(request)

    server = Server(slow, config(), TlsCertificate(new_pair), schedule=schedule)
    server.start()
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(ask, server.port)
        begun.wait(PATIENCE)
        stopped = threads.submit(server.stop)
        wait_for_refusal(server)
        finish.set()
        stopped.result(PATIENCE)

        assert answer.result()[0] == 200


def wait_for_refusal(server: Server) -> None:
    """Return when the listener is closed and a connection is refused."""
    deadline = time.monotonic() + PATIENCE
    while server._socket.fileno() != -1 and time.monotonic() < deadline:
        time.sleep(0.01)
    # CPython forgets the descriptor a moment before it closes it, without the GIL.
    while time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, server.port)).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.01)
    pytest.fail("connections are still accepted")


def test_the_last_accepted_connection_may_still_send_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a request is not closed at the same moment as the listener."""
    monkeypatch.setattr(webhook.server.server, "_LINGER", 1.0)
    server = Server(application, config(), TlsCertificate(new_pair))
    server.start()
    with ThreadPoolExecutor() as threads, silent_tls(server.port) as last:
        stopped = threads.submit(server.stop)
        wait_for_refusal(server)
        raw = answers(last, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        stopped.result(PATIENCE)

    assert statuses(raw) == [b"200"]


PROGRAM = """
import sys
from pathlib import Path
from webhook.server.http import Response
from webhook.server.server import Server, ServerConfig
from webhook.server.tls import TlsCertificate

ready = True

def drain():
    global ready
    ready = False
    print("draining", flush=True)

def application(request):
    return Response(200 if ready or request.path != "/readyz" else 503, b"answer")

tls = TlsCertificate.from_files(Path(sys.argv[1]), Path(sys.argv[2]))
config = ServerConfig(host="127.0.0.1", port=0, drain_seconds=float(sys.argv[3]))
server = Server(application, config, tls, drain)
print(server.port, flush=True)
sys.exit(server.run())
"""


@contextmanager
def process(directory: Path, drain_seconds: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield a server process and its port."""
    pair = new_pair()
    files = [directory / "tls.crt", directory / "tls.key"]
    files[0].write_bytes(pair.certificate_pem)
    files[1].write_bytes(pair.key_pem)
    command = [sys.executable, "-c", PROGRAM, *map(str, files), str(drain_seconds)]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            yield running, int(running.stdout.readline())
        finally:
            running.kill()


def test_no_request_is_lost_while_the_process_drains_under_load(tmp_path: Path) -> None:
    """Readiness turns false, requests are still answered, the listener closes, the exit status is 0."""
    with process(tmp_path, drain_seconds=0.7) as (running, port), ThreadPoolExecutor() as threads:
        loaded = threads.submit(asyncio.run, load(port, 8))
        assert ask(port, "/readyz")[0] == 200
        running.send_signal(signal.SIGTERM)
        assert running.stdout is not None
        assert running.stdout.readline() == "draining\n"
        readiness = ask(port, "/readyz")[0]
        counted = loaded.result(2 * PATIENCE)
        status = running.wait(PATIENCE)
        assert running.stderr is not None
        errors = running.stderr.read()

    assert (readiness, status, errors) == (503, 0, "")
    assert [lost for _, lost in counted] == [0] * 8
    assert all(answered > 0 for answered, _ in counted)


async def load(port: int, clients: int) -> list[tuple[int, int]]:
    """Send requests with so many clients until they are refused; return answered and lost ones of each."""
    return await asyncio.gather(*(load_until_refused(port) for _ in range(clients)))


async def load_until_refused(port: int) -> tuple[int, int]:
    """Send requests over a kept connection, one after another."""
    answered = lost = 0
    while True:
        try:
            reader, writer = await asyncio.open_connection(HOST, port, ssl=TRUSTING)
        except OSError:  # refused, or reset before the handshake: no request was sent
            return answered, lost
        head = b""
        try:
            while b"connection: close" not in head:
                writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
                head = await reader.readuntil(b"\r\n\r\n")
                answered += await reader.readexactly(6) == b"answer"
        except (OSError, asyncio.IncompleteReadError):
            lost += 1
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()


def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    """With the status that a shell gives for the signal."""
    with process(tmp_path, drain_seconds=60) as (running, port):
        assert ask(port)[0] == 200
        running.send_signal(signal.SIGINT)
        assert running.stdout is not None
        assert running.stdout.readline() == "draining\n"
        running.send_signal(signal.SIGTERM)

        assert running.wait(PATIENCE) == 128 + signal.SIGTERM
