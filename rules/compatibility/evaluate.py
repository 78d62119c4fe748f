"""Compatibility of a pod with the nodes of a cluster: violations, warnings, and required node affinity.

Candidates are the nodes that offer what the pod requests and that its own selectors allow.
The sets of nodes that a pod fits on are for reports that compare two states of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from rules.affinity.node_affinity import Requirement, inject, prefer
from rules.compatibility.checks import check_container
from rules.compatibility.container_findings import (
    counted_amounts,
    excess_findings,
    memory_findings,
    report_findings,
    report_on_any_node,
    selects_nodes,
    shared_gpu_findings,
)
from rules.compatibility.node_evaluation import NodeEvaluator, NodeQuery, node_evaluator
from rules.compatibility.pool_affinity import (
    instance_types,
    no_pool_fits,
    of_pools,
    of_unknown,
    terms_of,
    unknown_pools,
)
from rules.compatibility.prospects import NO_PROSPECTS, ProspectResult, Prospects
from rules.compatibility.report import MessageWriter, PodDemand
from rules.compatibility.result import (
    NodeClassResult,
    NodeSetResult,
    RuleRequirement,
)
from rules.compatibility.taints import pending, untolerated_nodes, untolerated_pools
from rules.kube.node_selector_term import REQUIRED
from rules.kube.pod import Container, Pod
from rules.model.check_result import CheckResult, Edit, Level, edit_of_flag
from rules.model.finding import Finding
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.gpu_resources import Amounts
from rules.nodes.inventory import Inventory
from rules.nodes.node_selector import candidates, excluding
from rules.text.bounded_cache import Budget
from rules.text.glob import Comparisons
from rules.text.i18n import Message
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

    findings: tuple[Finding, ...] = ()
    requirement: Requirement = Requirement()
    preference: Requirement | None = None
    notes: tuple[Message, ...] = ()


def evaluate(
    required: Iterable[tuple[Container, RuleRequirement]],
    pod: Pod,
    inventory: Inventory,
    prospects: Prospects = NO_PROSPECTS,
    *,
    comparisons: Comparisons,
) -> CompatibilityResult:
    """Return the result for a pod whose containers have these rule requirements.

    prospects: the nodes that an autoscaler may add by the rules, besides those that the inventory declares.
    comparisons: those of the object that the pod belongs to.
    A rule is never weakened by another: rules that warn are evaluated together with those that deny, and
    those of a dry run, which say nothing, with all others.
    """
    writer = MessageWriter(inventory.presets)
    findings: list[Finding] = []
    containers: dict[RuleRequirement, list[Container]] = {}
    requests: list[tuple[str, tuple[str, ...]]] = []
    results: list[tuple[Container, CompatibilityRule, CheckResult]] = []
    for container, requirement in required:
        names = inventory.dra.gpus_among(container.names)
        if not requirement.rule.match.is_for(names):
            continue
        of_container = check_container(requirement.rule.sharing, requirement.requirements, container, pod)
        results += [(container, requirement.rule, result) for result in of_container]
        if requirement.rule.sharing.cuda and not report_on_any_node(container, requirement, writer, findings):
            containers.setdefault(requirement, []).append(container)
            requests.append((container.name, inventory.dra.gpus_among(container.offered_names)))
    evaluator = node_evaluator(inventory, prospects)
    knows_nodes = bool(containers and (inventory.everything or evaluator.prospects))
    amounts: Amounts = ()
    if knows_nodes:
        amounts = counted_amounts(pod, containers, [name for _, names in requests for name in names])
        if excess := evaluator.excess(amounts):
            results += excess_findings(excess, pod, containers, evaluator)
        results += memory_findings(pod, containers, evaluator, [request.resource for request in excess])
        results += shared_gpu_findings(pod, containers, evaluator)
        if excess or not selects_nodes(containers):
            amounts = ()
    if results:
        findings += report_findings(results, writer)
    if not knows_nodes:
        return CompatibilityResult(tuple(findings))
    writer.containers = containers
    demand = PodDemand(containers, requests, pod, pod.spec, writer, comparisons, amounts)
    result = _on_nodes(demand, evaluator)
    return result._replace(findings=(*findings, *result.findings)) if findings else result


def _on_nodes(demand: PodDemand, evaluator: NodeEvaluator) -> CompatibilityResult:
    """Return the result on the nodes of a cluster, and on those that may be added."""
    required, spec, writer = tuple(demand.containers), demand.spec, demand.writer
    nodes, returning = candidate_nodes(demand, evaluator)
    prospects: list[ProspectResult] = []
    if evaluator.prospects:
        prospects = evaluator.prospects.results(required, spec, demand.resources, demand.amounts)
    coming = [prospect for prospect in prospects if prospect.level <= Level.UNSTABLE]
    query = NodeQuery(required, nodes, returning & ~nodes, len(coming) < len(prospects))
    result = _of_tolerated(query, evaluator, spec) if nodes else NodeSetResult()
    if coming and (result.unmet or result.returning or result.untolerated or not nodes):
        requirement = of_pools(evaluator, required, coming, None if nodes else prospects)
        return CompatibilityResult(requirement=requirement, notes=(writer.coming(coming),))
    findings = writer.doubts(result.doubts) if result.doubts else []
    if result.untolerated:
        findings = [*untolerated_nodes(demand, evaluator, query, result.untolerated), *findings]
    elif not nodes or result.returning:
        findings += pending(demand, evaluator, query, result, prospects)
    requirement = result.requirement
    possible, contradicted = unknown_pools(evaluator, required, prospects) if prospects else ([], [])
    if ways := coming or possible:
        requirement = requirement.or_else(terms_of(evaluator, required, ways))
    if not (nodes or returning):
        requirement = (
            of_unknown(evaluator, required, prospects) if prospects else _of_others(demand, evaluator)
        )
    notes = result.notes
    if evaluator.autoscaled and requirement.clauses:
        types = instance_types(requirement)
        if contradicted and not (types or ways):
            findings.append(writer.no_way_in(required[0].rule, contradicted))
        else:
            notes += (writer.ways_in(types, ways),)
    fits = CompatibilityResult(tuple(findings), requirement, result.preference, notes)
    if not (nodes or returning):
        result = no_pool_fits(evaluator, required, prospects)
    return _without_node(demand, evaluator, result, prospects, fits) if result.unmet else fits


def _of_others(demand: PodDemand, evaluator: NodeEvaluator) -> Requirement:
    """Return the labels that a node must have which the pod will select, as far as the others tell.

    None where an autoscaler may add nodes, which it would not do for labels that it does not know.
    """
    nodes = 0 if evaluator.autoscaled else evaluator.inventory.everything
    for _, names in demand.requests:
        nodes &= evaluator.offering(names)
    if demand.amounts:
        nodes &= evaluator.having(demand.amounts)[0]
    if not nodes:
        return Requirement()
    return evaluator.evaluate(NodeQuery(tuple(demand.containers), nodes)).requirement


def candidate_nodes(demand: PodDemand, evaluator: NodeEvaluator) -> tuple[int, int]:
    """Return the nodes that a pod may be scheduled on, and those on which it may be later, as bit sets."""
    nodes = returning = candidates(evaluator.inventory, demand.spec)
    for _, names in demand.requests:
        offering = evaluator.offering(names)
        nodes &= offering
        returning &= offering | evaluator.returning(names)
    if demand.spec.get("nodeName"):  # it is there already, whatever state the node is in
        return returning, returning
    if demand.amounts:
        now, later = evaluator.having(demand.amounts)
        return nodes & now, returning & later
    return nodes, returning


def _of_tolerated(query: NodeQuery, evaluator: NodeEvaluator, spec: Mapping[str, Any]) -> NodeSetResult:
    """Return the result on the nodes that a pod tolerates; if none of them is compatible, on all."""
    tolerated = query.nodes
    if evaluator.tainted and not spec.get("nodeName"):
        tolerated &= evaluator.tolerated(spec.get("tolerations"))
    if tolerated == query.nodes:
        return evaluator.evaluate(query)
    if tolerated:
        result = evaluator.evaluate(query._replace(nodes=tolerated))
        if not (result.unmet or result.returning):
            return result
    result = evaluator.evaluate(query)
    if result.unmet or result.returning:
        return result
    return result._replace(untolerated=query.nodes & ~tolerated)


def _without_node(
    demand: PodDemand,
    evaluator: NodeEvaluator,
    result: NodeSetResult,
    prospects: Sequence[ProspectResult],
    other: CompatibilityResult,
) -> CompatibilityResult:
    """Return the result if no node is compatible, nor certainly one that may be added.

    other: the result of stricter rules, which some node satisfies.
    """
    required, unmet, writer = tuple(demand.containers), result.unmet, demand.writer
    if unmet is None:
        return other
    if demand.spec.get("nodeName"):  # no autoscaler moves it
        result = result._replace(action=unmet.rule.without_node(undeclared=False))
        writer.node = str(demand.spec["nodeName"])
    if any(prospect.level is Level.UNKNOWN for prospect in prospects):
        findings = [writer.may_come(unmet.rule, prospects)] if result.action is not Action.DRYRUN else []
        requirement = other.requirement
        if not requirement.clauses:
            requirement = of_unknown(evaluator, required, prospects)
        return other._replace(findings=(*findings, *other.findings), requirement=requirement)
    tainted = evaluator.prospects.results(
        required, demand.spec, demand.resources, demand.amounts, tolerated=False
    )
    if fitting := [prospect for prospect in tainted if prospect.level is not Level.INCOMPATIBLE]:
        untolerated = untolerated_pools(demand, evaluator, fitting)
        return other._replace(findings=(*untolerated, *other.findings))
    container = demand.containers[unmet][0]
    excluded = _excluded(demand, evaluator, result.elsewhere)
    violation = writer.none_fits(unmet.rule, result, prospects, excluded)
    path = (*container.path, "image")
    edits: list[Edit | None] = []
    if flags := _flags_of([node_class.results for node_class in result.classes], unmet):
        (written, value), *_ = sorted(flags.items())
        path = container.flag_path(written)
        if value:
            edits = [edit_of_flag(user, written, value) for user in demand.containers[unmet]]
    known = tuple(edit for edit in edits if edit) if all(edits) else ()
    violation = violation._replace(path=field_path(path), container=container.path, edits=known)
    return other._replace(findings=(*other.findings, violation))


def _flags_of(
    results: Iterable[Iterable[tuple[RuleRequirement, tuple[CheckResult, ...]]]], unmet: RuleRequirement
) -> dict[str, str]:
    """Return the flags of which each makes all nodes incompatible, with the values that resolve it.

    results: of each node class.
    """
    flags: dict[str, str] | None = None
    for of_class in results:
        checks = (check for required, checks in of_class if required is unmet for check in checks)
        incompatible = (check for check in checks if check.level is Level.INCOMPATIBLE)
        written = {
            check.origin[1]["written"]: check.instead[1]
            for check in incompatible
            if "written" in check.origin[1]
        }
        flags = {flag: flags[flag] for flag in flags if flag in written} if flags is not None else written
        if not flags:
            break
    return flags or {}


def _excluded(
    demand: PodDemand, evaluator: NodeEvaluator, elsewhere: Sequence[NodeClassResult]
) -> list[Message]:
    """Return the reasons why compatible nodes are no candidates."""
    if not elsewhere:
        return []
    compatible, offering = 0, evaluator.inventory.everything
    for node_class in elsewhere:
        compatible |= node_class.members
    for _, names in demand.requests:
        offering &= evaluator.offering(names)
    if demand.amounts:
        offering &= evaluator.having(demand.amounts)[0]
    parts = excluding(evaluator.inventory, demand.spec, compatible & offering)
    return demand.writer.excluded(elsewhere, offering, parts)


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


class FittingNodes(NamedTuple):
    """The candidates of a pod, as bit sets of the inventory: what it requests, selects and tolerates.

    candidates: all of them, also those that are not ready now. compatible: those of them that it certainly
    runs on. unknown: those of which this is unknown. pools: the names of those with compatible new nodes.
    """

    candidates: int = 0
    compatible: int = 0
    unknown: int = 0
    pools: frozenset[str] = frozenset()


def fitting_nodes(
    required: Iterable[tuple[Container, RuleRequirement]],
    pod: Pod,
    inventory: Inventory,
    prospects: Prospects = NO_PROSPECTS,
) -> FittingNodes | None:
    """Return the nodes for a pod whose containers have these rule requirements; None: no rule selects nodes.

    Rules of a dry run do not count.
    """
    containers: dict[RuleRequirement, list[Container]] = {}
    requests: list[tuple[str, tuple[str, ...]]] = []
    for container, requirement in required:
        names = inventory.dra.gpus_among(container.names)
        if requirement.rule.action is not Action.DRYRUN and requirement.rule.match.is_for(names):
            containers.setdefault(requirement, []).append(container)
            requests.append((container.name, inventory.dra.gpus_among(container.offered_names)))
    if not containers:
        return None
    evaluator = node_evaluator(inventory, prospects)
    amounts = counted_amounts(pod, containers, [name for _, names in requests for name in names])
    if evaluator.excess(amounts) or not selects_nodes(containers):
        amounts = ()
    spec = pod.spec
    demand = PodDemand(containers, requests, pod, spec, MessageWriter(), Comparisons(), amounts)
    now, later = candidate_nodes(demand, evaluator)
    candidates = now | later
    if not spec.get("nodeName"):
        candidates &= evaluator.tolerated(spec.get("tolerations"))
    compatible = unknown = 0
    for node_class in evaluator.class_results(tuple(containers), candidates):
        compatible |= node_class.members if node_class.level <= Level.UNSTABLE else 0
        unknown |= node_class.members if node_class.level is Level.UNKNOWN else 0
    coming = evaluator.prospects.results(tuple(containers), spec, demand.resources, amounts)
    pools = frozenset(prospect.pool.name for prospect in coming if prospect.level <= Level.UNSTABLE)
    return FittingNodes(candidates, compatible, unknown, pools)
