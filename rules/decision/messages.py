"""Messages of the decision in each language: violations, warnings, denials.

A violation has: container, path, found, expected, fix. A message's first line carries the first finding,
because `kubectl get events` cuts at the first newline. Warnings fit 256 characters without losing the fix,
because API servers cut them there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from rules.kube.pod import Container
from rules.model.finding import Finding, notice, with_fix
from rules.text.i18n import Language, Line, Lines, Message, Text

# https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
WARNING_LENGTH: Final = 256
_PREFIX: Final = "gpugate: "
_ELLIPSIS: Final = "…"
# Characters of a warning's reason that its fix does not take: container, path and what was found.
_REASON_LENGTH: Final = 96


class Words(NamedTuple):
    """The texts of one kind of violation: what was found, what is expected, what to do."""

    actual: Message
    expected: Message
    fix: Message


_ACTUAL: Final = Line("{actual}")
LIMIT_MISSING: Final = Words(
    Line("nothing"),
    Line("a quantity of {key}"),
    Line("set {path}"),
)
LIMIT_FORBIDDEN: Final = Words(_ACTUAL, Line("no limit of {key}"), Line("remove {path}"))
REQUEST_MISSING: Final = LIMIT_MISSING
REQUEST_DIFFERS: Final = Words(
    _ACTUAL,
    Line("a request equal to the limit, {limit}"),
    Line("remove {path}, or set it to the limit"),
)
_WITHOUT_LIMIT: Final = Line("{actual} and no limit")
REQUEST_WITHOUT_LIMIT: Final = Words(
    _WITHOUT_LIMIT,
    Line("a limit, which the request follows"),
    Line("move it to limits: set {limit_path}"),
)
REQUEST_FORBIDDEN: Final = Words(
    _WITHOUT_LIMIT,
    Line("no request of {key}"),
    Line("remove {path}"),
)
EXCLUDED: Final = Words(
    Line("{actual} together with {other}"),
    Line("only one of {key} and {other}"),
    Line("remove one of them"),
)
NO_QUANTITY: Final = Words(
    _ACTUAL,
    Line("a quantity, such as 2, 500m or 8Gi"),
    Line("write a number with a Kubernetes suffix"),
)
# Of an annotation, which schedulers read as a number.
NO_NUMBER: Final = Words(_ACTUAL, Line("a number without a unit"), Line("write a number, such as 0.5"))
NOT_WHOLE: Final = Words(_ACTUAL, Line("a whole number"), Line("use a whole number"))
WHOLE_OR_SHARE: Final = Line("use a whole number, or a resource that shares GPUs: {shares}")
# Instead of the description of a rule.
# In place of a rule, for what the API server itself rejects.
API_SERVER_RULE: Final = "api-server"
API_SERVER: Final = Line("the API server accepts nothing else of extended resources")
# Of `resources` of a pod itself.
IN_POD: Final = Line(
    "{path}: the API server accepts only cpu, memory and hugepages-* in resources of a pod, "
    "or ignores the field"
)
IN_CONTAINER_INSTEAD: Final = Line("request {key} in resources of a container instead")
NOT_POSITIVE: Final = Words(
    _ACTUAL,
    Line("zero or more"),
    Line("use a positive number, or remove it"),
)
# A value that the user may not have written.
THE_DEFAULT: Final = Line("{actual} (the default of the rule)")
_EXPECTED: Final = Line("{expected}")
INVALID: Final = Words(_ACTUAL, _EXPECTED, Line())
INVALID_OTHERS: Final = Words(
    _ACTUAL,
    _EXPECTED,
    Line("change the other resource it depends on, or remove {path}"),
)
# A validation of an additional rule, for which another field is wrong.
ADDITIONAL: Final = Words(Line("{key}: {actual}"), _EXPECTED, Line())
# A variable of the container that a validation names.
VARIABLE: Final = Words(
    Line("{variable}={actual}"),
    _EXPECTED,
    Line("change {variable}, or remove it"),
)
# The fix that a validation has itself.
OWN_FIX: Final = Line("{own_fix}")
# A suggested value in the unit of the resource.
USE_VALUE: Final = Line("use {value}: {actual} is {value} units of {unit}")
NOT_EVALUATED: Final = Line("a value for which {expression} can be evaluated, but: {error}")
_FIX_RULE: Final = Line("the rule is at fault: ask its owner to fix the expression")
VALIDATION_ERROR: Final = Words(_ACTUAL, NOT_EVALUATED, _FIX_RULE)
VALIDATION_IGNORED: Final = Line("{expression} could not be evaluated for {key} and was skipped: {error}")
NOTHING_INJECTED: Final = Line(
    "a condition of the rule could not be evaluated, nothing was injected: {error}"
)
RULE_APPLIES: Final = Line("a condition of the rule could not be evaluated, so the rule applies: {error}")
NAMESPACE_UNKNOWN: Final = Line("the labels of namespace {namespace!r} are unknown here")
_OLD_AFFINITY: Final = Line(
    "the pod's node affinity cannot change and is not that of the new image: incompatible nodes, if there"
    " are any, are not excluded"
)
_CREATE_AGAIN: Final = Line("delete the pod and create it again")
EXPIRED: Final = Line("exemption {exemption} expired at {until}")
_RENEW: Final = Line("ask its owner to renew it")
ENV_FROM: Final = Line("{name} is set and takes precedence over a value from {source}")
_LIST_IN_ENV: Final = Line("to keep your own value, list {name} in env")
_IN_CONTAINER: Final = Line("container {container!r}: {cause}")
_AT_PATH: Final = Line("container {container!r}, {path}: {cause}")
_VIOLATION: Final = Line("found {actual}, expected {expected}")
_WITH_DESCRIPTION: Final = Line("{expected} ({description})")
_DENIED: Final = Message("{kind} denied by gpugate: {violation}")
_DENIED_SEVERAL: Final = Message("{kind} denied by gpugate, {count} violations: 1. {violation}")
_OLD_FACTS: Final = Message(
    "the facts about CUDA, drivers and GPUs are of {date}; newer ones may give another result: "
    "upgrade gpugate, or apply newer facts"
)
_NUMBERED: Final = Message("{number}. {violation}")
_OF_RULE: Final = Message("{line} [rule {rule}]")


def worded(
    path: str, words: Words, description: Message, facts: Mapping[str, Any], fix: Message | None = None
) -> tuple[Message, Message, Message]:
    """Return the reason, the fix and the cause of a violation.

    facts: the container's name, and what the words name. description: of the rule. fix: instead of that of
    the words.
    """
    expected: Message = words.expected.having(**facts)
    if description:
        expected = _WITH_DESCRIPTION.having(expected=expected, description=description)
    cause = _VIOLATION.having(actual=words.actual.having(**facts), expected=expected)
    reason = _AT_PATH.having(container=facts["container"], path=path, cause=cause)
    return reason, (fix or words.fix).having(**facts), cause


def invalid(variables: Sequence[str]) -> Words:
    """Return the words on a validation that is not satisfied. variables: those that its expression names."""
    return INVALID if "value" in variables else INVALID_OTHERS


def evaluation_error(words: Message, rule: str, container: Container, **facts: object) -> Finding:
    """Return the notice that an expression of a rule could not be evaluated. facts: those of the words."""
    return _of_container(rule, container, words.having(**facts), _FIX_RULE)


def expired(rule: str, exemption: str, until: str) -> Finding:
    """Return the notice that an exemption from a violated rule has expired."""
    return notice(rule, EXPIRED.having(exemption=exemption, until=until), _RENEW)


def old_affinity(rule: str) -> Finding:
    """Return the notice that the node affinity of a pod does not suit its new image."""
    return notice(rule, _OLD_AFFINITY, _CREATE_AGAIN)


def env_from(rule: str, container: Container, name: str, source: str) -> Finding:
    """Return the notice that an injected variable takes precedence over one from `envFrom`."""
    cause = ENV_FROM.having(name=name, source=source)
    return _of_container(rule, container, cause, _LIST_IN_ENV.having(name=name))


def _of_container(rule: str, container: Container, cause: Message, fix: Message) -> Finding:
    reason = _IN_CONTAINER.having(container=container.name, cause=cause)
    return notice(rule, reason, fix, cause)._replace(container=container.path)


class WarningLine(Message):
    """A finding as one line: reason, table, fix, rule. Of a long one the end of the reason is cut.

    The fix is cut, too, if it leaves no room for the beginning of the reason.
    """

    def __new__(cls, finding: Finding) -> Self:
        """Return the line."""
        rule, reason, fix, table = finding.rule, finding.reason, finding.fix, finding.table
        return tuple.__new__(cls, ("", {"rule": rule, "reason": reason, "fix": fix, "table": table}))

    def __bool__(self) -> bool:
        return True

    def _formatted(self, language: Language) -> str:
        rule, message, fix, table = self[1].values()
        reason = message.in_language(language)
        if table or not message.one_line:
            reason = " ".join([*reason.split(), *table.in_language(language).split()])
        line = _of_rule(with_fix(Text(reason), fix), rule).in_language(language)
        if len(line) <= WARNING_LENGTH - len(_PREFIX):
            return _PREFIX + line
        nothing = Message()
        end = _of_rule(nothing, rule).in_language(language)
        advice = with_fix(nothing, fix).in_language(language)
        room = WARNING_LENGTH - len(_PREFIX) - len(end)
        advice = _cut(advice, room - min(len(reason), _REASON_LENGTH))
        return (_PREFIX + _cut(reason, room - len(advice)) + advice + end)[:WARNING_LENGTH]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(length - 1, 0)] + _ELLIPSIS


def denial(kind: str, violations: Sequence[Finding], old_facts: str = "") -> Message:
    """Return the message of a denial: the first violation in the first line, then each on a line.

    old_facts: the date of the facts that a violation rests on, if they are old, for the last line.
    """
    first, *others = map(_item, violations)
    if others:
        head = _DENIED_SEVERAL.having(kind=kind, count=len(violations), violation=first)
        numbered = (_NUMBERED.having(number=at, violation=item) for at, item in enumerate(others, start=2))
        text: Message = Lines("\n  ", (head, *numbered))
    else:
        text = _DENIED.having(kind=kind, violation=first)
    return Lines("\n", (text, _OLD_FACTS.having(date=old_facts))) if old_facts else text


def _item(violation: Finding) -> Message:
    """Return a violation with its rule; fix and rule end the first line."""
    line = _of_rule(with_fix(violation.reason, violation.fix), violation.rule)
    return Lines("\n    ", (line, violation.table)) if violation.table else line


def _of_rule(line: Message, rule: str) -> Message:
    return _OF_RULE.having(line=line, rule=rule) if rule else line
