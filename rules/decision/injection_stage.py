"""Injection stage: adds what rules say to containers that match, and to their pods.

What the user has set is never overwritten, unless the rule says `override`.
The inputs of CEL expressions are read from the container and its pod here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Final

from rules.affinity.node_affinity import conjoin
from rules.cel.expression import Inputs, Packed, number
from rules.cel.syntax_errors import UnknownInputError
from rules.cel.variables import UNSET
from rules.decision import messages
from rules.decision.pod_inputs import memory_mounts, pod_gpus, required_node_labels
from rules.decision.recorder import Change
from rules.kube.image_reference import parse_image
from rules.kube.names import DEFAULT_SCHEDULER
from rules.kube.pod import Container, Literals, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.finding import Finding
from rules.model.match import MatchPart
from rules.model.rule import (
    PLACEHOLDER,
    POD_FIELDS,
    EnvFromResource,
    InjectionAction,
    InjectionRule,
    PodField,
    directory,
)
from rules.nodes.gpu_resources import gpu_count

if TYPE_CHECKING:
    from rules.kube.pod import Container, Pod
    from rules.model.match import Match, Unmet


_AFFINITY: Final = ("spec", "affinity", "nodeAffinity")
_REQUIRED: Final = (*_AFFINITY, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_PREFERRED: Final = (*_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution")
_CAPABILITIES: Final = ("securityContext", "capabilities")
_ALL: Final = "ALL"
# Sources of a container's variables that are named in a warning each; warnings are cut at 4 KiB in total.
_MOST_SOURCES: Final = 16
_MEBI: Final = 1024**2
_GIBI: Final = 1024**3

# What a rule sets, and the call that does it.
Edit = tuple[Change, Callable[[], None]]


def unmet(match: Match, inputs: ContainerInputs) -> Unmet | None:
    """Return what keeps a rule that matches a container's resources from applying to it, or None.

    Raises ExpressionError if a condition cannot be evaluated.
    """
    if match.include or match.exclude or match.selector:
        piece = match.unmet_by_pod(inputs.namespace, inputs.pod.labels if match.selector else {})
        if piece is not None:
            return piece
    if match.images and not match.image(spellings(inputs.container.image)):
        return MatchPart.IMAGES
    return match.unmet_condition(inputs) if match.conditions else None


def spellings(image: str) -> tuple[str, ...]:
    """Return an image reference as written and in full: `paddle` is docker.io/library/paddle too."""
    parsed = parse_image(image)
    return (image, *parsed.spellings) if parsed else (image,)


def inject(rule: InjectionRule, pod: Pod, containers: Sequence[Container]) -> list[Change]:
    """Inject what the rule says for the containers that it applies to; return what was injected.

    A dryrun rule injects nothing and returns what it would inject.
    """
    inject = rule.inject
    edits: list[Edit] = []
    for container in containers:
        if inject.env:
            edits += _environment(rule, container, container)
        if inject.volume_mounts:
            edits += _mount_edits(rule, container)
        if inject.capabilities:
            edits += _capabilities(rule, container)
    if inject.volumes:
        edits += _volumes(rule, pod, containers)
    if inject.tolerations:
        edits += _tolerations(rule, pod)
    if inject.required_terms or inject.preferred_terms:
        edits += _affinity(rule, pod)
    if inject.pod_fields or inject.labels or inject.annotations:
        edits += _fields(rule, pod)
    return _apply(rule, edits)


def inject_environment(rule: InjectionRule, container: Container, resources: Container) -> list[Change]:
    """Inject only the variables, computed from another container's resources; for ephemeral containers."""
    return _apply(rule, list(_environment(rule, container, resources)))


def _apply(rule: InjectionRule, edits: Sequence[Edit]) -> list[Change]:
    """Make the edits, unless the rule is a dry run; return what they set."""
    if rule.action is InjectionAction.INJECT:
        for _, apply in edits:
            apply()
    return [change for change, _ in edits]


def hidden_sources(rule: InjectionRule, container: Container, done: Collection[Change]) -> list[Finding]:
    """Return notices for injected variables that `envFrom` may hold under the same name, unseen.

    done: what `inject` returned.
    """
    notices: list[Finding] = []
    given = container.env_from if rule.inject.env else []
    if not given:
        return notices
    sources = [source for source in given[:_MOST_SOURCES] if isinstance(source, dict)]
    for name in [name for name, _ in rule.inject.env if _variable(container, name) in done]:
        for source in sources:
            if name.startswith(str(source.get("prefix") or "")):
                reference = ", ".join(
                    f"{kind.removesuffix('Ref')} {body.get('name')}"
                    for kind, body in source.items()
                    if isinstance(body, dict)
                )
                notices.append(messages.env_from(rule.name, container, name, reference))
    return notices


def environment_value(source: EnvFromResource, quantity: int | Decimal) -> str:
    """Return a variable's value for a quantity of the resource; sizes are rounded down."""
    size = int(quantity * source.unit)
    facts = {
        "value": format(quantity, "f").rstrip("0").rstrip(".") if isinstance(quantity, Decimal) else quantity
    }
    facts |= {"bytes": size, "MiB": size // _MEBI, "GiB": size // _GIBI}
    return PLACEHOLDER.sub(lambda match: str(facts[match[1]]), source.template)


def _mount_edits(rule: InjectionRule, container: Container) -> Iterator[Edit]:
    for mount in _absent_mounts(rule, container):
        change: Change = (container, f"volumeMount {mount['mountPath']}")
        yield change, partial(container.append, "volumeMounts", entry=deepcopy(dict(mount)))


def _capabilities(rule: InjectionRule, container: Container) -> Iterator[Edit]:
    """Yield the capabilities that a container lacks. One that it drops by name stays dropped.

    `drop: [ALL]` keeps what is added, and a privileged container has all.
    Source: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
    """
    if container.is_privileged:
        return
    added = container.entries(*_CAPABILITIES, "add")
    dropped = container.entries(*_CAPABILITIES, "drop")
    for name in rule.inject.capabilities:
        if name not in added and name not in dropped and _ALL not in added:
            change: Change = (container, f"capability {name}")
            yield change, partial(container.append, *_CAPABILITIES, "add", entry=name)


def _absent_mounts(rule: InjectionRule, container: Container) -> list[Mapping[str, Any]]:
    """Return the mounts of a rule at whose paths a container mounts nothing."""
    mounted = {directory(mount["mountPath"]) for mount in _mounts(container)}
    return [mount for mount in rule.inject.volume_mounts if directory(mount["mountPath"]) not in mounted]


def _mounts(container: Container) -> Iterator[Mapping[str, Any]]:
    for mount in container.volume_mounts:
        if isinstance(mount, dict) and isinstance(mount.get("mountPath"), str):
            yield mount


def _environment(rule: InjectionRule, container: Container, resources: Container) -> Iterator[Edit]:
    variables = container.variables
    for name, source in rule.inject.env:
        stored = variables.get(name)
        if stored is not None and not rule.override:
            continue
        entry = _entry(name, source, resources)
        if entry is None:
            continue
        if stored is None:
            yield _variable(container, name), partial(container.append, "env", entry=entry)
        elif not _is_stored(stored, entry):
            yield _variable(container, name), partial(container.replace_variable, entry)


def _is_stored(stored: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Return whether a stored variable is the entry, with what the API server drops of it or fills in."""
    if source := entry.get("valueFrom"):
        return not stored.get("value") and _contains(stored.get("valueFrom"), source)
    return not stored.get("valueFrom") and (stored.get("value") or "") == (entry.get("value") or "")


def _contains(stored: object, expected: object) -> bool:
    """Return whether everything that is expected is stored, together with anything else."""
    if not isinstance(expected, Mapping):
        return stored == expected
    return isinstance(stored, Mapping) and all(_contains(stored.get(key), expected[key]) for key in expected)


def _variable(container: Container, name: str) -> Change:
    return container, f"env {name}"


def _entry(
    name: str, source: EnvFromResource | Mapping[str, Any], container: Container
) -> dict[str, Any] | None:
    if not isinstance(source, EnvFromResource):
        return deepcopy(dict(source))
    quantity = container.request(source.resource)
    try:
        number = parse_quantity(quantity)
    except QuantityError:  # absent, or what a resource rule denies
        return None
    return {"name": name, "value": environment_value(source, number)}


def _volumes(rule: InjectionRule, pod: Pod, containers: Sequence[Container]) -> Iterator[Edit]:
    names = [volume.get("name") for volume in pod.entries("spec", "volumes") if isinstance(volume, dict)]
    unused = _unused_volumes(rule, containers)
    for volume in rule.inject.volumes:
        if volume["name"] not in names and volume["name"] not in unused:
            change: Change = (None, f"volume {volume['name']}")
            yield change, partial(pod.append, "spec", "volumes", entry=deepcopy(volume))


def _tolerations(rule: InjectionRule, pod: Pod) -> Iterator[Edit]:
    existing = pod.entries("spec", "tolerations")
    for toleration in rule.inject.tolerations:
        if not any(_covers(other, toleration) for other in existing):
            change: Change = (None, f"toleration {toleration.get('key', '*')}")
            yield change, partial(pod.append, "spec", "tolerations", entry=deepcopy(toleration))


def _unused_volumes(rule: InjectionRule, containers: Sequence[Container]) -> set[str]:
    """Return the volumes that the rule mounts, but in none of the containers."""
    unused: set[str] = {mount["name"] for mount in rule.inject.volume_mounts}
    for container in containers if unused else ():
        unused -= {mount["name"] for mount in _absent_mounts(rule, container)}
        unused -= {name for mount in _mounts(container) if isinstance(name := mount.get("name"), str)}
    return unused


def _fields(rule: InjectionRule, pod: Pod) -> Iterator[Edit]:
    inject = rule.inject
    for field in POD_FIELDS:
        value, existing = inject.pod_fields.get(field.name), pod.get("spec", field.name)
        if value and existing != value and (rule.override or existing in field.unset):
            yield (None, f"{field.name} {value}"), partial(_set_field, pod, field, value)
    for kind, entries in (("labels", inject.labels), ("annotations", inject.annotations)):
        for key, text in entries.items():
            existing = pod.get("metadata", kind, key)
            if existing is None or (rule.override and existing != text):
                change: Change = (None, f"{kind.removesuffix('s')} {key}")
                yield change, partial(pod.set, "metadata", kind, key, value=text)


def _set_field(pod: Pod, field: PodField, value: object) -> None:
    pod.set("spec", field.name, value=value)
    for name in field.calculated:
        if pod.get("spec", name) is not None:
            pod.set("spec", name, value=None)


def _affinity(rule: InjectionRule, pod: Pod) -> Iterator[Edit]:
    if rule.inject.required_terms:
        terms = pod.get(*_REQUIRED)
        joined = conjoin(terms, rule.inject.required_terms)
        if joined != terms:
            yield (None, "required node affinity"), partial(pod.set, *_REQUIRED, value=joined)
    if rule.inject.preferred_terms:
        existing = pod.entries(*_PREFERRED)
        for term in rule.inject.preferred_terms:
            if term not in existing:
                yield (
                    (None, "preferred node affinity"),
                    partial(pod.append, *_PREFERRED, entry=deepcopy(term)),
                )


def _covers(existing: object, added: Mapping[str, Any]) -> bool:
    """Return whether a toleration tolerates everything that another does.

    Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    if not isinstance(existing, dict) or existing.get("effect", "") not in ("", added.get("effect", "")):
        return False
    if existing.get("effect") != "NoSchedule" and "tolerationSeconds" in existing:
        return existing == added
    if existing.get("operator") == "Exists":
        return existing.get("key", "") in ("", added.get("key", ""))
    return all(existing.get(field, "") == added.get(field, "") for field in ("key", "value")) and (
        existing.get("operator", "Equal") == added.get("operator", "Equal")
    )


# What the ServiceAccount admission plugin sets if a pod names no service account.
DEFAULT_SERVICE_ACCOUNT: Final = "default"
# What the API server sets if a pod has no policy.
DEFAULT_RESTART_POLICY: Final = "Always"
_MILLICORES: Final = 1000


def _chosen_node(pod: Pod) -> str:
    """Return the node that a new pod names itself; empty for one that a scheduler has bound.

    The status of a pod that has been on its way to a node has conditions; that of a new one has none.
    """
    node, conditions = pod.get("spec", "nodeName"), pod.get("status", "conditions")
    return node if isinstance(node, str) and not conditions else ""


def _scheduler(pod: Pod) -> str:
    """Return the name of the pod's scheduler as the API server will have it."""
    name = pod.get("spec", "schedulerName")
    return name if isinstance(name, str) and name else DEFAULT_SCHEDULER


def _text(pod: Pod, field: str) -> str:
    value = pod.get("spec", field)
    return value if isinstance(value, str) else ""


def _texts(pod: Pod, field: str) -> dict[str, str]:
    value = pod.get("spec", field)
    texts = value.items() if isinstance(value, dict) else ()
    return {key: text for key, text in texts if isinstance(text, str)}


def _toleration_inputs(pod: Pod) -> list[dict[str, Any]]:
    """Return the pod's tolerations in full, with what the API server takes for an absent field."""
    return [
        {
            **{name: _of(entry, name, str, "") for name in ("key", "value", "effect")},
            "operator": _of(entry, "operator", str, "Equal") or "Equal",
            "tolerationSeconds": _of(entry, "tolerationSeconds", int, UNSET),
        }
        for entry in pod.entries("spec", "tolerations")
        if isinstance(entry, dict)
    ]


def _packed(read: Callable[[Pod], list[Any]]) -> Callable[[Pod], Packed]:
    """Return a function that packs the list that another reads of a pod, for all its containers."""
    return lambda pod: Packed.of(read(pod))


def _of(values: object, name: str, kind: type, default: Any) -> Any:
    """Return a member of a type; the default if there is none, as of what the API server refuses."""
    value = values.get(name) if isinstance(values, dict) else None
    return value if type(value) is kind else default


def _pod_security(pod: Pod) -> dict[str, Any]:
    context = pod.get("spec", "securityContext")
    ids = {name: _of(context, name, int, UNSET) for name in ("runAsUser", "runAsGroup", "fsGroup")}
    return {**ids, "runAsNonRoot": _of(context, "runAsNonRoot", bool, False)}


def _container_security(container: Container, pod: Pod) -> dict[str, Any]:
    """Return the security context in effect: users and groups of the pod unless the container has its own.

    Source: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/
    """
    own, of_pod = container.get("securityContext"), _pod_security(pod)
    capabilities = own.get("capabilities") if isinstance(own, dict) else None
    return {
        **{name: _of(own, name, int, of_pod[name]) for name in ("runAsUser", "runAsGroup")},
        "runAsNonRoot": _of(own, "runAsNonRoot", bool, of_pod["runAsNonRoot"]),
        "privileged": _of(own, "privileged", bool, False),
        "allowPrivilegeEscalation": _of(own, "allowPrivilegeEscalation", bool, True),
        "readOnlyRootFilesystem": _of(own, "readOnlyRootFilesystem", bool, False),
        "capabilities": {
            name: [
                capability for capability in _of(capabilities, name, list, []) if isinstance(capability, str)
            ]
            for name in ("add", "drop")
        },
    }


def _requested(container: Container, key: str, unit: int) -> int:
    """Return what a container requests, by default its limit, rounded up. unit: the parts of one."""
    try:
        return ceil(parse_quantity(container.request(key)) * unit)
    except QuantityError:  # absent
        return 0


class ContainerInputs(Inputs):
    """The inputs of expressions about a container.

    Each is read once, so the pod must not be edited in between. `value`, which only validations name, is that
    of the last `set_value`. framework: returns what a container runs, or an empty text. is_unknown: whether
    an expression named an input that is unknown here.
    """

    __slots__ = ("container", "framework", "is_unknown", "namespace", "pod")

    def __init__(
        self,
        container: Container,
        pod: Pod,
        namespace: str,
        framework: Callable[[Container, Pod], str] = lambda _container, _pod: "",
    ) -> None:
        self.container = container
        self.pod = pod
        self.namespace = namespace
        self.framework = framework
        self.is_unknown = False

    def __missing__(self, name: str) -> Any:
        value = self[name] = READ[name](self)
        return value

    def set_value(self, quantity: object) -> None:
        """Set the quantity that is validated. Equal ones that are not written alike stay different."""
        self["value"] = quantity if isinstance(quantity, str) else number(quantity)


def _namespace_labels(of: ContainerInputs) -> Mapping[str, str]:
    if (labels := of.pod.namespace_labels) is None:
        of.is_unknown = True
        raise UnknownInputError(messages.NAMESPACE_UNKNOWN.having(namespace=of.namespace))
    return labels


# How each input of `rules.cel.variables` is read from a container, its pod and its namespace.
READ: Final[Mapping[str, Callable[[ContainerInputs], Any]]] = {
    "limits": lambda of: of.container.limits,
    # as the API server will have them
    "requests": lambda of: {**of.container.limits, **of.container.requests},
    "container.name": lambda of: of.container.name,
    "container.image": lambda of: of.container.image,
    "container.command": lambda of: of.container.strings("command"),
    "container.args": lambda of: of.container.strings("args"),
    "container.env": lambda of: Literals(of.container.variables),
    "container.envNames": lambda of: list(of.container.variables),
    "container.cpu": lambda of: _requested(of.container, "cpu", _MILLICORES),
    "container.memory": lambda of: _requested(of.container, "memory", 1),
    "container.gpus": lambda of: gpu_count(of.container),
    "container.memoryMounts": lambda of: memory_mounts(of.container, of.pod),
    "container.securityContext": lambda of: _container_security(of.container, of.pod),
    "container.framework": lambda of: of.framework(of.container, of.pod),
    "pod.labels": lambda of: of.pod.labels,
    "pod.annotations": lambda of: of.pod.annotations,
    "pod.namespace": lambda of: of.namespace,
    "pod.namespaceLabels": _namespace_labels,
    "pod.nodeName": lambda of: _chosen_node(of.pod),
    "pod.nodeSelector": lambda of: _texts(of.pod, "nodeSelector"),
    "pod.requiredNodeLabels": lambda of: of.pod.once("requiredNodeLabels", _packed(required_node_labels)),
    "pod.tolerations": lambda of: of.pod.once("tolerations", _packed(_toleration_inputs)),
    "pod.priorityClassName": lambda of: _text(of.pod, "priorityClassName"),
    "pod.serviceAccountName": lambda of: _text(of.pod, "serviceAccountName") or DEFAULT_SERVICE_ACCOUNT,
    "pod.schedulerName": lambda of: _scheduler(of.pod),
    "pod.runtimeClassName": lambda of: _text(of.pod, "runtimeClassName"),
    "pod.hostNetwork": lambda of: of.pod.get("spec", "hostNetwork") is True,
    "pod.hostIPC": lambda of: of.pod.get("spec", "hostIPC") is True,
    "pod.restartPolicy": lambda of: _text(of.pod, "restartPolicy") or DEFAULT_RESTART_POLICY,
    "pod.activeDeadlineSeconds": lambda of: _of(of.pod.spec, "activeDeadlineSeconds", int, 0),
    "pod.gpus": lambda of: of.pod.once("gpus", pod_gpus),
    "pod.securityContext": lambda of: _pod_security(of.pod),
}
