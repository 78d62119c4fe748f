"""Causes of a pod that does not start or run, from a decision on it and from what its cluster says.

Sources: `facts/failures.yaml` and `facts/errors.yaml`. Linear in the statements; `statements_of` bounds each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple

from rules.cuda.tables import read_table
from rules.model.certainty import Certainty
from rules.model.decision import Basis, Decision, Violation
from rules.text.i18n import Language, Message, Text
from webhook.cli.why.unscheduled import Unscheduled

# Lines of a log, from its end, and characters of a line; a traceback has some fifty lines.
MAX_LINES: Final = 1000
_MAX_LENGTH: Final = 1000
_MAX_EVIDENCE: Final = 3
# CUDA errors that a check of compatibility foresees (facts/errors.yaml).
_FORESEEN: Final = frozenset({35, 36, 209, 218, 222, 223, 803, 804})
_COMPATIBILITY: Final = "compatibility"
# Rows of which the nodes say more.
_INSUFFICIENT: Final = "insufficient-resource"
_UNTOLERATED: Final = "untolerated-taint"
# The row whose message has the violations itself.
_DENIED: Final = "denied-by-gpugate"
_BY_POLICY: Final = Message("{reason} (policy of rule {rule})")
# Escape sequences that colour a log: https://en.wikipedia.org/wiki/ANSI_escape_code
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")


class Source(StrEnum):
    """Who says something about a pod."""

    STATUS = "status"
    EVENT = "event"
    LOG = "log"


class Statement(NamedTuple):
    """One line that is said about a pod. place: where, for people."""

    source: Source
    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a pod does not start or run. name: of the row of a table, or of the rule.

    certainty: CERTAIN if the evidence proves it, otherwise LIKELY.
    """

    name: str
    certainty: Certainty
    text: str
    fix: str
    evidence: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A row of a table. messages: texts of CUDA that count only in a line about an error of CUDA."""

    name: str
    expression: re.Pattern[str]
    seen: frozenset[str]
    cause: Message
    fix: Message
    messages: tuple[str, ...] = ()
    certain: bool = False
    also: bool = False
    foreseen: bool = False

    def match(self, line: str, lower: str) -> tuple[str, ...] | None:
        """Return what the groups matched in a line, or None; lower: the line in lower case."""
        if found := self.expression.search(line):
            return tuple(each or "" for each in found.groups())
        message = next((message for message in self.messages if message in lower), None)
        if message is None:
            return None
        rest = lower.replace(message, "")
        of_cuda = "cuda" in message or ("cuda" in rest and ("error" in rest or "fail" in rest))
        return () if of_cuda else None


@dataclass(slots=True)
class _Found:
    pattern: _Pattern
    groups: tuple[str, ...]
    evidence: list[Statement] = field(default_factory=list)


@cache
def _patterns() -> tuple[_Pattern, ...]:
    """Return the rows of both tables."""
    rows: list[dict[str, Any]] = read_table("failures")
    known = [
        _Pattern(
            name=row["name"],
            expression=re.compile(row["pattern"]),
            seen=frozenset(row["seen"]),
            cause=Text(**row["cause"]),
            fix=Text(**row["fix"]),
            certain=row.get("certain", False),
            also=row.get("also", False),
            foreseen=row.get("group") == _COMPATIBILITY,
        )
        for row in rows
    ]
    of_cuda = [
        _Pattern(
            name=row["runtime"],
            expression=re.compile(
                rf"\b(?:{'|'.join(filter(None, (row['runtime'], row['driver'])))})\b"
                rf"|\b[Cc]uda\w{{1,60}} returned {row['code']}\b"
            ),
            seen=frozenset(Source),
            cause=Text(**row["cause"]),
            fix=Text(**row["fix"]),
            messages=tuple(row[key].lower().rstrip(".") for key in ("message", "old_message") if key in row),
            foreseen=row["code"] in _FORESEEN,
        )
        for row in read_table("errors")
    ]
    return (*known, *of_cuda)


def log_statements(place: str, text: str) -> Iterator[Statement]:
    """Yield the last lines of a log, each cut to a length. place: a name with `{line}`."""
    lines = text.splitlines()
    first = max(0, len(lines) - MAX_LINES)
    for number, line in enumerate(lines[first:], first + 1):
        if line.strip():
            yield Statement(Source.LOG, place.format(line=number), shortened(line))


def shortened(text: str) -> str:
    """Return a text of strangers as one line of bounded length, without control characters."""
    cut = _COLOURS.sub("", text[:_MAX_LENGTH])
    return cut if cut.isprintable() else "".join(each if each.isprintable() else " " for each in cut).strip()


def causes(
    decision: Decision,
    statements: Iterable[Statement],
    language: Language,
    pod: Unscheduled | None = None,
    *,
    runs: bool = False,
) -> list[Cause]:
    """Return the causes, certain ones first, each once with its first evidence.

    A violation is a cause: of facts a certain one, and CUDA errors that it foresees are evidence of it; of
    the policy of a rule a likely one, unless the pod runs. What only follows from other causes is left out if
    there is another. pod: the nodes that say more about its scheduling.
    """
    found = _found(statements)
    foreseen = [each for each in found if each.pattern.foreseen]
    evidence = tuple(line for each in foreseen for line in each.evidence)[:_MAX_EVIDENCE]
    denied = any(each.pattern.name == _DENIED for each in found)  # which says what the violations do
    by_rules = [
        Cause(each.rule, each.certainty, _reason(each, language), each.fix.in_language(language), evidence)
        for each in (() if denied else decision.violations)
        if each.basis is Basis.FACT or evidence or not runs
    ]
    explained = foreseen if any(each.certainty is Certainty.CERTAIN for each in by_rules) else []
    rest = [each for each in found if all(each is not one for one in explained)]
    if by_rules or any(not each.pattern.also for each in rest):
        rest = [each for each in rest if not each.pattern.also]
    by_tables = [_cause(each, language, pod) for each in rest]
    return sorted([*by_rules, *by_tables], key=lambda each: each.certainty is not Certainty.CERTAIN)


def _reason(violation: Violation, language: Language) -> str:
    """Return the first line of a reason; what a rule forbids names the rule, whose owner can admit it."""
    reason = violation.reason
    if violation.basis is not Basis.FACT:
        reason = _BY_POLICY.having(reason=reason, rule=violation.rule)
    return reason.in_language(language)


def _found(statements: Iterable[Statement]) -> Sequence[_Found]:
    """Return the patterns that statements match, in the order of their first statements."""
    found: dict[tuple[str, tuple[str, ...]], _Found] = {}
    for statement in statements:
        lower = statement.text.lower()
        for pattern in _patterns():
            if statement.source in pattern.seen:
                groups = pattern.match(statement.text, lower)
                if groups is not None:
                    each = found.setdefault((pattern.name, groups), _Found(pattern, groups))
                    if len(each.evidence) < _MAX_EVIDENCE:
                        each.evidence.append(statement)
    return list(found.values())


def _cause(found: _Found, language: Language, pod: Unscheduled | None) -> Cause:
    pattern, groups, texts = found.pattern, found.groups, (found.pattern.cause, found.pattern.fix)
    if pod is not None and pattern.name == _INSUFFICIENT:
        groups = (pod.shortest(found.evidence[0].text, groups[0]),)
        texts = pod.shortage(groups[0]) or texts
    elif pod is not None and pattern.name == _UNTOLERATED and not any(groups):
        groups = (pod.taints(),)
    cause, fix = (text.in_language(language).format(*groups).rstrip(": \uff1a") for text in texts)
    certainty = Certainty.CERTAIN if pattern.certain else Certainty.LIKELY
    return Cause(pattern.name, certainty, cause, fix, tuple(found.evidence))
