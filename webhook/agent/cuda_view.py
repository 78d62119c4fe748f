"""What a program in this place sees of CUDA: three calls of the driver's library, none of which uses a GPU.

Source: https://docs.nvidia.com/cuda/cuda-driver-api/ (cuInit, cuDriverGetVersion, cuDeviceGetCount).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rules.cuda.versions import CudaVersion
from webhook.agent.child_process import ChildProcess, CrashError, HangError

LIBRARY: Final = "libcuda.so.1"
# CUDA_ERROR_UNKNOWN: the library ended the process.
_UNKNOWN: Final = 999


class CudaView(NamedTuple):
    """What a program sees; the version and the number are None after an error."""

    error: int  # CUresult of the failed call, or 0
    call: str = ""  # the failed call
    cuda: CudaVersion | None = None  # of the driver's API, or of a compatibility library
    devices: int | None = None  # in MIG mode, one at most
    hung: bool = False  # a call did not return in time


def see_cuda(load: Callable[[str], Any] = ctypes.CDLL) -> CudaView | None:
    """Return what a program sees here; None without the library, as in a container that has NVML alone.

    load: returns a library by its name, or raises OSError. Its calls may hang if a GPU does.
    """
    try:
        library = load(LIBRARY)
    except OSError:
        return None
    version, devices = ctypes.c_int(), ctypes.c_int()
    for call, argument in (
        ("cuInit", ctypes.c_uint(0)),
        ("cuDriverGetVersion", ctypes.byref(version)),
        ("cuDeviceGetCount", ctypes.byref(devices)),
    ):
        if error := int(getattr(library, call)(argument)):
            return CudaView(error, call)
    return CudaView(
        0, cuda=CudaVersion(version.value // 1000, version.value % 1000 // 10), devices=devices.value
    )


def see_cuda_in_time() -> CudaView | None:
    """Return what a program sees here, as `see_cuda`; `hung` if a call does not return within a minute."""
    try:
        return _CHILD.call()
    except HangError:
        return CudaView(0, hung=True)
    except CrashError:
        return CudaView(_UNKNOWN, "cuInit")


_CHILD: Final = ChildProcess(see_cuda)
