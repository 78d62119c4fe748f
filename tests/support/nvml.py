"""Fake NVML: replaces libnvidia-ml.so.1 below the real pynvml.

pynvml calls the functions of its `nvmlLib` with ctypes arguments. The functions here fill them from a
recorded probe (tests/probes/*.json: the NVML data of a machine, and its labels) and return status codes.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import pynvml

from tests.support.paths import TESTS
from webhook.agent import nvml_probe

PROBES: Final = TESTS / "probes"
RECORDED: Final = tuple(sorted(path.stem for path in PROBES.glob("*.json")))
ERRORS: Final[Mapping[str, int]] = {
    name: code for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")
}
_SUCCESS: Final[int] = pynvml.NVML_SUCCESS
# Handles are addresses that are never dereferenced: of a GPU, and above it of its MIG instances.
_GPU: Final = 0x1000

Answer = Callable[[str, int], int]


def recorded(name: str) -> dict[str, Any]:
    """Return a recorded probe."""
    document: dict[str, Any] = json.loads((PROBES / f"{name}.json").read_text("utf-8"))
    return document


def well(name: str, number: int) -> int:
    """Let every call succeed."""
    del name, number
    return _SUCCESS


class Library:
    """The NVML of a machine. answer: returns the status of each call, by its name and number.

    calls: the names of all calls so far. open: number of initializations without shutdown.
    """

    def __init__(self, machine: Mapping[str, Any], answer: Answer = well) -> None:
        self._machine, self.answer = machine, answer
        self.calls: list[str] = []
        self.open = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return a function of the library, as ctypes looks it up; AttributeError if it is missing."""
        function = _FUNCTIONS.get(name)
        if function is None or name in self._machine["lacks"]:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            status = self.answer(name, len(self.calls) - 1)
            if status == _SUCCESS and not self.open and name != "nvmlInitWithFlags":
                return ERRORS["NVML_ERROR_UNINITIALIZED"]
            return status or function(self, *arguments)

        return call

    def gpu(self, handle: Any) -> dict[str, Any]:
        """Return the GPU of a handle."""
        described_gpu: dict[str, Any] = self._machine["gpus"][_address(handle) // _GPU - 1]
        return described_gpu

    def initialize(self, flags: int) -> int:
        """nvmlInitWithFlags."""
        del flags
        self.open += 1
        return _SUCCESS

    def shutdown(self) -> int:
        """nvmlShutdown."""
        self.open -= 1
        return _SUCCESS

    def driver(self, text: Any, length: Any) -> int:
        """nvmlSystemGetDriverVersion."""
        return _text(text, length, self._machine["driver"])

    def cuda(self, number: Any) -> int:
        """nvmlSystemGetCudaDriverVersion."""
        return _fill(number, value=self._machine["cuda"])

    def count(self, number: Any) -> int:
        """nvmlDeviceGetCount_v2."""
        return _fill(number, value=len(self._machine["gpus"]))

    def handle(self, index: Any, handle: Any) -> int:
        """nvmlDeviceGetHandleByIndex_v2."""
        return _point(handle, _GPU * (index.value + 1))

    def name(self, handle: Any, text: Any, length: Any) -> int:
        """nvmlDeviceGetName; for a MIG instance the name of its GPU with its profile."""
        gpu, instance = self.gpu(handle), _address(handle) % _GPU
        mig = f" MIG {gpu['slots'][instance - 1]}" if instance else ""
        return _text(text, length, f"{gpu['name']}{mig}")

    def uuid(self, handle: Any, text: Any, length: Any) -> int:
        """nvmlDeviceGetUUID."""
        return _text(text, length, self.gpu(handle)["uuid"])

    def compute(self, handle: Any, major: Any, minor: Any) -> int:
        """nvmlDeviceGetCudaComputeCapability."""
        numbers = self.gpu(handle)["compute"]
        return _fill(major, value=numbers[0]) or _fill(minor, value=numbers[1])

    def memory(self, handle: Any, info: Any) -> int:
        """nvmlDeviceGetMemoryInfo, or a recorded error."""
        total = self.gpu(handle)["memory"]
        if isinstance(total, str):
            return ERRORS[total]
        return _fill(info, total=total, free=total) if total else ERRORS["NVML_ERROR_NOT_SUPPORTED"]

    def mig_mode(self, handle: Any, current: Any, pending: Any) -> int:
        """nvmlDeviceGetMigMode."""
        modes = self.gpu(handle)["mig"]
        if modes is None:
            return ERRORS["NVML_ERROR_NOT_SUPPORTED"]
        return _fill(current, value=modes[0]) or _fill(pending, value=modes[1])

    def mig_slots(self, handle: Any, number: Any) -> int:
        """nvmlDeviceGetMaxMigDeviceCount."""
        return _fill(number, value=len(self.gpu(handle)["slots"]))

    def mig_instance(self, handle: Any, index: Any, instance: Any) -> int:
        """nvmlDeviceGetMigDeviceHandleByIndex."""
        if self.gpu(handle)["slots"][index.value] is None:
            return ERRORS["NVML_ERROR_NOT_FOUND"]
        return _point(instance, _address(handle) + index.value + 1)

    def compute_mode(self, handle: Any, mode: Any) -> int:
        """nvmlDeviceGetComputeMode."""
        return _fill(mode, value=self.gpu(handle)["computeMode"])

    def p2p(self, one: Any, other: Any, capability: Any, status: Any) -> int:
        """nvmlDeviceGetP2PStatus of NVLink; `nvlink` of a GPU has the indices of its peers."""
        assert pynvml.NVML_P2P_CAPS_INDEX_NVLINK == capability
        connected = _address(other) // _GPU - 1 in self.gpu(one).get("nvlink", [])
        return _fill(
            status, value=pynvml.NVML_P2P_STATUS_OK if connected else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
        )

    def fabric(self, handle: Any, info: Any) -> int:
        """nvmlDeviceGetGpuFabricInfo, and its second version, whose struct has a version."""
        fabric = self.gpu(handle).get("fabric")
        if fabric is None:
            return ERRORS["NVML_ERROR_NOT_SUPPORTED"]
        if getattr(info._obj, "version", pynvml.nvmlGpuFabricInfo_v2) != pynvml.nvmlGpuFabricInfo_v2:
            return ERRORS["NVML_ERROR_ARGUMENT_VERSION_MISMATCH"]
        return _fill(info, **fabric)


_FUNCTIONS: Final[Mapping[str, Callable[..., int]]] = {
    "nvmlInitWithFlags": Library.initialize,
    "nvmlShutdown": Library.shutdown,
    "nvmlSystemGetDriverVersion": Library.driver,
    "nvmlSystemGetCudaDriverVersion": Library.cuda,
    "nvmlDeviceGetCount_v2": Library.count,
    "nvmlDeviceGetHandleByIndex_v2": Library.handle,
    "nvmlDeviceGetName": Library.name,
    "nvmlDeviceGetUUID": Library.uuid,
    "nvmlDeviceGetCudaComputeCapability": Library.compute,
    "nvmlDeviceGetMemoryInfo": Library.memory,
    "nvmlDeviceGetMigMode": Library.mig_mode,
    "nvmlDeviceGetMaxMigDeviceCount": Library.mig_slots,
    "nvmlDeviceGetMigDeviceHandleByIndex": Library.mig_instance,
    "nvmlDeviceGetComputeMode": Library.compute_mode,
    "nvmlDeviceGetP2PStatus": Library.p2p,
    "nvmlDeviceGetGpuFabricInfo": Library.fabric,
    "nvmlDeviceGetGpuFabricInfoV": Library.fabric,
}


@contextmanager
def library(machine: Mapping[str, Any] | str, answer: Answer = well) -> Iterator[Library]:
    """Use a machine's NVML in pynvml, without a child process; a string is the name of a recorded probe."""
    fake_library = Library(recorded(machine) if isinstance(machine, str) else machine, answer)
    # pynvml caches functions, including those of earlier libraries.
    with (
        patch.object(pynvml, "nvmlLib", fake_library),
        patch.object(pynvml, "_nvmlGetFunctionPointer_cache", {}),
        patch.object(pynvml, "_nvmlLib_refcount", 0),
        patch.object(nvml_probe, "read_nvml_in_time", nvml_probe.read_nvml),
    ):
        yield fake_library


def failing(call: str, error: str) -> Answer:
    """Return an answer with an error for one function, each time."""
    return lambda name, _: ERRORS[error] if name.startswith(call) else _SUCCESS


def _fill(reference: Any, **values: int) -> int:
    """Set the target of a reference."""
    for name, value in values.items():
        setattr(reference._obj, name, value)
    return _SUCCESS


def _point(reference: Any, address: int) -> int:
    """Set the handle in a reference."""
    ctypes.cast(reference, ctypes.POINTER(ctypes.c_void_p))[0] = address
    return _SUCCESS


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _text(buffer: Any, length: Any, text: str) -> int:
    """Write a text and its terminator into a buffer; lone surrogates are bytes that are not UTF-8."""
    content = text.encode(errors="surrogateescape")
    if len(content) >= length.value:
        return ERRORS["NVML_ERROR_INSUFFICIENT_SIZE"]
    buffer.value = content
    return _SUCCESS
