"""Compatibility of a pod with the nodes of a cluster: violations, warnings, and required node affinity.

Candidates are the nodes that offer what the pod requests and that its own selectors allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from rules.compatibility.checks import check_container, check_on_any_node
from rules.compatibility.checks.base import ContainerFinding
from rules.compatibility.node_evaluation import EvaluationRequest, NodeEvaluator, node_evaluator
from rules.compatibility.prospects import NO_PROSPECTS, ProspectResult, Prospects
from rules.compatibility.report import (
    EXCLUDED,
    NOT_OFFERED,
    NOT_READY,
    NOT_TOGETHER,
    SIMILAR_OFFERED,
    MessageWriter,
)
from rules.compatibility.result import NodeSetResult, NoFittingNode, RuleRequirement
from rules.kube.pod import Container, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.check_result import Level
from rules.model.decision import AdmissionWarning, Basis, Violation
from rules.model.rule import Action, CompatibilityRule, mildest
from rules.nodes.inventory import INSTANCE_TYPE, Inventory
from rules.nodes.node_affinity import Requirement, inject, prefer
from rules.nodes.node_selector import REQUIRED, Clause, candidates
from rules.text.budget import Budget
from rules.text.glob import glob
from rules.text.i18n import Language, Text
from rules.text.paths import Path, field_path

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

    prospects: the nodes that an autoscaler may add by the rules, besides those that the inventory declares.
    A rule is never weakened by another: rules that warn are evaluated together with those that deny, and
    those of a dry run, which say nothing, with all others.
    """
    writer = MessageWriter(language)
    violations: list[Violation] = []
    warnings: list[AdmissionWarning] = []
    containers: dict[RuleRequirement, list[Container]] = {}
    requests: list[tuple[str, tuple[str, ...]]] = []
    findings: list[tuple[Container, CompatibilityRule, ContainerFinding]] = []
    for container, each in required:
        names = tuple([name for name in _requested(container) if inventory.dra.requests_gpu(name)])
        if not _applies_to(each.rule, names):
            continue
        faults = check_container(each.rule.sharing, each.requirements, container, pod)
        findings += ((container, each.rule, finding) for finding in faults)
        if not _anywhere(container, each, writer, violations, warnings):
            containers.setdefault(each, []).append(container)
            requests.append((container.name, names))
    if findings:
        _report(findings, writer, violations, warnings)
    evaluator = node_evaluator(inventory, prospects)
    if not containers or not (inventory.everything or evaluator.prospects):
        return CompatibilityResult(tuple(violations), tuple(warnings))
    writer.containers = {each: [one.name for one in group] for each, group in containers.items()}
    found = _on_nodes(_PodRequest(containers, requests, pod, writer), evaluator)
    if not (violations or warnings):
        return found
    return found._replace(violations=(*violations, *found.violations), warnings=(*warnings, *found.warnings))


class _PodRequest(NamedTuple):
    """What a pod requires of one node. requests: names of containers, and the resources they request."""

    containers: Mapping[RuleRequirement, Sequence[Container]]
    requests: Sequence[tuple[str, tuple[str, ...]]]
    pod: Pod
    writer: MessageWriter


def _on_nodes(asked: _PodRequest, evaluator: NodeEvaluator) -> CompatibilityResult:
    """Return the result on the nodes of a cluster, and on those that may be added."""
    required, spec, writer = tuple(asked.containers), asked.pod.spec, asked.writer
    nodes = returning = candidates(evaluator.inventory, spec)
    for _, names in asked.requests:
        offering = evaluator.offering(names)
        nodes &= offering
        returning &= offering | evaluator.returning(names)
    if spec.get("nodeName"):  # it is there already, whatever state the node is in
        nodes = returning
    found: list[ProspectResult] = []
    if evaluator.prospects:
        requested = [name for _, names in asked.requests for name in names]
        found = evaluator.prospects.results(required, spec, requested)
    coming = [each for each in found if each.level <= Level.UNSTABLE]
    request = EvaluationRequest(required, nodes, returning & ~nodes, len(coming) < len(found))
    result = _of_tolerated(request, evaluator, spec) if nodes else NodeSetResult()
    if coming and (result.none_fits or result.returning or result.untolerated or not nodes):
        requirement = _of_pools(evaluator, required, coming, None if nodes else found)
        return CompatibilityResult(requirement=requirement, notes=(writer.coming(coming),))
    warnings = writer.doubts(result.doubts) if result.doubts else []
    if not nodes or result.returning or result.untolerated:
        warnings += _pending(asked, evaluator, request, result, found)
    requirement = result.requirement
    if coming:
        requirement = requirement.or_else(_terms_of(evaluator, required, coming))
    if not (nodes or returning):
        requirement = _of_unknown(evaluator, required, found)
    notes = result.notes
    if evaluator.autoscaled and requirement.clauses:
        notes += (writer.ways_in(_types(requirement), coming),)
    fits = CompatibilityResult((), tuple(warnings), requirement, result.preference, notes)
    none_fits = result.none_fits or (
        None if nodes or returning else _no_pool_fits(evaluator, required, found)
    )
    if none_fits is None:
        return fits
    if spec.get("nodeName"):  # no autoscaler moves it
        none_fits = none_fits._replace(action=none_fits.required.rule.without_node(undeclared=False))
        writer.node = str(spec["nodeName"])
    return _without_node(asked, evaluator, none_fits, found, fits)


def _types(requirement: Requirement) -> list[str]:
    """Return the instance types that are enough for a node."""
    terms = (term for clause in requirement.clauses for term in clause if len(term) == 1)
    return [value for (each,) in terms if each.key == INSTANCE_TYPE for value in each.values]


def _of_tolerated(
    request: EvaluationRequest, evaluator: NodeEvaluator, spec: Mapping[str, Any]
) -> NodeSetResult:
    """Return the result on the nodes that a pod tolerates; if none of them is compatible, on all."""
    tolerated = request.nodes
    if evaluator.inventory.tainted and not spec.get("nodeName"):
        tolerated &= evaluator.tolerated(spec.get("tolerations"))
    if tolerated == request.nodes:
        return evaluator.evaluate(request)
    if tolerated:
        result = evaluator.evaluate(request._replace(nodes=tolerated))
        if not (result.none_fits or result.returning):
            return result
    result = evaluator.evaluate(request)
    if result.none_fits or result.returning:
        return result
    return result._replace(untolerated=request.nodes & ~tolerated)


def _pending(
    asked: _PodRequest,
    evaluator: NodeEvaluator,
    request: EvaluationRequest,
    result: NodeSetResult,
    found: Sequence[ProspectResult],
) -> list[AdmissionWarning]:
    """Return why a pod stays Pending for now, unless all rules are dry runs."""
    reporting = (each for each in asked.containers if evaluator.without_node(each) is not Action.DRYRUN)
    if (first := next(reporting, None)) is None:
        return []
    writer = asked.writer
    if result.returning:
        return [writer.returning(first.rule, result.returning)]
    if result.untolerated:
        classes = evaluator.class_results(request.required, result.untolerated)
        compatible = sum(each.members for each in classes if each.level is not Level.INCOMPATIBLE)
        return [writer.untolerated(first.rule, classes, evaluator.inventory.taints(compatible))]
    if any(each.level is Level.UNKNOWN for each in found):
        return [writer.may_come(first.rule, found)]
    if found and not request.returning:  # a denial, which names the pools
        return []
    return [_no_candidates(asked, evaluator, first.rule, request.returning)]


def _no_pool_fits(
    evaluator: NodeEvaluator, required: Sequence[RuleRequirement], found: Sequence[ProspectResult]
) -> NoFittingNode | None:
    """Return that none of the nodes that may be added is compatible, where there is no other."""
    classes = tuple(each.nodes for each in found)
    if not classes or any(each.level is not Level.INCOMPATIBLE for each in classes):
        return None
    strictest = min(required, key=lambda each: list(Action).index(evaluator.without_node(each)))
    return NoFittingNode(strictest, evaluator.without_node(strictest), classes, ())


def _of_pools(
    evaluator: NodeEvaluator,
    required: tuple[RuleRequirement, ...],
    chosen: Sequence[ProspectResult],
    found: Sequence[ProspectResult] | None = None,
) -> Requirement:
    """Return the requirement that a new node is of these pools; none if they are all that there are, `found`.

    Nothing is required either if none of them has labels, or if no rule denies.
    """
    denies = any(each.rule.action is Action.DENY for each in required)
    if (found is not None and len(chosen) == len(found)) or not denies:
        return Requirement()
    terms = _terms_of(evaluator, required, chosen)
    return Requirement((terms,) if terms else ())


def _terms_of(
    evaluator: NodeEvaluator, required: tuple[RuleRequirement, ...], chosen: Sequence[ProspectResult]
) -> Clause:
    """Return a term for each pool, in labels that its nodes have when they are created."""
    terms = evaluator.pool_terms(required)
    return tuple(dict.fromkeys(term for each in chosen if (term := terms[id(each.pool)])))


def _of_unknown(
    evaluator: NodeEvaluator, required: tuple[RuleRequirement, ...], found: Sequence[ProspectResult]
) -> Requirement:
    """Return the requirement that a new node is of a pool that may fit, if others certainly do not."""
    unknown = [each for each in found if each.level is Level.UNKNOWN]
    if not unknown or evaluator.undeclared:
        return Requirement()
    return _of_pools(evaluator, required, unknown, found)


def _without_node(
    asked: _PodRequest,
    evaluator: NodeEvaluator,
    none_fits: NoFittingNode,
    found: Sequence[ProspectResult],
    other: CompatibilityResult,
) -> CompatibilityResult:
    """Return the result if no node is compatible, nor certainly one that may be added.

    other: the result of stricter rules, which some node satisfies.
    """
    required, rule = tuple(asked.containers), none_fits.required.rule
    says = none_fits.action is not Action.DRYRUN
    if any(each.level is Level.UNKNOWN for each in found):
        warnings = [asked.writer.may_come(rule, found)] if says else []
        requirement = other.requirement
        if not requirement.clauses:
            requirement = _of_unknown(evaluator, required, found)
        return other._replace(warnings=(*warnings, *other.warnings), requirement=requirement)
    requested = [name for _, names in asked.requests for name in names]
    tainted = evaluator.prospects.results(required, asked.pod.spec, requested, tolerated=False)
    if fitting := [each for each in tainted if each.level is not Level.INCOMPATIBLE]:
        warnings = [asked.writer.untolerated_pools(rule, fitting)] if says else []
        return other._replace(warnings=(*warnings, *other.warnings))
    path = field_path((*asked.containers[none_fits.required][0].path, "image"))
    return other._replace(violations=(asked.writer.none_fits(none_fits, path, found),))


def _report(
    findings: Iterable[tuple[Container, CompatibilityRule, ContainerFinding]],
    writer: MessageWriter,
    violations: list[Violation],
    warnings: list[AdmissionWarning],
) -> None:
    """Add findings on containers to violations and warnings, each once: by the rule that is strictest."""

    def effect(finding: tuple[Container, CompatibilityRule, ContainerFinding]) -> int:
        _, rule, (result, _) = finding
        action = rule.action if result.level is Level.INCOMPATIBLE else mildest(rule.action, Action.WARN)
        return [*Action].index(action)

    reported: set[tuple[Path, Text]] = set()
    for container, rule, (result, path) in sorted(findings, key=effect):
        if (path, result.reason) in reported:
            continue
        reported.add((path, result.reason))
        reason, fix = writer.anywhere(container.name, result)
        if result.level is Level.INCOMPATIBLE:
            basis = Basis.POLICY if result.setting else Basis.FACT
            at = field_path(path)
            violations.append(Violation(rule.name, rule.action, at, reason, fix, writer.language, basis))
        elif rule.action is not Action.DRYRUN:
            warnings.append(AdmissionWarning(rule.name, reason, fix))


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


def inject_affinity(result: CompatibilityResult, pod: Pod, budget: Budget | None = None) -> bool:
    """Add node affinity to a pod so that only compatible nodes remain; return whether it changed.

    budget: as in `inject`. Raises OverBudgetError.
    A pod with a nodeName is already scheduled, and was evaluated on that node.
    """
    if not (result.requirement.clauses or result.preference):
        return False
    spec = pod.spec
    if spec.get("nodeName"):
        return False
    changed = False
    if (terms := inject(spec, result.requirement, budget)) is not None:
        pod.set(*_TERMS, value=terms)
        changed = True
    if result.preference:
        for term in prefer(spec, result.preference, _STABLE_WEIGHT):
            pod.append(*_PREFERRED, entry=term)
            changed = True
    return changed


def _no_candidates(
    asked: _PodRequest, evaluator: NodeEvaluator, rule: CompatibilityRule, returning: int
) -> AdmissionWarning:
    """Return why no node is a candidate. returning: those that may be one again."""
    requests, writer = asked.requests, asked.writer
    if returning:
        names = tuple(dict.fromkeys(name for _, found in requests for name in found))
        return writer.no_candidates(rule, requests[0][0], NOT_READY, names, nodes=returning.bit_count())
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
