"""Lint checks of single rules: rules that load, but never match or can never be satisfied.

Each warning is certain: it is true for every pod that an API server accepts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rules.cel.expression import Expression, ExpressionError, number
from rules.kube.names import is_label_key, is_label_value, is_resource
from rules.model.match import Match, SelectorTerm
from rules.model.rule import (
    CompatibilityRule,
    Exemption,
    InjectionRule,
    LimitsPolicy,
    RequestsPolicy,
    ResourceRule,
    Rule,
)
from rules.schema.errors import Code
from rules.text.glob import covers, glob_text

if TYPE_CHECKING:
    from rules.text.paths import Path

# A repository name is in lower case, so after a `/` there are no capitals before the tag.
# Source: https://github.com/distribution/reference/blob/main/reference.go
_INVALID_IN_IMAGE: Final = (
    (re.compile(r"\w+://"), "an image reference has no scheme"),
    (re.compile(r"[^\w.:/@+*?\[\]-]", re.ASCII), "an image reference cannot contain {found!r}"),
    (re.compile(r"/[^:@*?]*[A-Z]"), "a repository name is in lower case"),
)
_INVALID_IN_NAMESPACE: Final = re.compile(r"[^a-z0-9*?-]")


class LintWarning(NamedTuple):
    """A rule that may not have the intended effect. path: in the rule's document or its metadata."""

    rule: str
    path: Path
    code: Code
    message: str


def rule_warnings(rule: Rule) -> Iterator[LintWarning]:
    """Yield the lint warnings of a rule that do not depend on other rules."""
    match rule:
        case ResourceRule():
            found = _resource(rule)
        case InjectionRule() | CompatibilityRule():
            found = _match(rule.match, ("match",))
        case Exemption():
            found = _match(rule.match, ())
        case _:
            return
    for path, code, message in found:
        yield LintWarning(rule.name, path, code, message)


_Found = Iterator[tuple["Path", Code, str]]


def _resource(rule: ResourceRule) -> _Found:
    if rule.limits is LimitsPolicy.DISABLED and rule.requests is RequestsPolicy.REQUIRED:
        # https://kubernetes.io/docs/tasks/configure-pod-container/extended-resource/
        message = (
            "a request of an extended resource requires an equal limit, but limits is disabled; require both"
        )
        yield ("data", "requests"), Code.NEVER_SATISFIED, message
    elif rule.limits is LimitsPolicy.DISABLED and rule.default:
        message = "is never injected, because limits is disabled; remove it, or make limits optional"
        yield ("data", "defaultValue"), Code.NO_EFFECT, message
    if not rule.key_pattern and rule.key in rule.excludes:
        message = f"{rule.key!r} is the rule's own key; remove it"
        yield ("data", "excludeResources"), Code.NO_EFFECT, message
    for name in rule.excludes:
        if not is_resource(name):
            message = f"{name!r} is not a valid resource name; separate names with commas"
            yield ("data", "excludeResources"), Code.NEVER_MATCHES, message
    if not rule.default:
        return
    for validation in rule.validations:
        if validation.expression.variables != ("value",):
            continue
        if why := _fails(validation.expression, {"value": number(rule.default)}):
            message = f"the rule's own validation {why} for the default {rule.default!r}: "
            yield ("data", "defaultValue"), Code.NEVER_SATISFIED, message + validation.expression.source


def _fails(expression: Expression, values: Mapping[str, Any]) -> str:
    """Return how an expression fails for values, or an empty string if it is true."""
    try:
        return "" if expression(values.__getitem__) else "is false"
    except ExpressionError as error:
        return f"fails ({error})"


def _match(match: Match, prefix: Path) -> _Found:
    for index, pattern in enumerate(match.images):
        if why := _invalid_image(glob_text(pattern)):
            message = f"{glob_text(pattern)!r} matches no image: {why}"
            yield (*prefix, "images", index), Code.NEVER_MATCHES, message
    for index, pattern in enumerate(match.include):
        if _INVALID_IN_NAMESPACE.search(glob_text(pattern)):
            message = f"{glob_text(pattern)!r} matches no namespace: names consist of a-z, 0-9 and -"
            yield (*prefix, "namespaces", "include", index), Code.NEVER_MATCHES, message
    if match.include and all(any(covers(out, inside) for out in match.exclude) for inside in match.include):
        message = "every included namespace is also excluded; remove one of them"
        yield (*prefix, "namespaces"), Code.NEVER_MATCHES, message
    elif any(glob_text(pattern).strip("*") == "" for pattern in match.exclude):
        yield (*prefix, "namespaces"), Code.NEVER_MATCHES, "every namespace is excluded"
    for key in contradictions(match.selector):
        message = f"the requirements for label {key!r} contradict each other"
        yield (*prefix, "podSelector"), Code.NEVER_MATCHES, message
    for index, condition in enumerate(match.conditions):
        if not condition.variables and (why := _fails(condition, {})):
            message = f"{condition.source} {why} for every container"
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


def _invalid_image(text: str) -> str:
    """Return why no image reference matches a glob, or an empty string."""
    for pattern, why in _INVALID_IN_IMAGE:
        if found := pattern.search(text):
            return why.format(found=found[0])
    return ""
