"""Results of checking rule requirements on the nodes of a cluster: data without words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rules.affinity.node_affinity import Requirement
from rules.cuda.requirements import GpuRequirements
from rules.kube.tolerations import Taint
from rules.model.check_result import CheckResult, Level, level_of
from rules.model.rule import Action, CompatibilityRule
from rules.nodes.devices.devices import DeviceKind
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Message

# Kinds of devices that are evaluated for the claims of one object, of each alternative and container: 0.1 s.
# One claim has 256 alternatives at most.
_MOST_EVALUATIONS: Final = 2048
# The results of kinds of devices, each with the capabilities that they stand for.
CheckedDevices = dict[DeviceKind, tuple[NodeCapabilities, tuple[CheckResult, ...]]]


class RuleRequirement(NamedTuple):
    """A rule that applies to containers, and what these require. Equal containers share one."""

    rule: CompatibilityRule
    requirements: GpuRequirements


class NodeClassResult(NamedTuple):
    """Nodes of equal capabilities, and the check results of each rule requirement on them.

    members: their bit set. level: the worst of all containers, which go to one node.
    """

    capabilities: NodeCapabilities
    members: int
    level: Level
    results: tuple[tuple[RuleRequirement, tuple[CheckResult, ...]], ...]

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return self.members.bit_count()

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        """The results of all containers."""
        return tuple(check for _, checks in self.results for check in checks)

    def level_under(self, action: Action) -> Level:
        """Return the worst level of the containers under rules of an action."""
        return max([level_of(checks) for required, checks in self.results if required.rule.action is action])


class ExcessiveRequest(NamedTuple):
    """More of a resource than any node has. most: what the largest has; certain: no pool may have more."""

    resource: str
    amount: int
    most: int
    certain: bool


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

    unmet: the requirement of the strictest rule that no node meets; None if some node is compatible. action:
    the effect of that rule if no node is compatible. classes: the nodes, if none is compatible. elsewhere:
    compatible nodes outside the set. doubts: the classes, if the best of them is in doubt. requirement: the
    labels that a node must have; preference: those that it preferably has. notes: why the containers run on
    the compatible nodes, if that is plain on none. returning: if no node is compatible, the nodes that may be
    when they are ready again. untolerated: if the pod tolerates no compatible node, those that it does not
    tolerate, as a bit set.
    """

    unmet: RuleRequirement | None = None
    action: Action = Action.DRYRUN
    classes: tuple[NodeClassResult, ...] = ()
    elsewhere: tuple[NodeClassResult, ...] = ()
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
        levels = [level_of(node_class.results[at][1]) for node_class in classes]
        if Level.INCOMPATIBLE in levels:
            (on_no_node if min(levels) is Level.INCOMPATIBLE else on_some).append(required)
    return on_no_node or on_some


class ClaimAllowance:
    """Evaluations that are left for the claims of one object.

    checked: results so far, by what a container requires: equal requirements are checked once on each kind of
    device, because the size limit counts them once.
    """

    __slots__ = ("checked", "left")

    def __init__(self) -> None:
        self.left = _MOST_EVALUATIONS
        self.checked: dict[RuleRequirement, CheckedDevices] = {}
