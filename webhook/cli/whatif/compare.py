"""The effect of changes on workloads, which are evaluated before and after them as admission does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import Struct

from rules import Action, AdmissionRequest, Language, ObjectError, Snapshot
from rules.compatibility.evaluate import FittingNodes
from rules.decision.messages import WarningLine
from rules.model.decision import NO_NODES, UNKNOWN_CUDA
from rules.model.finding import Certainty, cause_of, with_fix
from rules.text.i18n import Message
from webhook.cli.audit.workloads import Workload, WorkloadObject
from webhook.cli.inputs.month import this_month
from webhook.cli.inputs.node_changes import Change
from webhook.cli.report.fleet import Fleet, fleet, known_cuda
from webhook.cli.report.model import fix_of
from webhook.cli.report.plan import Plan, plan
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
    """The effect of changes on a workload, in the order of a report."""

    BREAKS = "breaks"
    FREED = "freed"
    UNKNOWN = "unknown"
    FEWER_NODES = "fewer nodes"
    WARNS = "warns"
    MORE_NODES = "more nodes"
    UNCHANGED = "unchanged"


class WorkloadRequest(NamedTuple):
    """A workload, as a request to create its object.

    Attributes:
        pods: its pods that are bound to a node.
        from_pods: whether the object is unknown and the request is made from a pod of its controller.
    """

    namespace: str
    owner: str
    request: AdmissionRequest
    pods: tuple[Mapping[str, Any], ...] = ()
    from_pods: bool = False


class Reason(NamedTuple):
    """Why a workload does not run, or what it is warned of."""

    line: str  # for people
    cause: str  # the part of the line that is equal for workloads with the same fault
    fix: str = ""  # empty if no fix is known


class RunState(NamedTuple):
    """Whether a workload runs in one state of the cluster.

    Attributes:
        allowed: whether admission allows it.
        runs: None if it is unknown whether it runs.
        reasons: why it does not run, or why that is unknown.
        warnings: of admission.
        nodes: names of compatible nodes; None if no rule selects nodes for the workload.
        candidates: names of the nodes that it selects and tolerates.
        pools: names of the pools whose new nodes are compatible.
        moving: number of its pods that cannot stay on their nodes.
        certainty: how certain it is that the workload does not run; None if it runs.
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


class WorkloadChange(Struct, frozen=True):
    """A workload before and after a change."""

    subject: WorkloadRequest
    before: RunState
    after: RunState
    effect: Impact

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why the workload breaks, was denied or is unknown; for WARNS, the new warnings."""
        match self.effect:
            case Impact.FREED:
                return self.before.reasons
            case Impact.WARNS:
                return tuple(
                    warning for warning in self.after.warnings if warning not in self.before.warnings
                )
        return self.after.reasons

    @property
    def headline(self) -> str:
        """The cause of the first reason; empty if there is none."""
        if self.effect in (Impact.UNCHANGED, Impact.MORE_NODES) or not self.reasons:
            return ""
        return self.reasons[0].cause


class WhatIf(Struct, frozen=True):
    """The result of changes."""

    changes: tuple[Change, ...]
    workloads: tuple[WorkloadChange, ...]  # all, in the order of effect, namespace and owner
    fleets: tuple[Fleet, Fleet] = ((), ())  # before and after

    def count(self, effect: Impact) -> int:
        """Return the number of workloads with an effect."""
        return sum(change.effect is effect for change in self.workloads)

    def plan(self) -> Plan:
        """Return the few fixes after which most workloads that break are admitted."""
        broken = (change for change in self.workloads if change.effect is Impact.BREAKS)
        return plan(({reason.fix for reason in change.reasons} for change in broken), "broken workload")

    @property
    def by_reason(self) -> list[tuple[Impact, str, int]]:
        """The number of workloads by effect and reason, the most frequent reason of an effect first."""
        counts = Counter((change.effect, change.headline) for change in self.workloads if change.headline)
        order = list(Impact)
        ranked = [(effect, reason, number) for (effect, reason), number in counts.items()]
        return sorted(ranked, key=lambda entry: (order.index(entry[0]), -entry[2], entry[1]))

    @property
    def by_namespace(self) -> list[tuple[str, Counter[Impact]]]:
        """The number of workloads by effect, for each namespace in which a workload changes."""
        counts: dict[str, Counter[Impact]] = {}
        for change in self.workloads:
            if change.effect is not Impact.UNCHANGED:
                counts.setdefault(change.subject.namespace, Counter())[change.effect] += 1
        return sorted(counts.items())


class ClusterState:
    """Rules and nodes, before or after a change."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self._snapshot, self._now = snapshot, now
        self._inventory, self._language = snapshot.inventory, snapshot.policy.language
        self._names: dict[int, frozenset[str]] = {}

    def runs(self, subject: WorkloadRequest) -> RunState:
        """Return whether a workload runs. Raises ObjectError if its object is malformed."""
        request = subject.request
        node = _node_of(request.object or {}) if request.kind == "Pod" else ""
        if node and self._inventory.everything and not self._inventory.named(node):
            why = (_reason_of_line(self._text(_NODE_REMOVED, node=node)),)
            return RunState(True, False, why, certainty=Certainty.CERTAIN)
        runs = self._run_state(self._placement(request))
        if subject.from_pods and runs.allowed and runs.runs is False:
            # Its pods may have the affinity of an earlier decision, which a new pod does not have.
            runs = runs._replace(runs=None, certainty=Certainty.UNKNOWN)
        moving = 0
        for pod in subject.pods:
            moving += not self._stays(pod, subject.namespace)
        return runs._replace(moving=moving)

    def fleet(self, subjects: Iterable[WorkloadRequest]) -> Fleet:
        """Return the CUDA of nodes and workloads. subjects: the workloads, as they are in this state."""
        policy = self._snapshot.policy
        needed = (
            known_cuda(policy, [(subject.request.group, subject.request.kind, subject.request.object or {})])
            for subject in subjects
        )
        toolkits = [known for known in needed if known is not None]
        return fleet(self._inventory, policy.rules.label_names, toolkits, this_month())

    def _stays(self, pod: Mapping[str, Any], namespace: str) -> bool:
        """Return whether a pod runs on the node that it is bound to."""
        node = _node_of(pod)
        if not node or not self._inventory.everything:
            return True
        if not self._inventory.named(node):
            return False
        request = AdmissionRequest("CREATE", "", "Pod", namespace, pod, mutating=False)
        return self._run_state(self._placement(request)).runs is not False

    def _placement(self, request: AdmissionRequest) -> Placement:
        return place(self._snapshot, request, self._now)

    def _run_state(self, placement: Placement) -> RunState:
        decision, language = placement.decision, self._language
        warned = [violation for violation in decision.violations if violation.action is Action.WARN]
        lines = {WarningLine(finding): cause_of(finding) for finding in (*warned, *decision.notices)}
        warnings = tuple(
            Reason(line.in_language(language), cause.in_language(language)) for line, cause in lines.items()
        )
        fitting = min(placement.nodes, key=lambda nodes: nodes.compatible.bit_count(), default=None)
        runs = RunState(decision.allowed, decision.allowed, (), warnings)
        if fitting and self._inventory.everything:
            candidates, compatible = (
                self._node_names(fitting.candidates),
                self._node_names(fitting.compatible),
            )
            runs = runs._replace(nodes=compatible, candidates=candidates, pools=fitting.pools)
        if not decision.allowed:
            denying = [violation for violation in decision.violations if violation.action is Action.DENY]
            reasons = [
                Reason(
                    with_fix(violation.reason, violation.fix).in_language(language),
                    cause_of(violation).in_language(language),
                    fix_of(violation).in_language(language),
                )
                for violation in denying
            ]
            denial = _reason_of_line(decision.denial.in_language(language).partition("\n")[0])
            certain = any(violation.certainty is Certainty.CERTAIN for violation in denying)
            sure = Certainty.CERTAIN if certain else Certainty.LIKELY
            return runs._replace(reasons=tuple(dict.fromkeys(reasons)) or (denial,), certainty=sure)
        unknown = [reason for _, reason in decision.not_checked if reason in (NO_NODES, UNKNOWN_CUDA)]
        if unknown:
            texts = dict.fromkeys(reason.in_language(language) for reason in unknown)
            reasons = [*map(_reason_of_line, texts)]
            runs = runs._replace(runs=None, reasons=tuple(reasons), certainty=Certainty.UNKNOWN)
        if fitting and self._inventory.everything and not (fitting.compatible or fitting.pools):
            return self._without_node(runs, fitting)
        return runs

    def _without_node(self, runs: RunState, fitting: FittingNodes) -> RunState:
        """Return whether a workload runs, if no known node is compatible with it."""
        if fitting.unknown:
            why = self._text(_UNKNOWN_NODES, count=fitting.unknown.bit_count())
            unknown = (*runs.reasons, _reason_of_line(why))
            return runs._replace(runs=None, reasons=unknown, certainty=Certainty.UNKNOWN)
        if self._inventory.undeclared:
            unknown = (*runs.reasons, _reason_of_line(self._text(_UNDECLARED)))
            return runs._replace(runs=None, reasons=unknown, certainty=Certainty.UNKNOWN)
        # Only likely: labels and taints of nodes may change, and selectors of the workload.
        reasons = (_reason_of_line(self._text(_NO_NODE)),)
        return runs._replace(runs=False, reasons=reasons, certainty=Certainty.LIKELY)

    def _node_names(self, nodes: int) -> frozenset[str]:
        if (names := self._names.get(nodes)) is None:
            names = self._names[nodes] = frozenset(self._inventory.names(nodes))
        return names

    def _text(self, text: Message, **facts: object) -> str:
        return text.having(**facts).in_language(self._language)


def compare(
    subjects: Sequence[WorkloadRequest],
    before: ClusterState,
    after: ClusterState,
    changes: Sequence[Change],
    changed: Callable[[WorkloadRequest], WorkloadRequest] | None = None,
    on_error: Callable[[WorkloadRequest, ObjectError], None] | None = None,
) -> WhatIf:
    """Return the effect of changes on workloads.

    changed: returns a workload as it is after the changes. on_error: is called for a workload that cannot be
    evaluated, which is left out; without it, ObjectError is raised.
    """
    evaluated: list[tuple[WorkloadRequest, RunState]] = []
    for subject in subjects:  # all of one state first: node evaluators of two states are not kept at a time
        try:
            evaluated.append((subject, before.runs(subject)))
        except ObjectError as error:
            if on_error is None:
                raise
            on_error(subject, error)
    nodes = frozenset[str]().union(*(change.affected.nodes for change in changes if change.affected))
    of_all = any(change.affected is None or change.affected.pools for change in changes)
    results, after_changes = [], list[WorkloadRequest]()
    for subject, runs_before in evaluated:
        new = changed(subject) if changed else subject
        after_changes.append(new)
        runs_after = after.runs(new)
        concerned = (
            of_all or new != subject or not nodes.isdisjoint(runs_before.candidates | runs_after.candidates)
        )
        results.append(
            WorkloadChange(
                subject, runs_before, runs_after, _effect(runs_before, runs_after, concerned=concerned)
            )
        )
    order = list(Impact)
    results.sort(
        key=lambda result: (order.index(result.effect), result.subject.namespace, result.subject.owner)
    )
    fleets = before.fleet(subject for subject, _ in evaluated), after.fleet(after_changes)
    return WhatIf(tuple(changes), tuple(results), fleets)


def _effect(before: RunState, after: RunState, *, concerned: bool) -> Impact:
    if after.runs is False:
        return Impact.UNCHANGED if before.runs is False else Impact.BREAKS
    if after.runs is None:
        return Impact.UNKNOWN if concerned or before.runs is not None else Impact.UNCHANGED
    if before.runs is False:
        return Impact.FREED
    nodes_before, nodes_after = before.nodes or frozenset(), after.nodes or frozenset()
    if nodes_before - nodes_after or before.pools - after.pools or after.moving > before.moving:
        return Impact.FEWER_NODES
    if set(after.warnings) - set(before.warnings):
        return Impact.WARNS
    return Impact.MORE_NODES if nodes_after - nodes_before or after.pools - before.pools else Impact.UNCHANGED


def _reason_of_line(line: str) -> Reason:
    """Return a reason whose whole line is its cause."""
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
    """Yield the workloads that a table shows. wide: include workloads that get more nodes."""
    hidden = {Impact.UNCHANGED} if wide else {Impact.UNCHANGED, Impact.MORE_NODES}
    return (change for change in result.workloads if change.effect not in hidden)


def document(result: WhatIf, language: Language) -> dict[str, Any]:
    """Return the result as JSON; workloads that do not change are only counted."""
    return {
        "changes": [
            {
                "change": change.text.in_language(language),
                "nodes": sorted(change.affected.nodes) if change.affected else None,
                "pools": sorted(change.affected.pools) if change.affected else None,
                "driverSupport": change.support.document() if change.support else None,
            }
            for change in result.changes
        ],
        "plan": result.plan().document(),
        "fleet": {
            when: [row.document() for row in rows]
            for when, rows in zip(("before", "after"), result.fleets, strict=True)
        },
        "summary": {effect.value: result.count(effect) for effect in Impact},
        "namespaces": [
            {"namespace": name, **{effect.value: counts[effect] for effect in Impact if counts[effect]}}
            for name, counts in result.by_namespace
        ],
        "workloads": [_row(change) for change in rows(result, wide=True)],
    }


def _row(change: WorkloadChange) -> dict[str, Any]:
    return {
        "effect": change.effect.value,
        "namespace": change.subject.namespace,
        "workload": change.subject.owner,
        "pods": len(change.subject.pods),
        "podsToMove": change.after.moving,
        "reasons": [reason.line for reason in change.reasons],
        "before": _state(change.before),
        "after": _state(change.after),
    }


def _state(runs: RunState) -> dict[str, Any]:
    return {
        "allowed": runs.allowed,
        "runs": runs.runs,
        "certainty": runs.certainty,
        "nodes": None if runs.nodes is None else len(runs.nodes),
        "pools": sorted(runs.pools),
    }


_BOUND = "nodeName"


def subjects_of(workloads: Iterable[Workload]) -> Iterator[WorkloadRequest]:
    """Yield the request of each workload; malformed pods are left out."""
    for workload in workloads:
        pods = tuple(pod.document for pod in workload.pods if _is_bound(pod))
        if workload.object is not None:
            yield WorkloadRequest(workload.namespace, workload.reference, _request(workload.object), pods)
        elif workload.pods and workload.pods[0].key == workload.key:  # a pod of its own
            yield WorkloadRequest(workload.namespace, workload.reference, _request(workload.pods[0]))
        elif workload.pods:
            request = _request(workload.pods[0]._replace(document=unbound(workload.pods[0].document)))
            yield WorkloadRequest(workload.namespace, workload.reference, request, pods, from_pods=True)


def _request(workload_object: WorkloadObject) -> AdmissionRequest:
    """Return the request to create an object. A pod with a status exists, so rules do not mutate it again."""
    created = workload_object.is_pod and "status" in workload_object.document
    return AdmissionRequest(
        "CREATE",
        workload_object.group,
        workload_object.kind,
        workload_object.key.namespace,
        workload_object.document,
        mutating=not created,
    )


def _is_bound(pod: WorkloadObject) -> bool:
    spec = pod.document.get("spec")
    return isinstance(spec, dict) and bool(spec.get(_BOUND))
