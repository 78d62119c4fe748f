"""Keeps a node's labels right: looks again at an interval, and at once when the kernel's driver changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from certs.kubernetes_api import KubernetesError
from webhook.agent.diagnosis import MISMATCH, explain
from webhook.agent.metrics import FAILURES, GPUS, PROBED
from webhook.agent.nvml_probe import Failure, Probe

_log = logging.getLogger("gpugate.agent")

# Seconds between looks at the kernel's driver, each of which reads one small file.
_LOOK_S: Final = 5.0
# Seconds until a failure is tried again: doubled each time up to the interval.
_FIRST_RETRY_S: Final = 1.0


class End(Enum):
    """Why a watch ended."""

    STOPPED = "stopped"
    # A process cannot exchange the library of a driver that was replaced; the next one loads the new.
    REPLACED = "the driver was replaced: leaving, so that the next start loads its library"


class Publishes(Protocol):
    """Makes the node say what NVML says."""

    def publish(self, probe: Probe | None) -> None:
        """Make the node say it; None: nothing. Raises KubernetesError."""


class LabelLoop:
    """One node's agent.

    look: asks NVML. module: the kernel's driver, as `kernel_module` has it. interval_s: seconds from one look
    to the next. pause: waits some seconds; True ends the watch.
    """

    def __init__(
        self,
        publisher: Publishes,
        look: Callable[[], Probe | Failure],
        module: Callable[[], str | None],
        pause: Callable[[float], bool],
        interval_s: float,
    ) -> None:
        self._publisher, self._look, self._module = publisher, look, module
        self._pause, self._interval_s = pause, interval_s
        self._at_start = module()
        self._said = ""

    def run(self) -> End:
        """Keep the labels right until the end, and return why it came."""
        retry_s = _FIRST_RETRY_S
        while True:
            module = self._module()
            found = self._look()
            if isinstance(found, Failure) and found.error == MISMATCH and module != self._at_start:
                _log.info(End.REPLACED.value)
                return End.REPLACED
            if self._step(found, module):
                wait_s, retry_s = self._interval_s, _FIRST_RETRY_S
            else:
                wait_s, retry_s = min(retry_s, self._interval_s), retry_s * 2
            if self._stopped_in(wait_s, module):
                return End.STOPPED

    def _step(self, found: Probe | Failure, module: str | None) -> bool:
        """Publish what was found, and tell whether all is well; what is not is logged, once while it lasts.

        Without a driver nothing is left to say. Where there is one and NVML fails, the labels stay: they are
        about the driver and the GPUs, which are still there.
        """
        problem = ""
        if isinstance(found, Failure):
            problem = str(explain(found, module))
            FAILURES.labels(found.error.partition(" ")[0]).inc()  # without the number of an unknown error
        else:
            PROBED.set_to_current_time()
            GPUS.set(len(found.gpus))
        try:
            if isinstance(found, Probe):
                self._publisher.publish(found)
            elif module is None:
                self._publisher.publish(None)
        except KubernetesError as error:
            FAILURES.labels("kubernetes").inc()
            problem = f"{problem}; {error}" if problem else str(error)
        if problem and problem != self._said:
            _log.warning("%s", problem)
        elif self._said and not problem:
            _log.info("all is well again")
        self._said = problem
        return not problem

    def _stopped_in(self, wait_s: float, module: str | None) -> bool:
        """Wait so long, or until the kernel's driver changes; tell whether the watch is to end."""
        while wait_s > 0:
            step_s = min(_LOOK_S, wait_s)
            if self._pause(step_s):
                return True
            wait_s -= step_s
            if self._module() != module:
                return False
        return False
