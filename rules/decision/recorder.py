"""The record of what happens to a pod: rules that match, changes, requirements, findings.

The stages append events; nothing is read from texts. The rules and audit annotations of a decision and the
explanation are views of the events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from rules.cel.syntax_errors import ExpressionError
from rules.compatibility.result import RuleRequirement
from rules.kube.pod import Container, Pod
from rules.model.decision import UNKNOWN_VERSION, NeededCuda
from rules.model.finding import Finding, audit_list
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


# One value that a rule sets: the container that it is a value of, or None for the pod, and its name, which is
# that of `settings_of`; a field of the pod has its value behind it.
Change: TypeAlias = tuple[Container | None, str]
# One time that a rule was applied to containers: also the changes of a dry run, which are not made; and how
# many edits of the pod there were afterwards.
Application: TypeAlias = tuple["ResourceRule | InjectionRule", Sequence[Container], Sequence[Change], int]


class Record:
    """The events of one pod, by kind, each in its order.

    matches: each rule that came up for a container, and what keeps it from applying; it may come up again.
    defaults, injections: by resource rules and by injection rules. affinity: the containers for which node
    affinity was injected. requirements: of containers on their node. findings: violations and notices. notes:
    as in a Decision.
    """

    __slots__ = (
        "affinity",
        "defaults",
        "findings",
        "injections",
        "matches",
        "notes",
        "pod",
        "requirements",
    )

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.matches: list[tuple[DecidingRule, Container, Obstacle | None]] = []
        self.defaults: list[Application] = []
        self.injections: list[Application] = []
        self.affinity: Sequence[Container] = ()
        self.requirements: list[tuple[Container, RuleRequirement]] = []
        self.findings: list[Finding] = []
        self.notes: tuple[Message, ...] = ()

    @property
    def applications(self) -> list[Application]:
        """All applications of rules, in order."""
        return [*self.defaults, *self.injections]

    def remove(self, earlier: Record) -> None:
        """Remove the findings that another record has, too."""
        findings = frozenset(earlier.findings)
        self.findings = [finding for finding in self.findings if finding not in findings]

    @property
    def rules(self) -> dict[str, None]:
        """The names of the rules that match, in order."""
        return {rule.name: None for rule, _, obstacle in self.matches if obstacle is None}

    def image_facts(self) -> tuple[tuple[NeededCuda, ...], dict[str, Sequence[str]]]:
        """Return the CUDA version that each container needs, and what replaces known facts.

        That is, by container, its annotations and variables that replace what is known of an image.
        """
        versions: list[NeededCuda] = []
        declared: dict[str, Sequence[str]] = {}
        for container, (_, requirements) in self.requirements:
            cuda = requirements.cuda
            versions.append((cuda.version, cuda.source) if cuda else UNKNOWN_VERSION)
            if requirements.declared:
                declared[container.name] = requirements.declared
        return tuple(versions), declared

    def audit(
        self,
        rules: Collection[str],
        violations: Collection[Finding],
        declared: Mapping[str, Sequence[str]],
        exempted: Mapping[str, Exemption],
    ) -> dict[str, str]:
        """Return the annotations of the audit event.

        rules, violations, declared: of the record. exempted: exemption by rule.
        """
        audit = {"rules": ", ".join(rules)} if rules else {}
        if defaulted := [text for _, _, changes, _ in self.defaults for text in change_texts(changes)]:
            audit["defaulted"] = "; ".join(defaulted)
        if self.injections:
            audit |= self._injected()
        if self.affinity:
            audit["node-affinity"] = "injected"
        if self.notes:
            audit["notes"] = "; ".join([note.en for note in self.notes])
        if declared:
            audit["declared"] = _listing(declared)
        if exempted:
            audit["exempted"] = _listing({rule: [exemption.name] for rule, exemption in exempted.items()})
        if violations:
            dry = [violation for violation in violations if violation.action is Action.DRYRUN]
            if others := [violation for violation in violations if violation.action is not Action.DRYRUN]:
                audit["violations"] = audit_list(others)
            if dry:
                audit["dryrun"] = audit_list(dry)
        return audit

    def _injected(self) -> dict[str, str]:
        """Return the annotations on what rules injected, and would inject without their dry run."""
        injected: dict[str, list[str]] = {}
        would_inject: dict[str, list[str]] = {}
        for rule, _, changes, _ in self.injections:
            if changes:
                texts = would_inject if rule.action is InjectionAction.DRYRUN else injected
                texts.setdefault(rule.name, []).extend(change_texts(changes))
        audit = {"injected": _listing(injected)} if injected else {}
        if would_inject:
            audit["would-inject"] = _listing(would_inject)
        return audit


class Observer:
    """Sees the records of a decision while it is made, for reports; admission has none."""

    def begin(self, record: Record) -> None:
        """Take the record of a pod, which is as it was submitted."""

    def complete(self, record: Record) -> None:
        """Take the record of a pod that is completed; its node affinity is still that of its author."""


def change_texts(changes: Iterable[Change]) -> list[str]:
    """Return changes for an audit annotation: `main: env NAME`, `hostIPC True`."""
    return [f"{container.name}: {name}" if container else name for container, name in changes]


def _listing(values: Mapping[str, Sequence[str]]) -> str:
    return "; ".join([f"{name} ({', '.join(texts)})" for name, texts in values.items()])
