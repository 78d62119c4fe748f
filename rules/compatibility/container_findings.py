"""What is wrong with containers whatever their node, as violations and warnings."""

from __future__ import annotations

from collections.abc import Iterable

from rules.compatibility.checks import check_on_any_node
from rules.compatibility.checks.base import ContainerFinding
from rules.compatibility.report import MessageWriter
from rules.compatibility.result import RuleRequirement
from rules.kube.pod import Container
from rules.model.check_result import Level
from rules.model.decision import AdmissionWarning, Basis, Violation
from rules.model.rule import Action, CompatibilityRule, mildest
from rules.text.i18n import Text
from rules.text.paths import Path, field_path


def report_findings(
    findings: Iterable[tuple[Container, CompatibilityRule, ContainerFinding]],
    writer: MessageWriter,
    violations: list[Violation],
    warnings: list[AdmissionWarning],
) -> None:
    """Add findings on containers to violations and warnings, each once: by the rule that is strictest."""

    def effect(finding: tuple[Container, CompatibilityRule, ContainerFinding]) -> int:
        _, rule, (result, _) = finding
        action = rule.action if result.level is Level.INCOMPATIBLE else mildest(rule.action, Action.WARN)
        return [*Action].index(action)

    reported: set[tuple[Path, Text]] = set()
    for container, rule, (result, path) in sorted(findings, key=effect):
        if (path, result.reason) in reported:
            continue
        reported.add((path, result.reason))
        found = writer.anywhere(container.name, result)
        if result.level is Level.INCOMPATIBLE:
            basis = Basis.POLICY if result.setting else Basis.FACT
            at = field_path(path)
            violations.append(Violation(rule.name, rule.action, at, *found, writer.language, basis))
        elif rule.action is not Action.DRYRUN:
            warnings.append(AdmissionWarning(rule.name, *found))


def report_on_any_node(
    container: Container,
    required: RuleRequirement,
    writer: MessageWriter,
    violations: list[Violation],
    warnings: list[AdmissionWarning],
) -> bool:
    """Add what holds on every node to violations and warnings; return whether a requirement is unmet."""
    rule, requirements = required
    if requirements.declared and rule.declarations:
        violations.append(writer.declared(rule, rule.declarations, container, requirements.declared))
    results = check_on_any_node(rule.sharing, requirements)
    if not results and not requirements.problems:
        return False
    if rule.action is not Action.DRYRUN:
        warnings += (AdmissionWarning(rule.name, writer.of(problem)) for problem in requirements.problems)
        mild = (result for result in results if result.level < Level.INCOMPATIBLE)
        warnings += (AdmissionWarning(rule.name, *writer.anywhere(container.name, each)) for each in mild)
    unmet = [result for result in results if result.level is Level.INCOMPATIBLE]
    path = field_path((*container.path, "image"))
    violations += (
        Violation(
            rule.name,
            rule.action,
            path,
            *writer.anywhere(container.name, each),
            writer.language,
            Basis.POLICY if each.setting else Basis.FACT,
        )
        for each in unmet
    )
    return bool(unmet)
