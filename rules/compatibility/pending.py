"""Why a pod stays Pending for now, although it is not denied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rules.compatibility.checks.driver_support import unsupported_gpu
from rules.compatibility.node_evaluation import COMPARED, EvaluationRequest, NodeEvaluator
from rules.compatibility.pod_request import PodRequest
from rules.compatibility.prospects import ProspectResult
from rules.compatibility.report import (
    EXCLUDED,
    NOT_IN_FILE,
    NOT_OFFERED,
    NOT_READY,
    NOT_TOGETHER,
    ONLY_SHARES,
    SIMILAR_OFFERED,
    TOO_FEW,
    TOO_FEW_NOW,
    MessageWriter,
)
from rules.compatibility.result import NodeSetResult
from rules.model.check_result import Level
from rules.model.decision import AdmissionWarning
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.gpu_resources import gpu_resource
from rules.nodes.inventory import Inventory
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
            return _not_offered(writer, evaluator.inventory, rule, container, names, similar=similar)
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


def _not_offered(  # noqa: PLR0913 - the first two are what it depends on
    writer: MessageWriter,
    inventory: Inventory,
    rule: CompatibilityRule,
    container: str,
    names: tuple[str, ...],
    *,
    similar: str,
) -> AdmissionWarning:
    """Return the warning that no node offers any of a container's resources. similar: one that some do."""
    whole = dict.fromkeys(found.shares for found in map(gpu_resource, names[:COMPARED]) if found)
    if [*filter(None, whole)]:
        return writer.no_candidates(rule, container, ONLY_SHARES, names, whole=next(filter(None, whole)))
    if similar:
        return writer.no_candidates(rule, container, SIMILAR_OFFERED, names, similar=similar)
    if inventory.source and (nodes := inventory.everything.bit_count()):
        facts = {"nodes": nodes, "source": inventory.source}
        return writer.no_candidates(rule, container, NOT_IN_FILE, names, **facts)
    return writer.no_candidates(rule, container, NOT_OFFERED, names)


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
