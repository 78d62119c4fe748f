"""The nodes of a cluster as containers see them: by class, and remembered.

What is found of nodes for some needs is found once for an inventory, so that the cost of a decision does not
grow with the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, NamedTuple

from rules.compatibility.fitness import fitness, outline
from rules.compatibility.report import (
    ContainerResult,
    MessageWriter,
    NodeClassResult,
    RuleRequirement,
    unmet_requirements,
)
from rules.compatibility.required_affinity import clauses_of, stable
from rules.cuda.requirements import GpuRequirements
from rules.model.finding import Level, level_of
from rules.model.rule import Action
from rules.model.sharing import SharingPolicy
from rules.nodes.inventory import Inventory, NodeClass
from rules.nodes.label_families import LabelNames
from rules.nodes.node_affinity import Requirement
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.node_selector import Clause, admitted
from rules.text.bounded_cache import bounded_cache, length
from rules.text.i18n import Language

# All nodes, of which nothing has been said yet.
_WHOLE: Final = NodeClassResult(NodeCapabilities(), 0, Level.COMPATIBLE, ())
# Different needs that a cluster's containers have at one time; about 10 KB each with 100 classes of nodes.
_REMEMBERED: Final = 512
# Characters that a pod's author wrote in them; NVIDIA's longest requirement has some 2,000.
_LONGEST: Final = 8192
# Containers of a pod of which what is found of all together is remembered.
_MOST: Final = 16
# Sets of resources that containers ask for at once; with 10,000 nodes 1.3 KB each.
_REMEMBERED_NAMES: Final = 256
_LONGEST_NAMES: Final = 1024  # characters of the names in a set
# Of names that no node offers so many are compared with what nodes do offer.
_COMPARED: Final = 2
# How alike they have to be: nvidia.com/gpu is to nvidia.com/gpu.shared by 0.8, to amd.com/gpu by 0.72.
_ALIKE: Final = 0.8


class NoFittingNode(NamedTuple):
    """Why none of some nodes fits, for one demand of which that can be said. action: what follows."""

    culprit: RuleRequirement
    action: Action
    message: str


@dataclass(frozen=True, slots=True)
class NodeSetResult:
    """What is found of demands on nodes. requirement: what a node has to satisfy; preference: what it may."""

    incompatible: NoFittingNode | None = None
    warnings: tuple[str, ...] = ()
    requirement: Requirement = field(default_factory=Requirement)
    preference: Requirement | None = None


class EvaluationRequest(NamedTuple):
    """A question: what demands of one pod come to on a set of nodes, at least one, in which language."""

    demands: tuple[RuleRequirement, ...]
    nodes: int
    language: Language


class NodeEvaluator:
    """The classes of nodes of an inventory, and what they mean for containers; remembered.

    judge: for a question, its verdict. offering: for names of resources, the nodes that could take a
    container that asks for them, as a bit set. near: for such names that no node offers, one like theirs that
    some do, or nothing.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._kinds = bounded_cache(self._find_kinds, _REMEMBERED, lambda _: True)
        self._findings = bounded_cache(self._find, _REMEMBERED, _is_short)
        self._clauses = bounded_cache(self._find_clauses, _REMEMBERED, _is_short)
        self.judge = bounded_cache(self._judge, _REMEMBERED, _are_few)
        self.offering = bounded_cache(self._offering, _REMEMBERED_NAMES, _are_short)
        self.near = bounded_cache(self._near, _REMEMBERED_NAMES, _are_short)

    def _offering(self, names: tuple[str, ...]) -> int:
        """Return the nodes that offer all resources, as a bit set.

        One that no node offers is some scheduler's own (HAMi's memory and cores are) and sorts out none,
        unless it is all that is asked for.
        """
        found = [self._inventory.offering(name) for name in names]
        nodes = self._inventory.everything
        for offering in filter(None, found) if any(found) else found:
            nodes &= offering
        return nodes

    def _near(self, names: tuple[str, ...]) -> str:
        offered = sorted(self._inventory.resources)
        near = (get_close_matches(name, offered, 1, _ALIKE) for name in names[:_COMPARED])
        return next((found for found, *_ in filter(None, near)), "")

    def _judge(self, asked: EvaluationRequest) -> NodeSetResult:
        """Return the verdict on nodes, with the refusal where for some rule none of them fits."""
        words = MessageWriter(asked.language)
        verdict = NodeSetResult()
        considered: list[RuleRequirement] = []
        for action in Action:  # the strictest comes first
            added = [demand for demand in asked.demands if demand.rule.no_fitting_node is action]
            if not added:
                continue
            considered += added
            judged = self._judged(considered, asked.nodes)
            if all(each.level is Level.INCOMPATIBLE for each in judged):
                others = self._judged(considered, self._inventory.everything & ~asked.nodes)
                elsewhere = (each for each in others if each.level <= Level.UNSTABLE)
                line = words.incompatible(judged, elsewhere, table=action is not Action.WARN)
                culprit = next(
                    demand for demand in unmet_requirements(judged) if demand.rule.no_fitting_node is action
                )
                return replace(verdict, incompatible=NoFittingNode(culprit, action, line))
            if action is not Action.DRYRUN:
                verdict = self._fitting(considered, judged, words)
        return verdict

    def _fitting(
        self, demands: Sequence[RuleRequirement], judged: Sequence[NodeClassResult], words: MessageWriter
    ) -> NodeSetResult:
        """Return the verdict where some class of nodes is not refused."""
        best = min([each.level for each in judged])
        warnings = tuple(words.rule_set_warnings(best, judged)) if best is not Level.COMPATIBLE else ()
        steering = [demand for demand in demands if demand.rule.action is Action.DENY]
        if not steering:  # a rule that only warns leaves the pod as it is
            return NodeSetResult(warnings=warnings)
        some = len(steering) < len(demands)
        levels = [each.level_under(Action.DENY) if some else each.level for each in judged]
        preference = None
        if Level.COMPATIBLE in levels and Level.UNSTABLE in levels:
            needs = (demand.needs for demand in steering)
            preference = stable(steering[0].rule.terms, needs, self._inventory)
        return NodeSetResult(None, warnings, self._required(steering, judged, levels), preference)

    def _required(
        self, demands: Sequence[RuleRequirement], judged: Sequence[NodeClassResult], levels: Sequence[Level]
    ) -> Requirement:
        """Return what these demands require of a node. levels: what each class of nodes is for them."""
        doubtful = min(levels) is Level.UNKNOWN
        if doubtful and max(levels) is Level.UNKNOWN:  # there is none to keep it from
            return Requirement()
        worst = Level.UNKNOWN if doubtful else Level.UNSTABLE
        left = 0
        for each, level in zip(judged, levels, strict=True):
            left |= each.members if level <= worst else 0
        clauses = []
        # The newest version first: what it implies need not be said again.
        for demand in sorted(demands, key=_newest, reverse=True):
            for clause, nodes in self._clauses((demand.rule.terms, demand.needs, doubtful)):
                # A clause in labels that none of the best carries would leave the pod no node.
                if left & nodes:
                    clauses.append(clause)
                    left &= nodes
        return Requirement(tuple(clauses))

    def _judged(self, demands: Sequence[RuleRequirement], nodes: int) -> list[NodeClassResult]:
        """Return the classes that a set of nodes forms, with what there is to say of each demand on them."""
        if not nodes:
            return []
        groups = _alike(demands)
        judged = self._split(_WHOLE._replace(members=nodes), groups[0])
        for group in groups[1:]:
            judged = [both for each in judged for both in self._split(each, group)]
        return judged

    def _split(self, judged: NodeClassResult, demands: Sequence[RuleRequirement]) -> list[NodeClassResult]:
        """Return the classes that nodes form for demands that read the same labels."""
        _, nodes, worst, before = judged
        found = [self._findings((demand.rule.terms, demand.needs)) for demand in demands]
        classes = found[0][0]
        split = []
        for each, *opinions in zip(classes, *[by_class for _, by_class in found], strict=True):
            if members := each.members & nodes:
                level = max([worst, *[opinion.level for opinion in opinions]])
                offer = judged.offer if before else each.offer
                split.append(
                    NodeClassResult(offer, members, level, (*before, *zip(demands, opinions, strict=True)))
                )
        return split

    def _find(
        self, asked: tuple[SharingPolicy, GpuRequirements]
    ) -> tuple[tuple[NodeClass, ...], tuple[ContainerResult, ...]]:
        """Return the classes, and what there is to say of a container on each."""
        terms, needs = asked
        classes, offers, which = self._kinds((terms.labels, bool(needs.constraints), needs.cuda_compat))
        found = [fitness(terms, needs, offer) for offer in offers]
        opinions = [ContainerResult(level_of(findings), findings) for findings in found]
        return classes, tuple([opinions[at] for at in which])

    def _find_kinds(
        self, asked: tuple[LabelNames, bool, bool]
    ) -> tuple[tuple[NodeClass, ...], tuple[NodeCapabilities, ...], tuple[int, ...]]:
        """Return the classes, the offers that needs tell apart, and which of these each class has."""
        labels, variables, compat = asked
        classes = self._inventory.classes(self._inventory.everything, labels)
        kinds: dict[NodeCapabilities, int] = {}
        offers = (outline(each.offer, variables=variables, compat=compat) for each in classes)
        which = [kinds.setdefault(offer, len(kinds)) for offer in offers]
        return classes, tuple(kinds), tuple(which)

    def _find_clauses(
        self, asked: tuple[SharingPolicy, GpuRequirements, bool]
    ) -> tuple[tuple[Clause, int], ...]:
        """Return each clause of the needs with the nodes that satisfy it, as a bit set."""
        terms, needs, doubtful = asked
        clauses = clauses_of(terms, needs, self._inventory, doubtful=doubtful)
        return tuple((clause, admitted(self._inventory, clause)) for clause in clauses)


def _is_short(
    asked: tuple[SharingPolicy, GpuRequirements] | tuple[SharingPolicy, GpuRequirements, bool],
) -> bool:
    return asked[1].length <= _LONGEST


def _are_short(names: tuple[str, ...]) -> bool:
    return length(names) <= _LONGEST_NAMES


def _are_few(asked: EvaluationRequest) -> bool:
    return len(asked.demands) <= _MOST and sum(demand.needs.length for demand in asked.demands) <= _LONGEST


def _newest(demand: RuleRequirement) -> tuple[int, int]:
    return demand.needs.cuda.version if demand.needs.cuda else (0, 0)


def _alike(demands: Sequence[RuleRequirement]) -> list[list[RuleRequirement]]:
    """Return demands by the labels that their rules read; most rules read the same."""
    groups: list[list[RuleRequirement]] = []
    for demand in demands:
        for group in groups:
            if group[0].rule.terms.labels == demand.rule.terms.labels:
                group.append(demand)
                break
        else:
            groups.append([demand])
    return groups


# One inventory is in force at a time; another takes the place of the one that is remembered.
node_evaluator = lru_cache(maxsize=1)(NodeEvaluator)
