"""What a change does to workloads: each is evaluated before and after it, by the decision of admission."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from rules import Action, AdmissionRequest, Language, ObjectError, Snapshot
from rules.compatibility.evaluate import FittingNodes
from rules.decision.messages import WarningLine
from rules.model.certainty import Certainty
from rules.model.decision import NO_NODES, UNKNOWN_CUDA, cause_of, with_fix
from rules.text.i18n import Message
from webhook.cli.audit.workloads import Workload, WorkloadObject
from webhook.cli.inputs.node_changes import Change
from webhook.cli.whatif.placement import Placement, place

_NODE_NAME: Final = "nodeName"
_NO_NODE: Final = Message("no node is left that the workload selects, tolerates and is compatible with")
_NODE_REMOVED: Final = Message("its node {node} is removed")
_UNDECLARED: Final = Message(
    "no known node is left; an autoscaler may add nodes that are not declared (describe them with a "
    "NodeProfile)"
)
_UNKNOWN_NODES: Final = Message(
    "no node is left that is known to be compatible; of {count}, labels do not report what the workload "
    "requires (see gpugate nodes)"
)


class Impact(StrEnum):
    """What a change does to a workload, in the order of a report."""

    BREAKS = "breaks"
    FREED = "freed"
    UNKNOWN = "unknown"
    FEWER_NODES = "fewer nodes"
    WARNS = "warns"
    MORE_NODES = "more nodes"
    UNCHANGED = "unchanged"


class WorkloadRequest(NamedTuple):
    """A workload. request: to create its object. pods: its pods that are bound to a node.

    from_pods: the object is not known, only pods that a controller has created from it.
    """

    namespace: str
    owner: str
    request: AdmissionRequest
    pods: tuple[Mapping[str, Any], ...] = ()
    from_pods: bool = False


class Reason(NamedTuple):
    """A line for people, and what workloads with the same fault share."""

    line: str
    cause: str


class Runs(NamedTuple):
    """Whether a workload runs in one state of the cluster; None: that is unknown.

    reasons: why it does not, or why that is unknown. warnings: of admission. nodes: names of those that it is
    compatible with; None: no rule selects nodes for it. certainty: how sure it is that it does not run, None
    if it runs. candidates: all that it selects and tolerates.
    pools: those whose new nodes are compatible. moving: pods that do not run on their nodes.
    """

    allowed: bool
    runs: bool | None
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()
    nodes: frozenset[str] | None = None
    candidates: frozenset[str] = frozenset()
    pools: frozenset[str] = frozenset()
    moving: int = 0
    certainty: Certainty | None = None


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """A workload before and after a change."""

    subject: WorkloadRequest
    before: Runs
    after: Runs
    effect: Impact

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why the workload breaks, was denied before, is unknown, or what it warns of newly."""
        match self.effect:
            case Impact.FREED:
                return self.before.reasons
            case Impact.WARNS:
                return tuple(each for each in self.after.warnings if each not in self.before.warnings)
        return self.after.reasons

    @property
    def headline(self) -> str:
        """The cause of the first reason; empty if there is none."""
        if self.effect in (Impact.UNCHANGED, Impact.MORE_NODES) or not self.reasons:
            return ""
        return self.reasons[0].cause


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The result of changes. workloads: all of them, in the order of effect, namespace and owner."""

    changes: tuple[Change, ...]
    workloads: tuple[WorkloadChange, ...]

    def count(self, effect: Impact) -> int:
        """Return the number of workloads with an effect."""
        return sum(each.effect is effect for each in self.workloads)

    @property
    def by_reason(self) -> list[tuple[Impact, str, int]]:
        """The number of workloads by effect and reason, the most frequent reason of an effect first."""
        counts = Counter((each.effect, each.headline) for each in self.workloads if each.headline)
        order = list(Impact)
        found = [(effect, reason, number) for (effect, reason), number in counts.items()]
        return sorted(found, key=lambda each: (order.index(each[0]), -each[2], each[1]))

    @property
    def by_namespace(self) -> list[tuple[str, Counter[Impact]]]:
        """The number of workloads by effect, for each namespace in which a workload changes."""
        found: dict[str, Counter[Impact]] = {}
        for each in self.workloads:
            if each.effect is not Impact.UNCHANGED:
                found.setdefault(each.subject.namespace, Counter())[each.effect] += 1
        return sorted(found.items())


class ClusterState:
    """Rules and nodes, before or after a change."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self._snapshot, self._now = snapshot, now
        self._inventory, self._language = snapshot.inventory, snapshot.policy.language
        self._names: dict[int, frozenset[str]] = {}

    def runs(self, subject: WorkloadRequest) -> Runs:
        """Return whether a workload runs. Raises ObjectError if its object is not shaped as its kind is."""
        request = subject.request
        node = _node_of(request.object or {}) if request.kind == "Pod" else ""
        if node and self._inventory.everything and not self._inventory.named(node):
            why = (_plain(self._say(_NODE_REMOVED, node=node)),)
            return Runs(True, False, why, certainty=Certainty.CERTAIN)
        found = self._found(self._place(request))
        if subject.from_pods and found.allowed and found.runs is False:
            # The affinity of its pods may be that of an earlier decision, which a new pod does not have.
            found = found._replace(runs=None, certainty=Certainty.UNKNOWN)
        moving = 0
        for pod in subject.pods:
            moving += not self._stays(pod, subject.namespace)
        return found._replace(moving=moving)

    def _stays(self, pod: Mapping[str, Any], namespace: str) -> bool:
        """Return whether a pod runs on the node that it is bound to."""
        node = _node_of(pod)
        if not node or not self._inventory.everything:
            return True
        if not self._inventory.named(node):
            return False
        request = AdmissionRequest("CREATE", "", "Pod", namespace, pod, mutating=False)
        return self._found(self._place(request)).runs is not False

    def _place(self, request: AdmissionRequest) -> Placement:
        return place(self._snapshot, request, self._now)

    def _found(self, placement: Placement) -> Runs:
        decision, language = placement.decision, self._language
        warned = [each.warning for each in decision.violations if each.action is Action.WARN]
        warnings = tuple(
            Reason(WarningLine(each).in_language(language), cause_of(each).in_language(language))
            for each in dict.fromkeys([*warned, *decision.notices])
        )
        fitting = min(placement.nodes, key=lambda each: each.compatible.bit_count(), default=None)
        found = Runs(decision.allowed, decision.allowed, (), warnings)
        if fitting and self._inventory.everything:
            candidates, compatible = self._set(fitting.candidates), self._set(fitting.compatible)
            found = found._replace(nodes=compatible, candidates=candidates, pools=fitting.pools)
        if not decision.allowed:
            denying = [each for each in decision.violations if each.action is Action.DENY]
            reasons = [
                Reason(
                    with_fix(each.reason, each.fix).in_language(language),
                    cause_of(each).in_language(language),
                )
                for each in denying
            ]
            whole = _plain(decision.denial.in_language(language).partition("\n")[0])
            certain = any(each.certainty is Certainty.CERTAIN for each in denying)
            sure = Certainty.CERTAIN if certain else Certainty.LIKELY
            return found._replace(reasons=tuple(dict.fromkeys(reasons)) or (whole,), certainty=sure)
        unknown = [reason for _, reason in decision.not_checked if reason in (NO_NODES, UNKNOWN_CUDA)]
        if unknown:
            texts = dict.fromkeys(each.in_language(language) for each in unknown)
            reasons = [*map(_plain, texts)]
            found = found._replace(runs=None, reasons=tuple(reasons), certainty=Certainty.UNKNOWN)
        if fitting and self._inventory.everything and not (fitting.compatible or fitting.pools):
            return self._without_node(found, fitting)
        return found

    def _without_node(self, found: Runs, fitting: FittingNodes) -> Runs:
        """Return whether a workload runs that no known node is compatible with."""
        if fitting.unknown:
            why = self._say(_UNKNOWN_NODES, count=fitting.unknown.bit_count())
            unknown = (*found.reasons, _plain(why))
            return found._replace(runs=None, reasons=unknown, certainty=Certainty.UNKNOWN)
        if self._inventory.undeclared:
            unknown = (*found.reasons, _plain(self._say(_UNDECLARED)))
            return found._replace(runs=None, reasons=unknown, certainty=Certainty.UNKNOWN)
        # Labels and taints of nodes may change, and selectors of the workload, too.
        reasons = (_plain(self._say(_NO_NODE)),)
        return found._replace(runs=False, reasons=reasons, certainty=Certainty.LIKELY)

    def _set(self, nodes: int) -> frozenset[str]:
        if (found := self._names.get(nodes)) is None:
            found = self._names[nodes] = frozenset(self._inventory.names(nodes))
        return found

    def _say(self, text: Message, **facts: object) -> str:
        return text.having(**facts).in_language(self._language)


def compare(
    subjects: Sequence[WorkloadRequest],
    before: ClusterState,
    after: ClusterState,
    changes: Sequence[Change],
    changed: Callable[[WorkloadRequest], WorkloadRequest] | None = None,
    on_error: Callable[[WorkloadRequest, ObjectError], None] | None = None,
) -> WhatIf:
    """Return the result for workloads. changed: a workload as it is after the change.

    on_error: is called for each workload that cannot be evaluated, which is left out. Raises ObjectError
    without it.
    """
    found: list[tuple[WorkloadRequest, Runs]] = []
    for each in subjects:  # all of one state first: node evaluators of two states are not kept at a time
        try:
            found.append((each, before.runs(each)))
        except ObjectError as error:
            if on_error is None:
                raise
            on_error(each, error)
    nodes = frozenset[str]().union(*(each.affected.nodes for each in changes if each.affected))
    of_all = any(each.affected is None or each.affected.pools for each in changes)
    results = []
    for subject, was in found:
        new = changed(subject) if changed else subject
        then = after.runs(new)
        concerned = of_all or new != subject or not nodes.isdisjoint(was.candidates | then.candidates)
        results.append(WorkloadChange(subject, was, then, _effect(was, then, concerned=concerned)))
    order = list(Impact)
    results.sort(key=lambda one: (order.index(one.effect), one.subject.namespace, one.subject.owner))
    return WhatIf(tuple(changes), tuple(results))


def _effect(before: Runs, after: Runs, *, concerned: bool) -> Impact:
    if after.runs is False:
        return Impact.UNCHANGED if before.runs is False else Impact.BREAKS
    if after.runs is None:
        return Impact.UNKNOWN if concerned or before.runs is not None else Impact.UNCHANGED
    if before.runs is False:
        return Impact.FREED
    was, now = before.nodes or frozenset(), after.nodes or frozenset()
    if was - now or before.pools - after.pools or after.moving > before.moving:
        return Impact.FEWER_NODES
    if set(after.warnings) - set(before.warnings):
        return Impact.WARNS
    return Impact.MORE_NODES if now - was or after.pools - before.pools else Impact.UNCHANGED


def _plain(line: str) -> Reason:
    """Return a reason that workloads share as a whole."""
    return Reason(line, line)


def _node_of(pod: Mapping[str, Any]) -> str:
    spec = pod.get("spec")
    return str(spec.get(_NODE_NAME) or "") if isinstance(spec, dict) else ""


def unbound(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a pod that is not bound to a node; one without a spec is returned as it is."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return pod
    return {**pod, "spec": {key: value for key, value in spec.items() if key != _NODE_NAME}}


def rows(result: WhatIf, *, wide: bool) -> Iterator[WorkloadChange]:
    """Yield the workloads that a table shows. wide: with those that get more nodes."""
    hidden = {Impact.UNCHANGED} if wide else {Impact.UNCHANGED, Impact.MORE_NODES}
    return (each for each in result.workloads if each.effect not in hidden)


def document(result: WhatIf, language: Language) -> dict[str, Any]:
    """Return the result as JSON; workloads that do not change are only counted."""
    return {
        "changes": [
            {
                "change": each.text.in_language(language),
                "nodes": sorted(each.affected.nodes) if each.affected else None,
                "pools": sorted(each.affected.pools) if each.affected else None,
            }
            for each in result.changes
        ],
        "summary": {effect.value: result.count(effect) for effect in Impact},
        "namespaces": [
            {"namespace": name, **{effect.value: counts[effect] for effect in Impact if counts[effect]}}
            for name, counts in result.by_namespace
        ],
        "workloads": [_row(each) for each in rows(result, wide=True)],
    }


def _row(each: WorkloadChange) -> dict[str, Any]:
    return {
        "effect": each.effect.value,
        "namespace": each.subject.namespace,
        "workload": each.subject.owner,
        "pods": len(each.subject.pods),
        "podsToMove": each.after.moving,
        "reasons": [one.line for one in each.reasons],
        "before": _state(each.before),
        "after": _state(each.after),
    }


def _state(runs: Runs) -> dict[str, Any]:
    return {
        "allowed": runs.allowed,
        "runs": runs.runs,
        "certainty": runs.certainty,
        "nodes": None if runs.nodes is None else len(runs.nodes),
        "pools": sorted(runs.pools),
    }


_BOUND = "nodeName"


def subjects_of(workloads: Iterable[Workload]) -> Iterator[WorkloadRequest]:
    """Yield a subject for each workload; objects whose pods are malformed have none of them."""
    for each in workloads:
        pods = tuple(pod.document for pod in each.pods if _is_bound(pod))
        if each.object is not None:
            yield WorkloadRequest(each.namespace, each.reference, _request(each.object), pods)
        elif each.pods and each.pods[0].key == each.key:  # a pod of its own
            yield WorkloadRequest(each.namespace, each.reference, _request(each.pods[0]))
        elif each.pods:
            request = _request(each.pods[0]._replace(document=unbound(each.pods[0].document)))
            yield WorkloadRequest(each.namespace, each.reference, request, pods, from_pods=True)


def _request(found: WorkloadObject) -> AdmissionRequest:
    """Return the request to create an object; a pod that has been created is not completed again."""
    created = found.is_pod and "status" in found.document
    return AdmissionRequest(
        "CREATE", found.group, found.kind, found.key.namespace, found.document, mutating=not created
    )


def _is_bound(pod: WorkloadObject) -> bool:
    spec = pod.document.get("spec")
    return isinstance(spec, dict) and bool(spec.get(_BOUND))
