"""Resource rules as ValidatingAdmissionPolicies and MutatingAdmissionPolicies of the API server.

Whatever CEL cannot express is omitted and listed. Sources:
https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/ and
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from msgspec import Struct

from rules.cel.expression import Expression
from rules.cel.variables import UNSET
from rules.decision.injection_stage import (
    DEFAULT_RESTART_POLICY,
    DEFAULT_SERVICE_ACCOUNT,
)
from rules.kube.names import DEFAULT_SCHEDULER
from rules.model.rule import Action, FailurePolicy, LimitsPolicy, RequestsPolicy, ResourceRule, Validation
from rules.nodes.gpu_resources import gpu_patterns
from rules.text.glob import glob, plain_regex
from rules.text.i18n import Language, Message, Text

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
# https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#validation-actions
_ACTIONS: Final = {Action.DENY: "Deny", Action.WARN: "Warn", Action.DRYRUN: "Audit"}
_LISTS: Final = {
    "containers": "object.spec.containers",
    "initContainers": "object.spec.?initContainers.orValue([])",
}
# Quantities of container `c`; of a container `u` in the variable `users`: `u.limits` and `u.requests`.
_LIMITS: Final = "c.?resources.?limits.orValue({})"
_REQUESTS: Final = "c.?resources.?requests.orValue({})"
# The names with a quantity that is not 0; a quantity of 0 is no request.
_USED: Final = "{0}.filter(k, quantity({0}[k]).compareTo(quantity('0')) != 0)"
_NAMES: Final = f"({_USED.format(_LIMITS)} + {_USED.format(_REQUESTS)})"
# Whether a quantity is a whole number; all whole numbers of `u`. Expressions of rules get only these: a
# fraction is a double in CEL, and CEL cannot type-check a map of ints and doubles.
_WHOLE: Final = "isQuantity({0}) && quantity({0}).isInteger()"
_NUMBERS: Final = f"u.{{}}.transformMap(k, v, {_WHOLE.format('v')}, quantity(v).asInteger())"
# The members of the variables `container` and `pod` of expressions, for a container `u` in `users`. Not
# exported: environment variables, because a list cannot become a map if a name occurs twice; CPU and memory,
# because CEL has only whole quantities.
_SECURITY: Final = "object.spec.?securityContext"
_OWN_SECURITY: Final = "u.container.?securityContext"
_CAPABILITIES: Final = f"{_OWN_SECURITY}.?capabilities"


def _map(members: Mapping[str, str]) -> str:
    """Return a CEL map of members of any types."""
    return f"{{{', '.join(f'{_quoted(name)}: dyn({value})' for name, value in members.items())}}}"


def _quoted(text: str) -> str:
    """Return a CEL string literal, which has the syntax of JSON."""
    return json.dumps(text)


_IDS: Final = {
    name: f"{_SECURITY}.?{name}.orValue({default})"
    for name, default in (("runAsUser", UNSET), ("runAsGroup", UNSET), ("runAsNonRoot", "false"))
}
_TOLERATION: Final = _map(
    {name: f't.?{name}.orValue("")' for name in ("key", "value", "effect")}
    | {
        "operator": 't.?operator.orValue("Equal")',
        "tolerationSeconds": f"t.?tolerationSeconds.orValue({UNSET})",
    }
)


def _gpus() -> str:
    """Return the CEL number of the GPUs of container `u`: the largest of its resources for GPUs, or 0.

    The first pattern that matches a resource counts, so patterns in a row with equal units are one.
    """
    quantity = "quantity(k in u.limits ? u.limits[k] : u.requests[k])"
    count = f"({quantity}.isInteger() ? {quantity}.asInteger() : 1)"
    devices = "1"
    rows = groupby(gpu_patterns(), key=lambda row: row[1].units)
    for units, patterns in [(units, [pattern for pattern, _ in row]) for units, row in rows][::-1]:
        number = f"[1, {count} / {units}].max()" if units > 1 else count if units else "1"
        devices = f"{_matches_any(patterns)} ? {number} : {devices}"
    gpus = _matches_any([pattern for pattern, _ in gpu_patterns()])
    return f"([0] + u.names.filter(k, {gpus}).map(k, {devices})).max()"


def _matches_any(patterns: Sequence[re.Pattern[str]]) -> str:
    """Return the CEL condition that resource name `k` matches one of some globs."""
    pattern = "|".join(map(plain_regex, patterns))
    return f"k.matches({_quoted(f'^({pattern})$')})"


_MEMORY_MOUNTS: Final = (
    "u.container.?volumeMounts.orValue([]).filter(m, object.spec.?volumes.orValue([]).exists(v,"
    ' v.name == m.name && v.?emptyDir.?medium.orValue("") == "Memory"))'
    '.map(m, m.mountPath.endsWith("/") ? m.mountPath.substring(0, size(m.mountPath) - 1) : m.mountPath)'
)
_TERMS: Final = (
    "object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution"
    ".?nodeSelectorTerms.orValue([])"
)
_REQUIRES: Final = '{0}.?matchExpressions.orValue([]).filter(e, !(e.operator in ["NotIn", "DoesNotExist"]))'
_NODE_LABELS: Final = (
    f"object.spec.?nodeSelector.orValue({{}}).map(k, k) + ({_TERMS}.size() == 0 ? [] :"
    f" {_REQUIRES.format(f'{_TERMS}[0]')}.map(e, e.key)"
    f".filter(k, {_TERMS}.all(t, {_REQUIRES.format('t')}.exists(e, e.key == k))))"
)
MEMBERS: Final[Mapping[str, str]] = {
    "container.name": "u.container.name",
    "container.image": 'u.container.?image.orValue("")',
    "container.command": "u.container.?command.orValue([])",
    "container.args": "u.container.?args.orValue([])",
    "container.gpus": _gpus(),
    "container.memoryMounts": _MEMORY_MOUNTS,
    "container.securityContext": _map(
        {name: f"{_OWN_SECURITY}.?{name}.orValue({value})" for name, value in _IDS.items()}
        | {
            "privileged": f"{_OWN_SECURITY}.?privileged.orValue(false)",
            "allowPrivilegeEscalation": f"{_OWN_SECURITY}.?allowPrivilegeEscalation.orValue(true)",
            "readOnlyRootFilesystem": f"{_OWN_SECURITY}.?readOnlyRootFilesystem.orValue(false)",
            "capabilities": _map({name: f"{_CAPABILITIES}.?{name}.orValue([])" for name in ("add", "drop")}),
        }
    ),
    "pod.labels": "object.metadata.?labels.orValue({})",
    "pod.annotations": "object.metadata.?annotations.orValue({})",
    "pod.namespace": "request.namespace",
    "pod.namespaceLabels": "namespaceObject.metadata.?labels.orValue({})",
    "pod.nodeName": 'object.spec.?nodeName.orValue("")',
    "pod.nodeSelector": "object.spec.?nodeSelector.orValue({})",
    "pod.requiredNodeLabels": _NODE_LABELS,
    "pod.tolerations": f"object.spec.?tolerations.orValue([]).map(t, {_TOLERATION})",
    "pod.priorityClassName": 'object.spec.?priorityClassName.orValue("")',
    "pod.serviceAccountName": f'object.spec.?serviceAccountName.orValue("{DEFAULT_SERVICE_ACCOUNT}")',
    "pod.schedulerName": f'object.spec.?schedulerName.orValue("{DEFAULT_SCHEDULER}")',
    "pod.runtimeClassName": 'object.spec.?runtimeClassName.orValue("")',
    "pod.hostNetwork": "object.spec.?hostNetwork.orValue(false)",
    "pod.hostIPC": "object.spec.?hostIPC.orValue(false)",
    "pod.restartPolicy": f'object.spec.?restartPolicy.orValue("{DEFAULT_RESTART_POLICY}")',
    "pod.activeDeadlineSeconds": "object.spec.?activeDeadlineSeconds.orValue(0)",
    "pod.securityContext": _map(_IDS | {"fsGroup": f"{_SECURITY}.?fsGroup.orValue({UNSET})"}),
}
NOT_EXPORTED: Final = (
    *(f"container.{member}" for member in ("env", "envNames", "cpu", "memory", "framework")),
    "pod.gpus",
)
_NOT_CORRECTED: Final = Message("a request that differs from its limit is denied, not corrected")
_BY_ANNOTATION: Final = Message("policies check resources, and its key is an annotation")
_FAILS: Final = Message("failurePolicy is Fail: a validation that cannot be evaluated is violated")
# Messages of the policies.
_NOT_IN_LIMITS: Final = Message("must not be in limits")
_IN_LIMITS: Final = Message("must be in limits")
_IN_REQUESTS: Final = Message("must be in requests")
_EQUAL: Final = Message("the request must equal the limit")
_ALONE: Final = Message("must not be used together with a resource that it excludes")
_WHOLE_NUMBER: Final = Message("must be a whole number")


class Exported(Struct, frozen=True):
    """Kubernetes objects for `kubectl apply`."""

    objects: tuple[dict[str, Any], ...]
    omitted: tuple[tuple[str, Message], ...]  # name of a rule, and the part of it that is not in the objects


class ExportError(ValueError):
    """The policies of two groups have the same name; the argument is a Text. The rule author's fault."""


def export(rules: Iterable[ResourceRule], language: Language = Language.EN) -> Exported:
    """Return the policies of the enabled rules, sorted by group, with messages in one language.

    Raises ExportError.
    """
    groups: defaultdict[str, list[ResourceRule]] = defaultdict(list)
    by_annotation = []
    for rule in rules:
        if rule.enabled and rule.by_annotation:
            by_annotation.append(rule)
        elif rule.enabled:
            groups[rule.group].append(rule)
    objects: list[dict[str, Any]] = []
    owners: dict[tuple[str, str], str] = {}
    for group, group_rules in sorted(groups.items()):
        for policy in _policies(group, group_rules, language):
            name = policy["metadata"]["name"]
            if (other := owners.setdefault((policy["kind"], name), group)) != group:
                raise ExportError(
                    Message(
                        "groups {other!r} and {group!r} have the same policy name {name}; rename one of them",
                        other=other,
                        group=group,
                        name=name,
                    )
                )
            objects.append(policy)
    own = {rule.key: rule.group for group_rules in groups.values() for rule in group_rules}
    omitted = [
        (rule.name, part)
        for group_rules in groups.values()
        for rule in group_rules
        for part in _omitted(rule, own)
    ]
    omitted += [(rule.name, _BY_ANNOTATION) for rule in by_annotation]
    return Exported(tuple(objects), tuple(omitted))


def _omitted(rule: ResourceRule, groups: Mapping[str, str]) -> Iterator[Message]:
    """Yield the parts of a rule that are not in the policies. groups: by the keys of all rules."""
    if apart := [name for name in rule.related if groups.get(name, rule.group) != rule.group]:
        yield Message("relatedResources {names} of other groups is not applied", names=", ".join(apart))
    if name := rule.runtime_class:
        yield Message("runtimeClassName {name} is not set", name=name)
    if rule.default and rule.default_when:
        yield Message("defaultValue {value} is not set, because it has a condition", value=rule.default)
    if rule.requests is RequestsPolicy.FROM_LIMITS:
        yield _NOT_CORRECTED
    if rule.failure_policy is FailurePolicy.IGNORE and rule.validations:
        yield _FAILS
    for validation in rule.validations:
        if missing := _not_exported(validation.expression):
            source = validation.expression.source
            yield Message(
                "{source} is not checked: policies do not have {missing}", source=source, missing=missing
            )


def _not_exported(expression: Expression) -> str:
    """Return the first input of an expression that policies do not have, or an empty text."""
    return next((name for name in expression.inputs if name in NOT_EXPORTED), "")


def _policies(group: str, rules: Sequence[ResourceRule], language: Language) -> Iterator[dict[str, Any]]:
    """Yield the policies of a group, each with its binding: one for defaults, then one for each action."""
    patches = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}
        for rule in rules
        for patch in _patches(rule, rules)
    ]
    name = f"gpugate-{group.lower().replace('_', '-')}"  # label values allow characters that names do not
    if patches:
        yield _object(
            "MutatingAdmissionPolicy",
            name,
            _spec(rules) | {"reinvocationPolicy": "IfNeeded", "mutations": patches},
        )
        yield _object("MutatingAdmissionPolicyBinding", name, _binding(name))
    for action, validation_action in _ACTIONS.items():
        validations = [
            validation
            for rule in rules
            for enforced, validation in _validations(rule, language)
            if enforced is action
        ]
        if validations:
            policy = name if action is Action.DENY else f"{name}-{action.value}"
            spec = _spec(rules) | {"variables": [_users(rules)], "validations": validations}
            yield _object("ValidatingAdmissionPolicy", policy, spec)
            binding = _binding(policy) | {"validationActions": [validation_action]}
            yield _object("ValidatingAdmissionPolicyBinding", policy, binding)


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _binding(policy: str) -> dict[str, Any]:
    """Return the binding of a policy, which excludes the same namespaces as the webhook configurations."""
    excluded = [
        {"key": key, "operator": "NotIn", "values": [value]}
        for key, value in (("kubernetes.io/metadata.name", "kube-system"), ("gpugate.dev/ignore", "true"))
    ]
    return {"policyName": policy, "matchResources": {"namespaceSelector": {"matchExpressions": excluded}}}


def _spec(rules: Sequence[ResourceRule]) -> dict[str, Any]:
    """Return the common spec of a group's policies, which apply to new pods that use the group."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    uses = f"({' + '.join(_LISTS.values())}).exists(c, {_uses(rules)})"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [pods]},
        "matchConditions": [{"name": "uses-the-group", "expression": uses}],
    }


def _users(rules: Sequence[ResourceRule]) -> dict[str, str]:
    """Return the variable with the facts of each container that uses a group."""
    containers = f"({' + '.join(_LISTS.values())}).filter(c, {_uses(rules)})"
    facts = {"container": "c", "limits": _LIMITS, "requests": _REQUESTS, "names": _NAMES}
    user = ", ".join(f'"{name}": dyn({fact})' for name, fact in facts.items())
    return {"name": "users", "expression": f"{containers}.map(c, {{{user}}})"}


def _uses(rules: Sequence[ResourceRule]) -> str:
    """Return the condition that container `c` uses a group."""
    return f"{_NAMES}.exists(k, {' || '.join(_matches_key(rule) for rule in rules)})"


def _matches_key(rule: ResourceRule, name: str = "k") -> str:
    """Return the condition that a resource name matches the key of a rule."""
    if rule.key_pattern:
        return f"{name}.matches({_quoted(f'^{plain_regex(rule.key_pattern)}$')})"
    return f"{name} == {_quoted(rule.key)}"


def _validations(rule: ResourceRule, language: Language) -> Iterator[tuple[Action, dict[str, Any]]]:
    """Yield the validations of a rule with their enforcement actions."""
    if rule.additional:
        yield from _additional_validations(rule, language)
        return
    validation, is_key = partial(_validation, rule, language), _matches_key(rule)
    if rule.limits is LimitsPolicy.DISABLED:
        yield validation(f"!u.limits.exists(k, {is_key})", _NOT_IN_LIMITS)
    if rule.limits is LimitsPolicy.REQUIRED:
        present = f"u.names.all(k, !({is_key}) || k in u.limits)"
        yield validation(present if rule.key_pattern else f"{_quoted(rule.key)} in u.limits", _IN_LIMITS)
    if rule.requests is not RequestsPolicy.REQUIRED:
        equal = "k in u.limits && quantity(u.limits[k]).compareTo(quantity(u.requests[k])) == 0"
        yield validation(f"u.requests.all(k, !({is_key}) || ({equal}))", _EQUAL)
    elif not rule.key_pattern:
        yield validation(f"u.names.exists(k, {is_key})", _IN_REQUESTS)
    if excluded := [plain_regex(glob(name)) for name in rule.excludes]:
        other = f"other != k && other.matches({_quoted('^(' + '|'.join(excluded) + ')$')})"
        alone = f"u.names.all(k, !({is_key}) || !u.names.exists(other, {other}))"
        yield validation(alone, _ALONE)
    # If the request must equal the limit, checking the limit is enough.
    for field in ("limits", "requests")[: 2 if rule.requests is RequestsPolicy.REQUIRED else 1]:
        value = f"u.{field}[k]"
        whole = _WHOLE.format(value)
        if rule.integer:
            positive = f"{whole} && quantity({value}).asInteger() >= 0"
            yield validation(f"u.{field}.all(k, !({is_key}) || ({positive}))", _WHOLE_NUMBER)
        for rule_validation in rule.validations:
            if _not_exported(rule_validation.expression):
                continue
            holds = _bind(rule_validation.expression, f"quantity({value}).asInteger()")
            condition = f"u.{field}.all(k, !({is_key}) || !({whole}) || {holds})"
            yield validation(condition, _text(rule_validation, language), rule_validation.action)


def _additional_validations(
    rule: ResourceRule, language: Language
) -> Iterator[tuple[Action, dict[str, Any]]]:
    for validation in rule.validations:
        if not _not_exported(validation.expression):
            holds = f"!u.names.exists(k, {_matches_key(rule)}) || {_bind(validation.expression)}"
            yield _validation(rule, language, holds, _text(validation, language), validation.action)


def _validation(
    rule: ResourceRule, language: Language, condition: str, text: Message, action: Action | None = None
) -> tuple[Action, dict[str, Any]]:
    """Return a validation of all containers that use the rule's group; action: instead of the rule's."""
    about = rule.description.in_language(language)
    subject = f"{rule.key} ({about})" if about else rule.key
    return action or rule.action, {
        "expression": f"variables.users.all(u, {condition})",
        "message": f"{subject}: {text.in_language(language)} [{rule.name}]",
        "reason": "Forbidden",
    }


def _text(validation: Validation, language: Language) -> Text:
    return Text(validation.message.in_language(language) or validation.expression.source)


def _bind(expression: Expression, value: str = "") -> str:
    """Return a rule's expression with its variables bound by `all`; only CEL extensions have another way.

    value: of the variable `value`, if the expression may name it.
    """
    bound = {"value": value}
    bound |= {field: _NUMBERS.format(field) for field in ("limits", "requests")}
    for variable in ("container", "pod"):
        names = [name for name in expression.inputs if name.startswith(f"{variable}.")]
        bound[variable] = _map({name.partition(".")[2]: MEMBERS[name] for name in names})
    source = f"({expression.source})"
    for name in expression.variables:
        source = f"[{bound[name]}].all({name}, {source})"
    return source


def _patches(rule: ResourceRule, rules: Sequence[ResourceRule]) -> Iterator[str]:
    """Yield the patches that set the default of a rule."""
    if rule.key_pattern or rule.default_when:
        return  # a default needs a name, not a pattern; its condition is listed as not exported
    key, default = _quoted(rule.key), _quoted(rule.default)
    absent = f"!({key} in {_LIMITS}) && !({key} in {_REQUESTS})"
    if rule.default and rule.limits is not LimitsPolicy.DISABLED:
        yield from _set_default("limits", f"{_uses(rules)} && {absent}", key, default)
    elif rule.default and rule.requests is RequestsPolicy.REQUIRED:
        yield from _set_default("requests", f"{_uses(rules)} && {absent}", key, default)


def _set_default(field: str, where: str, key: str, value: str) -> Iterator[str]:
    for name, containers in _LISTS.items():
        path = f'"/spec/{name}/" + string(i) + "/resources/{field}"'
        present = f"has(c.resources) && has(c.resources.{field})"
        into = f'JSONPatch{{op: "add", path: {path} + "/" + jsonpatch.escapeKey({key}), value: {value}}}'
        whole = f'JSONPatch{{op: "add", path: {path}, value: {{{key}: {value}}}}}'
        yield f"{containers}.transformList(i, c, {where}, {present} ? {into} : {whole})"
