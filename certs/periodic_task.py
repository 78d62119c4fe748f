"""A background task that repeats at an interval and survives errors."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from certs.kubernetes_api import KubernetesError

if TYPE_CHECKING:
    from collections.abc import Callable


def report_bug() -> None:
    """Pass the exception that is being handled to `threading.excepthook`; the thread goes on."""
    with suppress(Exception):  # there may be no memory even for that
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class PeriodicTask:
    """Calls `run` repeatedly in a daemon thread, until `stop`.

    An exception that is not one of `faults` is passed to `threading.excepthook`; the next run starts as
    usual.

    Args:
        name: of the thread.
        run: raises one of `faults` if the cause is outside gpugate.
        interval: returns the seconds until the next run.
        log_fault: called with a fault, once while its message stays the same.
        faults: the exceptions that `run` may raise.
        cooldown: returns the seconds after a run in which even a triggered run does not start.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        name: str,
        run: Callable[[], object],
        interval: Callable[[], float],
        log_fault: Callable[[Exception], None],
        faults: tuple[type[Exception], ...] = (KubernetesError,),
        *,
        cooldown: Callable[[], float] = lambda: 0,
    ) -> None:
        self._name = name
        self._run = run
        self._interval = interval
        self._log_fault = log_fault
        self._faults = faults
        self._cooldown = cooldown
        self._logged = ""
        self._stopped = threading.Event()
        self._due = threading.Event()

    def start(self, after_s: float = 0) -> None:
        """Start the first run after a number of seconds; returns at once."""
        threading.Thread(target=self._loop, args=(after_s,), name=self._name, daemon=True).start()

    def trigger(self) -> None:
        """Start the next run now, or after the current run and the cooldown."""
        self._due.set()

    def stop(self) -> None:
        """Start no more runs; a run in progress ends normally. Returns at once."""
        self._stopped.set()
        self._due.set()

    def _loop(self, after_s: float) -> None:
        while not self._is_stopped(after_s):
            try:
                self._run()
                self._logged = ""
            except self._faults as fault:
                self._log_once(fault)
            except Exception:  # noqa: BLE001 - a bug of ours, or no memory: neither must end the loop
                report_bug()
            cooldown_s = self._cooldown()
            self._stopped.wait(cooldown_s)
            after_s = self._interval() - cooldown_s

    def _is_stopped(self, after_s: float) -> bool:
        self._due.wait(after_s)
        self._due.clear()  # before the run: a trigger during the run is for the next one
        return self._stopped.is_set()

    def _log_once(self, fault: Exception) -> None:
        if str(fault) != self._logged:
            self._logged = str(fault)
            self._log_fault(fault)
