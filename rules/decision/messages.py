"""Messages of the decision in each language: violations, warnings, denials.

A violation has: container, path, found, expected, fix. A message's first line carries the first finding,
because `kubectl get events` cuts at the first newline. Warnings fit 256 characters without losing the fix,
because API servers cut them there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rules.model.decision import AdmissionWarning, Violation, Wording, with_fix
from rules.text.i18n import Language, Message
from rules.text.printable import printable

# https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
WARNING_LENGTH: Final = 256
_PREFIX: Final = "gpugate: "
_ELLIPSIS: Final = "…"
# Characters of a warning's reason that its fix does not take: container, path and what was found.
_REASON_LENGTH: Final = 96


class Words(NamedTuple):
    """The texts of one kind of violation: what was found, what is expected, what to do."""

    found: Message
    expected: Message
    fix: Message


_FOUND: Final = Message("{found}")
LIMIT_MISSING: Final = Words(
    Message("nothing"),
    Message("a quantity of {key}"),
    Message("set {path}"),
)
LIMIT_FORBIDDEN: Final = Words(_FOUND, Message("no limit of {key}"), Message("remove {path}"))
REQUEST_MISSING: Final = LIMIT_MISSING
REQUEST_DIFFERS: Final = Words(
    _FOUND,
    Message("a request equal to the limit, {limit}"),
    Message("remove {path}, or set it to the limit"),
)
_WITHOUT_LIMIT: Final = Message("{found} and no limit")
REQUEST_WITHOUT_LIMIT: Final = Words(
    _WITHOUT_LIMIT,
    Message("a limit, which the request follows"),
    Message("move it to limits: set {limit_path}"),
)
REQUEST_FORBIDDEN: Final = Words(
    _WITHOUT_LIMIT,
    Message("no request of {key}"),
    Message("remove {path}"),
)
EXCLUDED: Final = Words(
    Message("{found} together with {other}"),
    Message("only one of {key} and {other}"),
    Message("remove one of them"),
)
NO_QUANTITY: Final = Words(
    _FOUND,
    Message("a quantity, such as 2, 500m or 8Gi"),
    Message("write a number with a Kubernetes suffix"),
)
NOT_WHOLE: Final = Words(_FOUND, Message("a whole number"), Message("use a whole number"))
WHOLE_OR_SHARE: Final = Message("use a whole number, or a resource that shares GPUs: {shares}")
# Instead of the description of a rule.
API_SERVER: Final = Message("the API server accepts nothing else of extended resources")
NOT_POSITIVE: Final = Words(
    _FOUND,
    Message("zero or more"),
    Message("use a positive number, or remove it"),
)
# A value that the user may not have written.
THE_DEFAULT: Final = Message("{found} (the default of the rule)")
_EXPECTED: Final = Message("{expected}")
INVALID: Final = Words(_FOUND, _EXPECTED, Message())
INVALID_OTHERS: Final = Words(
    _FOUND,
    _EXPECTED,
    Message("change the other resource it depends on, or remove {path}"),
)
# A variable of the container that a validation names.
VARIABLE: Final = Words(
    Message("{variable}={found}"),
    _EXPECTED,
    Message("change {variable}, or remove it"),
)
# The fix that a validation has itself.
OWN_FIX: Final = Message("{own_fix}")
# A suggested value in the unit of the resource.
USE_VALUE: Final = Message("use {value}: {found} is {value} units of {unit}")
NOT_EVALUATED: Final = Message("a value for which {expression} can be evaluated, but: {error}")
_FIX_RULE: Final = Message("the rule is at fault: ask its owner to fix the expression")
VALIDATION_ERROR: Final = Words(_FOUND, NOT_EVALUATED, _FIX_RULE)
VALIDATION_IGNORED: Final = Message("{expression} could not be evaluated for {key} and was skipped: {error}")
NOTHING_INJECTED: Final = Message(
    "a condition of the rule could not be evaluated, nothing was injected: {error}"
)
RULE_APPLIES: Final = Message("a condition of the rule could not be evaluated, so the rule applies: {error}")
_OLD_AFFINITY: Final = Message(
    "the pod's node affinity cannot change and is not that of the new image: incompatible nodes, if there"
    " are any, are not excluded"
)
_CREATE_AGAIN: Final = Message("delete the pod and create it again")
EXPIRED: Final = Message("exemption {exemption} expired at {until}")
_RENEW: Final = Message("ask its owner to renew it")
ENV_FROM: Final = Message("{name} is set and takes precedence over a value from {source}")
_LIST_IN_ENV: Final = Message("to keep your own value, list {name} in env")
_IN_CONTAINER: Final = Message("container {container!r}: {cause}")
_AT_PATH: Final = Message("container {container!r}, {path}: {cause}")
_VIOLATION: Final = Message("found {found}, expected {expected}")
_WITH_DESCRIPTION: Final = Message("{expected} ({description})")
_DENIED: Final = Message("{kind} denied by gpugate: ")
_DENIED_SEVERAL: Final = Message("{kind} denied by gpugate, {count} violations: 1. ")
_RULE: Final = Message(" [rule {rule}]")


def violation(
    language: Language,
    words: Words,
    description: Message,
    facts: Mapping[str, object],
    fix: Message | None = None,
) -> Wording:
    """Return what is said of a violation. facts: container and path, and what the words name.

    fix: instead of that of the words.
    """
    expected = words.expected.in_language(language).format_map(facts)
    if about := description.in_language(language):
        expected = _WITH_DESCRIPTION.in_language(language).format(expected=expected, description=about)
    found = words.found.in_language(language).format_map(facts)
    cause = printable(_VIOLATION.in_language(language).format(found=found, expected=expected))
    place = {"container": facts["container"], "path": facts["path"], "cause": cause}
    reason = _filled(language, _AT_PATH, place)
    return Wording(reason, _filled(language, fix or words.fix, facts), cause)


def invalid(variables: Sequence[str]) -> Words:
    """Return the words on a validation that is not satisfied. variables: those that its expression names."""
    return INVALID if "value" in variables else INVALID_OTHERS


def evaluation_error(
    language: Language, words: Message, rule: str, facts: Mapping[str, object]
) -> AdmissionWarning:
    """Return the warning that an expression of a rule could not be evaluated. facts: also the container."""
    return _of_container(language, rule, words, _FIX_RULE, facts)


def expired(language: Language, rule: str, exemption: str, until: str) -> AdmissionWarning:
    """Return the warning that an exemption from a violated rule has expired."""
    reason = _filled(language, EXPIRED, {"exemption": exemption, "until": until})
    return AdmissionWarning(rule, reason, _RENEW.in_language(language))


def old_affinity(language: Language, rule: str) -> AdmissionWarning:
    """Return the warning that the node affinity of a pod does not suit its new image."""
    return AdmissionWarning(rule, _filled(language, _OLD_AFFINITY, {}), _filled(language, _CREATE_AGAIN, {}))


def env_from(language: Language, rule: str, container: str, name: str, source: str) -> AdmissionWarning:
    """Return the warning that an injected variable takes precedence over one from `envFrom`."""
    facts = {"container": container, "name": name, "source": source}
    return _of_container(language, rule, ENV_FROM, _LIST_IN_ENV, facts)


def _of_container(
    language: Language, rule: str, words: Message, fix: Message, facts: Mapping[str, object]
) -> AdmissionWarning:
    cause = _filled(language, words, facts)
    reason = _filled(language, _IN_CONTAINER, {"container": facts["container"], "cause": cause})
    return AdmissionWarning(rule, reason, _filled(language, fix, facts), cause)


def warning_line(language: Language, warning: AdmissionWarning) -> str:
    """Return a warning as one line: reason, fix, rule. Of a long one the end of the reason is cut.

    The fix is cut, too, if it leaves no room for the beginning of the reason.
    """
    rule = _end(language, warning.rule, "")
    reason, fix = " ".join(warning.reason.split()), with_fix("", warning.fix, language)
    room = WARNING_LENGTH - len(_PREFIX) - len(rule)
    fix = _cut(fix, room - min(len(reason), _REASON_LENGTH))
    return (_PREFIX + _cut(reason, room - len(fix)) + fix + rule)[:WARNING_LENGTH]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(length - 1, 0)] + _ELLIPSIS


def denial(language: Language, kind: str, violations: Sequence[Violation]) -> str:
    """Return the message of a denial: the first violation in the first line, then each on a line."""
    items = [_item(language, each) for each in violations]
    if len(items) == 1:
        return _DENIED.in_language(language).format(kind=kind) + items[0]
    head = _DENIED_SEVERAL.in_language(language).format(kind=kind, count=len(items)) + items[0]
    return "\n  ".join([head, *(f"{number}. {item}" for number, item in enumerate(items[1:], start=2))])


def _item(language: Language, found: Violation) -> str:
    """Return a violation with its rule; fix and rule end the first line."""
    reason, newline, table = found.reason.partition("\n")
    return reason + _end(language, found.rule, found.fix) + newline + table


def _end(language: Language, rule: str, fix: str) -> str:
    """Return the end of a violation or warning: fix and rule, as far as there are any."""
    end = with_fix("", fix, language)
    return end + (_RULE.in_language(language).format(rule=rule) if rule else "")


def _filled(language: Language, words: Message, facts: Mapping[str, object]) -> str:
    """Return a text with facts, in one line."""
    return printable(words.in_language(language).format_map(facts))
