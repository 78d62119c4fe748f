"""Diagnosis of broken nodes, and the supported workloads of healthy ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rules.cuda.versions import CudaVersion
from rules.text.i18n import Language, Text
from tests.support.nvml import ERRORS, failing, library, recorded
from webhook.agent.diagnosis import Diagnosis, diagnose, explain
from webhook.agent.labels import capabilities_of, metadata_of
from webhook.agent.nvml_probe import Failure, Probe, probe
from webhook.agent.supported_workloads import CompatibilityMode, data_types, runtimes

KERNEL = "535.129.03"


def probed(name: str, **gpu: Any) -> Probe:
    """Return the probe of a recorded machine; gpu: replaced facts of its first GPU."""
    machine = recorded(name)
    machine["gpus"][0] |= gpu
    with library(machine):
        node_probe = probe(())
    assert isinstance(node_probe, Probe)
    return node_probe


def modes(name: str) -> dict[str, str | None]:
    """Return each runtime with its compatibility mode on a recorded machine."""
    return {
        str(runtime.cuda): runtime.mode.value if runtime.mode else None
        for runtime in runtimes(capabilities_of(probed(name)))
    }


@pytest.mark.parametrize("name", ["t4", "v100", "h200", "b200", "gb10", "rtx-4090-d", "gh200"])
def test_a_healthy_node_has_no_problems(name: str) -> None:
    """Its labels have none either, once the agent has set them."""
    node_probe = probed(name)

    assert () == diagnose(node_probe, KERNEL, metadata_of(node_probe).labels)


@pytest.mark.parametrize(
    ("error", "module", "what", "remedy", "cuda"),
    [
        ("LIBRARY_NOT_FOUND", None, "no NVIDIA driver", "install", "cudaErrorInsufficientDriver (35)"),
        ("LIBRARY_NOT_FOUND", KERNEL, f"the kernel has driver {KERNEL}", "runtimeClassName", "(35)"),
        ("DRIVER_NOT_LOADED", None, "is not loaded", "modprobe", "cudaErrorNoDevice (100)"),
        ("DRIVER_NOT_LOADED", KERNEL, "devices /dev/nvidia* are missing here", "CDI", "(100)"),
        (
            "LIB_RM_VERSION_MISMATCH",
            KERNEL,
            f"the kernel's is {KERNEL}",
            "reboot",
            "cudaErrorSystemDriverMismatch (803)",
        ),
        ("GPU_IS_LOST", KERNEL, "fallen off the bus", "Xid", ""),
        ("NO_PERMISSION", KERNEL, "denies access to this user", "/dev/nvidiactl", ""),
    ],
)
def test_a_failure_has_a_description_and_a_remedy(
    error: str, module: str | None, what: str, remedy: str, cuda: str
) -> None:
    """With the names of the NVML and CUDA errors."""
    (diagnosis,) = diagnose(Failure(f"NVML_ERROR_{error}", "nvmlInit"), module)

    assert what in diagnosis.problem.en
    assert remedy in diagnosis.remedy.en
    assert cuda in diagnosis.cuda_name
    assert f"NVML_ERROR_{error} at nvmlInit" in diagnosis.line(Language.EN)
    assert diagnosis.broken


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_of_nvml_has_a_diagnosis(error: str) -> None:
    """Including unexpected ones."""
    diagnosis = explain(Failure(error, "nvmlDeviceGetName", 1), KERNEL)

    assert all((diagnosis.problem.en, diagnosis.problem.zh, diagnosis.remedy.en, diagnosis.remedy.zh))
    assert f"({error} at nvmlDeviceGetName of GPU 1" in diagnosis.line(Language.EN)


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
    """For example if the Fabric Manager does not run on a machine with NVSwitch."""
    (diagnosis,) = diagnose(probed("h200", fabric=fabric), KERNEL)

    assert (what, nvml, "cudaErrorSystemNotReady (802)") == (
        diagnosis.problem.en,
        diagnosis.nvml,
        diagnosis.cuda_name,
    )
    assert "Fabric Manager" in diagnosis.remedy.en


def test_modes_that_block_programs_are_problems() -> None:
    """Prohibited is broken; Exclusive_Process without MPS and MIG without instances are warnings."""
    prohibited, exclusive = probed("t4", computeMode=2), probed("t4", computeMode=3)
    without = probed("a100-mig", slots=[None] * 7)

    assert [(True, 46), (False, 46), (False, 100)] == [
        (diagnosis.broken, diagnosis.cuda)
        for node_probe in (prohibited, exclusive, without)
        for diagnosis in diagnose(node_probe, KERNEL)
    ]
    assert () == diagnose(replace(exclusive, mps=("/run/nvidia/mps/nvidia.com/gpu/pipe",)), KERNEL)


def test_a_node_without_gpus_has_a_problem() -> None:
    """It has a driver, but no GPU."""
    with library(recorded("t4") | {"gpus": []}):
        node_probe = probe(())

    assert ["driver 535.129.03 has no GPU"] == [
        diagnosis.problem.en for diagnosis in diagnose(node_probe, KERNEL)
    ]


def test_a_gpu_that_the_new_driver_ignores_is_named_by_the_labels_of_before_the_upgrade() -> None:
    """The driver that supports it is the remedy."""
    with library(recorded("v100") | {"gpus": [], "driver": "595.71.05", "cuda": 13020}):
        node_probe = probe(())
    first, *_ = diagnose(node_probe, "595.71.05", metadata_of(probed("v100")).labels)

    assert (
        "driver 595.71.05 has no GPU, and by its labels the node has one: driver branch 595 does not support "
        "the V100 (Volta): R580 is the last branch that does"
    ) == first.problem.en
    assert "downgrade the node's driver to R580, or use a newer GPU" == first.remedy.en
    assert first.broken


def test_a_gpu_that_is_newer_than_the_driver_is_named_by_the_labels() -> None:
    """They are from before the downgrade; the first driver that supports it is the remedy."""
    with library(recorded("v100") | {"gpus": [], "driver": "470.256.02", "cuda": 11040}):
        node_probe = probe(())
    first, *_ = diagnose(node_probe, "470.256.02", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})

    assert (
        "driver 470.256.02 has no GPU, and by its labels the node has one: driver branch 470 does not "
        "support the H100 (Hopper): R520 is the first branch that does"
    ) == first.problem.en
    assert "upgrade the node's driver to R520 or a later branch" == first.remedy.en


def test_a_driver_that_is_not_loaded_may_be_newer_than_its_gpu_supports() -> None:
    """Then loading it finds no device."""
    diagnosis = explain(Failure("NVML_ERROR_DRIVER_NOT_LOADED", "nvmlInit"), None)

    assert "a driver newer than R580 does not support Maxwell, Pascal and Volta" in diagnosis.remedy.en
    assert "the driver may be older than the GPU" in diagnosis.remedy.en


def test_stale_and_missing_labels_are_problems() -> None:
    """Labels of the agent, labels of GPU Feature Discovery, and a node without any."""
    node_probe = probed("t4")
    right = metadata_of(node_probe).labels
    stale = {
        **right,
        "cuda-minor-version": "1",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "0",
    }

    assert [
        "compute capability: the labels of GPU Feature Discovery have 8.0, NVML reports 7.5",
        "the node has cuda-minor-version=1, NVML reports 2",
    ] == [diagnosis.problem.en for diagnosis in diagnose(node_probe, KERNEL, stale)]
    assert ["no label has the driver's CUDA version"] == [
        diagnosis.problem.en for diagnosis in diagnose(node_probe, KERNEL, {})
    ]


def test_invisible_mig_instances_are_no_problem() -> None:
    """Only root sees them."""
    with library("a100-mig", failing("nvmlDeviceGetMigDeviceHandle", "NVML_ERROR_NO_PERMISSION")):
        node_probe = probe(())

    assert () == diagnose(node_probe, KERNEL)


def test_a_diagnosis_without_errors_is_a_sentence() -> None:
    """Problem and remedy."""
    diagnosis = Diagnosis(Text("it rains", zh="下雨了"), Text("go in", zh="进去"))

    assert ["it rains; go in", "下雨了；进去"] == [diagnosis.line(language) for language in Language]


def test_a_data_center_gpu_supports_runtimes_in_three_modes() -> None:
    """By its driver, by minor version compatibility, and by forward compatibility."""
    known_modes = modes("h100")

    assert "driver" == known_modes["11.8"] == known_modes["12.2"]
    assert CompatibilityMode.MINOR_VERSION.value == known_modes["12.3"] == known_modes["12.9"]
    assert CompatibilityMode.FORWARD.value == known_modes["13.0"]


def test_other_gpus_have_no_forward_compatibility() -> None:
    """And CUDA 13 has no code for Volta."""
    assert [None, None] == [modes("rtx-4090-d")["13.0"], modes("v100")["13.0"]]


def test_a_runtime_without_code_for_the_gpu_has_a_reason() -> None:
    """CUDA 12.4 does not support Blackwell; only PTX may work."""
    of_b200 = {runtime.cuda: runtime for runtime in runtimes(capabilities_of(probed("b200")))}
    reasons = [finding.reason.en for finding in of_b200[CudaVersion(12, 4)].reasons]

    assert ["the image may hold no code for compute capability 10.0"] == reasons
    assert () == of_b200[CudaVersion(12, 8)].reasons


@pytest.mark.parametrize(
    ("name", "supported"),
    [
        ("titan-xp", set()),
        ("t4", {"float16"}),
        ("a100-mig", {"float16", "bfloat16"}),
        ("rtx-4090-d", {"float16", "bfloat16", "fp8"}),
        ("b200", {"float16", "bfloat16", "fp8", "fp4"}),
    ],
)
def test_data_types_follow_the_compute_capability(name: str, supported: set[str]) -> None:
    """Types that tensor cores support."""
    types = data_types(capabilities_of(probed(name)))

    assert supported == {name for name, is_supported in types.items() if is_supported}
