"""A decision explained: each rule, whether it matches and why not, and what it does to each container.

The decision itself makes the record; nothing is decided here.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

from rules.cel.expression import Expression
from rules.cel.syntax_errors import ExpressionError
from rules.compatibility.result import RuleRequirement
from rules.cuda.gpu_memory import shown
from rules.cuda.image_catalog import CompatLibraries
from rules.decision.messages import WarningLine
from rules.decision.not_checked import out_of_scope
from rules.decision.pipeline import INJECTED_ANNOTATION, Snapshot, decide
from rules.decision.recorder import DecidingRule, DecisionRecorder, Obstacle
from rules.decision.resource_stage import LIMITS, REQUESTS
from rules.kube.pod import Container, ContainerKind, Pod
from rules.model.decision import AdmissionRequest, AdmissionWarning, Decision, Violation
from rules.model.match import Match, MatchPart, SelectorTerm
from rules.model.rule import Exemption, InjectionAction, InjectionRule, ResourceRule, RuleSet, settings_of
from rules.nodes.container_runtime import RuntimeMode
from rules.nodes.inventory import Inventory
from rules.text.glob import glob_text
from rules.text.i18n import Language, Message
from rules.text.paths import Path, field_path

_NO_CUDA: Final = Message("CUDA version: unknown")
_NONE_NEEDED: Final = Message("no CUDA: the image is known to hold none")
_RUNTIME: Final = Message("container runtime in mode {mode}, by {source} (nodes: {count})")
_RUNTIME_UNKNOWN: Final = Message("container runtime in an unknown mode (nodes: {count})")
_START: Final = Message("a driver that {variable} admits: {origin}")
_CUDA: Final = Message("CUDA {version}: {origin}")
_COMPUTE: Final = Message("compute capability {minimum}: {origin}")
_MEMORY: Final = Message("GPU memory {amount}: {origin}")
_PLATFORMS: Final = Message("CPU architecture {names}: {origin}")
_SIGNED: Final = Message("names the rules that changed the pod")
_AFFINITY: Final = Message("only nodes that are compatible with {names}")
_INJECTED: Final = Message("injected")
_FOLLOWS: Final = Message("follows the limit")
_DEFAULT: Final = Message("default")
_NOT_SET: Final = Message("{what} is not set: rule {other} applies first and sets another value")
_REPLACED: Final = Message("{what} is replaced: rule {other} overrides it")
_UNTIL: Final = Message("{name} until {until}: {reason}")
_ERROR: Final = Message("a condition cannot be evaluated: {error}")
_FALSE: Final = Message("condition is false: {source}")
_IMAGE: Final = Message("image {image} does not match {globs}")
_NAMESPACE_EXCLUDED: Final = Message("namespace {namespace} is excluded by {globs}")
_NAMESPACE: Final = Message("namespace {namespace} does not match {globs}")
_LABEL: Final = Message("podSelector: label {key} {found}, expected {expected}")
_IS: Final = Message("is {value!r}")
_ABSENT: Final = Message("is absent")
_DISABLED: Final = Message("disabled by its label")
_GROUP: Final = Message("group {group} is not used")
_RESOURCES: Final = Message("requests none of {names}")
# A container, and a rule by its name.
_Key: TypeAlias = tuple[Container, str]


class RuleOutcome(StrEnum):
    """The outcome of a rule for a container."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"  # a part of its match fails
    EVALUATION_ERROR = "evaluation error"  # a condition cannot be evaluated
    EXEMPTED = "exempted"
    NOT_APPLICABLE = "not applicable"  # the container does not request its resources
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Edit:
    """One value that was set. path: in the object. rule: by which, or empty. reason: in a few words."""

    path: Path
    value: Any
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class RuleEvaluation:
    """One rule and one container. why: of any outcome except a match. would: what a dry run would inject.

    runtimes: the modes of the container runtime that are assumed, on which nodes, and where each is from.
    unused: the values of which another rule set a different one, and which rule that is.
    """

    rule: DecidingRule
    outcome: RuleOutcome
    why: str = ""
    requirements: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    would: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    warnings: tuple[AdmissionWarning, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerTrace:
    """One container, as it was submitted, and every rule, in the order of evaluation."""

    name: str
    kind: ContainerKind
    path: Path
    image: str
    requests: Mapping[str, Any]
    evaluations: tuple[RuleEvaluation, ...]


@dataclass(frozen=True, slots=True)
class PodTrace:
    """One pod or pod template, at a path. edits: all, in their order."""

    path: Path
    containers: tuple[ContainerTrace, ...]
    edits: tuple[Edit, ...]

    @property
    def own(self) -> tuple[Edit, ...]:
        """The edits of the pod, and of containers for which no rule was evaluated."""
        of_rules = [
            edit for container in self.containers for each in container.evaluations for edit in each.edits
        ]
        return tuple(edit for edit in self.edits if edit not in of_rules)


class TraceRecorder(DecisionRecorder):
    """The record of one pod with what `explain` shows in addition; the decision itself is the same."""

    __slots__ = (
        "_edits",
        "_evaluations",
        "_findings",
        "_inventory",
        "_language",
        "_namespace",
        "_pod",
        "_requests",
        "_requirements",
        "_runtimes",
        "_seen",
        "_set_by",
        "_unused",
    )

    def __init__(self, pod: Pod, namespace: str, language: Language, inventory: Inventory) -> None:
        super().__init__(pod)
        self._inventory = inventory
        self._pod = pod
        self._namespace = namespace
        self._language = language
        self._requests = [{**container.requests, **container.limits} for container in pod.containers]
        self._seen = 0
        self._edits: list[Edit] = []
        self._evaluations: dict[Container, dict[str, RuleEvaluation]] = {}
        self._requirements: dict[_Key, list[str]] = {}
        self._runtimes: dict[_Key, list[str]] = {}
        self._findings: dict[_Key, list[AdmissionWarning]] = {}
        self._set_by: dict[tuple[Container | None, str], tuple[str, Any]] = {}
        self._unused: dict[_Key, list[str]] = {}

    def record_match(self, rule: DecidingRule, container: Container, obstacle: Obstacle | None) -> None:
        """Record what keeps a rule from applying at this moment; a rule that once matched has matched."""
        super().record_match(rule, container, obstacle)
        evaluations = self._evaluations.setdefault(container, {})
        if obstacle is None:
            evaluations[rule.name] = RuleEvaluation(rule, RuleOutcome.MATCHED)
        elif rule.name not in evaluations or evaluations[rule.name].outcome is not RuleOutcome.MATCHED:
            evaluations[rule.name] = RuleEvaluation(rule, *self._why(rule, container, obstacle))

    def record_edits(self, rule: ResourceRule | InjectionRule, what: Collection[str]) -> None:
        """Record the values that were set, and why."""
        super().record_edits(rule, what)
        for path, value in self._new_edits():
            self._add_edit(path, value, self._reason(rule, path, value), rule.name)
        if not (isinstance(rule, InjectionRule) and rule.action is InjectionAction.DRYRUN):
            self._record_settings(rule, what)

    def _record_settings(self, rule: ResourceRule | InjectionRule, what: Collection[str]) -> None:
        """Record which rule set each value, and for which rules another one did."""
        users = [each for each, known in self._evaluations.items() if _has_matched(known.get(rule.name))]
        for setting in settings_of(rule):
            for container in users if setting.of_container else [None]:
                prefix = f"{container.name}: " if container else ""
                name = f"{prefix}{setting.name}"
                other, value = self._set_by.get((container, setting.name), ("", setting.value))
                is_set = name in what or f"{name} {setting.value}" in what
                if is_set:
                    self._set_by[container, setting.name] = (rule.name, setting.value)
                if value != setting.value and other != rule.name:
                    loser, winner = (other, rule.name) if is_set else (rule.name, other)
                    line = self._say(_REPLACED if is_set else _NOT_SET, what=setting.name, other=winner)
                    for each in [container] if container else self._evaluations:
                        self._unused.setdefault((each, loser), []).append(line)

    def record_requirements(self, container: Container, required: RuleRequirement) -> None:
        """Record the GPU requirements of a container."""
        super().record_requirements(container, required)
        requirements = required.requirements
        cuda = requirements.cuda
        lines = [
            self._say(_CUDA, version=cuda.version, origin=cuda.origin.in_language(self._language))
            if cuda
            else self._say(_NONE_NEEDED if requirements.no_cuda else _NO_CUDA)
        ]
        lines += dict.fromkeys(
            self._say(_START, variable=each.variable, origin=each.origin.in_language(self._language))
            for each in requirements.constraints
        )
        lines += [
            self._say(_COMPUTE, minimum=each.minimum, origin=each.origin.in_language(self._language))
            for each in requirements.compute
        ]
        if memory := requirements.memory:
            origin = memory.origin.in_language(self._language)
            lines.append(self._say(_MEMORY, amount=shown(memory.mib), origin=origin))
        if found := requirements.platforms:
            names, origin = "/".join(sorted(found.architectures)), found.origin.in_language(self._language)
            lines.append(self._say(_PLATFORMS, names=names, origin=origin))
        self._requirements[container, required.rule.name] = lines
        if requirements.constraints or requirements.cuda_compat is CompatLibraries.INSIDE:
            self._runtimes[container, required.rule.name] = self._runtimes_of(required)

    def _runtimes_of(self, required: RuleRequirement) -> list[str]:
        """Return each mode of the container runtime that is assumed, with its nodes."""
        sharing, counts = required.rule.sharing, Counter[tuple[RuntimeMode, Message]]()
        for each in self._inventory.classes(self._inventory.everything, sharing.labels):
            if each.capabilities.product or each.capabilities.cuda:
                runtime = sharing.runtime(required.requirements, each.capabilities)
                counts[runtime.mode, runtime.source] += each.members.bit_count()
        return [
            self._say(_RUNTIME, mode=mode.value, source=source.in_language(self._language), count=count)
            if source != Message()
            else self._say(_RUNTIME_UNKNOWN, count=count)
            for (mode, source), count in counts.items()
        ]

    def record_affinity(self) -> None:
        """Record the affinity, and for whose requirements it was injected."""
        super().record_affinity()
        names = ", ".join(dict.fromkeys(container.name for container, _ in self._requirements))
        for path, value in self._new_edits():
            self._add_edit(path, value, self._say(_AFFINITY, names=names))

    def record_findings(
        self,
        violations: Iterable[Violation],
        warnings: Iterable[AdmissionWarning],
        container: Container | None = None,
    ) -> None:
        """Record which container warnings are about."""
        lines = list(warnings)
        super().record_findings(violations, lines)
        if container:
            for each in lines:
                self._findings.setdefault((container, each.rule), []).append(each)

    def trace(self, rules: RuleSet) -> PodTrace:
        """Return the trace, when the decision is made."""
        for path, value in self._new_edits():
            self._add_edit(path, value, "")
        others: list[DecidingRule] = [*rules.resources, *rules.injections, *rules.compatibility]
        containers = []
        for container, requests in zip(self._pod.containers, self._requests, strict=True):
            known = self._evaluations.get(container, {})
            evaluations = [self._whole(each, container) for each in known.values()]
            evaluations += [self._not_evaluated(rule) for rule in others if rule.name not in known]
            containers.append(
                ContainerTrace(
                    container.name,
                    container.kind,
                    container.path,
                    container.image,
                    requests,
                    tuple(evaluations),
                )
            )
        return PodTrace(self._pod.path, tuple(containers), tuple(self._edits))

    def _whole(self, evaluation: RuleEvaluation, container: Container) -> RuleEvaluation:
        """Return an evaluation with everything that came of the rule for the container."""
        warnings = tuple(dict.fromkeys(self._findings.get((container, evaluation.rule.name), ())))
        if evaluation.outcome is not RuleOutcome.MATCHED:
            return replace(evaluation, warnings=warnings)
        name, place = evaluation.rule.name, f"{field_path(container.path)}."
        own = [edit for edit in self._edits if edit.rule == name and _is_below(edit.path, container.path)]
        others = tuple(f"{other.name}: " for other in self._pod.containers if other is not container)
        return replace(
            evaluation,
            requirements=tuple(self._requirements.get((container, name), ())),
            runtimes=tuple(self._runtimes.get((container, name), ())),
            edits=tuple(own),
            would=tuple(what for what in self.would_inject.get(name, ()) if not what.startswith(others)),
            unused=tuple(dict.fromkeys(self._unused.get((container, name), ()))),
            violations=tuple(
                found for found in self.violations if found.rule == name and found.path.startswith(place)
            ),
            warnings=warnings,
        )

    def _add_edit(self, path: Path, value: Any, reason: str, rule: str = "") -> None:
        """Add an edit; the annotation that is set after all injections belongs to no rule."""
        if path[-1] == INJECTED_ANNOTATION:
            reason, rule = self._say(_SIGNED), ""
        self._edits.append(Edit(path, value, rule, reason))

    def _new_edits(self) -> list[tuple[Path, Any]]:
        """Return the edits since the last call."""
        new = self._pod.recorder.edits[self._seen :]
        self._seen += len(new)
        return new

    def _reason(self, rule: ResourceRule | InjectionRule, path: Path, value: Any) -> str:
        if isinstance(rule, InjectionRule):
            return self._say(_INJECTED)
        if path[-2] == REQUESTS and value == self._pod.recorder.get((*path[:-2], LIMITS, path[-1])):
            return self._say(_FOLLOWS)
        return self._say(_DEFAULT)

    def _why(self, rule: DecidingRule, container: Container, obstacle: Obstacle) -> tuple[RuleOutcome, str]:
        """Return the outcome of a rule that something keeps from a container, and why."""
        match obstacle:
            case Exemption(name=name, until=until, description=reason):
                why = self._say(_UNTIL, name=name, until=until, reason=reason.in_language(self._language))
                return RuleOutcome.EXEMPTED, why
            case ExpressionError():
                return RuleOutcome.EVALUATION_ERROR, self._say(_ERROR, error=obstacle)
            case Expression(source=source):
                return RuleOutcome.NOT_MATCHED, self._say(_FALSE, source=source)
            case SelectorTerm():
                return RuleOutcome.NOT_MATCHED, self._of_label(obstacle, self._pod.labels)
        if isinstance(rule, ResourceRule):
            raise TypeError(f"{rule.name} has no match that could fail: {obstacle!r}")
        if obstacle is MatchPart.IMAGES:
            globs = _globs(rule.match.images)
            return RuleOutcome.NOT_MATCHED, self._say(_IMAGE, image=container.image, globs=globs)
        return RuleOutcome.NOT_MATCHED, self._of_namespace(rule.match)

    def _of_namespace(self, match: Match) -> str:
        excluding = [pattern for pattern in match.exclude if pattern.fullmatch(self._namespace)]
        words, globs = (_NAMESPACE_EXCLUDED, excluding) if excluding else (_NAMESPACE, match.include)
        return self._say(words, namespace=self._namespace, globs=_globs(globs))

    def _of_label(self, term: SelectorTerm, labels: Mapping[str, str]) -> str:
        found = self._say(_IS, value=labels[term.key]) if term.key in labels else self._say(_ABSENT)
        expected = f"{term.operator} {' '.join(sorted(term.values))}".strip()
        return self._say(_LABEL, key=term.key, found=found, expected=expected)

    def _not_evaluated(self, rule: DecidingRule) -> RuleEvaluation:
        """Return the evaluation of a rule that did not come up for a container."""
        if not rule.enabled:
            return RuleEvaluation(rule, RuleOutcome.DISABLED, self._say(_DISABLED))
        if isinstance(rule, ResourceRule):
            why = self._say(_GROUP, group=rule.group)
        else:
            why = self._say(_RESOURCES, names=", ".join(rule.match.resources))
        return RuleEvaluation(rule, RuleOutcome.NOT_APPLICABLE, why)

    def _say(self, words: Message, **facts: object) -> str:
        return words.having(**facts).in_language(self._language)


def _has_matched(evaluation: RuleEvaluation | None) -> bool:
    return evaluation is not None and evaluation.outcome is RuleOutcome.MATCHED


def _globs(patterns: Iterable[re.Pattern[str]]) -> str:
    return ", ".join(map(glob_text, patterns))


def _is_below(path: Path, root: Path) -> bool:
    return path[: len(root)] == root


@dataclass(frozen=True, slots=True)
class Explanation:
    """A decision and how it was made. out_of_scope: why there was nothing to decide, or empty.

    violations, warnings: those that belong to no single rule and container.
    """

    decision: Decision
    out_of_scope: str
    pods: tuple[PodTrace, ...]
    violations: tuple[Violation, ...]
    warnings: tuple[Message, ...]


def explain(snapshot: Snapshot, request: AdmissionRequest, now: float = math.inf) -> Explanation:
    """Return the decision on a request with its explanation; arguments and errors as of `decide`."""
    policy = snapshot.policy
    recorders: list[TraceRecorder] = []

    def recorder(pod: Pod) -> DecisionRecorder:
        recorders.append(TraceRecorder(pod, request.namespace, policy.language, snapshot.inventory))
        return recorders[-1]

    decision = decide(snapshot, request, now, recorder)
    reason = out_of_scope(policy.workloads, request)
    pods = tuple(each.trace(policy.rules) for each in recorders)
    evaluations = [each for pod in pods for container in pod.containers for each in container.evaluations]
    shown = {violation for each in evaluations for violation in each.violations}
    of_rules = {warning for each in evaluations for warning in each.warnings}
    return Explanation(
        decision=decision,
        out_of_scope=reason.in_language(policy.language) if reason else "",
        pods=pods,
        violations=tuple(violation for violation in decision.violations if violation not in shown),
        warnings=tuple(WarningLine(each) for each in decision.notices if each not in of_rules),
    )
