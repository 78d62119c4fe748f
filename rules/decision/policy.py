"""Rules compiled for look-up: what a request is decided by. Immutable; a new one replaces it whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from rules.cuda.facts import reader
from rules.cuda.image_catalog import built_in_catalog
from rules.decision.exemptions import by_rule
from rules.decision.likeness import Likeness
from rules.decision.reads import Reads, reads_of
from rules.model.resource_index import ResourceIndex
from rules.model.rule import CompatibilityRule, InjectionRule, ResourceRule, RuleSet
from rules.model.workload_kinds import Workloads, built_in_workloads
from rules.text.bounded_cache import bounded_cache
from rules.text.i18n import Language

Names = tuple[str, ...]
T = TypeVar("T")
R = TypeVar("R", InjectionRule, CompatibilityRule)

# Sets of resource names that containers ask for at once; a cluster has some dozens. 2 KB each at most.
_REMEMBERED: Final = 4096
_LONGEST: Final = 1024  # characters of the names in a set


class Policy:
    """The enabled rules by the resources that bring them in.

    groups_of: for a container's resources, the rules of their groups. injections_of, compatibility_of: the
    rules that they bring in, in the order of application. reads_of: what all of them read of a pod. needs_of:
    what follows from the facts of a container. These five remember what they found. likeness: which images
    and labels are the same to them. exemptions: by the names of the rules that they exempt some pods from.
    workloads: the kinds that hold pods.
    """

    __slots__ = (
        "_groups",
        "compatibility_of",
        "exemptions",
        "groups_of",
        "injections_of",
        "language",
        "likeness",
        "reads_of",
        "requirements_of",
        "workloads",
    )

    def __init__(self, rules: RuleSet, language: Language, workloads: Workloads) -> None:
        groups: dict[str, tuple[ResourceRule, ...]] = {}
        for rule in rules.resources:
            if rule.enabled:
                groups[rule.group] = (*groups.get(rule.group, ()), rule)
        self._groups = ResourceIndex((rule.key, group) for group in groups.values() for rule in group)
        own_images = (row for catalog in rules.images if catalog.enabled for row in catalog.rows)
        images = built_in_catalog().preceded_by(own_images)
        self.requirements_of = reader(images)
        self.exemptions = by_rule(rules.exemptions, rules)
        self.language = language
        self.workloads = workloads
        self.groups_of = _remembered(self._find_groups)
        self.injections_of = _remembered(partial(_ranked, _by_resource(rules.injections)))
        self.compatibility_of = _remembered(partial(_ranked, _by_resource(rules.compatibility)))
        self.reads_of = _remembered(self._find_reads)
        self.likeness = Likeness(self.reads_of, images.look_up)

    def _find_reads(self, names: Names) -> Reads | None:
        """Return what the rules read that resources bring in, and those that defaults put beside them."""
        reached: Names = ()
        named = names
        while reached != names:
            reached = names
            found = self._find_groups(names)
            names = tuple(dict.fromkeys((*names, *(rule.key for rule in found if rule.default))))
        exemptions = {id(found): found for each in self.exemptions.values() for found in each}
        return reads_of(
            named,
            self._find_groups(names),
            self.injections_of(names),
            self.compatibility_of(names),
            exemptions.values(),
        )

    def _find_groups(self, names: Names) -> tuple[ResourceRule, ...]:
        """Return the rules of every group that one of the resources belongs to, each once."""
        found = {id(group): group for name in names for group in self._groups.find(name)}
        return tuple(rule for group in found.values() for rule in group)


def _remembered(find: Callable[[Names], T]) -> Callable[[Names], T]:
    return bounded_cache(find, _REMEMBERED, lambda names: sum(map(len, names)) <= _LONGEST)


def _ranked(index: ResourceIndex[tuple[int, T]], names: Names) -> tuple[T, ...]:
    """Return the rules that one of the resources brings in, in the order of their rank."""
    found = {rank: rule for name in names for rank, rule in index.find(name)}
    return tuple(found[rank] for rank in sorted(found))


def _by_resource(rules: Iterable[R]) -> ResourceIndex[tuple[int, R]]:
    """Return the enabled rules by what they match, ranked by their names."""
    enabled = sorted((rule for rule in rules if rule.enabled), key=lambda rule: rule.name)
    return ResourceIndex(
        (name, (rank, rule)) for rank, rule in enumerate(enabled) for name in rule.match.resources
    )


def compile_policy(
    rules: RuleSet, language: Language = Language.EN, workloads: Workloads | None = None
) -> Policy:
    """Return the policy of the enabled rules. Rules of a kind apply in the order of their names.

    workloads: the kinds that hold pods, where they are others than those that ship.
    """
    return Policy(rules, language, workloads or built_in_workloads())
