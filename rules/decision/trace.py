"""A decision explained: each rule, whether it matches and why not, and what it does to each container.

A view of the decision and of the record that it makes; nothing is decided here, and nothing is in a language.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from rules.cel.expression import Expression
from rules.cel.syntax_errors import ExpressionError
from rules.compatibility.result import RuleRequirement
from rules.compatibility.suitable_gpus import gpus_for
from rules.cuda.gpu_memory import shown
from rules.cuda.image_catalog import CompatLibraries
from rules.cuda.requirements import ComputeRequirement, GpuRequirements
from rules.cuda.served_model import gib
from rules.decision.messages import WarningLine
from rules.decision.not_checked import out_of_scope
from rules.decision.pipeline import INJECTED_ANNOTATION, Snapshot, decide
from rules.decision.recorder import DecidingRule, Observer, Obstacle, Record, change_texts
from rules.decision.resource_stage import LIMITS, REQUESTS
from rules.kube.pod import Container, ContainerKind
from rules.model.decision import AdmissionRequest, Decision
from rules.model.finding import Finding
from rules.model.match import Match, MatchPart, SelectorTerm
from rules.model.rule import Exemption, InjectionAction, InjectionRule, ResourceRule, RuleSet, settings_of
from rules.nodes.gpu_resources import gpu_resources
from rules.nodes.inventory import Inventory
from rules.nodes.runtime_modes import RuntimeMode
from rules.text.glob import glob_text
from rules.text.i18n import Message
from rules.text.paths import Path

_NO_CUDA: Final = Message("CUDA version: unknown")
_NONE_NEEDED: Final = Message("no CUDA: the image is known to hold none")
_RUNTIME: Final = Message("container runtime in mode {mode}, by {source} (nodes: {count})")
_RUNTIME_UNKNOWN: Final = Message("container runtime in an unknown mode (nodes: {count})")
_START: Final = Message("a driver that {variable} admits: {origin}")
_CUDA: Final = Message("CUDA {version}: {origin}")
_COMPUTE: Final = Message("compute capability {minimum}: {origin}")
_MEMORY: Final = Message("GPU memory {amount}: {origin}")
_WEIGHTS: Final = Message(
    "{weights} GiB of weights on each GPU, of whose memory {fraction} may be used: {origin}"
)
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
_LABEL: Final = Message("podSelector: label {key} {actual}, expected {expected}")
_IS: Final = Message("is {value!r}")
_ABSENT: Final = Message("is absent")
_DISABLED: Final = Message("disabled by its label")
_GROUP: Final = Message("group {group} is not used")
_RESOURCES: Final = Message("requests none of {names}")
_NOTHING: Final = Message()
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


class Edit(Struct, frozen=True):
    """One value that was set. path: in the object. rule: by which, or empty. reason: in a few words."""

    path: Path
    value: Any
    rule: str
    reason: Message


class RuleEvaluation(Struct, frozen=True):
    """One rule and one container. why: of any outcome except a match. would: what a dry run would inject.

    runtimes: the modes of the container runtime that are assumed, on which nodes, and where each is from.
    unused: the values of which another rule set a different one, and which rule that is. findings: of the
    decision.
    """

    rule: DecidingRule
    outcome: RuleOutcome
    why: Message = _NOTHING
    requirements: tuple[Message, ...] = ()
    runtimes: tuple[Message, ...] = ()
    edits: tuple[Edit, ...] = ()
    would: tuple[str, ...] = ()
    unused: tuple[Message, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings that are violations."""
        return tuple(finding for finding in self.findings if finding.basis)

    @property
    def notices(self) -> tuple[Finding, ...]:
        """The findings that are no violations."""
        return tuple(finding for finding in self.findings if not finding.basis)


class ContainerTrace(Struct, frozen=True):
    """One container, as it was submitted, and every rule, in the order of evaluation."""

    name: str
    kind: ContainerKind
    path: Path
    image: str
    requests: Mapping[str, Any]
    evaluations: tuple[RuleEvaluation, ...]


class PodTrace(Struct, frozen=True):
    """One pod or pod template, at a path. edits: all, in their order."""

    path: Path
    containers: tuple[ContainerTrace, ...]
    edits: tuple[Edit, ...]

    @property
    def own(self) -> tuple[Edit, ...]:
        """The edits of the pod, and of containers for which no rule was evaluated."""
        of_rules = [
            edit
            for container in self.containers
            for evaluation in container.evaluations
            for edit in evaluation.edits
        ]
        return tuple(edit for edit in self.edits if edit not in of_rules)


class _Submitted(Observer):
    """The records of all pods of an object, and what their containers request in it."""

    def __init__(self) -> None:
        self.pods: list[tuple[Record, list[dict[str, Any]]]] = []

    def begin(self, record: Record) -> None:
        """Take a record, and what the containers request before any edit."""
        requests = [{**container.requests, **container.limits} for container in record.pod.containers]
        self.pods.append((record, requests))


class _Trace:
    """The view of one record for `explain`, when the decision is made.

    violations: of the decision, with the effects that they have in it.
    """

    def __init__(
        self, record: Record, violations: Iterable[Finding], namespace: str, inventory: Inventory
    ) -> None:
        self._record = record
        self._pod = record.pod
        self._namespace = namespace
        self._inventory = inventory
        self._findings: dict[tuple[Path, str], dict[Finding, None]] = {}
        notices = (finding for finding in record.findings if not finding.basis)
        for finding in chain(violations, notices):
            self._findings.setdefault((finding.container, finding.rule), {})[finding] = None

    def pod_trace(self, requests: Iterable[Mapping[str, Any]], rules: RuleSet) -> PodTrace:
        """Return the trace. requests: of each container, as submitted."""
        edits, evaluations, unused = self._edits(), self._evaluations(), self._unused()
        others: list[DecidingRule] = [*rules.resources, *rules.injections, *rules.compatibility]
        containers = []
        for container, requested in zip(self._pod.containers, requests, strict=True):
            known = evaluations.get(container, {})
            whole = [
                self._whole(evaluation, container, edits, unused.get((container, name), ()))
                for name, evaluation in known.items()
            ]
            whole += [_not_evaluated(rule) for rule in others if rule.name not in known]
            containers.append(
                ContainerTrace(
                    container.name, container.kind, container.path, container.image, requested, tuple(whole)
                )
            )
        return PodTrace(self._pod.path, tuple(containers), tuple(edits))

    def _evaluations(self) -> dict[Container, dict[str, RuleEvaluation]]:
        """Return the last evaluation of each rule that came up; one that once matched has matched."""
        evaluations: dict[Container, dict[str, RuleEvaluation]] = {}
        for rule, container, obstacle in self._record.matches:
            known = evaluations.setdefault(container, {})
            if obstacle is None:
                known[rule.name] = RuleEvaluation(rule, RuleOutcome.MATCHED)
            elif rule.name not in known or known[rule.name].outcome is not RuleOutcome.MATCHED:
                known[rule.name] = RuleEvaluation(rule, *self._why(rule, container, obstacle))
        return evaluations

    def _edits(self) -> list[Edit]:
        """Return all edits of the pod; those after the last rule are the annotation and the affinity."""
        made = self._pod.recorder.edits
        edits: list[Edit] = []
        for rule, _, _, end in self._record.applications:
            edits += [
                Edit(path, value, rule.name, self._reason(rule, path, value))
                for path, value in made[len(edits) : end]
            ]
        names = ", ".join(dict.fromkeys(container.name for container in self._record.affinity))
        for path, value in made[len(edits) :]:
            words = _SIGNED if path[-1] == INJECTED_ANNOTATION else _AFFINITY.having(names=names)
            edits.append(Edit(path, value, "", words))
        return edits

    def _unused(self) -> dict[_Key, list[Message]]:
        """Return the values of rules that another rule set first, or overrode."""
        set_by: dict[tuple[Container | None, str], tuple[str, Any]] = {}
        unused: dict[_Key, list[Message]] = {}
        for rule, applied, changes, _ in self._record.applications:
            if rule.action is InjectionAction.DRYRUN:
                continue
            made = set(changes)
            for setting in settings_of(rule):
                for container in applied if setting.of_container else [None]:
                    key = (container, setting.name)
                    other, value = set_by.get(key, ("", setting.value))
                    is_set = key in made or (container, f"{setting.name} {setting.value}") in made
                    if is_set:
                        set_by[key] = (rule.name, setting.value)
                    if value != setting.value and other != rule.name:
                        words, loser, winner = (
                            (_REPLACED, other, rule.name) if is_set else (_NOT_SET, rule.name, other)
                        )
                        line = words.having(what=setting.name, other=winner)
                        for affected in [container] if container else self._pod.containers:
                            unused.setdefault((affected, loser), []).append(line)
        return unused

    def _whole(
        self, evaluation: RuleEvaluation, container: Container, edits: list[Edit], unused: Iterable[Message]
    ) -> RuleEvaluation:
        """Return an evaluation with everything that came of the rule for the container."""
        record, name = self._record, evaluation.rule.name
        findings = tuple(self._findings.get((container.path, name), ()))
        if evaluation.outcome is not RuleOutcome.MATCHED:
            return replace(evaluation, findings=findings)
        required = [
            requirement
            for user, requirement in record.requirements
            if user is container and requirement.rule.name == name
        ][-1:]
        would = [
            text
            for rule, _, changes, _ in record.injections
            if rule.name == name and rule.action is InjectionAction.DRYRUN
            for text in change_texts(change for change in changes if change[0] in (None, container))
        ]
        return replace(
            evaluation,
            requirements=tuple(
                line for requirement in required for line in self._needs(requirement, container)
            ),
            runtimes=tuple(line for requirement in required for line in self._runtimes(requirement)),
            edits=tuple(edit for edit in edits if edit.rule == name and _is_below(edit.path, container.path)),
            would=tuple(would),
            unused=tuple(dict.fromkeys(unused)),
            findings=findings,
        )

    def _needs(self, required: RuleRequirement, container: Container) -> list[Message]:
        """Return the lines on what a container requires, without nodes also the one on GPUs that have it."""
        lines = _requirement(required.requirements)
        is_known = not (required.requirements.cuda_unknown or required.requirements.no_cuda)
        if is_known and self._inventory.is_empty and not gpu_resources(container.names).slices:
            lines.append(gpus_for(required, self._inventory.facts))
        return lines

    def _runtimes(self, required: RuleRequirement) -> list[Message]:
        """Return each mode of the container runtime that is assumed, with its nodes."""
        requirements = required.requirements
        if not (requirements.constraints or requirements.cuda_compat is CompatLibraries.INSIDE):
            return []
        sharing, counts = required.rule.sharing, Counter[tuple[RuntimeMode, Message]]()
        for node_class in self._inventory.classes(self._inventory.everything, sharing.labels):
            if node_class.capabilities.product or node_class.capabilities.cuda:
                runtime = sharing.runtime(requirements, node_class.capabilities)
                counts[runtime.mode, runtime.source] += node_class.members.bit_count()
        return [
            _RUNTIME.having(mode=mode.value, source=source, count=count)
            if source != _NOTHING
            else _RUNTIME_UNKNOWN.having(count=count)
            for (mode, source), count in counts.items()
        ]

    def _reason(self, rule: ResourceRule | InjectionRule, path: Path, value: Any) -> Message:
        if isinstance(rule, InjectionRule):
            return _INJECTED
        if path[-2] == REQUESTS and value == self._pod.recorder.get((*path[:-2], LIMITS, path[-1])):
            return _FOLLOWS
        return _DEFAULT

    def _why(
        self, rule: DecidingRule, container: Container, obstacle: Obstacle
    ) -> tuple[RuleOutcome, Message]:
        """Return the outcome of a rule that something keeps from a container, and why."""
        match obstacle:
            case Exemption(name=name, until=until, description=reason):
                why = _UNTIL.having(name=name, until=until, reason=reason)
                return RuleOutcome.EXEMPTED, why
            case ExpressionError():
                return RuleOutcome.EVALUATION_ERROR, _ERROR.having(error=obstacle)
            case Expression(source=source):
                return RuleOutcome.NOT_MATCHED, _FALSE.having(source=source)
            case SelectorTerm():
                return RuleOutcome.NOT_MATCHED, _of_label(obstacle, self._pod.labels)
        if isinstance(rule, ResourceRule):
            raise TypeError(f"{rule.name} has no match that could fail: {obstacle!r}")
        if obstacle is MatchPart.IMAGES:
            globs = _globs(rule.match.images)
            return RuleOutcome.NOT_MATCHED, _IMAGE.having(image=container.image, globs=globs)
        return RuleOutcome.NOT_MATCHED, self._of_namespace(rule.match)

    def _of_namespace(self, match: Match) -> Message:
        excluding = [pattern for pattern in match.exclude if pattern.fullmatch(self._namespace)]
        words, globs = (_NAMESPACE_EXCLUDED, excluding) if excluding else (_NAMESPACE, match.include)
        return words.having(namespace=self._namespace, globs=_globs(globs))


def _requirement(requirements: GpuRequirements) -> list[Message]:
    """Return the lines on the GPU requirements of a container."""
    cuda = requirements.cuda
    lines = [
        _CUDA.having(version=cuda.version, origin=cuda.origin)
        if cuda
        else (_NONE_NEEDED if requirements.no_cuda else _NO_CUDA)
    ]
    starts = (
        _START.having(variable=constraint.variable, origin=constraint.origin)
        for constraint in requirements.constraints
    )
    lines += {start.en: start for start in starts}.values()
    lines += [
        _COMPUTE.having(minimum=least.minimum, origin=least.origin)
        for least in _decisive(requirements.compute)
    ]
    if memory := requirements.memory:
        lines.append(_MEMORY.having(amount=shown(memory.mib), origin=memory.origin))
    for model in requirements.models:
        if (precision := model.precision) and precision.since:
            lines.append(_COMPUTE.having(minimum=precision.since, origin=precision.reason))
        if weights := model.weights:
            fraction = f"{float(weights.fraction):g}"
            on_each = gib(weights.on_rank(None))
            lines.append(_WEIGHTS.having(weights=on_each, fraction=fraction, origin=weights.origin))
    if platforms := requirements.platforms:
        names = "/".join(sorted(platforms.architectures))
        lines.append(_PLATFORMS.having(names=names, origin=platforms.origin))
    return lines


def _decisive(compute: Sequence[ComputeRequirement]) -> Iterator[ComputeRequirement]:
    """Yield the highest certain requirement, and uncertain ones above it; they imply the others."""
    certain = [least for least in compute if least.certain]
    highest = max(certain, key=lambda least: least.minimum, default=None)
    for least in compute:
        if highest is None or least is highest or least.minimum > highest.minimum:
            yield least


def _of_label(term: SelectorTerm, labels: Mapping[str, str]) -> Message:
    actual = _IS.having(value=labels[term.key]) if term.key in labels else _ABSENT
    expected = f"{term.operator} {' '.join(sorted(term.values))}".strip()
    return _LABEL.having(key=term.key, actual=actual, expected=expected)


def _not_evaluated(rule: DecidingRule) -> RuleEvaluation:
    """Return the evaluation of a rule that did not come up for a container."""
    if not rule.enabled:
        return RuleEvaluation(rule, RuleOutcome.DISABLED, _DISABLED)
    if isinstance(rule, ResourceRule):
        why = _GROUP.having(group=rule.group)
    else:
        why = _RESOURCES.having(names=", ".join(rule.match.resources))
    return RuleEvaluation(rule, RuleOutcome.NOT_APPLICABLE, why)


def _globs(patterns: Iterable[re.Pattern[str]]) -> str:
    return ", ".join(map(glob_text, patterns))


def _is_below(path: Path, root: Path) -> bool:
    return path[: len(root)] == root


class Explanation(Struct, frozen=True):
    """A decision and how it was made. out_of_scope: why there was nothing to decide, or empty.

    violations, warnings: those that belong to no single rule and container.
    """

    decision: Decision
    out_of_scope: Message
    pods: tuple[PodTrace, ...]
    violations: tuple[Finding, ...]
    warnings: tuple[Message, ...]


def explain(snapshot: Snapshot, request: AdmissionRequest, now: float = math.inf) -> Explanation:
    """Return the decision on a request with its explanation; arguments and errors as of `decide`."""
    policy = snapshot.policy
    submitted = _Submitted()
    decision = decide(snapshot, request, now, submitted)
    pods = tuple(
        _Trace(record, decision.violations, request.namespace, snapshot.inventory).pod_trace(
            requests, policy.rules
        )
        for record, requests in submitted.pods
    )
    shown = {
        finding
        for pod in pods
        for container in pod.containers
        for evaluation in container.evaluations
        for finding in evaluation.findings
    }
    return Explanation(
        decision=decision,
        out_of_scope=(not decision.rules and out_of_scope(policy.workloads, request)) or _NOTHING,
        pods=pods,
        violations=tuple(violation for violation in decision.violations if violation not in shown),
        warnings=tuple(WarningLine(notice) for notice in decision.notices if notice not in shown),
    )
