"""An explanation of a decision as JSON, and the mark, word and colour of its result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from rules import Language, Violation
from rules.kube.json_patch import pointer
from rules.model.decision import with_fix
from rules.report.explain import Explanation
from rules.report.trace import Edit, RuleEvaluation, RuleOutcome
from rules.text.i18n import Text as Words
from webhook.cli.output.not_checked import not_checked_facts
from webhook.cli.output.vocabulary import DENIED, NOT_CHECKED_MARK, PATCHED, SKIPPED, UNCHANGED

# Outcomes of most rules; hidden by default.
HIDDEN: Final = (RuleOutcome.NOT_APPLICABLE, RuleOutcome.DISABLED)
MARKS: Final = {
    RuleOutcome.MATCHED: ("✓", "green"),
    RuleOutcome.NOT_MATCHED: ("·", "dim"),
    RuleOutcome.EVALUATION_ERROR: ("!", "yellow"),
    RuleOutcome.EXEMPTED: ("~", "cyan"),
    RuleOutcome.NOT_APPLICABLE: ("·", "dim"),
    RuleOutcome.DISABLED: ("·", "dim"),
}


def explanation_facts(explanation: Explanation, language: Language, *, everything: bool) -> dict[str, Any]:
    """Return an explanation as JSON. everything: with rules that are not applicable or disabled."""
    return {
        "allowed": explanation.decision.allowed,
        "outOfScope": explanation.out_of_scope,
        "pods": [
            {
                "path": pointer(pod.path),
                "containers": [
                    {
                        "name": container.name,
                        "kind": container.kind,
                        "image": container.image,
                        "resources": container.requests,
                        "rules": [
                            _rule(each, language)
                            for each in container.evaluations
                            if everything or each.outcome not in HIDDEN
                        ],
                    }
                    for container in pod.containers
                ],
                "edits": [_edit(edit) for edit in pod.own],
            }
            for pod in explanation.pods
        ],
        "violations": [_violation(found) for found in explanation.violations],
        "warnings": explanation.warnings,
        "notes": [note.in_language(language) for note in explanation.decision.notes],
        "notChecked": not_checked_facts(explanation.decision, language),
    }


def _rule(evaluation: RuleEvaluation, language: Language) -> dict[str, Any]:
    return {
        "name": evaluation.rule.name,
        "source": source_of(evaluation),
        "outcome": evaluation.outcome,
        "why": evaluation.why,
        "requirements": evaluation.requirements,
        "runtimes": evaluation.runtimes,
        "edits": [_edit(edit) for edit in evaluation.edits],
        "would": evaluation.would,
        "unused": evaluation.unused,
        "violations": [_violation(found) for found in evaluation.violations],
        "warnings": [with_fix(warning.reason, warning.fix, language) for warning in evaluation.warnings],
    }


def _edit(edit: Edit) -> dict[str, Any]:
    return {"path": pointer(edit.path), "value": edit.value, "rule": edit.rule, "reason": edit.reason}


def _violation(found: Violation) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "action": found.action,
        "basis": found.basis,
        "certainty": found.certainty,
        "path": found.path,
        "message": found.message,
    }


def result_of(explanation: Explanation) -> tuple[str, Words, str]:
    """Return the mark, the word and the colour of the result."""
    if explanation.out_of_scope:
        return NOT_CHECKED_MARK, SKIPPED, "dim"
    if not explanation.decision.allowed:
        return "✗", DENIED, "red"
    if explanation.decision.patch:
        return "✎", PATCHED, "green"
    looked_at = explanation.decision.rules or not explanation.decision.not_checked
    return ("✓", UNCHANGED, "green") if looked_at else (NOT_CHECKED_MARK, UNCHANGED, "dim")


def source_of(evaluation: RuleEvaluation) -> str:
    """Return file and line of a rule."""
    return str(replace(evaluation.rule.location, column=0))
