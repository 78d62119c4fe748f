"""Trials of a server: stalled clients, bursts, new certificates, and a load that measures its speed."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.serving import STALLS, ask, connect, new_pair, stalled

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from certs.authority import KeyPair

STALLED = 80
WELL_BEHAVED = 10
BURST = 40
CONNECTIONS = 8
ROUND_SECONDS = 1.2
# Seconds until a server has read new files, or has exited because of them; granian exits after four.
SETTLING = 6
# Bytes of a request head without an end: as much as a thousand usual heads.
ENDLESS = 4 * 2**20
# A review of the usual size, 6 KB.
BODY = json.dumps({"request": {"uid": "0", "object": {"env": ["x" * 64] * 84}}}).encode()
HEAD = (
    b"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    % len(BODY)
)


@dataclass(frozen=True, slots=True)
class Running:
    """A running server. directory: of its certificate; hang_up: whether it reads the files on SIGHUP."""

    process: subprocess.Popen[bytes]
    port: int
    directory: Path
    hang_up: bool

    def change(self, pair: KeyPair) -> None:
        """Replace the files of the certificate; send SIGHUP unless the server watches the files."""
        write(self.directory, pair)
        if self.hang_up:
            self.process.send_signal(signal.SIGHUP)

    def tree(self) -> list[int]:
        """Return the process and all its descendants."""
        tree = [self.process.pid]
        for pid in tree:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                tree += map(int, children.read_text("ascii").split())
        return tree

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its processes."""
        stats = (
            Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split() for pid in self.tree()
        )
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self) -> float:
        """Return the memory of all its processes, shared pages in proportion."""
        rollups = (Path(f"/proc/{pid}/smaps_rollup").read_text("ascii") for pid in self.tree())
        return sum(int(re.findall(r"\nPss:\s+(\d+)", rollup)[0]) for rollup in rollups) / 1024


def write(directory: Path, pair: KeyPair) -> None:
    """Write certificate and key, each atomically."""
    for name, content in (("tls.crt", pair.certificate_pem), ("tls.key", pair.key_pem)):
        (directory / "new").write_bytes(content)
        (directory / "new").rename(directory / name)


def answered(port: int) -> bool:
    """Return whether a well-behaved request is answered in time."""
    try:
        return ask(port)[0] == 200
    except (OSError, HTTPException):
        return False


def exchange(connection: socket.socket) -> None:
    """Send one review and read its answer."""
    connection.sendall(HEAD + BODY)
    received = b""
    while b"}}" not in received:
        chunk = connection.recv(65536)
        if not chunk:
            raise ConnectionError("connection closed before the answer was complete")
        received += chunk


def speed(server: Running) -> tuple[float, float]:
    """Return requests per second, and CPU microseconds of the server for each."""
    done = [0] * CONNECTIONS
    stop = threading.Event()

    def load(number: int) -> None:
        with connect(server.port) as connection:
            while not stop.is_set():
                exchange(connection)
                done[number] += 1

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        loads = [threads.submit(load, number) for number in range(CONNECTIONS)]
        time.sleep(0.3)
        before, cpu, start = sum(done), server.cpu_seconds(), time.perf_counter()
        time.sleep(ROUND_SECONDS)
        count, cpu, seconds = sum(done) - before, server.cpu_seconds() - cpu, time.perf_counter() - start
        stop.set()
        for each in loads:
            each.result()
    return count / seconds, cpu / count * 1e6


def connection_kib(server: Running) -> float:
    """Return the memory of an idle connection; NaN if the server refuses so many."""
    before = server.memory_mib()
    try:
        with stalled(STALLS["silent TLS"], server.port, STALLED):
            return (server.memory_mib() - before) * 1024 / STALLED
    except OSError:
        return math.nan


def leaves_others_answered(stall: Callable[[int], socket.socket], server: Running) -> bool:
    """Return whether well-behaved requests are answered while so many clients stall."""
    try:
        with stalled(stall, server.port, STALLED):
            return all(answered(server.port) for _ in range(WELL_BEHAVED))
    except OSError:  # a stalled client could not connect
        return False


def bounds_a_head(server: Running) -> bool:
    """Return whether the server closes a connection whose head has no end."""
    with connect(server.port) as connection:
        try:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")
            for number in range(ENDLESS // 8192):
                connection.sendall(b"X-%d: " % number + b"x" * 8180 + b"\r\n")
            connection.settimeout(0.5)
            return connection.recv(1000) is not None
        except TimeoutError:
            return False
        except OSError:
            return True


def survives_a_burst(server: Running) -> bool:
    """Return whether many new clients at once are answered, and a client after them."""

    def five(_: int) -> bool:
        try:
            with connect(server.port) as connection:
                for _ in range(5):
                    exchange(connection)
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(BURST) as clients:
        return all(clients.map(five, range(BURST))) and answered(server.port)


def served_certificate(port: int) -> bytes:
    """Return the server certificate of a new connection."""
    with connect(port) as connection:
        return connection.getpeercert(binary_form=True) or b""


def swaps_without_failure(server: Running) -> bool:
    """Return whether a new certificate is served in time and no request fails meanwhile."""
    before = served_certificate(server.port)
    stop = threading.Event()

    def load() -> bool:
        all_answered = True
        while not stop.is_set():
            all_answered = answered(server.port) and all_answered
        return all_answered

    with ThreadPoolExecutor() as threads:
        loads = [threads.submit(load) for _ in range(3)]
        time.sleep(0.3)
        server.change(new_pair())
        deadline = time.monotonic() + SETTLING
        after = before
        while after == before and time.monotonic() < deadline:
            with suppress(OSError):
                after = served_certificate(server.port)
        time.sleep(0.3)
        stop.set()
        return after != before and all(each.result() for each in loads)


def survives_a_mismatched_pair(server: Running) -> bool:
    """Return whether a server still answers after it gets the key of another certificate."""
    server.change(replace(new_pair(), key_pem=new_pair().key_pem))
    deadline = time.monotonic() + SETTLING
    while time.monotonic() < deadline:
        if not answered(server.port):
            return False
        time.sleep(0.1)
    return True


TRIALS: dict[str, Callable[[Running], bool]] = {
    **{name: partial(leaves_others_answered, stall) for name, stall in STALLS.items()},
    "endless head": bounds_a_head,
    "burst": survives_a_burst,
    "swap": swaps_without_failure,
    "bad pair": survives_a_mismatched_pair,
}
