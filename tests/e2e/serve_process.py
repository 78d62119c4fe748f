"""`gpugate serve` as a process, and requests to its endpoints."""

from __future__ import annotations

import http.client
import os
import re
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from tests.e2e.daemon import HOST, Daemon
from tests.support.tls import unverified

# Seconds until a test fails.
PATIENCE_S: Final = 60.0
SERVE: Final = ("-m", "webhook", "serve")
# With lifetimes of certificates in seconds.
QUICK_SERVE: Final = (str(Path(__file__).with_name("quick_serve.py")), "serve")
# A client that does not verify certificates, as probes of the kubelet; the API server does.
_BLIND: Final = unverified()


def eventually(happened: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Wait for a condition; the last check starts within so many seconds, or more on a busy machine.

    That is the seconds times the number of processes that share a core.
    """
    within_s *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    deadline = time.monotonic() + within_s
    while not (late := time.monotonic() > deadline) and not happened():
        time.sleep(0.02)
    assert not late, f"not within {within_s:.1f} s"


def ask(
    port: int, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Return status and body of a response; (0, "") without one."""
    connection = http.client.HTTPSConnection(HOST, port, timeout=10, context=_BLIND)
    try:
        connection.request("GET" if body is None else "POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""
    finally:
        connection.close()


class ServeProcess(Daemon):
    """A process of `gpugate serve`; a context manager. It counts as started once it is alive.

    port: of the server. program: arguments of Python.
    """

    def __init__(self, port: int, options: Sequence[str], log: Path, program: Sequence[str] = SERVE) -> None:
        argv = [sys.executable, "-P", *program, *options, f"--port={port}"]
        super().__init__(argv, port, "/healthz", _BLIND, log)
        self.port = port

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def ready(self) -> bool:
        """Return whether it is ready."""
        return ask(self.port, "/readyz")[0] == http.HTTPStatus.OK

    def sample(self, name: str) -> float:
        """Return a metric's value, by its name with labels; 0 if there is none yet."""
        return sum(self._samples(re.escape(name)))

    def reviews(self) -> float:
        """Return the number of answered reviews."""
        return sum(self._samples(r"gpugate_admission_requests_total\{.*\}"))

    def shown(self) -> bytes:
        """Return the certificate of a new connection, as PEM."""
        return ssl.get_server_certificate((HOST, self.port), timeout=10).encode()

    def _samples(self, pattern: str) -> list[float]:
        text = ask(self.port, "/metrics")[1]
        return [float(line) for line in re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE)]
