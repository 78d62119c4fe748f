"""Rule files checked: every mistake with its place, and what loads but may not do what was meant.

Doubts look at the whole rule set: two rules that are sound alone may be at odds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rules.decision.exemptions import exempted
from rules.lint.rule_checks import LintWarning, contradictions, rule_warnings
from rules.model.match import Match
from rules.model.resource_index import ResourceIndex
from rules.model.rule import (
    CompatibilityRule,
    EnvFromResource,
    Exemption,
    InjectionAction,
    InjectionRule,
    LimitsPolicy,
    RequestsPolicy,
    ResourceRule,
    RuleSet,
)
from rules.schema.errors import Code, RuleError, suggestion
from rules.schema.loader import DEFAULT_NAMESPACE, Loaded, load_placed
from rules.text.glob import covers, glob, is_glob, overlap

if TYPE_CHECKING:
    import re

    from rules.text.paths import Path

T = TypeVar("T")

# How alike two names are that are one, misspelt: one letter of seven may differ (gpucore, gpucores), while
# gpu-mem and gpu-memory, which both exist, are 0.82 alike.
_ALIKE: Final = 0.85


def lint(texts: Iterable[tuple[str, str]], now: float, namespace: str = DEFAULT_NAMESPACE) -> Loaded:
    """Return what `load` does, with every doubt among the warnings. now: seconds since the epoch."""
    loaded, locate = load_placed(texts, namespace)
    found = (
        RuleError(locate(doubt.rule, doubt.path), doubt.path, doubt.message, doubt.rule, doubt.code)
        for doubt in rule_set_warnings(loaded.rules, now)
    )
    return replace(loaded, warnings=(*loaded.warnings, *found))


def rule_set_warnings(
    rules: RuleSet, now: float, names: Collection[str] | None = None
) -> Iterator[LintWarning]:
    """Yield what is doubtful about rules, each alone and all together. now: seconds since the epoch.

    names: of the rules to tell about, all where it is None. A few of many take the time of the few.
    """
    asked = {rule.name for rule in rules} if names is None else frozenset(names)
    yield from (doubt for doubt in _doubts(rules, now, asked) if doubt.rule in asked)


def _doubts(rules: RuleSet, now: float, asked: Collection[str]) -> Iterator[LintWarning]:
    """Yield what is doubtful about the rules that are asked about, and perhaps about others."""
    for rule in rules:
        if rule.name in asked:
            yield from rule_warnings(rule)
    groups: dict[str, list[ResourceRule]] = defaultdict(list)
    for rule in rules.resources:
        groups[rule.group].append(rule)
    claimed = {rule.key for rule in rules.resources if rule.enabled}
    for name, members in groups.items():
        if any(rule.name in asked for rule in members):
            yield from _half(name, members, claimed)
            yield from _excluded_companions(members)
    yield from _misspelt(rules, asked)
    yield from _volumes(rules.injections)
    yield from _competitors(rules.injections, asked)
    for exemption in rules.exemptions:
        if exemption.name in asked:
            yield from _exemption(exemption, rules, now)


def _half(group: str, members: list[ResourceRule], claimed: Collection[str]) -> Iterator[LintWarning]:
    """Yield a rule that is off beside others of its group, but for where another rules its resource."""
    on = [rule.name for rule in members if rule.enabled]
    for rule in members if on else ():
        if not rule.enabled and rule.key not in claimed:
            told = f"is off while others of group {group!r} are on ({', '.join(on)}): nothing is held to "
            told += f"{rule.key}; switch all of the group, or give this rule a group of its own"
            yield LintWarning(rule.name, ("metadata", "labels"), Code.HALF_GROUP, told)


def _excluded_companions(members: list[ResourceRule]) -> Iterator[LintWarning]:
    """Yield a rule that excludes what its own group puts into every container, or requires of it."""
    always = [rule for rule in members if rule.enabled and _is_everywhere(rule)]
    for rule in members if always else ():
        for other in always:
            if rule.enabled and other.key != rule.key and rule.excludes.find(other.key):
                told = f"excludes {other.key}, which {other.name} wants in every container of the group: "
                told += f"none with {rule.key} passes; make {other.key} optional, without a default"
                yield LintWarning(rule.name, ("data", "excludeResources"), Code.NEVER_SATISFIED, told)


def _is_everywhere(rule: ResourceRule) -> bool:
    """Tell whether every container that uses the rule's group has the rule's resource, or is refused."""
    wanted = rule.limits is LimitsPolicy.REQUIRED or rule.requests is RequestsPolicy.REQUIRED
    return wanted or (bool(rule.default) and rule.limits is not LimitsPolicy.DISABLED)


def _misspelt(rules: RuleSet, asked: Collection[str]) -> Iterator[LintWarning]:
    """Yield resources that no rule is for, and that are spelt almost as one that a rule is for."""
    known = [rule.key for rule in rules.resources]
    index = ResourceIndex((key, key) for key in known)
    for name, path, resource in _named(rules):
        if name not in asked or is_glob(resource) or index.find(resource):
            continue
        for key in known:
            if _alike(resource, key):
                told = f"no rule here is for {resource!r} – did you mean {key!r}?"
                yield LintWarning(name, path, Code.MISSPELT_RESOURCE, told)
                break


def _named(rules: RuleSet) -> Iterator[tuple[str, Path, str]]:
    """Yield (rule, path, resource) for each resource that a rule names beside the one that it is for."""
    for excluding in rules.resources:
        for resource in excluding.excludes:
            yield excluding.name, ("data", "excludeResources"), resource
    matching: list[InjectionRule | CompatibilityRule] = [*rules.injections, *rules.compatibility]
    for rule in matching:
        for index, resource in enumerate(rule.match.resources):
            yield rule.name, ("match", "resources", index), resource
    for injection in rules.injections:
        for index, (_, source) in enumerate(injection.inject.env):
            if isinstance(source, EnvFromResource):
                yield injection.name, ("inject", "env", index, "fromResource", "name"), source.resource


def _alike(one: str, other: str) -> bool:
    """Tell whether domains and names are each alike, but not all the same."""
    pairs = zip(one.partition("/"), other.partition("/"), strict=True)
    return one != other and all(this == that or _near(this, that) for this, that in pairs)


def _near(one: str, other: str) -> bool:
    matcher = SequenceMatcher(None, one, other)
    bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)  # each lower than the one before
    return all(bound() >= _ALIKE for bound in bounds)


def _volumes(rules: Iterable[InjectionRule]) -> Iterator[LintWarning]:
    """Yield mounts of volumes that no rule brings: the API refuses pods that have none of that name."""
    kept = list(rules)
    brought = {volume["name"] for rule in kept for volume in rule.inject.volumes}
    for rule in kept:
        for index, mount in enumerate(rule.inject.volume_mounts):
            if mount["name"] not in brought:
                told = f"no rule brings a volume {mount['name']!r}{suggestion(mount['name'], brought)}"
                told += "; list it under volumes, or pods without one are refused"
                yield LintWarning(
                    rule.name, ("inject", "volumeMounts", index, "name"), Code.MISSING_VOLUME, told
                )


def _competitors(rules: Iterable[InjectionRule], asked: Collection[str]) -> Iterator[LintWarning]:
    """Yield variables that two rules, one asked about, give to a container with different values.

    Rules apply in the order of their names, and what stands is kept unless a rule overrides. A narrow rule
    that has the last word over a wide one is meant so.
    """
    by_variable: dict[str, list[tuple[InjectionRule, int, Any]]] = defaultdict(list)
    for rule in sorted(rules, key=lambda rule: rule.name):
        if rule.enabled and rule.action is InjectionAction.INJECT:
            for index, (name, value) in enumerate(rule.inject.env):
                by_variable[name].append((rule, index, value))
    for name, givers in by_variable.items():
        for first, second in _pairs(givers, lambda giver: giver[0].name in asked):
            overrides = second[0].override
            (stands, _, kept), (yields, index, lost) = (second, first) if overrides else (first, second)
            if kept == lost or not _may_meet(stands.match, yields.match):
                continue
            if not _wider(yields.match, stands.match):
                why = "overrides" if overrides else "comes first by name"
                told = f"{name} has another value in {stands.name} ({stands.location}), which {why}: for "
                told += "pods that both match, this one is not used; narrow one of the matches"
                yield LintWarning(yields.name, ("inject", "env", index, "name"), Code.COMPETING_VALUES, told)


def _pairs(kept: Iterable[T], asked: Callable[[T], bool]) -> Iterator[tuple[T, T]]:
    """Yield each pair, in order, of which one at least is asked about."""
    all_before: list[T] = []
    asked_before: list[T] = []
    for second in kept:
        is_asked = asked(second)
        for first in all_before if is_asked else asked_before:
            yield first, second
        all_before.append(second)
        if is_asked:
            asked_before.append(second)


def _may_meet(one: Match, other: Match) -> bool:
    """Tell whether some container is matched by both; two rules with conditions are taken to know better."""
    if one.conditions and other.conditions:
        return False
    return (
        any(_names_meet(left, right) for left in one.resources for right in other.resources)
        and _lists_meet(one.images, other.images, _within)
        and _lists_meet(one.include, other.include, overlap)
        and not _shut_out(one, other)
        and not _shut_out(other, one)
        and not contradictions((*one.selector, *other.selector))
    )


def _names_meet(one: str, other: str) -> bool:
    """Tell whether two names, which may be globs, stand for some resource both."""
    return one == other or ((is_glob(one) or is_glob(other)) and overlap(glob(one), glob(other)))


def _lists_meet(
    one: Sequence[re.Pattern[str]],
    other: Sequence[re.Pattern[str]],
    meet: Callable[[re.Pattern[str], re.Pattern[str]], bool],
) -> bool:
    return not one or not other or any(meet(left, right) for left in one for right in other)


def _within(one: re.Pattern[str], other: re.Pattern[str]) -> bool:
    """Tell whether one of two is within the other: `*/paddle*` and `*/torch*` meet, but nobody means that."""
    return covers(one, other) or covers(other, one)


def _shut_out(one: Match, other: Match) -> bool:
    """Tell whether all namespaces that one includes are excluded by the other."""
    return bool(one.include) and _takes_in(other.exclude, one.include)


def _wider(one: Match, other: Match) -> bool:
    """Tell whether a match plainly takes in all that another does, and is not the same."""
    lists = [(match.images, match.include) for match in (one, other)]
    others = [(match.exclude, match.selector, match.conditions) for match in (one, other)]
    return (
        (one.resources, lists[0], others[0]) != (other.resources, lists[1], others[1])
        and _takes_in([glob(name) for name in one.resources], [glob(name) for name in other.resources])
        and all(not wide or (narrow and _takes_in(wide, narrow)) for wide, narrow in zip(*lists, strict=True))
        and all(not wide or wide == narrow for wide, narrow in zip(*others, strict=True))
    )


def _takes_in(wide: Sequence[re.Pattern[str]], narrow: Sequence[re.Pattern[str]]) -> bool:
    return all(any(covers(pattern, inside) for pattern in wide) for inside in narrow)


def _exemption(exemption: Exemption, rules: RuleSet, now: float) -> Iterator[LintWarning]:
    if not exemption.enabled:
        return
    if exemption.expires <= now:
        told = f"expired at {exemption.until} and has no effect; renew or remove it"
        yield LintWarning(exemption.name, ("expires",), Code.EXPIRED, told)
    names = [rule.name for rule in rules if not isinstance(rule, Exemption)]
    for index, name in enumerate(exemption.rules):
        if not exempted(replace(exemption, rules=(name,)), rules):
            told = f"{name!r} names no rule here that decides anything{suggestion(name, names)}; "
            told += "check exemptions together with the rules they are for"
            yield LintWarning(exemption.name, ("rules", index), Code.EXEMPTS_NOTHING, told)
    match = exemption.match
    if not (match.include or match.exclude or match.selector or exemption.service_accounts):
        told = "exempts every pod; name namespaces, podSelector or serviceAccounts, or switch the rules off"
        yield LintWarning(exemption.name, ("rules",), Code.EXEMPTS_EVERYONE, told)
