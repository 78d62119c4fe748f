"""A decision explained: each rule that was looked at, whether it held and why not, and what it did.

It is the decision itself that takes these notes while it is made; nothing is decided here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from rules.decision.pipeline import decide
from rules.decision.policy import Policy
from rules.decision.recorder import DecisionRecorder
from rules.decision.scope import unjudged
from rules.kube.pod import Pod
from rules.model.decision import Decision, Violation
from rules.model.request import AdmissionRequest
from rules.model.rule import RuleSet
from rules.nodes.inventory import Inventory
from rules.report.trace import PodTrace, TraceRecorder


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and how it came about. unjudged: why there was nothing to decide, or empty.

    violations, warnings: those that are about no single rule and container.
    """

    decision: Decision
    unjudged: str
    pods: tuple[PodTrace, ...]
    violations: tuple[Violation, ...]
    warnings: tuple[str, ...]


def explain(
    rules: RuleSet, policy: Policy, inventory: Inventory, request: AdmissionRequest, now: float = math.inf
) -> Explanation:
    """Return the decision on a request with its explanation; policy: that of the rules, else as for `decide`.

    Raises ObjectError where the object is not shaped as its kind is.
    """
    taken: list[TraceRecorder] = []

    def notes(pod: Pod) -> DecisionRecorder:
        taken.append(TraceRecorder(pod, request.namespace, policy.language))
        return taken[-1]

    decision = decide(policy, inventory, request, now, notes)
    pods = tuple(story.told(rules) for story in taken)
    looks = [look for pod in pods for container in pod.containers for look in container.looks]
    told = {line for look in looks for line in look.warnings}
    shown = [violation for look in looks for violation in look.violations]
    told |= {f"{violation.message} [{violation.rule}]" for violation in decision.violations}
    return Explanation(
        decision=decision,
        unjudged=unjudged(policy.workloads, request),
        pods=pods,
        violations=tuple(violation for violation in decision.violations if violation not in shown),
        warnings=tuple(line for line in decision.warnings if line not in told),
    )
