"""Faults of the process and of the machine that it runs on."""

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

from tests.bench.client import unverified
from tests.e2e.daemon import HOST
from tests.e2e.gate import QUICK_SERVE, ask
from tests.faults.measure import AWAY, GONE, TWO, Breaks, Fault
from tests.faults.of_certificates import shows_what_is_stored
from tests.faults.world import Serve
from tests.support.webhooks import body, pod
from webhook.cli import main as gpugate

if TYPE_CHECKING:
    from tests.faults.world import World

# Idle connections, and files that the gate may have open in all.
_IDLE: Final = 300
_FILES: Final = 256
# Bytes of a review, below what is taken at most, and how many come at once.
_LARGE: Final = 6 * 2**20
_AT_ONCE: Final = 8
# Bytes of memory: of the container in the Deployment.
_MEMORY: Final = 512 * 2**20
# Bytes of /dev/shm, where a certificate is put down to be loaded.
_SHM: Final = 64 * 2**10
_DRAIN_S: Final = 3.0
_DAY_S: Final = 24 * 60 * 60


def _clock(days: int) -> Breaks:
    """Return what shifts the gate's clock."""

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
    """Hold idle connections, more than the gate may have files."""
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
        world.wire.cut()  # its watches need files anew
        yield


@contextmanager
def _large_reviews(world: World) -> Iterator[None]:
    """Send large reviews, several at once, one after the other, with little memory left."""
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
    """Renew the certificate while nothing can be written."""
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


# A /dev/shm of its own, and small.
_OWN_SHM: Final = (
    *("unshare", "--mount", "sh", "-c"),
    *(f'mount -t tmpfs -o size={_SHM} tmpfs /dev/shm && exec "$@"', "sh"),
)
_CLOCK: Final = (
    "what Python tells a gate of the time of day, and not CLOCK_MONOTONIC; certificates with terms in "
    "seconds, "
    "verified at each call"
)
_BY_THE_API_SERVER: Final = (
    "Certificates are made and renewed by the clock of the API server, which verifies them: by the `Date` of "
    "its answers. Exemptions end by the gate's clock."
)
_TWO_REPLICAS: Final = Serve(options=(f"--drain-seconds={_DRAIN_S}",), replicas=2)
_CLOCKED: Final = Serve(program=(str(Path(__file__).with_name("shifted_clock.py")), "serve"), clock=True)

FAULTS: Final = (
    Fault(
        "SIGKILL of the only replica",
        "the process is killed and started again at once",
        f"What it was at is cut off; nobody answers until it has read rules, nodes and certificate. {GONE}",
        _killed,
        loses=AWAY,
        remedy=TWO,
    ),
    Fault(
        "SIGTERM of the only replica",
        f"told to end, with `--drain-seconds={_DRAIN_S:.0f}`, and started again when it has",
        f"What it was at is answered, and so is what comes until it has ended; then as above. {GONE}",
        _terminated,
        serve=Serve(options=(f"--drain-seconds={_DRAIN_S}",)),
        loses=AWAY,
        remedy=TWO,
    ),
    Fault(
        "SIGKILL of one of two replicas",
        "behind a Service that hears of it a second later; started again afterwards",
        f"What it was at is cut off, and until the Service has heard, so is what is sent there. {GONE}",
        _one_killed,
        serve=_TWO_REPLICAS,
        loses=AWAY,
        remedy="nothing: what was cut off is created again by its controller, and answered by the other "
        "replica.",
    ),
    Fault(
        "SIGTERM of one of two replicas",
        f"behind a Service that hears of it a second later, with `--drain-seconds={_DRAIN_S:.0f}`; started "
        "again afterwards",
        "It answers until the Service sends it nothing more; the other answers alone.",
        _one_terminated,
        serve=_TWO_REPLICAS,
    ),
    Fault(
        "clock jumps forward",
        f"by 100 days, then back; {_CLOCK}",
        _BY_THE_API_SERVER,
        _clock(100),
        serve=_CLOCKED,
        restored=shows_what_is_stored,
    ),
    Fault(
        "clock jumps back",
        f"by 10,000 days, as where a battery is dead, then forward; {_CLOCK}",
        _BY_THE_API_SERVER,
        _clock(-10_000),
        serve=_CLOCKED,
        restored=shows_what_is_stored,
    ),
    Fault(
        "disk full: the log",
        "every write to the log fails (`/dev/full`: ENOSPC)",
        "Log lines are lost, and counted in `gpugate_log_lines_dropped_total`.",
        _nothing,
        serve=Serve(log="full"),
    ),
    Fault(
        "disk full: nobody reads the log",
        "the log goes to a pipe that is full",
        "As above, once 10,000 lines wait.",
        _nothing,
        serve=Serve(log="stuck"),
    ),
    Fault(
        "disk full: a certificate is renewed",
        "the gate's `/dev/shm` (a tmpfs of 64 KiB), through which a certificate is loaded, is full while it "
        "is renewed; each call verifies the certificate",
        "The one before is served until there is room.",
        _full_shm,
        serve=Serve(program=QUICK_SERVE, prefix=_OWN_SHM),
        restored=shows_what_is_stored,
    ),
    Fault(
        "file descriptors run out",
        f"{_IDLE} idle connections to a gate that may have {_FILES} files open (RLIMIT_NOFILE); its watches "
        "are reset, and each request is a new connection",
        f"New connections wait until the gate has closed idle ones, those that wait longest first. {GONE}",
        _idle,
        serve=Serve(prefix=("prlimit", f"--nofile={_FILES}:{_FILES}")),
        loses=AWAY,
        remedy="let the gate have 2,128 files, which it asks for by itself: a hard limit below that is "
        "the cause.",
        context=lambda _: unverified(),
    ),
    Fault(
        "memory runs out",
        f"reviews of {_LARGE // 2**20} MiB, {_AT_ONCE} at once, one after the other, to a gate that may take "
        f"no more than the {_MEMORY // 2**20} MiB of the Deployment (RLIMIT_AS, of its address space at "
        "first "
        "and what is left)",
        "Bodies are held up to 64 MiB in all; those beyond get 503. A gate that is killed for its memory all "
        "the same is as one that got SIGKILL.",
        _large_reviews,
    ),
)
