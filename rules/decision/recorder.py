"""What is noted of a pod on its way through the stages: what held, what was put in, what was found.

The stages tell everything that happens here, so that whoever wants to know more of it takes more notes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from rules.model.decision import Violation
from rules.model.rule import (
    Action,
    CompatibilityRule,
    Exemption,
    InjectionAction,
    InjectionRule,
    ResourceRule,
)

if TYPE_CHECKING:
    from rules.cel.expression import ExpressionError
    from rules.compatibility.report import RuleRequirement
    from rules.kube.pod import Container, Pod
    from rules.model.match import Unmet

JudgingRule: TypeAlias = ResourceRule | InjectionRule | CompatibilityRule
# What keeps a rule from a container: a piece of its match, a condition without a value, an exemption.
Obstacle: TypeAlias = "Unmet | ExpressionError | Exemption"


class DecisionRecorder:
    """The notes that a decision is written from.

    rules: the names of those that held. injected, would_inject: what each rule put in, or would but for its
    dry run, by name. cuda_sources: as in a Decision.
    """

    __slots__ = (
        "_defaulted",
        "_steered",
        "cuda_sources",
        "injected",
        "rules",
        "violations",
        "warnings",
        "would_inject",
    )

    def __init__(self, pod: Pod) -> None:
        del pod
        self.rules: dict[str, None] = {}
        self.violations: list[Violation] = []
        self.warnings: list[str] = []
        self.cuda_sources: list[str] = []
        self.injected: dict[str, list[str]] = {}
        self.would_inject: dict[str, list[str]] = {}
        self._defaulted: list[str] = []
        self._steered = False

    def looked_at(self, rule: JudgingRule, container: Container, obstacle: Obstacle | None) -> None:
        """Note that a rule holds for a container, or what keeps it off; it may be looked at again."""
        del container
        if obstacle is None:
            self.rules[rule.name] = None

    def put_in(self, rule: ResourceRule | InjectionRule, what: Collection[str]) -> None:
        """Note what a rule has just put in, or would where it is for a dry run."""
        if isinstance(rule, ResourceRule):
            self._defaulted += what
        elif what:
            done = self.would_inject if rule.action is InjectionAction.DRYRUN else self.injected
            done.setdefault(rule.name, []).extend(what)

    def needs(self, container: Container, demand: RuleRequirement) -> None:
        """Note what a container needs of a node."""
        del container
        self.cuda_sources.append(demand.needs.cuda.found if demand.needs.cuda else "unknown")

    def steered(self) -> None:
        """Note that node affinity was put in."""
        self._steered = True

    def found(
        self,
        violations: Iterable[Violation],
        warnings: Iterable[str],
        rule: JudgingRule | None = None,
        container: Container | None = None,
    ) -> None:
        """Note what there is to say; rule, container: whom the warnings are about, where it is one."""
        del rule, container
        self.violations += violations
        self.warnings += warnings

    def audit(self, exempted: Mapping[str, str]) -> dict[str, str]:
        """Return the annotations of the audit event. exempted: exemption by rule."""
        audit = {"rules": ", ".join(self.rules)} if self.rules else {}
        if self._defaulted:
            audit["defaulted"] = "; ".join(self._defaulted)
        if self.injected:
            audit["injected"] = _listing(self.injected)
        if self.would_inject:
            audit["would-inject"] = _listing(self.would_inject)
        if self._steered:
            audit["steered"] = "node affinity"
        if exempted:
            audit["exempted"] = _listing({rule: [exemption] for rule, exemption in exempted.items()})
        if told := _lines(self.violations, Action.DENY, Action.WARN):
            audit["violations"] = told
        if told := _lines(self.violations, Action.DRYRUN):
            audit["dryrun"] = told
        return audit


def _listing(done: Mapping[str, list[str]]) -> str:
    return "; ".join([f"{rule} ({', '.join(what)})" for rule, what in done.items()])


def _lines(violations: list[Violation], *actions: Action) -> str:
    return "; ".join([f"{found.rule}: {found.path}" for found in violations if found.action in actions])
