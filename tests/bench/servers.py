"""The trial of WSGI servers of docs/adr/0001-server.md: their speed, and how they handle malicious clients.

Runs gpugate's server, and gunicorn, granian, httptools and uvloop if they are installed. Each server is a
process that serves the same Flask application over TLS. Prints one table; takes about three minutes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio.sslproto import SSLProtocol
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from flask import Flask, request

from tests.bench.trials import BURST, STALLED, TRIALS, Running, answered, connection_kib, speed, write
from tests.support.serving import HOST, new_pair

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 2

application = Flask("trial", static_folder=None)


@application.get("/")
def root() -> str:
    """Answer a probe."""
    return "ok"


@application.post("/mutate")
def mutate() -> dict[str, Any]:
    """Decode a review and allow it."""
    review = json.loads(request.get_data(cache=False))
    return {"response": {"uid": review["request"]["uid"], "allowed": True}}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A server: its command, with the placeholders `{port}`, `{cert}` and `{key}`.

    needs: modules without which it is skipped. trials: those to run in addition to the speed; a variant of
    another candidate runs only those whose result may differ.
    """

    name: str
    command: list[str]
    needs: tuple[str, ...] = ()
    trials: tuple[str, ...] = tuple(TRIALS)


def _ours(kind: str, threads: int) -> list[str]:
    return [sys.executable, __file__, kind, str(threads), "{port}", "{cert}", "{key}"]


def _gunicorn(threads: int) -> list[str]:
    options = (
        f"--worker-class gthread --workers 1 --threads {threads} --keep-alive 120 --bind {HOST}:{{port}}"
    )
    files = ["--certfile", "{cert}", "--keyfile", "{key}", "tests.bench.servers:application"]
    return [sys.executable, "-m", "gunicorn", *options.split(), *files]


def _granian(threads: int) -> list[str]:
    options = f"--interface wsgi --workers 1 --blocking-threads {threads} --host {HOST} --port {{port}}"
    files = ["--ssl-certificate", "{cert}", "--ssl-keyfile", "{key}", "tests.bench.servers:application"]
    return [sys.executable, "-m", "granian", *options.split(), *files]


# The first is the chosen one; the others are compared with it.
CANDIDATES = [
    Candidate("gpugate, 4 threads", _ours("gpugate", 4)),
    Candidate("gpugate, 1 thread", _ours("gpugate", 1), trials=()),
    Candidate("gpugate, 16 threads", _ours("gpugate", 16), trials=()),
    Candidate("uvicorn h11, our adapter", _ours("h11", 4), trials=("endless head",)),
    Candidate("uvicorn httptools, our adapter", _ours("httptools", 4), ("httptools",), ("endless head",)),
    Candidate("uvicorn uvloop, our adapter", _ours("h11-uvloop", 4), ("uvloop",), ("endless head",)),
    Candidate("gunicorn gthread, 4 threads", _gunicorn(4), ("gunicorn",)),
    Candidate("gunicorn gthread, 64 threads", _gunicorn(64), ("gunicorn",)),
    Candidate("granian wsgi, 4 threads", _granian(4), ("granian",)),
    Candidate("granian wsgi, 64 threads", _granian(64), ("granian",)),
]


def serve(kind: str, threads: str, port: str, cert: str, key: str) -> None:
    """Serve the trial's application: our server, or uvicorn's own with our WSGI adapter."""
    import uvicorn

    import webhook.server.server
    from webhook.server.tls import TlsCertificate
    from webhook.server.wsgi_adapter import WsgiAdapter

    if kind == "gpugate":
        webhook.server.server._RELOAD_INTERVAL = 0.5  # the trial does not wait five seconds
        config = webhook.server.server.ServerConfig(HOST, int(port), threads=int(threads), drain_seconds=0)
        tls = TlsCertificate.from_files(Path(cert), Path(key))
        sys.exit(webhook.server.server.Server(application.wsgi_app, config, tls).run())
    SSLProtocol.max_size = 256 * 2**10  # the default of asyncio
    with ThreadPoolExecutor(int(threads)) as pool:
        adapter = WsgiAdapter(
            application.wsgi_app, pool, body_limit=2**20, body_timeout=10, bodies_limit=2**26
        )

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["state"]["verified"] = False
            await adapter(scope, receive, send)

        http, _, loop = kind.partition("-")
        options: dict[str, Any] = {"http": http, "loop": loop or "asyncio", "interface": "asgi3"}
        options |= {"lifespan": "off", "access_log": False, "timeout_keep_alive": 120}
        uvicorn.run(app, host=HOST, port=int(port), ssl_certfile=cert, ssl_keyfile=key, **options)


@contextmanager
def running(candidate: Candidate) -> Iterator[Running]:
    """Start a server, wait for its first answer, and end it with all its processes."""
    with TemporaryDirectory() as name:
        with socket.create_server((HOST, 0)) as free:
            port = free.getsockname()[1]
        write(Path(name), new_pair())
        command = [
            part.format(port=port, cert=f"{name}/tls.crt", key=f"{name}/tls.key")
            for part in candidate.command
        ]
        devnull = subprocess.DEVNULL
        process = subprocess.Popen(command, stdout=devnull, stderr=devnull, start_new_session=True)
        try:
            deadline = time.monotonic() + 20
            while not answered(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{candidate.name} does not start: {' '.join(command)}")
                time.sleep(0.05)
            yield Running(process, port, Path(name), hang_up="gpugate" not in command)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def main() -> None:
    """Run the trial and print its table."""
    present = [one for one in CANDIDATES if all(find_spec(module) for module in one.needs)]
    print(
        f"skipped, not installed: {', '.join(one.name for one in CANDIDATES if one not in present) or 'none'}"
    )
    rate, cpu, memory, idle = (dict.fromkeys((one.name for one in present), 0.0) for _ in range(4))
    for _ in range(ROUNDS):
        for one in present:
            with running(one) as server:
                figures = speed(server)
                # The fastest round of each, which other processes disturbed least.
                rate[one.name], cpu[one.name] = max((rate[one.name], cpu[one.name]), figures)
                memory[one.name] = server.memory_mib()
                idle[one.name] = connection_kib(server)
    width = max(len(one.name) for one in present)
    print(f"{'':{width}}  req/s  CPU us  MiB  KiB/idle  {'  '.join(TRIALS)}")
    for one in present:
        ratio = rate[one.name] / rate[present[0].name]
        line = f"{one.name:{width}}  {ratio:5.2f}  {cpu[one.name]:6.0f}  {memory[one.name]:3.0f}"
        line += f"  {idle[one.name]:8.0f}"
        for name, trial in TRIALS.items():
            result = ""
            if name in one.trials:
                with running(one) as server:
                    result = "yes" if trial(server) else "NO"
            line += f"  {result:>{len(name)}}"
        print(line.rstrip(), flush=True)
    print(f"1.00 is {rate[present[0].name]:.0f} req/s. KiB/idle: nan if {STALLED} connections are refused.")
    print(f"yes: all are answered with {STALLED} stalled clients, in a burst of {BURST}, while certificates")
    print("change, and after a key of another certificate; a head of 4 MiB is not read to its end.")


if __name__ == "__main__":
    if sys.argv[1:]:
        serve(*sys.argv[1:])
    else:
        main()
