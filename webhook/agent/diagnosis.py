"""Diagnosis: the problems of a node and their remedies, from an NVML probe.

Sources: https://docs.nvidia.com/deploy/nvml-api/ (nvmlReturn_t), https://docs.nvidia.com/deploy/xid-errors/,
https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/ and data/errors.yaml for CUDA's errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rules.cuda.tables import cuda_error
from webhook.agent.labels import CUDA_LABELS, differences, metadata_of
from webhook.agent.nvml_probe import FABRIC_READY, Failure, Gpu, Probe

MISMATCH: Final = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
# CUDA errors of programs on a broken node (data/errors.yaml).
_INSUFFICIENT_DRIVER: Final = 35
_UNAVAILABLE: Final = 46
_NO_DEVICE: Final = 100
_NOT_READY: Final = 802
_DRIVER_MISMATCH: Final = 803

_REACH: Final = "give the container the driver's libraries and devices: runtimeClassName nvidia, or CDI"
_KERNEL_LOG: Final = "check the kernel log (dmesg) for `NVRM: Xid`"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A problem. broken: pods will fail because of it; otherwise it is a warning.

    nvml: the name of the error, or empty. at: the failed call of NVML, or empty. cuda: the number of the CUDA
    error that programs get, or 0.
    """

    what: str
    remedy: str
    broken: bool = True
    nvml: str = ""
    cuda: int = 0
    at: str = ""

    @property
    def cuda_name(self) -> str:
        """The CUDA error's name and number, or an empty string."""
        known = cuda_error(self.cuda)
        return f"{known.name} ({known.code})" if known else ""

    def __str__(self) -> str:
        nvml = f"{self.nvml} at {self.at}" if self.at else self.nvml
        errors = ", ".join(filter(None, (nvml, self.cuda_name)))
        return f"{self.what}{f' ({errors})' if errors else ''}; {self.remedy}"


# By error of any call: the problem, the remedy, and the CUDA error of programs.
_ERRORS: Final[Mapping[str, tuple[str, str, int]]] = {
    MISMATCH: (
        "the driver's library and the kernel's driver have different versions",
        "the driver was upgraded while it was in use: reboot the node, or drain it and reload the modules",
        _DRIVER_MISMATCH,
    ),
    "NVML_ERROR_NO_PERMISSION": (
        "the driver denies access to this user",
        "set the mode of /dev/nvidiactl and /dev/nvidia* to 0666",
        0,
    ),
    "NVML_ERROR_UNINITIALIZED": (
        "the driver was unloaded during the probe",
        "try again once it is loaded",
        0,
    ),
    "NVML_ERROR_GPU_IS_LOST": (
        "a GPU has fallen off the bus",
        f"{_KERNEL_LOG} 79; drain and reboot the node; if it happens again, have the card inspected",
        0,
    ),
    "NVML_ERROR_RESET_REQUIRED": (
        "a GPU must be reset",
        f"{_KERNEL_LOG}; drain the node and run `nvidia-smi --gpu-reset`, or reboot it",
        0,
    ),
    "NVML_ERROR_IRQ_ISSUE": ("a GPU raises no interrupts", f"{_KERNEL_LOG}, and reboot the node", 0),
    "NVML_ERROR_TIMEOUT": ("the driver does not answer in time", f"{_KERNEL_LOG}, and reboot the node", 0),
    "NVML_ERROR_CORRUPTED_INFOROM": (
        "a GPU's inforom is corrupted",
        "run `nvidia-smi -q` on the node, and have the card inspected",
        0,
    ),
    "NVML_ERROR_INSUFFICIENT_POWER": ("a GPU lacks external power", "check its power cables", 0),
}


def explain(failure: Failure, module: str | None) -> Diagnosis:
    """Return the problem behind a failed probe. module: the kernel's driver, of `kernel_module`."""
    kernel = f"the kernel has driver {module}".rstrip()
    if failure.error == "NVML_ERROR_LIBRARY_NOT_FOUND":
        code = _INSUFFICIENT_DRIVER
        if module is None:
            what, remedy = "no NVIDIA driver", "install one on the node"
        else:
            what, remedy = f"{kernel}, but its library libnvidia-ml.so.1 was not found here", _REACH
    elif failure.error == "NVML_ERROR_DRIVER_NOT_LOADED":
        code = _NO_DEVICE
        if module is None:
            what, remedy = "the NVIDIA driver is not loaded", "load it on the node: `modprobe nvidia`"
        else:
            what, remedy = f"{kernel}, but its devices /dev/nvidia* are missing here", _REACH
    else:
        what, remedy, code = _ERRORS.get(failure.error, ("the driver fails", _KERNEL_LOG, 0))
        if failure.error == MISMATCH and module:
            what = f"{what}, the kernel's is {module}"
    at = failure.call if failure.gpu is None else f"{failure.call} of GPU {failure.gpu}"
    return Diagnosis(what, remedy, nvml=failure.error, cuda=code, at=at)


def diagnose(
    found: Probe | Failure, module: str | None, labels: Mapping[str, str] | None = None
) -> tuple[Diagnosis, ...]:
    """Return all problems of a node; labels: of its object in a cluster, if known."""
    if isinstance(found, Failure):
        return (explain(found, module),)
    return (*_of_probe(found), *(_of_labels(labels, found) if labels is not None else ()))


def _of_probe(probe: Probe) -> Iterator[Diagnosis]:
    if not probe.gpus:
        yield Diagnosis(
            f"driver {probe.driver} has no GPU", f"{_KERNEL_LOG}, and `lspci -d 10de:`", cuda=_NO_DEVICE
        )
    for index, gpu in enumerate(probe.gpus):
        yield from _of_gpu(f"GPU {index}", gpu, probe)


def _of_gpu(name: str, gpu: Gpu, probe: Probe) -> Iterator[Diagnosis]:
    fabric = "start the Fabric Manager of the driver's version, and check its log"
    if gpu.fabric_error:
        what = f"{name} could not join the NVLink fabric"
        yield Diagnosis(what, fabric, nvml=gpu.fabric_error, cuda=_NOT_READY)
    elif gpu.fabric not in (None, FABRIC_READY):
        what = f"{name} waits for the NVLink fabric, whose state is {gpu.fabric}"
        yield Diagnosis(what, fabric, cuda=_NOT_READY)
    if gpu.mig and gpu.mig_profiles == ():
        yield Diagnosis(
            f"{name} is in MIG mode and has no MIG instance",
            "create instances, or leave MIG mode",
            broken=False,
            cuda=_NO_DEVICE,
        )
    if gpu.compute_mode == "Prohibited":
        yield Diagnosis(
            f"{name} is in compute mode Prohibited", "run `nvidia-smi -c DEFAULT`", cuda=_UNAVAILABLE
        )
    elif gpu.compute_mode == "Exclusive_Process" and not probe.mps:
        yield Diagnosis(
            f"{name} is in compute mode Exclusive_Process, but no MPS control daemon was found",
            "start one, or run `nvidia-smi -c DEFAULT`",
            broken=False,
            cuda=_UNAVAILABLE,
        )


def _of_labels(labels: Mapping[str, str], probe: Probe) -> Iterator[Diagnosis]:
    for difference in differences(labels, probe):
        yield Diagnosis(
            difference.message,
            "restart GPU Feature Discovery on this node",
            broken=False,
        )
    expected = metadata_of(probe).labels
    wrong = [key for key, value in expected.items() if key in labels and labels[key] != value]
    if wrong:
        yield Diagnosis(
            f"the node has {', '.join(f'{key}={labels[key]}' for key in wrong)}, "
            f"NVML reports {', '.join(expected[key] for key in wrong)}",
            "run `gpugate node label`",
            broken=False,
        )
    elif not any(key in labels for key in CUDA_LABELS):
        yield Diagnosis("no label has the driver's CUDA version", "run `gpugate node label`", broken=False)
