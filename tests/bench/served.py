"""Servers as processes: `gpugate serve`, the same server with a constant answer, those before, and nginx."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from rules.schema.config_map import DEFAULT_NAMESPACE
from tests.bench import before
from tests.bench.cases import ROOT, catalog, node_of
from tests.bench.client import Webhook, retrying
from tests.e2e.daemon import reserve_port
from tests.support.fake_api import FakeApi, running
from tests.support.tls import unverified
from webhook.cluster.resource import NODES, config_maps
from webhook.server.http import Request, Response
from webhook.server.tls import TlsCertificate, self_signed_pair

HOST: Final = "127.0.0.1"
# Seconds until a server has started on a busy machine.
_PATIENCE: Final = 60.0
_UID: Final = re.compile(rb'"uid":\s*"([^"]*)"')
_ALLOWED: Final = (
    b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"%s","allowed":true}}'
)
# One process, so that its CPU is that of the server. It reads a body and answers without a look at it. No
# limit of requests on a connection. Its directories, because the usual ones are root's.
_NGINX: Final = """\
daemon off; master_process off; pid nginx.pid;
events {{}}
http {{
  access_log off;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  keepalive_requests 1000000000; keepalive_timeout 120s;
  default_type application/json;
  server {{
    listen {host}:{port} ssl;
    ssl_certificate {directory}/tls.crt; ssl_certificate_key {directory}/tls.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    location / {{
      return 200 '{answer}';
    }}
  }}
}}
"""


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
def gpugate(*options: str, old: bool = False, python: str = sys.executable) -> Iterator[Served]:
    """Run `gpugate serve` with the built-in rules while the block runs; its log goes to /dev/null.

    old: that of `before`. python: runs it otherwise.
    """
    arguments = ["-m", "webhook", "serve", "--log-format", "json", *options]
    with _running(arguments, old=old, python=python) as served:
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
    with running(fake), TemporaryDirectory() as folder:
        yield "--kubeconfig", str(fake.kubeconfig(Path(folder)))


@contextmanager
def constant(*options: str, old: bool = False) -> Iterator[Served]:
    """Run the server of `gpugate serve` with a constant answer while the block runs.

    old: that of `before`.
    """
    kind = ["wsgi"] if old else []
    with _running(["-m", "tests.bench.served", *kind, *options], old=old) as served:
        yield served


def nginx_program() -> str | None:
    """Return the path of nginx, if it is installed; Debian has it where only root looks."""
    return shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin")


@contextmanager
def nginx() -> Iterator[Served]:
    """Run nginx with a constant answer over TLS, as one process, while the block runs."""
    with TemporaryDirectory() as name, _reserved() as port:
        directory = Path(name)
        pair = self_signed_pair([HOST])
        (directory / "tls.crt").write_bytes(pair.certificate_pem)
        (directory / "tls.key").write_bytes(pair.key_pem)
        answer = (_ALLOWED % b"").decode()
        text = _NGINX.format(directory=directory, host=HOST, port=port, answer=answer)
        (directory / "nginx.conf").write_text(text, "ascii")
        program = nginx_program()
        if program is None:
            raise FileNotFoundError("nginx")
        with _started([program, "-p", name, "-c", "nginx.conf", "-e", os.devnull], port, ROOT) as served:
            yield served


@contextmanager
def _running(arguments: list[str], *, old: bool, python: str = sys.executable) -> Iterator[Served]:
    """Run a Python server. old: of the sources and packages of `before`."""
    python, directory = (before.PYTHON, before.SOURCE) if old else (python, ROOT)
    with _reserved() as port:
        options = ["--host", HOST, "--port", str(port), "--drain-seconds", "0"]
        with _started([python, *arguments, *options], port, directory) as served:
            yield served


@contextmanager
def _reserved() -> Iterator[int]:
    """Yield a port that no other process gets."""
    with reserve_port() as reserved:
        yield reserved.getsockname()[1]


@contextmanager
def _started(command: list[str], port: int, directory: Path) -> Iterator[Served]:
    """Run a command until it listens on the port, and while the block runs."""
    devnull = subprocess.DEVNULL
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=devnull, stderr=devnull, cwd=directory)
    try:
        retrying(lambda: process.poll() is not None or _is_ready(port), _PATIENCE)
        if process.poll() is not None:
            raise RuntimeError(f"exited before it was ready: {' '.join(command)}")
        yield Served(process.pid, port, time.perf_counter() - start, cpu_s(process.pid))
    finally:
        process.kill()
        process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"https://{HOST}:{port}/readyz", timeout=5, context=unverified()):
            return True
    except (urllib.error.URLError, OSError):
        return False


def _answer(body: bytes | bytearray) -> bytes:
    match = _UID.search(body)
    return _ALLOWED % (match[1] if match else b"")


def application(request: Request) -> Response:
    """Allow a review."""
    return Response(HTTPStatus.OK, _answer(request.body))


def main(*options: str) -> int:
    """Serve a constant answer in the server of `gpugate serve`."""
    from webhook.admission.work import schedule
    from webhook.server.server import Server, ServerConfig

    arguments: dict[str, Any] = dict(zip(options[::2], options[1::2], strict=True))
    config = ServerConfig(host=arguments["--host"], port=int(arguments["--port"]), drain_seconds=0)
    certificate = (
        TlsCertificate.from_files(Path(arguments["--tls-cert"]), Path(arguments["--tls-key"]))
        if "--tls-cert" in arguments
        else TlsCertificate.self_signed([HOST])
    )
    return Server(application, config, certificate, schedule=schedule).run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
