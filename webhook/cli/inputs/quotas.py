"""ResourceQuotas of a cluster or files: for which pods they leave no room."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from rules import Language, Workloads
from rules.kube.resource_quota import (
    Amount,
    LimitDefaults,
    PodUsage,
    ResourceQuota,
    limit_defaults,
    quantity_text,
    usage_of,
    with_defaults,
)
from rules.model.decision import AdmissionRequest
from rules.text.i18n import Message
from rules.text.paths import Path
from webhook.cli.inputs.cluster_source import ClusterSource
from webhook.cli.terminal.console import BadInputError, counted, print_warning

# API groups whose objects run the pods of all their templates at the same time, each `replicas` or, of a Job,
# `parallelism` times. Of other kinds, such as workflows, one pod at a time is checked.
_AT_ONCE: Final = ("apps", "batch", "batch.volcano.sh", "jobset.x-k8s.io", "kubeflow.org", "ray.io")
_COPIES: Final = ("replicas", "parallelism")

_POD: Final = Message(
    "ResourceQuota {quota!r}: namespace {namespace} has {left} of {hard} {resource} left, this pod needs "
    "{needed}; the API server will reject it: request less, delete other pods, or raise the quota"
)
_WORKLOAD: Final = Message(
    "ResourceQuota {quota!r}: namespace {namespace} has {left} of {hard} {resource} left, room for {fit} of "
    "{pods} that need {needed}; the API server will reject the others unless they run already: request less, "
    "delete other pods, or raise the quota"
)
_ONLY_POD: Final = Message(
    "ResourceQuota {quota!r}: namespace {namespace} has {left} of {hard} {resource} left, one pod needs "
    "{needed}; the API server will reject it unless it runs already: request less, delete other pods, or "
    "raise the quota"
)
_UNSET: Final = Message(
    "ResourceQuota {quota!r} of namespace {namespace} requires {resource} in each container, which "
    "{containers} lacks; the API server will reject such a pod: set it, or a default in a LimitRange"
)
_UNSURE: Final = Message(" (not checked: whether the quota counts this pod, by its scope {scopes})")
_USED_UP: Final = Message(
    "ResourceQuota {quota!r}: namespace {namespace} uses {used} of {hard} {resource}; the API server will "
    "reject further pods"
)
_DEFAULTS: Final = Message(
    "a LimitRange of namespace {namespace} sets a default of {resources}, which containers lack"
)
_NOT_READ: Final = Message("quota not checked: {why}")


class QuotaFinding(NamedTuple):
    """A quota that leaves no room, or requires a resource that a container does not set."""

    quota: str
    namespace: str
    resources: tuple[str, ...]
    message: str


class _Limits(NamedTuple):
    """The quotas of a namespace by name, and the defaults of its LimitRanges by name."""

    quotas: dict[str, ResourceQuota]
    defaults: dict[str, LimitDefaults]


class _Demand(NamedTuple):
    """Pods of one template."""

    spec: Mapping[str, Any]
    usage: PodUsage
    copies: int


class Quotas:
    """The ResourceQuotas and LimitRanges of namespaces. A namespace of a cluster is read when needed."""

    def __init__(self, source: ClusterSource, language: Language) -> None:
        self._source = source
        self._language = language
        self._written: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        self._read: dict[str, _Limits] = {}

    def add(self, documents: Iterable[Any], namespace: str) -> None:
        """Add the quotas and LimitRanges among objects; they replace those of the cluster with the same name.

        namespace: of objects that do not set one.
        """
        for document in documents:
            if isinstance(document, dict) and document.get("kind") in ("ResourceQuota", "LimitRange"):
                metadata = document.get("metadata")
                where = metadata.get("namespace") if isinstance(metadata, dict) else None
                self._written[str(where or namespace)].append(document)

    def findings(
        self, workloads: Workloads, group: str, kind: str, namespace: str, document: Mapping[str, Any]
    ) -> tuple[QuotaFinding, ...]:
        """Return the quotas that leave no room for the pods of an object.

        document: as it would be admitted. Raises ObjectError for a malformed one.
        """
        if (group, kind) in workloads.templates or not (self._written or self._source.selected):
            return ()
        limits = self._limits_of(namespace)
        specs = {
            path: raw.get("spec", raw) for path, raw in workloads.templates_of(group, kind, document).items()
        }
        demands = [
            _Demand(spec, usage_of(spec, limits.defaults.values()), _copies(document, path, group))
            for path, spec in specs.items()
        ]
        message = _POD if kind == "Pod" else _WORKLOAD
        batches = [demands] if group in _AT_ONCE else [[demand] for demand in demands]
        findings = (
            finding
            for quota in limits.quotas.values()
            for batch in batches
            for finding in self._findings(quota, batch, message)
        )
        return tuple(dict.fromkeys(findings))

    def with_defaults(self, request: AdmissionRequest) -> tuple[AdmissionRequest, str]:
        """Return a request as webhooks see it, and a note on the extended resources that a LimitRange adds.

        The API server sets the defaults of LimitRanges on pods before it calls webhooks. Other requests are
        returned unchanged, with an empty note.
        """
        is_pod = (request.group, request.kind, request.operation) == ("", "Pod", "CREATE")
        if not (is_pod and request.object and (self._written or self._source.selected)):
            return request, ""
        document, added = with_defaults(request.object, self._limits_of(request.namespace).defaults.values())
        if not added:
            return replace(request, object=document), ""
        text = _DEFAULTS.in_language(self._language)
        note = text.format(namespace=request.namespace, resources=", ".join(added))
        return replace(request, object=document), note

    def used_up(self, pods: Iterable[tuple[str, Mapping[str, Any]]]) -> list[QuotaFinding]:
        """Return the quotas that are used up for a resource of GPU pods. pods: namespace and spec of each."""
        used: defaultdict[str, set[str]] = defaultdict(set)
        for namespace, spec in pods:
            if not self._limits_of(namespace).quotas:
                continue
            amounts = usage_of(spec).amounts
            if any("/" in resource for resource in amounts if resource.startswith("requests.")):
                used[namespace] |= amounts.keys()
        findings = []
        for namespace, resources in sorted(used.items()):
            for quota in self._limits_of(namespace).quotas.values():
                for resource in sorted(resources & quota.hard.keys()):
                    if not quota.left(resource):
                        facts = {"used": quantity_text(quota.used.get(resource, 0))}
                        findings.append(self._finding(_USED_UP, quota, (resource,), facts))
        return findings

    def _findings(
        self, quota: ResourceQuota, demands: Iterable[_Demand], message: Message
    ) -> Iterator[QuotaFinding]:
        affected = [
            (demand, counts) for demand in demands if (counts := quota.counts(demand.spec)) is not False
        ]
        sure = all(counts for _, counts in affected)
        unset = [
            (name, containers)
            for name in quota.hard
            for demand, _ in affected
            if (containers := demand.usage.unset.get(name))
        ]
        if unset:
            names = dict.fromkeys(name for _, containers in unset for name in containers)
            facts: dict[str, Any] = {"containers": ", ".join(f"container {name!r}" for name in names)}
            resources = tuple(dict.fromkeys(resource for resource, _ in unset))
            yield self._finding(_UNSET, quota, resources, facts, sure=sure)
        for resource in quota.hard:
            needs = [(demand.usage.amounts.get(resource, 0), demand.copies) for demand, _ in affected]
            needed, left = sum(amount * copies for amount, copies in needs), quota.left(resource)
            if needed > left:
                copies = sum(copies for _, copies in needs)
                facts = {
                    "left": quantity_text(left),
                    "needed": quantity_text(needed),
                    "pods": counted(copies, "pod"),
                    "fit": str(_pods_that_fit(needs, left)),
                }
                words = _ONLY_POD if copies == 1 and message is _WORKLOAD else message
                yield self._finding(words, quota, (resource,), facts, sure=sure)

    def _finding(
        self,
        message: Message,
        quota: ResourceQuota,
        resources: tuple[str, ...],
        facts: Mapping[str, Any],
        *,
        sure: bool = True,
    ) -> QuotaFinding:
        more = {
            "quota": quota.name,
            "namespace": quota.namespace,
            "resource": ", ".join(resources),
            "hard": quantity_text(quota.hard[resources[0]]),
            "scopes": ", ".join(scope.name for scope in quota.scopes),
        }
        parts = [message] if sure else [message, _UNSURE]
        text = "".join(part.having(**more, **facts).in_language(self._language) for part in parts)
        return QuotaFinding(quota.name, quota.namespace, resources, text)

    def _limits_of(self, namespace: str) -> _Limits:
        if namespace not in self._read:
            documents = [*self._in_cluster(namespace), *self._written[namespace]]
            quotas = [
                ResourceQuota.of(document, namespace)
                for document in documents
                if document.get("kind") == "ResourceQuota"
            ]
            ranges = [document for document in documents if document.get("kind") == "LimitRange"]
            self._read[namespace] = _Limits(
                {quota.name: quota for quota in quotas},
                {
                    str(limit_range.get("metadata", {}).get("name")): limit_defaults(limit_range)
                    for limit_range in ranges
                },
            )
        return self._read[namespace]

    def _in_cluster(self, namespace: str) -> list[dict[str, Any]]:
        if not self._source.selected:
            return []
        try:
            return self._source.query(lambda cluster: cluster.limits(namespace))
        except BadInputError as error:
            print_warning(_NOT_READ.having(why=error.text), self._language)
            return []


def _copies(document: Mapping[str, Any], path: Path, group: str) -> int:
    """Return how many pods of the template at a path run at once; 1 if the object does not set it."""
    copies, node = 1, document
    for step in path[:-1] if group in _AT_ONCE else ():
        node = node[step]  # type: ignore[index]  # a path in the object: names and indices
        for name in _COPIES if isinstance(node, dict) else ():
            number = node.get(name)
            copies *= number if isinstance(number, int) and number >= 0 else 1
    return copies


def _pods_that_fit(needs: Iterable[tuple[Amount, int]], left: Amount) -> int:
    """Return how many pods fit into what is left, in order. needs: amount of a pod, number of such pods."""
    fit = 0
    for amount, copies in needs:
        most = min(copies, int(left // amount)) if amount else copies
        fit += most
        left -= most * amount
    return fit
