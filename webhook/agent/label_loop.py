"""Label loop: updates a node's labels at an interval, and immediately when the kernel's driver changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from certs.kubernetes_api import KubernetesError
from rules import Language
from webhook.agent.diagnosis import explain
from webhook.agent.metrics import FAILURES, GPUS, PROBED
from webhook.agent.nvml_probe import Failure, Probe

_log = logging.getLogger("gpugate.agent")

# Seconds between checks of the kernel's driver, each of which reads one small file.
_CHECK_INTERVAL_S: Final = 5.0
# Seconds until the first retry of a failure: doubled each time up to the interval.
_FIRST_RETRY_S: Final = 1.0


class Publisher(Protocol):
    """Publishes a probe, as NodeWriter does."""

    def publish(self, probe: Probe | None) -> None:
        """Set the labels for a probe; None: remove them. Raises KubernetesError."""


class LabelLoop:
    """The loop of one node's agent.

    Args:
        publisher: of probes.
        probe_node: probes NVML.
        module: returns the kernel's driver, as `kernel_module`.
        pause: waits for a number of seconds; returns True to end the loop.
        interval_s: seconds from one update to the next.
    """

    def __init__(
        self,
        publisher: Publisher,
        probe_node: Callable[[], Probe | Failure],
        module: Callable[[], str | None],
        pause: Callable[[float], bool],
        interval_s: float,
    ) -> None:
        self._publisher, self._probe_node, self._module = publisher, probe_node, module
        self._pause, self._interval_s = pause, interval_s
        self._problem = ""

    def run(self) -> None:
        """Update the labels until the end."""
        retry_s = _FIRST_RETRY_S
        while True:
            module = self._module()
            if self._step(self._probe_node(), module):
                wait_s, retry_s = self._interval_s, _FIRST_RETRY_S
            else:
                wait_s, retry_s = min(retry_s, self._interval_s), retry_s * 2
            if self._stopped_in(wait_s, module):
                return

    def _step(self, probed: Probe | Failure, module: str | None) -> bool:
        """Publish a probe, and return whether it succeeded; a problem is logged once while it lasts.

        Without a driver the labels are removed. If NVML fails with a loaded driver, the labels stay: driver
        and GPUs have not changed.
        """
        problem = ""
        if isinstance(probed, Failure):
            problem = explain(probed, module).line(Language.EN)
            FAILURES.labels(probed.error.partition(" ")[0]).inc()  # without the number of an unknown error
        else:
            PROBED.set_to_current_time()
            GPUS.set(len(probed.gpus))
        try:
            if isinstance(probed, Probe):
                self._publisher.publish(probed)
            elif module is None:
                self._publisher.publish(None)
        except KubernetesError as error:
            FAILURES.labels("kubernetes").inc()
            problem = f"{problem}; {error}" if problem else str(error)
        if problem and problem != self._problem:
            _log.warning("%s", problem)
        elif self._problem and not problem:
            _log.info("recovered")
        self._problem = problem
        return not problem

    def _stopped_in(self, wait_s: float, module: str | None) -> bool:
        """Wait for a time, or until the kernel's driver changes; return whether the loop must end."""
        while wait_s > 0:
            step_s = min(_CHECK_INTERVAL_S, wait_s)
            if self._pause(step_s):
                return True
            wait_s -= step_s
            if self._module() != module:
                return False
        return False
