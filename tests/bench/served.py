"""Servers as processes: `gpugate serve`, and the same server with an application of a constant answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final

from rules.schema.loader import DEFAULT_NAMESPACE
from tests.bench.cases import ROOT, catalog, node_of
from tests.bench.client import Webhook, retrying, unverified
from tests.e2e.daemon import reserve_port
from tests.support.fake_api import FakeApi, running
from webhook.cluster.resource import NODES, config_maps

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

HOST: Final = "127.0.0.1"
# Seconds until a server has started on a busy machine.
_PATIENCE: Final = 60.0
_UID: Final = re.compile(rb'"uid":\s*"([^"]*)"')


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is ready. start_s: seconds from start until ready; start_cpu_s: CPU seconds by then."""

    process: int
    port: int
    start_s: float
    start_cpu_s: float

    def webhook(self) -> Webhook:
        """Return its webhook."""
        return Webhook(f"https://{HOST}:{self.port}/mutate", unverified())

    def cpu_s(self) -> float:
        """Return the seconds of CPU that it has used."""
        return cpu_s(self.process)

    def resident_mb(self) -> float:
        """Return the megabytes of its resident memory."""
        (line,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process}/status").read_text("ascii"))
        return int(line) * 1024 / 1e6


def cpu_s(process: int) -> float:
    """Return the seconds of CPU that a process has used; Linux.

    The clock is that of clock_getcpuclockid(3): the inverted process and CPUCLOCK_SCHED.
    """
    return time.clock_gettime(~process << 3 | 2)


@contextmanager
def gpugate(*options: str) -> Iterator[Served]:
    """Run `gpugate serve` with the built-in rules while the block runs; its log goes to /dev/null."""
    with _running([sys.executable, "-m", "webhook", "serve", "--log-format", "json", *options]) as served:
        yield served


@contextmanager
def following(nodes: int) -> Iterator[tuple[str, str]]:
    """Yield the option with which `gpugate serve` watches a cluster of so many nodes and the built-in rules.

    The cluster is an API server in the memory of this process.
    """
    fake = FakeApi()
    for document in catalog():
        fake.put(config_maps(DEFAULT_NAMESPACE), document)
    for number in range(nodes):
        fake.put(NODES, node_of(number))
    with running(fake), NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(fake.kubeconfig(), file)
        file.flush()
        yield "--kubeconfig", file.name


@contextmanager
def constant(kind: str = "wsgi", *options: str) -> Iterator[Served]:
    """Run the same server with an application of `application` while the block runs."""
    with _running([sys.executable, "-m", "tests.bench.served", kind, *options]) as served:
        yield served


@contextmanager
def _running(command: list[str]) -> Iterator[Served]:
    reserved = reserve_port()
    port = reserved.getsockname()[1]
    command += ["--host", HOST, "--port", str(port), "--drain-seconds", "0"]
    devnull = subprocess.DEVNULL
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=devnull, stderr=devnull, cwd=ROOT)
    try:
        retrying(lambda: process.poll() is not None or _is_ready(port), _PATIENCE)
        if process.poll() is not None:
            raise RuntimeError(f"exited before it was ready: {' '.join(command)}")
        yield Served(process.pid, port, time.perf_counter() - start, cpu_s(process.pid))
    finally:
        process.kill()
        process.wait()
        reserved.close()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"https://{HOST}:{port}/readyz", timeout=5, context=unverified()):
            return True
    except (urllib.error.URLError, OSError):
        return False


def application(kind: str) -> WSGIApplication:
    """Return an application that allows each review: `wsgi`, with nothing else, or `flask`."""

    def answer(body: bytes) -> bytes:
        match = _UID.search(body)
        return (
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",'
            b'"response":{"uid":"%s","allowed":true}}' % (match[1] if match else b"")
        )

    def wsgi(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        content = answer(environ["wsgi.input"].read())
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start_response("200 OK", headers)
        return [content]

    if kind == "wsgi":
        return wsgi

    from flask import Flask, request

    flask = Flask("constant", static_folder=None)
    flask.get("/readyz")(lambda: "ok")

    @flask.post("/mutate")
    def mutate() -> bytes:
        return answer(request.get_data(cache=False))

    return flask.wsgi_app


def main(kind: str, *options: str) -> int:
    """Serve an application in the server of `gpugate serve`."""
    from webhook.admission.review import is_quick
    from webhook.server.server import Server, ServerConfig
    from webhook.server.tls import TlsCertificate

    arguments: dict[str, Any] = dict(zip(options[::2], options[1::2], strict=True))
    config = ServerConfig(arguments["--host"], int(arguments["--port"]), drain_seconds=0)
    names = [HOST]
    certificate = (
        TlsCertificate.from_files(Path(arguments["--tls-cert"]), Path(arguments["--tls-key"]))
        if "--tls-cert" in arguments
        else TlsCertificate.self_signed(names)
    )
    return Server(application(kind), config, certificate, is_quick=is_quick).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
