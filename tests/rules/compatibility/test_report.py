"""What is said where no node fits: in which order, and of several remedies which."""

from __future__ import annotations

from rules.compatibility.report import ContainerResult, MessageWriter, NodeClassResult, RuleRequirement
from rules.cuda.requirements import GpuRequirements
from rules.model.check_result import CheckResult, Level
from rules.nodes.node_capabilities import NodeCapabilities
from rules.text.i18n import Language, Text
from tests.support.builders import loaded
from tests.support.node_builders import compatibility_rule


def finding(origin: str, remedy: str) -> CheckResult:
    """Return a reason to refuse a node."""
    return CheckResult(Level.INCOMPATIBLE, Text("why"), Text(remedy), origin=Text(origin))


def test_of_several_remedies_for_one_need_the_last_is_told_in_the_place_of_the_first() -> None:
    """Of nodes by their CUDA versions, and of equal ones in their order, of which some see the same."""
    (rule,) = loaded(compatibility_rule()).rules.compatibility
    demand = RuleRequirement(rule, GpuRequirements("main"))
    both = ContainerResult(
        Level.INCOMPATIBLE, (finding("a flag", "drop the flag"), finding("an image", "take that one"))
    )
    one = ContainerResult(Level.INCOMPATIBLE, (finding("an image", "take this one"),))
    judged = [
        NodeClassResult(NodeCapabilities(cuda=(11, 4)), 1 << at, Level.INCOMPATIBLE, ((demand, found),))
        for at, found in enumerate((both, one, both))
    ]
    told = [MessageWriter(Language.EN).incompatible(order, [], table=True) for order in (judged, judged[:2])]

    assert ["drop the flag; take that one", "drop the flag; take this one"] == [
        text.rpartition("what would fit: ")[2] for text in told
    ]
