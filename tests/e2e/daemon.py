"""A server process of a test: it keeps its port, its start waits for readiness, it ends on demand."""

from __future__ import annotations

import contextlib
import http.client
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from pathlib import Path

HOST: Final = "127.0.0.1"
# Seconds. The API server with an empty etcd is ready in under 3 s on two shared cores; thirty times that is a
# hung one, even on a machine that compiles something else meanwhile.
READY_S: Final = 90.0
# Seconds between two checks of a server that is not ready yet, and the timeout of one check.
POLL_S: Final = 0.1
LOOK_S: Final = 2.0
# Seconds that a server gets to end by itself; all three together take about one.
STOP_S: Final = 60.0


def reserve_port() -> socket.socket:
    """Return a socket that holds a free port of 127.0.0.1 until it is closed.

    On Linux a server that sets SO_REUSEADDR, as every Go server does, can listen on the port of a bound
    socket that does not; no other process gets the port, even while the server is down.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, 0))
    return held


class Daemon:
    """A server process that is started once it answers; all its runs write to one log file.

    trust: for HTTPS; None: it answers by HTTP.
    """

    def __init__(
        self, argv: Sequence[str], port: int, health: str, trust: ssl.SSLContext | None, log: Path
    ) -> None:
        self._argv, self._port, self._health, self._trust, self._log = argv, port, health, trust, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and return once its health path answers 200.

        RuntimeError, with the end of the log, when it ends before that or takes longer than READY_S.
        """
        with self._log.open("ab") as log:
            process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._process = process
        deadline = time.monotonic() + READY_S
        while not self._answers():
            if time.monotonic() < deadline:
                try:
                    process.wait(POLL_S)
                except subprocess.TimeoutExpired:
                    continue
            self.kill()
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])
            raise RuntimeError(f"{self._argv[0]} did not get ready, its log ends:\n{tail}")

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self._process is not None
        return self._process.pid

    def terminate(self) -> int:
        """Send SIGTERM and return the exit status; it has STOP_S for that."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(STOP_S)

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL, as the kernel does when memory is short, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End the process with SIGTERM if it runs, and kill it only when that takes longer than STOP_S."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        self.kill()

    def _answers(self) -> bool:
        connection = (
            http.client.HTTPSConnection(HOST, self._port, timeout=LOOK_S, context=self._trust)
            if self._trust
            else http.client.HTTPConnection(HOST, self._port, timeout=LOOK_S)
        )
        try:
            connection.request("GET", self._health)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
