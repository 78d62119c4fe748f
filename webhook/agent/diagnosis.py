"""Diagnosis: the problems of a node and their remedies, from an NVML probe.

Sources: https://docs.nvidia.com/deploy/nvml-api/ (nvmlReturn_t), https://docs.nvidia.com/deploy/xid-errors/,
https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/ and data/errors.yaml for CUDA's errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rules.compatibility.checks.driver_support import unsupported_gpu
from rules.cuda.tables import cuda_error
from rules.model.certainty import Certainty
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeReader
from rules.text.i18n import Language, Text
from webhook.agent.labels import CUDA_LABELS, capabilities_of, differences, metadata_of
from webhook.agent.nvml_probe import FABRIC_READY, Failure, Gpu, Probe

MISMATCH: Final = "NVML_ERROR_LIB_RM_VERSION_MISMATCH"
# CUDA errors of programs on a broken node (data/errors.yaml).
_INSUFFICIENT_DRIVER: Final = 35
_UNAVAILABLE: Final = 46
_NO_DEVICE: Final = 100
_NOT_READY: Final = 802
_DRIVER_MISMATCH: Final = 803

_REACH: Final = Text(
    "give the container the driver's libraries and devices: runtimeClassName nvidia, or CDI",
    "为容器提供驱动的库和设备：runtimeClassName nvidia，或 CDI",
)
_KERNEL_LOG: Final = Text(
    "check the kernel log (dmesg) for `NVRM: Xid`", "检查内核日志（dmesg）中的 `NVRM: Xid`"
)
_NOWHERE: Final = Text()
_AT: Final = Text("{error} at {call}", "{call} 返回 {error}")
_LINE: Final = Text("{what}{errors}; {remedy}", "{what}{errors}；{remedy}")
_INSTALL: Final = Text("install one on the node", "在节点上安装驱动")
_LOAD: Final = Text(
    "load it on the node: `modprobe nvidia`; if that finds no device, check the kernel log (dmesg) for `will "
    "ignore this GPU`: a driver newer than R580 does not support Maxwell, Pascal and Volta",
    "在节点上加载驱动：`modprobe nvidia`；如果提示找不到设备，检查内核日志（dmesg）中的 `will ignore this "
    "GPU`：R580 之后的驱动不支持 Maxwell、Pascal 和 Volta",
)
_NO_LIBRARY: Final = Text(
    ", but its library libnvidia-ml.so.1 was not found here", "，但此处未找到其库 libnvidia-ml.so.1"
)
_NO_DEVICES: Final = Text(
    ", but its devices /dev/nvidia* are missing here", "，但此处缺少其设备 /dev/nvidia*"
)
_RESTART_DISCOVERY: Final = Text(
    "restart GPU Feature Discovery on this node", "在该节点上重启 GPU Feature Discovery"
)
_SET_LABELS: Final = Text("run `gpugate node label`", "运行 `gpugate node label`")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A problem. broken: pods will fail because of it; otherwise it is a warning.

    nvml: the name of the error, or empty. at: the failed call of NVML, or empty. cuda: the number of the CUDA
    error that programs get, or 0.
    """

    what: Text
    remedy: Text
    broken: bool = True
    nvml: str = ""
    cuda: int = 0
    at: Text = _NOWHERE

    @property
    def certainty(self) -> Certainty:
        """CERTAIN if pods will fail; the probe and its labels are facts of the node alone otherwise."""
        return Certainty.CERTAIN if self.broken else Certainty.LIKELY

    @property
    def cuda_name(self) -> str:
        """The CUDA error's name and number, or an empty string."""
        known = cuda_error(self.cuda)
        return f"{known.name} ({known.code})" if known else ""

    def line(self, language: Language) -> str:
        """Return the problem, the names of its errors, and the remedy."""
        what, remedy, at = (each.in_language(language) for each in (self.what, self.remedy, self.at))
        nvml = _AT.in_language(language).format(error=self.nvml, call=at) if at else self.nvml
        errors = ", ".join(filter(None, (nvml, self.cuda_name)))
        return _LINE.in_language(language).format(what=what, errors=errors and f" ({errors})", remedy=remedy)


# By error of any call: the problem, the remedy, and the CUDA error of programs.
_ERRORS: Final[Mapping[str, tuple[Text, Text, int]]] = {
    MISMATCH: (
        Text(
            "the driver's library and the kernel's driver have different versions",
            "驱动的库与内核中的驱动版本不同",
        ),
        Text(
            "the driver was upgraded while it was in use: reboot the node, or drain it and reload the "
            "modules",
            "驱动在使用中被升级：重启节点，或排空节点后重新加载内核模块",
        ),
        _DRIVER_MISMATCH,
    ),
    "NVML_ERROR_NO_PERMISSION": (
        Text("the driver denies access to this user", "驱动拒绝该用户访问"),
        Text(
            "set the mode of /dev/nvidiactl and /dev/nvidia* to 0666",
            "将 /dev/nvidiactl 和 /dev/nvidia* 的权限设为 0666",
        ),
        0,
    ),
    "NVML_ERROR_UNINITIALIZED": (
        Text("the driver was unloaded during the probe", "驱动在检测期间被卸载"),
        Text("try again once it is loaded", "驱动加载后重试"),
        0,
    ),
    "NVML_ERROR_GPU_IS_LOST": (
        Text("a GPU has fallen off the bus", "一块 GPU 已从总线上脱落"),
        Text(
            f"{_KERNEL_LOG.en} 79; drain and reboot the node; if it happens again, have the card inspected",
            f"{_KERNEL_LOG.zh} 79；排空并重启节点；如再次出现，请检修该卡",
        ),
        0,
    ),
    "NVML_ERROR_RESET_REQUIRED": (
        Text("a GPU must be reset", "一块 GPU 需要重置"),
        Text(
            f"{_KERNEL_LOG.en}; drain the node and run `nvidia-smi --gpu-reset`, or reboot it",
            f"{_KERNEL_LOG.zh}；排空节点并运行 `nvidia-smi --gpu-reset`，或重启节点",
        ),
        0,
    ),
    "NVML_ERROR_IRQ_ISSUE": (
        Text("a GPU raises no interrupts", "一块 GPU 不产生中断"),
        Text(f"{_KERNEL_LOG.en}, and reboot the node", f"{_KERNEL_LOG.zh}，并重启节点"),
        0,
    ),
    "NVML_ERROR_TIMEOUT": (
        Text("the driver does not answer in time", "驱动没有及时响应"),
        Text(f"{_KERNEL_LOG.en}, and reboot the node", f"{_KERNEL_LOG.zh}，并重启节点"),
        0,
    ),
    "NVML_ERROR_CORRUPTED_INFOROM": (
        Text("a GPU's inforom is corrupted", "一块 GPU 的 inforom 已损坏"),
        Text(
            "run `nvidia-smi -q` on the node, and have the card inspected",
            "在节点上运行 `nvidia-smi -q`，并检修该卡",
        ),
        0,
    ),
    "NVML_ERROR_INSUFFICIENT_POWER": (
        Text("a GPU lacks external power", "一块 GPU 缺少外接供电"),
        Text("check its power cables", "检查其电源线"),
        0,
    ),
}
_UNKNOWN_ERROR: Final = (Text("the driver fails", "驱动出错"), _KERNEL_LOG, 0)


def explain(failure: Failure, module: str | None) -> Diagnosis:
    """Return the problem behind a failed probe. module: the kernel's driver, of `kernel_module`."""
    kernel = Text(f"the kernel has driver {module}".rstrip(), f"内核中有驱动 {module}".rstrip())
    if failure.error == "NVML_ERROR_LIBRARY_NOT_FOUND":
        code = _INSUFFICIENT_DRIVER
        if module is None:
            what, remedy = Text("no NVIDIA driver", "没有 NVIDIA 驱动"), _INSTALL
        else:
            what, remedy = _followed(kernel, _NO_LIBRARY), _REACH
    elif failure.error == "NVML_ERROR_DRIVER_NOT_LOADED":
        code = _NO_DEVICE
        if module is None:
            what, remedy = Text("the NVIDIA driver is not loaded", "NVIDIA 驱动未加载"), _LOAD
        else:
            what, remedy = _followed(kernel, _NO_DEVICES), _REACH
    else:
        what, remedy, code = _ERRORS.get(failure.error, _UNKNOWN_ERROR)
        if failure.error == MISMATCH and module:
            what = _followed(what, Text(f", the kernel's is {module}", f"，内核中的是 {module}"))
    at = Text(failure.call)
    if failure.gpu is not None:
        at = Text(f"{failure.call} of GPU {failure.gpu}", f"{failure.call}（GPU {failure.gpu}）")
    return Diagnosis(what, remedy, nvml=failure.error, cuda=code, at=at)


def _followed(text: Text, by: Text) -> Text:
    return Text(text.en + by.en, text.zh + by.zh)


def diagnose(
    probed: Probe | Failure, module: str | None, labels: Mapping[str, str] | None = None
) -> tuple[Diagnosis, ...]:
    """Return all problems of a node; labels: of its object in a cluster, if known."""
    if isinstance(probed, Failure):
        return (explain(probed, module),)
    return (
        *_of_probe(probed, labels or {}),
        *(_of_labels(labels, probed) if labels is not None else ()),
    )


def _of_probe(probe: Probe, labels: Mapping[str, str]) -> Iterator[Diagnosis]:
    if not probe.gpus:
        yield _without_gpu(probe, labels)
    for index, gpu in enumerate(probe.gpus):
        yield from _of_gpu(f"GPU {index}", gpu, probe)


def _without_gpu(probe: Probe, labels: Mapping[str, str]) -> Diagnosis:
    """Return why a driver has no GPU. labels: may still have the GPU of before an upgrade of the driver."""
    what = Text(f"driver {probe.driver} has no GPU", f"驱动 {probe.driver} 没有 GPU")
    remedy = Text(f"{_KERNEL_LOG.en}, and `lspci -d 10de:`", f"{_KERNEL_LOG.zh}，以及 `lspci -d 10de:`")
    now = capabilities_of(probe)
    before = NodeReader("", labels).capabilities(LabelNames())
    if found := unsupported_gpu(replace(before, driver=now.driver, cuda=now.cuda)):
        labelled = Text(
            f", and by its labels the node has one: {found.reason.en}",
            f"，而节点的标签显示有 GPU：{found.reason.zh}",
        )
        what, remedy = _followed(what, labelled), found.remedy
    return Diagnosis(what, remedy, cuda=_NO_DEVICE)


def _of_gpu(name: str, gpu: Gpu, probe: Probe) -> Iterator[Diagnosis]:
    fabric = Text(
        "start the Fabric Manager of the driver's version, and check its log",
        "启动与驱动版本相同的 Fabric Manager，并检查其日志",
    )
    reset = "`nvidia-smi -c DEFAULT`"
    if gpu.fabric_error:
        what = Text(f"{name} could not join the NVLink fabric", f"{name} 无法加入 NVLink fabric")
        yield Diagnosis(what, fabric, nvml=gpu.fabric_error, cuda=_NOT_READY)
    elif gpu.fabric not in (None, FABRIC_READY):
        what = Text(
            f"{name} waits for the NVLink fabric, whose state is {gpu.fabric}",
            f"{name} 正在等待 NVLink fabric，其状态为 {gpu.fabric}",
        )
        yield Diagnosis(what, fabric, cuda=_NOT_READY)
    if gpu.mig and gpu.mig_profiles == ():
        yield Diagnosis(
            Text(f"{name} is in MIG mode and has no MIG instance", f"{name} 处于 MIG 模式，但没有 MIG 实例"),
            Text("create instances, or leave MIG mode", "创建实例，或关闭 MIG 模式"),
            broken=False,
            cuda=_NO_DEVICE,
        )
    if gpu.compute_mode == "Prohibited":
        yield Diagnosis(
            Text(f"{name} is in compute mode Prohibited", f"{name} 的计算模式为 Prohibited"),
            Text(f"run {reset}", f"运行 {reset}"),
            cuda=_UNAVAILABLE,
        )
    elif gpu.compute_mode == "Exclusive_Process" and not probe.mps:
        yield Diagnosis(
            Text(
                f"{name} is in compute mode Exclusive_Process, but no MPS control daemon was found",
                f"{name} 的计算模式为 Exclusive_Process，但未找到 MPS 控制守护进程",
            ),
            Text(f"start one, or run {reset}", f"启动守护进程，或运行 {reset}"),
            broken=False,
            cuda=_UNAVAILABLE,
        )


def _of_labels(labels: Mapping[str, str], probe: Probe) -> Iterator[Diagnosis]:
    for difference in differences(labels, probe):
        yield Diagnosis(difference.message, _RESTART_DISCOVERY, broken=False)
    expected = metadata_of(probe).labels
    wrong = [key for key, value in expected.items() if key in labels and labels[key] != value]
    if wrong:
        found = ", ".join(f"{key}={labels[key]}" for key in wrong)
        reported = ", ".join(expected[key] for key in wrong)
        what = Text(f"the node has {found}, NVML reports {reported}", f"节点有 {found}，NVML 报告 {reported}")
        yield Diagnosis(what, _SET_LABELS, broken=False)
    elif not any(key in labels for key in CUDA_LABELS):
        what = Text("no label has the driver's CUDA version", "没有标签包含驱动的 CUDA 版本")
        yield Diagnosis(what, _SET_LABELS, broken=False)
