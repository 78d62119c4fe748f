"""Functions of this module in a child process: results, hangs and crashes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.nvml import library, well
from webhook.agent import nvml_probe
from webhook.agent.child_process import ChildProcess, HangError
from webhook.agent.nvml_probe import CRASH, HANG, Failure, NvmlFacts, probe, read_nvml

if TYPE_CHECKING:
    from collections.abc import Callable


def of_a_t4() -> NvmlFacts | Failure:
    """Read the NVML of a machine with a T4."""
    with library("t4"):
        return read_nvml()


def _hanging(call: str) -> NvmlFacts | Failure:
    """Read an NVML of which one function hangs in C code for longer than any test."""

    def answer(name: str, number: int) -> int:
        return int(ctypes.CDLL(None).sleep(1000)) if name == call else well(name, number)

    with library("t4", answer):
        return read_nvml()


def hanging_at_its_start() -> NvmlFacts | Failure:
    """Read an NVML that hangs at its start."""
    return _hanging("nvmlInitWithFlags")


def hanging_at_a_gpu() -> NvmlFacts | Failure:
    """Read an NVML that hangs at a GPU."""
    return _hanging("nvmlDeviceGetMemoryInfo")


def crashing() -> NvmlFacts | Failure:
    """Read an NVML that ends the process."""
    os.abort()


def test_a_result_is_that_of_the_function() -> None:
    """Also in the second process."""
    child = ChildProcess(of_a_t4)

    assert [of_a_t4(), of_a_t4()] == [child.call(), child.call()]


@pytest.mark.parametrize(
    ("function", "failure"),
    [
        (hanging_at_its_start, Failure(HANG)),
        (hanging_at_a_gpu, Failure(HANG)),
        (crashing, Failure(CRASH)),
    ],
)
def test_an_nvml_that_does_not_return_is_a_failed_probe(
    function: Callable[[], NvmlFacts | Failure], failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before NVML would return. The process of a hang is ended."""
    child = ChildProcess(function, seconds=3)
    monkeypatch.setattr(nvml_probe, "_CHILD", child)
    begun = time.monotonic()

    assert failure == probe(())
    assert time.monotonic() - begun < 60
    _assert_a_call_starts_a_process(child, monkeypatch)


def test_while_a_process_cannot_be_ended_there_is_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel does not end a process that waits in a driver."""
    child = ChildProcess(hanging_at_its_start, seconds=1)
    hung: list[subprocess.Popen[bytes]] = []

    def kill(process: subprocess.Popen[bytes]) -> None:
        hung.append(process)

    with monkeypatch.context() as kernel:
        kernel.setattr(subprocess.Popen, "kill", kill)
        with pytest.raises(HangError):
            child.call()
        kernel.setattr(sys, "executable", "/nonexistent")
        with pytest.raises(HangError):
            child.call()
    (process,) = hung
    process.kill()
    process.communicate()

    _assert_a_call_starts_a_process(child, monkeypatch)


def _assert_a_call_starts_a_process(child: ChildProcess[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    with pytest.raises(FileNotFoundError, match="/nonexistent"):
        child.call()
