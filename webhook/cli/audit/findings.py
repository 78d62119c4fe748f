"""Decisions on the workloads of a cluster, and what they find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from rules import Action, AdmissionRequest, Decision, Language, ObjectError, Workloads
from rules.model.finding import Basis
from rules.text.i18n import located
from webhook.cli.audit.workloads import Workload, WorkloadObject
from webhook.cli.inputs.session import Session
from webhook.cli.report.model import DENY, EFFECTS, WARN, Group, RenderedFinding, rendered_findings
from webhook.cli.report.plan import Plan, plan
from webhook.cli.terminal.vocabulary import GROUPED_WITHOUT_NAMESPACES, INVALID_POD


class EvaluatedObject(Struct, frozen=True):
    """An object of a workload, and the decision on it as it is."""

    object: WorkloadObject
    decision: Decision
    language: Language

    def findings(self) -> list[RenderedFinding]:
        """Return each violation and each notice."""
        return [*rendered_findings(self.decision, self.language, self.object.source)]


class EvaluatedWorkload(Struct, frozen=True):
    """A workload, and the decisions on it and its pods; at least one.

    group: the value of the label that workloads are grouped by; None without one.
    """

    workload: Workload
    objects: tuple[EvaluatedObject, ...]
    group: str | None = None

    @property
    def pods(self) -> int:
        """The number of its pods."""
        return len(self.workload.pods)

    @property
    def allowed(self) -> bool:
        """Whether the object and all pods would be admitted."""
        return all(evaluated.decision.allowed for evaluated in self.objects)

    @property
    def denied_by_fact(self) -> bool:
        """Whether a violation that denies rests on facts, and so no setting of a rule admits the object."""
        return any(
            violation.action is Action.DENY and violation.basis is Basis.FACT
            for evaluated in self.objects
            for violation in evaluated.decision.violations
        )

    @property
    def warned(self) -> bool:
        """Whether the object and all pods would be admitted, and one of them with a warning."""
        return self.allowed and any(finding.effect == WARN for finding, _ in self.findings())

    def findings(self) -> list[tuple[RenderedFinding, EvaluatedObject]]:
        """Return the findings of the object and of each pod."""
        return [(finding, evaluated) for evaluated in self.objects for finding in evaluated.findings()]


class SummaryRow(NamedTuple):
    """A rule and a reason, with the numbers of workloads and of pods that exist and have this finding."""

    action: str
    workloads: int
    pods: int
    rule: str
    reason: str


def evaluate(
    session: Session, workloads: Iterable[Workload], group_by: str = ""
) -> Iterator[EvaluatedWorkload]:
    """Yield the workloads with the decisions on them; print an error for each malformed object.

    group_by: the label of their group; empty: none has a group.
    """
    namespaces = session.namespaces if group_by else {}
    if group_by and (error := session.namespaces_forbidden):
        session.add_note(GROUPED_WITHOUT_NAMESPACES.having(why=error))
    for workload in workloads:
        objects = tuple(_evaluated(session, workload))
        if objects:
            known = _labels(objects, session.policy.workloads) if group_by else ()
            own = (*known, namespaces.get(workload.namespace, {}))
            group = next((str(labels[group_by]) for labels in own if group_by in labels), None)
            yield EvaluatedWorkload(workload, objects, group)


def _labels(objects: Iterable[EvaluatedObject], kinds: Workloads) -> Iterator[Mapping[str, Any]]:
    """Yield the labels of each object of a workload and of its pod templates."""
    for evaluated in objects:
        group, kind, document, _ = evaluated.object
        for owner in (document, *kinds.templates_of(group, kind, document).values()):
            metadata = owner.get("metadata")
            labels = metadata.get("labels") if isinstance(metadata, dict) else None
            if isinstance(labels, dict):
                yield labels


def request_of(
    workload_object: WorkloadObject, document: Mapping[str, Any], *, mutating: bool
) -> AdmissionRequest:
    """Return the request that creates an object; document: of the object."""
    key = workload_object.key
    return AdmissionRequest(
        "CREATE", workload_object.group, workload_object.kind, key.namespace, document, mutating=mutating
    )


def _evaluated(session: Session, workload: Workload) -> Iterator[EvaluatedObject]:
    for workload_object in workload.objects:
        document = workload_object.document
        if (
            not all(isinstance(document.get(name), dict) for name in ("metadata", "spec"))
            and workload_object.is_pod
        ):
            session.add_error(located(workload_object.place, INVALID_POD))
            continue
        request = request_of(workload_object, document, mutating=False)
        try:
            yield EvaluatedObject(workload_object, session.decide(request), session.policy.language)
        except ObjectError as error:
            session.add_error(located(workload_object.place, error.text))


def summary(evaluated: Iterable[EvaluatedWorkload]) -> list[SummaryRow]:
    """Return the numbers by rule and reason, the most severe and the most frequent first."""
    workloads: dict[tuple[str, str, str], set[int]] = {}
    pods: dict[tuple[str, str, str], set[int]] = {}
    for workload in evaluated:
        for finding, of_object in workload.findings():
            key = finding.effect, finding.rule, finding.cause
            workloads.setdefault(key, set()).add(id(workload))
            pods_of_key = pods.setdefault(key, set())
            if of_object.object.is_pod:
                pods_of_key.add(id(of_object))
    rows = [
        SummaryRow(action, len(workloads[key]), len(pods[key]), rule, reason)
        for key in workloads
        for action, rule, reason in (key,)
    ]
    return sorted(
        rows, key=lambda row: (severity(row.action), -row.workloads, -row.pods, row.rule, row.reason)
    )


def plan_of(evaluated: Iterable[EvaluatedWorkload]) -> Plan:
    """Return the few fixes after which most denied workloads are admitted."""
    denials = (
        [finding for finding, _ in workload.findings() if finding.effect == DENY] for workload in evaluated
    )
    return plan({finding.fix or finding.cause for finding in findings} for findings in denials if findings)


def groups_of(evaluated: Iterable[EvaluatedWorkload]) -> list[Group]:
    """Return the numbers of workloads by group, those with most denials and warnings first."""
    members = defaultdict[str | None, list[EvaluatedWorkload]](list)
    for workload in evaluated:
        members[workload.group].append(workload)
    groups = [
        Group(
            group,
            len(workloads),
            sum(workload.pods for workload in workloads),
            sum(not workload.allowed for workload in workloads),
            sum(workload.warned for workload in workloads),
        )
        for group, workloads in members.items()
    ]
    named = sorted(groups, key=lambda group: (group.group is None, group.group))
    return sorted(named, key=lambda group: (-group.denied, -group.warned))


def severity(action: str) -> int:
    """Return the place of an effect among the effects, the most severe first."""
    return EFFECTS.index(action)
