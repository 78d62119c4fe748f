"""NVML probe with the real pynvml: results, and every possible failure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from tests.support.nvml import ERRORS, RECORDED, failing, library, recorded
from webhook.agent.labels import metadata_of
from webhook.agent.nvml_probe import Failure, Gpu, Probe, kernel_module, probe

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN = {
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
}
# Errors that are answers: this GPU has no MIG mode, this slot no instance.
ANSWERS = {
    *(("nvmlDeviceGetMigMode", error) for error in UNKNOWN),
    ("nvmlDeviceGetMigDeviceHandleByIndex", "NVML_ERROR_NOT_FOUND"),
}


def test_a_probe_has_the_facts_of_driver_and_gpus() -> None:
    """An A100 and a T4, in the order of their indices."""
    with library("a100-t4"):
        node_probe = probe(())

    assert (
        Probe(
            DriverVersion.parse("535.129.03"),
            CudaVersion(12, 2),
            (
                Gpu(
                    "NVIDIA A100-SXM4-40GB",
                    "GPU-00000000-0000-4000-8000-000000000001",
                    ComputeCapability(8, 0),
                    40960,
                    mig=False,
                    compute_mode="Default",
                    nvlink=False,
                ),
                Gpu(
                    "Tesla T4",
                    "GPU-00000000-0000-4000-8000-000000000002",
                    ComputeCapability(7, 5),
                    15360,
                    compute_mode="Default",
                    nvlink=False,
                ),
            ),
        )
        == node_probe
    )


def test_mig_instances_have_profiles_and_empty_slots_are_skipped() -> None:
    """Seven instances on one GPU; three of three profiles on the other."""
    with library("a100-mig"):
        node_probe = probe(())

    assert isinstance(node_probe, Probe)
    assert [("1g.5gb",) * 7, ("3g.20gb", "1g.5gb+me", "1g.5gb")] == [
        gpu.mig_profiles for gpu in node_probe.gpus
    ]


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_the_state_of_the_fabric_is_read_with_either_version_of_the_call(name: str) -> None:
    """Drivers before 545 have only the first."""
    with library(name) as nvml:
        node_probe = probe(())

    assert isinstance(node_probe, Probe)
    assert {"Completed"} == {gpu.fabric for gpu in node_probe.gpus}
    assert ("nvmlDeviceGetGpuFabricInfo" in nvml.calls) is (name == "h100")


def _connected(*peers: list[int], **facts: Any) -> dict[str, Any]:
    """Return a machine of GPUs with NVLink to these peers, by index. facts: of its first GPU."""
    machine = recorded("h100")
    gpu = machine["gpus"][0] | {"fabric": None}
    machine["gpus"] = [gpu | {"nvlink": peer} for peer in peers]
    machine["gpus"][0] |= facts
    return machine


@pytest.mark.parametrize(
    ("machine", "connected"),
    [
        (_connected([1, 2], [0, 2], [0, 1]), [True, True, True]),  # NVSwitch
        (_connected([1], [0], [3], [2]), [True, True, True, True]),  # bridges, each between two GPUs
        (_connected([1], [0], []), [True, True, False]),
        (_connected([], []), [False, False]),
        (_connected([]), [None]),
        (_connected([], [2], [1], mig=[1, 0], slots=[]), [None, True, True]),
        (_connected([1], [0], fabric={"state": 2, "status": 0}), [None, None]),
        (_connected([1], [0], fabric={"state": 3, "status": 999}), [None, None]),
    ],
)
def test_nvlink_connects_a_gpu_with_any_other_one(machine: dict[str, Any], connected: list[bool]) -> None:
    """Unknown for a single GPU, in MIG mode, and while the fabric is not ready."""
    with library(machine):
        node_probe = probe(())

    assert isinstance(node_probe, Probe)
    assert connected == [gpu.nvlink for gpu in node_probe.gpus]


@pytest.mark.parametrize("error", [*sorted(UNKNOWN), "NVML_ERROR_INVALID_ARGUMENT", "NVML_ERROR_UNKNOWN"])
def test_without_an_answer_about_nvlink_only_the_topology_is_unknown(error: str) -> None:
    """The errors in nvml.h; a GPU that is lost is a failure, as for each other function."""
    with library("h100", failing("nvmlDeviceGetP2PStatus", error)):
        node_probe = probe(())
    with library("h100", failing("nvmlDeviceGetP2PStatus", "NVML_ERROR_GPU_IS_LOST")):
        lost = probe(())

    labels = recorded("h100")["labels"]
    assert isinstance(node_probe, Probe)
    assert labels.pop("gpugate.dev/gpu-topology")
    assert labels == metadata_of(node_probe).labels
    assert Failure("NVML_ERROR_GPU_IS_LOST", "nvmlDeviceGetP2PStatus", 0) == lost


def test_a_missing_driver_is_a_failure_and_no_exception() -> None:
    """pynvml searches for the library, and finds none on this machine."""
    with library("t4"), pytest.MonkeyPatch.context() as patched:
        patched.setattr("pynvml.nvmlLib", None)
        patched.setattr("pynvml.CDLL", _no_library)

        assert Failure("NVML_ERROR_LIBRARY_NOT_FOUND", "nvmlInit") == probe(())


def _no_library(name: str) -> None:
    raise OSError(f"{name}: cannot open shared object file: No such file or directory")


def _answer(failing_call: int, error: int, name: str, number: int) -> int:
    del name
    return error if number == failing_call else 0


def _outcomes(name: str) -> Iterator[tuple[int, str, str, Probe | Failure, int]]:
    """Probe a machine with each error in each call: (number, call, error, outcome, left open)."""
    for number in count():
        for error, code in ERRORS.items():
            with library(name, partial(_answer, number, code)) as nvml:
                outcome = probe(())
            if number >= len(nvml.calls):
                return
            yield number, nvml.calls[number], error, outcome, nvml.open


@pytest.mark.parametrize("name", ["a100-mig", "h100", "gb10"])
def test_any_error_of_any_call_gives_no_wrong_label_and_shuts_nvml_down(name: str) -> None:
    """Unknown facts have no label, and the other labels are the same as without the error."""
    right = recorded(name)["labels"]
    for number, call, error, outcome, left_open in _outcomes(name):
        where = f"{error} at call {number}, {call}"
        assert left_open == (1 if call == "nvmlShutdown" else 0), where
        if isinstance(outcome, Failure):
            assert (error, call.removesuffix("_v2").removesuffix("WithFlags")) == (
                outcome.error,
                outcome.call,
            )
        elif (call, error) not in ANSWERS:
            assert metadata_of(outcome).labels.items() <= right.items(), where


def test_unsupported_queries_are_unknown_and_other_errors_are_failures() -> None:
    """Four errors mean that a query is not supported; in the first calls these are failures, too.

    Memory may be denied: for a GPU in MIG mode it requires the capability to monitor MIG.
    """
    unknown = {
        (call, error)
        for _, call, error, outcome, _ in _outcomes("gb10")
        if isinstance(outcome, Probe) and call != "nvmlShutdown"
    }
    needed = {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"}
    with library("gb10") as nvml:
        probe(())

    absent = {
        (call, error) for call in nvml.calls if call not in {*needed, "nvmlShutdown"} for error in UNKNOWN
    }
    assert absent | {("nvmlDeviceGetMemoryInfo", "NVML_ERROR_NO_PERMISSION")} == unknown


@pytest.mark.parametrize(
    "reason",
    [
        "UNINITIALIZED",
        "DRIVER_NOT_LOADED",
        "LIB_RM_VERSION_MISMATCH",
        "GPU_IS_LOST",
        "RESET_REQUIRED",
        "TIMEOUT",
        "UNKNOWN",
    ],
)
def test_a_driver_that_is_unloaded_between_two_calls_is_a_failure(reason: str) -> None:
    """From some call on all fail, including the last; the earlier results are discarded."""
    error = f"NVML_ERROR_{reason}"
    with library("a100-mig") as well:
        probe(())
    for since in range(len(well.calls) - 1):
        with library("a100-mig", partial(_gone, since, ERRORS[error])):
            outcome = probe(())

        assert isinstance(outcome, Failure), (since, well.calls[since])
        assert error == outcome.error, (since, well.calls[since])


def _gone(since: int, error: int, name: str, number: int) -> int:
    del name
    return error if number >= since else 0


@given(st.lists(st.sampled_from([0, 0, 0, *ERRORS.values(), 12345]), max_size=60), st.sampled_from(RECORDED))
def test_no_results_of_nvml_are_an_exception(statuses: list[int], name: str) -> None:
    """For any status of each call on any machine, including an unknown number."""
    with library(name, lambda _, number: statuses[number] if number < len(statuses) else 0):
        outcome = probe(())

    assert isinstance(outcome, Probe | Failure)
    if isinstance(outcome, Probe):
        metadata_of(outcome)


@pytest.mark.parametrize("name", ["t4", "h200"])
def test_a_driver_that_lacks_a_function_gives_a_failure_or_no_wrong_label(name: str) -> None:
    """Any of the called functions may be missing in an older or newer library."""
    right = recorded(name)["labels"]
    with library(name) as well:
        probe(())
    for function in set(well.calls):
        machine = recorded(name)
        with library(machine | {"lacks": [*machine["lacks"], function]}):
            outcome = probe(())

        if isinstance(outcome, Probe):
            assert metadata_of(outcome).labels.items() <= right.items(), function
        else:
            assert "NVML_ERROR_FUNCTION_NOT_FOUND" == outcome.error, function


def test_a_failure_names_call_and_gpu() -> None:
    """The operator must know which of eight GPUs is lost."""
    with library("h100") as well:
        probe(())
    last = max(number for number, name in enumerate(well.calls) if name == "nvmlDeviceGetMemoryInfo")
    with library("h100", partial(_answer, last, ERRORS["NVML_ERROR_GPU_IS_LOST"])):
        node_probe = probe(())

    assert Failure("NVML_ERROR_GPU_IS_LOST", "nvmlDeviceGetMemoryInfo", 1) == node_probe


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMigDeviceHandle"])
def test_instances_that_this_user_may_not_monitor_are_unknown(call: str) -> None:
    """MIG mode is known without privilege; a count of the visible instances would be wrong."""
    with library("a100-mig", failing(call, "NVML_ERROR_NO_PERMISSION")):
        node_probe = probe(())

    assert isinstance(node_probe, Probe)
    assert [(True, None), (True, None)] == [(gpu.mig, gpu.mig_profiles) for gpu in node_probe.gpus]


def test_an_invalid_argument_for_the_compute_mode_in_mig_mode_is_unknown() -> None:
    """As nvml.h documents for MIG mode; without MIG mode the same error is a failure."""
    answer = failing("nvmlDeviceGetComputeMode", "NVML_ERROR_INVALID_ARGUMENT")
    with library("a100-mig", answer):
        node_probe = probe(())
    with library("t4", answer):
        other = probe(())

    assert isinstance(node_probe, Probe)
    assert [None, None] == [gpu.compute_mode for gpu in node_probe.gpus]
    assert Failure("NVML_ERROR_INVALID_ARGUMENT", "nvmlDeviceGetComputeMode", 0) == other


@given(st.binary(max_size=90).filter(lambda name: b"\0" not in name))
def test_any_bytes_for_a_name_make_a_probe(name: bytes) -> None:
    """A broken GPU may return anything; invalid text is unknown."""
    machine = recorded("t4")
    machine["gpus"][0]["name"] = name.decode("utf-8", "surrogateescape")
    with library(machine):
        node_probe = probe(())

    assert isinstance(node_probe, Probe)
    metadata_of(node_probe)


def test_an_mps_control_daemon_is_detected_by_its_pid_file(tmp_path: Path) -> None:
    """In a pipe directory, and under the root of NVIDIA's device plugin; pipes stay after their daemon."""
    own, plugin, left = tmp_path / "nvidia-mps", tmp_path / "mps", tmp_path / "left"
    resource = plugin / "nvidia.com/gpu/pipe"
    for directory in (own, resource, left):
        directory.mkdir(parents=True)
        (directory / "control").touch()
    for directory in (own, resource):
        (directory / "nvidia-cuda-mps-control.pid").touch()
    with library("t4"):
        node_probe = probe((own, plugin, left, tmp_path / "absent"))

    assert isinstance(node_probe, Probe)
    assert (str(own), str(resource)) == node_probe.mps


def test_an_unreadable_directory_has_no_daemon(tmp_path: Path) -> None:
    """The agent is not root, MPS may be. A name that is too long fails for root as well."""
    with library("t4"):
        node_probe = probe((tmp_path / ("x" * 300),))

    assert isinstance(node_probe, Probe)
    assert () == node_probe.mps


def test_the_version_of_the_kernel_module(tmp_path: Path) -> None:
    """Missing, loaded, and loaded without a version."""
    folder = tmp_path / "nvidia"
    absent = kernel_module(folder)
    folder.mkdir()
    unknown = kernel_module(folder)
    (folder / "version").write_text("535.129.03\n")

    assert (None, "", "535.129.03") == (absent, unknown, kernel_module(folder))
