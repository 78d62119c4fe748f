"""A periodic task continues after any error, and logs a fault once."""

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
def running(
    run: Callable[[], object], faults: list[str], interval_s: float = 0.001
) -> Iterator[PeriodicTask]:
    """Repeat `run` during the block, and collect the logged faults."""
    task = PeriodicTask("task", run, lambda: interval_s, lambda fault: faults.append(str(fault)))
    task.start()
    try:
        yield task
    finally:
        task.stop()


def test_a_fault_is_logged_once_and_again_after_another_fault_or_a_success() -> None:
    """Not in every run."""
    met = iter(["away", "away", "full", "full", "", "full", "full"])
    done = threading.Event()
    faults = list[str]()

    def run() -> None:
        if (fault := next(met, None)) is None:
            done.set()
        elif fault:
            raise KubernetesError(fault)

    with running(run, faults):
        wait_for(done.is_set)

    assert ["away", "full", "full"] == faults


def test_a_bug_does_not_end_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reports it; the next run starts as usual."""
    reported, faults = list[str](), list[str]()
    monkeypatch.setattr(threading, "excepthook", lambda thrown: reported.append(str(thrown.exc_value)))
    counts = iter(range(100))
    done = threading.Event()

    def run() -> None:
        if next(counts) == 0:
            raise RuntimeError("a bug")
        done.set()

    with running(run, faults):
        wait_for(done.is_set)

    assert (["a bug"], []) == (reported, faults)


def test_a_task_that_is_triggered_repeatedly_runs_once_per_cooldown() -> None:
    """Triggers within a cooldown share one run; the first run starts at once."""
    times = list[float]()
    task = PeriodicTask("task", lambda: times.append(monotonic()), lambda: NEVER, print, cooldown=lambda: 0.2)
    task.start()
    while len(times) < 3:
        task.trigger()
    task.stop()

    assert all(later - earlier >= 0.2 for earlier, later in pairwise(times))


def test_a_triggered_run_starts_at_once_and_sees_the_change() -> None:
    """A trigger during a run starts another one."""
    current, seen = ["first"], list[str]()
    let = threading.Semaphore(0)

    def run() -> None:
        seen.append(current[0])
        let.acquire()

    with running(run, [], NEVER) as task:
        wait_for(lambda: seen == ["first"])
        current[0] = "second"
        task.trigger()
        let.release(2)
        wait_for(lambda: seen == ["first", "second"])


def test_after_a_stop_there_is_no_run_and_no_thread() -> None:
    """Even if the next run was far off."""
    before = set(threading.enumerate())
    seen = list[int]()
    with running(lambda: seen.append(1), [], NEVER):
        wait_for(lambda: bool(seen))
    wait_for(lambda: before >= set(threading.enumerate()))

    assert [1] == seen
