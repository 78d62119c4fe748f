"""Faults of the API server and of the connection to it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.faults.broken_proxy import Flapping, HalfLines, InvalidBodies, Refusing, Resets, Slow
from tests.faults.measure import Breaks, Fault
from tests.faults.short_watches import WATCH_S
from tests.faults.world import Serve
from webhook.cluster.reflector import WATCH_S as LONGEST_WATCH_S

if TYPE_CHECKING:
    from tests.faults.proxy import ProxyMode
    from tests.faults.world import World

_SHORT: Final = Serve(program=(str(Path(__file__).with_name("short_watches.py")), "serve"))
# Seconds between two switches of a flapping API server, and between two changes of watched objects.
_SWITCH_S: Final = 0.5
_CHURN_S: Final = 0.1


@contextmanager
def _down(world: World) -> Iterator[None]:
    world.proxy.close_port()
    world.cluster.kill_apiserver()
    try:
        yield
    finally:
        world.cluster.restart_apiserver()
        world.proxy.open_port()


@contextmanager
def _stopped(world: World) -> Iterator[None]:
    world.cluster.stop_apiserver(signal.SIGSTOP)
    try:
        yield
    finally:
        world.cluster.stop_apiserver(signal.SIGCONT)


@contextmanager
def _flapping(world: World) -> Iterator[None]:
    mode, over = Flapping(), threading.Event()

    def switch() -> None:
        while not over.wait(_SWITCH_S):
            mode.down = not mode.down
            world.proxy.cut()

    switching = threading.Thread(target=switch)
    switching.start()
    try:
        with world.with_proxy_mode(mode):
            yield
    finally:
        over.set()
        switching.join()


def _proxied(make: Callable[[], ProxyMode], *, churn: bool = False) -> Breaks:
    """Return a fault with a proxy mode. churn: with constant changes of watched objects."""

    @contextmanager
    def breaks(world: World) -> Iterator[None]:
        over = threading.Event()
        churning = threading.Thread(target=_churn, args=(world, over))
        if churn:
            churning.start()
        try:
            with world.with_proxy_mode(make()):
                yield
        finally:
            over.set()
            if churn:
                churning.join()

    return breaks


def _churn(world: World, over: threading.Event) -> None:
    """Change a node and a rule repeatedly, in a field that no decision depends on."""
    while not over.wait(_CHURN_S):
        now = str(time.monotonic())
        for path in ("/api/v1/nodes/fits", "/api/v1/namespaces/kube-public/configmaps/cf-crl-faults-a"):
            world.api._request(
                "PATCH", path, {"metadata": {"annotations": {"churn": now}}}, "application/merge-patch+json"
            )


_CONTINUES: Final = "gpugate decides with the last known state. "
_RETRIES: Final = "gpugate decides with the last known state, and retries with a backoff of up to 30 s. "

FAULTS: Final = (
    Fault(
        "API server down",
        "kube-apiserver is killed (SIGKILL) and its port refuses connections; then it is restarted",
        _RETRIES + "No pods can be created.",
        _down,
        edits=False,
        creates=False,
    ),
    Fault(
        "API server hangs",
        "kube-apiserver is stopped (SIGSTOP) with its connections open; then it continues (SIGCONT)",
        _CONTINUES + "Watches continue.",
        _stopped,
        edits=False,
        creates=False,
    ),
    Fault(
        "slow",
        "each response and each line of a watch is 1 s late, lists arrive at 64 KiB a second",
        _CONTINUES + "Changes are late by the same delay.",
        _proxied(partial(Slow, 1.0, 64 * 2**10)),
    ),
    Fault(
        "flapping",
        "connections are alternately served and refused for half a second; open ones are reset each time",
        _RETRIES + "A watch resumes where it stopped.",
        _flapping,
    ),
    Fault(
        "500",
        "every request is answered 500; open watches are reset",
        _RETRIES + "A watch resumes where it stopped.",
        _proxied(partial(Refusing, HTTPStatus.INTERNAL_SERVER_ERROR)),
    ),
    Fault(
        "429",
        "every request is answered 429 with `Retry-After: 1`; open watches are reset",
        _RETRIES + "A watch resumes where it stopped.",
        _proxied(partial(Refusing, HTTPStatus.TOO_MANY_REQUESTS)),
    ),
    Fault(
        "wrong JSON",
        "every request is answered 200 with an HTML page of an HTTP proxy, truncated JSON, JSON of another "
        "type, or objects without name and version; open watches are reset",
        _RETRIES + "An invalid response is discarded: everything is listed again.",
        _proxied(InvalidBodies),
    ),
    Fault(
        "half a watch line",
        "each watch sends half of its first line and ends, alternately with a reset and normally; ten "
        "changes a second",
        _RETRIES + "Half a line is not an event: the objects are listed again.",
        _proxied(partial(HalfLines, ("reset", "end"), threading.Event()), churn=True),
    ),
    Fault(
        "half a watch line, then no more data",
        f"each watch sends half of its first line and then stays open without data; with watches of "
        f"{WATCH_S:.0f} s instead of {LONGEST_WATCH_S:.0f}",
        f"{_CONTINUES}A watch without data for longer than its duration is closed: with the default "
        f"duration, a change can be {1.21 * LONGEST_WATCH_S:.0f} s late.",
        _proxied(partial(HalfLines, ("hang",), threading.Event()), churn=True),
        serve=_SHORT,
    ),
    Fault(
        "resets",
        "each response is reset after 0, 1, 100, 5,000 or 50,000 bytes, in this order",
        _RETRIES + "An incomplete list is discarded.",
        _proxied(Resets, churn=True),
    ),
)
