"""What one rule says that cannot have been meant: it loads, and then matches nothing or refuses itself.

Each doubt is certain: it holds for every pod that an API server accepts.
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

# A repository name is in lower case, so nothing that follows a `/` can hold capitals before a tag.
# Source: https://github.com/distribution/reference/blob/main/reference.go
_IN_NO_IMAGE: Final = (
    (re.compile(r"\w+://"), "an image has no scheme"),
    (re.compile(r"[^\w.:/@+*?\[\]-]", re.ASCII), "no image has {found!r} in its name"),
    (re.compile(r"/[^:@*?]*[A-Z]"), "a repository's name is in lower case"),
)
_IN_NO_NAMESPACE: Final = re.compile(r"[^a-z0-9*?-]")


class LintWarning(NamedTuple):
    """What may not do what was meant. path: in the rule's own document, or its ConfigMap's metadata."""

    rule: str
    path: Path
    code: Code
    message: str


def rule_warnings(rule: Rule) -> Iterator[LintWarning]:
    """Yield what is doubtful about a rule, whatever other rules there are."""
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
        told = "a request of an extended resource needs an equal limit, and limits is disabled; require both"
        yield ("data", "requests"), Code.NEVER_SATISFIED, told
    elif rule.limits is LimitsPolicy.DISABLED and rule.default:
        told = "is never put in: limits is disabled; remove it, or make limits optional"
        yield ("data", "defaultValue"), Code.NO_EFFECT, told
    if not rule.key_pattern and rule.key in rule.excludes:
        told = f"{rule.key!r} is the rule's own key, which stands beside itself; remove it"
        yield ("data", "excludeResources"), Code.NO_EFFECT, told
    for name in rule.excludes:
        if not is_resource(name):
            told = f"{name!r} is the name of no resource; part names by commas"
            yield ("data", "excludeResources"), Code.NEVER_MATCHES, told
    if not rule.default:
        return
    for validation in rule.validations:
        if validation.expression.variables != ("value",):
            continue
        if why := _fails(validation.expression, {"value": number(rule.default)}):
            told = f"{rule.default!r} is put in, for which the rule's own validation {why}: "
            yield ("data", "defaultValue"), Code.NEVER_SATISFIED, told + validation.expression.source


def _fails(expression: Expression, values: Mapping[str, Any]) -> str:
    """Return how an expression does not hold, or nothing."""
    try:
        return "" if expression(values.__getitem__) else "is false"
    except ExpressionError as error:
        return f"fails ({error})"


def _match(match: Match, prefix: Path) -> _Found:
    for index, pattern in enumerate(match.images):
        if why := _no_image(glob_text(pattern)):
            told = f"{glob_text(pattern)!r} matches no image: {why}"
            yield (*prefix, "images", index), Code.NEVER_MATCHES, told
    for index, pattern in enumerate(match.include):
        if _IN_NO_NAMESPACE.search(glob_text(pattern)):
            told = f"{glob_text(pattern)!r} matches no namespace: their names are of a-z, 0-9 and -"
            yield (*prefix, "namespaces", "include", index), Code.NEVER_MATCHES, told
    if match.include and all(any(covers(out, inside) for out in match.exclude) for inside in match.include):
        told = "every namespace that is included is excluded too; remove one of them"
        yield (*prefix, "namespaces"), Code.NEVER_MATCHES, told
    elif any(glob_text(pattern).strip("*") == "" for pattern in match.exclude):
        yield (*prefix, "namespaces"), Code.NEVER_MATCHES, "every namespace is excluded"
    for key in contradictions(match.selector):
        told = f"no pod has a label {key!r} that satisfies all of this"
        yield (*prefix, "podSelector"), Code.NEVER_MATCHES, told
    for index, condition in enumerate(match.conditions):
        if not condition.variables and (why := _fails(condition, {})):
            told = f"{condition.source} {why} for every container"
            yield (*prefix, "conditions", index), Code.NEVER_MATCHES, told


def contradictions(selector: tuple[SelectorTerm, ...]) -> list[str]:
    """Return the labels of which a selector asks what no pod can have."""
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
    refused = {value for term in terms if term.operator == "NotIn" for value in term.values}
    return bool(sets) and not set.intersection(*sets) - refused


def _no_image(text: str) -> str:
    """Return why no image reference is written so, or nothing."""
    for pattern, why in _IN_NO_IMAGE:
        if found := pattern.search(text):
            return why.format(found=found[0])
    return ""
