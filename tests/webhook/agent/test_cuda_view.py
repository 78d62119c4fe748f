"""What a program sees of CUDA. The library here is a fake: it has the three functions that are called."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from rules.cuda.versions import CudaVersion
from tests.support.nvml import library, recorded
from webhook.agent.child_process import ChildProcess, CrashError, HangError
from webhook.agent.cuda_view import CudaView, see_cuda, see_cuda_in_time
from webhook.agent.diagnosis import diagnose, explain
from webhook.agent.nvml_probe import Failure, Probe, probe


class FakeCuda:
    """libcuda.so.1 with a version and a number of devices; errors: by function."""

    def __init__(self, version: int = 12020, devices: int = 1, **errors: int) -> None:
        self._values = {"cuDriverGetVersion": version, "cuDeviceGetCount": devices}
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        def call(argument: Any) -> int:
            if name in self._values and name not in self._errors:
                ctypes.cast(argument, ctypes.POINTER(ctypes.c_int))[0] = self._values[name]
            return self._errors.get(name, 0)

        return call


def _of_t4(view: CudaView) -> list[tuple[str, str, bool]]:
    """Return the problems of a node with one T4 and CUDA 12.2: what, the CUDA error, whether pods fail."""
    with library({**recorded("t4"), "cuda": 12020}):
        node_probe = probe(())
    assert isinstance(node_probe, Probe)
    problems = diagnose(node_probe, "535.129.03", view=view)
    return [(problem.problem.en, problem.cuda_name, problem.broken) for problem in problems]


def test_a_program_sees_the_version_and_the_devices() -> None:
    """By three calls."""
    assert CudaView(0, cuda=CudaVersion(13, 0), devices=2) == see_cuda(lambda _: FakeCuda(13000, 2))


def test_without_the_library_it_is_unknown() -> None:
    """As in a container that has NVML alone."""

    def load(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    assert see_cuda(load) is None


@pytest.mark.parametrize("call", ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"])
def test_the_first_call_that_fails_is_named(call: str) -> None:
    """The version and the number are unknown then."""
    assert CudaView(803, call) == see_cuda(lambda _: FakeCuda(**{call: 803}))


@pytest.mark.parametrize(
    ("view", "what", "error", "broken"),
    [
        (
            CudaView(803, "cuInit"),
            "cuInit of libcuda.so.1 fails with error 803",
            "cudaErrorSystemDriverMismatch (803)",
            True,
        ),
        (
            CudaView(0, "", CudaVersion(12, 2), 0),
            "programs see none of the GPUs",
            "cudaErrorNoDevice (100)",
            True,
        ),
        (
            CudaView(0, "", CudaVersion(12, 4), 1),
            (
                "libcuda.so.1 has CUDA 12.4, the driver CUDA 12.2: it is of a compatibility package or of "
                "another driver"
            ),
            "",
            False,
        ),
    ],
)
def test_a_program_that_sees_something_else_than_nvml_is_a_problem(
    view: CudaView, what: str, error: str, broken: bool
) -> None:
    """A program that sees the same is none."""
    assert [] == _of_t4(CudaView(0, "", CudaVersion(12, 2), 1))
    assert [(what, error, broken)] == _of_t4(view)


@pytest.mark.parametrize("error", ["LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED"])
def test_nouveau_is_named_where_it_keeps_the_gpus(error: str) -> None:
    """Not if NVIDIA's driver is loaded."""
    failure = Failure(f"NVML_ERROR_{error}", "nvmlInit")

    assert "nouveau has the GPUs" in explain(failure, None, nouveau=True).problem.en
    assert "blacklist nouveau" in explain(failure, None, nouveau=True).remedy.en
    assert "nouveau" not in explain(failure, "535.129.03", nouveau=True).problem.en
    assert "nouveau" not in explain(failure, None).problem.en


@pytest.mark.parametrize(
    ("error", "view"), [(HangError, CudaView(0, hung=True)), (CrashError, CudaView(999, "cuInit"))]
)
def test_mission_10_a_library_that_does_not_return_is_a_view(
    error: type[Exception], view: CudaView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs, or ends the process: an error of cuInit."""

    def call(_: object) -> None:
        raise error

    monkeypatch.setattr(ChildProcess, "call", call)

    assert view == see_cuda_in_time()


def test_mission_10_a_hang_is_a_problem() -> None:
    """Pods fail."""
    assert [("libcuda.so.1 does not answer within 60 seconds", "", True)] == _of_t4(CudaView(0, hung=True))


def test_mission_10_the_child_process_runs_with_the_modules_of_this_one() -> None:
    """Without libcuda here, it sees what this process sees."""
    assert see_cuda() == see_cuda_in_time()
