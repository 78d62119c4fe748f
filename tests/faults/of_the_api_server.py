"""Faults of the API server, and of the wire to it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.faults.measure import Fault
from tests.faults.short_watches import WATCH_S
from tests.faults.ways import Flapping, HalfLines, Nonsense, Refusing, Resets, Slow
from tests.faults.world import Serve
from webhook.cluster.reflector import WATCH_S as LONGEST_WATCH_S

if TYPE_CHECKING:
    from tests.faults.wire import Way
    from tests.faults.world import World

_SHORT: Final = Serve(program=(str(Path(__file__).with_name("short_watches.py")), "serve"))
# Seconds of each turn of an API server that flaps, and between two changes of what is watched.
_TURN_S: Final = 0.5
_CHURN_S: Final = 0.1


@contextmanager
def _down(world: World) -> Iterator[None]:
    world.wire.away()
    world.cluster.kill_apiserver()
    try:
        yield
    finally:
        world.cluster.restart_apiserver()
        world.wire.back()


@contextmanager
def _stopped(world: World) -> Iterator[None]:
    world.cluster.stop_apiserver(signal.SIGSTOP)
    try:
        yield
    finally:
        world.cluster.stop_apiserver(signal.SIGCONT)


@contextmanager
def _flapping(world: World) -> Iterator[None]:
    way, over = Flapping(), threading.Event()

    def turn() -> None:
        while not over.wait(_TURN_S):
            way.down = not way.down
            world.wire.cut()

    turning = threading.Thread(target=turn)
    turning.start()
    try:
        with world.broken(way):
            yield
    finally:
        over.set()
        turning.join()


def _by(make: Callable[[], Way], *, churn: bool = False) -> Callable[[World], AbstractContextManager[None]]:
    """Return what has the wire in a way; churn: while what is watched changes all the time."""

    @contextmanager
    def breaks(world: World) -> Iterator[None]:
        over = threading.Event()
        churning = threading.Thread(target=_churn, args=(world, over))
        if churn:
            churning.start()
        try:
            with world.broken(make()):
                yield
        finally:
            over.set()
            if churn:
                churning.join()

    return breaks


def _churn(world: World, over: threading.Event) -> None:
    """Change a node and a rule again and again, in what no decision depends on."""
    while not over.wait(_CHURN_S):
        now = str(time.monotonic())
        for path in ("/api/v1/nodes/fits", "/api/v1/namespaces/kube-public/configmaps/cf-crl-faults-a"):
            world.api._ask(
                "PATCH", path, {"metadata": {"annotations": {"churn": now}}}, "application/merge-patch+json"
            )


_GOES_ON: Final = "The gate decides by what it knows. "
_ASKS: Final = "The gate decides by what it knows, and asks again after pauses that grow to 30 s. "

FAULTS: Final = (
    Fault(
        "API server down",
        "kube-apiserver is killed (SIGKILL) and its port refuses connections; then it is started again",
        _ASKS + "No pod is created anyway.",
        _down,
        edits=False,
        creates=False,
    ),
    Fault(
        "API server hangs",
        "kube-apiserver is stopped (SIGSTOP) with its connections open; then it goes on (SIGCONT)",
        _GOES_ON + "Watches go on where they were.",
        _stopped,
        edits=False,
        creates=False,
    ),
    Fault(
        "slow",
        "each answer and each line of a watch comes 1 s late, lists at 64 KiB a second",
        _GOES_ON + "Changes come as late as their lines.",
        _by(partial(Slow, 1.0, 64 * 2**10)),
    ),
    Fault(
        "flapping",
        "by turns of half a second connections are served and refused, those that are open reset each time",
        _ASKS + "A watch goes on where it stopped.",
        _flapping,
    ),
    Fault(
        "500",
        "every request is answered 500; watches that were open are reset",
        _ASKS + "A watch goes on where it stopped.",
        _by(partial(Refusing, HTTPStatus.INTERNAL_SERVER_ERROR)),
    ),
    Fault(
        "429",
        "every request is answered 429 with `Retry-After: 1`; watches that were open are reset",
        _ASKS + "A watch goes on where it stopped.",
        _by(partial(Refusing, HTTPStatus.TOO_MANY_REQUESTS)),
    ),
    Fault(
        "wrong JSON",
        "every request is answered 200 with a page of a proxy, JSON that is cut off, JSON of another "
        "type, or "
        "objects without name and version; watches that were open are reset",
        _ASKS + "What does not read is not believed: all is listed anew.",
        _by(Nonsense),
    ),
    Fault(
        "half a watch line",
        "each watch tells half of its first line and ends, by turns by a reset and in good order; ten "
        "changes "
        "a second",
        _ASKS + "Half a line is no event: what it told is listed anew.",
        _by(partial(HalfLines, ("reset", "end"), threading.Event()), churn=True),
    ),
    Fault(
        "half a watch line, then silence",
        f"each watch tells half of its first line and nothing more, and stays open for good; with watches of "
        f"{WATCH_S:.0f} s in place of {LONGEST_WATCH_S:.0f}",
        f"{_GOES_ON}A watch that is silent for longer than it was to last is given up: as shipped, a change "
        f"can be {1.21 * LONGEST_WATCH_S:.0f} s late.",
        _by(partial(HalfLines, ("silence",), threading.Event()), churn=True),
        serve=_SHORT,
    ),
    Fault(
        "resets",
        "each answer breaks by a reset, after 0, 1, 100, 5,000 or 50,000 bytes by turns",
        _ASKS + "Half a list is no list.",
        _by(Resets, churn=True),
    ),
)
