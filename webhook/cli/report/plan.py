"""What to do first: the few fixes after which most workloads are admitted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final, NamedTuple

from rules import Language
from rules.text.printable import printable
from webhook.cli.terminal.console import counted
from webhook.cli.terminal.vocabulary import FIX_FIRST, FIX_NUMBERED

# Fixes of a plan: what fits the first lines of a report, and a person's memory.
_MOST_FIXES: Final = 3
# Distinct sets of fixes that are compared, those of most workloads: each step compares each with each.
_MOST_SETS: Final = 200


class Step(NamedTuple):
    """A fix of a plan, and the workloads that need it, some of them others, too."""

    fix: str
    workloads: int


class Plan(NamedTuple):
    """Fixes, the workloads that need nothing else, each counted once, and all that need a fix.

    noun: of those workloads, a key of COUNTED.
    """

    steps: tuple[Step, ...]
    frees: int
    of: int
    noun: str = "denied workload"

    def document(self) -> dict[str, Any]:
        """Return the plan as JSON."""
        return {"fixes": [step._asdict() for step in self.steps], "frees": self.frees, "of": self.of}

    def lines(self, language: Language) -> list[str]:
        """Return the plan as a heading and a line for each fix; nothing if no fixes free a workload."""
        return [self.heading(language), *self.numbered(language)] if self.steps else []

    def numbered(self, language: Language) -> list[str]:
        """Return a line for each fix."""
        return [
            FIX_NUMBERED.having(
                number=number, fix=printable(step.fix), workloads=counted(step.workloads, "workload")
            ).in_language(language)
            for number, step in enumerate(self.steps, 1)
        ]

    def heading(self, language: Language) -> str:
        """Return how many workloads the fixes free."""
        fixes, workloads = counted(len(self.steps), "thing"), counted(self.of, self.noun)
        text = FIX_FIRST.having(fixes=fixes, frees=self.frees, workloads=workloads)
        return text.in_language(language)


def plan(needs: Iterable[Collection[str]], noun: str = "denied workload") -> Plan:
    """Return the fixes after which most workloads need nothing else.

    needs: for each workload, all fixes that it needs; among them an empty text, if for something no fix is
    known. noun: of those workloads, a key of COUNTED. Greedy: each step adds the set of fixes that frees most
    workloads for each fix; another choice may free more. At most _MOST_FIXES, from _MOST_SETS sets.
    """
    counts = Counter(frozenset(fixes) for fixes in needs)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), sorted(item[0])))
    sets = [(fixes, number) for fixes, number in ranked if len(fixes) <= _MOST_FIXES and "" not in fixes][
        :_MOST_SETS
    ]
    chosen: set[str] = set()
    steps: list[Step] = []

    def freed_by(fixes: AbstractSet[str]) -> int:
        return sum(number for needed, number in sets if needed <= fixes)

    while options := [
        fixes for fixes, _ in sets if not fixes <= chosen and len(chosen | fixes) <= _MOST_FIXES
    ]:
        known = freed_by(chosen)
        # Of equals the first.
        best = max(options, key=lambda fixes: (freed_by(chosen | fixes) - known) / len(fixes - chosen))
        chosen.update(added := sorted(best - chosen))
        steps += [
            Step(fix, sum(number for needed, number in counts.items() if fix in needed)) for fix in added
        ]
    freed = sum(number for needed, number in counts.items() if needed <= chosen)
    return Plan(tuple(steps), freed, counts.total(), noun)
