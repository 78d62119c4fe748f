"""`gpugate serve` under attack: the limits of its process, what it takes, and well-behaved clients."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import statistics
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import yaml

from tests.e2e.daemon import HOST
from tests.e2e.serve_process import ServeProcess, eventually
from tests.support.builders import injection_rule
from tests.support.paths import ROOT
from tests.support.tls import unverified
from tests.support.webhooks import body, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Seconds after which an honest client gives up: timeoutSeconds in the manifests.
TIMEOUT_S: Final = 5.0
# A typical review, and one of 20 KB, which does not count as a quick one.
REVIEW: Final = body(pod({"nvidia.com/gpu": "1"}))
LONG_REVIEW: Final = body(pod({"nvidia.com/gpu": "1"}, env=[{"name": "A", "value": "x" * 20_000}]))
RULE_REVIEW: Final = body(
    yaml.safe_load(injection_rule({"env": [{"name": "A", "value": "b"}]}, name="own")),
    namespace="kube-public",
    userInfo={"username": "operator"},
)
# Variables of the image, for the C library's allocator.
_ALLOCATOR: Final = re.findall(r"MALLOC_\w+=\S+", (ROOT / "Dockerfile").read_text("utf-8"))
_CGROUPS: Final = Path("/sys/fs/cgroup/memory")


BLIND: Final = unverified()


class Answers(NamedTuple):
    """What well-behaved clients got.

    seconds: of each answered request. running: the same, less the time without a core. failed: number of
    the others.
    """

    seconds: list[float]
    running: list[float]
    failed: int

    @property
    def p50(self) -> float:
        """Return the median in seconds."""
        return statistics.median(self.seconds)

    @property
    def longest(self) -> float:
        """Return the longest in seconds, less the time without a core."""
        return max(self.running)

    def __str__(self) -> str:
        if not self.seconds:
            return f"0 answered, {self.failed} failed"
        milliseconds = [1000 * seconds for seconds in (self.p50, max(self.seconds), self.longest)]
        times = "p50 {:.0f} ms, max {:.0f} ms, {:.0f} ms with a core".format(*milliseconds)
        return f"{len(self.seconds)} answered, {self.failed} failed, {times}"


class Stopwatch:
    """Collects the times of requests to a process of gpugate.

    A thread that could run and has no core is slow because of others on this machine, not because of gpugate:
    the longer wait of the event loop's thread and of the client's does not count. Waits of gpugate's other
    threads, and of all threads for each other, count. https://docs.kernel.org/scheduler/sched-stats.html
    """

    def __init__(self, pid: int) -> None:
        self._threads = Path(f"/proc/{pid}/schedstat"), Path("/proc/thread-self/schedstat")
        self.answers = Answers([], [], 0)

    def time(self, ask: Callable[[], bool]) -> None:
        """Send a request; it returns whether it was answered."""
        waited, start = self._waited(), time.monotonic()
        answered = ask()
        seconds = time.monotonic() - start
        if not answered:
            self.answers = self.answers._replace(failed=self.answers.failed + 1)
            return
        without_core = max(after - before for before, after in zip(waited, self._waited(), strict=True))
        self.answers.seconds.append(seconds)
        self.answers.running.append(max(seconds - without_core, 0.0))

    def _waited(self) -> list[float]:
        """Return for how many seconds each thread could run and had no core, since it began."""
        return [int(thread.read_text().split()[1]) / 1e9 for thread in self._threads]


class Client:
    """A well-behaved client over one connection, which it opens at its first request."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPSConnection(HOST, port, timeout=TIMEOUT_S, context=BLIND)

    def ask(self, review: bytes = REVIEW, path: str = "/mutate") -> bool:
        """Return whether a review gets a decision."""
        try:
            self._connection.request("POST", path, review)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            return False
        return response.status == http.HTTPStatus.OK and "allowed" in json.loads(answer)["response"]

    def keep(self) -> None:
        """Never open another connection."""
        self._connection.auto_open = False

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def fresh(gate: Attacked, times: int, review: bytes = REVIEW, path: str = "/mutate") -> Answers:
    """Send reviews one after another, each over a new connection."""
    stopwatch = Stopwatch(gate.pid)
    for _ in range(times):
        with contextlib.closing(Client(gate.port)) as client:
            stopwatch.time(partial(client.ask, review, path))
    return stopwatch.answers


def fresh_for(gate: Attacked, duration_s: float, review: bytes = REVIEW, path: str = "/mutate") -> Answers:
    """Send reviews one after another for so long, each over a new connection."""
    stopwatch, end = Stopwatch(gate.pid), time.monotonic() + duration_s
    while time.monotonic() < end:
        with contextlib.closing(Client(gate.port)) as client:
            stopwatch.time(partial(client.ask, review, path))
    return stopwatch.answers


class ApiServer:
    """Five kept connections that were used, as an API server has; a context manager."""

    def __init__(self, gate: Attacked) -> None:
        self._gate = gate
        self._clients = [Client(gate.port) for _ in range(5)]

    def __enter__(self) -> Self:
        assert self.ask().failed == 0
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()

    def ask(self) -> Answers:
        """Send a review over each of the connections, which are never opened again."""
        stopwatch = Stopwatch(self._gate.pid)
        for client in self._clients:
            stopwatch.time(client.ask)
            client.keep()
        return stopwatch.answers


class Attacked(ServeProcess):
    """`gpugate serve` with the built-in rules; a context manager.

    files: its limit of open files. memory: bytes of a cgroup of its own, if the machine allows one.
    """

    def __init__(
        self,
        port: int,
        folder: Path,
        options: Sequence[str] = (),
        *,
        files: int | None = None,
        memory: int | None = None,
    ) -> None:
        self.log = folder / "log"
        super().__init__(port, ["--host", HOST, "--drain-seconds=0", *options], self.log)
        self._argv = ["env", *_ALLOCATOR, *self._argv]
        self._group = _CGROUPS / f"gpugate-{port}" if memory else None
        if self._group is not None:
            self._group.mkdir()
            (self._group / "memory.limit_in_bytes").write_text(str(memory))
            joining = f'echo $$ > {self._group}/cgroup.procs; exec "$@"'
            self._argv = ["sh", "-c", joining, "sh", *self._argv]
        if files is not None:
            self._argv = ["prlimit", f"--nofile={files}:{files}", *self._argv]

    def start(self) -> None:
        """Start it, and return once it is ready."""
        super().start()
        eventually(self.ready)

    def stop(self) -> None:
        """Stop it, and remove its cgroup."""
        super().stop()
        if self._group is not None:
            eventually(self._remove_group)

    def _remove_group(self) -> bool:
        assert self._group is not None
        with contextlib.suppress(OSError):
            self._group.rmdir()
        return not self._group.exists()

    @property
    def is_alive(self) -> bool:
        """Whether the process that was started runs: nothing starts it again."""
        assert self._process is not None
        return self._process.poll() is None

    @property
    def files(self) -> int:
        """Number of its open files."""
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    @property
    def memory(self) -> float:
        """Its resident memory, in MiB."""
        return self._status("VmRSS")

    @property
    def peak(self) -> float:
        """The most resident memory that it had, in MiB."""
        return self._status("VmHWM")

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU that it used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    @property
    def warnings(self) -> int:
        """Lines of its log that are not about decisions."""
        return sum('"level":"INFO"' not in line for line in self.log.read_text().splitlines())

    def _status(self, name: str) -> float:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def can_limit_memory() -> bool:
    """Return whether this machine allows cgroups of version 1 here."""
    probe = _CGROUPS / "gpugate-probe"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True
