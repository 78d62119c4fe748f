"""Looks that are taken again and again, beside everything else, whatever they meet."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from certs.kubernetes_api import KubernetesError

if TYPE_CHECKING:
    from collections.abc import Callable


def report_bug() -> None:
    """Report the exception that is being handled as what a thread dies of, which then goes on."""
    with suppress(Exception):  # there may be no memory even for that
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class PeriodicTask:
    """Takes a look again and again, in a thread of its own that does not keep the process alive.

    name: the thread's. look: raises one of `faults` where somebody else is at fault: `complain` is told, once
    and not at every look. interval: tells the seconds until the next look. rest: tells those in which not
    even a hastened look comes. A look that fails otherwise is reported as what a thread dies of, and the next
    look comes all the same.
    """

    def __init__(  # noqa: PLR0913 - settings, by name
        self,
        name: str,
        look: Callable[[], object],
        interval: Callable[[], float],
        complain: Callable[[Exception], None],
        faults: tuple[type[Exception], ...] = (KubernetesError,),
        *,
        rest: Callable[[], float] = lambda: 0,
    ) -> None:
        self._name = name
        self._look = look
        self._interval = interval
        self._complain = complain
        self._faults = faults
        self._rest = rest
        self._complained = ""
        self._stopped = threading.Event()
        self._due = threading.Event()

    def start(self, after_s: float = 0) -> None:
        """Take the first look after so many seconds; returns at once."""
        threading.Thread(target=self._run, args=(after_s,), name=self._name, daemon=True).start()

    def hasten(self) -> None:
        """Take the next look now, or after the rest; one that is under way has missed what this is about."""
        self._due.set()

    def stop(self) -> None:
        """Take no more, after one that is under way; returns at once."""
        self._stopped.set()
        self._due.set()

    def _run(self, after_s: float) -> None:
        while not self._is_over(after_s):
            try:
                self._look()
                self._complained = ""
            except self._faults as fault:
                self._complain_once(fault)
            except Exception:  # noqa: BLE001 - a bug of ours, or no memory: neither must end the looks
                report_bug()
            rest_s = self._rest()
            self._stopped.wait(rest_s)
            after_s = self._interval() - rest_s

    def _is_over(self, after_s: float) -> bool:
        self._due.wait(after_s)
        self._due.clear()  # before the look: what changes meanwhile is another one
        return self._stopped.is_set()

    def _complain_once(self, fault: Exception) -> None:
        if str(fault) != self._complained:
            self._complained = str(fault)
            self._complain(fault)
