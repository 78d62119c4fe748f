"""The watch: when it looks, what it publishes, what it says, and how it ends."""

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
from webhook.agent.label_loop import End, LabelLoop
from webhook.agent.metrics import REGISTRY
from webhook.agent.nvml_probe import Failure, Gpu, Probe, probe

DRIVER, NEWER = "535.129.03", "580.95.05"
WELL = Probe(DriverVersion.parse(DRIVER), CudaVersion(12, 2), ())
TWO = Probe(WELL.driver, WELL.cuda, (Gpu("Tesla T4", None, None, None),) * 2)
LOST = Failure("NVML_ERROR_GPU_IS_LOST", "nvmlDeviceGetMemoryInfo", 3)
NONE = Failure("NVML_ERROR_LIBRARY_NOT_FOUND", "nvmlInit")
MISMATCH = Failure("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "nvmlInit")
INTERVAL_S = 60.0

T = TypeVar("T")
# What is so, and from which second on.
Script = Sequence[tuple[float, T]]


class Node:
    """A node as a script: what NVML says, and the kernel's driver, each from some second on.

    Time is what `pause` is asked for. published: (second, what) of each; looks: the second of each.
    """

    def __init__(
        self,
        found: Script[Probe | Failure],
        *,
        until_s: float,
        modules: Script[str | None] = ((0, DRIVER),),
        away: Iterable[bool] = (),
    ) -> None:
        self._found, self._modules, self._until_s = found, modules, until_s
        self._away = chain(away, repeat(False))
        self.now = 0.0
        self.looks: list[float] = []
        self.published: list[tuple[float, Probe | None]] = []

    def look(self) -> Probe | Failure:
        """Ask NVML."""
        self.looks.append(self.now)
        return self._at_this_time(self._found)

    def module(self) -> str | None:
        """Return the kernel's driver at this time."""
        return self._at_this_time(self._modules)

    def publish(self, probe: Probe | None) -> None:
        """Take what is published, or be away."""
        if next(self._away):
            raise KubernetesError("the API server does not answer")
        self.published.append((self.now, probe))

    def pause(self, seconds: float) -> bool:
        """Let time go by; the end is a signal."""
        self.now += seconds
        return self.now >= self._until_s

    def _at_this_time(self, script: Script[T]) -> T:
        return [value for since, value in script if since <= self.now][-1]

    def watch(self) -> End:
        """Run the agent."""
        return LabelLoop(self, self.look, self.module, self.pause, INTERVAL_S).run()


def test_it_looks_at_the_interval_until_it_is_stopped() -> None:
    """And publishes each time: whoever changed a label meanwhile is put right."""
    node = Node([(0, WELL)], until_s=150)

    assert End.STOPPED is node.watch()
    assert [(0, WELL), (60, WELL), (120, WELL)] == node.published


def test_a_driver_that_changes_is_seen_at_once() -> None:
    """Within five seconds, in place of the interval."""
    node = Node([(0, NONE), (17, WELL)], until_s=30, modules=[(0, None), (17, DRIVER)])
    node.watch()

    assert [0, 1, 3, 7, 15, 20] == node.looks
    assert (20, WELL) == node.published[-1]


def test_without_a_driver_it_withdraws_waits_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """No crash, no loop: the next look comes later and later, up to the interval."""
    node = Node([(0, NONE)], until_s=400, modules=[(0, None)])
    with caplog.at_level(logging.INFO):
        assert End.STOPPED is node.watch()

    assert {None} == {found for _, found in node.published}
    assert [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363] == node.looks
    (line,) = caplog.messages
    assert line.startswith("no NVIDIA driver (NVML_ERROR_LIBRARY_NOT_FOUND at nvmlInit")


def test_labels_stay_while_a_loaded_driver_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A GPU that is lost changes neither the driver nor the others, and the way back is said."""
    node = Node([(0, WELL), (60, LOST), (63, WELL)], until_s=100)
    with caplog.at_level(logging.INFO):
        node.watch()

    assert {WELL} == {found for _, found in node.published}
    assert [True, True] == [
        "GPU_IS_LOST at nvmlDeviceGetMemoryInfo of GPU 3" in caplog.messages[0],
        ["all is well again"] == caplog.messages[1:],
    ]


def test_an_api_server_that_is_away_is_tried_again_later_and_later(caplog: pytest.LogCaptureFixture) -> None:
    """One line says that it is away, one that it is back."""
    node = Node([(0, WELL)], until_s=20, away=[True] * 4)
    with caplog.at_level(logging.INFO):
        node.watch()

    assert [0, 1, 3, 7, 15] == node.looks
    assert [(15, WELL)] == node.published
    assert ["the API server does not answer", "all is well again"] == caplog.messages


def test_what_looks_come_to_is_counted() -> None:
    """Failures by NVML's error, without the number of one that has no name; the API server's as its own."""
    odd = Failure("NVML_ERROR 12345", "nvmlInit")
    names = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR", "kubernetes")
    before = [counted(name) for name in names]
    node = Node([(0, TWO), (60, LOST), (63, odd), (67, TWO)], until_s=75, away=[False, True])
    node.watch()

    assert [0, 60, 61, 63, 67, 75][:5] == node.looks
    assert [2, 1, 1] == [counted(name) - earlier for name, earlier in zip(names, before, strict=True)]
    assert 2 == REGISTRY.get_sample_value("gpugate_agent_gpus")
    assert time.time() - 60 < (REGISTRY.get_sample_value("gpugate_agent_probe_timestamp_seconds") or 0)


def counted(reason: str) -> float:
    """Return how many looks failed for a reason."""
    return REGISTRY.get_sample_value("gpugate_agent_failures_total", {"reason": reason}) or 0


def test_a_driver_that_was_replaced_ends_the_process_that_has_the_old_library() -> None:
    """It cannot load another; the next process does."""
    node = Node([(0, WELL), (72, MISMATCH)], until_s=1000, modules=[(0, DRIVER), (72, NEWER)])

    assert End.REPLACED is node.watch()
    assert 75 == node.now


def test_a_mismatch_that_a_new_process_meets_too_is_waited_out() -> None:
    """An upgrade without a reboot: leaving again and again would help nobody."""
    node = Node([(0, MISMATCH)], until_s=300)

    assert End.STOPPED is node.watch()
    assert [] == node.published


@pytest.mark.parametrize("name", ["a100-mig", "h200"])
def test_no_error_of_any_function_ends_a_watch_or_makes_it_look_more_often(name: str) -> None:
    """With pynvml's own code: each function is answered by each error, from the second look on."""
    with library(name) as nvml:
        right = probe(())
        for function, error in product(sorted(set(nvml.calls)), ERRORS):
            nvml.answer = well
            node = Node([], until_s=180)
            node.look = partial(_look, node, nvml, failing(function, error))  # type: ignore[method-assign]

            assert End.STOPPED is node.watch(), (function, error)
            assert (0, right) == node.published[0], (function, error)
            assert len(node.looks) <= 9, (function, error)  # a failure is tried after 1, 2, 4, … 60 seconds


def _look(node: Node, nvml: Library, later: Answer) -> Probe | Failure:
    """Ask NVML, which from the next time on answers otherwise."""
    node.looks.append(node.now)
    found = probe(())
    nvml.answer = later
    return found
