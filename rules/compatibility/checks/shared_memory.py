"""Several GPUs in one container without a volume at /dev/shm, which has 64 MiB otherwise.

NCCL exchanges data between processes in /dev/shm if GPUs have no direct access to each other, so it is never
certain to fail: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from rules.compatibility.checks.base import Check
from rules.cuda.requirements import GpuRequirements
from rules.cuda.tables import read_table
from rules.kube.pod import Container, ContainerKind, Pod
from rules.model.check_result import OFF, CheckResult, capped
from rules.model.sharing import SharingPolicy
from rules.nodes.gpu_resources import requested_gpus
from rules.text.glob import glob
from rules.text.i18n import Message

_PATH = "/dev/shm"  # noqa: S108 - in the container
_DISABLED = "NCCL_SHM_DISABLE"
# CRI-O sets the size by it. https://github.com/cri-o/cri-o/blob/main/docs/crio.conf.5.md
_CRIO_ANNOTATION = "io.kubernetes.cri-o.ShmSize"
_MOUNT = Message("mount a volume `emptyDir: {medium: Memory}` at /dev/shm")
_MOUNT_OR_INJECT = Message("{mount}, or enable rule injection-shared-memory", mount=_MOUNT)
_SEVERAL_GPUS = Message("several GPUs, and /dev/shm has the default 64 MiB, which may be too little for NCCL")


class SharedMemoryCheck(Check):
    """A mount at /dev/shm, of whatever volume, is not limited to 64 MiB."""

    is_optional = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> tuple[CheckResult, ...]:
        """Return a result if the container uses several GPUs and its /dev/shm has the default size."""
        if policy.checks.shared_memory is OFF:
            return ()
        requested = requested_gpus(container)
        count = requested.devices if requested else 0
        parallel = bool(requirements.parallelism) and any(
            program.gpus > 1 for program in requirements.parallelism
        )
        if count <= 1 and not parallel:
            return ()
        if container.kind is ContainerKind.INIT or _has_shared_memory(container, pod):
            return ()
        known = _known()
        # What a controller adds to the pod is unknown; the pod itself is checked, too.
        if pod.partial or pod.kind_of_object in known.controllers:
            return ()
        if not parallel and (requirements.no_cuda or known.images.search(container.image)):
            return ()
        reason = _SEVERAL_GPUS
        if count > 1:
            reason = Message(
                "{count} GPUs, and /dev/shm has the default 64 MiB, which may be too little for NCCL",
                count=count,
            )
        level = capped(policy.checks.shared_memory, certain=False)
        injected = (
            count > 1 and requested and any(pattern.fullmatch(requested.name) for pattern in known.injected)
        )
        remedy = _MOUNT_OR_INJECT if injected else _MOUNT
        return (CheckResult(level, reason, remedy, path=(*container.path, "volumeMounts")),)


class _Known(NamedTuple):
    """facts/shared_memory.yaml: kinds whose pods have a volume, images that need none, and what gets one."""

    controllers: frozenset[str]
    images: re.Pattern[str]
    injected: tuple[re.Pattern[str], ...]


@cache
def _known() -> _Known:
    table = read_table("shared_memory")
    injected = tuple(map(glob, table["injected"]))
    return _Known(frozenset(table["controllers"]), re.compile(table["images"]), injected)


def _has_shared_memory(container: Container, pod: Pod) -> bool:
    """Return whether /dev/shm has another size, or NCCL does without. Linear in mounts and variables."""
    for mount in container.volume_mounts:
        path = mount.get("mountPath") if isinstance(mount, dict) else None
        if isinstance(path, str) and f"{_PATH}/".startswith(f"{path.rstrip('/')}/"):
            return True
    if pod.spec.get("hostIPC") is True or _CRIO_ANNOTATION in pod.annotations:
        return True
    return container.variables.get(_DISABLED, {}).get("value") == "1"
