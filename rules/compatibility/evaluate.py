"""Compatibility rules: whether some node fits a pod, which ones, and what to say where none does.

Candidates are the nodes that offer what the pod asks for and that its own selectors allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rules.compatibility.fitness import without_node
from rules.compatibility.node_evaluation import EvaluationRequest, node_evaluator
from rules.compatibility.report import (
    LEFT_OUT,
    NEAR_OFFERED,
    NOT_OFFERED,
    NOT_TOGETHER,
    MessageWriter,
    RuleRequirement,
)
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.decision import Violation
from rules.model.finding import Level
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.node_affinity import Requirement, inject, prefer
from rules.nodes.node_selector import REQUIRED, candidates
from rules.text.glob import glob
from rules.text.i18n import Language
from rules.text.paths import field_path

if TYPE_CHECKING:
    from rules.compatibility.node_evaluation import NodeEvaluator
    from rules.kube.pod import Container, Pod
    from rules.nodes.inventory import Inventory

_NODE_AFFINITY: Final = ("spec", "affinity", "nodeAffinity")
_TERMS: Final = (*_NODE_AFFINITY, REQUIRED, "nodeSelectorTerms")
_PREFERRED: Final = (*_NODE_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution")
# Of 100: nodes without an unstable gap of majors before the others, behind what a user weighs heavily.
_STABLE_WEIGHT: Final = 50


class CompatibilityResult(NamedTuple):
    """What is found of a pod. requirement: what its node has to satisfy; preference: what it better would."""

    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()
    requirement: Requirement = Requirement()
    preference: Requirement | None = None


def judge(
    demands: Iterable[tuple[Container, RuleRequirement]], pod: Pod, inventory: Inventory, language: Language
) -> CompatibilityResult:
    """Return the verdict on a pod whose containers have these demands.

    What follows from a rule is never weakened by another: rules that warn, which do not steer, are judged
    beside those that deny, and those of a dry run, which say nothing either, beside all others.
    """
    words = MessageWriter(language)
    violations: list[Violation] = []
    warnings: list[str] = []
    possible: list[tuple[Container, RuleRequirement]] = []
    resources: list[tuple[str, ...]] = []
    for container, demand in demands:
        names = _asked(container)
        if not _is_about(demand.rule, names):
            continue
        found, action = without_node(demand.rule.terms, demand.needs), demand.rule.action
        if found or demand.needs.problems:
            lines = [words.of(problem) for problem in demand.needs.problems]
            lines += [
                words.anywhere(demand, finding) for finding in found if finding.level < Level.INCOMPATIBLE
            ]
            warnings += lines if action is not Action.DRYRUN else ()
            refused = [
                words.anywhere(demand, finding) for finding in found if finding.level is Level.INCOMPATIBLE
            ]
            violations += [_violation(container, demand.rule, action, line) for line in refused]
            if refused:
                continue
        possible.append((container, demand))
        resources.append(names)
    if not possible or not len(inventory):
        return CompatibilityResult(tuple(violations), tuple(dict.fromkeys(warnings)))
    landscape = node_evaluator(inventory)
    nodes = candidates(inventory, pod.spec)
    for names in resources:
        nodes &= landscape.offering(names)
    asked = tuple([demand for _, demand in possible])
    if not nodes:
        if any(demand.rule.no_fitting_node is not Action.DRYRUN for demand in asked):
            asks = [(demand.needs.container, names) for demand, names in zip(asked, resources, strict=True)]
            warnings.append(_no_candidates(landscape, asks, words))
        return CompatibilityResult(tuple(violations), tuple(dict.fromkeys(warnings)))
    verdict = landscape.judge(EvaluationRequest(asked, nodes, language))
    if verdict.incompatible:
        culprit, action, line = verdict.incompatible
        container = possible[asked.index(culprit)][0]
        violations.append(_violation(container, culprit.rule, action, line))
    told = tuple(dict.fromkeys([*warnings, *verdict.warnings]))
    return CompatibilityResult(tuple(violations), told, verdict.requirement, verdict.preference)


def steer(verdict: CompatibilityResult, pod: Pod) -> bool:
    """Put node affinity into a pod so that only fitting nodes remain; tell whether something changed.

    A pod that names its node is not scheduled any more, and was judged by that node.
    """
    if not (verdict.requirement.clauses or verdict.preference):
        return False
    spec = pod.spec
    if spec.get("nodeName"):
        return False
    changed = False
    if (terms := inject(spec, verdict.requirement)) is not None:
        pod.set(*_TERMS, value=terms)
        changed = True
    if verdict.preference:
        for term in prefer(spec, verdict.preference, _STABLE_WEIGHT):
            pod.append(*_PREFERRED, entry=term)
            changed = True
    return changed


def _no_candidates(
    landscape: NodeEvaluator, asks: Sequence[tuple[str, tuple[str, ...]]], words: MessageWriter
) -> str:
    """Return why no node could take a pod. asks: containers by name, and the resources that they ask for."""
    nodes, together = landscape.offering(()), dict[str, None]()
    for container, names in asks:
        offered = [name for name in names if landscape.offering((name,))]
        if not offered:
            near = landscape.near(names)
            return words.no_candidates(container, NEAR_OFFERED if near else NOT_OFFERED, names, near=near)
        together |= dict.fromkeys(offered)
        nodes &= landscape.offering(names)
        if not nodes:
            return words.no_candidates(container, NOT_TOGETHER, tuple(together))
    return words.no_candidates(asks[0][0], LEFT_OUT, tuple(together), nodes=nodes.bit_count())


def _violation(container: Container, rule: CompatibilityRule, action: Action, line: str) -> Violation:
    return Violation(rule.name, action, field_path((*container.path, "image")), line)


def _is_about(rule: CompatibilityRule, names: Iterable[str]) -> bool:
    """Tell whether a rule is about any of these resources."""
    patterns = rule.match.resources
    for name in names:
        if name in patterns:
            return True
    return any(pattern.fullmatch(name) for pattern in map(_glob, patterns) for name in names)


_glob = lru_cache(maxsize=256)(glob)  # of what stands in rules


def _asked(container: Container) -> tuple[str, ...]:
    """Return the extended resources of which a container asks for some; 0 is none."""
    found: dict[str, None] = {}
    for quantities in (container.limits, container.requests):
        for name, quantity in quantities.items():
            if "/" in name and name not in found and not _is_none(quantity):
                found[name] = None
    return tuple(found)


def _is_none(quantity: object) -> bool:
    try:
        return parse_quantity(quantity) == 0
    except QuantityError:  # the resource's own rule tells
        return False
