"""Lint checks of single rules: rules that load, but never match or can never be satisfied.

Each warning is certain: it is true for every pod that an API server accepts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rules.cel.expression import Expression, Inputs, number
from rules.cel.syntax_errors import ExpressionError
from rules.cuda.tables import Facts, toolkits
from rules.kube.names import is_label_key, is_label_value, is_resource
from rules.lint.profile_differences import profile_warnings
from rules.model.match import Match, SelectorTerm
from rules.model.rule import (
    CompatibilityRule,
    Exemption,
    ImageCatalogRule,
    InjectionRule,
    LimitsPolicy,
    NodeProfile,
    RequestsPolicy,
    ResourceRule,
    Rule,
)
from rules.schema.errors import Code, suggested
from rules.text.glob import covers, glob_text
from rules.text.i18n import Language, Message

if TYPE_CHECKING:
    from rules.text.paths import Path

# A repository name is in lower case, so after a `/` there are no capitals before the tag.
# Source: https://github.com/distribution/reference/blob/main/reference.go
_INVALID_IN_IMAGE: Final = (
    (re.compile(r"\w+://"), Message("an image reference has no scheme")),
    (
        re.compile(r"[^\w.:/@+*?\[\]-]", re.ASCII),
        Message("an image reference cannot contain {text!r}"),
    ),
    (re.compile(r"/[^:@*?]*[A-Z]"), Message("a repository name is in lower case")),
)
# A range that a message states: `1 to 8`, also in Chinese. Numbers with more digits are no int64.
_RANGE: Final = re.compile(r"(\d{1,18}) ?(?:to|\u5230|\u81f3|-|–|~) ?(\d{1,18})", re.ASCII)
_IS_FALSE: Final = Message("is false")
_PASSES: Final = Message(
    "the message says {stated}, but {number} passes: {source}; write value >= {low} && value <= {high}"
)
_FAILS: Final = Message(
    "the message says {stated}, but {number} is denied: {source}; write value >= {low} && value <= {high}, "
    "or correct the message"
)
_INVALID_IN_NAMESPACE: Final = re.compile(r"[^a-z0-9*?-]")


class LintWarning(NamedTuple):
    """A rule that may not have the intended effect."""

    rule: str
    path: Path  # in the rule's document or its metadata
    code: Code
    message: Message


def rule_warnings(rule: Rule, facts: Facts) -> Iterator[LintWarning]:
    """Yield the lint warnings of a rule that do not depend on other rules, except on the facts in force."""
    match rule:
        case ResourceRule():
            warnings = _resource(rule)
        case InjectionRule() | CompatibilityRule():
            warnings = _match(rule.match, ("match",))
        case Exemption():
            warnings = _match(rule.match, ())
        case NodeProfile():
            warnings = profile_warnings(rule, facts)
        case ImageCatalogRule():
            warnings = _unknown_toolkits(rule, facts)
        case _:
            return
    for path, code, message in warnings:
        yield LintWarning(rule.name, path, code, message)


_Warnings = Iterator[tuple["Path", Code, Message]]


def _unknown_toolkits(rule: ImageCatalogRule, facts: Facts) -> _Warnings:
    """Yield rows with a CUDA version that no known toolkit has; a newer one may exist."""
    known = [*toolkits(facts)]
    for index, row in enumerate(rule.rows):
        cuda = row.cases[0].cuda
        if cuda and cuda not in known and cuda > known[0]:
            message = Message(
                "no CUDA toolkit {cuda} is known, the newest is {newest}{near}",
                cuda=cuda,
                newest=known[-1],
                near=suggested(str(cuda), list(map(str, known))),
            )
            yield ("images", index, "cuda"), Code.UNKNOWN_VERSION, message


def _resource(rule: ResourceRule) -> _Warnings:
    if rule.limits is LimitsPolicy.DISABLED and rule.requests is RequestsPolicy.REQUIRED:
        # https://kubernetes.io/docs/tasks/configure-pod-container/extended-resource/
        message = Message(
            "a request of an extended resource requires an equal limit, but limits is disabled; require both"
        )
        yield ("data", "requests"), Code.NEVER_SATISFIED, message
    elif rule.limits is LimitsPolicy.DISABLED and rule.default:
        message = Message("is never injected, because limits is disabled; remove it, or make limits optional")
        yield ("data", "defaultValue"), Code.NO_EFFECT, message
    if not rule.key_pattern and rule.key in rule.excludes:
        message = Message("{key!r} is the rule's own key; remove it", key=rule.key)
        yield ("data", "excludeResources"), Code.NO_EFFECT, message
    for field, names in (("excludeResources", rule.excludes), ("relatedResources", rule.related)):
        for name in names:
            if not is_resource(name):
                message = Message(
                    "{name!r} is not a valid resource name; separate names with commas", name=name
                )
                yield ("data", field), Code.NEVER_MATCHES, message
    yield from _messages(rule)
    if not rule.default:
        return
    for validation in rule.validations:
        if validation.expression.variables != ("value",):
            continue
        if why := fails(validation.expression, {"value": number(rule.default)}):
            source = validation.expression.source
            message = Message(
                "the rule's own validation {why} for the default {default!r}: {source}",
                why=why,
                default=rule.default,
                source=source,
            )
            yield ("data", "defaultValue"), Code.NEVER_SATISFIED, message


def _messages(rule: ResourceRule) -> _Warnings:
    """Yield validations whose message states a range, such as `1 to 8`, that they do not check, or deny."""
    for index, validation in enumerate(rule.validations):
        texts = (validation.message.in_language(language) for language in Language)
        stated = next(filter(None, map(_RANGE.fullmatch, texts)), None)
        if stated is None or validation.expression.variables != ("value",):
            continue
        low, high = int(stated[1]), int(stated[2])
        for count, words in ((low, _FAILS), (high, _FAILS), (low - 1, _PASSES), (high + 1, _PASSES)):
            failed = fails(validation.expression, {"value": count})
            if count >= 0 and bool(failed) is (words is _FAILS):
                facts = {"stated": stated[0], "number": count, "low": low, "high": high}
                message = words.having(**facts, source=validation.expression.source)
                yield ("data", "validations", index), Code.CONTRADICTION, message
                break


def fails(expression: Expression, values: Mapping[str, Any]) -> Message | None:
    """Return how an expression fails for values, or None if it is true."""
    try:
        return None if expression.evaluate(Inputs(values)) else _IS_FALSE
    except ExpressionError as error:
        return Message("fails ({error})", error=error.text)


def _match(match: Match, prefix: Path) -> _Warnings:
    for index, pattern in enumerate(match.images):
        if why := _invalid_image(glob_text(pattern)):
            text = glob_text(pattern)
            message = Message("{text!r} matches no image: {why}", text=text, why=why)
            yield (*prefix, "images", index), Code.NEVER_MATCHES, message
    for index, pattern in enumerate(match.include):
        if _INVALID_IN_NAMESPACE.search(text := glob_text(pattern)):
            message = Message("{text!r} matches no namespace: names consist of a-z, 0-9 and -", text=text)
            yield (*prefix, "namespaces", "include", index), Code.NEVER_MATCHES, message
    if match.include and all(any(covers(out, inside) for out in match.exclude) for inside in match.include):
        message = Message("every included namespace is also excluded; remove one of them")
        yield (*prefix, "namespaces"), Code.NEVER_MATCHES, message
    elif any(glob_text(pattern).strip("*") == "" for pattern in match.exclude):
        message = Message("every namespace is excluded")
        yield (*prefix, "namespaces"), Code.NEVER_MATCHES, message
    for key in contradictions(match.selector):
        message = Message("the requirements for label {key!r} contradict each other", key=key)
        yield (*prefix, "podSelector"), Code.NEVER_MATCHES, message
    for index, condition in enumerate(match.conditions):
        if not condition.variables and (why := fails(condition, {})):
            message = Message("{source} {why} for every container", source=condition.source, why=why)
            yield (*prefix, "conditions", index), Code.NEVER_MATCHES, message


def contradictions(selector: tuple[SelectorTerm, ...]) -> list[str]:
    """Return the labels whose requirements in a selector contradict each other."""
    by_key: dict[str, list[SelectorTerm]] = defaultdict(list)
    for term in selector:
        by_key[term.key].append(term)
    return [key for key, terms in by_key.items() if _contradict(key, terms)]


def _contradict(key: str, terms: list[SelectorTerm]) -> bool:
    operators = {term.operator for term in terms}
    if operators.isdisjoint({"In", "Exists"}):
        return False
    if "DoesNotExist" in operators or not is_label_key(key):
        return True
    sets = [set(filter(is_label_value, term.values)) for term in terms if term.operator == "In"]
    excluded = {value for term in terms if term.operator == "NotIn" for value in term.values}
    return bool(sets) and not set.intersection(*sets) - excluded


def _invalid_image(text: str) -> Message | None:
    """Return why no image reference matches a glob, or None."""
    for pattern, why in _INVALID_IN_IMAGE:
        if match := pattern.search(text):
            return why.having(text=match[0])
    return None
