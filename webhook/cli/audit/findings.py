"""Decisions on the workloads of a cluster, and what they find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rules import Action, AdmissionRequest, Decision, Language, ObjectError
from rules.decision.messages import WarningLine
from rules.model.finding import Basis, cause_of
from webhook.cli.audit.workloads import Workload, WorkloadObject
from webhook.cli.inputs.session import Session
from webhook.cli.report.model import EFFECTS, WARN, RenderedFinding


@dataclass(frozen=True, slots=True)
class EvaluatedObject:
    """An object of a workload, and the decision on it as it is."""

    object: WorkloadObject
    decision: Decision
    language: Language

    def findings(self) -> list[RenderedFinding]:
        """Return each violation and each other warning."""
        return [RenderedFinding.of(each, self.language) for each in self.decision.violations] + [
            RenderedFinding(
                WARN,
                each.rule,
                WarningLine(each).in_language(self.language),
                cause_of(each).in_language(self.language),
                each.fix.in_language(self.language),
                certainty=each.certainty,
            )
            for each in self.decision.notices
        ]


@dataclass(frozen=True, slots=True)
class EvaluatedWorkload:
    """A workload, and the decisions on it and its pods; at least one."""

    workload: Workload
    objects: tuple[EvaluatedObject, ...]

    @property
    def pods(self) -> int:
        """The number of its pods."""
        return len(self.workload.pods)

    @property
    def allowed(self) -> bool:
        """Whether the object and all pods would be admitted."""
        return all(each.decision.allowed for each in self.objects)

    @property
    def denied_by_fact(self) -> bool:
        """Whether a violation that denies rests on facts, and so no setting of a rule admits the object."""
        return any(
            found.action is Action.DENY and found.basis is Basis.FACT
            for each in self.objects
            for found in each.decision.violations
        )

    def findings(self) -> list[tuple[RenderedFinding, EvaluatedObject]]:
        """Return the findings of the object and of each pod."""
        return [(found, each) for each in self.objects for found in each.findings()]


class SummaryRow(NamedTuple):
    """A rule and a reason, with the numbers of workloads and of pods that exist and have this finding."""

    action: str
    workloads: int
    pods: int
    rule: str
    reason: str


def evaluate(session: Session, workloads: Iterable[Workload]) -> Iterator[EvaluatedWorkload]:
    """Yield the workloads with the decisions on them; print an error for each malformed object."""
    for workload in workloads:
        objects = tuple(_evaluated(session, workload))
        if objects:
            yield EvaluatedWorkload(workload, objects)


def _evaluated(session: Session, workload: Workload) -> Iterator[EvaluatedObject]:
    for each in workload.objects:
        document = each.document
        if not all(isinstance(document.get(name), dict) for name in ("metadata", "spec")) and each.is_pod:
            session.add_error(f"{each.source}: invalid pod: metadata or spec is missing".removeprefix(": "))
            continue
        request = AdmissionRequest(
            "CREATE", each.group, each.kind, each.key.namespace, document, mutating=False
        )
        try:
            yield EvaluatedObject(each, session.decide(request), session.policy.language)
        except ObjectError as error:
            place = each.source or f"{each.kind} {each.key.namespace}/{each.key.name}"
            session.add_error(f"{place}: {error}")


def summary(evaluated: Iterable[EvaluatedWorkload]) -> list[SummaryRow]:
    """Return the numbers by rule and reason, the most severe and the most frequent first."""
    workloads: dict[tuple[str, str, str], set[int]] = {}
    pods: dict[tuple[str, str, str], set[int]] = {}
    for workload in evaluated:
        for found, each in workload.findings():
            key = found.effect, found.rule, found.cause
            workloads.setdefault(key, set()).add(id(workload))
            those = pods.setdefault(key, set())
            if each.object.is_pod:
                those.add(id(each))
    rows = [
        SummaryRow(action, len(workloads[key]), len(pods[key]), rule, reason)
        for key in workloads
        for action, rule, reason in (key,)
    ]
    return sorted(
        rows, key=lambda row: (severity(row.action), -row.workloads, -row.pods, row.rule, row.reason)
    )


def severity(action: str) -> int:
    """Return the place of an effect among the effects, the most severe first."""
    return EFFECTS.index(action)
