"""Evaluation of rule requirements on the nodes of an inventory, by class of nodes.

Results are cached by requirements and node set, so that the cost of a decision does not grow with the number
of nodes. They are data: names of containers and words are added when a message is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from rules.affinity.classes import with_devices
from rules.affinity.node_affinity import Requirement
from rules.compatibility.checks import check_on_node
from rules.compatibility.prospects import NO_PROSPECTS, Prospects, at_creation
from rules.compatibility.required_affinity import Judge, clauses_of, stable
from rules.compatibility.result import (
    ExcessiveRequest,
    NodeClassResult,
    NodeSetResult,
    RuleRequirement,
    unmet_requirements,
)
from rules.cuda.requirements import GpuRequirements
from rules.kube.node_selector_term import EXPRESSIONS, Clause, MatchExpression, Term
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.rule import Action, NewNodes
from rules.model.sharing import SharingPolicy
from rules.nodes.devices.devices import DeviceFacts, DeviceKind
from rules.nodes.gpu_resources import Amounts
from rules.nodes.inventory import INSTANCE_TYPE, Inventory, NodeClass
from rules.nodes.label_families import LabelNames
from rules.nodes.node_capabilities import NodeCapabilities
from rules.nodes.node_devices import NodeDevices
from rules.nodes.node_selector import admitted
from rules.text.bounded_cache import bounded_cache, length
from rules.text.i18n import Message

# All nodes, before any requirement.
_ALL: Final = NodeClassResult(NodeCapabilities(), 0, Level.COMPATIBLE, ())
# Requirements that the containers of a cluster have at one time; about 10 KB each with 100 node classes.
_REMEMBERED: Final = 512
# Characters of them that the author of a pod wrote; NVIDIA's longest requirement has some 2,000.
_LONGEST: Final = 8192
# Results of requirements on kinds of nodes; 1 KB each.
_REMEMBERED_RESULTS: Final = 4096
# Different requirements in one pod whose common result is remembered.
_MOST: Final = 16
# Sets of resources that containers request; with 10,000 nodes 1.3 KB each.
_REMEMBERED_NAMES: Final = 256
_LONGEST_NAMES: Final = 1024  # characters of the names in a set
# So many names of a container that no node offers are compared with those that nodes offer.
COMPARED: Final = 2
# Least similarity: nvidia.com/gpu and nvidia.com/gpu.shared have 0.8, nvidia.com/gpu and amd.com/gpu 0.72.
_SIMILAR: Final = 0.8


class NodeQuery(NamedTuple):
    """The distinct rule requirements of one pod, at least one, and the bit set of its candidate nodes.

    returning: candidates that may offer the resources again. keep_out: some node that may be added is not
    compatible.
    """

    required: tuple[RuleRequirement, ...]
    nodes: int
    returning: int = 0
    keep_out: bool = False


class PoolTerms(NamedTuple):
    """What pools are for requirements, by their ids.

    of: a term of labels that the nodes of each pool have when they are created. contradicted: those that have
    a present node that is not compatible. members: the present nodes of the others that are compatible, or
    may be, as a bit set.
    """

    of: Mapping[int, Term]
    contradicted: frozenset[int]
    members: int


class NodeEvaluator:
    """Evaluates requirements on the nodes of one inventory.

    evaluate: the result for an NodeQuery. offering: the nodes that offer all resources of a tuple, as
    a bit set; returning: those that do not, but may offer them again. having: the nodes that have Amounts,
    and those that may have them again. excess: of Amounts, those that no node has. similar: for a tuple of
    names that no node offers, a similar one that some do, or nothing. uncounted: of a tuple of names, the
    extended resources of which no node has a known amount. largest_memory: of a GPU, for a tuple of names and
    LabelNames, see there. tainted: the nodes with taints that
    keep pods away, as a bit set.
    """

    def __init__(self, inventory: Inventory, prospects: Prospects = NO_PROSPECTS) -> None:
        self.inventory = inventory
        self.tainted = inventory.tainted
        declared = inventory.node_pools.pools
        self.prospects = Prospects((*prospects.pools, *declared)) if declared else prospects
        self.undeclared = inventory.undeclared and not prospects
        self.autoscaled = inventory.autoscaled or bool(prospects)
        self._classes = bounded_cache(self._evaluate_classes, _REMEMBERED, _is_short)
        self._clauses = bounded_cache(self._find_clauses, _REMEMBERED, _is_short)
        self._clauses_of_facts = bounded_cache(self._find_clauses_of_facts, _REMEMBERED, _is_short)
        self.evaluate = bounded_cache(self._evaluate, _REMEMBERED, _are_few)
        self.offering = bounded_cache(self._offering, _REMEMBERED_NAMES, _are_short)
        self.returning = bounded_cache(self._returning, _REMEMBERED_NAMES, _are_short)
        self.having = bounded_cache(self._having, _REMEMBERED_NAMES, _are_short_amounts)
        self.excess = bounded_cache(self._excess, _REMEMBERED_NAMES, _are_short_amounts)
        # MAX_KINDS of each driver at most.
        self._nodes_of: dict[DeviceKind, tuple[int, int]] = {}
        self._gpus_of: dict[DeviceKind, NodeCapabilities] = {}
        self.pool_terms = bounded_cache(self._find_terms, _REMEMBERED, _is_short_sum)
        self.uncounted = bounded_cache(self._uncounted, _REMEMBERED_NAMES, _are_short)
        self.similar = bounded_cache(self._similar, _REMEMBERED_NAMES, _are_short)
        self.largest_memory = bounded_cache(
            self._largest_memory, _REMEMBERED_NAMES, lambda key: _are_short(key[0])
        )
        self._tolerated = bounded_cache(
            self._find_tolerated, _REMEMBERED_NAMES, lambda key: length(key) <= _LONGEST_NAMES
        )

    def _offering(self, names: tuple[str, ...]) -> int:
        """Return the nodes that offer all resources, as a bit set.

        A resource that no node offers belongs to a scheduler (HAMi's memory and cores do) and excludes no
        node, unless nothing else is requested.
        """
        by_resource = [self.inventory.nodes_offering(name) for name in names]
        nodes = self.inventory.everything
        for offering in filter(None, by_resource) if any(by_resource) else by_resource:
            nodes &= offering
        return nodes

    def _uncounted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the extended resources of which no node has a known amount."""
        return tuple(name for name in names if "/" in name and not self.inventory.largest_amount(name))

    def _largest_memory(self, key: tuple[tuple[str, ...], LabelNames]) -> int | None:
        """Return the MiB of the largest GPU among the nodes that offer resources, or may offer them again.

        None if the memory of one is unknown, or there is no such node.
        """
        names, labels = key
        classes = self.inventory.classes(self.offering(names) | self.returning(names), labels)
        memory = [node_class.capabilities.gpu_memory_mib for node_class in classes]
        known = [mib for mib in memory if mib is not None]
        return max(known, default=None) if len(known) == len(memory) else None

    def _returning(self, names: tuple[str, ...]) -> int:
        """Return the nodes that do not offer all resources, but may offer them again, as a bit set."""
        if not self.inventory.recovering:
            return 0
        by_resource = [
            self.inventory.nodes_offering(name) | self.inventory.nodes_recovering(name) for name in names
        ]
        nodes = self.inventory.everything
        for offering in filter(None, by_resource) if any(by_resource) else by_resource:
            nodes &= offering
        return nodes & ~self.offering(names)

    def _having(self, amounts: Amounts) -> tuple[int, int]:
        """Return the nodes that have all amounts, and those that do, or may when they are ready again.

        A resource that no node offers excludes no node, as in `_offering`.
        """
        inventory, now, later = self.inventory, self.inventory.everything, self.inventory.everything
        for name, amount in amounts:
            offering = inventory.nodes_offering(name, amount)
            now &= offering if inventory.nodes_offering(name) else now
            if inventory.largest_amount(name):
                later &= offering | inventory.nodes_recovering(name, amount)
        return now, later

    def _excess(self, amounts: Amounts) -> tuple[ExcessiveRequest, ...]:
        """Return the resources of which no node has the amount, nor one that may be added for certain."""
        excessive = []
        for name, amount in amounts:
            present, pools = self.inventory.largest_amount(name), self.prospects.most(name)
            if present:
                enough = self.inventory.nodes_offering(name, amount) | self.inventory.nodes_recovering(
                    name, amount
                )
            else:
                enough = self.inventory.nodes_offering(name) | self.inventory.nodes_recovering(name)
            known = self.prospects.having_amount(name, amount) & ~self.prospects.of_any_amount if pools else 0
            if (present or pools) and not (enough or known):
                certain = not self.prospects.of_any_amount
                excessive.append(ExcessiveRequest(name, amount, max(present, pools), certain=certain))
        return tuple(excessive)

    def nodes_of(self, kind: DeviceKind) -> tuple[int, int]:
        """Return the nodes that have devices of a kind, and those of them that are ready, as bit sets."""
        if (node_sets := self._nodes_of.get(kind)) is None:
            nodes = 0
            for name in self.inventory.dra.devices.by_kind.get(kind, ()):
                nodes |= self.inventory.named(name)
            node_sets = self._nodes_of[kind] = nodes, nodes & self.inventory.ready
        return node_sets

    def gpu_of(self, kind: DeviceKind, facts: DeviceFacts) -> NodeCapabilities:
        """Return the capabilities of a node that has a device of this kind alone. facts: of the kind."""
        if (gpu := self._gpus_of.get(kind)) is None:
            devices = NodeDevices(facts=facts, mixed=True, alone=True)
            gpu = devices.capabilities(NodeCapabilities(facts=self.inventory.facts))
            self._gpus_of[kind] = gpu
        return gpu

    def tolerated(self, tolerations: object) -> int:
        """Return the nodes whose taints a pod with these tolerations (as JSON) tolerates, as a bit set."""
        if not self.tainted:
            return self.inventory.everything
        written = tolerations if isinstance(tolerations, list) else []
        texts = (
            [pair for pair in toleration.items() if isinstance(pair[1], str)]
            for toleration in written
            if isinstance(toleration, dict)
        )
        return self._tolerated(tuple([tuple(pairs) for pairs in texts]))

    def _find_tolerated(self, key: tuple[tuple[tuple[str, str], ...], ...]) -> int:
        return self.inventory.tolerated([dict(pairs) for pairs in key])

    def _similar(self, names: tuple[str, ...]) -> str:
        offered = sorted(self.inventory.resources)
        similar = (get_close_matches(name, offered, 1, _SIMILAR) for name in names)
        return next((name for name, *_ in filter(None, similar)), "")

    def _evaluate(self, query: NodeQuery) -> NodeSetResult:
        """Return the result on a set of nodes, evaluated for the strictest rules first."""
        result = NodeSetResult()
        considered: list[RuleRequirement] = []
        for action in Action:  # the strictest comes first
            added = [
                requirement for requirement in query.required if self.without_node(requirement) is action
            ]
            if not added:
                continue
            considered += added
            classes = self.class_results(considered, query.nodes)
            if all(node_class.level is Level.INCOMPATIBLE for node_class in classes):
                returning = self._returning_results(considered, query.returning)
                if any(node_class.level is not Level.INCOMPATIBLE for node_class in returning):
                    return result._replace(returning=tuple(returning))
                others = self.class_results(considered, self.inventory.everything & ~query.nodes)
                elsewhere = tuple(node_class for node_class in others if node_class.level <= Level.UNSTABLE)
                required = next(
                    requirement
                    for requirement in unmet_requirements(classes)
                    if self.without_node(requirement) is action
                )
                return result._replace(
                    unmet=required, action=action, classes=tuple(classes), elsewhere=elsewhere
                )
            if action is not Action.DRYRUN:
                unfit = self.autoscaled and self._some_unfit(considered, query.returning)
                result = self._fitting(considered, classes, keep_out=query.keep_out or unfit)
        return result

    def _some_unfit(self, required: Sequence[RuleRequirement], nodes: int) -> bool:
        """Return whether one of these nodes is not compatible, as far as its labels tell."""
        return any(node_class.level > Level.UNSTABLE for node_class in self.class_results(required, nodes))

    def _find_terms(self, required: tuple[RuleRequirement, ...]) -> PoolTerms:
        """Return what all pools are for requirements.

        Terms are without the labels of GPU and driver, if the others suffice: a node may have other values of
        them by now than its pool declares, and the autoscaler would then add one node after the other.
        """
        classes = self.class_results(required, self.inventory.everything)
        unfit = sum(node_class.members for node_class in classes if node_class.level > Level.UNSTABLE)
        incompatible = sum(
            node_class.members for node_class in classes if node_class.level is Level.INCOMPATIBLE
        )
        unfit_pools = self.prospects.unfit(required)
        incompatible_pools = {id(pool) for pool in self.prospects.incompatible(required)}
        terms, contradicted, members = {}, set(), 0
        for pool in self.prospects.pools:
            read = {
                key
                for requirement in required
                for key in requirement.rule.sharing.labels.among(dict(pool.labels))
            }
            short = at_creation(pool, without=read)
            others = admitted(self.inventory, (short,)) & unfit or self.prospects.having(short) & unfit_pools
            terms[id(pool)] = at_creation(pool) if not short or others else short
            nodes = admitted(self.inventory, (short,)) if short else 0
            if nodes & incompatible:
                contradicted.add(id(pool))
            elif id(pool) not in incompatible_pools:
                members |= nodes
        return PoolTerms(terms, frozenset(contradicted), members)

    def without_node(self, required: RuleRequirement) -> Action:
        """Return the effect of a rule if no node is compatible."""
        return required.rule.without_node(undeclared=self.undeclared)

    def _returning_results(self, required: Sequence[RuleRequirement], nodes: int) -> list[NodeClassResult]:
        """Return the results on nodes that may come back, whose drivers may be others then."""
        class_results = []
        for labels in dict.fromkeys(requirement.rule.sharing.labels for requirement in required):
            of_labels = [requirement for requirement in required if requirement.rule.sharing.labels == labels]
            for node_class in self.inventory.classes(nodes, labels) if nodes else ():
                gpu = replace(
                    node_class.capabilities, cuda=None, driver=None, device_mode=None, mig_devices=False
                )
                results = [
                    check_on_node(requirement.rule.sharing, requirement.requirements, gpu)
                    for requirement in of_labels
                ]
                pairs = tuple(zip(of_labels, results, strict=True))
                worst = max(map(level_of, results))
                class_results.append(
                    NodeClassResult(node_class.capabilities, node_class.members, worst, pairs)
                )
        return class_results

    def _fitting(
        self, required: Sequence[RuleRequirement], classes: Sequence[NodeClassResult], *, keep_out: bool
    ) -> NodeSetResult:
        """Return the result if some class of nodes is not incompatible. keep_out: as in NodeQuery."""
        best = min([node_class.level for node_class in classes])
        doubts = tuple(classes) if best is not Level.COMPATIBLE else ()
        notes = _notes(classes) if best is Level.COMPATIBLE else ()
        denying = [requirement for requirement in required if requirement.rule.action is Action.DENY]
        if not denying:  # a rule that only warns leaves the pod as it is
            return NodeSetResult(doubts=doubts, notes=notes)
        some = len(denying) < len(required)
        levels = [node_class.level_under(Action.DENY) if some else node_class.level for node_class in classes]
        preference = None
        if Level.COMPATIBLE in levels and Level.UNSTABLE in levels:
            requirements = (requirement.requirements for requirement in denying)
            preference = stable(denying[0].rule.sharing, requirements, self.inventory)
        labels = self._required_labels(denying, classes, levels, keep_out=keep_out)
        return NodeSetResult(doubts=doubts, requirement=labels, preference=preference, notes=notes)

    def _required_labels(
        self,
        required: Sequence[RuleRequirement],
        classes: Sequence[NodeClassResult],
        levels: Sequence[Level],
        *,
        keep_out: bool,
    ) -> Requirement:
        """Return the labels that these requirements need. levels: what each class of nodes is for them."""
        or_unknown = min(levels) is Level.UNKNOWN
        if or_unknown and max(levels) is Level.UNKNOWN:  # there is no node to exclude
            return Requirement()
        # An autoscaler adds no node for labels that it does not know, and too many for a missing label.
        all_fit = max(levels) <= Level.UNSTABLE and not keep_out
        if self.autoscaled and (or_unknown or all_fit):
            return Requirement()
        worst = Level.UNKNOWN if or_unknown else Level.UNSTABLE
        left = 0
        for node_class, level in zip(classes, levels, strict=True):
            left |= node_class.members if level <= worst else 0
        # Clauses for unknown nodes admit those without labels, as these are at present.
        without_labels = self.inventory.former_drivers if or_unknown else 0
        clauses = []
        # The newest version first: the clauses that it implies are left out.
        for of_rule in sorted(required, key=_newest, reverse=True):
            for clause, nodes in self._clauses((of_rule.rule.sharing, of_rule.requirements, or_unknown)):
                # A clause in labels that none of the best nodes has would leave the pod no node.
                if fitting := left & (nodes | without_labels):
                    clauses.append(clause)
                    left = fitting
        requirement = Requirement(tuple(clauses))
        if self.inventory.reporting_devices:
            fit = unfit = 0
            for node_class, level in zip(classes, levels, strict=True):
                fit |= node_class.members if level <= worst else 0
                unfit |= node_class.members if level > worst else 0
            requirement = with_devices(requirement, fit, unfit, self.inventory)
        return self._open_to_new_nodes(requirement, required)

    def _open_to_new_nodes(
        self, requirement: Requirement, required: Sequence[RuleRequirement]
    ) -> Requirement:
        """Return a requirement with one more way in, last: by the instance types whose nodes and pools fit.

        Autoscalers know the type of a node that does not exist yet, but not its other labels.
        """
        settings = {of_rule.rule.new_nodes for of_rule in required}
        by_type = NewNodes.BY_INSTANCE_TYPE in settings or self.autoscaled
        if not requirement.clauses or not by_type or NewNodes.NONE in settings:
            return requirement
        fit = unfit = 0
        for node_class in self.class_results(required, self.inventory.everything):
            fit |= node_class.members if node_class.level <= Level.UNSTABLE else 0
            unfit |= node_class.members if node_class.level is Level.INCOMPATIBLE else 0
        pools = self.prospects.incompatible(tuple(required))
        excluded = {value for pool in pools for key, value in pool.labels if key == INSTANCE_TYPE}
        if NewNodes.BY_INSTANCE_TYPE not in settings and self.prospects:
            # A pool may add nodes of other types than it has now; its own term is the way in.
            fit &= ~self.pool_terms(tuple(required)).members
        types = [
            name
            for name, nodes in self.inventory.instance_types()
            if nodes & fit and not nodes & unfit and name not in excluded
        ]
        if not types:
            return requirement
        return requirement.or_else(((MatchExpression(EXPRESSIONS, INSTANCE_TYPE, "In", tuple(types)),),))

    def class_results(self, required: Sequence[RuleRequirement], nodes: int) -> list[NodeClassResult]:
        """Return the classes that a set of nodes forms, with the result of each requirement on them."""
        if not nodes:
            return []
        groups = _by_labels(required)
        classes = self._split(_ALL._replace(members=nodes), groups[0])
        for group in groups[1:]:
            classes = [part for node_class in classes for part in self._split(node_class, group)]
        return classes

    def _split(self, whole: NodeClassResult, required: Sequence[RuleRequirement]) -> list[NodeClassResult]:
        """Return the classes that nodes form for requirements whose rules read the same labels."""
        _, nodes, worst, before = whole
        by_requirement = [
            self._classes((requirement.rule.sharing, requirement.requirements)) for requirement in required
        ]
        classes = by_requirement[0][0]
        levels = zip(*[levels for _, levels, _ in by_requirement], strict=True)
        results = zip(*[checks for _, _, checks in by_requirement], strict=True)
        split = []
        for node_class, of_class, checks in zip(classes, levels, results, strict=True):
            if members := node_class.members & nodes:
                capabilities = whole.capabilities if before else node_class.capabilities
                pairs = (*before, *zip(required, checks, strict=True))
                split.append(NodeClassResult(capabilities, members, max(worst, *of_class), pairs))
        return split

    def _evaluate_classes(
        self, key: tuple[SharingPolicy, GpuRequirements]
    ) -> tuple[tuple[NodeClass, ...], tuple[Level, ...], tuple[tuple[CheckResult, ...], ...]]:
        """Return the classes of all nodes, with the level and checks of each; equal checks are one object."""
        policy, requirements = key
        classes = self.inventory.classes(self.inventory.everything, policy.labels)
        levels: list[Level] = []
        results: list[tuple[CheckResult, ...]] = []
        distinct: dict[tuple[CheckResult, ...], tuple[CheckResult, ...]] = {}
        for node_class in classes:
            level, checks = results_on((policy, requirements, node_class.capabilities))
            levels.append(level)
            results.append(distinct.setdefault(checks, checks))
        return classes, tuple(levels), tuple(results)

    def _find_clauses(
        self, key: tuple[SharingPolicy, GpuRequirements, bool]
    ) -> tuple[tuple[Clause, int], ...]:
        """Return each clause of the requirements with the nodes that satisfy it, as a bit set.

        Images that need the same share them.
        """
        policy, requirements, or_unknown = key
        return self._clauses_of_facts((policy, requirements.without_origins(), or_unknown))

    def _find_clauses_of_facts(
        self, key: tuple[SharingPolicy, GpuRequirements, bool]
    ) -> tuple[tuple[Clause, int], ...]:
        policy, requirements, or_unknown = key
        judge = Judge(lambda node: results_on((policy, requirements, node))[0], or_unknown)
        clauses = clauses_of(policy, requirements, self.inventory, self.prospects.pools, judge)
        return tuple((clause, admitted(self.inventory, clause)) for clause in clauses)


def _notes(classes: Sequence[NodeClassResult]) -> tuple[Message, ...]:
    """Return why the containers run on the compatible classes; nothing if that is plain on one of them."""
    compatible = (node_class for node_class in classes if node_class.level is Level.COMPATIBLE)
    reasons = [
        [check.reason for _, checks in node_class.results for check in checks] for node_class in compatible
    ]
    if not all(reasons):
        return ()
    return tuple(dict.fromkeys(reason for of_class in reasons for reason in of_class))


def _is_short(
    key: tuple[SharingPolicy, GpuRequirements] | tuple[SharingPolicy, GpuRequirements, bool],
) -> bool:
    return key[1].length <= _LONGEST


def _is_short_sum(required: tuple[RuleRequirement, ...]) -> bool:
    return sum(requirement.requirements.length for requirement in required) <= _LONGEST


def _are_short(names: tuple[str, ...]) -> bool:
    return length(names) <= _LONGEST_NAMES


def _are_short_amounts(amounts: Amounts) -> bool:
    return sum(len(name) for name, _ in amounts) <= _LONGEST_NAMES


def _are_few(query: NodeQuery) -> bool:
    return (
        len(query.required) <= _MOST
        and sum(requirement.requirements.length for requirement in query.required) <= _LONGEST
    )


def _newest(required: RuleRequirement) -> tuple[int, int]:
    return required.requirements.cuda.version if required.requirements.cuda else (0, 0)


def _by_labels(required: Sequence[RuleRequirement]) -> list[list[RuleRequirement]]:
    """Return requirements by the labels that their rules read; most rules read the same."""
    groups: list[list[RuleRequirement]] = []
    for requirement in required:
        for group in groups:
            if group[0].rule.sharing.labels == requirement.rule.sharing.labels:
                group.append(requirement)
                break
        else:
            groups.append([requirement])
    return groups


def _find_results(
    key: tuple[SharingPolicy, GpuRequirements, NodeCapabilities],
) -> tuple[Level, tuple[CheckResult, ...]]:
    """Return the checks on a kind of nodes, and their worst level."""
    checks, (sharing, requirements, node) = check_on_node(*key), key
    if node.former_driver and level_of(checks) is Level.INCOMPATIBLE:
        checks = check_on_node(sharing, requirements, replace(node, cuda=None, driver=None))
    return level_of(checks), checks


# They depend on the kind of node only: nodes come and go, but their kinds stay.
results_on = bounded_cache(_find_results, _REMEMBERED_RESULTS, lambda key: key[1].length <= _LONGEST)

# One inventory is in force at a time; the next one replaces the evaluator that is kept.
node_evaluator = lru_cache(maxsize=1)(NodeEvaluator)
