"""Why a pod stays Pending for now, although it is not denied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rules.compatibility.checks.driver_support import unsupported_gpu
from rules.compatibility.node_evaluation import COMPARED, EvaluationRequest, NodeEvaluator
from rules.compatibility.pod_request import PodRequest
from rules.compatibility.prospects import ProspectResult
from rules.compatibility.report import (
    EXCLUDED,
    NOT_OFFERED,
    NOT_READY,
    NOT_TOGETHER,
    SIMILAR_OFFERED,
    TOO_FEW,
    TOO_FEW_NOW,
)
from rules.compatibility.result import NodeSetResult
from rules.model.check_result import Level
from rules.model.decision import AdmissionWarning
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.node_selector import excluding


def pending(
    asked: PodRequest,
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
    if any(each.level is Level.UNKNOWN for each in found):
        return [writer.may_come(first.rule, found)]
    if found and not request.returning:  # a denial, which names the pools
        return []
    return [_no_candidates(asked, evaluator, first.rule, request.returning)]


def _no_candidates(
    asked: PodRequest, evaluator: NodeEvaluator, rule: CompatibilityRule, returning: int
) -> AdmissionWarning:
    """Return why no node is a candidate. returning: those that may be one again."""
    requests, writer = asked.requests, asked.writer
    if returning:
        names = tuple(dict.fromkeys(asked.resources))
        offering = evaluator.offering(names)
        why = TOO_FEW_NOW if returning & offering else NOT_READY
        if offering & ~evaluator.having(asked.amounts)[0]:
            names = tuple(_with_amounts(names, asked, evaluator))
        warning = writer.no_candidates(rule, requests[0][0], why, names, nodes=returning.bit_count())
        classes = evaluator.inventory.classes(returning, rule.sharing.labels)
        return _with_cause(warning, asked, [each.capabilities for each in classes])
    nodes, together = evaluator.offering(()), dict[str, None]()
    for container, names in requests:
        offered = [name for name in names if evaluator.offering((name,))]
        if not offered:
            similar = evaluator.similar(tuple(filter(asked.comparisons.admits, names[:COMPARED])))
            why = SIMILAR_OFFERED if similar else NOT_OFFERED
            return writer.no_candidates(rule, container, why, names, similar=similar)
        together |= dict.fromkeys(offered)
        nodes &= evaluator.offering(names)
        if not nodes:
            return writer.no_candidates(rule, container, NOT_TOGETHER, tuple(together))
    resources, enough = [*together], nodes & evaluator.having(asked.amounts)[0]
    if enough != nodes:
        resources = [*_with_amounts(together, asked, evaluator)]
    if not enough:
        return writer.no_candidates(rule, requests[0][0], TOO_FEW, resources)
    parts = writer.parts(excluding(evaluator.inventory, asked.spec, enough))
    facts = {"nodes": enough.bit_count(), "parts": parts}
    return writer.no_candidates(rule, requests[0][0], EXCLUDED, resources, **facts)


def _with_cause(
    warning: AdmissionWarning, asked: PodRequest, nodes: Iterable[NodeCapabilities]
) -> AdmissionWarning:
    """Return a warning with the reason if the nodes offer nothing because their drivers ignore their GPUs."""
    found = [unsupported_gpu(each) for each in nodes]
    first = found[0]
    return warning if first is None or None in found else warning._replace(fix=asked.writer.of(first.reason))


def _with_amounts(names: Iterable[str], asked: PodRequest, evaluator: NodeEvaluator) -> Iterator[str]:
    """Yield resources, each with its amount if nodes are compared by it."""
    amounts = dict(asked.amounts)
    for name in names:
        amount = amounts.get(name, 1) if evaluator.inventory.most(name) else 1
        yield f"{amount} {name}" if amount > 1 else name
