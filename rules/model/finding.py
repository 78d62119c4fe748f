"""A finding: what is wrong with an object, made once; responses, tables and reports are views of it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from rules.model.check_result import Edit
from rules.model.rule import Action
from rules.text.i18n import Language, Lines, Message
from rules.text.paths import Path


class Certainty(StrEnum):
    """How sure it is that a container does not start, or fails; the most sure first.

    CERTAIN: facts of both sides prove it, of the container and of its node or cluster. LIKELY: one side is
    known to fail in this way, or a rule of the operator forbids it. UNKNOWN: a fact of one side is missing.
    """

    CERTAIN = "certain"
    LIKELY = "likely"
    UNKNOWN = "unknown"

    def in_language(self, language: Language) -> str:
        """Return the word in a language."""
        return _WORDS[self].in_language(language)


_WORDS: Final = {
    Certainty.CERTAIN: Message("certain"),
    Certainty.LIKELY: Message("likely"),
    Certainty.UNKNOWN: Message("unknown"),
}


_NONE: Final = Message()
_FIX: Final = Message("{reason}; {fix}")


def with_fix(reason: Message, fix: Message) -> Message:
    """Return a reason with what to do, if that is known."""
    return _FIX.having(reason=reason, fix=fix) if fix else reason


class Basis(StrEnum):
    """What a violation rests on.

    FACT: facts about image, driver and GPU. POLICY: a rule of the operator. LIMIT: a limit of gpugate itself.
    NONE: it is no violation, but a notice.
    """

    FACT = "fact"
    POLICY = "policy"
    LIMIT = "limit"
    NONE = ""


class Finding(NamedTuple):
    """One thing that is wrong with an object, in no language: a violation of a rule, or a notice.

    A notice is a warning about what no rule forbids, such as a missing fact.

    rule: its name; empty if the finding is of no rule. action: the effect. path: of the field, as Kubernetes
    prints it; a notice may have none. reason: container, path, found and expected, in one line. fix: what to
    do, or nothing. cause: the reason without container, path and nodes, which objects with the same fault
    share; empty if it is the reason. basis: what it rests on. container: the path of the container
    that it is about; empty for a pod. rule_action: the action without the cap of `--enforcement-action`,
    None if there is no cap. table: the lines below the reason. lacks_fact: whether a fact is missing. edits:
    the fix as changes of the object, if there is only one that is right.
    """

    rule: str
    action: Action
    path: str = ""
    reason: Message = _NONE
    fix: Message = _NONE
    cause: Message = _NONE
    basis: Basis = Basis.NONE
    container: Path = ()
    rule_action: Action | None = None
    table: Message = _NONE
    lacks_fact: bool = False
    edits: tuple[Edit, ...] = ()

    @property
    def message(self) -> Message:
        """The reason and the fix, which end the first line, and the table."""
        first = with_fix(self.reason, self.fix)
        return Lines("\n    ", (first, self.table)) if self.table else first

    @property
    def certainty(self) -> Certainty:
        """CERTAIN by facts; what a rule or a limit forbids may run."""
        if self.basis is Basis.FACT:
            return Certainty.CERTAIN
        return Certainty.UNKNOWN if self.lacks_fact else Certainty.LIKELY


def notice(rule: str, reason: Message, fix: Message = _NONE, cause: Message = _NONE) -> Finding:
    """Return a warning that is no violation."""
    return Finding(rule, Action.WARN, "", reason, fix, cause)


def cause_of(finding: Finding) -> Message:
    """Return the cause, or else the reason."""
    return finding.cause or finding.reason


def audit_list(violations: Iterable[Finding]) -> str:
    """Return violations for an audit annotation: rule, basis and path; of a limit its name and the reason."""
    return "; ".join(
        [
            f"{violation.rule} ({violation.basis}): "
            f"{violation.reason.en if violation.basis is Basis.LIMIT else violation.path}"
            for violation in violations
        ]
    )
