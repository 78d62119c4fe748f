"""Faults of the gpugate process and of its machine."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from click.testing import CliRunner

from tests.e2e.daemon import HOST
from tests.e2e.serve_process import QUICK_SERVE, ask
from tests.faults.certificate_faults import serves_stored_certificate
from tests.faults.measure import AWAY, GONE, TWO, Breaks, Fault
from tests.faults.world import Serve
from tests.support.tls import unverified
from tests.support.webhooks import body, pod
from webhook.cli import main as gpugate

if TYPE_CHECKING:
    from tests.faults.world import World

# Idle connections, and the limit of open files of gpugate.
_IDLE: Final = 300
_FILES: Final = 256
# Bytes of a review, below the limit, and concurrent reviews.
_LARGE: Final = 6 * 2**20
_AT_ONCE: Final = 8
# Bytes of memory: the limit of the container in the Deployment.
_MEMORY: Final = 512 * 2**20
# Bytes of /dev/shm, to which a certificate is written before it is loaded.
_SHM: Final = 64 * 2**10
_DRAIN_S: Final = 3.0
_DAY_S: Final = 24 * 60 * 60


def _clock(days: int) -> Breaks:
    """Return a fault that shifts the clock of gpugate."""

    @contextmanager
    def breaks(world: World) -> Iterator[None]:
        world.clock.write_text(str(days * _DAY_S), "utf-8")
        try:
            yield
        finally:
            world.clock.write_text("0", "utf-8")

    return breaks


@contextmanager
def _killed(world: World) -> Iterator[None]:
    world.gate.kill()
    world.gate.start()
    yield


@contextmanager
def _terminated(world: World) -> Iterator[None]:
    world.gate.stop()
    world.gate.start()
    yield


@contextmanager
def _one_killed(world: World) -> Iterator[None]:
    world.gate.kill()
    try:
        yield
    finally:
        world.gate.start()


@contextmanager
def _one_terminated(world: World) -> Iterator[None]:
    ending = threading.Thread(target=world.gate.stop)
    ending.start()
    try:
        yield
    finally:
        ending.join()
        world.gate.start()


@contextmanager
def _idle(world: World) -> Iterator[None]:
    """Hold more idle connections than gpugate may have open files."""
    with ExitStack() as stack:
        context = unverified()

        def connect(_: int) -> None:
            with suppress(OSError):
                plain = socket.create_connection((HOST, world.port), timeout=2)
                plain.settimeout(2)
                stack.callback(plain.close)
                stack.callback(context.wrap_socket(plain, server_hostname=HOST).close)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(connect, range(_IDLE)))
        world.proxy.cut()  # its watches need new files
        yield


@contextmanager
def _large_reviews(world: World) -> Iterator[None]:
    """Send large reviews continuously, several at once, with little memory left."""
    pid, kind = world.gate.pid, resource.RLIMIT_AS
    pages, resident = map(int, Path(f"/proc/{pid}/statm").read_text("utf-8").split()[:2])
    before = resource.prlimit(pid, kind)
    spare = _MEMORY - resident * resource.getpagesize()
    document = pod()
    document["metadata"]["annotations"] = {"large": "x" * _LARGE}
    content, over = body(document), threading.Event()

    def send() -> None:
        while not over.is_set():
            ask(world.port, "/mutate", content)

    resource.prlimit(pid, kind, (pages * resource.getpagesize() + spare, before[1]))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in range(_AT_ONCE):
            threads.submit(send)
        try:
            yield
        finally:
            over.set()
    resource.prlimit(pid, kind, before)


@contextmanager
def _full_shm(world: World) -> Iterator[None]:
    """Renew the certificate while /dev/shm is full."""
    filling = Path(f"/proc/{world.gate.pid}/root/dev/shm/full")
    with suppress(OSError):
        filling.write_bytes(b"x" * 2 * _SHM)
    rotate = ["certs", "rotate", "--kubeconfig", str(world.cluster.kubeconfig)]
    done = CliRunner().invoke(gpugate, rotate)
    assert not done.exit_code, done.output
    try:
        yield
    finally:
        filling.unlink()


@contextmanager
def _nothing(_: World) -> Iterator[None]:
    yield


# A separate, small /dev/shm.
_OWN_SHM: Final = (
    *("unshare", "--mount", "sh", "-c"),
    *(f'mount -t tmpfs -o size={_SHM} tmpfs /dev/shm && exec "$@"', "sh"),
)
_CLOCK: Final = (
    "the time of day in the gpugate process, but not CLOCK_MONOTONIC; certificates are valid for seconds and "
    "verified at each call"
)
_BY_THE_API_SERVER: Final = (
    "Certificates are created and renewed by the clock of the API server, which verifies them: by the `Date` "
    "header of its responses. Exemptions expire by the clock of gpugate."
)
_TWO_REPLICAS: Final = Serve(options=(f"--drain-seconds={_DRAIN_S}",), replicas=2)
_CLOCKED: Final = Serve(program=(str(Path(__file__).with_name("shifted_clock.py")), "serve"), clock=True)

FAULTS: Final = (
    Fault(
        "SIGKILL of the only replica",
        "the process is killed and restarted at once",
        "Requests in progress are lost; there is no answer until it has loaded rules, nodes and certificate. "
        + GONE,
        _killed,
        loses=AWAY,
        remedy=TWO,
    ),
    Fault(
        "SIGTERM of the only replica",
        f"terminated with `--drain-seconds={_DRAIN_S:.0f}`, and restarted when it has ended",
        f"Requests in progress and during the drain are answered; then as above. {GONE}",
        _terminated,
        serve=Serve(options=(f"--drain-seconds={_DRAIN_S}",)),
        loses=AWAY,
        remedy=TWO,
    ),
    Fault(
        "SIGKILL of one of two replicas",
        "behind a Service that notices it a second later; restarted afterwards",
        "Requests in progress are lost, and so are those that the Service sends to it until it notices. "
        + GONE,
        _one_killed,
        serve=_TWO_REPLICAS,
        loses=AWAY,
        remedy="nothing: the controller creates the pod again, and the other replica answers.",
    ),
    Fault(
        "SIGTERM of one of two replicas",
        f"behind a Service that notices it a second later, with `--drain-seconds={_DRAIN_S:.0f}`; restarted "
        "afterwards",
        "It answers until the Service sends no more requests to it; then the other replica answers.",
        _one_terminated,
        serve=_TWO_REPLICAS,
    ),
    Fault(
        "clock jumps forward",
        f"by 100 days, then back; {_CLOCK}",
        _BY_THE_API_SERVER,
        _clock(100),
        serve=_CLOCKED,
        restored=serves_stored_certificate,
    ),
    Fault(
        "clock jumps back",
        f"by 10,000 days, as with an empty battery, then forward; {_CLOCK}",
        _BY_THE_API_SERVER,
        _clock(-10_000),
        serve=_CLOCKED,
        restored=serves_stored_certificate,
    ),
    Fault(
        "disk full: the log",
        "every write to the log fails (`/dev/full`: ENOSPC)",
        "Log lines are lost, and counted in `gpugate_log_lines_dropped_total`.",
        _nothing,
        serve=Serve(log="full"),
    ),
    Fault(
        "log pipe full",
        "the log goes to a full pipe that is not read",
        "As above, after 10,000 lines in the queue.",
        _nothing,
        serve=Serve(log="stuck"),
    ),
    Fault(
        "disk full: a certificate is renewed",
        "the `/dev/shm` of gpugate (a tmpfs of 64 KiB), from which a certificate is loaded, is full during "
        "the renewal; each call verifies the certificate",
        "The previous certificate is served until there is space.",
        _full_shm,
        serve=Serve(program=QUICK_SERVE, prefix=_OWN_SHM),
        restored=serves_stored_certificate,
    ),
    Fault(
        "file descriptors run out",
        f"{_IDLE} idle connections to gpugate with a limit of {_FILES} open files (RLIMIT_NOFILE); its "
        "watches are reset, and each request is a new connection",
        f"New connections wait until gpugate has closed idle ones, the longest idle first. {GONE}",
        _idle,
        serve=Serve(prefix=("prlimit", f"--nofile={_FILES}:{_FILES}")),
        loses=AWAY,
        remedy="raise the hard limit of open files to at least 2,128; gpugate raises its soft limit itself.",
        context=lambda _: unverified(),
    ),
    Fault(
        "memory runs out",
        f"continuous reviews of {_LARGE // 2**20} MiB, {_AT_ONCE} at once, with the memory limit of the "
        f"Deployment, {_MEMORY // 2**20} MiB (RLIMIT_AS: the initial address space plus the memory left)",
        "gpugate holds up to 64 MiB of bodies; more get 503. If it is out-of-memory killed anyway, it is as "
        "after SIGKILL.",
        _large_reviews,
    ),
)
