"""Compatibility of a pod with the nodes of a cluster: violations, warnings, and required node affinity.

Candidates are the nodes that offer what the pod requests and that its own selectors allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from rules.compatibility.checks import check_on_any_node
from rules.compatibility.node_evaluation import EvaluationRequest, NodeEvaluator, node_evaluator
from rules.compatibility.prospects import NO_PROSPECTS, ProspectResult, Prospects, at_creation
from rules.compatibility.report import EXCLUDED, NOT_OFFERED, NOT_TOGETHER, SIMILAR_OFFERED, MessageWriter
from rules.compatibility.result import NodeSetResult, NoFittingNode, RuleRequirement
from rules.kube.pod import Container, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.check_result import Level
from rules.model.decision import AdmissionWarning, Basis, Violation
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.inventory import Inventory
from rules.nodes.node_affinity import Requirement, inject, prefer
from rules.nodes.node_selector import REQUIRED, candidates
from rules.text.glob import glob
from rules.text.i18n import Language, Text
from rules.text.paths import field_path

_NODE_AFFINITY: Final = ("spec", "affinity", "nodeAffinity")
_TERMS: Final = (*_NODE_AFFINITY, REQUIRED, "nodeSelectorTerms")
_PREFERRED: Final = (*_NODE_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution")
# Of 100: prefers nodes without an unstable gap of majors, below what a user weighs heavily.
_STABLE_WEIGHT: Final = 50


class CompatibilityResult(NamedTuple):
    """The result for a pod. requirement: the labels that its node must have; preference: should have.

    notes: as in NodeSetResult.
    """

    violations: tuple[Violation, ...] = ()
    warnings: tuple[AdmissionWarning, ...] = ()
    requirement: Requirement = Requirement()
    preference: Requirement | None = None
    notes: tuple[Text, ...] = ()


def evaluate(
    required: Iterable[tuple[Container, RuleRequirement]],
    pod: Pod,
    inventory: Inventory,
    language: Language,
    prospects: Prospects = NO_PROSPECTS,
) -> CompatibilityResult:
    """Return the result for a pod whose containers have these rule requirements.

    prospects: the nodes that an autoscaler may add. A rule is never weakened by another: rules that warn are
    evaluated together with those that deny, and those of a dry run, which say nothing, with all others.
    """
    writer = MessageWriter(language)
    violations: list[Violation] = []
    warnings: list[AdmissionWarning] = []
    containers: dict[RuleRequirement, list[Container]] = {}
    requests: list[tuple[str, tuple[str, ...]]] = []
    for container, each in required:
        names = _requested(container)
        if not _applies_to(each.rule, names):
            continue
        if not _anywhere(container, each, writer, violations, warnings):
            containers.setdefault(each, []).append(container)
            requests.append((container.name, names))
    if not containers or not (len(inventory) or prospects):
        return CompatibilityResult(tuple(violations), tuple(warnings))
    writer.containers = {each: [one.name for one in group] for each, group in containers.items()}
    request = _PodRequest(containers, requests, pod, writer)
    found = _on_nodes(request, node_evaluator(inventory), prospects)
    return found._replace(violations=(*violations, *found.violations), warnings=(*warnings, *found.warnings))


class _PodRequest(NamedTuple):
    """What a pod requires of one node. requests: names of containers, and the resources they request."""

    containers: Mapping[RuleRequirement, Sequence[Container]]
    requests: Sequence[tuple[str, tuple[str, ...]]]
    pod: Pod
    writer: MessageWriter


def _on_nodes(asked: _PodRequest, evaluator: NodeEvaluator, prospects: Prospects) -> CompatibilityResult:
    """Return the result on the nodes of a cluster, and on those that may be added."""
    required, spec, writer = tuple(asked.containers), asked.pod.spec, asked.writer
    nodes = returning = candidates(evaluator.inventory, spec)
    for _, names in asked.requests:
        nodes &= evaluator.offering(names)
        returning &= evaluator.offering(names) | evaluator.returning(names)
    if spec.get("nodeName"):  # it is there already, whatever state the node is in
        nodes = returning
    found = prospects.results(required, spec, [name for _, names in asked.requests for name in names])
    coming = [each for each in found if each.level <= Level.UNSTABLE]
    result = NodeSetResult()
    if nodes:
        keep_out = len(coming) < len(found)
        result = evaluator.evaluate(EvaluationRequest(required, nodes, returning & ~nodes, keep_out))
    labels = at_creation(coming)
    if coming and (not nodes or result.none_fits):
        requirement = Requirement((labels,)) if labels else Requirement()
        return CompatibilityResult(requirement=requirement, notes=(writer.coming(coming),))
    warnings = writer.doubts(result.doubts) if result.doubts else []
    if result.returning:
        warnings.append(writer.returning(required[0].rule, result.returning))
    fits = CompatibilityResult(
        (), tuple(warnings), result.requirement.or_else(labels), result.preference, result.notes
    )
    if not nodes:
        return fits._replace(warnings=_without_candidates(asked, evaluator))
    return _without_node(asked, result.none_fits, found, fits) if result.none_fits else fits


def _without_candidates(asked: _PodRequest, evaluator: NodeEvaluator) -> tuple[AdmissionWarning, ...]:
    """Return the warning that no node is a candidate, unless all rules are dry runs."""
    reporting = (each for each in asked.containers if evaluator.without_node(each) is not Action.DRYRUN)
    first = next(reporting, None)
    return (_no_candidates(evaluator, first.rule, asked.requests, asked.writer),) if first else ()


def _without_node(
    asked: _PodRequest, none_fits: NoFittingNode, found: Sequence[ProspectResult], other: CompatibilityResult
) -> CompatibilityResult:
    """Return the result if no node is compatible, nor certainly one that may be added.

    other: the result of stricter rules, which some node satisfies.
    """
    if any(each.level is Level.UNKNOWN for each in found):
        return other._replace(warnings=(asked.writer.may_come(none_fits, found), *other.warnings))
    path = field_path((*asked.containers[none_fits.required][0].path, "image"))
    return other._replace(violations=(asked.writer.none_fits(none_fits, path, found),))


def _anywhere(
    container: Container,
    required: RuleRequirement,
    writer: MessageWriter,
    violations: list[Violation],
    warnings: list[AdmissionWarning],
) -> bool:
    """Add what holds on every node to violations and warnings; return whether a requirement is unmet."""
    rule, requirements = required
    if requirements.declared and rule.declarations:
        violations.append(writer.declared(rule, rule.declarations, container, requirements.declared))
    results = check_on_any_node(rule.sharing, requirements)
    if not results and not requirements.problems:
        return False
    if rule.action is not Action.DRYRUN:
        warnings += (AdmissionWarning(rule.name, writer.of(problem)) for problem in requirements.problems)
        mild = (result for result in results if result.level < Level.INCOMPATIBLE)
        warnings += (AdmissionWarning(rule.name, *writer.anywhere(container.name, each)) for each in mild)
    unmet = [result for result in results if result.level is Level.INCOMPATIBLE]
    path = field_path((*container.path, "image"))
    violations += (
        Violation(
            rule.name,
            rule.action,
            path,
            *writer.anywhere(container.name, each),
            writer.language,
            Basis.POLICY if each.setting else Basis.FACT,
        )
        for each in unmet
    )
    return bool(unmet)


def inject_affinity(result: CompatibilityResult, pod: Pod) -> bool:
    """Add node affinity to a pod so that only compatible nodes remain; return whether it changed.

    A pod with a nodeName is already scheduled, and was evaluated on that node.
    """
    if not (result.requirement.clauses or result.preference):
        return False
    spec = pod.spec
    if spec.get("nodeName"):
        return False
    changed = False
    if (terms := inject(spec, result.requirement)) is not None:
        pod.set(*_TERMS, value=terms)
        changed = True
    if result.preference:
        for term in prefer(spec, result.preference, _STABLE_WEIGHT):
            pod.append(*_PREFERRED, entry=term)
            changed = True
    return changed


def _no_candidates(
    evaluator: NodeEvaluator,
    rule: CompatibilityRule,
    requests: Sequence[tuple[str, tuple[str, ...]]],
    writer: MessageWriter,
) -> AdmissionWarning:
    """Return why no node is a candidate. requests: names of containers, and the resources they request."""
    nodes, together = evaluator.offering(()), dict[str, None]()
    for container, names in requests:
        offered = [name for name in names if evaluator.offering((name,))]
        if not offered:
            similar = evaluator.similar(names)
            why = SIMILAR_OFFERED if similar else NOT_OFFERED
            return writer.no_candidates(rule, container, why, names, similar=similar)
        together |= dict.fromkeys(offered)
        nodes &= evaluator.offering(names)
        if not nodes:
            return writer.no_candidates(rule, container, NOT_TOGETHER, tuple(together))
    return writer.no_candidates(rule, requests[0][0], EXCLUDED, tuple(together), nodes=nodes.bit_count())


def _applies_to(rule: CompatibilityRule, names: Iterable[str]) -> bool:
    """Return whether a rule matches any of these resources."""
    patterns = rule.match.resources
    for name in names:
        if name in patterns:
            return True
    return any(pattern.fullmatch(name) for pattern in map(_glob, patterns) for name in names)


_glob = lru_cache(maxsize=256)(glob)  # of the patterns in rules


def _requested(container: Container) -> tuple[str, ...]:
    """Return the extended resources that a container requests; a quantity of 0 is no request."""
    found: dict[str, None] = {}
    for quantities in (container.limits, container.requests):
        for name, quantity in quantities.items():
            if "/" in name and name not in found and not _is_zero(quantity):
                found[name] = None
    return tuple(found)


def _is_zero(quantity: object) -> bool:
    try:
        return parse_quantity(quantity) == 0
    except QuantityError:  # the resource's own rule reports it
        return False
