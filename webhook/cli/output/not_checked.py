"""What decisions did not check, for people and in JSON."""

from __future__ import annotations

from collections.abc import Iterable

from rules import Decision, Language
from rules.model.decision import NO_NODES
from webhook.cli.output.vocabulary import NOT_CHECKED_MARK


def not_checked_facts(decision: Decision, language: Language) -> list[dict[str, str]]:
    """Return what a decision did not check, for JSON."""
    return [{"path": path, "reason": reason.in_language(language)} for path, reason in decision.not_checked]


def not_checked_lines(decision: Decision, language: Language) -> list[str]:
    """Return a line for each thing that a decision did not check, except what `without_nodes` says."""
    return [
        f"{path}: {reason.in_language(language)}" if path else reason.in_language(language)
        for path, reason in decision.not_checked
        if reason != NO_NODES
    ]


def without_nodes(decisions: Iterable[Decision], language: Language) -> list[str]:
    """Return the line that says, once for all objects, that no nodes are known, if an object needs them."""
    if any(reason == NO_NODES for decision in decisions for _, reason in decision.not_checked):
        return [f"{NOT_CHECKED_MARK} {NO_NODES.in_language(language)}"]
    return []
