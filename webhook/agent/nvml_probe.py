"""NVML probe: the driver and GPUs of a node, and its MPS control daemons.

Each probe initializes NVML and shuts it down, so that a driver can be unloaded between two probes.
Sources: https://docs.nvidia.com/deploy/nvml-api/, and for MPS https://docs.nvidia.com/deploy/mps/.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import pynvml
from msgspec import Struct
from msgspec.structs import replace

from rules.cuda.tables import BUILT_IN, Facts
from rules.cuda.versions import ComputeCapability, CudaVersion, DriverVersion
from webhook.agent.child_process import ChildProcess, CrashError, HangError
from webhook.agent.container_toolkit import HOST_ROOT, ContainerToolkit, read_toolkit

# The kernel's driver as every container sees it. NVIDIA's container runtime may mount a copy of
# /proc/driver/nvidia from when the container started.
KERNEL_MODULE: Final = Path("/sys/module/nvidia")
NOUVEAU: Final = Path("/sys/module/nouveau")  # the kernel's own driver, which keeps GPUs from NVIDIA's
# Pipe directories of MPS control daemons: the default
# (https://docs.nvidia.com/deploy/mps/appendix-environment-variables.html, CUDA_MPS_PIPE_DIRECTORY), and under
# the root of NVIDIA's device plugin, where each resource has a folder: nvidia.com/gpu/pipe.
MPS_DIRECTORIES: Final = (Path("/tmp/nvidia-mps"), Path("/run/nvidia/mps"))  # noqa: S108 - CUDA's own default
_PIPES_OF_PLUGIN: Final = "*/*/pipe"
# It is removed when the daemon ends; the pipes are not.
_PID_FILE: Final = "nvidia-cuda-mps-control.pid"

_MIB: Final = 1 << 20
_COMPUTE_MODES: Final = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "Default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "Exclusive_Thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "Prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "Exclusive_Process",
}
# Errors that are not of NVML, in metrics.
HANG: Final = "hang"
CRASH: Final = "crash"
FABRIC_READY: Final = "Completed"
_FABRIC_STATES: Final = {
    pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "Not Started",
    pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "In Progress",
    pynvml.NVML_GPU_FABRIC_STATE_COMPLETED: FABRIC_READY,
}
# Errors of a driver or GPU that does not support a query.
_UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
# Of a GPU in MIG mode, NVML reports memory and all instances only with the MIG monitor capability:
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/device-nodes-and-capabilities.html
_NO_PERMISSION: Final[int] = pynvml.NVML_ERROR_NO_PERMISSION
# The errors of nvmlDeviceGetP2PStatus in nvml.h: the connection is unknown, the other facts are not.
_NO_P2P: Final = (pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_UNKNOWN)
_NAMES: Final[dict[int, str]] = {
    code: name for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")
}


class Gpu(Struct, frozen=True):
    """A GPU; None is an unknown value.

    Attributes:
        name: as nvidia-smi prints it.
        memory_mib: MiB of the whole GPU; unknown for GPUs that share the CPU's memory.
        mig: whether MIG mode is on; None without support for MIG.
        mig_profiles: the profile of each instance, such as `1g.5gb`; None if this user cannot see all.
        compute_mode: as nvidia-smi prints it.
        fabric: state of the NVLink fabric, as nvidia-smi prints it; None without NVSwitch.
        fabric_error: the error of a failed attempt to join the fabric, or empty.
        nvlink: whether NVLink connects it with another GPU of the node, directly or by NVSwitch; None for a
            single GPU.
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
    nvlink: bool | None = None


class Probe(Struct, frozen=True):
    """Facts of a node; None is an unknown value."""

    driver: DriverVersion | None
    cuda: CudaVersion | None  # version of the driver's API
    gpus: tuple[Gpu, ...]
    mps: tuple[str, ...] = ()  # directories of MPS control daemons
    toolkit: ContainerToolkit | None = None
    fabric_manager: DriverVersion | None = None  # the installed one
    facts: Facts = BUILT_IN  # what is known of drivers and GPUs


class Failure(Struct, frozen=True):
    """A failed probe."""

    error: str  # name, such as NVML_ERROR_GPU_IS_LOST; HANG or CRASH if NVML did not return
    call: str = ""  # the failed function; empty if it is unknown
    gpu: int | None = None  # index of the GPU; None for a function that is not about a GPU


# nvmlGpuFabricInfo_t and nvmlGpuFabricInfo_v2_t of nvml.h; some releases of pynvml define them too long.
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
    """Return the version of the kernel's driver, empty if unknown; None if no driver is loaded."""
    if not folder.is_dir():
        return None
    try:
        return (folder / "version").read_text("utf-8").strip()
    except OSError:  # unloaded in between, or a driver that is built in
        return ""


class NvmlFacts(NamedTuple):
    """The part of a probe that NVML reports."""

    driver: DriverVersion | None
    cuda: CudaVersion | None
    gpus: tuple[Gpu, ...]


def probe(mps_directories: Iterable[Path] = MPS_DIRECTORIES, host_root: Path = HOST_ROOT) -> Probe | Failure:
    """Return the facts of this node, or the failure of NVML. host_root: as in `read_toolkit`."""
    facts = read_nvml_in_time()
    if isinstance(facts, Failure):
        return facts
    daemons = tuple(map(str, _control_daemons(mps_directories)))
    return Probe(*facts, daemons, read_toolkit(host_root))


def read_nvml_in_time() -> NvmlFacts | Failure:
    """Return what NVML reports, or its failure; HANG if it does not return within a minute."""
    try:
        return _CHILD.call()
    except HangError:
        return Failure(HANG)
    except CrashError:
        return Failure(CRASH)


def read_nvml() -> NvmlFacts | Failure:
    """Return what NVML reports, or its failure. May hang if a GPU does."""
    nvml = _Nvml()
    try:
        nvml.call(pynvml.nvmlInit)
        try:
            return _read(nvml)
        finally:
            with suppress(pynvml.NVMLError):  # nothing can be done about it, and nothing is left open
                pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return Failure(_NAMES.get(error.value, f"NVML_ERROR {error.value}"), nvml.name, nvml.gpu)


_CHILD: Final = ChildProcess(read_nvml)


class _Nvml:
    """Calls NVML and remembers the last call, which errors do not name, and the index of its GPU."""

    def __init__(self) -> None:
        self.name = ""
        self.gpu: int | None = None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of a function. Raises NVMLError."""
        self.name = function.__name__
        return function(*arguments)

    def query(self, function: Callable[..., Any], *arguments: Any, also: Collection[int] = ()) -> Any:
        """Return the result of a function; None if the driver or GPU does not support it.

        also: other errors that mean this.
        """
        try:
            return self.call(function, *arguments)
        except UnicodeDecodeError:  # of a garbled name
            return None
        except pynvml.NVMLError as error:
            if error.value in _UNSUPPORTED or error.value in also:
                return None
            raise


def _read(nvml: _Nvml) -> NvmlFacts:
    driver = nvml.query(pynvml.nvmlSystemGetDriverVersion)
    # Not its second version, which fails if libcuda is not mounted in addition to NVML.
    cuda = nvml.query(pynvml.nvmlSystemGetCudaDriverVersion)
    gpus, devices = [], []
    for index in range(nvml.call(pynvml.nvmlDeviceGetCount)):
        nvml.gpu = index
        devices.append(nvml.call(pynvml.nvmlDeviceGetHandleByIndex, index))
        gpus.append(_gpu(nvml, devices[index]))
    connected = _nvlinks(nvml, gpus, devices)
    nvml.gpu = None
    connected_gpus = tuple(replace(gpu, nvlink=connected.get(index)) for index, gpu in enumerate(gpus))
    return NvmlFacts(DriverVersion.parse(driver or ""), _cuda(cuda), connected_gpus)


def _cuda(number: int | None) -> CudaVersion | None:
    """Return the version that NVML writes as 12040 (NVML_CUDA_DRIVER_VERSION_MAJOR, _MINOR of nvml.h)."""
    return CudaVersion(number // 1000, number % 1000 // 10) if number and number >= 1000 else None


def _gpu(nvml: _Nvml, device: Any) -> Gpu:
    capability = nvml.query(pynvml.nvmlDeviceGetCudaComputeCapability, device)
    memory = nvml.query(pynvml.nvmlDeviceGetMemoryInfo, device, also=(_NO_PERMISSION,))
    mig = nvml.query(pynvml.nvmlDeviceGetMigMode, device)
    enabled = None if mig is None else mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    # In MIG mode nvml.h requires the handle of an instance, but drivers also answer for the GPU.
    mode = nvml.query(
        pynvml.nvmlDeviceGetComputeMode,
        device,
        also=(pynvml.NVML_ERROR_INVALID_ARGUMENT,) if enabled else (),
    )
    fabric, fabric_error = _fabric(nvml, device)
    return Gpu(
        name=nvml.query(pynvml.nvmlDeviceGetName, device) or None,
        uuid=nvml.query(pynvml.nvmlDeviceGetUUID, device) or None,
        compute_capability=ComputeCapability(*capability) if capability and capability[0] > 0 else None,
        memory_mib=(memory.total // _MIB or None) if memory else None,
        mig=enabled,
        # A user that cannot see the memory sees only the instances from the start of its container.
        mig_profiles=() if not enabled else _mig_profiles(nvml, device) if memory else None,
        compute_mode=_COMPUTE_MODES.get(mode),
        fabric=fabric,
        fabric_error=fabric_error,
    )


def _nvlinks(nvml: _Nvml, gpus: Sequence[Gpu], devices: Sequence[Any]) -> dict[int, bool]:
    """Return whether NVLink connects a GPU with another one, by index; an unknown answer is absent.

    In MIG mode GPUs do not use NVLink, and before the fabric is ready the answer is not final. The 16 GPUs of
    the largest nodes take 120 calls. Sources: nvml.h (nvmlDeviceGetP2PStatus; vLLM detects NVLink by it as
    well: vllm/platforms/cuda.py of https://github.com/vllm-project/vllm), and
    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/deployment-considerations.html for MIG mode.
    """
    indices = [
        index
        for index, gpu in enumerate(gpus)
        if not gpu.mig and gpu.fabric in (None, FABRIC_READY) and not gpu.fabric_error
    ]
    statuses: dict[int, list[int | None]] = {index: [] for index in indices}
    for first, second in combinations(indices, 2):
        nvml.gpu = first
        status = nvml.query(
            pynvml.nvmlDeviceGetP2PStatus,
            devices[first],
            devices[second],
            pynvml.NVML_P2P_CAPS_INDEX_NVLINK,
            also=_NO_P2P,
        )
        for index in (first, second):
            statuses[index].append(None if status == pynvml.NVML_P2P_STATUS_UNKNOWN else status)
    known: dict[int, bool] = {}
    for index, seen in statuses.items():
        if pynvml.NVML_P2P_STATUS_OK in seen:
            known[index] = True
        elif seen and None not in seen:
            known[index] = False
    return known


def _mig_profiles(nvml: _Nvml, device: Any) -> tuple[str, ...] | None:
    """Return the profile of each MIG instance; None if one cannot be read."""
    profiles: list[str] = []
    slots = nvml.query(pynvml.nvmlDeviceGetMaxMigDeviceCount, device)
    for index in range(slots or 0):
        try:
            instance = nvml.call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:  # an empty slot
                continue
            if error.value in _UNSUPPORTED or error.value == _NO_PERMISSION:
                return None
            raise
        # Of a name such as `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
        _, mig, profile = (nvml.query(pynvml.nvmlDeviceGetName, instance) or "").rpartition("MIG ")
        if not mig:
            return None
        profiles.append(profile)
    return None if slots is None else tuple(profiles)


def _fabric(nvml: _Nvml, device: Any) -> tuple[str | None, str]:
    """Return the state of a GPU in its NVLink fabric, and the error of a failed attempt to join."""
    info: Any = _FabricInfoV2(version=_VERSION_2)
    if nvml.query(pynvml.nvmlDeviceGetGpuFabricInfoV, device, ctypes.byref(info)) is None:
        info = _FabricInfo()  # of drivers before 545
        if nvml.query(pynvml.nvmlDeviceGetGpuFabricInfo, device, ctypes.byref(info)) is None:
            return None, ""
    state = _FABRIC_STATES.get(info.state)
    failed = state == FABRIC_READY and info.status != pynvml.NVML_SUCCESS
    return state, _NAMES.get(info.status, str(info.status)) if failed else ""


def _control_daemons(directories: Iterable[Path]) -> Iterator[Path]:
    """Yield the pipe directories in which an MPS control daemon runs; a device plugin's root has several."""
    for directory in directories:
        with suppress(OSError):  # an unreadable directory is unknown
            if (directory / _PID_FILE).is_file():
                yield directory
            yield from (path.parent for path in sorted(directory.glob(f"{_PIPES_OF_PLUGIN}/{_PID_FILE}")))
