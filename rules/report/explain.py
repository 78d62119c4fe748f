"""A decision explained: every rule, whether it matched and why not, and what it did.

The decision itself makes the record; nothing is decided here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rules.decision.messages import warning_line
from rules.decision.pipeline import Snapshot, decide
from rules.decision.recorder import DecisionRecorder
from rules.decision.scope import out_of_scope
from rules.kube.pod import Pod
from rules.model.decision import Decision, Violation
from rules.model.request import AdmissionRequest
from rules.report.trace import PodTrace, TraceRecorder


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and how it was made. out_of_scope: why there was nothing to decide, or empty.

    violations, warnings: those that belong to no single rule and container.
    """

    decision: Decision
    out_of_scope: str
    pods: tuple[PodTrace, ...]
    violations: tuple[Violation, ...]
    warnings: tuple[str, ...]


def explain(snapshot: Snapshot, request: AdmissionRequest, now: float = math.inf) -> Explanation:
    """Return the decision on a request with its explanation; arguments and errors as of `decide`."""
    policy = snapshot.policy
    recorders: list[TraceRecorder] = []

    def recorder(pod: Pod) -> DecisionRecorder:
        recorders.append(TraceRecorder(pod, request.namespace, policy.language, snapshot.inventory))
        return recorders[-1]

    decision = decide(snapshot, request, now, recorder)
    reason = out_of_scope(policy.workloads, request)
    pods = tuple(each.trace(policy.rules) for each in recorders)
    evaluations = [each for pod in pods for container in pod.containers for each in container.evaluations]
    shown = {violation for each in evaluations for violation in each.violations}
    of_rules = {warning for each in evaluations for warning in each.warnings}
    return Explanation(
        decision=decision,
        out_of_scope=reason.in_language(policy.language) if reason else "",
        pods=pods,
        violations=tuple(violation for violation in decision.violations if violation not in shown),
        warnings=tuple(
            warning_line(policy.language, each) for each in decision.notices if each not in of_rules
        ),
    )
