"""What a program in this place sees of CUDA: three calls of the driver's library, none of which uses a GPU.

Source: https://docs.nvidia.com/cuda/cuda-driver-api/ (cuInit, cuDriverGetVersion, cuDeviceGetCount).
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from rules.cuda.versions import CudaVersion

LIBRARY: Final = "libcuda.so.1"
# Initializing eight GPUs without persistence mode takes some 20 seconds.
SECONDS: Final = 60
# CUDA_ERROR_UNKNOWN: the child process ended without an answer.
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


def see_cuda_in_time(seconds: float = SECONDS, command: Sequence[str] = ()) -> CudaView | None:
    """Return what a program sees here, as `see_cuda`; `hung` if a call does not return in time.

    A call that hangs in the driver cannot be interrupted, so a child process makes the calls. It is not
    waited for: the kernel may be unable to end it. command: of the child; empty: this module.
    """
    child = subprocess.Popen(  # noqa: S603 - the command is this program
        [*command] or [sys.executable, "-P", "-m", "webhook.agent.cuda_view"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        printed, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=1)
        return CudaView(0, hung=True)
    try:
        values = json.loads(printed)
        if values is None:
            return None
        error, call, cuda, devices = values
    except ValueError:  # the library has ended the process
        return CudaView(_UNKNOWN, "cuInit")
    return CudaView(error, call, CudaVersion(*cuda) if cuda else None, devices)


def _main() -> None:
    """Print what a program sees here, for `see_cuda_in_time`."""
    view = see_cuda()
    values = view and (view.error, view.call, view.cuda and (view.cuda.major, view.cuda.minor), view.devices)
    sys.stdout.write(json.dumps(values))


if __name__ == "__main__":
    _main()
