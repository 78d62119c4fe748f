"""An admission request, as far as a decision depends on it, and the decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rules.kube.json_patch import Operation
from rules.model.certainty import Certainty
from rules.model.rule import Action
from rules.text.i18n import Joined, Message, Text

# The audit annotation of all answers under the cap of `--enforcement-action`.
CAP_ANNOTATION: Final = "enforcement-action"
# Characters of the place in a malformed object: with four bytes each, a warning of the API server holds them.
_MAX_DETAIL: Final = 1000
_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
_NONE: Final = Message()
_FIX: Final = Message("{reason}; {fix}")


def with_fix(reason: Message, fix: Message) -> Message:
    """Return a reason with what to do, if that is known."""
    return _FIX.having(reason=reason, fix=fix) if fix else reason


class Basis(StrEnum):
    """What a violation rests on.

    FACT: facts about image, driver and GPU. POLICY: a rule of the operator. LIMIT: a limit of gpugate itself.
    """

    FACT = "fact"
    POLICY = "policy"
    LIMIT = "limit"


class Effect(StrEnum):
    """What a decision does to a request, if it is not simply admitted."""

    DENY = "deny"
    PATCH = "patch"


class Wording(NamedTuple):
    """What is said of a fault: the fields of a violation and of a warning."""

    reason: Message
    fix: Message
    cause: Message


class AdmissionWarning(NamedTuple):
    """A warning to the user: the rule that it comes from, one line of reason, and what to do, or nothing.

    cause: the reason without container and nodes, which objects with the same fault share. certainty: that
    of the violation if it is one, else LIKELY, or UNKNOWN if a fact is missing.
    """

    rule: str
    reason: Message
    fix: Message = _NONE
    cause: Message = _NONE
    certainty: Certainty = Certainty.LIKELY


class NotChecked(NamedTuple):
    """A part of an object that was not checked. path: as Kubernetes prints it, empty for the whole object."""

    path: str
    reason: Message


# The reason of what is checked on nodes, if none is known.
NO_NODES: Final = Message(
    "CUDA compatibility not checked: no nodes given (use --nodes FILE or --context NAME)"
)
# The reason of an image of which nothing says what it needs.
UNKNOWN_CUDA: Final = Message(
    "the CUDA version of this image is unknown; set annotation gpugate.dev/cuda-version, or use an "
    "ImageCatalog"
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that a rule forbids.

    path: as Kubernetes prints it. reason: container, path, found and expected, in one line. fix: what to do.
    cause: the reason without container, path and nodes, which objects with the same fault share. basis: what
    it rests on. rule_action: the action without the cap of `--enforcement-action`, None if there is no cap.
    table: the lines below the reason.
    """

    rule: str
    action: Action
    path: str
    reason: Message
    fix: Message = _NONE
    cause: Message = _NONE
    basis: Basis = Basis.POLICY
    rule_action: Action | None = None
    table: Message = _NONE

    @property
    def message(self) -> Message:
        """The reason and the fix, which end the first line, and the table."""
        first = with_fix(self.reason, self.fix)
        return Joined("\n    ", (first, self.table)) if self.table else first

    @property
    def certainty(self) -> Certainty:
        """CERTAIN by facts; what a rule or a limit forbids may run."""
        return Certainty.CERTAIN if self.basis is Basis.FACT else Certainty.LIKELY

    @property
    def warning(self) -> AdmissionWarning:
        """The violation as a warning, which it is if its rule only warns."""
        reason = Joined(" ", (self.reason, self.table)) if self.table else self.reason
        return AdmissionWarning(self.rule, reason, self.fix, self.cause, self.certainty)


def cause_of(found: Violation | AdmissionWarning) -> Message:
    """Return the cause, or else the reason."""
    return found.cause or found.reason


def audit_list(violations: Iterable[Violation]) -> str:
    """Return violations for an audit annotation: rule, basis and path; of a limit its name and the reason."""
    return "; ".join(
        [
            f"{each.rule} ({each.basis.value}): {each.reason.en if each.basis is Basis.LIMIT else each.path}"
            for each in violations
        ]
    )


class Decision(NamedTuple):
    """The answer to a request.

    denial: its message, else empty. patch: RFC 6902 operations, empty for what is denied or never changed.
    notices: the warnings that are no violations. warning_lines: those, and the violations that only warn, a
    line each. audit: annotations of the audit event, names without prefix. rules: names of those that match.
    cuda_sources: the source of each container's CUDA version, or `unknown`. notes: why the containers run on
    the best of the nodes, if that is not plain. declared: the annotations and variables of the pod that
    replace what is known of an image. not_checked: what nothing is known of. withheld: the effect without the
    cap of `--enforcement-action`, if there would be one. code: the HTTP status of a denial.
    """

    allowed: bool = True
    denial: Message = _NONE
    violations: tuple[Violation, ...] = ()
    notices: tuple[AdmissionWarning, ...] = ()
    warning_lines: tuple[Message, ...] = ()
    patch: tuple[Operation, ...] = ()
    audit: Mapping[str, str] = _NO_ANNOTATIONS
    rules: tuple[str, ...] = ()
    cuda_sources: tuple[str, ...] = ()
    notes: tuple[Message, ...] = ()
    declared: tuple[str, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    withheld: Effect | None = None
    code: int = 403

    @property
    def message(self) -> str:
        """The message of a denial in English, for logs."""
        return self.denial.en

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings in English, for logs."""
        return tuple([line.en for line in self.warning_lines])

    @classmethod
    def deny(cls, message: Message, violations: tuple[Violation, ...] = (), **facts: Any) -> Decision:
        """Return a denial; facts: other fields. The audit event has its violations."""
        audit = facts.pop("audit", {})
        if violations and "violations" not in audit:
            audit = {**audit, "violations": audit_list(violations)}
        return cls(False, message, violations, audit=audit, **facts)

    @classmethod
    def allow(cls, violations: tuple[Violation, ...] = (), **facts: Any) -> Decision:
        """Return an admission. violations: of rules that do not deny; facts: other fields, as a patch."""
        return cls(True, _NONE, violations, **facts)

    @classmethod
    def errored(cls, code: int, problem: str, detail: str, *, allowed: bool) -> Decision:
        """Return the answer to an object that cannot be checked. problem: what is wrong; detail: where."""
        done = "allowed" if allowed else "denied"
        reason = f"{problem}, {done} without checks: {detail[:_MAX_DETAIL]}"
        audit = {"error": reason}
        if allowed:
            return cls.allow(warning_lines=(Text(f"gpugate: {reason}"),), audit=audit)
        return cls.deny(Text(f"gpugate: {reason}"), audit=audit, code=code)


ALLOWED = Decision.allow()


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """The part of an admission request that a decision depends on.

    object, old_object: the raw JSON, read only. group: the kind's API group, empty for the core. mutating: a
    patch may be answered; otherwise the object is checked as it is.
    """

    operation: str
    group: str
    kind: str
    namespace: str
    object: Mapping[str, Any] | None
    old_object: Mapping[str, Any] | None = None
    subresource: str = ""
    mutating: bool = True
