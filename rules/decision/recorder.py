"""The record of what the stages do to a pod: rules that match, edits, violations, warnings.

The stages report everything here. `report.trace` extends the recorder for `explain`; the stages are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from rules.cel.syntax_errors import ExpressionError
from rules.compatibility.result import RuleRequirement
from rules.kube.pod import Container, Pod
from rules.model.decision import AdmissionWarning, Violation, audit_list
from rules.model.match import Unmet
from rules.model.rule import (
    Action,
    CompatibilityRule,
    Exemption,
    InjectionAction,
    InjectionRule,
    ResourceRule,
)
from rules.text.i18n import Message

DecidingRule: TypeAlias = ResourceRule | InjectionRule | CompatibilityRule
# What keeps a rule from applying: a part of its match, a condition that failed, an exemption.
Obstacle: TypeAlias = "Unmet | ExpressionError | Exemption"


class DecisionRecorder:
    """The record that a decision is written from.

    rules: the names of those that matched. injected, would_inject: what each rule injected, or would without
    its dry run, by name. cuda_sources, notes: as in a Decision.
    """

    __slots__ = (
        "_affinity",
        "_declared",
        "_defaulted",
        "cuda_sources",
        "injected",
        "notes",
        "rules",
        "violations",
        "warnings",
        "would_inject",
    )

    def __init__(self, pod: Pod) -> None:
        del pod
        self.rules: dict[str, None] = {}
        self.violations: list[Violation] = []
        self.warnings: list[AdmissionWarning] = []
        self.cuda_sources: list[str] = []
        self.injected: dict[str, list[str]] = {}
        self.would_inject: dict[str, list[str]] = {}
        self._defaulted: list[str] = []
        self._declared: dict[str, list[str]] = {}
        self._affinity = False
        self.notes: tuple[Message, ...] = ()

    def record_match(self, rule: DecidingRule, container: Container, obstacle: Obstacle | None) -> None:
        """Record that a rule applies to a container, or what keeps it from that; it may come up again."""
        del container
        if obstacle is None:
            self.rules[rule.name] = None

    def record_edits(self, rule: ResourceRule | InjectionRule, what: Collection[str]) -> None:
        """Record what a rule has just set, or would set without its dry run."""
        if isinstance(rule, ResourceRule):
            self._defaulted += what
        elif what:
            done = self.would_inject if rule.action is InjectionAction.DRYRUN else self.injected
            done.setdefault(rule.name, []).extend(what)

    def record_requirements(self, container: Container, required: RuleRequirement) -> None:
        """Record what a container requires of a node."""
        requirements = required.requirements
        self.cuda_sources.append(requirements.cuda.found if requirements.cuda else "unknown")
        if requirements.declared:
            self._declared[container.name] = list(requirements.declared)

    def record_notes(self, notes: tuple[Message, ...]) -> None:
        """Record why the containers run on the compatible nodes, if that is not plain."""
        self.notes = notes

    @property
    def declared(self) -> tuple[str, ...]:
        """The annotations and variables that replace what is known of an image, each once."""
        if not self._declared:
            return ()
        return tuple(dict.fromkeys(name for names in self._declared.values() for name in names))

    def record_affinity(self) -> None:
        """Record that node affinity was injected."""
        self._affinity = True

    def record_findings(
        self,
        violations: Iterable[Violation],
        warnings: Iterable[AdmissionWarning],
        container: Container | None = None,
    ) -> None:
        """Record violations and warnings; container: the one that they are about, if there is one."""
        del container
        self.violations += violations
        self.warnings += warnings

    def remove(self, earlier: DecisionRecorder) -> None:
        """Remove the violations and warnings that another record has, too."""
        violations, warnings = frozenset(earlier.violations), frozenset(earlier.warnings)
        self.violations = [found for found in self.violations if found not in violations]
        self.warnings = [found for found in self.warnings if found not in warnings]

    def audit(self, exempted: Mapping[str, str]) -> dict[str, str]:
        """Return the annotations of the audit event. exempted: exemption by rule."""
        audit = {"rules": ", ".join(self.rules)} if self.rules else {}
        if self._defaulted:
            audit["defaulted"] = "; ".join(self._defaulted)
        if self.injected:
            audit["injected"] = _listing(self.injected)
        if self.would_inject:
            audit["would-inject"] = _listing(self.would_inject)
        if self._affinity:
            audit["node-affinity"] = "injected"
        if self.notes:
            audit["notes"] = "; ".join([note.en for note in self.notes])
        if self._declared:
            audit["declared"] = _listing(self._declared)
        if exempted:
            audit["exempted"] = _listing({rule: [exemption] for rule, exemption in exempted.items()})
        if self.violations:
            dry = [each for each in self.violations if each.action is Action.DRYRUN]
            if others := [each for each in self.violations if each.action is not Action.DRYRUN]:
                audit["violations"] = audit_list(others)
            if dry:
                audit["dryrun"] = audit_list(dry)
        return audit


def _listing(done: Mapping[str, list[str]]) -> str:
    return "; ".join([f"{rule} ({', '.join(what)})" for rule, what in done.items()])
