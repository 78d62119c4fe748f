"""What decisions did not check, for people and in JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rules import AdmissionRequest, Decision, Language, Policy
from rules.decision.unrequested import servers_without_gpu
from rules.model.decision import NO_NODES, UNKNOWN_CUDA, NotChecked
from webhook.cli.terminal.vocabulary import NO_NODES_FOUND, NOT_CHECKED_MARK

# Why nothing is compared with nodes: the same for all objects.
WITHOUT_NODES: Final = (NO_NODES, NO_NODES_FOUND)
# Why an object is not compared with nodes.
OF_NODES: Final = (*WITHOUT_NODES, UNKNOWN_CUDA)


def completed(
    decision: Decision, request: AdmissionRequest, policy: Policy, *, nodes_given: bool
) -> Decision:
    """Return a decision whose `not_checked` has what admission does not look for.

    Model servers without a GPU; and if nodes were given and there are none, that. Raises ObjectError.
    """
    not_checked = tuple(
        NotChecked(path, NO_NODES_FOUND if nodes_given and reason is NO_NODES else reason)
        for path, reason in decision.not_checked
    )
    return decision._replace(not_checked=(*not_checked, *servers_without_gpu(policy, request)))


def not_checked_facts(decision: Decision, language: Language) -> list[dict[str, str]]:
    """Return the checks that a decision did not make, as JSON."""
    return [{"path": path, "reason": reason.in_language(language)} for path, reason in decision.not_checked]


def all_not_checked_lines(decision: Decision, language: Language) -> list[str]:
    """Return a line for each check that a decision did not make."""
    return [not_checked_line(entry, language) for entry in decision.not_checked]


def not_checked_lines(decision: Decision, language: Language) -> list[str]:
    """Return a line for each check that a decision did not make; `without_nodes` reports the others."""
    return [
        not_checked_line(entry, language)
        for entry in decision.not_checked
        if entry.reason not in WITHOUT_NODES
    ]


def not_checked_line(entry: NotChecked, language: Language) -> str:
    """Return the line for a check that a decision did not make: its place and the reason."""
    reason = entry.reason.in_language(language)
    return f"{entry.path}: {reason}" if entry.path else reason


def without_nodes(decisions: Iterable[Decision], language: Language) -> list[str]:
    """Return one line for all objects if an object was not compared with nodes because there are none."""
    reasons = {reason for decision in decisions for _, reason in decision.not_checked}
    return [
        f"{NOT_CHECKED_MARK} {reason.in_language(language)}" for reason in WITHOUT_NODES if reason in reasons
    ]
