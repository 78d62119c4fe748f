"""The nodes of a cluster as containers see them: by class, and remembered.

What is found of a class for some needs is found once for an inventory, so that the cost of a decision does
not grow with the number of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from rules.finding import Level, level_of
from rules.fitness import Terms, fitness
from rules.inventory import Inventory, NodeClass
from rules.memo import remembered
from rules.needs import Needs
from rules.offer import Offer
from rules.selector import Clause, admitted
from rules.steering import clauses_of, stable
from rules.verdict import Demand, Judged, Opinion

if TYPE_CHECKING:
    from rules.affinity import Requirement

# All nodes, of which nothing has been said yet.
_WHOLE: Final = Judged(Offer(), 0, Level.FITS, ())
# Different needs that a cluster's containers have at one time; about 10 KB each with 100 classes of nodes.
_REMEMBERED: Final = 512
# Characters that a pod's author wrote in them; NVIDIA's longest requirement has some 2,000.
_LONGEST: Final = 8192


class Landscape:
    """The classes of nodes of an inventory, and what they mean for a container's needs; remembered."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._findings = remembered(self._find, _REMEMBERED, _is_short)
        self.clauses = remembered(self._clauses, _REMEMBERED, _is_short)

    def judge(self, demands: Sequence[Demand], nodes: int) -> list[Judged]:
        """Return the classes that a set of nodes forms, with what there is to say of each demand on them."""
        groups = _alike(demands)
        judged = self._split(_WHOLE._replace(members=nodes), groups[0])
        for group in groups[1:]:
            judged = [both for each in judged for both in self._split(each, group)]
        return judged

    def stable(self, demands: Sequence[Demand]) -> Requirement | None:
        """Return what a node tells on which no container is unstable."""
        return stable(demands[0].rule.terms, (demand.needs for demand in demands), self._inventory)

    def _split(self, judged: Judged, demands: Sequence[Demand]) -> list[Judged]:
        """Return the classes that nodes form for demands that read the same labels."""
        _, nodes, worst, before = judged
        found = [self._findings(demand.rule.terms, demand.needs) for demand in demands]
        classes = found[0][0]
        split = []
        for each, *opinions in zip(classes, *[by_class for _, by_class in found], strict=True):
            if members := each.members & nodes:
                level = max([worst, *[opinion.level for opinion in opinions]])
                offer = judged.offer if before else each.offer
                split.append(Judged(offer, members, level, (*before, *zip(demands, opinions, strict=True))))
        return split

    def _find(self, terms: Terms, needs: Needs) -> tuple[tuple[NodeClass, ...], tuple[Opinion, ...]]:
        """Return the classes, and what there is to say of a container on each."""
        classes = self._inventory.classes(self._inventory.everything, terms.labels)
        found = (fitness(terms, needs, each.offer) for each in classes)
        return classes, tuple(Opinion(level_of(findings), findings) for findings in found)

    def _clauses(self, terms: Terms, needs: Needs, doubtful: bool) -> tuple[tuple[Clause, int], ...]:
        """Return each clause of the needs with the nodes that satisfy it, as a bit set."""
        clauses = clauses_of(terms, needs, self._inventory, doubtful=doubtful)
        return tuple((clause, admitted(self._inventory, clause)) for clause in clauses)


def _is_short(_terms: Terms, needs: Needs, *_: bool) -> bool:
    return needs.length <= _LONGEST


def _alike(demands: Sequence[Demand]) -> list[list[Demand]]:
    """Return demands by the labels that their rules read; most rules read the same."""
    groups: list[list[Demand]] = []
    for demand in demands:
        for group in groups:
            if group[0].rule.terms.labels == demand.rule.terms.labels:
                group.append(demand)
                break
        else:
            groups.append([demand])
    return groups


# One inventory is in force at a time; another takes the place of the one that is remembered.
landscape_of = lru_cache(maxsize=1)(Landscape)
