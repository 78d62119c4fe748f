"""Rules compiled for look-up: what a request is decided by. Immutable; a new one replaces it whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rules.match import ResourceIndex
from rules.model import InjectionRule, Language, ResourceRule, RuleSet


@dataclass(frozen=True, slots=True)
class Policy:
    """The enabled rules by the resources that bring them in.

    groups: for a resource, the rules of its group. injections: for a resource, each rule with its rank in the
    order of application.
    """

    groups: ResourceIndex[tuple[ResourceRule, ...]]
    injections: ResourceIndex[tuple[int, InjectionRule]]
    language: Language = Language.EN

    def groups_of(self, names: Iterable[str]) -> list[ResourceRule]:
        """Return the rules of every group that one of the resources belongs to, each once."""
        found = {id(group): group for name in names for group in self.groups.find(name)}
        return [rule for group in found.values() for rule in group]

    def injections_of(self, names: Iterable[str]) -> list[InjectionRule]:
        """Return the injection rules that one of the resources brings in, in the order of application."""
        found = {rank: rule for name in names for rank, rule in self.injections.find(name)}
        return [found[rank] for rank in sorted(found)]


def compile_policy(rules: RuleSet, language: Language = Language.EN) -> Policy:
    """Return the policy of the enabled rules. Injection rules apply in the order of their names."""
    groups: dict[str, tuple[ResourceRule, ...]] = {}
    for rule in rules.resources:
        if rule.enabled:
            groups[rule.group] = (*groups.get(rule.group, ()), rule)
    injections = sorted((rule for rule in rules.injections if rule.enabled), key=lambda rule: rule.name)
    return Policy(
        groups=ResourceIndex((rule.key, group) for group in groups.values() for rule in group),
        injections=ResourceIndex(
            (name, (rank, rule)) for rank, rule in enumerate(injections) for name in rule.match.resources
        ),
        language=language,
    )
