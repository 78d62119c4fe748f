"""The server answers honest requests whatever other clients do, refuses in time, and drains without loss."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING
from wsgiref.validate import validator

import pytest

import webhook.server.server
import webhook.server.wsgi_adapter
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
from webhook.server.server import Server, ServerConfig
from webhook.server.tls import TlsCertificate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment

BIG = b"x" * 2**24  # bytes: more than the socket buffers of both sides hold


def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Tell what was asked, or fail when asked to."""
    path = environ["PATH_INFO"]
    if path == "/fail":
        raise RuntimeError("secret-of-the-application")
    body = environ["wsgi.input"].read(-1)
    told = {key: value for key, value in environ.items() if isinstance(value, str)}
    answer = BIG if path == "/big" else json.dumps({**told, "body": body.decode("latin-1")}).encode()
    start_response(
        "404 Not Found" if path == "/unknown" else "200 OK", [("Content-Type", "application/json")]
    )
    return [answer]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve with usual limits; every call of the application is checked against PEP 3333."""
    with serving(validator(application)) as running:
        yield running


def told(server: Server, path: str = "/", body: bytes | None = None, **headers: str) -> dict[str, str]:
    """Return what the application was told of a request."""
    status, answer = ask(server.port, path, body, headers)
    assert status == 200
    return dict(json.loads(answer))


def statuses(raw: bytes) -> list[bytes]:
    """Return the status codes of the responses in a stream."""
    return re.findall(rb"HTTP/1\.1 (\d{3}) ", raw)


# --- requests


def test_the_application_is_told_method_path_query_headers_and_body(server: Server) -> None:
    """As PEP 3333 wants it; a validator stands between."""
    environ = told(
        server, "/mutate?timeout=5s", b'{"a": 1}', **{"Content-Type": "application/json", "X-A": "b"}
    )

    assert {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/mutate",
        "QUERY_STRING": "timeout=5s",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": "8",
        "HTTP_X_A": "b",
        "REMOTE_ADDR": "127.0.0.1",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "body": '{"a": 1}',
    }.items() <= environ.items()


def test_a_chunked_body_arrives_whole_and_with_its_length(server: Server) -> None:
    """The application never sees the transfer coding."""
    with client(server.port) as connection:
        connection.request("POST", "/", iter([b"ab", b"", b"cde"]), encode_chunked=True)
        environ = json.loads(connection.getresponse().read())

    assert (environ["body"], environ["CONTENT_LENGTH"]) == ("abcde", "5")
    assert "HTTP_TRANSFER_ENCODING" not in environ


def test_a_path_reaches_the_application_as_its_bytes(server: Server) -> None:
    """Percent-encoded UTF-8 as Latin-1, which is how WSGI writes bytes."""
    assert told(server, "/Gr%C3%B6%C3%9Fe")["PATH_INFO"].encode("latin-1").decode() == "/Größe"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("https://gate.example:8443/mutate?timeout=5s", ("/mutate", "timeout=5s", "gate.example:8443")),
        ("HTTP://gate.example/mutate", ("/mutate", "", "gate.example")),
        ("https://gate.example?timeout=5s", ("/", "timeout=5s", "gate.example")),
        ("/https://gate.example/mutate", ("/https://gate.example/mutate", "", "of-the-header")),
    ],
)
def test_a_target_may_be_absolute_and_its_host_counts(
    server: Server, target: str, expected: tuple[str, str, str]
) -> None:
    """RFC 9112, 3.2.2; the Host header is ignored then."""
    head = f"GET {target} HTTP/1.1\r\nHost: of-the-header\r\nConnection: close\r\n\r\n".encode()
    environ = json.loads(answers(connect(server.port), head).partition(b"\r\n\r\n")[2])

    assert expected == tuple(environ[name] for name in ("PATH_INFO", "QUERY_STRING", "HTTP_HOST"))


def test_a_header_with_an_underscore_cannot_pass_for_one_with_a_hyphen(server: Server) -> None:
    """Both would be HTTP_X_USER; only the honest spelling counts. Repeated headers are joined."""
    head = b"GET / HTTP/1.1\r\nHost: a\r\nX_User: evil\r\nX-User: a\r\nX-User: b\r\nConnection: close\r\n\r\n"
    environ = json.loads(answers(connect(server.port), head).partition(b"\r\n\r\n")[2])

    assert environ["HTTP_X_USER"] == "a,b"


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    """Each with its own answer, the last one closing."""
    heads = [
        b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
    ]
    last = b"GET /unknown HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    raw = answers(connect(server.port), b"".join([*heads, last]))

    assert statuses(raw) == [b"200", b"200", b"404"]
    assert raw.index(b'"/1"') < raw.index(b'"/2"') < raw.index(b'"/unknown"')


def test_a_head_request_gets_the_head_alone(server: Server) -> None:
    """With the length that the body would have, and a date."""
    raw = answers(connect(server.port), b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    head, _, body = raw.lower().partition(b"\r\n\r\n")

    assert body == b""
    assert b"\r\ncontent-length: " in head
    assert b"\r\ndate: " in head


def test_an_answer_is_one_piece(server: Server) -> None:
    """Head and body are one TLS record; of two, the second could wait 40 ms for an acknowledgement."""
    with connect(server.port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        head, _, body = connection.recv(2**16).partition(b"\r\n\r\n")

    assert b"content-length: %d" % len(body) in head.lower()


def test_a_long_answer_does_not_wait_for_the_client_to_acknowledge_its_beginning(server: Server) -> None:
    """Held back, each last segment would come 40 ms late."""
    started = time.monotonic()
    with client(server.port) as connection:
        for _ in range(50):
            connection.request("POST", "/", b"x" * 20_000)
            connection.getresponse().read()

    assert time.monotonic() - started < 50 * 0.040 / 2


def test_a_client_may_ask_whether_its_body_is_wanted(server: Server) -> None:
    """Expect: 100-continue is answered before the body is sent."""
    with connect(server.port) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")

        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01 nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 2**15,  # a head without an end
    ],
)
def test_what_is_not_http_is_refused(server: Server, nonsense: bytes) -> None:
    """Status 400 and an end, and the server goes on."""
    assert statuses(answers(connect(server.port), nonsense)) == [b"400"]
    assert ask(server.port)[0] == 200


def test_what_is_not_http_is_not_logged_each_time(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can fill a disk with it."""
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n\r\n"
    for request in [b"nonsense\r\n\r\n", upgrade] * 5:
        answers(connect(server.port), request)
    told = [record.getMessage() for record in caplog.records]

    assert len(told) == len(set(told)) <= 3


def test_an_exception_is_answered_500_and_logged_without_the_client_learning_of_it(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """No traceback leaves the process; the next request is answered."""
    status, answer = ask(server.port, "/fail", b"body-of-an-object")

    assert (status, answer) == (500, b"Internal Server Error")
    assert "secret-of-the-application" in caplog.text
    assert "body-of-an-object" not in caplog.text
    assert ask(server.port)[0] == 200


def test_what_is_quick_does_not_wait_for_what_takes_long() -> None:
    """Long bodies and rules hold the pool; a usual review and a probe are answered beside them."""
    begun, finish = threading.Semaphore(0), threading.Event()

    def slow(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if threading.current_thread().name.startswith("wsgi"):
            begun.release()
            finish.wait(PATIENCE)
        return application(environ, start_response)

    with serving(slow, config(threads=2)) as server, ThreadPoolExecutor() as clients:
        long = [clients.submit(ask, server.port, body=body) for body in (b"x" * 2**15, b'{"ConfigMap"}')]
        all_begun = [begun.acquire(timeout=PATIENCE) for _ in long]
        quick = [ask(server.port, body=body)[0] for body in (b"{}", None)]
        finish.set()

    assert all(all_begun)
    assert [200] * 4 == [*quick, *(each.result()[0] for each in long)]


def test_what_was_not_quick_after_all_holds_up_the_event_loop_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next ones run in a thread, until the while is over."""
    monkeypatch.setattr(webhook.server.wsgi_adapter, "_CAREFUL", 0.3)
    loops: list[bool] = []

    def working(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        loops.append(threading.current_thread().name == "server")
        until = time.thread_time() + (0.01 if environ["PATH_INFO"] == "/long" else 0)
        while time.thread_time() < until:
            pass
        return application(environ, start_response)

    with serving(working) as server:
        answered = [ask(server.port, path, b"{}")[0] for path in ("/", "/long", "/long", "/")]
        time.sleep(0.4)
        answered.append(ask(server.port, "/", b"{}")[0])

    assert [200] * 5 == answered
    assert [True, True, False, False, True] == loops


# --- limits


def test_a_body_of_the_limit_is_taken_and_one_byte_more_gets_413() -> None:
    """Whether its length is declared or it comes in chunks, and the connection ends with the refusal."""
    with serving(application, config(body_limit=1000)) as server:

        def status(size: int, *, chunked: bool) -> int:
            with client(server.port) as connection:
                body = iter([b"x" * (size - 1), b"x"]) if chunked else b"x" * size
                connection.request("POST", "/", body, encode_chunked=chunked)
                return connection.getresponse().status

        assert [status(1000, chunked=chunked) for chunked in (False, True)] == [200, 200]
        assert [status(1001, chunked=chunked) for chunked in (False, True)] == [413, 413]


def test_a_client_that_still_sends_reads_why_it_was_refused(server: Server) -> None:
    """Nearly twice the default limit of 7 MiB, sent without looking at the answer."""
    body = b"x" * (27 * 2**19)

    assert [ask(server.port, body=body)[0] for _ in range(5)] == [413] * 5


def test_bodies_that_together_pass_the_limit_get_503_until_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory is bounded by shedding; what was held is given back."""
    monkeypatch.setattr(webhook.server.wsgi_adapter, "_STALLED", 2 * PATIENCE)
    with serving(application, config(bodies_limit=2500)) as server:
        with stalled(half_body, server.port, 2):
            refused = ask_until(server.port, 503, b"x" * 1000)
            with client(server.port) as connection:
                connection.request("POST", "/", b"x" * 1000)
                assert "1" == connection.getresponse().headers["Retry-After"]
        taken = ask_until(server.port, 200, b"x" * 1000)

    assert (refused, taken) == (503, 200)


def ask_until(port: int, wanted: int, body: bytes) -> int:
    """Ask until the status is the one wanted, for the server may not have seen all yet; return the last."""
    deadline = time.monotonic() + PATIENCE
    while (status := ask(port, body=body)[0]) != wanted and time.monotonic() < deadline:
        pass
    return status


def test_a_body_that_does_not_come_gets_408() -> None:
    """After the client's time-out; the connection is closed."""
    with serving(application, config(client_timeout=0.3)) as server:
        assert statuses(answers(half_body(server.port), b"")) == [b"408"]


def test_a_head_that_does_not_end_is_cut_however_it_trickles() -> None:
    """The clock runs from its first byte and is not wound by the next."""
    with serving(application, config(client_timeout=0.3)) as server, connect(server.port) as connection:
        connection.settimeout(0.02)

        assert is_cut(connection, b"X")


def is_cut(connection: socket.socket, trickle: bytes = b"") -> bool:
    """Send the bytes again and again; tell whether the server ends the connection before we lose patience."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            connection.sendall(trickle)
            if connection.recv(65536) == b"":
                return True
        except TimeoutError:
            continue
        except OSError:
            return True
    return False


def test_a_silent_connection_outlives_the_clients_time_out_and_is_answered() -> None:
    """The API server dials spare connections and keeps them for later; they are idle, not stalled."""
    with serving(application, config(client_timeout=0.1)) as server, silent_tls(server.port) as spare:
        spare.settimeout(0.4)
        with pytest.raises(TimeoutError):
            spare.recv(1)
        spare.settimeout(PATIENCE)

        assert statuses(answers(spare, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")) == [b"200"]


def test_an_idle_connection_is_closed_after_the_keep_alive_time() -> None:
    """Whether it was ever used or not."""
    with serving(application, config(keep_alive=1)) as server:
        used, unused = connect(server.port), connect(server.port)
        started = time.monotonic()
        raw = answers(used, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

        assert answers(unused, b"") == b""
        assert statuses(raw) == [b"200"]
        assert 0.9 < time.monotonic() - started < PATIENCE


def test_the_default_keep_alive_is_longer_than_the_api_servers() -> None:
    """90 s there; who closes first loses a review."""
    assert ServerConfig().keep_alive > 90


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS.keys())
def test_eighty_stalled_clients_leave_every_honest_request_answered(
    server: Server, stall: Callable[[int], socket.socket]
) -> None:
    """They wait in memory, and no thread waits with them."""
    with stalled(stall, server.port, 80):
        answered = [ask(server.port)[0] for _ in range(20)]

    assert answered == [200] * 20


def test_a_burst_of_forty_new_clients_is_answered(server: Server) -> None:
    """All at once, each with a handshake of its own."""
    with ThreadPoolExecutor(40) as clients:
        answered = list(clients.map(lambda _: ask(server.port, body=b"{}")[0], range(40)))

    assert answered == [200] * 40


def test_beyond_the_limit_of_connections_the_one_that_waited_longest_makes_room() -> None:
    """So silent clients, however many, do not keep others out, and one in work is not touched."""
    with serving(application, config(connections=4)) as server, half_body(server.port) as working:
        first, *others = [silent_tls(server.port) for _ in range(3)]
        answered = ask(server.port)[0]
        cut = is_cut(first)
        raw = answers(working, b" " * 1000 + b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        for other in (first, *others):
            other.close()

    assert (answered, cut, statuses(raw)) == (200, True, [b"200", b"200"])


def test_a_client_that_does_not_read_its_answers_is_cut() -> None:
    """Or it would hold the drain for ever."""
    called = threading.Semaphore(0)

    def counted(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        called.release()
        return application(environ, start_response)

    server = Server(counted, config(client_timeout=0.3), TlsCertificate(new_pair))
    server.start()
    with connect(server.port) as connection:
        connection.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
        for _ in range(3):
            assert called.acquire(timeout=PATIENCE)
        server.stop()
        received = sum(iter(lambda: len(read_or_nothing(connection)), 0))

    assert received < 3 * len(BIG)


def read_or_nothing(connection: socket.socket) -> bytes:
    """Return what comes next, nothing at an end of any kind."""
    try:
        return connection.recv(2**20)
    except OSError:
        return b""


# --- drain


def test_a_request_in_work_is_finished_before_the_server_stops() -> None:
    """And new connections are refused by then."""
    begun, finish = threading.Event(), threading.Event()

    def slow(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        begun.set()
        finish.wait(PATIENCE)
        return application(environ, start_response)

    server = Server(slow, config(), TlsCertificate(new_pair))
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
    """Return when the listener is closed and a connection refused."""
    deadline = time.monotonic() + PATIENCE
    while server._socket.fileno() != -1 and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, server.port))


def test_what_was_accepted_last_may_still_send_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is not closed for being silent in the moment in which the listener is."""
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
from webhook.server.server import Server, ServerConfig
from webhook.server.tls import TlsCertificate

ready = True

def drain():
    global ready
    ready = False
    print("draining", flush=True)

def application(environ, start_response):
    start_response("200 OK" if ready or environ["PATH_INFO"] != "/readyz" else "503 Draining", [])
    return [b"answer"]

tls = TlsCertificate.from_files(Path(sys.argv[1]), Path(sys.argv[2]))
server = Server(application, ServerConfig("127.0.0.1", 0, drain_seconds=float(sys.argv[3])), tls, drain)
print(server.port, flush=True)
sys.exit(server.run())
"""


@contextmanager
def process(directory: Path, drain_seconds: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Yield a server in a process of its own and its port."""
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
    """Readiness turns false, requests are answered on, the listener closes, the exit status is 0."""
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
        said = running.stderr.read()

    assert (readiness, status, said) == (503, 0, "")
    assert [lost for _, lost in counted] == [0] * 8
    assert all(answered > 0 for answered, _ in counted)


async def load(port: int, clients: int) -> list[tuple[int, int]]:
    """Load with so many clients until none is taken; return how many requests each had answered, and lost."""
    return await asyncio.gather(*(load_until_refused(port) for _ in range(clients)))


async def load_until_refused(port: int) -> tuple[int, int]:
    """Ask over kept connections, one after another."""
    answered = lost = 0
    while True:
        try:
            reader, writer = await asyncio.open_connection(HOST, port, ssl=TRUSTING)
        except OSError:  # refused, or reset before the handshake: nothing was asked
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
