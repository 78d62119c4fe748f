"""Which requests are in scope, and what a decision does not check, and why.

That nothing is wrong is known only of what is checked.
Nothing here guesses: a path that looks like that of a pod is a suggestion for the configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from rules.cuda.requirements import ANNOTATIONS
from rules.decision.policy import Policy
from rules.kube.json_patch import ObjectError
from rules.kube.pod import Pod
from rules.model.decision import AdmissionRequest, NotChecked
from rules.model.workload_kinds import EVERY, Workloads, places
from rules.text.glob import Comparisons
from rules.text.i18n import Message
from rules.text.paths import Path, field_path
from rules.text.printable import printable

# Findings of one object, and the objects and lists in it that are looked at: some milliseconds.
MOST: Final = 16
MOST_READ: Final = 10_000
# Characters of a name or value of the user in a reason.
_LONGEST: Final = 80
PREFIX: Final = "gpugate.dev/"
INJECTED: Final = "injected"  # written by gpugate itself
FRAMEWORK: Final = "framework"  # of the pod's programs, for conditions of rules
_READ: Final = tuple(name.removeprefix(PREFIX) for name in ANNOTATIONS)
_CORE: Final = '""'  # the core API group in YAML
_QUANTITIES: Final = ("limits", "requests")

_NO_RULE: Final = Message("no enabled rule for resource {name}")
_NO_RULE_MEANT: Final = Message("no enabled rule for resource {name} – did you mean {meant!r}?")
_UNKNOWN_ANNOTATION: Final = Message("unknown annotation {name}; known annotations: {known}")
_MISSPELT: Final = Message("unknown annotation {name} – did you mean {meant}?")
_NO_CONTAINER: Final = Message(
    "annotation {name} is for container {container!r}, which the pod does not have"
)
_LATER: Final = Message(
    "the quantity contains {mark}, which is replaced later; the pods are checked when they are created"
)
_NO_CONTAINERS: Final = Message(
    "{kind} has no containers of its own here; what is created from it is checked"
)
_OTHER_GROUP: Final = Message("apiVersion {version} has no known kind {kind} – did you mean {meant}?")
_UNKNOWN_KIND: Final = Message(
    "unknown kind {kind} of API group {group!r}, but it contains a pod; to check it, write in the file of "
    "--workloads: {line}"
)
_UNKNOWN_LISTS: Final = Message(
    "unknown kind {kind} of API group {group!r}, but it contains a pod in a list of a list, which no path of "
    "--workloads describes; the pods that are created from it are checked"
)
_UNKNOWN_SHAPE: Final = Message(
    "unknown kind {kind} of API group {group!r}, but it requests {name}, in a shape that no path of "
    "--workloads describes; the pods that are created from it are checked"
)


def of_pod(policy: Policy, pod: Pod, comparisons: Comparisons) -> Iterator[NotChecked]:
    """Yield the resources of a pod that no rule matches, and its annotations that nothing reads.

    comparisons: those of the object, which bound the search for what a misspelt name is meant to be.
    """
    for container in pod.users:
        for name, meant in policy.not_checked(container.names, comparisons):
            field = "limits" if name in container.limits else "requests"
            text = _NO_RULE_MEANT if meant else _NO_RULE
            reason = _filled(text, name=_short(name), meant=meant)
            yield NotChecked(field_path(container.resource_path(field, name)), reason)
    ours = [name for name in pod.annotations if name.startswith(PREFIX)]
    containers = {container.name for container in pod.containers} if ours else set()
    for name in ours:
        if wrong := _of_annotation(name, containers, comparisons):
            yield NotChecked(field_path(pod.place("metadata", "annotations", name)), wrong)


def _of_annotation(name: str, containers: Collection[str], comparisons: Comparisons) -> Message | None:
    """Return what is wrong with an annotation. containers: the names of those of the pod."""
    known, dot, container = name.removeprefix(PREFIX).partition(".")
    shown = _short(name)
    if known == INJECTED or name == PREFIX + FRAMEWORK:
        return None
    if known in _READ:
        if dot and container not in containers:
            return _filled(_NO_CONTAINER, name=shown, container=_short(container))
        return None
    near = get_close_matches(known[:_LONGEST], _READ, 1, 0.6) if comparisons.admits(known) else []
    if near:
        return _filled(_MISSPELT, name=shown, meant=f"{PREFIX}{near[0]}{dot}{container}"[:_LONGEST])
    return _filled(_UNKNOWN_ANNOTATION, name=shown, known=", ".join(ANNOTATIONS))


def of_object(workloads: Workloads, request: AdmissionRequest) -> tuple[NotChecked, ...]:
    """Return what is not checked of an object because of its kind; nothing for most kinds, at once."""
    of, document = (request.group, request.kind), request.object or {}
    if of in workloads.complete:
        return ()
    if not workloads.holds_pods(*of):
        return tuple(_of_unknown(workloads, *of, document))
    unchecked = [
        NotChecked(field_path(path), reason)
        for steps, reason in workloads.unchecked.get(of, {}).items()
        for path in places(document, steps)[:MOST]
    ]
    if mark := workloads.placeholders.get(of):
        unchecked += _later(document, mark)
    if not unchecked and not _has_containers(workloads, request, document):
        unchecked = [NotChecked("", _filled(_NO_CONTAINERS, kind=request.kind))]
    return tuple(unchecked[:MOST])


def _has_containers(workloads: Workloads, request: AdmissionRequest, document: Mapping[str, Any]) -> bool:
    try:
        pods = workloads.pods_of(request.group, request.kind, document)
        return any(Pod(document, raw, path, others).containers for path, (raw, others) in pods.items())
    except ObjectError:
        return True  # the decision reports it


def _later(document: Mapping[str, Any], mark: str) -> Iterator[NotChecked]:
    for path, quantities in _quantities(document):
        for name, value in quantities.items():
            if "/" in name and mark in str(value):
                yield NotChecked(field_path((*path, name)), _filled(_LATER, mark=mark))


def _of_unknown(
    workloads: Workloads, group: str, kind: str, document: Mapping[str, Any]
) -> Iterator[NotChecked]:
    spec_paths = [path for path, node in _walk(document) if _is_pod_spec(node)]
    if not spec_paths:
        for path, quantities in _quantities(document):
            if name := next((key for key in quantities if "/" in key), ""):
                reason = _filled(_UNKNOWN_SHAPE, kind=_short(kind), group=_short(group), name=_short(name))
                yield NotChecked(field_path(path), reason)
                return
        return
    version = document.get("apiVersion")
    if meant := _known_group(workloads, group, kind):
        reason = _filled(_OTHER_GROUP, version=_short(str(version)), kind=_short(kind), meant=meant)
    else:
        paths = list(dict.fromkeys(map(_configured, spec_paths)))[:MOST]
        line = f"{group or _CORE}: {{{kind}: [{', '.join(paths)}]}}"
        if any(path.count(EVERY) > 1 for path in paths):
            reason = _filled(_UNKNOWN_LISTS, kind=_short(kind), group=_short(group))
        else:
            reason = _filled(_UNKNOWN_KIND, kind=_short(kind), group=_short(group), line=line)
    yield NotChecked(field_path(spec_paths[0]), reason)


def _known_group(workloads: Workloads, group: str, kind: str) -> str:
    """Return the API group of Kubernetes, whose names have no dot, that has a kind which another lacks."""
    if "." in group:
        return ""
    known = [
        api_group
        for api_group, name in workloads.paths
        if name == kind and "." not in api_group and api_group != "extensions"
    ]
    return f"apiVersion {f'{known[0]}/' if known[0] else ''}v1" if known else ""


def _configured(path: Path) -> str:
    """Return a path of a pod spec as the configuration has it, to the template if there is one.

    Fields begin with a small letter; other members of objects are names of the user.
    """
    steps = [EVERY if isinstance(step, int) or not step[:1].islower() else step for step in path]
    if steps and steps[-1] == "spec":
        steps.pop()
    return ".".join(steps) or '""'


def _is_pod_spec(node: object) -> bool:
    containers = node.get("containers") if isinstance(node, dict) else None
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(
            isinstance(container, dict) and ("image" in container or "resources" in container)
            for container in containers
        )
    )


def _quantities(document: Mapping[str, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield all limits and requests in an object."""
    for path, node in _walk(document):
        if path and path[-1] in _QUANTITIES and isinstance(node, dict):
            yield path, node


def _walk(document: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the objects and lists in an object without its status, in order, MOST_READ at most."""
    waiting: list[tuple[Path, Any]] = []
    waiting += [((key,), document[key]) for key in document if key != "status"][::-1]
    read = 0
    while waiting and read < MOST_READ:
        read += 1
        path, node = waiting.pop()
        if isinstance(node, dict | list):
            yield path, node
            members = node.items() if isinstance(node, dict) else enumerate(node)
            waiting += [((*path, key), member) for key, member in members][::-1]


def _filled(text: Message, **facts: str) -> Message:
    return text.having(**{name: printable(value) for name, value in facts.items()})


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# The mirror of a static pod: https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror
_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

_NO_PODS: Final = Message("no known kind of pods or workloads")
_UNCHECKED_UPDATE: Final = Message("an update of a kind that rules do not check")
_DELETED: Final = Message("it is being deleted")
_MIRROR: Final = Message("it mirrors a static pod, which is running")
_OWNER_CHECKED: Final = Message("its owner was checked")


def out_of_scope(workloads: Workloads, request: AdmissionRequest) -> Message | None:
    """Return why a request is out of scope, in a few words, or None if it is in scope."""
    if request.object is None or not workloads.holds_pods(request.group, request.kind):
        return _NO_PODS
    is_pod = request.kind == "Pod" and not request.group
    metadata = request.object.get("metadata")
    if isinstance(metadata, dict) and (reason := _settled(workloads, metadata, is_pod)):
        return reason
    if is_pod and request.subresource == "ephemeralcontainers" and request.operation == "UPDATE":
        return None
    # The images of a pod may change, which is validated; there is nothing to patch.
    updates = not (is_pod and request.mutating)
    if request.subresource or request.operation not in (("CREATE", "UPDATE") if updates else ("CREATE",)):
        return _UNCHECKED_UPDATE
    return None


def _settled(workloads: Workloads, metadata: Mapping[str, Any], is_pod: bool) -> Message | None:
    """Return why an object is out of scope by its metadata, or None."""
    if metadata.get("deletionTimestamp"):
        return _DELETED
    annotations, owners = metadata.get("annotations"), metadata.get("ownerReferences")
    if is_pod:
        mirrors = isinstance(annotations, dict) and _MIRROR_ANNOTATION in annotations
        return _MIRROR if mirrors else None
    checked = isinstance(owners, list) and any(_is_checked(workloads, owner) for owner in owners)
    return _OWNER_CHECKED if checked else None


def _is_checked(workloads: Workloads, owner: object) -> bool:
    """Return whether an owner controls the object, and its templates are those of the object."""
    if not isinstance(owner, dict) or owner.get("controller") is not True:
        return False
    group = str(owner.get("apiVersion")).rpartition("/")[0]
    return (group, str(owner.get("kind"))) in workloads.complete
