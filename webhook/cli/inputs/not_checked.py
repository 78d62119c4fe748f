"""What decisions did not check, for people and in JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from rules import AdmissionRequest, Decision, Language, Policy
from rules.decision.unrequested import servers_without_gpu
from rules.model.decision import NO_NODES, UNKNOWN_CUDA, NotChecked
from rules.model.rule import Exemption
from rules.text.i18n import Joined, Message
from webhook.cli.terminal.vocabulary import (
    CUDA_NOT_CHECKED,
    EXEMPT,
    EXEMPTION_SCOPE,
    ITS_PODS,
    NO_ACCELERATORS,
    NO_NODES_FOUND,
    NOT_CHECKED_MARK,
)

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


def remarks(decision: Decision, *, has_devices: bool) -> list[Message]:
    """Return what the heading of an object says besides its result.

    has_devices: whether one of its pods requests an extended resource or a claim.
    """
    if not has_devices:
        return [] if decision.not_checked else [NO_ACCELERATORS]
    pods = [ITS_PODS] if decision.pods_patch else []
    unchecked = decision.allowed and any(reason in WITHOUT_NODES for _, reason in decision.not_checked)
    return [*pods, CUDA_NOT_CHECKED] if unchecked else pods


def exemption_lines(decision: Decision) -> Iterator[Message]:
    """Yield a line for each exemption, with the rules that have no effect by it."""
    by_exemption: dict[Exemption, list[str]] = {}
    for rule, exemption in decision.exempted:
        by_exemption.setdefault(exemption, []).append(rule)
    for exemption, names in by_exemption.items():
        scope = EXEMPTION_SCOPE.having(until=exemption.until, rules=", ".join(names))
        yield EXEMPT.having(why=Joined(" ", [exemption.name, scope]))


def without_nodes(decisions: Iterable[Decision], language: Language) -> list[str]:
    """Return one line for all objects if an object was not compared with nodes because there are none."""
    reasons = {reason for decision in decisions for _, reason in decision.not_checked}
    return [
        f"{NOT_CHECKED_MARK} {reason.in_language(language)}" for reason in WITHOUT_NODES if reason in reasons
    ]
