"""Lint of rule files: errors with their locations, and warnings about rules that load.

Warnings take the whole rule set into account: two valid rules can conflict.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from rules.cel.expression import number as number_of
from rules.cuda.gpu_memory import MIB, shown, unit_of
from rules.cuda.tables import BUILT_IN
from rules.decision.exemptions import exempted
from rules.decision.injection_stage import environment_value
from rules.lint.profile_differences import contradicting_profiles, differences_of_rules
from rules.lint.rule_checks import LintWarning, contradictions, fails, rule_warnings
from rules.model.match import Match, ResourceIndex
from rules.model.rule import (
    CompatibilityRule,
    EnvFromResource,
    Exemption,
    InjectionAction,
    InjectionRule,
    LimitsPolicy,
    RequestsPolicy,
    ResourceRule,
    Rule,
    RuleSet,
    Setting,
    exclusive_key,
    settings_of,
)
from rules.nodes.inventory import Inventory
from rules.schema.config_map import DEFAULT_NAMESPACE, Loaded, Source
from rules.schema.errors import Code, RuleError, did_you_mean, suggested
from rules.schema.loader import also_used, load_placed
from rules.text.glob import covers, glob, glob_text, is_glob, overlap
from rules.text.i18n import Message

if TYPE_CHECKING:
    from rules.cel.expression import Expression
    from rules.text.paths import Path

T = TypeVar("T")

# Minimum similarity of a misspelt name: one letter of seven may differ (gpucore, gpucores). gpu-mem and
# gpu-memory, which both exist, have 0.82.
_MIN_SIMILARITY: Final = 0.85
# The key of a built-in resource rule, in its file.
_KEY: Final = re.compile(r"^  key: (\S+)$", re.MULTILINE)
_ADDITIONAL: Final = '  additional: "true"\n'
_NO_RULES: Final = RuleSet()
# Devices of one node.
_MOST_COUNTED: Final = 8
_OVERRIDES: Final = Message("overrides this rule")
_UNUSED: Final = Message(
    "conflicting values: {name} has another value in {rule_name} ({location}), which {why}; this value is "
    "not used if both match; narrow one of the matches"
)
_DISPLACES: Final = Message(
    "conflicting values: {name} has another value in {rule_name} ({location}), which is not used if both "
    "match, because this rule applies first; narrow this match, or disable {rule_name}"
)
# By whether the other rule is a resource rule.
_FIRST: Final = (
    Message("comes first by name"),
    Message("applies first, as a resource rule"),
)


def lint(
    sources: Iterable[Source],
    now: float,
    namespace: str = DEFAULT_NAMESPACE,
    inventory: Inventory | None = None,
    others: RuleSet = _NO_RULES,
) -> Loaded:
    """Return the result of `load_rules` with all lint warnings.

    now: seconds since the epoch.
    inventory: the nodes with which profiles are compared.
    others: further rules in force; a rule of the sources replaces the one of its name. Only conflicts with
        them are reported.
    """
    loaded, locate = load_placed(sources, namespace)
    names = {rule.name for rule in loaded.rules}
    kept = [rule for rule in others if rule.name not in names]
    warnings = [*rule_set_warnings(RuleSet.of([*loaded.rules, *kept]), now, names)]
    warnings += _same_keys(loaded.rules, kept)
    warnings += _displaced_values(RuleSet.of([*loaded.rules, *kept]), names)
    if inventory is not None:
        warnings += [
            LintWarning(
                difference.profile,
                ("offers", difference.fact),
                Code.CONTRADICTION,
                difference.message(inventory),
            )
            for difference in differences_of_rules(loaded.rules, inventory)
        ]
    located = (
        RuleError(locate(rule, path), path, message, rule, code) for rule, path, code, message in warnings
    )
    return replace(loaded, warnings=(*loaded.warnings, *located))


def _same_keys(rules: RuleSet, others: Iterable[Rule]) -> Iterator[LintWarning]:
    """Yield resource rules with the key of another rule in force: a cluster would load neither."""
    by_key: dict[str, list[ResourceRule]] = defaultdict(list)
    for rule in others:
        if isinstance(rule, ResourceRule) and rule.enabled and not rule.additional:
            by_key[rule.key].append(rule)
    for rule in rules.resources:
        if rule.enabled and not rule.additional and (rivals := by_key.get(rule.key)):
            names = ", ".join(f"{other.name} ({other.location})" for other in rivals)
            yield LintWarning(rule.name, ("data", "key"), Code.CONFLICT, also_used(rule.key, names))


def rule_set_warnings(
    rules: RuleSet, now: float, names: Collection[str] | None = None
) -> Iterator[LintWarning]:
    """Yield the lint warnings of rules, of each rule and of the set. now: seconds since the epoch.

    names: the rules to check, None for all. The time depends on the number of names.
    """
    checked = {rule.name for rule in rules} if names is None else frozenset(names)
    yield from (warning for warning in _warnings(rules, now, checked) if warning.rule in checked)


def _warnings(rules: RuleSet, now: float, checked: Collection[str]) -> Iterator[LintWarning]:
    """Yield the warnings of the checked rules, and possibly of others."""
    facts = rules.facts or BUILT_IN
    for rule in rules:
        if rule.name in checked:
            yield from rule_warnings(rule, facts)
    groups: dict[str, list[ResourceRule]] = defaultdict(list)
    for rule in rules.resources:
        if not rule.additional:
            groups[rule.group].append(rule)
    active = {exclusive_key(rule) for rule in rules.resources if rule.enabled}
    for name, members in groups.items():
        if any(rule.name in checked for rule in members):
            yield from _partially_enabled(name, members, active)
            yield from _self_excluding(members)
    yield from _untested_keys(rules, checked)
    yield from _misspelt(rules, checked)
    yield from _missing_volumes(rules.injections)
    yield from _conflicting_values(rules, checked)
    yield from _without_unit(rules, checked)
    for exemption in rules.exemptions:
        if exemption.name in checked:
            yield from _exemption(exemption, rules, now)
    for profile, message in contradicting_profiles(rules.profiles):
        yield LintWarning(profile.name, ("labelsAtCreation",), Code.CONTRADICTION, message)


def _partially_enabled(
    group: str, members: list[ResourceRule], active: Collection[str]
) -> Iterator[LintWarning]:
    """Yield a disabled rule of a group with enabled rules, unless another rule has its resource."""
    enabled = [rule.name for rule in members if rule.enabled]
    for rule in members if enabled else ():
        if not rule.enabled and rule.key not in active:
            others = ", ".join(enabled)
            message = Message(
                "partially enabled group {group!r}: this rule is disabled, {others} enabled, so {key} "
                "is not checked; enable or disable the whole group, or use another group",
                group=group,
                others=others,
                key=rule.key,
            )
            yield LintWarning(rule.name, ("metadata", "labels"), Code.HALF_GROUP, message)


def _self_excluding(members: list[ResourceRule]) -> Iterator[LintWarning]:
    """Yield a rule that excludes a resource that its own group injects or requires in every container."""
    required = [rule for rule in members if rule.enabled and _is_in_every_container(rule)]
    for rule in members if required else ():
        for other in required:
            if rule.enabled and other.key != rule.key and rule.excludes.find(other.key):
                message = Message(
                    "self-excluding group: excludes {key}, which rule {name} requires in every "
                    "container of the group, so no container can use {rule_key}; "
                    "make {key} optional, without a default",
                    key=other.key,
                    name=other.name,
                    rule_key=rule.key,
                )
                yield LintWarning(rule.name, ("data", "excludeResources"), Code.NEVER_SATISFIED, message)


def _is_in_every_container(rule: ResourceRule) -> bool:
    """Return whether every admitted container that uses the rule's group has the rule's resource."""
    required = rule.limits is LimitsPolicy.REQUIRED or rule.requests is RequestsPolicy.REQUIRED
    return required or (
        bool(rule.default) and not rule.default_when and rule.limits is not LimitsPolicy.DISABLED
    )


def _untested_keys(rules: RuleSet, checked: Collection[str]) -> Iterator[LintWarning]:
    """Yield keys that expressions look up without a test, and that a container or its pod may not have."""
    always = [rule.key for rule in rules.resources if rule.enabled and _is_in_every_container(rule)]
    for rule in rules.resources:
        for index, validation in enumerate(rule.validations if rule.name in checked else ()):
            for message in _untested([validation.expression], [rule.key, *always]):
                yield LintWarning(rule.name, ("data", "validations", index), Code.UNTESTED_KEY, message)
    matching: list[InjectionRule | CompatibilityRule] = [*rules.injections, *rules.compatibility]
    for matched in matching:
        match = matched.match
        if matched.name in checked and match.conditions:
            only = match.resources if len(match.resources) == 1 else ()
            for message in _untested(match.conditions, [*only, *always]):
                yield LintWarning(matched.name, ("match", "conditions"), Code.UNTESTED_KEY, message)


def _untested(expressions: Sequence[Expression], resources: Iterable[str]) -> Iterator[Message]:
    """Yield a message for each key that expressions look up without a test.

    resources: the resources of every container to which the expressions apply.
    """
    tested = {lookup for expression in expressions for lookup in expression.tested}
    tested |= {(name, resource) for resource in resources for name in ("limits", "requests")}
    lookups = dict.fromkeys(lookup for expression in expressions for lookup in sorted(expression.lookups))
    for name, key in lookups:
        if (name, key) not in tested:
            yield Message(
                "cannot be evaluated for a pod without {name}['{key}']; write '{key}' in {name} && …",
                name=name,
                key=key,
            )


def _misspelt(rules: RuleSet, checked: Collection[str]) -> Iterator[LintWarning]:
    """Yield resources without a rule whose name is similar to the resource of a rule."""
    known = [rule.key for rule in rules.resources if not rule.additional]
    index = ResourceIndex((key, key) for key in known)
    for name, path, resource in _references(rules):
        if name not in checked or is_glob(resource) or index.find(resource):
            continue
        for key in known:
            if _similar(resource, key):
                if _built_in_resources().find(resource):  # its rule is not in force, or not yet
                    break
                near = did_you_mean(key)
                message = Message("no rule for {resource!r}{near}", resource=resource, near=near)
                yield LintWarning(name, path, Code.MISSPELT_RESOURCE, message)
                break


@cache
def _built_in_resources() -> ResourceIndex[str]:
    """Return the keys of the built-in resource rules, without the additional ones."""
    folders = (folder for folder in (files("rules") / "catalog").iterdir() if folder.is_dir())
    texts = (
        file.read_text("utf-8")
        for folder in folders
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )
    texts = (text for text in texts if _ADDITIONAL not in text)
    return ResourceIndex((key, key) for text in texts for key in _KEY.findall(text))


def _references(rules: RuleSet) -> Iterator[tuple[str, Path, str]]:
    """Yield (rule, path, resource) for each resource that a rule refers to, except its own key."""
    for excluding in rules.resources:
        named = {"excludeResources": tuple(excluding.excludes), "relatedResources": excluding.related}
        for field, resources in named.items():
            yield from ((excluding.name, ("data", field), resource) for resource in resources)
        for validation in excluding.validations:
            for resource in validation.expression.resources:
                yield excluding.name, ("data", "validations"), resource
    matching: list[InjectionRule | CompatibilityRule] = [*rules.injections, *rules.compatibility]
    for rule in matching:
        for index, resource in enumerate(rule.match.resources):
            yield rule.name, ("match", "resources", index), resource
        for index, condition in enumerate(rule.match.conditions):
            for resource in condition.resources:
                yield rule.name, ("match", "conditions", index), resource
    for injection in rules.injections:
        for index, (_, source) in enumerate(injection.inject.env):
            if isinstance(source, EnvFromResource):
                yield injection.name, ("inject", "env", index, "fromResource", "name"), source.resource


def _similar(one: str, other: str) -> bool:
    """Return whether two resource names differ, and their domains and names are similar."""
    pairs = zip(one.partition("/"), other.partition("/"), strict=True)
    return one != other and all(this == that or _near(this, that) for this, that in pairs)


def _near(one: str, other: str) -> bool:
    matcher = SequenceMatcher(None, one, other)
    bounds = (
        matcher.real_quick_ratio,
        matcher.quick_ratio,
        matcher.ratio,
    )  # each lower than the previous one
    return all(bound() >= _MIN_SIMILARITY for bound in bounds)


def _missing_volumes(rules: Iterable[InjectionRule]) -> Iterator[LintWarning]:
    """Yield mounts of volumes that no rule injects: the API server denies pods without that volume."""
    all_rules = list(rules)
    injected = {volume["name"] for rule in all_rules for volume in rule.inject.volumes}
    for rule in all_rules:
        for index, mount in enumerate(rule.inject.volume_mounts):
            if mount["name"] not in injected:
                name, near = mount["name"], suggested(mount["name"], injected)
                message = Message(
                    "no rule injects a volume {name!r}{near}; "
                    "add it to volumes, otherwise pods without it are denied",
                    name=name,
                    near=near,
                )
                yield LintWarning(
                    rule.name, ("inject", "volumeMounts", index, "name"), Code.MISSING_VOLUME, message
                )


class _Assignment(NamedTuple):
    """A setting of a rule, and the containers whose pods get it."""

    rule: InjectionRule | ResourceRule
    match: Match
    setting: Setting

    @property
    def overrides(self) -> bool:
        """Whether the value replaces the value of an earlier rule."""
        of_pod_or_env = not self.setting.name.startswith("volume")
        return isinstance(self.rule, InjectionRule) and self.rule.override and of_pod_or_env


def _assignments(rules: RuleSet) -> Iterator[_Assignment]:
    """Yield the settings of active rules in the order in which the rules apply."""
    for rule in sorted(rules.resources, key=lambda rule: rule.name):
        if rule.enabled and rule.runtime_class:
            match = Match(resources=(rule.key,))
            yield from (_Assignment(rule, match, setting) for setting in settings_of(rule))
    for injection in sorted(rules.injections, key=lambda rule: rule.name):
        if injection.enabled and injection.action is InjectionAction.INJECT:
            for setting in settings_of(injection):
                yield _Assignment(injection, _match_of(injection.match, setting.value), setting)


def _match_of(match: Match, value: object) -> Match:
    """Return the match of a value, which needs the resource that it is calculated from."""
    if isinstance(value, EnvFromResource) and match.is_for((value.resource,)):
        return replace(match, resources=(value.resource,))
    return match


def _conflicting_values(rules: RuleSet, checked: Collection[str]) -> Iterator[LintWarning]:
    """Yield settings that two rules, at least one of them checked, set to different values in a pod.

    Resource rules apply first, then injection rules in the order of their names; an existing value stays
    unless a rule overrides it. A narrow rule that takes precedence over a wider one is intended.
    """
    for used, unused, is_override in _conflicts(rules, checked):
        why = _OVERRIDES if is_override else _FIRST[isinstance(used.rule, ResourceRule)]
        yield _of_conflict(unused, used, _UNUSED.having(why=why))


def _displaced_values(rules: RuleSet, checked: Collection[str]) -> Iterator[LintWarning]:
    """Yield settings of checked rules because of which that of another rule in force is not used.

    A narrower match, or an override, says that this is intended.
    """
    for used, unused, _ in _conflicts(rules, checked):
        if unused.rule.name not in checked and not used.overrides:
            yield _of_conflict(used, unused, _DISPLACES)


def _of_conflict(at: _Assignment, other: _Assignment, words: Message) -> LintWarning:
    facts = {"name": at.setting.name, "rule_name": other.rule.name, "location": other.rule.location}
    return LintWarning(at.rule.name, at.setting.path, Code.COMPETING_VALUES, words.having(**facts))


def _conflicts(rules: RuleSet, checked: Collection[str]) -> Iterator[tuple[_Assignment, _Assignment, bool]]:
    """Yield the used and the unused one of two settings, and whether it is used because it overrides."""
    by_name: dict[str, list[_Assignment]] = defaultdict(list)
    for assignment in _assignments(rules):
        by_name[assignment.setting.name].append(assignment)
    for assignments in by_name.values():
        for first, second in _pairs(assignments, lambda assignment: assignment.rule.name in checked):
            if first.setting.value == second.setting.value or not _same_pod(first, second):
                continue
            used, unused = (second, first) if second.overrides else (first, second)
            if not _wider(unused.match, used.match):
                yield used, unused, second.overrides


def _without_unit(rules: RuleSet, checked: Collection[str]) -> Iterator[LintWarning]:
    """Yield variables with the size of a count, such as 2 devices, which is 0 GiB without the size of one.

    Not of a resource that is known to be in bytes, or whose rule accepts no such count.
    """
    by_key = {rule.key: rule for rule in rules.resources}
    for rule in rules.injections:
        for index, (_, source) in enumerate(rule.inject.env if rule.name in checked else ()):
            if not isinstance(source, EnvFromResource) or source.unit != 1:
                continue
            known, own = unit_of(source.resource), by_key.get(source.resource)
            values = {environment_value(source, number) for number in _accepted(own)}
            if known == 1 or values != {environment_value(source, 0)}:
                continue
            message = Message(
                "{template} is 0 for 1 to {most} {resource}: without unit, each is one byte; write unit: "
                "{unit} if each is as much",
                template=source.template,
                most=_MOST_COUNTED,
                resource=source.resource,
                unit=(own and own.unit) or (shown(known // MIB) if known else "1Gi"),
            )
            yield LintWarning(rule.name, ("inject", "env", index, "fromResource"), Code.NO_EFFECT, message)


def _accepted(rule: ResourceRule | None) -> list[int]:
    """Return the numbers of devices that a rule accepts, and its default if it is a number."""
    numbers = [*range(1, _MOST_COUNTED + 1)]
    if rule is None:
        return numbers
    checks = [
        validation.expression
        for validation in rule.validations
        if validation.expression.variables == ("value",)
    ]
    accepted = [number for number in numbers if not any(fails(check, {"value": number}) for check in checks)]
    return [*accepted, int(number_of(rule.default))] if rule.default else accepted


def _same_pod(one: _Assignment, other: _Assignment) -> bool:
    """Return whether both may set a value in one pod: resource rules of a group are used together."""
    if isinstance(one.rule, ResourceRule) and isinstance(other.rule, ResourceRule):
        return one.rule.group == other.rule.group
    return _may_overlap(one.match, other.match)


def _pairs(items: Iterable[T], checked: Callable[[T], bool]) -> Iterator[tuple[T, T]]:
    """Yield each pair with at least one checked item, in order."""
    all_before: list[T] = []
    checked_before: list[T] = []
    for second in items:
        is_checked = checked(second)
        for first in all_before if is_checked else checked_before:
            yield first, second
        all_before.append(second)
        if is_checked:
            checked_before.append(second)


def _may_overlap(one: Match, other: Match) -> bool:
    """Return whether both can match a container; two rules with conditions are assumed to be disjoint."""
    if one.conditions and other.conditions:
        return False
    return (
        any(_names_overlap(left, right) for left in one.resources for right in other.resources)
        and _lists_overlap(one.images, other.images, _within)
        and _lists_overlap(one.include, other.include, overlap)
        and not _excludes(one, other)
        and not _excludes(other, one)
        and not contradictions((*one.selector, *other.selector))
    )


def _names_overlap(one: str, other: str) -> bool:
    """Return whether two names or globs match a common resource."""
    return one == other or ((is_glob(one) or is_glob(other)) and overlap(glob(one), glob(other)))


def _lists_overlap(
    one: Sequence[re.Pattern[str]],
    other: Sequence[re.Pattern[str]],
    overlaps: Callable[[re.Pattern[str], re.Pattern[str]], bool],
) -> bool:
    return not one or not other or any(overlaps(left, right) for left in one for right in other)


def _within(one: re.Pattern[str], other: re.Pattern[str]) -> bool:
    """Return whether a glob covers the other; `*/paddle*` and `*/torch*` overlap, but not in practice."""
    return covers(one, other) or covers(other, one)


def _excludes(one: Match, other: Match) -> bool:
    """Return whether a match excludes all namespaces that the other includes."""
    return bool(one.include) and _covers_all(other.exclude, one.include)


def _wider(one: Match, other: Match) -> bool:
    """Return whether a match covers another, and is not the same. False may be wrong."""
    lists = [(match.images, match.include) for match in (one, other)]
    others = [(match.exclude, match.selector, match.conditions) for match in (one, other)]
    return (
        (one.resources, lists[0], others[0]) != (other.resources, lists[1], others[1])
        and _covers_all([glob(name) for name in one.resources], [glob(name) for name in other.resources])
        and all(
            not wide or (narrow and _covers_all(wide, narrow)) for wide, narrow in zip(*lists, strict=True)
        )
        and all(not wide or wide == narrow for wide, narrow in zip(*others, strict=True))
    )


def _covers_all(wide: Sequence[re.Pattern[str]], narrow: Sequence[re.Pattern[str]]) -> bool:
    return all(any(covers(pattern, inside) for pattern in wide) for inside in narrow)


def _exemption(exemption: Exemption, rules: RuleSet, now: float) -> Iterator[LintWarning]:
    if not exemption.enabled:
        return
    if exemption.expires <= now:
        message = Message("expired at {until} and has no effect; renew or remove it", until=exemption.until)
        yield LintWarning(exemption.name, ("expires",), Code.EXPIRED, message)
    names = [rule.name for rule in rules if not isinstance(rule, Exemption)]
    for index, name in enumerate(exemption.rules):
        if not exempted(replace(exemption, rules=(name,)), rules):
            near = suggested(name, names)
            message = Message(
                "{name!r} does not match any rule{near}; lint exemptions together with their rules",
                name=name,
                near=near,
            )
            yield LintWarning(exemption.name, ("rules", index), Code.EXEMPTS_NOTHING, message)
    match = exemption.match
    if not (match.include or match.exclude or match.selector or exemption.service_accounts):
        message = Message(
            "exempts every pod; set namespaces, podSelector or serviceAccounts, or disable the rules"
        )
        yield LintWarning(exemption.name, ("rules",), Code.EXEMPTS_EVERYONE, message)
    elif (match.selector or exemption.service_accounts) and not any(
        glob_text(pattern).strip("*") for pattern in match.include
    ):
        which = "podSelector" if match.selector else "serviceAccounts"
        message = Message(
            "any tenant can claim this exemption: who creates a pod chooses its labels and service account; "
            "add namespaces.include"
        )
        yield LintWarning(exemption.name, (which,), Code.EXEMPTS_ANY_TENANT, message)
