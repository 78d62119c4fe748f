"""What a request costs over TLS keep-alive: the gate beside the same server answering a constant.

Each runs as a process of its own and all are asked in turn; CPU is the server's, without the client's.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from tests.bench.timing import show

CONNECTIONS = 8
ROUNDS = 5
# Requests of a connection in a round: some tenths of a second in all.
REQUESTS = 100
BODY = (Path(__file__).parents[1] / "reviews/005-create-pod-mps/request.json").read_bytes()
ANSWER = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"0","allowed":true}}'
)
SERVERS = {"a constant": "constant", "Flask, a constant": "flask", "the gate": "gate"}


def serve(what: str) -> None:
    """Serve one of SERVERS on a free port, printing it."""
    from flask import Flask, request  # noqa: PLC0415

    from rules.load import DEFAULT_NAMESPACE  # noqa: PLC0415
    from webhook.app import create_app  # noqa: PLC0415
    from webhook.cli.inputs import RuleSource  # noqa: PLC0415
    from webhook.gate import Gate  # noqa: PLC0415
    from webhook.server import Server, ServerConfig  # noqa: PLC0415
    from webhook.tls import TlsCertificate  # noqa: PLC0415

    def constant(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        environ["wsgi.input"].read()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(ANSWER)))]
        start_response("200 OK", headers)
        return [ANSWER]

    flask = Flask("constant", static_folder=None)

    @flask.post("/mutate")
    def mutate() -> bytes:
        request.get_data(cache=False)
        return ANSWER

    apps = {
        "constant": constant,
        "flask": flask,
        "gate": create_app(Gate(RuleSource(DEFAULT_NAMESPACE).load([]))),
    }
    config = ServerConfig("127.0.0.1", 0, drain_seconds=0)
    server = Server(apps[what], config, TlsCertificate.self_signed(["127.0.0.1"]))  # type: ignore[arg-type]
    print(server.port, flush=True)
    server.run()


@contextmanager
def running(what: str) -> Iterator[tuple[int, int]]:
    """Run a server; yields its process and port."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.roundtrips", what],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout
        yield process.pid, int(process.stdout.readline())
        process.terminate()


def cpu_seconds(process: int) -> float:
    """Return the CPU that a process has used; Linux."""
    fields = Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connect(port: int) -> ssl.SSLSocket:
    """Return a connection; the certificate is made at start and nobody's business here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain)


def ask(connection: ssl.SSLSocket, times: int) -> None:
    """Send the review so many times, each after the answer before."""
    head = f"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n"
    request = head.encode() + BODY
    for _ in range(times):
        connection.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65536)
        top, _, rest = received.partition(b"\r\n\r\n")
        assert top.startswith(b"HTTP/1.1 200"), top
        length = int(top.lower().partition(b"content-length:")[2].partition(b"\r")[0])
        while len(rest) < length:
            rest += connection.recv(65536)


def main() -> None:
    """Print requests a second and CPU of each server, with ratios to the constant."""
    rates = dict.fromkeys(SERVERS, 0.0)
    cpu = dict.fromkeys(SERVERS, float("inf"))
    with ExitStack() as stack:
        servers = {name: stack.enter_context(running(what)) for name, what in SERVERS.items()}
        pool = stack.enter_context(ThreadPoolExecutor(CONNECTIONS))
        connections = {
            name: [stack.enter_context(connect(port)) for _ in range(CONNECTIONS)]
            for name, (_, port) in servers.items()
        }
        for _ in range(ROUNDS):
            for name, (process, _) in servers.items():
                list(pool.map(ask, connections[name], [10] * CONNECTIONS))
                start, used = perf_counter(), cpu_seconds(process)
                list(pool.map(ask, connections[name], [REQUESTS] * CONNECTIONS))
                count = REQUESTS * CONNECTIONS
                rates[name] = max(rates[name], count / (perf_counter() - start))
                cpu[name] = min(cpu[name], (cpu_seconds(process) - used) / count * 1e6)
    show(
        f"requests a second, {CONNECTIONS} connections, review of {len(BODY)} bytes",
        "1/s",
        rates,
        "a constant",
    )
    show("CPU of the server for a request", "µs", cpu, "a constant")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(sys.argv[1])
    else:
        main()
