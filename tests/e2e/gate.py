"""`gpugate serve` as a process, and what its pages say."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

from certs.authority import make_authority, make_leaf

ROOT = Path(__file__).parents[2]
# Seconds in which something must have happened at all, on a machine that has other things to do.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Served:
    """A gate that runs on this host. ca_pem: what its certificate is to be verified by."""

    process: subprocess.Popen[bytes]
    port: int
    ca_pem: bytes

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of one of its pages."""
        trust = ssl.create_default_context(cadata=self.ca_pem.decode())
        url = f"https://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=10, context=trust) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ready(self) -> bool:
        """Tell whether it is ready."""
        return self.get("/readyz")[0] == HTTPStatus.OK

    def sample(self, name: str) -> float:
        """Return a metric's value, by its name with labels; 0 where there is none yet."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else 0.0


def eventually(happened: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Look until something is so; the last look begins within so many seconds."""
    deadline = time.monotonic() + within_s
    while not (late := time.monotonic() > deadline) and not happened():
        time.sleep(0.02)
    assert not late, f"not within {within_s} s"


@contextmanager
def serving(folder: Path, kubeconfig: Path, *options: str) -> Iterator[Served]:
    """Run a gate that follows a cluster, from the moment it listens until the block ends.

    folder: for its certificate and log, `serve.log`.
    """
    now = datetime.now(UTC)
    authority = make_authority("gpugate e2e", now)
    leaf = make_leaf(authority, ["127.0.0.1"], now)
    certificate, key, log = (folder / name for name in ("tls.crt", "tls.key", "serve.log"))
    certificate.write_bytes(leaf.certificate_pem)
    key.write_bytes(leaf.key_pem)
    argv = [
        *(sys.executable, "-m", "webhook", "serve", "--kubeconfig", str(kubeconfig)),
        *("--host", "127.0.0.1", "--port", "0", "--drain-seconds", "0"),
        *("--tls-cert", str(certificate), "--tls-key", str(key), *options),
    ]
    with log.open("wb") as stderr:
        process = subprocess.Popen(argv, stderr=stderr, cwd=ROOT)
    try:
        eventually(lambda: _port(log) is not None or process.poll() is not None)
        port = _port(log)
        assert port, log.read_text("utf-8")
        yield Served(process, port, authority.certificate_pem)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _port(log: Path) -> int | None:
    found = re.search(r"https://127\.0\.0\.1:(\d+)", log.read_text("utf-8"))
    return int(found[1]) if found else None
