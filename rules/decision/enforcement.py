"""The cap on the effect of decisions (`serve --enforcement-action`), and of kinds that are never denied.

A decision is made as if it were enforced, so that what is reported is what enforcement would do; then its
effect is capped here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from rules.decision import messages
from rules.model.decision import CAP_ANNOTATION, AdmissionWarning, Decision, Effect, Violation
from rules.model.rule import Action, mildest
from rules.text.i18n import Language

_AFFINITY: Final = "node-affinity"
# Audit annotations of what a decision changes, and those of what it would change.
_CHANGES: Final = {"injected": "would-inject", "defaulted": "would-default"}


def warning_lines(
    language: Language, violations: Iterable[Violation], warnings: Iterable[AdmissionWarning] = ()
) -> tuple[str, ...]:
    """Return the lines of the violations that only warn, and of warnings, each once."""
    mild = [each.warning for each in violations if each.action is Action.WARN]
    return tuple(messages.warning_line(language, each) for each in dict.fromkeys([*mild, *warnings]))


def permitted(decision: Decision, language: Language) -> Decision:
    """Return a decision that warns of what it denied."""
    violations = tuple(
        replace(each, action=mildest(each.action, Action.WARN)) for each in decision.violations
    )
    warnings = dict.fromkeys((*warning_lines(language, violations), *decision.warnings))
    return decision._replace(allowed=True, message="", violations=violations, warnings=tuple(warnings))


def capped(decision: Decision, cap: Action, language: Language, *, mutating: bool) -> Decision:
    """Return a decision with its effect capped.

    cap: `deny` leaves it as it is; `warn` warns of what it denied, and keeps its patch; `dryrun` answers
    nothing but audit annotations. mutating: whether the answer may have a patch.
    """
    if cap is Action.DENY:
        return decision._replace(patch=()) if decision.patch and not decision.allowed else decision
    withheld, audit = None, {**decision.audit}
    violations = tuple(
        replace(each, action=mildest(each.action, cap), rule_action=each.action)
        for each in decision.violations
    )
    if not decision.allowed:
        withheld, decision = Effect.DENY, permitted(decision, language)
    if cap is Action.DRYRUN:
        if decision.patch and mutating and not withheld:
            withheld = Effect.PATCH
        audit, decision = _of_dry_run(audit), decision._replace(notices=(), warnings=(), patch=())
    audit[CAP_ANNOTATION] = f"{cap.value}, would {withheld.value}" if withheld else cap.value
    return decision._replace(violations=violations, audit=audit, withheld=withheld)


def _of_dry_run(audit: dict[str, str]) -> dict[str, str]:
    """Return the audit annotations of a decision that changes and denies nothing."""
    renamed: dict[str, list[str]] = {}
    for name, text in audit.items():
        new = "dryrun" if name == "violations" else _CHANGES.get(name, name)
        renamed.setdefault(new, []).append("would be injected" if name == _AFFINITY else text)
    return {name: "; ".join(texts) for name, texts in renamed.items()}
