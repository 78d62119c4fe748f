"""What decisions did not check, for people and in JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules import Decision, Language
from rules.model.decision import NO_NODES, UNKNOWN_CUDA, NotChecked
from webhook.cli.terminal.vocabulary import NO_NODES_FOUND, NOT_CHECKED_MARK

# Why nothing is compared with nodes: the same for all objects.
WITHOUT_NODES: Final = (NO_NODES, NO_NODES_FOUND)
# Why an object is not compared with nodes.
OF_NODES: Final = (*WITHOUT_NODES, UNKNOWN_CUDA)


def with_inventory(decision: Decision, *, nodes_given: bool) -> Decision:
    """Return a decision that says of a cluster or file without nodes that it has none."""
    if not nodes_given:
        return decision
    found = tuple(
        NotChecked(path, NO_NODES_FOUND if reason is NO_NODES else reason)
        for path, reason in decision.not_checked
    )
    return decision._replace(not_checked=found)


def not_checked_facts(decision: Decision, language: Language) -> list[dict[str, str]]:
    """Return what a decision did not check, for JSON."""
    return [{"path": path, "reason": reason.in_language(language)} for path, reason in decision.not_checked]


def all_not_checked_lines(decision: Decision, language: Language) -> list[str]:
    """Return a line for each thing that a decision did not check."""
    return [not_checked_line(found, language) for found in decision.not_checked]


def not_checked_lines(decision: Decision, language: Language) -> list[str]:
    """Return a line for each thing that a decision did not check, except what `without_nodes` says."""
    return [
        not_checked_line(found, language)
        for found in decision.not_checked
        if found.reason not in WITHOUT_NODES
    ]


def not_checked_line(found: NotChecked, language: Language) -> str:
    """Return the line that says what a decision did not check, and why."""
    reason = found.reason.in_language(language)
    return f"{found.path}: {reason}" if found.path else reason


def without_nodes(decisions: Iterable[Decision], language: Language) -> list[str]:
    """Return the line that says, once for all objects, that no nodes are known, if an object needs them."""
    found = {reason for decision in decisions for _, reason in decision.not_checked}
    return [f"{NOT_CHECKED_MARK} {each.in_language(language)}" for each in WITHOUT_NODES if each in found]
