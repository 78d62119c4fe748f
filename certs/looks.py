"""Looks that are taken again and again, beside everything else, whatever they meet."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from certs.kube import KubernetesError

if TYPE_CHECKING:
    from collections.abc import Callable


class Looks:
    """Takes a look again and again, in a thread of its own that does not keep the process alive.

    name: the thread's. look: raises one of `faults` where somebody else is at fault: `complain` is told, once
    and not at every look. interval: tells the seconds until the next look. A look that fails otherwise ends
    the thread, which Python reports, and the next look comes all the same.
    """

    def __init__(
        self,
        name: str,
        look: Callable[[], object],
        interval: Callable[[], float],
        complain: Callable[[Exception], None],
        faults: tuple[type[Exception], ...] = (KubernetesError,),
    ) -> None:
        self._name = name
        self._look = look
        self._interval = interval
        self._complain = complain
        self._faults = faults
        self._complained = ""
        self._stopping = False
        self._due = threading.Event()

    def start(self, after_s: float = 0) -> None:
        """Take the first look after so many seconds; returns at once."""
        threading.Thread(target=self._run, args=(after_s,), name=self._name, daemon=True).start()

    def hasten(self) -> None:
        """Take the next look now; one that is under way has missed what this is about."""
        self._due.set()

    def stop(self) -> None:
        """Take no more, after one that is under way; returns at once."""
        self._stopping = True
        self._due.set()

    def _run(self, after_s: float) -> None:
        try:
            while not self._is_over(after_s):
                try:
                    self._look()
                    self._complained = ""
                except self._faults as fault:
                    self._complain_once(fault)
                after_s = self._interval()
        finally:
            if not self._stopping:
                self.start(self._interval())

    def _is_over(self, after_s: float) -> bool:
        self._due.wait(after_s)
        self._due.clear()  # before the look: what changes meanwhile is another one
        return self._stopping

    def _complain_once(self, fault: Exception) -> None:
        if str(fault) != self._complained:
            self._complained = str(fault)
            self._complain(fault)
