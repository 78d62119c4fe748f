"""Label loop: when it probes, what it publishes, what it logs, and how it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, product, repeat
from typing import TypeVar

import pytest

from certs.kubernetes_api import KubernetesError
from rules.cuda.versions import CudaVersion, DriverVersion
from tests.support.nvml import ERRORS, Answer, Library, failing, library, well
from webhook.agent.label_loop import LabelLoop
from webhook.agent.metrics import REGISTRY
from webhook.agent.nvml_probe import Failure, Gpu, Probe, probe

DRIVER = "535.129.03"
WELL = Probe(DriverVersion.parse(DRIVER), CudaVersion(12, 2), ())
TWO = Probe(WELL.driver, WELL.cuda, (Gpu("Tesla T4", None, None, None),) * 2)
LOST = Failure("NVML_ERROR_GPU_IS_LOST", "nvmlDeviceGetMemoryInfo", 3)
NONE = Failure("NVML_ERROR_LIBRARY_NOT_FOUND", "nvmlInit")
INTERVAL_S = 60.0

T = TypeVar("T")
# Values, and the second from which each holds.
Script = Sequence[tuple[float, T]]


class Node:
    """A scripted node: results of NVML and the kernel's driver, each from some second on.

    Time advances in `pause`. published: (second, probe) of each; probed: the second of each probe.
    """

    def __init__(
        self,
        probes: Script[Probe | Failure],
        *,
        until_s: float,
        modules: Script[str | None] = ((0, DRIVER),),
        fails: Iterable[bool] = (),
    ) -> None:
        self._found, self._modules, self._until_s = probes, modules, until_s
        self._fails = chain(fails, repeat(False))
        self.now = 0.0
        self.probed: list[float] = []
        self.published: list[tuple[float, Probe | None]] = []

    def probe(self) -> Probe | Failure:
        """Probe NVML."""
        self.probed.append(self.now)
        return self._at_this_time(self._found)

    def module(self) -> str | None:
        """Return the kernel's driver at this time."""
        return self._at_this_time(self._modules)

    def publish(self, probe: Probe | None) -> None:
        """Accept a probe, or fail."""
        if next(self._fails):
            raise KubernetesError("the API server does not answer")
        self.published.append((self.now, probe))

    def pause(self, seconds: float) -> bool:
        """Advance the time; the end is a signal."""
        self.now += seconds
        return self.now >= self._until_s

    def _at_this_time(self, script: Script[T]) -> T:
        return [value for since, value in script if since <= self.now][-1]

    def run(self) -> None:
        """Run the loop."""
        LabelLoop(self, self.probe, self.module, self.pause, INTERVAL_S).run()


def test_it_probes_at_the_interval_until_it_is_stopped() -> None:
    """It publishes each time, which corrects labels that somebody has changed."""
    node = Node([(0, WELL)], until_s=150)

    node.run()

    assert [(0, WELL), (60, WELL), (120, WELL)] == node.published


def test_a_change_of_the_driver_is_detected_early() -> None:
    """Within five seconds, before the end of the interval."""
    node = Node([(0, NONE), (17, WELL)], until_s=30, modules=[(0, None), (17, DRIVER)])
    node.run()

    assert [0, 1, 3, 7, 15, 20] == node.probed
    assert (20, WELL) == node.published[-1]


def test_without_a_driver_it_removes_labels_waits_and_logs_once(caplog: pytest.LogCaptureFixture) -> None:
    """It does not crash: pauses between probes grow up to the interval."""
    node = Node([(0, NONE)], until_s=400, modules=[(0, None)])
    with caplog.at_level(logging.INFO):
        node.run()

    assert {None} == {published_probe for _, published_probe in node.published}
    assert [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363] == node.probed
    (line,) = caplog.messages
    assert line.startswith("no NVIDIA driver (NVML_ERROR_LIBRARY_NOT_FOUND at nvmlInit")


def test_labels_stay_while_a_loaded_driver_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A lost GPU changes neither the driver nor the other GPUs; the recovery is logged."""
    node = Node([(0, WELL), (60, LOST), (63, WELL)], until_s=100)
    with caplog.at_level(logging.INFO):
        node.run()

    assert {WELL} == {published_probe for _, published_probe in node.published}
    assert [True, True] == [
        "GPU_IS_LOST at nvmlDeviceGetMemoryInfo of GPU 3" in caplog.messages[0],
        ["recovered"] == caplog.messages[1:],
    ]


def test_an_unreachable_api_server_is_retried_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    """The failure and the recovery are one log line each."""
    node = Node([(0, WELL)], until_s=20, fails=[True] * 4)
    with caplog.at_level(logging.INFO):
        node.run()

    assert [0, 1, 3, 7, 15] == node.probed
    assert [(15, WELL)] == node.published
    assert ["the API server does not answer", "recovered"] == caplog.messages


def test_failures_are_counted_by_reason() -> None:
    """By NVML error, without the number of an unknown one, or as `kubernetes`."""
    odd = Failure("NVML_ERROR 12345", "nvmlInit")
    names = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR", "kubernetes")
    before = [counted(name) for name in names]
    node = Node([(0, TWO), (60, LOST), (63, odd), (67, TWO)], until_s=75, fails=[False, True])
    node.run()

    assert [0, 60, 61, 63, 67, 75][:5] == node.probed
    assert [2, 1, 1] == [counted(name) - earlier for name, earlier in zip(names, before, strict=True)]
    assert 2 == REGISTRY.get_sample_value("gpugate_agent_gpus")
    assert time.time() - 60 < (REGISTRY.get_sample_value("gpugate_agent_probe_timestamp_seconds") or 0)


def counted(reason: str) -> float:
    """Return the number of failures for a reason."""
    return REGISTRY.get_sample_value("gpugate_agent_failures_total", {"reason": reason}) or 0


@pytest.mark.parametrize("name", ["a100-mig", "h200"])
def test_no_error_of_any_function_ends_the_loop_or_causes_more_probes(name: str) -> None:
    """With the real pynvml: each function fails with each error, from the second probe on."""
    with library(name) as nvml:
        right = probe(())
        for function, error in product(sorted(set(nvml.calls)), ERRORS):
            nvml.answer = well
            node = Node([], until_s=180)
            node.probe = partial(_probe, node, nvml, failing(function, error))  # type: ignore[method-assign]

            node.run()

            assert (0, right) == node.published[0], (function, error)
            assert len(node.probed) <= 9, (function, error)  # retries are after 1, 2, 4, … 60 seconds


def _probe(node: Node, nvml: Library, later: Answer) -> Probe | Failure:
    """Probe NVML, then change its answers for the next probe."""
    node.probed.append(node.now)
    node_probe = probe(())
    nvml.answer = later
    return node_probe
