"""Pods and their containers, read from JSON and edited through a Recorder.

Unknown fields are never read.
Environment variables and command lines are known as far as they can be before a container starts.
Source: https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/,
and https://github.com/kubernetes/kubernetes/tree/master/third_party/forked/golang/expansion for the details.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar

from rules.kube.json_patch import ObjectError, Recorder
from rules.kube.names import ANNOTATION, DEFAULT_SCHEDULERS, is_extended_resource
from rules.kube.quantity import is_zero
from rules.text.bounded_cache import Budget
from rules.text.paths import Path, field_path

T = TypeVar("T")
_NOTHING: Final[dict[str, Any]] = {}
_NOT_ZERO: Final = "1"
_ALL_TAINTS: Final = [{"operator": "Exists"}]
# Characters of a container's name in messages; the API server accepts 63. A longer one is shown by its path.
_MAX_NAME: Final = 253


class ContainerKind(StrEnum):
    """The kinds of containers in a pod."""

    REGULAR = "container"
    INIT = "init container"
    SIDECAR = "sidecar"  # an init container with restartPolicy Always
    EPHEMERAL = "ephemeral container"


class AnnotationRequest(NamedTuple):
    """How an annotation of a pod requests something for one of its containers."""

    schedulers: tuple[str, ...]  # those that read it
    shares_of: str  # the resource of which nodes offer the devices
    container_from: str = ""  # the annotation with the name of the container; if absent, it is the first one


class OtherContainer(NamedTuple):
    """A container outside `containers` and `initContainers`, as a custom resource may have."""

    path: Path
    raw: Any  # with the field names of a container, which may differ from those in the object
    resources: str = "resources"  # the name of this field in the object


class Container:
    """One container of a pod, with the edits so far.

    path: its path in the object.
    limits, requests: resource name to quantity as written; read only. What annotations of the pod request for
        it is in limits, by names that start with ANNOTATION.
    names: the resource names of its limits, then of its requests; of a user of a pod each once, and only if
        its quantity is not 0.
    """

    __slots__ = (
        "_annotations_path",
        "_names_of_variables",
        "_recorder",
        "_resources",
        "_shares_of",
        "_variables",
        "image",
        "kind",
        "limits",
        "name",
        "names",
        "path",
        "raw",
        "requests",
    )

    def __init__(
        self,
        raw: Any,
        path: Path,
        kind: ContainerKind,
        recorder: Recorder,
        resources_field: str = "resources",
    ) -> None:
        self.raw = _object(raw, path)
        self._resources = resources_field
        self._recorder = recorder
        self._annotations_path: Path = ()
        self._shares_of: Mapping[str, str] = _NOTHING
        self._variables: dict[str, Any] | None = None
        self.path = path
        self.kind = kind
        if kind is ContainerKind.INIT and raw.get("restartPolicy") == "Always":
            self.kind = ContainerKind.SIDECAR
        name, image = raw.get("name"), raw.get("image")
        self.name: str = name if isinstance(name, str) and len(name) <= _MAX_NAME else field_path(path)
        self.image: str = image if isinstance(image, str) else ""
        self.limits: Mapping[str, Any] = _NOTHING
        self.requests: Mapping[str, Any] = _NOTHING
        self.names: tuple[str, ...] = ()
        if resources := _member(raw, path, "resources", dict):
            path = (*path, resources_field)
            self.limits = _member(resources, path, "limits", dict)
            self.requests = _member(resources, path, "requests", dict)
            self.names = (*self.limits, *self.requests)

    def leave_out_zeros(self) -> None:
        """Set the names to the different ones, without those whose quantity is 0."""
        limits, requests = self.limits, self.requests
        self.names = tuple({**limits, **requests})
        try:  # at once for most: texts that sort after this one start with another digit than 0
            if min(_NOT_ZERO, *limits.values(), *requests.values()) == _NOT_ZERO:
                return
        except TypeError:  # some quantity is a number, or no quantity
            pass
        self.names = tuple(
            [
                name
                for name in self.names
                if name.startswith(ANNOTATION)
                or not (is_zero(limits.get(name, 0)) and is_zero(requests.get(name, 0)))
            ]
        )

    def writes(self, key: str) -> bool:
        """Return whether the object has a limit or a request of a resource, before any edit."""
        if key.startswith(ANNOTATION):
            return True
        resources = self.raw.get("resources") or {}
        return any((resources.get(field) or {}).get(key) is not None for field in ("limits", "requests"))

    def written_fields(self, key: str, quantity: object) -> list[str]:
        """Return the fields of `resources` in which the object has this quantity, before any edit.

        One field of a resource that an annotation requests.
        """
        if key.startswith(ANNOTATION):
            return ["limits"]
        resources = self.raw.get("resources") or {}
        return [
            field for field in ("limits", "requests") if (resources.get(field) or {}).get(key) == quantity
        ]

    def request(self, key: str) -> Any:
        """Return the requested quantity of a resource: the request, else the limit.

        For an extended resource the limit takes precedence: the API server denies a different request.
        """
        limit = self.limits.get(key)
        request = self.requests.get(key, limit)
        if request is None or (request != limit and limit is not None and is_extended_resource(key)):
            return limit
        return request

    def resource_path(self, field: str, key: str) -> Path:
        """Return the path of a resource; field: `limits` or `requests`."""
        if key.startswith(ANNOTATION):
            return (*self._annotations_path, key.removeprefix(ANNOTATION))
        return (*self.path, self._resources, field, key)

    def field_of_object(self, *path: str) -> Any:
        """Return a field of the object that contains the pod; None if it is absent."""
        return self._recorder.get(path)

    def request_by_annotation(self, name: str, value: str, shares_of: str, annotations_path: Path) -> None:
        """Add what an annotation of the pod requests to the limits.

        shares_of: as in AnnotationRequest. annotations_path: of all annotations.
        """
        self._annotations_path = annotations_path
        self._shares_of = {**self._shares_of, ANNOTATION + name: shares_of}
        self.limits = {**self.limits, ANNOTATION + name: value}
        self.names = (*self.limits, *self.requests)

    @property
    def offered_names(self) -> tuple[str, ...]:
        """The names of what a node offers: of a share by annotation, that of the devices."""
        if not self._shares_of:
            return self.names
        return tuple(dict.fromkeys([self._shares_of.get(name, name) for name in self.names]))

    def set_resource(self, field: str, key: str, value: Any) -> None:
        """Set a quantity in `limits` or `requests`."""
        setattr(self, field, {**getattr(self, field), key: value})
        self.leave_out_zeros()
        self._recorder.set(self.resource_path(field, key), value)

    @property
    def env(self) -> list[Any]:
        """The entries of `env` after the edits so far, in order, including duplicate names."""
        if self._recorder.edits:
            return self.entries("env")
        entries: list[Any] = _member(self.raw, self.path, "env", list)
        return entries

    @property
    def variables(self) -> Mapping[str, Mapping[str, Any]]:
        """The entry of `env` that counts for each name, the last one; malformed entries are left out."""
        if self._variables is None:
            entries = self.env
            try:
                self._variables = {entry["name"]: entry for entry in entries}
                self._variables.pop("", None)
                self._names_of_variables = "".join(self._variables)  # raises TypeError unless all are strings
            except (KeyError, TypeError):
                self._variables = {name: entry for entry in entries if (name := _name(entry))}
                self._names_of_variables = "".join(self._variables)
        return self._variables

    def may_set(self, names: Collection[str], part: str) -> bool:
        """Return False if the container has none of these variables, and none whose name has a part.

        It is quicker than a look at each name, and may be True without such a variable.
        """
        return not self.variables.keys().isdisjoint(names) or part in self._names_of_variables

    def variable_path(self, name: str) -> Path:
        """Return the path of the entry of `env` that counts for a name, which is in `variables`."""
        index = next(index for index, entry in enumerate(self.env) if entry is self.variables[name])
        return (*self.path, "env", index)

    def flag_path(self, written: str) -> Path:
        """Return the path of a flag or variable, `--name=value` or `NAME=value`.

        If it is in a script, that of the arguments, or else of the command.
        """
        name = written.replace("=", " ").partition(" ")[0]
        for field in ("args", "command"):
            for index, word in enumerate(self.strings(field)):
                if word.startswith(name):
                    return (*self.path, field, index)
        if name in self.variables:
            return self.variable_path(name)
        return (*self.path, "args" if self.strings("args") else "command")

    def strings(self, field: str) -> list[str]:
        """Return a list of strings of the container, such as `args`; entries of another type are omitted."""
        entries = self.raw.get(field)
        return [entry for entry in entries if isinstance(entry, str)] if isinstance(entries, list) else []

    @property
    def has_claims(self) -> bool:
        """Whether it uses a ResourceClaim of the pod."""
        resources = self.raw.get("resources")
        return isinstance(resources, dict) and bool(resources.get("claims"))

    @property
    def env_from(self) -> list[Any]:
        """The entries of `envFrom`, whose variables are unknown until the container starts."""
        sources: list[Any] = _member(self.raw, self.path, "envFrom", list)
        return sources

    @property
    def volume_mounts(self) -> list[Any]:
        """The entries of `volumeMounts` after the edits so far."""
        return self.entries("volumeMounts")

    @property
    def is_privileged(self) -> bool:
        """Whether it has all devices of its node, whatever it requests."""
        security = self.raw.get("securityContext")
        return isinstance(security, dict) and security.get("privileged") is True

    @property
    def target(self) -> str:
        """The container that an ephemeral container was started for, or an empty string."""
        name = self.raw.get("targetContainerName")
        return name if isinstance(name, str) else ""

    def get(self, *field: str) -> Any:
        """Return a field of the container after the edits so far, or None."""
        return self._recorder.get((*self.path, *field))

    def entries(self, *field: str) -> list[Any]:
        """Return a list of the container after the edits so far; empty if it is absent."""
        return self._recorder.items((*self.path, *field))

    def append(self, *field: str, entry: Any) -> None:
        """Append an entry to a list of the container, such as `env`."""
        if field == ("env",) and self._variables is not None:
            self._variables[entry["name"]] = entry
            self._names_of_variables += entry["name"]
        self._recorder.append((*self.path, *field), entry)

    def replace_variable(self, entry: dict[str, Any]) -> None:
        """Replace the entry of `env` that counts for its name."""
        replaced = self.variables[entry["name"]]
        index = max(at for at, candidate in enumerate(self.env) if candidate is replaced)
        self._variables = None
        self._recorder.set((*self.path, "env", index), entry)


class Pod:
    """A pod, a pod template or a pod spec: its containers, its metadata, and the edits so far.

    A pod spec without a template contains its labels and annotations, or its metadata.

    path: its path in the object; empty for a Pod.
    users: the containers that name an extended resource before any edit, or for which an annotation requests
        something.
    claimers: the containers that use a ResourceClaim.
    misplaced: extended resources in `resources` of the pod itself: field and name of each.
    namespace_labels: the labels of its namespace; None if they are unknown.
    others: containers outside the usual lists; with any, the pod is partial: a controller adds the rest.
    annotation_requests: the annotations that request something, by their names.

    Raises ObjectError for a malformed pod.
    """

    __slots__ = (
        "_has_metadata",
        "_is_spec",
        "_label_domains",
        "_once",
        "_spec",
        "_spec_path",
        "_texts",
        "claimers",
        "containers",
        "misplaced",
        "namespace_labels",
        "partial",
        "path",
        "raw",
        "recorder",
        "users",
    )

    def __init__(
        self,
        document: Mapping[str, Any],
        raw: Any,
        path: Path = (),
        others: Sequence[OtherContainer] = (),
        annotation_requests: Mapping[str, AnnotationRequest] = _NOTHING,
    ) -> None:
        pod = self.raw = _object(raw, path)
        self.path = path
        self.recorder = Recorder(document)
        self._texts: dict[str, Mapping[str, str]] = {}
        self._label_domains: frozenset[str] | None = None
        self._once: dict[str, tuple[int, Any]] = {}
        self.namespace_labels: Mapping[str, str] | None = None
        # Raises at once, not in the first rule that reads it.
        self._has_metadata = bool(_member(pod, path, "metadata", dict))
        self._is_spec = "spec" not in pod
        self._spec: dict[str, Any] = pod if self._is_spec else _member(pod, path, "spec", dict)
        self._spec_path = path if self._is_spec else (*path, "spec")
        self.containers = self._read("containers", ContainerKind.REGULAR)
        if "initContainers" in self._spec:
            self.containers += self._read("initContainers", ContainerKind.INIT)
        self.partial = bool(others)
        if others:
            regular, recorder = ContainerKind.REGULAR, self.recorder
            self.containers += tuple(
                [Container(raw, at, regular, recorder, name) for at, raw, name in others]
            )
        if annotation_requests and self._spec.get("schedulerName") not in DEFAULT_SCHEDULERS:
            self._read_requests(annotation_requests)
        self.users = [container for container in self.containers if "/" in "".join(container.names)]
        for container in self.users:
            container.leave_out_zeros()
        self.misplaced: Sequence[tuple[str, str]] = ()
        if "resources" in self._spec and not (self._is_spec or others):
            self.misplaced = self._misplaced()
        self.claimers: list[Container] = []
        if "resourceClaims" in self._spec:
            self.claimers = [container for container in self.containers if container.has_claims]

    def _read(self, field: str, kind: ContainerKind) -> tuple[Container, ...]:
        entries, recorder = _member(self._spec, self._spec_path, field, list), self.recorder
        path = (*self._spec_path, field)
        return tuple([Container(raw, (*path, index), kind, recorder) for index, raw in enumerate(entries)])

    def _misplaced(self) -> list[tuple[str, str]]:
        own, path = _member(self._spec, self._spec_path, "resources", dict), (*self._spec_path, "resources")
        fields = ("limits", "requests")
        return [(field, key) for field in fields for key in _member(own, path, field, dict) if "/" in key]

    def _read_requests(self, annotation_requests: Mapping[str, AnnotationRequest]) -> None:
        """Give containers what annotations request for them.

        A container that does not exist is read as the first one: rules compare the names.
        """
        annotations, scheduler = self.annotations, self._spec["schedulerName"]
        for name, request in annotation_requests.items():
            if name in annotations and scheduler in request.schedulers and self.containers:
                target = annotations.get(request.container_from)
                named = (container for container in self.containers if container.name == target)
                container = next(named, self.containers[0])
                path = self.place("metadata", "annotations")
                container.request_by_annotation(name, annotations[name], request.shares_of, path)

    def place(self, *field: str | int) -> Path:
        """Return the path of a field of the pod in the object."""
        inline = self._is_spec and not (field[0] == "metadata" and self._has_metadata)
        return (*self.path, *(field[1:] if inline else field))

    @property
    def kind_of_object(self) -> str:
        """The `kind` of the object that contains the pod; empty if absent."""
        kind = self.recorder.get(("kind",))
        return kind if isinstance(kind, str) else ""

    @property
    def ephemeral_containers(self) -> tuple[Container, ...]:
        """The ephemeral (debugging) containers, which cannot have resources."""
        return self._read("ephemeralContainers", ContainerKind.EPHEMERAL)

    @property
    def spec(self) -> Mapping[str, Any]:
        """The pod's spec after the edits so far; a later edit may replace the object.

        A partial one tolerates all taints: a controller may add tolerations.
        """
        edited = self.recorder.edits
        spec: Mapping[str, Any] = (self.recorder.get(self._spec_path) or _NOTHING) if edited else self._spec
        return {**spec, "tolerations": _ALL_TAINTS} if self.partial else spec

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels after the edits so far."""
        return self._metadata("labels")

    @property
    def label_domains(self) -> frozenset[str]:
        """The domains of the names of the labels, which are read once for all containers."""
        if self._label_domains is None:
            self._label_domains = frozenset(name.partition("/")[0] for name in self.labels if "/" in name)
        return self._label_domains

    @property
    def annotations(self) -> Mapping[str, str]:
        """The pod's annotations after the edits so far."""
        return self._metadata("annotations")

    def _metadata(self, field: str) -> Mapping[str, str]:
        """Return the texts of a map in the metadata, which are read once for all containers and rules."""
        if (texts := self._texts.get(field)) is None:
            texts = self._texts[field] = _strings(self.get("metadata", field))
        return texts

    def once(self, name: str, read: Callable[[Pod], T]) -> T:
        """Return what a function reads of the pod, which is read once for all containers until the next edit.

        name: of what is read; each has one function, whose result does not refer to the pod.
        """
        edits = len(self.recorder.edits)
        known = self._once.get(name)
        if known is None or known[0] != edits:
            known = self._once[name] = (edits, read(self))
        value: T = known[1]
        return value

    def get(self, *field: str | int) -> Any:
        """Return a field of the pod after the edits so far, or None."""
        return self.recorder.get(self.place(*field))

    def set(self, *field: str | int, value: Any) -> None:
        """Set a field of the pod."""
        if field[0] == "metadata":
            self._texts.clear()
            self._label_domains = None
        self.recorder.set(self.place(*field), value)

    def entries(self, *field: str | int) -> list[Any]:
        """Return a list of the pod after the edits so far; empty if it is absent."""
        return self.recorder.items(self.place(*field))

    def append(self, *field: str | int, entry: Any) -> None:
        """Append an entry to a list of the pod."""
        self.recorder.append(self.place(*field), entry)


def _object(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ObjectError(path, dict, value)
    return value


def _name(entry: object) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _member(parent: Mapping[str, Any], path: Path, name: str, kind: type) -> Any:
    """Return a member that is an object or a list; empty if absent or null."""
    value = parent.get(name)
    if isinstance(value, kind):
        return value
    if value is not None:
        raise ObjectError((*path, name), kind, value)
    return _NOTHING if kind is dict else []


def _strings(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        return _NOTHING
    try:
        "".join(value.values())  # raises TypeError unless all are strings, as they nearly always are
    except TypeError:
        return {key: text for key, text in value.items() if isinstance(text, str)}
    return value


# Maximum bytes of arguments and variables with which the kernel starts a program: a quarter of its stack of
# 8 MiB, see execve(2). A few entries that double each other would exceed it by far.
LONGEST: Final = 2 * 2**20
# Characters of an expansion that take a step: they are copied, and searched for flags some dozen times.
CHARACTERS_PER_STEP: Final = 32
_REFERENCE = re.compile(r"\$(?:(\$)|\(([^)]*)\))")
_SHELL_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)")


class Environment(NamedTuple):
    """Environment variables of a container."""

    known: Mapping[str, str]  # values by name
    unknown: frozenset[str] = frozenset()  # names of variables without a known value, such as valueFrom


def environment(entries: Iterable[Any], budget: Budget | None = None) -> Environment:
    """Return the variables of the entries of `env`; the last entry of a name is used.

    A value is unknown if it refers to an unknown variable, or is too long to start a program. Malformed
    entries are skipped: the API server denies them. Raises OverBudgetError.
    """
    budget, room = budget or Budget(), LONGEST
    known: dict[str, str] = {}
    unknown: set[str] = set()
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
            continue
        value = entry.get("value")
        if value is None and not entry.get("valueFrom"):
            value = ""
        if isinstance(value, str) and "$" in value:
            budget.spend(value.count("$"))
            written, value = value, expand(value, known, budget, room) if _resolves(value, known) else None
            room -= 0 if value is None or value is written else len(value)
        if isinstance(value, str):
            known[name] = value
            unknown.discard(name)
        else:
            known.pop(name, None)
            unknown.add(name)
    return Environment(known, frozenset(unknown))


class Literals:
    """The variables of a container whose values are plain texts without `$`, by name.

    entries: the entry of `env` that counts for each name.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> str | None:
        """Return the value of one variable; other values are not read."""
        entry = self._entries.get(name)
        return None if entry is None else _literal(entry)

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield name and value of each variable."""
        for name, entry in self._entries.items():
            if (value := _literal(entry)) is not None:
                yield name, value


def _literal(entry: Mapping[str, Any]) -> str | None:
    value = entry.get("value") or ""
    return value if isinstance(value, str) and "$" not in value and not entry.get("valueFrom") else None


def expand_all(texts: Iterable[str], known: Mapping[str, str], budget: Budget | None = None) -> list[str]:
    """Return arguments with their references expanded, up to the length with which a program can start.

    Raises OverBudgetError.
    """
    budget, room, expanded = budget or Budget(), LONGEST, []
    for text in texts:
        whole = expand(text, known, budget, room)
        expanded.append(text if whole is None else whole)
        room -= 0 if whole is text else len(expanded[-1])
    return expanded


def expand(
    text: str, known: Mapping[str, str], budget: Budget | None = None, room: int = LONGEST
) -> str | None:
    """Return a text with each `$(NAME)` expanded as by the kubelet; unknown names stay unchanged.

    None if it would have more than `room` characters. Raises OverBudgetError.
    """
    if "$" not in text:
        return text
    budget = budget or Budget()
    budget.spend(text.count("$"))
    growth = (len(known.get(match[2], "")) for match in _REFERENCE.finditer(text) if match[2])
    length = len(text) + sum(growth)
    if length > room:
        return None
    budget.spend(length // CHARACTERS_PER_STEP)
    return _REFERENCE.sub(lambda match: match[1] or known.get(match[2], match[0]), text)


def references(texts: Iterable[str]) -> set[str]:
    """Return the names of variables that texts refer to: `$(NAME)`, and a shell's `$NAME` or `${NAME…}`."""
    names: set[str] = set()
    for text in texts:
        if "$" in text:
            names.update(match[2] for match in _REFERENCE.finditer(text) if match[2])
            names.update(_SHELL_REFERENCE.findall(text))
    return names


def _resolves(text: str, known: Mapping[str, str]) -> bool:
    """Return whether all variables that a text refers to are known."""
    return all(match[1] or match[2] in known for match in _REFERENCE.finditer(text))
