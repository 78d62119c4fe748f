"""Looks go on, whatever they meet, and say once what is wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from time import monotonic

import pytest

from certs.kubernetes_api import KubernetesError
from certs.periodic_task import PeriodicTask
from tests.support.serving import wait_for

NEVER = 3600.0  # seconds; longer than a test takes


@contextmanager
def looking(
    look: Callable[[], object], complaints: list[str], interval_s: float = 0.001
) -> Iterator[PeriodicTask]:
    """Look while the block runs, and keep the complaints."""
    looks = PeriodicTask("looks", look, lambda: interval_s, lambda fault: complaints.append(str(fault)))
    looks.start()
    try:
        yield looks
    finally:
        looks.stop()


def test_what_is_wrong_is_said_once_and_again_when_it_is_something_else_or_was_well_between() -> None:
    """Not at every look."""
    met = iter(["away", "away", "full", "full", "", "full", "full"])
    done = threading.Event()
    complaints = list[str]()

    def look() -> None:
        if (fault := next(met, None)) is None:
            done.set()
        elif fault:
            raise KubernetesError(fault)

    with looking(look, complaints):
        wait_for(done.is_set)

    assert ["away", "full", "full"] == complaints


def test_a_bug_does_not_end_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reports it; the next look comes all the same."""
    reported, complaints = list[str](), list[str]()
    monkeypatch.setattr(threading, "excepthook", lambda thrown: reported.append(str(thrown.exc_value)))
    counts = iter(range(100))
    done = threading.Event()

    def look() -> None:
        if next(counts) == 0:
            raise RuntimeError("a bug")
        done.set()

    with looking(look, complaints):
        wait_for(done.is_set)

    assert (["a bug"], []) == (reported, complaints)


def test_a_look_that_is_hastened_again_and_again_rests_between() -> None:
    """What comes together is looked at together; the first look comes at once."""
    times = list[float]()
    looks = PeriodicTask("looks", lambda: times.append(monotonic()), lambda: NEVER, print, rest=lambda: 0.2)
    looks.start()
    wait_for(lambda: bool(times))
    begun = monotonic()
    while monotonic() - begun < 0.5:
        looks.hasten()
    looks.stop()

    assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))
    assert 2 <= len(times) <= 4


def test_a_hastened_look_comes_at_once_and_sees_what_it_is_about() -> None:
    """Also where one is under way, which has missed it."""
    wanted, seen = ["first"], list[str]()
    let = threading.Semaphore(0)

    def look() -> None:
        seen.append(wanted[0])
        let.acquire()

    with looking(look, [], NEVER) as looks:
        wait_for(lambda: seen == ["first"])
        wanted[0] = "second"
        looks.hasten()
        let.release(2)
        wait_for(lambda: seen == ["first", "second"])


def test_after_a_stop_there_is_no_look_and_no_thread() -> None:
    """Though the next one were far off."""
    before = set(threading.enumerate())
    seen = list[int]()
    with looking(lambda: seen.append(1), [], NEVER):
        wait_for(lambda: bool(seen))
    wait_for(lambda: before >= set(threading.enumerate()))

    assert [1] == seen
