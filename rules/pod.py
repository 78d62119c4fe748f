"""What a pod asks for, container by container, and where the pod templates of each kind live.

The pod is read as the JSON that it is: fields that nobody here has heard of are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, Final

import yaml

from rules.patch import ObjectError, Path, Recorder, field_path

_NOTHING: Final[dict[str, Any]] = {}


class ContainerKind(StrEnum):
    """How Kubernetes runs a container."""

    REGULAR = "container"
    INIT = "init container"
    SIDECAR = "sidecar"  # an init container with restartPolicy Always
    EPHEMERAL = "ephemeral container"


class Container:
    """One container of a pod, with the edits made to it so far.

    path: where it stands in the object. limits, requests: resource name to quantity as written; read only.
    """

    __slots__ = ("_raw", "_recorder", "image", "kind", "limits", "name", "path", "requests")

    def __init__(self, raw: Any, path: Path, kind: ContainerKind, recorder: Recorder) -> None:
        self._raw = _object(raw, path)
        self._recorder = recorder
        self.path = path
        self.kind = kind
        name, image = self._raw.get("name"), self._raw.get("image")
        self.name: str = name if isinstance(name, str) else field_path(path)
        self.image: str = image if isinstance(image, str) else ""
        resources = _member(self._raw, path, "resources", dict)
        resources_path = (*path, "resources")
        self.limits: Mapping[str, Any] = _member(resources, resources_path, "limits", dict)
        self.requests: Mapping[str, Any] = _member(resources, resources_path, "requests", dict)
        if kind is ContainerKind.INIT and self._raw.get("restartPolicy") == "Always":
            self.kind = ContainerKind.SIDECAR

    def request(self, key: str) -> Any:
        """Return the request for a resource as the API server will have it: absent, it is the limit."""
        value = self.requests.get(key)
        return self.limits.get(key) if value is None else value

    def resource_path(self, field: str, key: str) -> Path:
        """Return where a resource stands; field: `limits` or `requests`."""
        return (*self.path, "resources", field, key)

    def set_resource(self, field: str, key: str, value: Any) -> None:
        """Put a quantity into `limits` or `requests`."""
        setattr(self, field, {**getattr(self, field), key: value})
        self._recorder.set(self.resource_path(field, key), value)

    @property
    def env(self) -> list[Any]:
        """The entries of `env` after the edits so far, in order; doubled names stand twice."""
        return self._recorder.items((*self.path, "env"))

    def strings(self, field: str) -> list[str]:
        """Return a list of texts of the container, such as `args`; entries of another type are left out."""
        entries = self._raw.get(field)
        return [entry for entry in entries if isinstance(entry, str)] if isinstance(entries, list) else []

    @property
    def env_from(self) -> list[Any]:
        """The entries of `envFrom`, whose variables nobody knows before the container starts."""
        sources: list[Any] = _member(self._raw, self.path, "envFrom", list)
        return sources

    @property
    def volume_mounts(self) -> list[Any]:
        """The entries of `volumeMounts` after the edits so far."""
        return self._recorder.items((*self.path, "volumeMounts"))

    @property
    def target(self) -> str:
        """The container that an ephemeral container was started for, or an empty string."""
        name = self._raw.get("targetContainerName")
        return name if isinstance(name, str) else ""

    def append(self, field: str, entry: dict[str, Any]) -> None:
        """Append an entry to a list of the container, such as `env`."""
        self._recorder.append((*self.path, field), entry)

    def replace_env(self, index: int, entry: dict[str, Any]) -> None:
        """Put another entry in the place of an existing one."""
        self._recorder.set((*self.path, "env", index), entry)


class Pod:
    """A pod or a pod template: its containers, its metadata, and the edits made to it so far.

    path: where it stands in the object; empty for a Pod. Raises ObjectError for what is shaped otherwise.
    """

    __slots__ = ("_spec", "containers", "path", "recorder")

    def __init__(self, document: Mapping[str, Any], raw: Any, path: Path = ()) -> None:
        pod = _object(raw, path)
        self.path = path
        self.recorder = Recorder(document)
        _member(pod, path, "metadata", dict)  # refused at once, not by the first rule that looks there
        self._spec: dict[str, Any] = _member(pod, path, "spec", dict)
        self.containers = (
            *self._read("containers", ContainerKind.REGULAR),
            *self._read("initContainers", ContainerKind.INIT),
        )

    def _read(self, field: str, kind: ContainerKind) -> Iterator[Container]:
        if field in self._spec:
            path: Path = (*self.path, "spec", field)
            for index, raw in enumerate(_member(self._spec, path[:-1], field, list)):
                yield Container(raw, (*path, index), kind, self.recorder)

    @property
    def ephemeral_containers(self) -> tuple[Container, ...]:
        """The debugging containers, which have no resources of their own."""
        return tuple(self._read("ephemeralContainers", ContainerKind.EPHEMERAL))

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels after the edits so far."""
        return _strings(self.get("metadata", "labels"))

    @property
    def annotations(self) -> Mapping[str, str]:
        """The pod's annotations after the edits so far."""
        return _strings(self.get("metadata", "annotations"))

    def get(self, *field: str | int) -> Any:
        """Return a field of the pod after the edits so far, or None."""
        return self.recorder.get((*self.path, *field))

    def set(self, *field: str | int, value: Any) -> None:
        """Put a value at a field of the pod."""
        self.recorder.set((*self.path, *field), value)

    def entries(self, *field: str | int) -> list[Any]:
        """Return a list of the pod after the edits so far; empty where it is absent."""
        return self.recorder.items((*self.path, *field))

    def append(self, *field: str | int, entry: Any) -> None:
        """Append an entry to a list of the pod."""
        self.recorder.append((*self.path, *field), entry)


def _object(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ObjectError(path, "an object", value)
    return value


def _member(parent: Mapping[str, Any], path: Path, name: str, kind: type) -> Any:
    """Return a member that is an object or a list; empty where absent or null."""
    value = parent.get(name)
    if value is None:
        return _NOTHING if kind is dict else []
    if not isinstance(value, kind):
        raise ObjectError((*path, name), "an object" if kind is dict else "a list", value)
    return value


def _strings(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        return _NOTHING
    return {key: text for key, text in value.items() if isinstance(text, str)}


@cache
def _templates() -> Mapping[tuple[str, str], tuple[tuple[str, ...], ...]]:
    table = yaml.safe_load(files("rules").joinpath("data/workloads.yaml").read_text("utf-8"))
    return {
        (group, kind): tuple(tuple(path.split(".")) if path else () for path in paths)
        for group, kinds in table.items()
        for kind, paths in kinds.items()
    }


def holds_pods(group: str, kind: str) -> bool:
    """Tell whether objects of a kind are pods or hold pod templates; group is empty for the core API."""
    return (group, kind) in _templates()


def templates_of(group: str, kind: str, document: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the pod, or each pod template, of an object by its path; none for a kind that holds no pods.

    Raises ObjectError where the object is not shaped as its kind is.
    """
    return {
        path: raw for steps in _templates().get((group, kind), ()) for path, raw in _find(document, steps)
    }


def _find(node: Any, steps: tuple[str, ...], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each place that the steps lead to; `*` is every member; null and absent members lead nowhere."""
    if not steps:
        yield path, node
        return
    step, rest = steps[0], steps[1:]
    if step == "*" and isinstance(node, list):
        for index, item in enumerate(node):
            yield from _find(item, rest, (*path, index))
        return
    members = _object(node, path)
    for name in members if step == "*" else (step,):
        if members.get(name) is not None:
            yield from _find(members[name], rest, (*path, name))
