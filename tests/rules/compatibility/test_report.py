"""What is said where no node fits: in which order, and of several remedies which."""

from __future__ import annotations

from rules.compatibility.report import Demand, Judged, Opinion, Words
from rules.cuda.requirements import Needs
from rules.model.finding import Finding, Level
from rules.nodes.node_capabilities import Offer
from rules.text.i18n import Language, Text
from tests.support.builders import loaded
from tests.support.node_builders import compatibility_rule


def finding(origin: str, remedy: str) -> Finding:
    """Return a reason to refuse a node."""
    return Finding(Level.REFUSED, Text("why"), Text(remedy), origin=Text(origin))


def test_of_several_remedies_for_one_need_the_last_is_told_in_the_place_of_the_first() -> None:
    """Of nodes by their CUDA versions, and of equal ones in their order, of which some see the same."""
    (rule,) = loaded(compatibility_rule()).rules.compatibility
    demand = Demand(rule, Needs("main"))
    both = Opinion(Level.REFUSED, (finding("a flag", "drop the flag"), finding("an image", "take that one")))
    one = Opinion(Level.REFUSED, (finding("an image", "take this one"),))
    judged = [
        Judged(Offer(cuda=(11, 4)), 1 << at, Level.REFUSED, ((demand, found),))
        for at, found in enumerate((both, one, both))
    ]
    told = [Words(Language.EN).refusal(order, [], table=True) for order in (judged, judged[:2])]

    assert ["drop the flag; take that one", "drop the flag; take this one"] == [
        text.rpartition("what would fit: ")[2] for text in told
    ]
