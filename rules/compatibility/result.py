"""Results of checking rule requirements on the nodes of a cluster: data without words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rules.affinity.node_affinity import Requirement
from rules.cuda.requirements import GpuRequirements
from rules.kube.tolerations import Taint
from rules.model.check_result import CheckResult, Level
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message

# Resources, each with how many of it a node must have.
Amounts = tuple[tuple[str, int], ...]


class RuleRequirement(NamedTuple):
    """A rule that applies to containers, and what these require. Equal containers share one."""

    rule: CompatibilityRule
    requirements: GpuRequirements


class ContainerResult(NamedTuple):
    """The check results of a container on a node, and the worst level of them."""

    level: Level
    results: tuple[CheckResult, ...]


class NodeClassResult(NamedTuple):
    """Nodes of equal capabilities, and the result of each rule requirement on them.

    members: their bit set. level: the worst of all containers, which go to one node.
    """

    capabilities: NodeCapabilities
    members: int
    level: Level
    results: tuple[tuple[RuleRequirement, ContainerResult], ...]

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.members.bit_count()

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """The results of all containers."""
        return tuple(each for _, found in self.results for each in found.results)

    def level_under(self, action: Action) -> Level:
        """Return the worst level of the containers under rules of an action."""
        return max([result.level for required, result in self.results if required.rule.action is action])


class ExcessiveRequest(NamedTuple):
    """More of a resource than any node has. most: what the largest has; certain: no pool may have more."""

    resource: str
    amount: int
    most: int
    certain: bool


class NoFittingNode(NamedTuple):
    """No node is compatible. elsewhere: compatible nodes that are no candidates.

    offering: the nodes that offer what the pod requests, as a bit set. excluded_by: what of its spec excludes
    those of them that are compatible, as of `excluding`.
    """

    required: RuleRequirement
    action: Action
    classes: tuple[NodeClassResult, ...]
    elsewhere: tuple[NodeClassResult, ...]
    offering: int = 0
    excluded_by: Sequence[tuple[str, str]] = ()


class UntoleratedTaints(NamedTuple):
    """Taints of compatible nodes that a pod does not tolerate.

    all: of all of them. tolerations: those that the pod lacks for the nodes that need the fewest, as YAML.
    covered: whether a built-in rule, `rule`, adds them if it is enabled.
    """

    all: tuple[Taint, ...]
    tolerations: tuple[str, ...]
    covered: bool
    rule: str


class NodeSetResult(NamedTuple):
    """The result of rule requirements on a set of nodes.

    doubts: the classes, if the best of them is in doubt. requirement: the labels that a node must have;
    preference: those that it preferably has. notes: why the containers run on the compatible nodes, if that
    is plain on none. returning: if no node is compatible, the nodes that may be when they are ready again.
    untolerated: if the pod tolerates no compatible node, those that it does not tolerate, as a bit set.
    """

    none_fits: NoFittingNode | None = None
    doubts: tuple[NodeClassResult, ...] = ()
    requirement: Requirement = Requirement()
    preference: Requirement | None = None
    notes: tuple[Message, ...] = ()
    returning: tuple[NodeClassResult, ...] = ()
    untolerated: int = 0


def unmet_requirements(classes: Sequence[NodeClassResult]) -> list[RuleRequirement]:
    """Return the requirements that none of these nodes meets; if there is none, those that some do not."""
    on_no_node: list[RuleRequirement] = []
    on_some: list[RuleRequirement] = []
    for at, (required, _) in enumerate(classes[0].results):
        levels = [node_class.results[at][1].level for node_class in classes]
        if Level.INCOMPATIBLE in levels:
            (on_no_node if min(levels) is Level.INCOMPATIBLE else on_some).append(required)
    return on_no_node or on_some
