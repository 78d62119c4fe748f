"""Kinds of objects that hold pods, and where the pods are in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import force_setattr

from rules.cuda.tables import read_table
from rules.kube.json_patch import ObjectError
from rules.kube.pod import OtherContainer
from rules.text.i18n import Message, Text
from rules.text.paths import Path

# In a path: every member of an object or list.
EVERY: Final = "*"
Steps = tuple[str, ...]
Kind = tuple[str, str]
# Where the resources of a container are, by name.
_RESOURCES: Final = "resources"
_QUANTITIES: Final = ("limits", "requests")


class ContainerPlace(NamedTuple):
    """Where a pod has a container outside `containers` and `initContainers`.

    resources: the name of its resources. image: the paths of the name and the tag of its image, if these are
    apart.
    """

    steps: Steps
    resources: str = _RESOURCES
    image: tuple[Steps, ...] = ()


class FoundPod(NamedTuple):
    """A pod, pod template or pod spec in an object, and its containers at other places."""

    raw: Any
    others: tuple[OtherContainer, ...] = ()


class Workloads(Struct, frozen=True):
    """The kinds that hold pods, by API group, empty for the core, and kind. Immutable.

    paths: the steps to each pod template, or pod spec. others: by those steps, the other containers of the
    pod. wraps: the steps to objects of other kinds. unchecked: the steps to what is not checked, and why.
    templates: kinds that only other objects refer to. placeholders: text of values that are known later.
    frameworks: what the containers of a kind run. complete: the kinds all of whose pods are in their objects
    as they will be created; it follows from the others.
    """

    paths: Mapping[Kind, tuple[Steps, ...]]
    others: Mapping[Kind, Mapping[Steps, tuple[ContainerPlace, ...]]] = field(default_factory=dict)
    wraps: Mapping[Kind, tuple[Steps, ...]] = field(default_factory=dict)
    unchecked: Mapping[Kind, Mapping[Steps, Message]] = field(default_factory=dict)
    templates: frozenset[Kind] = frozenset()
    placeholders: Mapping[Kind, str] = field(default_factory=dict)
    frameworks: Mapping[Kind, str] = field(default_factory=dict)
    complete: frozenset[Kind] = frozenset()

    def __post_init__(self) -> None:
        incomplete = {*self.others, *self.wraps, *self.unchecked, *self.templates}
        force_setattr(self, "complete", frozenset(self.paths.keys() - incomplete))

    def __or__(self, other: Workloads) -> Workloads:
        """Return the kinds of both; of a kind in both, all paths."""
        kinds = self.paths.keys() | other.paths.keys()
        return Workloads(
            {
                kind: tuple(dict.fromkeys((*self.paths.get(kind, ()), *other.paths.get(kind, ()))))
                for kind in sorted(kinds)
            },
            {**other.others, **self.others},
            {**other.wraps, **self.wraps},
            {**other.unchecked, **self.unchecked},
            self.templates | other.templates,
            {**other.placeholders, **self.placeholders},
            {**other.frameworks, **self.frameworks},
        )

    def holds_pods(self, group: str, kind: str) -> bool:
        """Return whether objects of a kind are or hold pods; group is empty for the core API."""
        return (group, kind) in self.paths

    def pods_of(self, group: str, kind: str, document: Mapping[str, Any]) -> dict[Path, FoundPod]:
        """Return the pod, or each pod template, of an object by its path; none for a kind that holds no pods.

        Those of objects that it wraps, too, but not of what these wrap. Raises ObjectError where the object
        is not shaped as its kind is.
        """
        of = group, kind
        if of in self.complete:  # nearly all
            return {
                path: FoundPod(raw)
                for steps in self.paths[of]
                for path, raw in (_find(document, steps) if steps else (((), document),))
            }
        pods = dict(self._pods(of, document, ()))
        for steps in self.wraps.get(of, ()):
            for path, wrapped in _find(document, steps):
                if isinstance(wrapped, dict):
                    version = str(wrapped.get("apiVersion", ""))
                    inner = version.rpartition("/")[0], str(wrapped.get("kind"))
                    pods |= dict(self._pods(inner, wrapped, path))
        return pods

    def templates_of(self, group: str, kind: str, document: Mapping[str, Any]) -> dict[Path, Any]:
        """Return the pod, or each pod template, of an object as `pods_of` does, without other containers."""
        return {path: pod.raw for path, pod in self.pods_of(group, kind, document).items()}

    def _pods(self, of: Kind, document: Mapping[str, Any], at: Path) -> Iterator[tuple[Path, FoundPod]]:
        others = self.others.get(of, {})
        for steps in self.paths.get(of, ()):
            for path, raw in _find(document, steps, at):
                places = others.get(steps, ())
                containers = [
                    container for place in places for container in self._containers(of, place, raw, path)
                ]
                yield path, FoundPod(raw, tuple(containers))

    def _containers(self, of: Kind, place: ContainerPlace, pod: Any, at: Path) -> Iterator[OtherContainer]:
        for path, raw in _find(pod, place.steps, at):
            container = raw
            if isinstance(raw, dict):
                container = {**raw, _RESOURCES: raw.get(place.resources)}
                if place.image:
                    parts = [str(part) for steps in place.image for _, part in _find(raw, steps, path)]
                    container["image"] = ":".join(parts)
                if mark := self.placeholders.get(of):
                    container[_RESOURCES] = _known(container[_RESOURCES], mark)
            yield OtherContainer(path, container, place.resources)


def _known(resources: Any, mark: str) -> Any:
    """Return resources without the quantities that are known later."""
    if not isinstance(resources, dict):
        return resources
    return resources | {
        part: {name: value for name, value in quantities.items() if mark not in str(value)}
        for part in _QUANTITIES
        if isinstance(quantities := resources.get(part), dict)
    }


def _find(node: Any, steps: Steps, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each place that the steps lead to; null and absent members lead nowhere."""
    if not steps:
        yield path, node
        return
    step, rest = steps[0], steps[1:]
    if step == EVERY and isinstance(node, list):
        for index, item in enumerate(node):
            if item is not None:
                yield from _find(item, rest, (*path, index))
        return
    if not isinstance(node, dict):
        raise ObjectError(path, dict, node)
    for name in node if step == EVERY else (step,):
        if node.get(name) is not None:
            yield from _find(node[name], rest, (*path, name))


def places(node: Any, steps: Steps) -> list[Path]:
    """Return the places in an object that the steps lead to; none where the object has another shape."""
    try:
        return [path for path, _ in _find(node, steps)]
    except ObjectError:
        return []


def steps_of(text: str) -> Steps:
    """Return the steps of a path, such as `spec.tasks.*.template`."""
    return tuple(text.split(".")) if text else ()


@cache
def built_in_workloads() -> Workloads:
    """Return the built-in kinds. Source: `facts/workloads.yaml`."""
    table = read_table("workloads")
    kinds = {
        (group, kind): entry if isinstance(entry, dict) else {"pods": entry}
        for group, members in table.items()
        for kind, entry in members.items()
    }
    pods = {
        kind: [pod if isinstance(pod, dict) else {"path": pod} for pod in entry.get("pods", ())]
        for kind, entry in kinds.items()
    }
    others = {
        kind: {
            steps_of(pod["path"]): tuple(map(_container_place, pod["containers"]))
            for pod in entries
            if "containers" in pod
        }
        for kind, entries in pods.items()
    }
    return Workloads(
        paths={kind: tuple(steps_of(pod["path"]) for pod in entries) for kind, entries in pods.items()},
        others={kind: places for kind, places in others.items() if places},
        wraps={
            kind: tuple(map(steps_of, entry["wraps"])) for kind, entry in kinds.items() if "wraps" in entry
        },
        unchecked={
            kind: {steps_of(path): Text(**reason) for path, reason in entry["unchecked"].items()}
            for kind, entry in kinds.items()
            if "unchecked" in entry
        },
        templates=frozenset(kind for kind, entry in kinds.items() if entry.get("template")),
        placeholders={kind: entry["placeholder"] for kind, entry in kinds.items() if "placeholder" in entry},
        frameworks={kind: entry["framework"] for kind, entry in kinds.items() if "framework" in entry},
    )


def _container_place(entry: str | dict[str, Any]) -> ContainerPlace:
    place = {"path": entry} if isinstance(entry, str) else entry
    image = tuple(map(steps_of, place.get("image", ())))
    return ContainerPlace(steps_of(place["path"]), place.get("resources", _RESOURCES), image)
