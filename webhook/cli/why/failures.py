"""Causes of a pod that does not start or run, from the decision on it, its status, events and logs.

Sources: `facts/failures.yaml` and `facts/errors.yaml`. Linear in the statements; `statements_of` bounds each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from rules.cuda.tables import read_table
from rules.model.decision import Decision
from rules.model.finding import Basis, Certainty, Finding
from rules.text.i18n import Language, Message, Text
from webhook.cli.why.unscheduled import Unscheduled

# Lines of a log, from its end, and characters of a line; a traceback has some fifty lines.
MAX_LINES: Final = 1000
_MAX_LENGTH: Final = 1000
_MAX_EVIDENCE: Final = 3
# CUDA errors that a check of compatibility foresees (facts/errors.yaml).
_FORESEEN: Final = frozenset({35, 36, 209, 218, 222, 223, 803, 804})
_COMPATIBILITY: Final = "compatibility"
# Rows whose cause and fix are more precise with the nodes.
_INSUFFICIENT: Final = frozenset({"insufficient-resource", "insufficient-together"})
_UNTOLERATED: Final = "untolerated-taint"
# The row whose message has the violations itself.
_DENIED: Final = "denied-by-gpugate"
_LINE: Final = Message("{log}, line {line}")
# The names of the groups of a pattern in its cause and fix.
_GROUPS: Final = ("first", "second", "third", "fourth")
_BY_POLICY: Final = Message("{reason} (policy of rule {rule})")
# Escape sequences that colour a log: https://en.wikipedia.org/wiki/ANSI_escape_code
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]{0,20}m")

# The output of `kubectl describe pod`, https://github.com/kubernetes/kubectl/blob/master/pkg/describe/describe.go
_DESCRIBED: Final = re.compile(r"^Name: {2,}\S", re.MULTILINE)
_COLUMNS_OF_EVENTS: Final = 5  # type, reason, age, from, message
_BETWEEN_COLUMNS: Final = re.compile(" {2,}")
_DESCRIBED_STATUS: Final = re.compile(r" *(?:Reason|Message): +(\S.*)")


class Source(StrEnum):
    """Origin of a statement about a pod."""

    STATUS = "status"
    EVENT = "event"
    LOG = "log"


class _Sentence(Message):
    """A text without the colon at its end, if the value that follows is empty."""

    def _formatted(self, language: Language) -> str:
        return super()._formatted(language).rstrip(": \uff1a")


class Statement(NamedTuple):
    """One line about a pod."""

    source: Source
    place: Message
    text: str


class Cause(Struct, frozen=True):
    """Why a pod does not start or run."""

    name: str  # of the rule, or of the row in the table of failures
    certainty: Certainty  # CERTAIN if the evidence proves it, otherwise LIKELY
    text: Message
    fix: Message
    evidence: tuple[Statement, ...] = ()


class _Pattern(Struct, frozen=True):
    """A row of the tables of failures and of CUDA errors."""

    name: str
    expression: re.Pattern[str]
    seen: frozenset[str]  # the sources of statements that it applies to
    cause: Message
    fix: Message
    messages: tuple[str, ...] = ()  # CUDA's texts, which count only in a line about a CUDA error
    certain: bool = False
    also: bool = False  # may only be a consequence of another cause
    unless: frozenset[str] = frozenset()  # patterns that explain the same line better
    foreseen: bool = False  # compatibility checks foresee it

    def match(self, line: str, lower: str) -> tuple[str, ...] | None:
        """Return the groups of the match in a line, or None. lower: the line in lower case."""
        if match := self.expression.search(line):
            return tuple(group or "" for group in match.groups())
        message = next((message for message in self.messages if message in lower), None)
        if message is None:
            return None
        rest = lower.replace(message, "")
        of_cuda = "cuda" in message or ("cuda" in rest and ("error" in rest or "fail" in rest))
        return () if of_cuda else None


class _Match(Struct):
    """A pattern with the groups that it matched, and the first statements in which it did."""

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
            unless=frozenset(row.get("unless", ())),
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


def log_statements(log: Message, text: str) -> Iterator[Statement]:
    """Yield the last lines of a log, each cut to a length; of `kubectl describe`, reasons and events.

    log: its name.
    """
    lines = text.splitlines()
    first = max(0, len(lines) - MAX_LINES)
    is_described = "\nEvents:" in text and bool(_DESCRIBED.search(text))
    for number, line in enumerate(lines[first:], first + 1):
        source, words = _described(line) if is_described else (Source.LOG, line)
        if words.strip():
            yield Statement(source, _LINE.having(log=log, line=number), shortened(words))


def _described(line: str) -> tuple[Source, str]:
    """Return what a line of `kubectl describe` says: an event, or a reason or message of the status."""
    cells = _BETWEEN_COLUMNS.split(line.strip(), _COLUMNS_OF_EVENTS - 1)
    if len(cells) == _COLUMNS_OF_EVENTS and cells[0] in {"Normal", "Warning"}:
        return Source.EVENT, f"{cells[1]}: {cells[-1]}"
    status = _DESCRIBED_STATUS.match(line)
    return Source.STATUS, status[1] if status else ""


def shortened(text: str) -> str:
    """Return an untrusted text as one line of bounded length, without control characters."""
    cut = _COLOURS.sub("", text[:_MAX_LENGTH])
    return (
        cut
        if cut.isprintable()
        else "".join(character if character.isprintable() else " " for character in cut).strip()
    )


def causes(
    decision: Decision,
    statements: Iterable[Statement],
    pod: Unscheduled | None = None,
    *,
    runs: bool = False,
    rules_known: bool = True,
) -> list[Cause]:
    """Return the causes, certain ones first, each once with its first evidence.

    A violation of facts is a certain cause; its evidence is the CUDA errors that it foresees. A violation of
    a rule's policy is a likely cause, unless the pod runs, or which rules are in force is unknown. A message
    in a log is never certain: only the container says it. A cause that may only follow from others is left
    out if there are others. pod: the unscheduled pod with the nodes, for more precise causes.
    """
    matches = _matches(statements)
    foreseen = [match for match in matches if match.pattern.foreseen]
    evidence = tuple(line for match in foreseen for line in match.evidence)[:_MAX_EVIDENCE]
    denied = any(match.pattern.name == _DENIED for match in matches)  # which says what the violations do
    by_rules = [
        Cause(violation.rule, violation.certainty, _reason(violation), violation.fix, evidence)
        for violation in (() if denied else decision.violations)
        if violation.basis is Basis.FACT or (rules_known and (evidence or not runs))
    ]
    explained = foreseen if any(cause.certainty is Certainty.CERTAIN for cause in by_rules) else []
    rest = [match for match in matches if all(match is not other for other in explained)]
    if by_rules or any(not match.pattern.also for match in rest):
        rest = [match for match in rest if not match.pattern.also]
    by_tables = [_cause(match, pod) for match in rest]
    return sorted([*by_rules, *by_tables], key=lambda cause: cause.certainty is not Certainty.CERTAIN)


def _reason(violation: Finding) -> Message:
    """Return the reason of a violation; a violation of policy names the rule, whose owner can change it."""
    if violation.basis is Basis.FACT:
        return violation.reason
    return _BY_POLICY.having(reason=violation.reason, rule=violation.rule)


def _matches(statements: Iterable[Statement]) -> Sequence[_Match]:
    """Return the patterns that statements match, in the order of their first statements."""
    matches: dict[tuple[str, tuple[str, ...]], _Match] = {}
    for statement in statements:
        lower = statement.text.lower()
        of_line = {
            pattern.name: (pattern, groups)
            for pattern in _patterns()
            if statement.source in pattern.seen
            and (groups := pattern.match(statement.text, lower)) is not None
        }
        for pattern, groups in of_line.values():
            if pattern.unless.isdisjoint(of_line):
                match = matches.setdefault((pattern.name, groups), _Match(pattern, groups))
                if len(match.evidence) < _MAX_EVIDENCE:
                    match.evidence.append(statement)
    return list(matches.values())


def _cause(match: _Match, pod: Unscheduled | None) -> Cause:
    pattern, groups, texts = match.pattern, match.groups, (match.pattern.cause, match.pattern.fix)
    if pod is not None and pattern.name in _INSUFFICIENT:
        name = pod.shortest(match.evidence[0].text)
        if name and (precise := pod.shortage(name)):
            groups, texts = (name,), precise
    elif pod is not None and pattern.name == _UNTOLERATED and not any(groups):
        groups = (pod.taints(),)
    values = dict(zip(_GROUPS, groups, strict=False))
    cause, fix = (_Sentence("{text}", text=text.having(**values)) for text in texts)
    is_proven = pattern.certain and any(line.source is not Source.LOG for line in match.evidence)
    certainty = Certainty.CERTAIN if is_proven else Certainty.LIKELY
    return Cause(pattern.name, certainty, cause, fix, tuple(match.evidence))
