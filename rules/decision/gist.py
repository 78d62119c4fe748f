"""The gist of a pod: all that the rules read of it which its resources bring in.

A pod is decided by its gist, so that pods of one gist are decided once. Names, tokens and whatever no such
rule reads are left out; what remains has the pod's shape, as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rules.cuda.framework_flags import may_ask
from rules.cuda.nvidia_require import REQUIRE_PREFIX
from rules.cuda.requirements import ANNOTATIONS
from rules.kube.container_env import references
from rules.kube.pod import Pod
from rules.model.request import AdmissionRequest

if TYPE_CHECKING:
    from rules.decision.likeness import Likeness
    from rules.decision.policy import Policy
    from rules.decision.reads import Reads
    from rules.kube.pod import Container

# Containers with extended resources of a pod that has a gist, and bytes of one; most take some hundred.
_MOST: Final = 16
_LONGEST: Final = 4096
# Annotations of our own: what a pod says of its needs, and what was put in before.
_OWN: Final = "gpugate.dev/"

_CONTAINERS: Final = ("containers", "initContainers")
# Begins what stands for the name of a container.
MARK: Final = "⟪"
# Stands in a gist where names cannot be left out: that, and our annotations for a container of some name.
_CALLING: Final = (MARK.encode(), *[f'"{name}.'.encode() for name in ANNOTATIONS])

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class _UntoldError(ValueError):
    """What counts cannot be told in a gist: a value that may be a secret, or that others tell."""


def gist_of(policy: Policy, request: AdmissionRequest, pod: Pod, now: float) -> bytes | None:
    """Return the gist of a pod under a policy, or None where it has none, such as a long one.

    now: seconds since the epoch; what counts is which exemptions have expired.
    """
    users = pod.users
    if len(users) > _MOST:
        return None
    names = users[0].names
    if len(users) > 1:
        names = tuple(dict.fromkeys([name for user in users for name in user.names]))
    reads = policy.reads_of(names)
    if reads is None:
        return None
    expired = max([each for each in reads.expiries if each <= now], default=-math.inf)
    namespace = request.namespace if reads.namespace else ""
    about = request.group, request.kind, namespace, request.mutating, str(expired), reads.called
    try:
        gist = _encode((about, pod.path, _pod(reads, policy.likeness, pod)))
    except (LookupError, TypeError, ValueError, RecursionError):  # of no shape that Kubernetes takes
        return None
    # What JSON has no number for is written as null.
    return gist if len(gist) <= _LONGEST and b"null" not in gist else None


def without_names(gist: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a gist without names of containers, and the names by what stands for them in it.

    It is the gist itself, without any, where names count or cannot be told from what else is said.
    """
    about, path, raw = _decode(gist)
    spec = raw.get("spec", raw)
    users = [each for field in _CONTAINERS for each in spec.get(field, ()) if each]
    marks = {user["name"]: f"{MARK}{index}⟫" for index, user in enumerate(users)}
    letters = "".join(marks).replace("-", "")
    are_names = len(marks) == len(users) and letters.isascii() and letters.isalnum()
    if about[-1] or not are_names or any(each in gist for each in _CALLING):
        return gist, {}
    for user in users:
        user["name"] = marks[user["name"]]
    return _encode((about, path, raw)), {mark: name for name, mark in marks.items()}


def from_gist(gist: bytes) -> tuple[AdmissionRequest, Pod, float]:
    """Return the request for a pod that is its gist and nothing else, that pod, and a time."""
    (group, kind, namespace, mutating, expired, _), path, raw = _decode(gist)
    document = raw
    for step in reversed(path):
        document = {step: document} if isinstance(step, str) else [{}] * step + [document]
    request = AdmissionRequest("CREATE", group, kind, namespace, document, mutating=mutating)
    return request, Pod(document, raw, tuple(path)), float(expired)


def _pod(reads: Reads, like: Likeness, pod: Pod) -> dict[str, Any]:
    raw = pod.raw
    if "spec" not in raw:
        return _metadata(reads, like, raw) | _spec(reads, like, pod, raw)
    gist = {"spec": _spec(reads, like, pod, raw["spec"])}
    if "metadata" in raw:
        gist["metadata"] = _metadata(reads, like, raw["metadata"])
    return gist


def _metadata(reads: Reads, like: Likeness, raw: Mapping[str, Any]) -> dict[str, Any]:
    gist: dict[str, Any] = {}
    if "labels" in raw:
        labels = raw["labels"]
        gist["labels"] = (
            like.labels(reads, labels)
            if reads.label_terms and isinstance(labels, dict)
            else _members(labels, reads.labels)
        )
    if "annotations" in raw:
        annotations, wanted = raw["annotations"], reads.annotations
        if wanted is not None and isinstance(annotations, dict):
            wanted += tuple([key for key in annotations if key.startswith(_OWN)])
        gist["annotations"] = _members(annotations, wanted)
    return gist


def _spec(reads: Reads, like: Likeness, pod: Pod, raw: Mapping[str, Any]) -> dict[str, Any]:
    gist: dict[str, Any] = {}
    users = pod.users
    for container in pod.containers:
        told = _container(reads, like, container) if container in users else {}  # which keeps the place
        gist.setdefault(str(container.path[-2]), []).append(told)
    for field in reads.fields:
        if field in raw:
            gist[field] = _members(raw[field], ("nodeAffinity",)) if field == "affinity" else raw[field]
    if reads.volumes and "volumes" in raw:
        gist["volumes"] = _entries(raw["volumes"], "name", reads.volumes)
    return gist


def _container(reads: Reads, like: Likeness, container: Container) -> dict[str, Any]:
    raw, image = container.raw, container.image
    gist = {"name": container.name, "image": image, "resources": raw["resources"]}
    words: list[str] = []
    if reads.needs and ("args" in raw or "command" in raw):
        words = container.strings("command") + container.strings("args")
    asks = reads.asks or (words and may_ask(words))
    if "env" in raw:
        gist["env"] = env = _environment(reads, raw["env"], words)
        asks = asks or bool(env and len(env[-1]) > 1)  # has a value, which tells; those come last
    if asks:
        gist["args"] = words
    else:  # so that which server this is does not matter
        gist["image"] = like.image((reads.names, image))
    if reads.env_from and "envFrom" in raw:
        gist["envFrom"] = raw["envFrom"]
    if reads.mounts and "volumeMounts" in raw:
        gist["volumeMounts"] = _entries(raw["volumeMounts"], "mountPath", reads.mounts)
    return gist


def _environment(reads: Reads, entries: list[Any], words: list[str]) -> list[dict[str, Any]]:
    """Return the variables that count, with their values where those tell what the container needs."""
    names = [entry["name"] for entry in entries]
    standing = reads.variables.intersection(names)
    telling = references(words)
    if reads.needs and REQUIRE_PREFIX in "".join(names):
        telling.update([name for name in names if name.startswith(REQUIRE_PREFIX)])
    if not standing and not telling:
        return []
    if not reads.overridden.isdisjoint(standing):
        raise _UntoldError
    telling |= standing & reads.tellers
    gist = [{"name": name} for name in sorted(standing - telling)]
    return gist + [_variable(entry) for entry in entries if entry["name"] in telling]


def _variable(entry: Mapping[str, Any]) -> dict[str, Any]:
    name, value = entry["name"], entry.get("value")
    if value is None and entry.get("valueFrom"):
        return {"name": name, "valueFrom": True}
    if isinstance(value, str) and "$" in value:
        raise _UntoldError
    return {"name": name, "value": "" if value is None else value}


def _entries(value: Any, key: str, wanted: Collection[str]) -> Any:
    """Return the entries of a list that have one of these values, without all else in them."""
    if not isinstance(value, list):
        return value
    return [{key: entry[key]} for entry in value if isinstance(entry, dict) and entry.get(key) in wanted]


def _members(value: Any, wanted: Collection[str] | None) -> Any:
    """Return an object with these members alone; None for all."""
    if wanted is None or not isinstance(value, dict):
        return value
    return {key: value[key] for key in wanted if key in value}
