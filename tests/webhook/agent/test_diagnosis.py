"""What is said of a broken node, and which programs a sound one runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rules.cuda.versions import CudaVersion
from tests.support.nvml import ERRORS, failing, library, recorded
from webhook.agent.diagnosis import Diagnosis, diagnose, explain
from webhook.agent.labels import offer_of, told_by
from webhook.agent.nvml_probe import Failure, Probe, probe
from webhook.agent.supported_workloads import Way, data_types, runtimes

KERNEL = "535.129.03"


def probed(name: str, **gpu: Any) -> Probe:
    """Return the probe of a recorded machine; gpu: what its first GPU answers in place of that."""
    machine = recorded(name)
    machine["gpus"][0] |= gpu
    with library(machine):
        found = probe(())
    assert isinstance(found, Probe)
    return found


def ways(name: str) -> dict[str, str | None]:
    """Return each runtime with the way in which it runs on a recorded machine."""
    return {str(each.cuda): each.way.value if each.way else None for each in runtimes(offer_of(probed(name)))}


@pytest.mark.parametrize("name", ["t4", "v100", "h200", "b200", "gb10", "rtx-4090-d", "gh200"])
def test_nothing_is_wrong_with_a_sound_node(name: str) -> None:
    """Nor with its labels once the agent has set them."""
    found = probed(name)

    assert () == diagnose(found, KERNEL, told_by(found).labels)


@pytest.mark.parametrize(
    ("error", "module", "what", "remedy", "cuda"),
    [
        ("LIBRARY_NOT_FOUND", None, "no NVIDIA driver", "install", "cudaErrorInsufficientDriver (35)"),
        ("LIBRARY_NOT_FOUND", KERNEL, f"the kernel has driver {KERNEL}", "runtimeClassName", "(35)"),
        ("DRIVER_NOT_LOADED", None, "is not loaded", "modprobe", "cudaErrorNoDevice (100)"),
        ("DRIVER_NOT_LOADED", KERNEL, "devices /dev/nvidia* are not here", "CDI", "(100)"),
        (
            "LIB_RM_VERSION_MISMATCH",
            KERNEL,
            f"the kernel's is {KERNEL}",
            "reboot",
            "cudaErrorSystemDriverMismatch (803)",
        ),
        ("GPU_IS_LOST", KERNEL, "fallen off the bus", "Xid", ""),
        ("NO_PERMISSION", KERNEL, "refuses this user", "/dev/nvidiactl", ""),
    ],
)
def test_a_failure_says_what_it_is_and_what_to_do(
    error: str, module: str | None, what: str, remedy: str, cuda: str
) -> None:
    """In words of the field, with the names of both errors."""
    (said,) = diagnose(Failure(f"NVML_ERROR_{error}", "nvmlInit"), module)

    assert what in said.what
    assert remedy in said.remedy
    assert cuda in said.cuda_name
    assert f"NVML_ERROR_{error} at nvmlInit" in str(said)
    assert said.broken


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_of_nvml_has_words(error: str) -> None:
    """Also those that nobody expects."""
    said = explain(Failure(error, "nvmlDeviceGetName", 1), KERNEL)

    assert said.what
    assert said.remedy
    assert f"({error} at nvmlDeviceGetName of GPU 1" in str(said)


@pytest.mark.parametrize(
    ("fabric", "what", "nvml"),
    [
        ({"state": 1, "status": 0}, "GPU 0 waits for the NVLink fabric, whose state is Not Started", ""),
        ({"state": 2, "status": 0}, "GPU 0 waits for the NVLink fabric, whose state is In Progress", ""),
        ({"state": 3, "status": 999}, "GPU 0 could not join the NVLink fabric", "NVML_ERROR_UNKNOWN"),
    ],
)
def test_a_gpu_that_is_not_in_its_fabric_fails_programs_with_802(
    fabric: dict[str, int], what: str, nvml: str
) -> None:
    """As where the Fabric Manager does not run on a machine with NVSwitch."""
    (said,) = diagnose(probed("h200", fabric=fabric), KERNEL)

    assert (what, nvml, "cudaErrorSystemNotReady (802)") == (said.what, said.nvml, said.cuda_name)
    assert "Fabric Manager" in said.remedy


def test_modes_that_keep_programs_out_are_said() -> None:
    """Prohibited is broken; what MPS wants and MIG without instances are worth a look."""
    prohibited, exclusive = probed("t4", computeMode=2), probed("t4", computeMode=3)
    without = probed("a100-mig", slots=[None] * 7)

    assert [(True, 46), (False, 46), (False, 100)] == [
        (said.broken, said.cuda)
        for found in (prohibited, exclusive, without)
        for said in diagnose(found, KERNEL)
    ]
    assert () == diagnose(replace(exclusive, mps=("/run/nvidia/mps/nvidia.com/gpu/pipe",)), KERNEL)


def test_a_node_without_gpus_is_said() -> None:
    """The driver is there, and no GPU."""
    with library(recorded("t4") | {"gpus": []}):
        found = probe(())

    assert ["driver 535.129.03 has no GPU"] == [said.what for said in diagnose(found, KERNEL)]


def test_labels_that_are_stale_or_absent_are_said() -> None:
    """Those of the agent, those of GPU Feature Discovery, and a node that has none."""
    found = probed("t4")
    right = told_by(found).labels
    stale = {
        **right,
        "cuda-minor-version": "1",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "0",
    }

    assert [
        "compute capability: the labels of GPU Feature Discovery say 8.0, NVML says 7.5",
        "the node has cuda-minor-version=1, NVML says 2",
    ] == [said.what for said in diagnose(found, KERNEL, stale)]
    assert ["no label tells the driver's CUDA"] == [said.what for said in diagnose(found, KERNEL, {})]


def test_instances_that_cannot_be_seen_are_no_finding() -> None:
    """They are for root alone."""
    with library("a100-mig", failing("nvmlDeviceGetMigDeviceHandle", "NVML_ERROR_NO_PERMISSION")):
        found = probe(())

    assert () == diagnose(found, KERNEL)


def test_a_diagnosis_without_errors_is_a_sentence() -> None:
    """What, and what to do."""
    assert "it rains; go in" == str(Diagnosis("it rains", "go in"))


def test_a_data_centre_gpu_runs_newer_runtimes_in_three_ways() -> None:
    """By its driver, within the major version, and with cuda-compat."""
    found = ways("h100")

    assert "driver" == found["11.8"] == found["12.2"]
    assert Way.MINOR_VERSION.value == found["12.3"] == found["12.9"]
    assert Way.FORWARD.value == found["13.0"]


def test_other_gpus_have_no_forward_compatibility() -> None:
    """And CUDA 13 has no code for Volta at all."""
    assert [None, None] == [ways("rtx-4090-d")["13.0"], ways("v100")["13.0"]]


def test_a_runtime_without_code_for_the_gpu_is_told_with_its_reason() -> None:
    """CUDA 12.4 knows no Blackwell; only PTX may help."""
    of_b200 = {each.cuda: each for each in runtimes(offer_of(probed("b200")))}
    reasons = [finding.reason.en for finding in of_b200[CudaVersion(12, 4)].reasons]

    assert ["the image may hold no code for compute capability 10.0"] == reasons
    assert () == of_b200[CudaVersion(12, 8)].reasons


@pytest.mark.parametrize(
    ("name", "able"),
    [
        ("titan-xp", set()),
        ("t4", {"float16"}),
        ("a100-mig", {"float16", "bfloat16"}),
        ("rtx-4090-d", {"float16", "bfloat16", "fp8"}),
        ("b200", {"float16", "bfloat16", "fp8", "fp4"}),
    ],
)
def test_data_types_follow_the_compute_capability(name: str, able: set[str]) -> None:
    """What tensor cores compute with."""
    types = data_types(offer_of(probed(name)))

    assert able == {name for name, fits in types.items() if fits}
