"""ResourceQuotas: what a namespace has left, and what a pod uses of it.

Sources: https://kubernetes.io/docs/concepts/policy/resource-quotas/, and of Kubernetes 1.36
`pkg/quota/v1/evaluator/core/pods.go` (usage, scopes, what each container must set),
`k8s.io/component-helpers/resource` (resources of a pod), `plugin/pkg/admission/limitranger` (defaults).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from msgspec import Struct

from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.paths import object_at

Amount = int | Decimal
Amounts = Mapping[str, Amount]

_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_ALWAYS: Final = "Always"
_COMPUTE: Final = ("cpu", "memory")
# If a quota has one of these, each container must set it. Other resources of a quota may be left out.
_REQUIRED: Final = ("cpu", "memory", *(f"{side}{name}" for side in (_REQUESTS, _LIMITS) for name in _COMPUTE))
# Resources that a quota limits with and without `requests.`; extended ones only with it.
_BOTH_NAMES: Final = (*_COMPUTE, "ephemeral-storage", "hugepages-")
_LIMITED: Final = (*_COMPUTE, "ephemeral-storage")
_PODS: Final = ("pods", "count/pods")
_NATIVE_DOMAIN: Final = "kubernetes.io/"
_DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"


class LimitDefaults(NamedTuple):
    """The default quantities of containers in a LimitRange, by resource, as written."""

    limits: Mapping[str, Any]
    requests: Mapping[str, Any]


class PodUsage(NamedTuple):
    """What one pod uses of quotas."""

    amounts: Amounts
    unset: Mapping[str, tuple[str, ...]]  # by resource that a quota may require, the containers without it


class Scope(NamedTuple):
    """A condition on the pods that a quota counts; several must all hold."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class ResourceQuota(Struct, frozen=True):
    """A quota of a namespace."""

    namespace: str
    name: str
    hard: Amounts
    used: Amounts  # from the status; empty if the quota is not created yet
    scopes: tuple[Scope, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any], namespace: str) -> ResourceQuota:
        """Return the quota in an object as JSON; a malformed field limits nothing.

        namespace: the default if the object has none.
        """
        metadata, spec, status = (object_at(document, key) for key in ("metadata", "spec", "status"))
        terms = object_at(spec, "scopeSelector").get("matchExpressions")
        scopes = [Scope(name) for name in _list(spec.get("scopes")) if isinstance(name, str)]
        scopes += [
            Scope(
                str(term.get("scopeName")),
                str(term.get("operator")),
                tuple(map(str, _list(term.get("values")))),
            )
            for term in _objects(terms)
        ]
        return cls(
            str(metadata.get("namespace") or namespace),
            str(metadata.get("name")),
            _amounts(object_at(status, "hard") or object_at(spec, "hard")),
            _amounts(object_at(status, "used")),
            tuple(scopes),
        )

    def left(self, resource: str) -> Amount:
        """Return how much of a limited resource pods may still use; not below zero."""
        return max(self.hard[resource] - self.used.get(resource, 0), 0)

    def counts(self, spec: Mapping[str, Any]) -> bool | None:
        """Return whether the quota counts pods of a spec.

        None if that is unknown: its scope is not known here, or a default priority class may decide.
        """
        counted = [_in_scope(scope, spec) for scope in self.scopes]
        return False if False in counted else None if None in counted else True


def limit_defaults(document: Mapping[str, Any]) -> LimitDefaults:
    """Return the defaults of containers in a LimitRange as JSON."""
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for limit in _objects(object_at(document, "spec").get("limits")):
        if limit.get("type") == "Container":
            default = {**object_at(limit, "max"), **object_at(limit, "default")}
            limits |= default
            requests |= {**object_at(limit, "min"), **default, **object_at(limit, "defaultRequest")}
    return LimitDefaults(limits, requests)


def with_defaults(
    pod: Mapping[str, Any], defaults: Iterable[LimitDefaults]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return a Pod with the defaults of LimitRanges, and the extended resources that they added.

    The API server sets them before it calls webhooks. A written limit is also the request.
    Source: https://github.com/kubernetes/kubernetes/tree/master/plugin/pkg/admission/limitranger
    """
    given, spec = list(defaults), object_at(pod, "spec")
    added: dict[str, None] = {}
    lists: dict[str, list[Any]] = {}
    for field in ("containers", "initContainers"):
        if isinstance(entries := spec.get(field), list):
            lists[field] = [_with_defaults(container, given, added) for container in entries]
    document = {**pod, "spec": {**spec, **lists}} if given and lists else pod
    return document, tuple(name for name in added if "/" in name)


def _with_defaults(container: Any, defaults: Sequence[LimitDefaults], added: dict[str, None]) -> Any:
    """Return a container with defaults; adds the names of resources without a written quantity to `added`."""
    if not isinstance(container, dict):
        return container
    resources = object_at(container, "resources")
    limits, requests = dict(object_at(resources, "limits")), dict(_requested(resources))
    written = dict.fromkeys(requests)
    for limit_range in defaults:
        limits = {**limit_range.limits, **limits}
        requests = {**limit_range.requests, **requests}
    added |= {name: None for name in {**limits, **requests} if name not in written}
    if limits:
        resources = {**resources, "limits": limits}
    if requests:
        resources = {**resources, "requests": requests}
    return {**container, "resources": resources} if limits or requests else container


def usage_of(spec: Mapping[str, Any], defaults: Iterable[LimitDefaults] = ()) -> PodUsage:
    """Return a pod's usage of quotas.

    spec: its spec as JSON.
    defaults: of the namespace's LimitRanges.
    """
    given = list(defaults)
    requests = _of_pod(spec, lambda container: _requests(container, given))
    limits = _of_pod(spec, lambda container: _limits(container, given), limits=True)
    amounts: dict[str, Amount] = dict.fromkeys(_PODS, 1)
    amounts |= {name: amount for name, amount in requests.items() if name.startswith(_BOTH_NAMES)}
    amounts |= {f"{_REQUESTS}{name}": amount for name, amount in requests.items() if _is_counted(name)}
    amounts |= {f"{_LIMITS}{name}": amount for name, amount in limits.items() if name in _LIMITED}
    unset: dict[str, tuple[str, ...]] = {}
    if not object_at(spec, "resources"):  # resources of the whole pod suffice
        containers = [*_objects(spec.get("containers")), *_objects(spec.get("initContainers"))]
        for resource in _REQUIRED:
            name = resource.rpartition(".")[2]
            read = _limits if resource.startswith(_LIMITS) else _requests
            unset[resource] = tuple(
                str(container.get("name")) for container in containers if name not in read(container, given)
            )
    return PodUsage(amounts, unset)


def _is_counted(name: str) -> bool:
    extended = "/" in name and (_NATIVE_DOMAIN not in name or name.startswith(_DEVICE_CLASS))
    return extended or name.startswith(_BOTH_NAMES)


def _of_pod(
    spec: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Amounts], *, limits: bool = False
) -> Amounts:
    """Return the sum of the containers, or more if init containers need more; sidecars run with both."""
    total: Amounts = {}
    for container in _objects(spec.get("containers")):
        total = _sum(total, read(container))
    sidecars: Amounts = {}
    largest: Amounts = {}
    for container in _objects(spec.get("initContainers")):
        own = read(container)
        if container.get("restartPolicy") == _ALWAYS:
            total, sidecars = _sum(total, own), _sum(sidecars, own)
            own = {}
        largest = _maximum(largest, _sum(own, sidecars))
    total = _maximum(total, largest)
    whole = object_at(spec, "resources")
    total = {**total, **(_amounts(object_at(whole, "limits")) if limits else _amounts(_requested(whole)))}
    overhead = _amounts(object_at(spec, "overhead"))
    return _sum(total, {name: more for name, more in overhead.items() if not limits or total.get(name)})


def _requests(container: Mapping[str, Any], defaults: Sequence[LimitDefaults]) -> Amounts:
    written = _requested(object_at(container, "resources"))
    for limit_range in defaults:
        written = {**limit_range.requests, **written}
    return _amounts(written)


def _requested(resources: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the requests as the API server defaults them: a missing one is the limit."""
    return {**object_at(resources, "limits"), **object_at(resources, "requests")}


def _limits(container: Mapping[str, Any], defaults: Sequence[LimitDefaults]) -> Amounts:
    written = object_at(container, "resources", "limits")
    for limit_range in defaults:
        written = {**limit_range.limits, **written}
    return _amounts(written)


def _in_scope(scope: Scope, spec: Mapping[str, Any]) -> bool | None:
    if scope.name == "PriorityClass":
        return _has_priority_class(scope, spec.get("priorityClassName"))
    deadline = spec.get("activeDeadlineSeconds")
    terminating = isinstance(deadline, int) and deadline >= 0
    best_effort = _is_best_effort(spec)
    return {
        "Terminating": terminating,
        "NotTerminating": not terminating,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
        "CrossNamespacePodAffinity": _has_cross_namespace_affinity(object_at(spec, "affinity")),
    }.get(scope.name)


def _has_priority_class(scope: Scope, name: object) -> bool | None:
    if not name:  # a default class of the cluster may be set
        return None
    match scope.operator:
        case "Exists":
            return True
        case "DoesNotExist":
            return False
        case "In":
            return name in scope.values
        case "NotIn":
            return name not in scope.values
    return None


def _is_best_effort(spec: Mapping[str, Any]) -> bool:
    """Return whether no container has CPU or memory, by request or limit."""
    owners = [spec, *_objects(spec.get("containers")), *_objects(spec.get("initContainers"))]
    amounts_of_each = (_amounts(_requested(object_at(owner, "resources"))) for owner in owners)
    return not any(amounts.get(name) for amounts in amounts_of_each for name in _COMPUTE)


def _has_cross_namespace_affinity(affinity: Mapping[str, Any]) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = object_at(affinity, kind)
        terms = _objects(rules.get("requiredDuringSchedulingIgnoredDuringExecution"))
        weighted = _objects(rules.get("preferredDuringSchedulingIgnoredDuringExecution"))
        terms = [*terms, *(object_at(term, "podAffinityTerm") for term in weighted)]
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


def quantity_text(amount: Amount) -> str:
    """Return an amount as people write quantities: 500m, 8Gi, 3."""
    if isinstance(amount, Decimal):
        return f"{int(amount * 1000)}m" if amount * 1000 == int(amount * 1000) else f"{amount.normalize():f}"
    for power, suffix in ((4, "Ti"), (3, "Gi"), (2, "Mi")):
        if amount and amount % 1024**power == 0:
            return f"{amount // 1024**power}{suffix}"
    return str(amount)


def _sum(one: Amounts, other: Amounts) -> Amounts:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _maximum(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _amounts(written: Mapping[str, Any]) -> Amounts:
    """Return the valid quantities; the API server rejects an object with others."""
    amounts: dict[str, Amount] = {}
    for name, value in written.items():
        try:
            amounts[name] = parse_quantity(value)
        except QuantityError:
            continue
    return amounts


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]
