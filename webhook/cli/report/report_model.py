"""What a report has, whichever its format: objects, what was found in them, and what was not checked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rules import Language
from rules.model.certainty import Certainty

# Actions of findings, most severe first.
SEVERITIES: Final = ("deny", "warn", "dryrun")


class Finding(NamedTuple):
    """A violation, or a warning, which has no basis. reason: without container and path. fix: what to do.

    certainty: how sure it is, see Certainty.
    """

    action: str
    basis: str
    rule: str
    reason: str
    message: str
    fix: str = ""
    certainty: Certainty = Certainty.LIKELY


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An object and what was found in it.

    source: file and line, or nothing for an object of a cluster. owner: the object to change, as kind/name.
    passed: the rules that found nothing. not_checked: a line for each part of which nothing is known.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    owner: str
    allowed: bool
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    uid: str = ""
    source: str = ""

    @property
    def title(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def team(self) -> tuple[str, str]:
        """Namespace and owner: who changes it."""
        return self.namespace, self.owner


class Fix(NamedTuple):
    """What to do, the owners that it frees, and those that need another fix, too."""

    rule: str
    text: str
    frees: int
    helps: int


@dataclass(frozen=True, slots=True)
class Report:
    """The objects of a cluster or of files, and the facts that they were evaluated with.

    facts: what is shown of the rules and nodes, by its heading. notes: lines below them.
    """

    title: str
    summary: str
    language: Language
    objects: tuple[Evaluated, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def by_namespace(self) -> dict[str, list[Evaluated]]:
        """Return the objects of each namespace, in the order of the names."""
        found: defaultdict[str, list[Evaluated]] = defaultdict(list)
        for each in self.objects:
            found[each.namespace].append(each)
        return dict(sorted(found.items()))

    def fixes(self) -> list[Fix]:
        """Return what to do about denials: what frees most owners first.

        A fix frees an owner if all denials of all its objects have this one fix.
        """
        needed: defaultdict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        for each in self.objects:
            for found in each.findings:
                if found.action == "deny":
                    needed[each.team].add((found.rule, found.fix or found.reason))
        fixes = {fix for those in needed.values() for fix in those}
        counted = [
            Fix(
                *fix,
                frees=sum(those == {fix} for those in needed.values()),
                helps=sum(fix in those and those != {fix} for those in needed.values()),
            )
            for fix in fixes
        ]
        return sorted(counted, key=lambda fix: (-fix.frees, -fix.helps, fix))

    def not_checked(self) -> dict[str, int]:
        """Return what was not checked, with the number of objects, most objects first."""
        found: defaultdict[str, int] = defaultdict(int)
        for each in self.objects:
            for line in dict.fromkeys(each.not_checked):
                found[line] += 1
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
