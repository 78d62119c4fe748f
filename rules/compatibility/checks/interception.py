"""What keeps the library of a sharing system from intercepting CUDA calls in a container with a share.

Certain is only what the system never runs. Sources: `facts/interception.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from rules.compatibility.checks.base import Check
from rules.compatibility.checks.gpu_settings import PRIVILEGED, REMOVE, SET_BY_HAND
from rules.cuda.requirements import GpuRequirements
from rules.cuda.tables import read_table
from rules.kube.names import DEFAULT_SCHEDULER
from rules.kube.pod import Container, Literals, Pod
from rules.model.check_result import OFF, CheckResult, capped
from rules.model.match import ResourceIndex
from rules.model.sharing import SharingPolicy
from rules.nodes.gpu_resources import cached_by_names
from rules.text.glob import glob
from rules.text.i18n import Joined, Message
from rules.text.paths import Path
from rules.text.printable import shortened

SETTING: Final = "checks.interception"
_LONGEST: Final = 80  # characters of a user's text in a message
_UNPRIVILEGED: Final = Message("remove privileged from the container's securityContext")
_APART: Final = Message("remove privileged from its securityContext, or run it in a pod of its own")
# By the kind of a variable: what a value that is not fine does, and what to do.
_OF_VARIABLES: Final = {
    "of_plugin": SET_BY_HAND,
    "own_gpus": (
        Message("{name}={value} does not start with 0: a container counts its own GPUs from 0"),
        REMOVE,
    ),
    "known": (
        Message("{name}={value} is unknown to {system}, and has no effect"),
        Message("set {name} to one of {values}"),
    ),
    "turns_off": (
        Message("{name}={value} turns off the limits of {system}: the container can use the whole GPU"),
        REMOVE,
    ),
    "path": (
        Message("{name} replaces that of {system}: programs may not find its library in {path}"),
        Message("add {path} to {name}"),
    ),
}


class InterceptionCheck(Check):
    """Privileges, RuntimeClass and variables of a container with a share, by its sharing system."""

    is_optional = True

    def on_container(
        self, policy: SharingPolicy, requirements: GpuRequirements, container: Container, pod: Pod
    ) -> Iterable[CheckResult]:
        """Return a result for each obstacle. Linear in resources and in the rows of the table."""
        del requirements
        if policy.checks.interception is OFF or not policy.virtual:
            return ()
        system = _system_of(container.names)
        # Of most containers, nothing is set that could be an obstacle.
        if system is None or not (
            pod.once("privileged", _privileged)
            or "runtimeClassName" in pod.spec
            or not container.variables.keys().isdisjoint(system.variables.keys())
        ):
            return ()
        return [
            CheckResult(
                capped(policy.checks.interception, certain=certain),
                reason,
                remedy,
                setting=SETTING,
                path=path,
            )
            for reason, remedy, path, certain in _obstacles(system, container, pod)
        ]


class _System(NamedTuple):
    """A sharing system: its part of facts/interception.yaml.

    privileged: what it denies of privileged containers, or nothing. variables: their rows, by name.
    """

    name: str
    privileged: dict[str, Any]
    runtime_classes: tuple[re.Pattern[str], ...]
    variables: Mapping[str, dict[str, Any]]


_Obstacle = tuple[Message, Message, Path, bool]


@cache
def _systems() -> ResourceIndex[_System]:
    """Return the systems by their resources."""
    table = read_table("interception")

    def rows(section: str, system: str) -> Iterator[dict[str, Any]]:
        return (row for row in table[section] if system in row["systems"])

    systems = {
        name: _System(
            name,
            table["denies_privileged"].get(name, {}),
            tuple(glob(text) for row in rows("runtime_classes", name) for text in row["names"]),
            {
                row["name"]: row | {"fine": re.compile(row["fine"], re.DOTALL)}
                for row in rows("variables", name)
            },
        )
        for name in table["systems"]
    }
    return ResourceIndex(
        (resource, systems[name]) for name, resources in table["systems"].items() for resource in resources
    )


@cached_by_names
def _system_of(names: Iterable[str]) -> _System | None:
    """Return the system of the first resource that has one."""
    find = _systems().find
    return next((systems[0] for name in names if (systems := find(name))), None)


def _privileged(pod: Pod) -> Container | None:
    """Return the first privileged container of a pod."""
    return next((container for container in pod.containers if container.is_privileged), None)


def _of_privileges(system: _System, container: Container, pod: Pod) -> Iterator[_Obstacle]:
    """Yield the obstacle of a privileged container: the one with the share, or another one of its pod."""
    privileged = pod.once("privileged", _privileged)
    if privileged is None:
        return
    denies = system.privileged
    scheduler = pod.spec.get("schedulerName") or DEFAULT_SCHEDULER
    if container.is_privileged:
        privileged = container
    elif _system_of(privileged.names) is system:
        return  # this is said of that one
    path = (*privileged.path, "securityContext", "privileged")
    if privileged is container and not denies:
        yield *PRIVILEGED, path, False
    elif privileged is container and scheduler in denies["shares"]:
        reason = Message(
            "a privileged container, which {system} denies or leaves unscheduled", system=system.name
        )
        yield reason, _UNPRIVILEGED, path, True
    elif denies and scheduler in denies["pods"]:
        reason = Message(
            "the pod has a privileged container, {name!r}, which {system} denies since release {since}",
            name=privileged.name,
            system=system.name,
            since=denies["since"],
        )
        yield reason, _UNPRIVILEGED if privileged is container else _APART, path, False


def _obstacles(system: _System, container: Container, pod: Pod) -> Iterator[_Obstacle]:
    """Yield reason, fix, place and certainty of each obstacle."""
    yield from _of_privileges(system, container, pod)
    runtime_class = pod.spec.get("runtimeClassName")
    if isinstance(runtime_class, str) and any(
        pattern.fullmatch(runtime_class) for pattern in system.runtime_classes
    ):
        reason = Message(
            "the library of {system} does not work with runtimeClassName {name}: "
            "programs do not start, or have no limits",
            system=system.name,
            name=shortened(runtime_class, _LONGEST),
        )
        remedy = Message("use another runtimeClassName, such as nvidia")
        yield reason, remedy, pod.place("spec", "runtimeClassName"), False
    variables = Literals(container.variables)
    for name, row in system.variables.items():
        value = variables.get(name)
        if value is not None and not row["fine"].fullmatch(value):
            texts = {
                "name": name,
                "value": shortened(value, _LONGEST),
                "system": system.name,
                "values": Joined(", ", row.get("values", ())),
                "path": row.get("path", ""),
            }
            reason, remedy = (text.having(**texts) for text in _OF_VARIABLES[row["kind"]])
            yield reason, remedy, container.variable_path(name), False
