"""The nodes that a pod fits on, as sets: for reports that compare two states of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rules.compatibility.evaluate import candidate_nodes
from rules.compatibility.gpu_count import counted_amounts, selects_nodes
from rules.compatibility.node_evaluation import node_evaluator
from rules.compatibility.pod_request import PodRequest, applies_to, requested_resources
from rules.compatibility.prospects import NO_PROSPECTS, Prospects
from rules.compatibility.report import MessageWriter
from rules.compatibility.result import RuleRequirement
from rules.kube.pod import Container, Pod
from rules.model.check_result import Level
from rules.model.rule import Action
from rules.nodes.inventory import Inventory
from rules.text.i18n import Language
from rules.text.similarity import Comparisons


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
    for container, each in required:
        names = tuple(name for name in requested_resources(container) if inventory.dra.requests_gpu(name))
        if each.rule.action is not Action.DRYRUN and applies_to(each.rule, names):
            containers.setdefault(each, []).append(container)
            requests.append((container.name, names))
    if not containers:
        return None
    evaluator = node_evaluator(inventory, prospects)
    amounts = counted_amounts(pod, containers, dict.fromkeys(name for _, names in requests for name in names))
    if evaluator.excess(amounts) or not selects_nodes(containers):
        amounts = ()
    spec = pod.spec
    asked = PodRequest(containers, requests, pod, spec, MessageWriter(Language.EN), Comparisons(), amounts)
    now, later = candidate_nodes(asked, evaluator)
    candidates = now | later
    if not spec.get("nodeName"):
        candidates &= evaluator.tolerated(spec.get("tolerations"))
    compatible = unknown = 0
    for one in evaluator.class_results(tuple(containers), candidates):
        compatible |= one.members if one.level <= Level.UNSTABLE else 0
        unknown |= one.members if one.level is Level.UNKNOWN else 0
    coming = evaluator.prospects.results(tuple(containers), spec, asked.resources, amounts)
    pools = frozenset(one.pool.name for one in coming if one.level <= Level.UNSTABLE)
    return FittingNodes(candidates, compatible, unknown, pools)
