"""What affinity and result say of the pools of which an autoscaler may add nodes."""

from __future__ import annotations

from collections.abc import Sequence

from rules.affinity.node_affinity import Requirement
from rules.compatibility.node_evaluation import NodeEvaluator
from rules.compatibility.prospects import ProspectResult
from rules.compatibility.result import NodeSetResult, RuleRequirement
from rules.kube.node_selector_term import Clause
from rules.model.check_result import Level
from rules.model.rule import Action
from rules.nodes.inventory import INSTANCE_TYPE


def of_pools(
    evaluator: NodeEvaluator,
    required: tuple[RuleRequirement, ...],
    chosen: Sequence[ProspectResult],
    prospects: Sequence[ProspectResult] | None = None,
) -> Requirement:
    """Return the requirement that a new node is of the chosen pools; none if they are all prospects.

    Nothing is required either if none of them has labels, or if no rule denies.
    """
    denies = any(requirement.rule.action is Action.DENY for requirement in required)
    if (prospects is not None and len(chosen) == len(prospects)) or not denies:
        return Requirement()
    terms = terms_of(evaluator, required, chosen)
    return Requirement((terms,) if terms else ())


def terms_of(
    evaluator: NodeEvaluator, required: tuple[RuleRequirement, ...], chosen: Sequence[ProspectResult]
) -> Clause:
    """Return a term for each pool, in labels that its nodes have when they are created."""
    terms = evaluator.pool_terms(required).of
    return tuple(dict.fromkeys(term for prospect in chosen if (term := terms[id(prospect.pool)])))


def unknown_pools(
    evaluator: NodeEvaluator, required: tuple[RuleRequirement, ...], prospects: Sequence[ProspectResult]
) -> tuple[list[ProspectResult], list[ProspectResult]]:
    """Return the pools that may fit: those of which no present node is incompatible, and the others."""
    unknown = [prospect for prospect in prospects if prospect.level is Level.UNKNOWN]
    contradicted = evaluator.pool_terms(required).contradicted if unknown else ()
    return (
        [prospect for prospect in unknown if id(prospect.pool) not in contradicted],
        [prospect for prospect in unknown if id(prospect.pool) in contradicted],
    )


def of_unknown(
    evaluator: NodeEvaluator, required: tuple[RuleRequirement, ...], prospects: Sequence[ProspectResult]
) -> Requirement:
    """Return the requirement that a new node is of a pool that may fit, if others certainly do not."""
    unknown = [prospect for prospect in prospects if prospect.level is Level.UNKNOWN]
    if not unknown or evaluator.undeclared:
        return Requirement()
    return of_pools(evaluator, required, unknown, prospects)


def no_pool_fits(
    evaluator: NodeEvaluator, required: Sequence[RuleRequirement], prospects: Sequence[ProspectResult]
) -> NodeSetResult:
    """Return the result on the nodes that may be added, if none of them is compatible; else an empty one."""
    classes = tuple(prospect.nodes for prospect in prospects)
    if not classes or any(node_class.level is not Level.INCOMPATIBLE for node_class in classes):
        return NodeSetResult()
    strictest = min(required, key=lambda requirement: list(Action).index(evaluator.without_node(requirement)))
    return NodeSetResult(strictest, evaluator.without_node(strictest), classes)


def instance_types(requirement: Requirement) -> list[str]:
    """Return the instance types that are enough for a node."""
    terms = (term for clause in requirement.clauses for term in clause if len(term) == 1)
    return [
        value for (expression,) in terms if expression.key == INSTANCE_TYPE for value in expression.values
    ]
