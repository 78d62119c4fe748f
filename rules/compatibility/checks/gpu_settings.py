"""Settings of a container that contradict the GPUs that it requests, such as NVIDIA_VISIBLE_DEVICES by hand.

None is certain to fail, because the container runtime, its mode and the program decide. Sources:
`facts/gpu_settings.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import GpuRequirements
from rules.cuda.tables import capability as capability_of
from rules.cuda.tables import read_table
from rules.cuda.versions import ComputeCapability
from rules.kube.pod import Container, Literals, Pod
from rules.model.check_result import OFF, CheckResult, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.devices.claims import PodClaim
from rules.nodes.gpu_resources import cached_by_names, gpu_resources, requested_gpus
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.glob import glob
from rules.text.i18n import Message
from rules.text.paths import Path
from rules.text.printable import shortened

SETTING = "checks.gpuSettings"
REMOVE: Final = Message("remove {name} from env")
# Of a variable of the device plugin, and of a privileged container: what is wrong, and what to do.
SET_BY_HAND: Final = (
    Message(
        "{name} set by hand replaces the value of the device plugin: "
        "the container may see other GPUs than its own, or none"
    ),
    REMOVE,
)
PRIVILEGED: Final = (
    Message("a privileged container sees all GPUs of the node, whatever it requests"),
    Message("remove privileged: true, unless it needs other devices of the node"),
)
_LONGEST = 80  # characters of a user's text in a message
# Devices of CUDA_VISIBLE_DEVICES that are read; no node has as many.
_MOST_DEVICES = 64
# Volumes of a pod that are read for each of its containers; a kubelet mounts few of a node's paths.
_MOST_VOLUMES = 256


class GpuSettingsCheck(Check):
    """Variables, privileges and mounts beside a request for NVIDIA's GPUs."""

    is_optional = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterable[CheckResult]:
        """Return a result for each setting that contradicts the request. Linear in variables and mounts."""
        if policy.checks.gpu_settings is OFF or not policy.cuda:
            return ()
        known, raw, devices = _known(), container.raw, _devices(container.names)
        if not devices.are_gpus:
            return ()
        is_whole = devices.are_whole and not policy.virtual
        if is_whole:
            is_set = "securityContext" in raw or "volumeMounts" in raw
            is_set = is_set or container.may_set(known.variables, known.mps_variables)
        else:
            is_set = known.capabilities in container.variables
        if not (is_set or devices.rdma):  # as of most containers
            return ()
        level = capped(policy.checks.gpu_settings, certain=False)
        settings = _Settings(known, container, pod, Literals(container.variables))
        findings = [] if requirements.no_cuda else [*_of_capabilities(settings)]
        if is_whole:
            findings += _of_whole_gpus(settings)
        findings += _of_rdma(settings)
        return [
            CheckResult(level, reason, remedy, setting=SETTING, path=path)
            for reason, remedy, path in findings
        ]

    def on_node(
        self, policy: SharingPolicy, requirements: GpuRequirements, node: NodeCapabilities
    ) -> Iterable[CheckResult]:
        """Return a result if a variable asks for TF32, which the GPU does not have."""
        name, capability = requirements.tf32, node.gpu_capability
        if not name or capability is None or policy.checks.gpu_settings is OFF:
            return ()
        if ComputeCapability(*capability) >= _known().tf32:
            return ()
        reason = Message(
            "{name} has no effect: compute capability {gpu} has no TF32, which {minimum} or higher has",
            name=name,
            gpu=ComputeCapability(*capability),
            minimum=_known().tf32,
        )
        level = capped(policy.checks.gpu_settings, certain=False)
        return (CheckResult(level, reason, REMOVE.having(name=name), setting=SETTING),)


def of_claims(
    policy: SharingPolicy, container: Container, claims: Sequence[PodClaim]
) -> Iterator[CheckResult]:
    """Yield a result for each variable with which a container chooses other GPUs than those of its claims."""
    known = _known()
    if policy.checks.gpu_settings is OFF or container.variables.keys().isdisjoint(known.variables):
        return
    level = capped(policy.checks.gpu_settings, certain=False)
    name = known.runtime_devices
    classes = {
        device.device_class
        for claim in claims
        for request in claim.requests
        for device in request.alternatives
    }
    if name in container.variables and not known.claimed_classes.isdisjoint(classes):
        reason = Message("{name} has no effect: the driver of the claim replaces it", name=name)
        path = container.variable_path(name)
        yield CheckResult(level, reason, REMOVE.having(name=name), setting=SETTING, path=path)
    gpus = _claimed_gpus(known, claims) if known.cuda_devices in container.variables else None
    if gpus is not None and not gpu_resources(container.names).vendors:
        variables = Literals(container.variables)
        for reason, remedy, path in _beyond(known.cuda_devices, variables, container, gpus):
            yield CheckResult(level, reason, remedy, setting=SETTING, path=path)


def _claimed_gpus(known: _Known, claims: Iterable[PodClaim]) -> int | None:
    """Return how many GPUs claims have at most; None if it is unknown, or if a class is another one."""
    gpus = 0
    for claim in claims:
        if claim.unknown:
            return None
        for request in claim.requests:
            numbers = [device.number for device in request.alternatives]
            if request.unknown or request.admin or not all(numbers):
                return None
            if any(device.device_class != known.gpu_class for device in request.alternatives):
                return None
            gpus += max(numbers, default=0)
    return gpus


class _Known(NamedTuple):
    """facts/gpu_settings.yaml. variables: the three that name devices or capabilities."""

    vendor: str
    shares: tuple[re.Pattern[str], ...]
    runtime_devices: str
    claimed_classes: frozenset[str]
    gpu_class: str
    capabilities: str
    with_cuda: frozenset[str]
    cuda_devices: str
    tf32: ComputeCapability
    variables: frozenset[str]
    mps_variables: str
    mps_program: str
    mps_pipe: str
    rdma: re.Pattern[str]
    lock_memory: frozenset[str]
    driver_paths: tuple[re.Pattern[str], ...]


class _Devices(NamedTuple):
    """The resources of a container.

    are_gpus: whether NVIDIA's GPUs are among them, and those of nobody else. are_whole: whether none is a
    share of a GPU. rdma: those that are RDMA devices.
    """

    are_gpus: bool
    are_whole: bool
    rdma: tuple[str, ...]


class _Settings(NamedTuple):
    """A container, and what its settings are compared with."""

    known: _Known
    container: Container
    pod: Pod
    variables: Literals


_Reason = tuple[Message, Message, Path]


@cache
def _known() -> _Known:
    table = read_table("gpu_settings")
    globs = {name: tuple(map(glob, table[name])) for name in ("shares", "driver_paths")}
    sets = {name: frozenset(table[name]) for name in ("with_cuda", "lock_memory", "claimed_classes")}
    sets["variables"] = frozenset(table[name] for name in ("runtime_devices", "capabilities", "cuda_devices"))
    rest = {"rdma": glob(table["rdma"]), "tf32": capability_of(table["tf32"]["compute"])}
    return _Known(**table | globs | sets | rest)


def _of_capabilities(settings: _Settings) -> Iterator[_Reason]:
    """Yield a reason if libcuda.so is not among the libraries that are mounted."""
    name, value = settings.known.capabilities, settings.variables.get(settings.known.capabilities)
    if value and settings.known.with_cuda.isdisjoint(part.strip() for part in value.split(",")):
        reason = Message(
            "{name}={value} is without compute: programs may find no libcuda.so",
            name=name,
            value=shortened(value, _LONGEST),
        )
        yield reason, Message("add compute to {name}", name=name), settings.container.variable_path(name)


def _of_whole_gpus(settings: _Settings) -> Iterator[_Reason]:
    """Yield the reasons that only concern GPUs that no other container shares."""
    others = [*_of_other_gpus(settings)]
    yield from others
    if not others:
        yield from _of_cuda_devices(settings)
    yield from _of_mps(settings)


def _of_other_gpus(settings: _Settings) -> Iterator[_Reason]:
    """Yield why the container may see other GPUs than those that it requests."""
    known, container = settings.known, settings.container
    value = settings.variables.get(known.runtime_devices)
    if value is not None:
        reason, remedy = (text.having(name=known.runtime_devices) for text in SET_BY_HAND)
        yield reason, remedy, container.variable_path(known.runtime_devices)
    if container.is_privileged:
        yield *PRIVILEGED, (*container.path, "securityContext", "privileged")
    paths = _host_paths(settings.pod) if container.volume_mounts else {}
    for index, mount in enumerate(container.volume_mounts):
        volume = mount.get("name") if isinstance(mount, dict) else None
        path = paths.get(volume) if isinstance(volume, str) else None
        if path is not None and any(pattern.fullmatch(path) for pattern in known.driver_paths):
            reason = Message(
                "the container requests GPUs and mounts {path} of the node, "
                "which may differ from what the runtime mounts",
                path=shortened(path, _LONGEST),
            )
            remedy = Message("remove the mount; the container runtime mounts the driver")
            yield reason, remedy, (*container.path, "volumeMounts", index)
            return


def _of_cuda_devices(settings: _Settings) -> Iterator[_Reason]:
    """Yield a reason if CUDA_VISIBLE_DEVICES has an index beyond the number of GPUs."""
    name = settings.known.cuda_devices
    value = settings.variables.get(name)
    gpus = requested_gpus(settings.container) if value else None
    if gpus is None or settings.container.has_claims:
        return  # a claim may add GPUs
    if any(gpu.slices for _, gpu in gpu_resources((gpus.name,)).resources):
        return
    yield from _beyond(name, settings.variables, settings.container, gpus.devices)


def _beyond(name: str, variables: Literals, container: Container, gpus: int) -> Iterator[_Reason]:
    """Yield a reason if a variable has an index beyond the number of GPUs of a container."""
    value = variables.get(name) or ""
    for text in value.split(",", _MOST_DEVICES)[:_MOST_DEVICES]:
        index = text.strip()
        if not (
            index.isascii() and index.isdigit()
        ):  # -1 ends the list, and a UUID may be that of an own GPU
            return
        if len(index) > len(str(gpus)) or int(index) >= gpus:
            reason = Message(
                "{name}={value} names GPU {index}, but the container has {count}, counted from 0: "
                "CUDA ignores this one and all after it",
                name=name,
                value=shortened(value, _LONGEST),
                index=shortened(index, _LONGEST),
                count=gpus,
            )
            yield reason, REMOVE.having(name=name), container.variable_path(name)
            return


def _of_mps(settings: _Settings) -> Iterator[_Reason]:
    """Yield a reason if there are variables of MPS, but no server of MPS that the pod shows."""
    known, container = settings.known, settings.container
    name = next((name for name in container.variables if name.startswith(known.mps_variables)), None)
    if name is None or settings.pod.spec.get("hostIPC") is True:
        return
    pipe = settings.variables.get(known.mps_pipe) or ""
    for mount in container.volume_mounts:
        path = mount.get("mountPath") if isinstance(mount, dict) else None
        if isinstance(path, str) and f"{pipe}/".startswith(f"{path.rstrip('/')}/"):
            return
    words = (*container.strings("command"), *container.strings("args"))
    if any(known.mps_program in word for word in words):
        return
    reason = Message(
        "{name} has no effect unless the node shares its GPUs by MPS: the container requests no share of MPS",
        name=name,
    )
    yield reason, REMOVE.having(name=name), container.variable_path(name)


def _of_rdma(settings: _Settings) -> Iterator[_Reason]:
    """Yield a reason if RDMA devices are requested without a capability to lock memory.

    Of a pod that a controller completes, it is unknown which capabilities it will have.
    """
    known, container = settings.known, settings.container
    if settings.pod.partial:
        return
    devices = _devices(container.names)
    name = next((name for name in devices.rdma if str(container.request(name)) != "0"), None)
    if name is None or container.is_privileged:
        return
    for capability in container.entries("securityContext", "capabilities", "add"):
        if isinstance(capability, str) and capability.removeprefix("CAP_") in known.lock_memory:
            return
    reason = Message(
        "{name} without the capability IPC_LOCK: RDMA may fail to lock memory", name=shortened(name, _LONGEST)
    )
    remedy = Message("add IPC_LOCK to securityContext.capabilities.add, unless ulimit -l is high enough")
    yield reason, remedy, (*container.path, "securityContext", "capabilities")


@cached_by_names
def _devices(names: tuple[str, ...]) -> _Devices:
    known = _known()
    return _Devices(
        are_gpus=gpu_resources(names).vendors == {known.vendor},
        are_whole=not any(pattern.fullmatch(name) for name in names for pattern in known.shares),
        rdma=tuple([name for name in names if known.rdma.fullmatch(name)]),
    )


def _host_paths(pod: Pod) -> Mapping[str, str]:
    """Return the path of each volume that is one of the node's paths, without a slash at its end."""
    paths: dict[str, str] = {}
    volumes: Any = pod.spec.get("volumes")
    for volume in volumes[:_MOST_VOLUMES] if isinstance(volumes, list) else ():
        source = volume.get("hostPath") if isinstance(volume, dict) else None
        path = source.get("path") if isinstance(source, dict) else None
        if isinstance(path, str) and isinstance(name := volume.get("name"), str):
            paths[name] = path.rstrip("/")
    return paths
