"""Diagnosis: the problems of a node and their remedies, from an NVML probe.

Sources: https://docs.nvidia.com/deploy/nvml-api/ (nvmlReturn_t), https://docs.nvidia.com/deploy/xid-errors/,
https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/ and facts/errors.yaml for CUDA's errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from rules.compatibility.checks.driver_support import unsupported_gpu
from rules.cuda.tables import cuda_error
from rules.model.finding import Certainty
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeReader
from rules.text.i18n import Language, Message, Text
from webhook.agent.child_process import SECONDS
from webhook.agent.cuda_view import LIBRARY, CudaView
from webhook.agent.labels import CUDA_LABELS, capabilities_of, differences, metadata_of
from webhook.agent.nvml_probe import CRASH, FABRIC_READY, HANG, Failure, Gpu, Probe

_MISMATCH: Final = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
# CUDA errors of programs on a broken node (facts/errors.yaml).
_INSUFFICIENT_DRIVER: Final = 35
_UNAVAILABLE: Final = 46
_NO_DEVICE: Final = 100
_NOT_READY: Final = 802
_DRIVER_MISMATCH: Final = 803

_REACH: Final = Message(
    "give the container the driver's libraries and devices: runtimeClassName nvidia, or CDI"
)
_KERNEL_LOG: Final = Message("check the kernel log (dmesg) for `NVRM: Xid`")
_RESET: Final = Message(
    "{kernel_log}; drain the node and run `nvidia-smi --gpu-reset`, or reboot it", kernel_log=_KERNEL_LOG
)
_NOWHERE: Final = Message()
_AT: Final = Message("{error} at {call}")
_LINE: Final = Message("{what}{errors}; {remedy}")
_INSTALL: Final = Message("install one on the node")
_LOAD: Final = Message(
    "load it on the node: `modprobe nvidia`; if that finds no device, check the kernel log (dmesg) for `will "
    "ignore this GPU`: a driver newer than R580 does not support Maxwell, Pascal and Volta; and for `is not "
    "supported by the`: the driver may be older than the GPU"
)
_NO_LIBRARY: Final = Message(", but its library libnvidia-ml.so.1 was not found here")
_NO_DEVICES: Final = Message(", but its devices /dev/nvidia* are missing here")
_NOUVEAU: Final = Message("no NVIDIA driver is loaded, the kernel's nouveau has the GPUs")
_BLACKLIST: Final = Message(
    "blacklist nouveau (`blacklist nouveau` in /etc/modprobe.d), rebuild the initial RAM disk, "
    "reboot the node"
)
_RESTART_DISCOVERY: Final = Message("restart GPU Feature Discovery on this node")
_SET_LABELS: Final = Message("run `gpugate node label`")


class Diagnosis(Struct, frozen=True):
    """A problem of a node."""

    problem: Message
    remedy: Message
    broken: bool = True  # whether pods will fail because of it; otherwise it is a warning
    nvml: str = ""  # name of NVML's error, or empty
    cuda: int = 0  # number of the CUDA error that programs get, or 0
    at: Message = _NOWHERE  # the failed call of NVML, or empty

    @property
    def certainty(self) -> Certainty:
        """CERTAIN if pods will fail, else LIKELY."""
        return Certainty.CERTAIN if self.broken else Certainty.LIKELY

    @property
    def cuda_name(self) -> str:
        """The CUDA error's name and number, or an empty string."""
        known = cuda_error(self.cuda)
        return f"{known.name} ({known.code})" if known else ""

    def line(self, language: Language) -> str:
        """Return the problem, the names of its errors, and the remedy."""
        problem, remedy, at = (text.in_language(language) for text in (self.problem, self.remedy, self.at))
        nvml = _AT.having(error=self.nvml, call=at).in_language(language) if at else self.nvml
        errors = ", ".join(filter(None, (nvml, self.cuda_name)))
        return _LINE.having(what=problem, errors=errors and f" ({errors})", remedy=remedy).in_language(
            language
        )


_HANGS: Final = Message("{library} does not answer within {seconds} seconds", seconds=SECONDS)
HANGS: Final = _HANGS.having(library=LIBRARY)
_START_FABRIC_MANAGER: Final = Message("start the Fabric Manager of the driver's version, and check its log")
_CHECK_DEVICES: Final = Message("check CUDA_VISIBLE_DEVICES, and MIG instances")
_NONE_SEEN: Final = Message("programs see none of the GPUs")
# By error of the driver's API.
_CUDA_REMEDIES: Final[Mapping[int, Message]] = {
    _NO_DEVICE: _CHECK_DEVICES,
    _NOT_READY: _START_FABRIC_MANAGER,
    _DRIVER_MISMATCH: Message("reboot the node, or drain it and reload the modules"),
}
# By error of any call: the problem, the remedy, and the CUDA error of programs.
_ERRORS: Final[Mapping[str, tuple[Message, Message, int]]] = {
    HANG: (_HANGS.having(library="NVML"), _RESET, 0),
    CRASH: (Message("NVML ends the process that calls it"), _KERNEL_LOG, 0),
    _MISMATCH: (
        Message("the driver's library and the kernel's driver have different versions"),
        Message(
            "the driver was upgraded while it was in use: reboot the node, or drain it and reload the modules"
        ),
        _DRIVER_MISMATCH,
    ),
    "NVML_ERROR_NO_PERMISSION": (
        Message("the driver denies access to this user"),
        Message("set the mode of /dev/nvidiactl and /dev/nvidia* to 0666"),
        0,
    ),
    "NVML_ERROR_UNINITIALIZED": (
        Message("the driver was unloaded during the probe"),
        Message("try again once it is loaded"),
        0,
    ),
    "NVML_ERROR_GPU_IS_LOST": (
        Message("a GPU has fallen off the bus"),
        Message(
            "{kernel_log} 79; drain and reboot the node; if it happens again, have the card inspected",
            kernel_log=_KERNEL_LOG,
        ),
        0,
    ),
    "NVML_ERROR_RESET_REQUIRED": (
        Message("a GPU must be reset"),
        _RESET,
        0,
    ),
    "NVML_ERROR_IRQ_ISSUE": (
        Message("a GPU raises no interrupts"),
        Message("{kernel_log}, and reboot the node", kernel_log=_KERNEL_LOG),
        0,
    ),
    "NVML_ERROR_TIMEOUT": (
        Message("the driver does not answer in time"),
        Message("{kernel_log}, and reboot the node", kernel_log=_KERNEL_LOG),
        0,
    ),
    "NVML_ERROR_CORRUPTED_INFOROM": (
        Message("a GPU's inforom is corrupted"),
        Message("run `nvidia-smi -q` on the node, and have the card inspected"),
        0,
    ),
    "NVML_ERROR_INSUFFICIENT_POWER": (
        Message("a GPU lacks external power"),
        Message("check its power cables"),
        0,
    ),
}
_UNKNOWN_ERROR: Final = (Message("the driver fails"), _KERNEL_LOG, 0)


def explain(failure: Failure, module: str | None, *, nouveau: bool = False) -> Diagnosis:
    """Return the problem behind a failed probe.

    module: the kernel's driver, of `kernel_module`. nouveau: whether the kernel has loaded that one.
    """
    kernel = Message("the kernel has driver {module}", module=module)
    if nouveau and module is None:
        problem, remedy, code = _NOUVEAU, _BLACKLIST, _NO_DEVICE
    elif failure.error == "NVML_ERROR_LIBRARY_NOT_FOUND":
        code = _INSUFFICIENT_DRIVER
        if module is None:
            problem, remedy = Message("no NVIDIA driver"), _INSTALL
        else:
            problem, remedy = _followed(kernel, _NO_LIBRARY), _REACH
    elif failure.error == "NVML_ERROR_DRIVER_NOT_LOADED":
        code = _NO_DEVICE
        if module is None:
            problem, remedy = Message("the NVIDIA driver is not loaded"), _LOAD
        else:
            problem, remedy = _followed(kernel, _NO_DEVICES), _REACH
    else:
        problem, remedy, code = _ERRORS.get(failure.error, _UNKNOWN_ERROR)
        if failure.error == _MISMATCH and module:
            problem = _followed(problem, Message(", the kernel's is {module}", module=module))
    at: Message = Text(failure.call)
    if failure.gpu is not None:
        at = Message("{call} of GPU {gpu}", call=failure.call, gpu=failure.gpu)
    nvml = "" if failure.error in (HANG, CRASH) else failure.error
    return Diagnosis(problem, remedy, nvml=nvml, cuda=code, at=at)


def _followed(text: Message, by: Message) -> Message:
    return Message("{text}{by}", text=text, by=by)


def diagnose(
    probed: Probe | Failure,
    module: str | None,
    labels: Mapping[str, str] | None = None,
    view: CudaView | None = None,
    *,
    nouveau: bool = False,
) -> tuple[Diagnosis, ...]:
    """Return all problems of a node.

    labels: of its object in a cluster, if known. view: what a program sees here, if the library is here.
    nouveau: whether the kernel has loaded that driver.
    """
    if isinstance(probed, Failure):
        return (explain(probed, module, nouveau=nouveau),)
    return (
        *_of_probe(probed, labels or {}),
        *_of_fabric_manager(probed),
        *(_of_view(view, probed) if view and probed.gpus else ()),
        *(_of_labels(labels, probed) if labels is not None else ()),
    )


def _of_probe(probe: Probe, labels: Mapping[str, str]) -> Iterator[Diagnosis]:
    if not probe.gpus:
        yield _without_gpu(probe, labels)
    for index, gpu in enumerate(probe.gpus):
        yield from _of_gpu(f"GPU {index}", gpu, probe)


def _without_gpu(probe: Probe, labels: Mapping[str, str]) -> Diagnosis:
    """Return why a driver has no GPU. labels: may still report the GPU from before a driver upgrade."""
    problem = Message("driver {driver} has no GPU", driver=probe.driver)
    remedy = Message("{kernel_log}, and `lspci -d 10de:`", kernel_log=_KERNEL_LOG)
    now = capabilities_of(probe)
    before = NodeReader("", labels).capabilities(LabelNames(), probe.facts)
    if check_result := unsupported_gpu(replace(before, driver=now.driver, cuda=now.cuda)):
        labelled = Message(", and by its labels the node has one: {reason}", reason=check_result.reason)
        problem, remedy = _followed(problem, labelled), check_result.remedy
    return Diagnosis(problem, remedy, cuda=_NO_DEVICE)


def _of_gpu(name: str, gpu: Gpu, probe: Probe) -> Iterator[Diagnosis]:
    fabric = _START_FABRIC_MANAGER
    reset = "`nvidia-smi -c DEFAULT`"
    if gpu.fabric_error:
        problem = Message("{name} could not join the NVLink fabric", name=name)
        yield Diagnosis(problem, fabric, nvml=gpu.fabric_error, cuda=_NOT_READY)
    elif gpu.fabric not in (None, FABRIC_READY):
        problem = Message(
            "{name} waits for the NVLink fabric, whose state is {fabric}", name=name, fabric=gpu.fabric
        )
        yield Diagnosis(problem, fabric, cuda=_NOT_READY)
    if gpu.mig and gpu.mig_profiles == ():
        yield Diagnosis(
            Message("{name} is in MIG mode and has no MIG instance", name=name),
            Message("create instances, or leave MIG mode"),
            broken=False,
            cuda=_NO_DEVICE,
        )
    if gpu.compute_mode == "Prohibited":
        yield Diagnosis(
            Message("{name} is in compute mode Prohibited", name=name),
            Message("run {reset}", reset=reset),
            cuda=_UNAVAILABLE,
        )
    elif gpu.compute_mode == "Exclusive_Process" and not probe.mps:
        yield Diagnosis(
            Message(
                "{name} is in compute mode Exclusive_Process, but no MPS control daemon was found", name=name
            ),
            Message("start one, or run {reset}", reset=reset),
            broken=False,
            cuda=_UNAVAILABLE,
        )


def _of_fabric_manager(probe: Probe) -> Iterator[Diagnosis]:
    """Yield that Fabric Manager is of another version than the driver, if the GPUs use it.

    If their fabric is ready, it was started before an upgrade, and its next start fails.
    """
    version, driver = probe.fabric_manager, probe.driver
    states = {gpu.fabric for gpu in probe.gpus} - {None}
    if version is None or driver is None or not states or version == driver:
        return
    yield Diagnosis(
        Message("Fabric Manager has version {version}, the driver {driver}", version=version, driver=driver),
        Message("install Fabric Manager {driver}, and restart it", driver=driver),
        broken=states != {FABRIC_READY},
        cuda=_NOT_READY,
    )


def _of_view(view: CudaView, probe: Probe) -> Iterator[Diagnosis]:
    """Yield where what a program sees is not what NVML reports."""
    if view.hung:
        yield Diagnosis(HANGS, _RESET)
        return
    if view.error:
        problem = Message(
            "{call} of {library} fails with error {error}", call=view.call, library=LIBRARY, error=view.error
        )
        yield Diagnosis(problem, _CUDA_REMEDIES.get(view.error, _KERNEL_LOG), cuda=view.error)
        return
    if view.cuda and probe.cuda and view.cuda != probe.cuda:
        problem = Message(
            "{library} has CUDA {view}, the driver CUDA {driver}: it is of a compatibility package or of "
            "another driver",
            library=LIBRARY,
            view=view.cuda,
            driver=probe.cuda,
        )
        yield Diagnosis(problem, Message("check LD_LIBRARY_PATH and `ldconfig -p`"), broken=False)
    if view.devices is not None and not view.devices:
        yield Diagnosis(_NONE_SEEN, _CHECK_DEVICES, cuda=_NO_DEVICE)


def _of_labels(labels: Mapping[str, str], probe: Probe) -> Iterator[Diagnosis]:
    for difference in differences(labels, probe):
        yield Diagnosis(difference.message, _RESTART_DISCOVERY, broken=False)
    expected = metadata_of(probe).labels
    wrong = [key for key, value in expected.items() if key in labels and labels[key] != value]
    if wrong:
        present = ", ".join(f"{key}={labels[key]}" for key in wrong)
        reported = ", ".join(expected[key] for key in wrong)
        problem = Message(
            "the node has {present}, NVML reports {reported}", present=present, reported=reported
        )
        yield Diagnosis(problem, _SET_LABELS, broken=False)
    elif not any(key in labels for key in CUDA_LABELS):
        problem = Message("no label has the driver's CUDA version")
        yield Diagnosis(problem, _SET_LABELS, broken=False)
