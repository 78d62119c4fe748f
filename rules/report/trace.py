"""The story of a pod: what every rule was and did to it, noted while the decision is made."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from rules.cel.expression import Expression, ExpressionError
from rules.compatibility.report import RuleRequirement
from rules.decision.pipeline import INJECTED_ANNOTATION
from rules.decision.recorder import DecisionRecorder, JudgingRule, Obstacle
from rules.decision.resource_stage import LIMITS, REQUESTS
from rules.kube.pod import Container, ContainerKind, Pod
from rules.model.decision import Violation
from rules.model.match import Match, MatchPart, SelectorTerm
from rules.model.rule import Exemption, InjectionRule, ResourceRule, RuleSet
from rules.text.glob import glob_text
from rules.text.i18n import Language
from rules.text.paths import Path, field_path

_NO_CUDA: Final = "nothing tells its CUDA version"
_SIGNED: Final = "names the rules that changed the pod"
# A container, and a rule by its name.
_Key: TypeAlias = tuple[Container, str]


class RuleOutcome(StrEnum):
    """What came of a rule for a container."""

    MATCHED = "matched"
    NOT_MATCHED = "unmet"  # some part of its match fails
    EVALUATION_ERROR = "undecided"  # a condition has no value
    EXEMPTED = "exempted"
    NOT_APPLICABLE = "elsewhere"  # it is about resources that the container does not ask for
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Edit:
    """One value put in. path: where in the object. rule: by which, or empty. reason: in a few words."""

    path: Path
    value: Any
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class RuleEvaluation:
    """One rule and one container. why: of any outcome but a match. would: what a dry run would put in."""

    rule: JudgingRule
    outcome: RuleOutcome
    why: str = ""
    needs: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    would: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerTrace:
    """One container, as it came, and every rule, in the order in which they were looked at."""

    name: str
    kind: ContainerKind
    path: Path
    image: str
    asks: Mapping[str, Any]
    looks: tuple[RuleEvaluation, ...]


@dataclass(frozen=True, slots=True)
class PodTrace:
    """One pod or pod template, at a path. edits: all, in the order in which they were made."""

    path: Path
    containers: tuple[ContainerTrace, ...]
    edits: tuple[Edit, ...]

    @property
    def own(self) -> tuple[Edit, ...]:
        """The edits of the pod, and of containers for which no rule was looked at."""
        told = [edit for container in self.containers for look in container.looks for edit in look.edits]
        return tuple(edit for edit in self.edits if edit not in told)


class TraceRecorder(DecisionRecorder):
    """The notes on one pod from which its story is told."""

    __slots__ = ("_asks", "_edits", "_language", "_looks", "_namespace", "_needs", "_pod", "_seen", "_told")

    def __init__(self, pod: Pod, namespace: str, language: Language) -> None:
        super().__init__(pod)
        self._pod = pod
        self._namespace = namespace
        self._language = language
        self._asks = [{**container.requests, **container.limits} for container in pod.containers]
        self._seen = deepcopy(pod.recorder.get(()))
        self._edits: list[Edit] = []
        self._looks: dict[Container, dict[str, RuleEvaluation]] = {}
        self._needs: dict[_Key, list[str]] = {}
        self._told: dict[_Key, list[str]] = {}

    def looked_at(self, rule: JudgingRule, container: Container, obstacle: Obstacle | None) -> None:
        """Note what keeps a rule off while the pod is as it was looked at; what once held has held."""
        super().looked_at(rule, container, obstacle)
        looks = self._looks.setdefault(container, {})
        if obstacle is None:
            looks[rule.name] = RuleEvaluation(rule, RuleOutcome.MATCHED)
        elif rule.name not in looks or looks[rule.name].outcome is not RuleOutcome.MATCHED:
            looks[rule.name] = RuleEvaluation(rule, *self._why(rule, container, obstacle))

    def put_in(self, rule: ResourceRule | InjectionRule, what: Collection[str]) -> None:
        """Note how the object has changed, and why."""
        super().put_in(rule, what)
        for path, value in self._changes():
            self._edit(path, value, self._reason(rule, path, value), rule.name)

    def needs(self, container: Container, demand: RuleRequirement) -> None:
        """Note what was read of a container."""
        super().needs(container, demand)
        cuda, language = demand.needs.cuda, self._language
        lines = [f"CUDA {cuda.version}: {cuda.origin.in_language(language)}" if cuda else _NO_CUDA]
        lines += [
            f"compute capability {need.minimum}: {need.origin.in_language(language)}"
            for need in demand.needs.compute
        ]
        self._needs[container, demand.rule.name] = lines

    def steered(self) -> None:
        """Note the affinity, and for whose needs it was put in."""
        super().steered()
        names = ", ".join(dict.fromkeys(container.name for container, _ in self._needs))
        for path, value in self._changes():
            self._edit(path, value, f"only nodes that fit {names}")

    def found(
        self,
        violations: Iterable[Violation],
        warnings: Iterable[str],
        rule: JudgingRule | None = None,
        container: Container | None = None,
    ) -> None:
        """Note whom warnings are about."""
        lines = list(warnings)
        super().found(violations, lines)
        if rule and container:
            self._told.setdefault((container, rule.name), []).extend(lines)

    def told(self, rules: RuleSet) -> PodTrace:
        """Return the story, when the decision has been made."""
        for path, value in self._changes():
            self._edit(path, value, "")
        others: list[JudgingRule] = [*rules.resources, *rules.injections, *rules.compatibility]
        containers = []
        for container, asks in zip(self._pod.containers, self._asks, strict=True):
            looks = self._looks.get(container, {})
            told = [self._whole(look, container) for look in looks.values()]
            told += [_passed_over(rule) for rule in others if rule.name not in looks]
            containers.append(
                ContainerTrace(
                    container.name, container.kind, container.path, container.image, asks, tuple(told)
                )
            )
        return PodTrace(self._pod.path, tuple(containers), tuple(self._edits))

    def _whole(self, look: RuleEvaluation, container: Container) -> RuleEvaluation:
        """Return a look with all that came of the rule for the container."""
        warnings = tuple(dict.fromkeys(self._told.get((container, look.rule.name), ())))
        if look.outcome is not RuleOutcome.MATCHED:
            return replace(look, warnings=warnings)
        name, place = look.rule.name, f"{field_path(container.path)}."
        own = [edit for edit in self._edits if edit.rule == name and _is_below(edit.path, container.path)]
        others = tuple(f"{other.name}: " for other in self._pod.containers if other is not container)
        return replace(
            look,
            needs=tuple(self._needs.get((container, name), ())),
            edits=tuple(own),
            would=tuple(what for what in self.would_inject.get(name, ()) if not what.startswith(others)),
            violations=tuple(
                found for found in self.violations if found.rule == name and found.path.startswith(place)
            ),
            warnings=warnings,
        )

    def _edit(self, path: Path, value: Any, reason: str, rule: str = "") -> None:
        """Keep an edit; no stage tells of the annotation that is put in after all injections."""
        if path[-1] == INJECTED_ANNOTATION:
            reason, rule = _SIGNED, ""
        self._edits.append(Edit(path, value, rule, reason))

    def _changes(self) -> list[tuple[Path, Any]]:
        """Return what has changed since the last time that this was asked."""
        before, self._seen = self._seen, deepcopy(self._pod.recorder.get(()))
        return list(_differences(before, self._seen, ()))

    def _reason(self, rule: ResourceRule | InjectionRule, path: Path, value: Any) -> str:
        if isinstance(rule, InjectionRule):
            return "injected"
        if path[-2] == REQUESTS and value == self._pod.recorder.get((*path[:-2], LIMITS, path[-1])):
            return "follows the limit"
        return "default"

    def _why(self, rule: JudgingRule, container: Container, obstacle: Obstacle) -> tuple[RuleOutcome, str]:
        """Return what came of a rule that something keeps from a container, and why."""
        match obstacle:
            case Exemption(name=name, until=until, description=reason):
                return RuleOutcome.EXEMPTED, f"{name} until {until}: {reason.in_language(self._language)}"
            case ExpressionError():
                return RuleOutcome.EVALUATION_ERROR, f"a condition cannot be evaluated: {obstacle}"
            case Expression(source=source):
                return RuleOutcome.NOT_MATCHED, f"condition is false: {source}"
            case SelectorTerm():
                return RuleOutcome.NOT_MATCHED, _of_label(obstacle, self._pod.labels)
        if isinstance(rule, ResourceRule):
            raise TypeError(f"{rule.name} has no match that could fail: {obstacle!r}")
        if obstacle is MatchPart.IMAGES:
            return RuleOutcome.NOT_MATCHED, f"image {container.image} is none of {_globs(rule.match.images)}"
        return RuleOutcome.NOT_MATCHED, _of_namespace(rule.match, self._namespace)


def _of_namespace(match: Match, namespace: str) -> str:
    excluding = [pattern for pattern in match.exclude if pattern.fullmatch(namespace)]
    if excluding:
        return f"namespace {namespace} is excluded by {_globs(excluding)}"
    return f"namespace {namespace} is none of {_globs(match.include)}"


def _of_label(term: SelectorTerm, labels: Mapping[str, str]) -> str:
    found = f"is {labels[term.key]!r}" if term.key in labels else "is absent"
    values = " ".join(sorted(term.values))
    return f"podSelector: label {term.key} {found}, wanted {f'{term.operator} {values}'.strip()}"


def _globs(patterns: Iterable[re.Pattern[str]]) -> str:
    return ", ".join(map(glob_text, patterns))


def _passed_over(rule: JudgingRule) -> RuleEvaluation:
    """Return the look at a rule that did not come up for a container."""
    if not rule.enabled:
        return RuleEvaluation(rule, RuleOutcome.DISABLED, "switched off by its label")
    if isinstance(rule, ResourceRule):
        return RuleEvaluation(rule, RuleOutcome.NOT_APPLICABLE, f"group {rule.group} is not used")
    return RuleEvaluation(
        rule, RuleOutcome.NOT_APPLICABLE, f"asks for none of {', '.join(rule.match.resources)}"
    )


def _is_below(path: Path, root: Path) -> bool:
    return path[: len(root)] == root


def _differences(before: Any, after: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the smallest values that edits put in, with their places; new entries of lists are whole."""
    if isinstance(after, dict) and after and (before is None or isinstance(before, dict)):
        standing = before or {}
        if standing.keys() <= after.keys():
            for key, value in after.items():
                yield from _differences(standing.get(key), value, (*path, key))
            return
    if isinstance(after, list) and after and (before is None or isinstance(before, list)):
        entries = before or []
        if len(entries) <= len(after):
            for at, entry in enumerate(entries):
                yield from _differences(entry, after[at], (*path, at))
            yield from (((*path, at), after[at]) for at in range(len(entries), len(after)))
            return
    if type(before) is not type(after) or before != after:
        yield path, after
