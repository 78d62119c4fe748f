"""The policy: rules compiled for look-up. Immutable; a new one replaces it as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from rules.compatibility.prospects import Prospects
from rules.cuda.image_catalog import catalog_of
from rules.cuda.requirements import requirements_reader
from rules.cuda.tables import BUILT_IN
from rules.cuda.versions import CudaVersion
from rules.decision.exemptions import by_rule
from rules.kube.names import requesting_annotation
from rules.model.match import ResourceIndex
from rules.model.rule import Action, CompatibilityRule, InjectionRule, ResourceRule, RuleSet
from rules.model.workload_kinds import Workloads, built_in_workloads
from rules.nodes.gpu_resources import is_network_device
from rules.text.bounded_cache import bounded_cache
from rules.text.glob import Comparisons, similarity
from rules.text.i18n import Language

Names = tuple[str, ...]
R = TypeVar("R", InjectionRule, CompatibilityRule)

# Sets of resource names that containers request; a cluster has some dozens. 2 KB each at most.
_REMEMBERED: Final = 4096
_LONGEST: Final = 1024  # characters of the names in a set
# Minimum similarity of a misspelt name and the correct one: nvidia.com/gpus and nvidia.com/gpu have 0.97;
# example.com/gpu and amd.com/gpu, two different vendors' resources, have 0.77.
_MIN_SIMILARITY: Final = 0.9


class Plan(NamedTuple):
    """The rules for one set of resource names, each kind in the order of application.

    unnamed: the extended resources that no rule is for, except by a glob of an injection or compatibility
    rule; without network devices.
    """

    resources: tuple[ResourceRule, ...]
    injections: tuple[InjectionRule, ...]
    compatibility: tuple[CompatibilityRule, ...]
    unnamed: Names = ()


class Policy:
    """The enabled rules, by the resources that they match.

    plan_for: the plan for a container's resource names. correction_of: the resource of a rule that a name
    may be meant to be, or an empty string. requirements_of: GPU requirements from the facts of a
    container. exemptions: by the names of the rules that they exempt pods from. workloads: the kinds that
    hold pods. enforcement: the most that a decision may do. rules: all of them, the disabled ones, too.
    facts: what is known of images, drivers and GPUs. catalog: of images. annotation_requests: the
    annotations that are keys of rules, by name.
    """

    __slots__ = (
        "_compatibility",
        "_groups",
        "_injections",
        "_keys",
        "_known",
        "_main",
        "_named",
        "annotation_requests",
        "catalog",
        "correction_of",
        "enforcement",
        "exemptions",
        "facts",
        "language",
        "plan_for",
        "prospects",
        "requirements_of",
        "rules",
        "workloads",
    )

    def __init__(self, rules: RuleSet, language: Language, workloads: Workloads, enforcement: Action) -> None:
        self.rules = rules
        groups: dict[str, tuple[ResourceRule, ...]] = {}
        for rule in rules.resources:
            if rule.enabled:
                groups[rule.group] = (*groups.get(rule.group, ()), rule)
        main = [rule for rule in rules.resources if not rule.additional]
        self._keys = [rule.key for rule in main]
        self._main = ResourceIndex((rule.key, rule) for rule in main if rule.enabled)
        self.annotation_requests = {
            requesting_annotation(rule.key): rule.by_annotation
            for rule in rules.resources
            if rule.enabled and rule.by_annotation
        }
        self._known = ResourceIndex((key, key) for key in self._keys)
        matches = [rule.match for rule in rules.injections if rule.enabled]
        matches += [rule.match for rule in rules.compatibility if rule.enabled]
        self._named = frozenset(name for match in matches for name in match.resources)
        self._groups = ResourceIndex([*_users(groups.values())])
        self._injections = _by_resource(rules.injections)
        trials = (rule.trial for rule in rules.compatibility if rule.trial)
        self._compatibility = _by_resource((*rules.compatibility, *trials))
        own_images = (row for catalog in rules.images if catalog.enabled for row in catalog.rows)
        self.facts = rules.facts or BUILT_IN
        self.catalog = catalog_of(self.facts).preceded_by(own_images)
        self.requirements_of = requirements_reader(self.catalog)
        enabled = (profile for profile in rules.profiles if profile.enabled)
        self.prospects = Prospects(
            profile.pool._replace(capabilities=replace(profile.capabilities, facts=self.facts))
            for profile in enabled
        )
        self.exemptions = by_rule(rules.exemptions, rules)
        self.language = language
        self.workloads = workloads
        self.enforcement = enforcement
        self.plan_for = bounded_cache(
            self._compile, _REMEMBERED, lambda names: sum(map(len, names)) <= _LONGEST
        )
        self.correction_of = bounded_cache(
            self._correction_of, _REMEMBERED, lambda name: len(name) <= _LONGEST
        )

    def with_image_cuda(self, cuda: CudaVersion) -> Policy:
        """Return the policy as if all images whose CUDA version is known were rebuilt with another one."""
        after = copy(self)
        after.requirements_of = requirements_reader(self.catalog, cuda)
        return after

    def _compile(self, names: Names) -> Plan:
        """Return the plan for these resources: the rules of every group that they use, each once.

        Related rules follow those of the group.
        """
        applying = {rule.name: rule for name in names for group in self._groups.find(name) for rule in group}
        return Plan(
            tuple(applying.values()),
            _ranked(self._injections, names),
            _ranked(self._compatibility, names),
            tuple(name for name in names if "/" in name and not self._is_named(name)),
        )

    def _is_named(self, name: str) -> bool:
        return bool(self._main.find(name)) or name in self._named or is_network_device(name)

    def not_checked(self, names: Names, comparisons: Comparisons) -> list[tuple[str, str]]:
        """Return the extended resources that no rule is for, each with the one that it may be meant to be.

        A glob of other resources may match a misspelt name. comparisons: those of the object; a name that
        they do not admit is not compared with those of rules.
        """
        unnamed = self.plan_for(names).unnamed
        if not unnamed:
            return []
        meant = {name: self.correction_of(name) for name in unnamed if comparisons.admits(name)}
        return [
            (name, meant.get(name, ""))
            for name in unnamed
            if meant.get(name) or not (self._injections.find(name) or self._compatibility.find(name))
        ]

    def _correction_of(self, name: str) -> str:
        """Return the key of a rule that a resource name is almost equal to, or an empty string."""
        if self._known.find(name):  # by a rule that is disabled
            return ""
        best, meant = max(((_similarity(name, key), key) for key in self._keys), default=(0.0, ""))
        return meant if best else ""


def _users(groups: Iterable[tuple[ResourceRule, ...]]) -> Iterator[tuple[str, tuple[ResourceRule, ...]]]:
    """Yield the rules that apply by each key: those of its group, then those related to its rule."""
    by_key = {rule.key: rule for group in groups for rule in group if not rule.additional}
    yield from ((rule.key, group) for group in groups for rule in group)
    for rule in by_key.values():
        for other in filter(None, map(by_key.get, rule.related)):
            yield from ((rule.key, (other,)), (other.key, (rule,)))


def _similarity(name: str, key: str) -> float:
    """Return the similarity of a name and a key; of a glob, only the part before `*` counts."""
    fixed, star, _ = key.partition("*")
    return similarity(name[: len(fixed)] if star else name, fixed, _MIN_SIMILARITY)


def _ranked(index: ResourceIndex[tuple[int, R]], names: Names) -> tuple[R, ...]:
    """Return the rules that match one of the resources, in the order of their rank."""
    by_rank = {rank: rule for name in names for rank, rule in index.find(name)}
    return tuple(by_rank[rank] for rank in sorted(by_rank))


def _by_resource(rules: Iterable[R]) -> ResourceIndex[tuple[int, R]]:
    """Return the enabled rules by what they match, ranked by their names."""
    enabled = sorted((rule for rule in rules if rule.enabled), key=lambda rule: rule.name)
    return ResourceIndex(
        (name, (rank, rule)) for rank, rule in enumerate(enabled) for name in rule.match.resources
    )


def compile_policy(
    rules: RuleSet,
    language: Language = Language.EN,
    workloads: Workloads | None = None,
    enforcement: Action = Action.DENY,
) -> Policy:
    """Return the policy of the enabled rules. Rules of a kind apply in the order of their names.

    workloads: the kinds that hold pods, if other than the built-in ones. enforcement: caps the effect of all
    decisions, as `--enforcement-action` does.
    """
    return Policy(rules, language, workloads or built_in_workloads(), enforcement)
