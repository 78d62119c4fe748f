"""Model servers in pods that request no GPU, such as an InferenceService with `resources` in the wrong place.

For commands that are asked about an object: admission never sees such pods. Nothing is certain, since a
container without a request may be given GPUs by its runtime. Signs: `facts/container_signs.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple

from rules.cuda.framework_flags import image_versions, multi_node_signs, visible_devices
from rules.cuda.tables import read_table
from rules.decision.policy import Policy
from rules.kube.pod import Container, Literals, Pod
from rules.model.decision import AdmissionRequest, NotChecked
from rules.nodes.gpu_resources import gpu_resource, is_network_device
from rules.text.i18n import Message
from rules.text.paths import field_path
from rules.text.printable import shortened

_LONGEST: Final = 80  # characters of a user's text in a message
# Characters of a command line that are read.
_MOST_READ: Final = 100_000
_NO_GPU: Final = Message(
    "no container asks for a GPU, which {server} in container {container!r} needs: set one in its "
    "resources.limits, such as nvidia.com/gpu: 1"
)
_ELSEWHERE: Final = Message(
    "no container asks for a GPU, which {server} in container {container!r} needs: {place} is of no "
    "container; move it into the container"
)


def servers_without_gpu(policy: Policy, request: AdmissionRequest) -> Iterator[NotChecked]:
    """Yield the first model server in each pod of an object in which no container asks for a GPU.

    Raises ObjectError.
    """
    # Of other kinds, other pods may have the GPUs, or what refers to a template asks for them.
    if (
        request.kind in multi_node_signs().kinds
        or (request.group, request.kind) in policy.workloads.templates
    ):
        return
    pods = _pods(policy, request)
    if not any(map(_may_get_a_gpu, pods)):
        for pod in pods:
            yield from _of_pod(policy, pod)


def requests_devices(policy: Policy, request: AdmissionRequest) -> bool:
    """Return whether a pod of an object requests an extended resource or a claim. Raises ObjectError."""
    return any(pod.users or pod.claimers for pod in _pods(policy, request))


def _pods(policy: Policy, request: AdmissionRequest) -> list[Pod]:
    document, by_annotation = request.object or {}, policy.annotation_requests
    raw_pods = policy.workloads.pods_of(request.group, request.kind, document)
    return [Pod(document, raw, path, others, by_annotation) for path, (raw, others) in raw_pods.items()]


def _may_get_a_gpu(pod: Pod) -> bool:
    """Return whether a pod asks for what may be a GPU, or a controller or scheduler may give it one."""
    names = (name for container in pod.users for name in container.names)
    return bool(
        pod.partial
        or pod.claimers
        or not _signs().annotations.isdisjoint(pod.annotations)
        or any("/" in name and not is_network_device(name) for name in names)
    )


def _of_pod(policy: Policy, pod: Pod) -> Iterator[NotChecked]:
    for container in pod.containers:
        if server := _server(policy, container):
            message = _NO_GPU.having(server=server, container=shortened(container.name, _LONGEST))
            place = pod.place("spec", "resources")
            if _has_gpu(pod.spec.get("resources")):
                message = _ELSEWHERE.having(**message[1], place=field_path(place))
                yield NotChecked(field_path(place), message)
            else:
                yield NotChecked(field_path(container.path), message)
            return


def _server(policy: Policy, container: Container) -> str:
    """Return the model server that a container runs on GPUs, or else a flag of several GPUs, or nothing."""
    signs, command = _signs(), container.strings("command")
    arguments = " ".join(container.strings("args"))
    line = " ".join([*command, arguments])
    # None: the image is for another platform, such as the CPU.
    if len(line) > _MOST_READ or image_versions(policy.facts, container.image) is None:
        return ""
    if signs.without_gpu.search(line) or any(map(signs.of_cpu, container.variables)):
        return ""
    variables = Literals(container.variables)
    for name, none in visible_devices().items():
        if name in container.variables and variables.get(name) not in none:
            return ""
    for server in signs.servers:
        if server.command.search(line) or (
            not command and server.image.search(container.image) and server.arguments.search(arguments)
        ):
            return server.name
    several = signs.several_gpus.search(line)
    return f"`{several[0]}`" if several else ""


def _has_gpu(resources: Any) -> bool:
    """Return whether resources outside a container request a GPU."""
    parts = [resources.get(field) for field in ("limits", "requests")] if isinstance(resources, dict) else []
    return any(gpu_resource(str(name)) for part in parts if isinstance(part, dict) for name in part)


class _Server(NamedTuple):
    name: str
    command: re.Pattern[str]
    image: re.Pattern[str]
    arguments: re.Pattern[str]


class _Signs(NamedTuple):
    """Their part of facts/container_signs.yaml. variables: beginnings of names."""

    servers: tuple[_Server, ...]
    several_gpus: re.Pattern[str]
    without_gpu: re.Pattern[str]
    variables: tuple[str, ...]
    annotations: frozenset[str]

    def of_cpu(self, name: str) -> bool:
        """Return whether a variable is one of servers on the CPU."""
        return name.startswith(self.variables)


@cache
def _signs() -> _Signs:
    table, nothing = read_table("container_signs"), "(?!)"
    return _Signs(
        tuple(
            _Server(
                row["name"],
                *(re.compile(row.get(part, nothing)) for part in ("command", "image", "arguments")),
            )
            for row in table["model_servers"]
        ),
        re.compile(table["several_gpus"]),
        re.compile(table["without_gpu"]),
        tuple(table["without_gpu_variables"]),
        frozenset(table["gpu_annotations"]),
    )
