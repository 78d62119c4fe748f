"""Injection rules: what is put into containers that match, and into their pods.

What the user has set is never overwritten, unless the rule says `override`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from rules.decision import messages as message
from rules.decision.resource_stage import told
from rules.kube.image_reference import parse_image
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.match import MatchPart
from rules.model.rule import PLACEHOLDER, EnvFromResource, InjectionAction, InjectionRule
from rules.nodes.node_affinity import conjoin
from rules.text.i18n import Language

if TYPE_CHECKING:
    from rules.kube.pod import Container, Pod
    from rules.model.match import Match, Unmet

# What the API server fills in before any webhook sees the pod; the user has not set it.
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_AFFINITY: Final = ("spec", "affinity", "nodeAffinity")
_REQUIRED: Final = (*_AFFINITY, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_PREFERRED: Final = (*_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution")
_MEBI: Final = 1024**2
_GIBI: Final = 1024**3

# An edit that a rule would make: what it puts in, and the call that does it.
Edit = tuple[str, Callable[[], None]]


def unmet(match: Match, container: Container, pod: Pod, namespace: str) -> Unmet | None:
    """Return what keeps a rule whose resources a container asks for from applying to it, or None.

    Raises ExpressionError where a condition cannot be evaluated.
    """
    if match.include or match.exclude or match.selector:
        piece = match.unmet_by_pod(namespace, pod.labels if match.selector else {})
        if piece is not None:
            return piece
    if match.images and not match.image(spellings(container.image)):
        return MatchPart.IMAGES
    if not match.conditions:
        return None

    def value_of(variable: str) -> Any:
        if variable != "pod":
            return told(variable, container)
        labels, annotations = tuple(pod.labels.items()), tuple(pod.annotations.items())
        return ("labels", labels), ("annotations", annotations), ("namespace", namespace)

    return match.unmet_condition(value_of)


def spellings(image: str) -> tuple[str, ...]:
    """Return an image reference as written and in full: `paddle` is docker.io/library/paddle too."""
    parsed = parse_image(image)
    return (image, *parsed.spellings) if parsed else (image,)


def inject(rule: InjectionRule, pod: Pod, containers: Sequence[Container]) -> list[str]:
    """Put in what the rule says for the containers that it applies to; return what was put in.

    A dryrun rule puts in nothing and returns what it would.
    """
    edits = [edit for container in containers for edit in _container_edits(rule, container)]
    return _made(rule, [*edits, *_pod_edits(rule, pod)])


def inject_environment(rule: InjectionRule, container: Container, resources: Container) -> list[str]:
    """Put in only the variables, computed from another container's resources; for ephemeral containers."""
    return _made(rule, list(_environment(rule, container, resources)))


def _made(rule: InjectionRule, edits: Sequence[Edit]) -> list[str]:
    """Make the edits, unless the rule is for a dry run; return what they put in."""
    if rule.action is InjectionAction.INJECT:
        for _, apply in edits:
            apply()
    return [what for what, _ in edits]


def hidden_sources(
    rule: InjectionRule, container: Container, done: Collection[str], language: Language
) -> list[str]:
    """Return warnings for variables put in where `envFrom` may hold the same name, unseen.

    done: what `inject` returned.
    """
    warnings: list[str] = []
    sources = [source for source in container.env_from if isinstance(source, dict)] if rule.inject.env else []
    if not sources:
        return []
    for name in [name for name, _ in rule.inject.env if _variable(container, name) in done]:
        for source in sources:
            if name.startswith(str(source.get("prefix") or "")):
                reference = ", ".join(
                    f"{kind.removesuffix('Ref')} {body.get('name')}"
                    for kind, body in source.items()
                    if isinstance(body, dict)
                )
                facts = {"container": container.name, "rule": rule.name, "name": name, "source": reference}
                warnings.append(message.sentence(language, message.ENV_FROM, facts))
    return warnings


def environment_value(source: EnvFromResource, quantity: int | Decimal) -> str:
    """Return a variable's value for a quantity of the resource; sizes are rounded down."""
    size = int(quantity * source.unit)
    facts = {
        "value": format(quantity, "f").rstrip("0").rstrip(".") if isinstance(quantity, Decimal) else quantity
    }
    facts |= {"bytes": size, "MiB": size // _MEBI, "GiB": size // _GIBI}
    return PLACEHOLDER.sub(lambda match: str(facts[match[1]]), source.template)


def _container_edits(rule: InjectionRule, container: Container) -> Iterator[Edit]:
    yield from _environment(rule, container, container)
    if not rule.inject.volume_mounts:
        return
    mounted = [mount.get("mountPath") for mount in container.volume_mounts if isinstance(mount, dict)]
    for mount in rule.inject.volume_mounts:
        if mount["mountPath"] not in mounted:
            what = f"{container.name}: volumeMount {mount['mountPath']}"
            yield what, partial(container.append, "volumeMounts", deepcopy(dict(mount)))


def _environment(rule: InjectionRule, container: Container, resources: Container) -> Iterator[Edit]:
    if not rule.inject.env:
        return
    standing = container.variables
    for name, source in rule.inject.env:
        stands = name in standing
        if stands and not rule.override:
            continue
        entry = _entry(name, source, resources)
        if entry is None:
            continue
        if not stands:
            yield _variable(container, name), partial(container.append, "env", entry)
            continue
        last = len(standing) - 1 - standing[::-1].index(name)  # the one that counts, as in Kubernetes
        if not _stands(container.env[last], entry):
            yield _variable(container, name), partial(container.replace_env, last, entry)


def _stands(stored: Mapping[str, Any], entry: Mapping[str, Any]) -> bool:
    """Tell whether a stored variable is the entry, with what the API server drops of it or fills in."""
    if source := entry.get("valueFrom"):
        return not stored.get("value") and _holds(stored.get("valueFrom"), source)
    return not stored.get("valueFrom") and (stored.get("value") or "") == (entry.get("value") or "")


def _holds(stored: object, wanted: object) -> bool:
    """Tell whether all that is wanted is stored, whatever else is."""
    if not isinstance(wanted, Mapping):
        return stored == wanted
    return isinstance(stored, Mapping) and all(_holds(stored.get(key), wanted[key]) for key in wanted)


def _variable(container: Container, name: str) -> str:
    return f"{container.name}: env {name}"


def _entry(
    name: str, source: EnvFromResource | Mapping[str, Any], container: Container
) -> dict[str, Any] | None:
    if not isinstance(source, EnvFromResource):
        return deepcopy(dict(source))
    quantity = container.request(source.resource)
    try:
        number = parse_quantity(quantity)
    except QuantityError:  # absent, or what a resource rule refuses
        return None
    return {"name": name, "value": environment_value(source, number)}


def _pod_edits(rule: InjectionRule, pod: Pod) -> Iterator[Edit]:
    inject = rule.inject
    if inject.volumes:
        names = [volume.get("name") for volume in pod.entries("spec", "volumes") if isinstance(volume, dict)]
        for volume in inject.volumes:
            if volume["name"] not in names:
                what = f"volume {volume['name']}"
                yield what, partial(pod.append, "spec", "volumes", entry=deepcopy(volume))
    if inject.tolerations:
        standing = pod.entries("spec", "tolerations")
        for toleration in inject.tolerations:
            if not any(_covers(other, toleration) for other in standing):
                what = f"toleration {toleration.get('key', '*')}"
                yield what, partial(pod.append, "spec", "tolerations", entry=deepcopy(toleration))
    yield from _affinity(rule, pod)
    yield from _fields(rule, pod)


def _fields(rule: InjectionRule, pod: Pod) -> Iterator[Edit]:
    inject = rule.inject
    if not (
        inject.runtime_class or inject.scheduler or inject.host_ipc or inject.labels or inject.annotations
    ):
        return
    for field, value, unset in (
        ("runtimeClassName", inject.runtime_class, (None, "")),
        ("schedulerName", inject.scheduler, (None, "", _DEFAULT_SCHEDULER)),
        ("hostIPC", inject.host_ipc, (None,)),
    ):
        standing = pod.get("spec", field)
        if value and standing != value and (rule.override or standing in unset):
            yield f"{field} {value}", partial(pod.set, "spec", field, value=value)
    for kind, entries in (("labels", inject.labels), ("annotations", inject.annotations)):
        for key, value in entries.items():
            standing = pod.get("metadata", kind, key)
            if standing is None or (rule.override and standing != value):
                yield f"{kind.removesuffix('s')} {key}", partial(pod.set, "metadata", kind, key, value=value)


def _affinity(rule: InjectionRule, pod: Pod) -> Iterator[Edit]:
    if rule.inject.required_terms:
        terms = pod.get(*_REQUIRED)
        joined = conjoin(terms, rule.inject.required_terms)
        if joined != terms:
            yield "required node affinity", partial(pod.set, *_REQUIRED, value=joined)
    if rule.inject.preferred_terms:
        standing = pod.entries(*_PREFERRED)
        for term in rule.inject.preferred_terms:
            if term not in standing:
                yield "preferred node affinity", partial(pod.append, *_PREFERRED, entry=deepcopy(term))


def _covers(standing: object, wanted: Mapping[str, Any]) -> bool:
    """Tell whether a toleration tolerates all that another does.

    Source: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    """
    if not isinstance(standing, dict) or standing.get("effect", "") not in ("", wanted.get("effect", "")):
        return False
    if standing.get("effect") != "NoSchedule" and "tolerationSeconds" in standing:
        return standing == wanted
    if standing.get("operator") == "Exists":
        return standing.get("key", "") in ("", wanted.get("key", ""))
    return all(standing.get(field, "") == wanted.get(field, "") for field in ("key", "value")) and (
        standing.get("operator", "Equal") == wanted.get("operator", "Equal")
    )
