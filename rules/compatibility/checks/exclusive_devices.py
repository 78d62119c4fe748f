"""Devices that do not work together in one container, or with its image: two MIG profiles, or of two vendors.

Neither is certain to fail, so the rule decides:
- The device plugins of two profiles set NVIDIA_VISIBLE_DEVICES each, and the kubelet keeps one of them: only
  the devices of one profile are visible, unless the plugin passes them as CDI devices. A CUDA process uses
  one MIG device anyway. https://github.com/NVIDIA/k8s-device-plugin/issues/728
- A node may have GPUs of two vendors, for example an integrated one, and some programs use both.
- An image that is built for another accelerator or the CPU may still run, without the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import GpuRequirements
from rules.kube.pod import Container, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.check_result import OFF, CheckResult, Level, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.gpu_resources import GpuResource, gpu_resources, vendor_of_image
from rules.text.i18n import Message

SETTING = "checks.exclusiveDevices"


class ExclusiveDevicesCheck(Check):
    """The accelerators among the resources of a container."""

    is_optional = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterable[CheckResult]:
        """Return a result for two MIG profiles, for two vendors, and for an image of another vendor."""
        del pod
        if policy.checks.exclusive_devices is OFF:
            return ()
        known = gpu_resources(container.names)
        built = vendor_of_image(requirements.accelerator)
        is_built_for_all = built is None or known.vendors <= {built}
        if known.slices < 2 and len(known.vendors) < 2 and is_built_for_all:
            return ()
        level = capped(policy.checks.exclusive_devices, certain=True)
        requested = {name: gpu for name, gpu in known.resources if _requests(container, name)}
        if built is None or not requested or any(gpu.vendor == built for gpu in requested.values()):
            return _of_devices(container, requested, level)
        return (
            _of_image(container, next(iter(requested.items())), (built, requirements.accelerator), level),
        )


def _of_devices(
    container: Container, requested: Mapping[str, GpuResource], level: Level
) -> Iterator[CheckResult]:
    profiles = [name for name, gpu in requested.items() if gpu.slices]
    if len(profiles) > 1:
        yield _placed(container, profiles[1], _of_profiles(level, profiles[0], profiles[1]))
    vendors: dict[str, tuple[str, GpuResource]] = {}
    for name, gpu in requested.items():
        vendors.setdefault(gpu.vendor, (name, gpu))
    if len(vendors) > 1:
        first, other, *_ = vendors.values()
        yield _placed(container, other[0], _of_vendors(level, first, other))


def _of_image(
    container: Container, requested: tuple[str, GpuResource], built_for: tuple[str, str], level: Level
) -> CheckResult:
    """Return the result for a device that is not of the vendor for whose devices the image is built.

    built_for: that vendor, empty for the CPU, and what says so.
    """
    (name, gpu), (vendor, word) = requested, built_for
    built = Message("{word}", word=vendor) if vendor else Message("the CPU")
    reason = Message(
        "the image is built for {built} (`{word}`), the container requests {name} ({vendor})",
        built=built,
        word=word,
        name=name,
        vendor=gpu.vendor,
    )
    remedy = Message("use an image for {vendor}, or remove {name}", vendor=gpu.vendor, name=name)
    return _placed(container, name, CheckResult(level, reason, remedy, setting=SETTING))


def _requests(container: Container, name: str) -> bool:
    try:
        return parse_quantity(container.request(name)) > 0
    except QuantityError:  # the resource's own rule reports it
        return False


def _placed(container: Container, name: str, result: CheckResult) -> CheckResult:
    field = "limits" if name in container.limits else "requests"
    return replace(result, path=container.resource_path(field, name))


def _of_profiles(level: Level, first: str, second: str) -> CheckResult:
    reason = Message(
        "{first} and {second}: the container may see only one of the MIG profiles", first=first, second=second
    )
    remedy = Message("request one profile in each container")
    return CheckResult(level, reason, remedy, setting=SETTING)


def _of_vendors(level: Level, first: tuple[str, GpuResource], second: tuple[str, GpuResource]) -> CheckResult:
    (name, one), (other, two) = first, second
    reason = Message(
        "{name} ({vendor}) and {other} ({other_vendor}): only a node with both can run the pod",
        name=name,
        vendor=one.vendor,
        other=other,
        other_vendor=two.vendor,
    )
    remedy = Message("request devices of one vendor")
    return CheckResult(level, reason, remedy, setting=SETTING)
