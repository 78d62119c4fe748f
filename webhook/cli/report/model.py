"""What a report has, whichever its format: what was checked, what is wrong with it, and what is unknown."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from rules import Decision, Finding, Language
from rules.decision.messages import WarningLine
from rules.model.check_result import Edit
from rules.model.finding import Certainty, cause_of
from rules.text.i18n import Message
from rules.text.paths import field_path
from rules.text.yaml_document import Location
from webhook.cli.inputs.not_checked import not_checked_line
from webhook.cli.inputs.objects import ObjectSource
from webhook.cli.report.plan import Plan, plan
from webhook.cli.terminal.vocabulary import EXPECTED_INSTEAD, OF_RESOURCE

if TYPE_CHECKING:
    from webhook.cli.matrix.matrix import Table
    from webhook.cli.report.changes import VerdictChange
    from webhook.cli.report.fleet import FleetRow

DENY: Final = "deny"
WARN: Final = "warn"
DRYRUN: Final = "dryrun"
NOT_CHECKED: Final = "not checked"
# Effects of findings, most severe first.
EFFECTS: Final = (DENY, WARN, DRYRUN, NOT_CHECKED)
# The words of linters and CI systems for the effects.
_LEVELS: Final = {DENY: "error", WARN: "warning", DRYRUN: "notice", NOT_CHECKED: "notice"}
# The resource at the end of a path of limits or requests.
_RESOURCE: Final = re.compile(r"\.(?:limits|requests)\[([^\]]+)\]$")
_CODES: Final = {WARN: "warning", NOT_CHECKED: "not-checked"}


class RenderedFinding(NamedTuple):
    """What is wrong, or what is not checked, in the language of a report.

    effect: one of EFFECTS. rule: the rule that finds it, or the code of a mistake in a file; may be empty.
    message: what is wrong and what to do. cause: what is wrong without container and path, which objects with
    the same fault share. fix: what to do, with the resource that it is about. basis: what it rests on, see
    Basis; a warning may have none. place: in a file, if it is not that of the target. in_summary: the
    summary says it of all targets at once, so that no line of a file is marked. edits: see Finding.
    """

    effect: str
    rule: str
    message: str
    cause: str = ""
    fix: str = ""
    basis: str = ""
    certainty: Certainty = Certainty.LIKELY
    place: Location | None = None
    in_summary: bool = False
    edits: tuple[Edit, ...] = ()

    @classmethod
    def of(cls, finding: Finding, language: Language) -> RenderedFinding:
        """Return a finding in a language."""
        return cls(
            finding.action.value,
            finding.rule,
            finding.message.in_language(language),
            cause_of(finding).in_language(language),
            fix_of(finding).in_language(language),
            finding.basis.value,
            finding.certainty,
            edits=finding.edits,
        )

    @property
    def level(self) -> str:
        """The effect in the words of linters: error, warning or notice."""
        return _LEVELS[self.effect]

    @property
    def code(self) -> str:
        """The rule, or else a word for the effect."""
        return self.rule or _CODES[self.effect]


def fix_of(finding: Finding) -> Message:
    """Return what to do about a finding, as a text that is understood apart from the object.

    It names the resource of the finding. If nothing is known to do, it is what the rule expects.
    """
    fix: Message = finding.fix and finding.fix[1].get("fixes", finding.fix)  # without "suggested fixes:"
    if not fix and (expected := cause_of(finding)[1].get("expected")):
        fix = EXPECTED_INSTEAD.having(expected=expected)
    fix = fix or cause_of(finding)
    resource = _RESOURCE.search(finding.path)
    return (
        OF_RESOURCE.having(resource=resource[1], fix=fix) if resource and resource[1] not in fix.en else fix
    )


def warnings_alone(decision: Decision) -> list[Message]:
    """Return the warnings that are no findings, such as of a malformed object that is allowed unchecked."""
    return [line for line in decision.warning_lines if not isinstance(line, WarningLine)]


def violation_facts(violation: Finding, language: Language) -> dict[str, Any]:
    """Return a violation for JSON."""
    return {
        "rule": violation.rule,
        "action": violation.action,
        "basis": violation.basis,
        "certainty": violation.certainty,
        "path": violation.path,
        "message": violation.message.in_language(language),
    } | edit_facts(violation.edits)


def edit_facts(edits: Iterable[Edit]) -> dict[str, Any]:
    """Return the only right fix of a finding for JSON; nothing if there is none."""
    facts = [{"path": field_path(edit.path), "old": edit.old, "new": edit.new} for edit in edits]
    return {"edits": facts} if facts else {}


def not_checked(
    decision: Decision,
    language: Language,
    source: ObjectSource | None,
    in_summary: Collection[Message] = (),
) -> tuple[RenderedFinding, ...]:
    """Return what a decision did not check. in_summary: reasons that the summary of the report has."""
    return tuple(
        RenderedFinding(
            NOT_CHECKED,
            "",
            not_checked_line(part, language),
            place=source.locate(part.path) if source else None,
            in_summary=part.reason in in_summary,
        )
        for part in decision.not_checked
    )


def rendered_findings(
    decision: Decision, language: Language, source: ObjectSource | None
) -> Iterator[RenderedFinding]:
    """Yield each violation and each notice of a decision on an object, at its field or else its container."""
    for finding in (*decision.violations, *decision.notices):
        place = source.locate(finding.path or field_path(finding.container)) if source else None
        yield RenderedFinding.of(finding, language)._replace(place=place)


def place_of(source: ObjectSource | None) -> Location | None:
    """Return the place of an object; None for an object of a cluster."""
    return replace(source.locate(""), column=0) if source else None


class Target(Struct, frozen=True):
    """What was checked: an object or a file.

    title: kind, namespace and name of an object; empty for a file. place: in a file; None for an object of a
    cluster. passed: the rules that found nothing. owner: the object to change, as kind/name. reference: the
    ObjectReference of Kubernetes, if the object may be one of a cluster. result: the verdict in
    words. change: a unified diff of it; empty if nothing is changed.
    """

    title: str
    place: Location | None = None
    findings: tuple[RenderedFinding, ...] = ()
    passed: tuple[str, ...] = ()
    owner: str = ""
    reference: Mapping[str, str] = field(default_factory=dict)
    result: str = ""
    change: str = ""

    @property
    def namespace(self) -> str:
        """Namespace of an object that may be one of a cluster."""
        return self.reference.get("namespace", "")

    @property
    def team(self) -> tuple[str, str]:
        """Namespace and owner: who changes it."""
        return self.namespace, self.owner

    @property
    def severity(self) -> int:
        """The place of the worst effect of the findings in EFFECTS, or the number of effects."""
        return min((EFFECTS.index(finding.effect) for finding in self.findings), default=len(EFFECTS))

    @property
    def verdict(self) -> str:
        """The result, and why the object is denied or warned of."""
        why = (
            finding.cause or finding.message for finding in self.findings if finding.effect in (DENY, WARN)
        )
        return ": ".join(filter(None, (self.result, "; ".join(dict.fromkeys(why)))))

    def messages(self, effect: str) -> list[str]:
        """Return the messages of the findings with an effect."""
        return [finding.message for finding in self.findings if finding.effect == effect]


class Fix(NamedTuple):
    """What to do, by which rules, the owners that it frees, and those that need another fix, too."""

    text: str
    rules: tuple[str, ...]
    frees: int
    helps: int


class Group(NamedTuple):
    """The workloads with a value of a label, and how many are denied, or only warned of.

    group: the value; None if neither the workload nor its namespace has the label.
    """

    group: str | None
    workloads: int
    pods: int
    denied: int
    warned: int


class Report(Struct, frozen=True):
    """What a command has checked, and what it was checked with.

    tool: the command. summary: the numbers, in one line. notes: lines below it. codes: all codes of findings,
    each with its description; empty: those that the findings have. facts, tables and fleet are of a
    page: facts on the rules and nodes by their headings, the compatibility of the nodes, and their drivers.
    changes: the objects whose verdict or patch changes; None if nothing is compared. groups: the workloads by
    the label `group_by`.
    """

    tool: str
    summary: str
    language: Language
    targets: tuple[Target, ...]
    notes: tuple[str, ...] = ()
    codes: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    fleet: Sequence[FleetRow] = ()
    changes: Sequence[VerdictChange] | None = None
    group_by: str = ""
    groups: Sequence[Group] = ()

    def by_namespace(self) -> dict[str, list[Target]]:
        """Return the objects of each namespace, in the order of the names."""
        targets: defaultdict[str, list[Target]] = defaultdict(list)
        for target in sorted(self.targets, key=lambda target: target.namespace):
            targets[target.namespace].append(target)
        return targets

    def plan(self) -> Plan:
        """Return the few fixes after which most owners are admitted."""
        return plan(self._needed().values())

    def fixes(self) -> list[Fix]:
        """Return what to do about denials: what frees most owners first.

        A fix frees an owner if all denials of all its objects have this one fix.
        """
        needed = self._needed().values()
        alone = Counter(fix for fixes in needed if len(fixes) == 1 for fix in fixes)
        helping = Counter(fix for fixes in needed if len(fixes) > 1 for fix in fixes)
        rules: defaultdict[str, set[str]] = defaultdict(set)
        for _, finding in self._denials():
            rules[finding.fix or finding.cause].add(finding.rule)
        fixes = [Fix(fix, tuple(sorted(rules[fix])), alone[fix], helping[fix]) for fix in rules]
        return sorted(fixes, key=lambda fix: (-fix.frees, -fix.helps, fix))

    def _needed(self) -> dict[tuple[str, str], set[str]]:
        """Return the fixes that each owner with denials needs."""
        needed: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for team, finding in self._denials():
            needed[team].add(finding.fix or finding.cause)
        return needed

    def _denials(self) -> Iterator[tuple[tuple[str, str], RenderedFinding]]:
        for target in self.targets:
            for finding in target.findings:
                if finding.effect == DENY:
                    yield target.team, finding

    def not_checked(self) -> dict[str, int]:
        """Return what was not checked, with the number of objects, most objects first."""
        counts = Counter(line for target in self.targets for line in set(target.messages(NOT_CHECKED)))
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
