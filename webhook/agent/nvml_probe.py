"""What NVML says of a node: its driver, its GPUs, and whether an MPS control daemon runs.

NVML is asked anew each time and always shut down, so that between two probes a driver can be unloaded.
Sources: https://docs.nvidia.com/deploy/nvml-api/, and for MPS https://docs.nvidia.com/deploy/mps/.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml

from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion

# The kernel's driver as every container sees it. Of /proc/driver/nvidia, NVIDIA's container runtime may show
# a copy that it made when the container started.
KERNEL_MODULE: Final = Path("/sys/module/nvidia")
# Where an MPS control daemon has its pipes: by default
# (https://docs.nvidia.com/deploy/mps/appendix-environment-variables.html, CUDA_MPS_PIPE_DIRECTORY), and under
# the root of NVIDIA's device plugin, where each resource has a folder of its own: nvidia.com/gpu/pipe.
MPS_DIRECTORIES: Final = (Path("/tmp/nvidia-mps"), Path("/run/nvidia/mps"))  # noqa: S108 - CUDA's own default
_PIPES_OF_PLUGIN: Final = "*/*/pipe"
# It goes when the daemon ends, as the pipes beside it do not.
_PID_FILE: Final = "nvidia-cuda-mps-control.pid"

_MIB: Final = 1 << 20
_COMPUTE_MODES: Final = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "Default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "Exclusive_Thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "Prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "Exclusive_Process",
}
FABRIC_READY: Final = "Completed"
_FABRIC_STATES: Final = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "Not Started",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "In Progress",
    pynvml.NVML_GPU_FABRIC_STATE_COMPLETED: FABRIC_READY,
}
# What a driver or a GPU that has not got something answers with.
_UNKNOWN: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
# Of a GPU in MIG mode, NVML tells memory and all instances to who may monitor MIG:
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/device-nodes-and-capabilities.html
_REFUSED: Final[int] = pynvml.NVML_ERROR_NO_PERMISSION
_NAMES: Final[dict[int, str]] = {
    code: name for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU; None is what nobody knows.

    name: as nvidia-smi prints it. memory_mib: MiB of the whole GPU; GPUs that share the CPU's memory tell
    none. mig: whether MIG mode is on; None where there is no such mode. mig_profiles: one for each instance,
    such as `1g.5gb`; None where this user is not told all of them. compute_mode, fabric: as nvidia-smi prints
    them; fabric is None without NVSwitch. fabric_error: of an attempt to join the fabric that has ended, or
    empty.
    """

    name: str | None
    uuid: str | None
    compute_capability: ComputeCapability | None
    memory_mib: int | None
    mig: bool | None = None
    mig_profiles: tuple[str, ...] | None = ()
    compute_mode: str | None = None
    fabric: str | None = None
    fabric_error: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """What NVML says of a node. cuda: the version of the driver's API. mps: where control daemons run."""

    driver: DriverVersion | None
    cuda: CudaVersion | None
    gpus: tuple[Gpu, ...]
    mps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """What NVML answers in place of a probe.

    error: its name, such as NVML_ERROR_GPU_IS_LOST. call: the function that was answered so. gpu: the index
    of the GPU that was asked of; None where it was none.
    """

    error: str
    call: str
    gpu: int | None = None


# nvmlGpuFabricInfo_t and nvmlGpuFabricInfo_v2_t of nvml.h; some releases of pynvml have them too long.
_FABRIC_INFO: Final[list[tuple[str, Any]]] = [
    ("cluster_uuid", ctypes.c_ubyte * 16),
    ("status", ctypes.c_uint),
    ("clique_id", ctypes.c_uint32),
    ("state", ctypes.c_uint),
]


class _FabricInfo(ctypes.Structure):
    _fields_ = _FABRIC_INFO


class _FabricInfoV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), *_FABRIC_INFO, ("health_mask", ctypes.c_uint32)]


# As NVML_STRUCT_VERSION of nvml.h: the version above 24 bits of length.
_VERSION_2: Final = ctypes.sizeof(_FabricInfoV2) | 2 << 24


def kernel_module(folder: Path = KERNEL_MODULE) -> str | None:
    """Return the version of the kernel's driver, empty where it does not tell; None where none is loaded."""
    if not folder.is_dir():
        return None
    try:
        return (folder / "version").read_text("utf-8").strip()
    except OSError:  # unloaded in between, or a driver that is built in
        return ""


def probe(mps_directories: Iterable[Path] = MPS_DIRECTORIES) -> Probe | Failure:
    """Return what NVML says, or what keeps it from it."""
    asked = _Asked()
    try:
        asked.call(pynvml.nvmlInit)
        try:
            return _probe(asked, tuple(map(str, _control_daemons(mps_directories))))
        finally:
            with suppress(pynvml.NVMLError):  # there is nothing to be done about it, and nothing left open
                pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Failure(_NAMES.get(error.value, f"NVML_ERROR {error.value}"), asked.name, asked.gpu)


class _Asked:
    """Asks NVML, and remembers what: an error of NVML does not tell. gpu: of which GPU, or None."""

    def __init__(self) -> None:
        self.name = ""
        self.gpu: int | None = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function answers. Raises NVMLError."""
        self.name = function.__name__
        return function(*arguments)

    def know(self, function: Callable[..., Any], *arguments: Any, also: int | None = None) -> Any:
        """Return what a function answers; None where the driver or the GPU tells no such thing.

        also: one more error that says so.
        """
        try:
            return self.call(function, *arguments)
        except UnicodeDecodeError:  # of a name that is none
            return None
        except pynvml.NVMLError as error:
            if error.value in _UNKNOWN or error.value == also:
                return None
            raise


def _probe(asked: _Asked, mps: tuple[str, ...]) -> Probe:
    driver = asked.know(pynvml.nvmlSystemGetDriverVersion)
    # Not its second version, which fails where libcuda is not mounted beside NVML.
    cuda = asked.know(pynvml.nvmlSystemGetCudaDriverVersion)
    gpus = []
    for index in range(asked.call(pynvml.nvmlDeviceGetCount)):
        asked.gpu = index
        gpus.append(_gpu(asked, asked.call(pynvml.nvmlDeviceGetHandleByIndex, index)))
    asked.gpu = None
    return Probe(DriverVersion.parse(driver or ""), _cuda(cuda), tuple(gpus), mps)


def _cuda(number: int | None) -> CudaVersion | None:
    """Return the version that NVML writes as 12040 (NVML_CUDA_DRIVER_VERSION_MAJOR, _MINOR of nvml.h)."""
    return CudaVersion(number // 1000, number % 1000 // 10) if number and number >= 1000 else None


def _gpu(asked: _Asked, device: Any) -> Gpu:
    capability = asked.know(pynvml.nvmlDeviceGetCudaComputeCapability, device)
    memory = asked.know(pynvml.nvmlDeviceGetMemoryInfo, device, also=_REFUSED)
    mig = asked.know(pynvml.nvmlDeviceGetMigMode, device)
    enabled = None if mig is None else mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    # In MIG mode nvml.h wants the handle of an instance, though drivers answer for the GPU too.
    mode = asked.know(
        pynvml.nvmlDeviceGetComputeMode, device, also=pynvml.NVML_ERROR_INVALID_ARGUMENT if enabled else None
    )
    fabric, fabric_error = _fabric(asked, device)
    return Gpu(
        name=asked.know(pynvml.nvmlDeviceGetName, device) or None,
        uuid=asked.know(pynvml.nvmlDeviceGetUUID, device) or None,
        compute_capability=ComputeCapability(*capability) if capability and capability[0] > 0 else None,
        memory_mib=(memory.total // _MIB or None) if memory else None,
        mig=enabled,
        # Who is not told the memory sees those instances alone that were there when its container started.
        mig_profiles=() if not enabled else _mig_profiles(asked, device) if memory else None,
        compute_mode=_COMPUTE_MODES.get(mode),
        fabric=fabric,
        fabric_error=fabric_error,
    )


def _mig_profiles(asked: _Asked, device: Any) -> tuple[str, ...] | None:
    """Return the profile of each MIG instance; None where one cannot be read."""
    found: list[str] = []
    slots = asked.know(pynvml.nvmlDeviceGetMaxMigDeviceCount, device)
    for index in range(slots or 0):
        try:
            instance = asked.call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:  # an empty slot
                continue
            if error.value in _UNKNOWN or error.value == _REFUSED:
                return None
            raise
        # Of a name such as `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
        _, mig, profile = (asked.know(pynvml.nvmlDeviceGetName, instance) or "").rpartition("MIG ")
        if not mig:
            return None
        found.append(profile)
    return None if slots is None else tuple(found)


def _fabric(asked: _Asked, device: Any) -> tuple[str | None, str]:
    """Return the state in which a GPU is with its NVLink fabric, and the error that it ended in."""
    info: Any = _FabricInfoV2(version=_VERSION_2)
    if asked.know(pynvml.nvmlDeviceGetGpuFabricInfoV, device, ctypes.byref(info)) is None:
        info = _FabricInfo()  # of drivers before 545
        if asked.know(pynvml.nvmlDeviceGetGpuFabricInfo, device, ctypes.byref(info)) is None:
            return None, ""
    state = _FABRIC_STATES.get(info.state)
    failed = state == FABRIC_READY and info.status != pynvml.NVML_SUCCESS
    return state, _NAMES.get(info.status, str(info.status)) if failed else ""


def _control_daemons(directories: Iterable[Path]) -> Iterator[Path]:
    """Yield the pipe directories in which an MPS control daemon runs; a device plugin's root has several."""
    for directory in directories:
        with suppress(OSError):  # what nobody may look into is unknown
            if (directory / _PID_FILE).is_file():
                yield directory
            yield from (path.parent for path in sorted(directory.glob(f"{_PIPES_OF_PLUGIN}/{_PID_FILE}")))
