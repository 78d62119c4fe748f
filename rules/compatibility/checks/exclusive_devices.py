"""Devices that do not work together in one container: two MIG profiles, or of two vendors.

Neither is certain to fail, so the rule decides:
- The device plugins of two profiles set NVIDIA_VISIBLE_DEVICES each, and the kubelet keeps one of them: only
  the devices of one profile are visible, unless the plugin passes them as CDI devices. A CUDA process uses
  one MIG device anyway. https://github.com/NVIDIA/k8s-device-plugin/issues/728
- A node may have GPUs of two vendors, for example an integrated one, and some programs use both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rules.compatibility.checks.base import Check, ContainerFinding
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.check_result import CheckResult, Level, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.gpu_resources import GpuResource, gpu_resources
from rules.text.i18n import Text

SETTING = "checks.exclusiveDevices"


class ExclusiveDevicesCheck(Check):
    """The accelerators among the resources of a container."""

    is_optional = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterable[ContainerFinding]:
        """Return a result for two MIG profiles, and for two vendors."""
        del requirements, pod
        if policy.checks.exclusive_devices is Level.COMPATIBLE:
            return ()
        known = gpu_resources(container.names)
        if len(known) < 2:
            return ()
        if len({gpu.vendor for _, gpu in known}) < 2 and sum(gpu.slices for _, gpu in known) < 2:
            return ()
        return _findings(container, known, capped(policy.checks.exclusive_devices, certain=True))


def _findings(
    container: Container, known: Iterable[tuple[str, GpuResource]], level: Level
) -> Iterator[ContainerFinding]:
    found = {name: gpu for name, gpu in known if _requests(container, name)}
    profiles = [name for name, gpu in found.items() if gpu.slices]
    if len(profiles) > 1:
        yield _finding(container, profiles[1], _of_profiles(level, profiles[0], profiles[1]))
    vendors: dict[str, tuple[str, GpuResource]] = {}
    for name, gpu in found.items():
        vendors.setdefault(gpu.vendor, (name, gpu))
    if len(vendors) > 1:
        first, other, *_ = vendors.values()
        yield _finding(container, other[0], _of_vendors(level, first, other))


def _requests(container: Container, name: str) -> bool:
    try:
        return parse_quantity(container.request(name)) > 0
    except QuantityError:  # the resource's own rule reports it
        return False


def _finding(container: Container, name: str, result: CheckResult) -> ContainerFinding:
    field = "limits" if name in container.limits else "requests"
    return ContainerFinding(result, container.resource_path(field, name))


def _of_profiles(level: Level, first: str, second: str) -> CheckResult:
    reason = Text(
        f"{first} and {second}: the container may see only one of the MIG profiles",
        f"{first} 与 {second}：容器可能只能看到其中一种 MIG 规格",
    )
    remedy = Text("request one profile in each container", "每个容器只申请一种规格")
    return CheckResult(level, reason, remedy, setting=SETTING)


def _of_vendors(level: Level, first: tuple[str, GpuResource], second: tuple[str, GpuResource]) -> CheckResult:
    (name, one), (other, two) = first, second
    reason = Text(
        f"{name} ({one.vendor}) and {other} ({two.vendor}): only a node with both can run the pod",
        f"{name}（{one.vendor}）与 {other}（{two.vendor}）：仅同时具备两者的节点可运行",
    )
    remedy = Text("request devices of one vendor", "只申请一家厂商的设备")
    return CheckResult(level, reason, remedy, setting=SETTING)
