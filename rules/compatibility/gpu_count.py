"""Which nodes have as many GPUs as a pod requests, and what is said if none has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from rules.compatibility.checks.base import ContainerFinding
from rules.compatibility.checks.gpu_count import too_many
from rules.compatibility.node_evaluation import NodeEvaluator
from rules.compatibility.pod_request import quantity_of, requested_amounts
from rules.compatibility.result import Amounts, ExcessiveRequest, RuleRequirement
from rules.kube.pod import Container, Pod
from rules.model.check_result import Level
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.gpu_resources import gpu_resources


def counted_amounts(pod: Pod, required: Iterable[RuleRequirement], names: Iterable[str]) -> Amounts:
    """Return how many of each resource a node must have; none if no rule counts them.

    Memory and cores are not counted: too much of them is most often in the wrong unit, which their own rule
    reports.
    """
    if all(each.rule.sharing.checks.gpu_count is Level.COMPATIBLE for each in required):
        return ()
    asked = tuple(names)
    shares = [name for name, kind in gpu_resources(asked) if not kind.units]
    return requested_amounts(pod, [name for name in asked if name not in shares] if shares else asked)


def selects_nodes(required: Iterable[RuleRequirement]) -> bool:
    """Return whether only nodes that have enough are candidates: a dry run of this check has no effect."""
    for each in required:
        sharing = each.rule.sharing
        if sharing.checks.gpu_count is not Level.COMPATIBLE and not sharing.trial:
            return True
    return False


def excess_findings(
    excess: Iterable[ExcessiveRequest],
    pod: Pod,
    required: Collection[RuleRequirement],
    evaluator: NodeEvaluator,
) -> Iterator[tuple[Container, CompatibilityRule, ContainerFinding]]:
    """Yield for each rule what a pod requests more of than any node has.

    Where an autoscaler may add nodes of which nothing is known, that is a warning.
    """
    rules = {each.rule: each for each in required}.values()
    first: dict[str, Container] = {}
    for container in pod.users:
        for name in container.names:
            first.setdefault(name, container)
    for found in excess:
        container = first[found.resource]
        own = quantity_of(container.request(found.resource))
        field = "limits" if found.resource in container.limits else "requests"
        path = container.resource_path(field, found.resource)
        for each in rules:
            denies = evaluator.without_node(each) in (each.rule.action, Action.DENY)
            certain = found.certain and denies
            if result := too_many(each.rule.sharing, found, own, certain=certain):
                yield container, each.rule, ContainerFinding(result, path)
