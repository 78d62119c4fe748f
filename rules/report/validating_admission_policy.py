"""Resource rules as the API server's own policies: CEL that it evaluates in process, without a webhook.

What CEL cannot say as the rule does is left out, and told. Sources:
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/ and
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rules.cel.expression import Expression
from rules.model.rule import Action, LimitsPolicy, RequestsPolicy, ResourceRule
from rules.text.glob import glob, plain_regex
from rules.text.i18n import Language

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
# https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#validation-actions
_ACTIONS: Final = {Action.DENY: "Deny", Action.WARN: "Warn", Action.DRYRUN: "Audit"}
_LISTS: Final = {
    "containers": "object.spec.containers",
    "initContainers": "object.spec.?initContainers.orValue([])",
}
# Quantities of container `c`; of a user, see _spec, they are `u.limits` and `u.requests`.
_LIMITS: Final = "c.?resources.?limits.orValue({})"
_REQUESTS: Final = "c.?resources.?requests.orValue({})"
_NAMES: Final = f"({_LIMITS}.map(k, k) + {_REQUESTS}.map(k, k))"
# Whether something is a whole number, and all of a user's that are. Expressions of rules see no others here:
# CEL would need a double for them, and a map of both is none that it can check.
_WHOLE: Final = "isQuantity({0}) && quantity({0}).isInteger()"
_NUMBERS: Final = f"u.{{}}.transformMap(k, v, {_WHOLE.format('v')}, quantity(v).asInteger())"


@dataclass(frozen=True, slots=True)
class Exported:
    """Kubernetes objects, ready for `kubectl apply`; left: (rule, what they leave out)."""

    objects: tuple[dict[str, Any], ...]
    left: tuple[tuple[str, str], ...]


class ExportError(ValueError):
    """Two groups would be one policy. The fault of whoever named them."""


def export(rules: Iterable[ResourceRule], language: Language = Language.EN) -> Exported:
    """Return the policies of the rules that are switched on, a group at a time; messages in one language.

    Raises ExportError.
    """
    groups: defaultdict[str, list[ResourceRule]] = defaultdict(list)
    for rule in rules:
        if rule.enabled:
            groups[rule.group].append(rule)
    objects: list[dict[str, Any]] = []
    owners: dict[tuple[str, str], str] = {}
    for group, found in sorted(groups.items()):
        for each in _policies(group, found, language):
            name = each["metadata"]["name"]
            if (other := owners.setdefault((each["kind"], name), group)) != group:
                told = f"groups {other!r} and {group!r} would both be policy {name}; rename one of them"
                raise ExportError(told)
            objects.append(each)
    left = [(rule.name, what) for found in groups.values() for rule in found for what in _left(rule)]
    return Exported(tuple(objects), tuple(left))


def _left(rule: ResourceRule) -> Iterator[str]:
    if rule.runtime_class:
        yield f"runtimeClassName {rule.runtime_class} is not set"
    if rule.requests is RequestsPolicy.FROM_LIMITS:
        yield "a request that differs from its limit is refused, not corrected"


def _policies(group: str, rules: Sequence[ResourceRule], language: Language) -> Iterator[dict[str, Any]]:
    """Yield a group's policies, each with its binding: one for defaults, then one for each action."""
    patches = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}
        for rule in rules
        for patch in _patches(rule, rules)
    ]
    name = f"gpugate-{group.lower().replace('_', '-')}"  # a label's value may hold what no name may
    if patches:
        yield _object(
            "MutatingAdmissionPolicy",
            name,
            _spec(rules) | {"reinvocationPolicy": "IfNeeded", "mutations": patches},
        )
        yield _object("MutatingAdmissionPolicyBinding", name, _bound(name))
    for action, bound in _ACTIONS.items():
        validations = [
            each for rule in rules for follows, each in _validations(rule, language) if follows is action
        ]
        if validations:
            named = name if action is Action.DENY else f"{name}-{action.value}"
            spec = _spec(rules) | {"variables": [_users(rules)], "validations": validations}
            yield _object("ValidatingAdmissionPolicy", named, spec)
            yield _object(
                "ValidatingAdmissionPolicyBinding", named, _bound(named) | {"validationActions": [bound]}
            )


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _bound(name: str) -> dict[str, Any]:
    elsewhere = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
    return {"policyName": name, "matchResources": {"namespaceSelector": {"matchExpressions": [elsewhere]}}}


def _spec(rules: Sequence[ResourceRule]) -> dict[str, Any]:
    """Return what the policies of a group have in common: pods that use it, at creation."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    uses = f"({' + '.join(_LISTS.values())}).exists(c, {_uses(rules)})"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [{"name": "uses-the-group", "expression": uses}],
    }


def _users(rules: Sequence[ResourceRule]) -> dict[str, str]:
    """Return the variable that holds, for each container that uses a group, what its rules look at."""
    containers = f"({' + '.join(_LISTS.values())}).filter(c, {_uses(rules)})"
    facts = {"container": "c", "limits": _LIMITS, "requests": _REQUESTS, "names": _NAMES}
    user = ", ".join(f'"{name}": dyn({fact})' for name, fact in facts.items())
    return {"name": "users", "expression": f"{containers}.map(c, {{{user}}})"}


def _uses(rules: Sequence[ResourceRule]) -> str:
    """Return the condition that container `c` uses a group."""
    return f"{_NAMES}.exists(k, {' || '.join(_is(rule) for rule in rules)})"


def _is(rule: ResourceRule, name: str = "k") -> str:
    """Return the condition that a name is one that a rule is about."""
    if rule.key_pattern:
        return f"{name}.matches({_quoted(f'^{plain_regex(rule.key_pattern)}$')})"
    return f"{name} == {_quoted(rule.key)}"


def _quoted(text: str) -> str:
    """Return a string as CEL writes it, which is JSON's way."""
    return json.dumps(text)


def _validations(rule: ResourceRule, language: Language) -> Iterator[tuple[Action, dict[str, Any]]]:
    """Yield what a rule demands, and what follows where it does not hold."""
    what = rule.description.in_language(language)

    def validation(condition: str, told: str, action: Action = rule.action) -> tuple[Action, dict[str, Any]]:
        return action, {
            "expression": f"variables.users.all(u, {condition})",
            "message": f"{rule.key}{f' ({what})' if what else ''}: {told} [{rule.name}]",
            "reason": "Forbidden",
        }

    is_key = _is(rule)
    if rule.limits is LimitsPolicy.DISABLED:
        yield validation(f"!u.limits.exists(k, {is_key})", "may not be in limits")
    if rule.limits is LimitsPolicy.REQUIRED:
        there = f"u.names.all(k, !({is_key}) || k in u.limits)"
        yield validation(
            there if rule.key_pattern else f"{_quoted(rule.key)} in u.limits", "has to be in limits"
        )
    if rule.requests is not RequestsPolicy.REQUIRED:
        equal = "k in u.limits && quantity(u.limits[k]).compareTo(quantity(u.requests[k])) == 0"
        yield validation(f"u.requests.all(k, !({is_key}) || ({equal}))", "a request has to equal the limit")
    elif not rule.key_pattern:
        yield validation(f"u.names.exists(k, {is_key})", "has to be in requests")
    if excluded := [plain_regex(glob(name)) for name in rule.excludes]:
        other = f"other != k && other.matches({_quoted('^(' + '|'.join(excluded) + ')$')})"
        alone = f"u.names.all(k, !({is_key}) || !u.names.exists(other, {other}))"
        yield validation(alone, "may not stand beside what it excludes")
    # Where a request has to equal the limit, judging that is enough.
    for field in ("limits", "requests")[: 2 if rule.requests is RequestsPolicy.REQUIRED else 1]:
        value = f"u.{field}[k]"
        whole = _WHOLE.format(value)
        if rule.integer:
            positive = f"{whole} && quantity({value}).asInteger() >= 0"
            yield validation(f"u.{field}.all(k, !({is_key}) || ({positive}))", "has to be a whole number")
        for each in rule.validations:
            holds = _bind(each.expression, f"quantity({value}).asInteger()")
            told = each.message.in_language(language) or each.expression.source
            yield validation(f"u.{field}.all(k, !({is_key}) || !({whole}) || {holds})", told, each.action)


def _bind(expression: Expression, value: str) -> str:
    """Return a rule's expression with its variables bound, in the one way that CEL has without extensions."""
    bound = {"value": value, "container": "u.container"}
    bound |= {field: _NUMBERS.format(field) for field in ("limits", "requests")}
    source = f"({expression.source})"
    for name in expression.variables:
        source = f"[{bound[name]}].all({name}, {source})"
    return source


def _patches(rule: ResourceRule, rules: Sequence[ResourceRule]) -> Iterator[str]:
    """Yield the patches that put in a default, or let the request follow the limit."""
    if rule.key_pattern:
        return  # a name is needed for either
    key, default = _quoted(rule.key), _quoted(rule.default)
    if rule.default and rule.limits is not LimitsPolicy.DISABLED:
        yield from _put("limits", f"{_uses(rules)} && !({key} in {_LIMITS})", key, default)
    elif rule.default and rule.requests is RequestsPolicy.REQUIRED:
        yield from _put("requests", f"{_uses(rules)} && !({key} in {_NAMES})", key, default)


def _put(field: str, where: str, key: str, value: str) -> Iterator[str]:
    for name, containers in _LISTS.items():
        path = f'"/spec/{name}/" + string(i) + "/resources/{field}"'
        there = f"has(c.resources) && has(c.resources.{field})"
        into = f'JSONPatch{{op: "add", path: {path} + "/" + jsonpatch.escapeKey({key}), value: {value}}}'
        whole = f'JSONPatch{{op: "add", path: {path}, value: {{{key}: {value}}}}}'
        yield f"{containers}.transformList(i, c, {where}, {there} ? {into} : {whole})"
