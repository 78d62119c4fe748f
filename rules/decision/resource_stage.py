"""Resource stage: sets what a container leaves out, then validates what is set."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from decimal import Decimal
from itertools import islice
from typing import Any, Final

from rules.cel.syntax_errors import ExpressionError, UnknownInputError
from rules.decision import messages
from rules.decision.injection_stage import ContainerInputs
from rules.decision.recorder import Change
from rules.kube.names import ANNOTATION, is_extended_resource
from rules.kube.pod import Container, Literals, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.check_result import Edit
from rules.model.finding import Basis, Finding, notice
from rules.model.rule import (
    Action,
    FailurePolicy,
    LimitsPolicy,
    RequestsPolicy,
    ResourceRule,
    Validation,
)
from rules.nodes.gpu_resources import gpu_resource, gpu_resources
from rules.text.i18n import Message, Text
from rules.text.paths import field_path

# Fields of `resources` in the order of validation.
LIMITS: Final = "limits"
REQUESTS: Final = "requests"
# Resources that one must not be used with and that are reported of it; a container that uses more is denied
# for these, and a glob that excludes its own matches would report every pair.
_MOST_EXCLUDED: Final = 8
# Resources that share GPUs and are named in a message.
_MOST_SHARES: Final = 3
# Numbers that schedulers read in annotations; a sign is reported before.
_NUMBER: Final = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WHOLE: Final = re.compile(r"\d+", re.ASCII)
# Returns the extended resources of the nodes, for the message on a fraction.
Offered = Callable[[], Collection[str]]


def complete(rule: ResourceRule, container: Container, default: str) -> list[Change]:
    """Set what the rule says for a container that uses its group; return what. default: empty for none.

    The API server copies a limit into an absent request, so an existing request is left alone unless it must
    follow the limit. The default is for a container without limit and request of the resource.
    """
    done: list[Change] = []
    if default and rule.limits is not LimitsPolicy.DISABLED and container.request(rule.key) is None:
        container.set_resource(LIMITS, rule.key, default)
        done.append((container, f"{LIMITS} {rule.key}"))
    for key in _keys(rule, container):
        limit, request = container.limits.get(key), container.requests.get(key)
        value = None
        if rule.requests is RequestsPolicy.FROM_LIMITS and limit is not None:
            value = limit
        elif rule.requests is RequestsPolicy.REQUIRED and request is None:
            value = limit if limit is not None else default or None
        if value is not None and not _same(value, request):
            container.set_resource(REQUESTS, key, value)
            done.append((container, f"{REQUESTS} {key}"))
    return done


def requests(rule: ResourceRule, container: Container) -> bool:
    """Return whether a container has a limit of the rule's resource."""
    return any(container.limits.get(key) and key in container.names for key in _keys(rule, container))


def validate(
    rules: Iterable[ResourceRule],
    inputs: ContainerInputs,
    offered: Offered = frozenset,
) -> list[Finding]:
    """Return the violations of rules by a container that uses their groups, and notices about the rules.

    The last violations are of the API server, for what no rule denies; what a rule denies in the same words
    is a fact, too. offered: returns the resources of the nodes.
    """
    faults = _of_api_server(inputs.container, offered, partial=inputs.pod.partial)
    checked = _ContainerCheck(inputs, offered, faults)
    for rule in rules:
        checked.check(rule)
    if faults:
        denied = {finding.path for finding in checked.findings if finding.action is Action.DENY}
        checked.findings += [fault for (path, _), fault in faults.items() if path not in denied]
    return checked.findings


def _of_api_server(
    container: Container, offered: Offered, *, partial: bool
) -> dict[tuple[str, messages.Words], Finding]:
    """Return what the API server rejects of extended resources, whatever rules there are, by path and words.

    What is no quantity is left to it. partial: a controller may add the limits.
    Source: `validateResourceRequirements` of
    https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/validation.go
    """
    violations: dict[tuple[str, messages.Words], Finding] = {}
    limits, requests = container.limits, container.requests
    for key in {**limits, **requests}:
        if "/" not in key:
            continue
        limit = limits.get(key)
        if isinstance(limit, str) and limit.isdecimal() and requests.get(key, limit) == limit:
            continue  # a whole number without a unit, as most are
        if not is_extended_resource(key):
            continue
        request = requests.get(key)
        faults = [(LIMITS, limit, *_wrong_value(key, limit, offered))]
        if request is not None and not _same(limit, request):
            if limit is not None:
                faults.append((REQUESTS, request, messages.REQUEST_DIFFERS, ""))
            elif not partial:
                faults.append((REQUESTS, request, messages.REQUEST_WITHOUT_LIMIT, ""))
            faults.append((REQUESTS, request, *_wrong_value(key, request, offered)))
        for field, quantity, words, shares in faults:
            if words:
                facts = _facts(container, field, key, actual=quantity, limit=limit, shares=shares)
                fix = messages.WHOLE_OR_SHARE if shares else None
                violations[facts["path"], words] = Finding(
                    messages.API_SERVER_RULE,
                    Action.DENY,
                    facts["path"],
                    *messages.worded(facts["path"], words, messages.API_SERVER, facts, fix),
                    basis=Basis.FACT,
                    container=container.path,
                    edits=_edits(container, key, words, limit, request),
                )
    return violations


def of_pod(pod: Pod) -> Iterator[Finding]:
    """Yield warnings of extended resources in `resources` of the pod itself, which give it none of them.

    The API server rejects them. Without the feature gate PodLevelResources, which is on from Kubernetes 1.34
    on, it ignores the field, and the pod runs.
    Source: `validatePodResourceName`, in the same file
    """
    for field, key in islice(pod.misplaced, _MOST_EXCLUDED):
        path = field_path(pod.place("spec", "resources", field, key))
        reason, fix = messages.IN_POD.having(path=path), messages.IN_CONTAINER_INSTEAD.having(key=key)
        yield notice(messages.API_SERVER_RULE, reason, fix)._replace(path=path)


def _wrong_value(key: str, quantity: object, offered: Offered) -> tuple[messages.Words | None, str]:
    """Return what is wrong with a quantity of an extended resource, and shares in place of a fraction."""
    try:
        value = 0 if quantity is None else parse_quantity(quantity)
    except QuantityError:
        return None, ""
    if value < 0:
        return messages.NOT_POSITIVE, ""
    return (None, "") if isinstance(value, int) else (messages.NOT_WHOLE, _shares(key, offered))


def _facts(container: Container, field: str, key: str, **values: object) -> dict[str, Any]:
    """Return what the texts of a violation name. field: `limits` or `requests`."""
    if values.get("actual") is not None and not container.writes(key):
        values["actual"] = messages.THE_DEFAULT.having(actual=values["actual"])
    path = field_path(container.resource_path(field, key))
    limit_path = path if field == LIMITS else field_path(container.resource_path(LIMITS, key))
    # Equal messages have equal values, which can be hashed: a quantity may be a list, an error is its text.
    values = {name: value if isinstance(value, Message) else str(value) for name, value in values.items()}
    return {**values, "container": container.name, "path": path, "limit_path": limit_path, "key": key}


def _edits(
    container: Container, key: str, words: messages.Words, limit: object, request: object
) -> tuple[Edit, ...]:
    """Return the edit that lets limit and request of a resource agree, for the words that say so."""
    if words is messages.REQUEST_DIFFERS:
        return (Edit(container.resource_path(REQUESTS, key), str(request), str(limit)),)
    if words is messages.REQUEST_WITHOUT_LIMIT:
        return (Edit(container.resource_path(LIMITS, key), "", str(request)),)
    return ()


def _shares(key: str, offered: Offered) -> str:
    """Return the resources of nodes that are shares of the GPUs that a resource stands for whole ones of."""
    whole = gpu_resource(key)
    if whole is None or whole.units != 1:
        return ""
    shares = [
        name
        for name, gpu in gpu_resources(tuple(sorted(offered()))).resources
        if gpu.vendor == whole.vendor and gpu.units != 1
    ]
    return ", ".join(shares[:_MOST_SHARES])


def _keys(rule: ResourceRule, container: Container) -> tuple[str, ...]:
    """Return the names in a container that the rule is about: its key, or those that its glob matches."""
    if not rule.key_pattern:
        return (rule.key,)
    return tuple([name for name in container.names if rule.key_pattern.fullmatch(name)])


class _ContainerCheck:
    """The check of one container against rules, one after the other.

    findings: so far. faults: what the API server rejects, by path and words.
    """

    def __init__(
        self, inputs: ContainerInputs, offered: Offered, faults: Collection[tuple[str, messages.Words]]
    ) -> None:
        self._container = inputs.container
        self._inputs = inputs
        self._offered = offered
        self._faults = faults
        self.findings: list[Finding] = []

    def check(self, rule: ResourceRule) -> None:
        """Add what a rule finds."""
        container, self._rule = self._container, rule
        if rule.additional:
            self._once(rule)
            return
        self._excluded: Collection[str] = ()
        if not rule.excludes.is_empty:
            find = rule.excludes.find
            self._excluded = [name for name in container.names if find(name)]
        for key in _keys(rule, container):
            limit, request = container.limits.get(key), container.requests.get(key)
            differs = request is not None and not _same(limit, request)
            self._presence(key, limit, request, differs=differs)
            if limit is not None:
                self._value(LIMITS, key, limit)
            if differs:
                self._value(REQUESTS, key, request)

    def _once(self, rule: ResourceRule) -> None:
        """Evaluate the validations of an additional rule, at the first resource that it is for.

        Not for a pod that a controller completes: what is absent may be added.
        """
        container = self._container
        key = next(iter(_keys(rule, container)), "")
        if not key or self._inputs.pod.partial:
            return
        field = LIMITS if container.limits.get(key) is not None else REQUESTS
        self._validations(field, key, container.request(key))

    def _presence(self, key: str, limit: object, request: object, *, differs: bool) -> None:
        """Check what is set and must not be, or is not set and must be. differs: there is another request."""
        rule = self._rule
        may_differ = rule.requests is RequestsPolicy.REQUIRED and not is_extended_resource(key)
        if limit is None:
            if rule.limits is LimitsPolicy.REQUIRED and (request is None or may_differ):
                self._add(LIMITS, key, messages.LIMIT_MISSING)
        elif rule.limits is LimitsPolicy.DISABLED:
            self._add(LIMITS, key, messages.LIMIT_FORBIDDEN, actual=limit)
        if rule.requests is RequestsPolicy.REQUIRED and request is None and limit is None:
            self._add(REQUESTS, key, messages.REQUEST_MISSING)
        elif differs and not may_differ:
            self._own_request(key, limit, request)
        if self._excluded and key in self._container.names:
            field, quantity = (LIMITS, limit) if limit is not None else (REQUESTS, request)
            for other in islice((name for name in self._excluded if name != key), _MOST_EXCLUDED):
                self._add(field, key, messages.EXCLUDED, actual=quantity, other=other)

    def _own_request(self, key: str, limit: object, request: object) -> None:
        """Report a request that is not the limit."""
        if limit is not None:
            edits = _edits(self._container, key, words := messages.REQUEST_DIFFERS, limit, request)
            self._add(REQUESTS, key, words, edits=edits, actual=request, limit=limit)
        elif self._rule.limits is LimitsPolicy.DISABLED and self._rule.requests is RequestsPolicy.DISABLED:
            self._add(REQUESTS, key, messages.REQUEST_FORBIDDEN, actual=request)
        else:
            edits = _edits(self._container, key, words := messages.REQUEST_WITHOUT_LIMIT, limit, request)
            self._add(REQUESTS, key, words, edits=edits, actual=request)

    def _add(  # noqa: PLR0913 - what a finding says
        self,
        field: str,
        key: str,
        words: messages.Words,
        *,
        action: Action | None = None,
        fix: Message | None = None,
        edits: tuple[Edit, ...] = (),
        **values: object,
    ) -> None:
        """Add a violation at `limits` or `requests` of a resource; action, fix: instead of the usual ones."""
        facts = _facts(self._container, field, key, **values)
        path, action = facts["path"], action or self._rule.action
        is_fact = bool(self._faults) and action is Action.DENY and (path, words) in self._faults
        worded = messages.worded(path, words, self._rule.description, facts, fix)
        self._add_finding(action, path, worded, Basis.FACT if is_fact else Basis.POLICY, edits)

    def _add_finding(
        self,
        action: Action,
        path: str,
        worded: tuple[Message, Message, Message],
        basis: Basis = Basis.POLICY,
        edits: tuple[Edit, ...] = (),
    ) -> None:
        """Add a violation of the rule. worded: its reason, fix and cause."""
        at = self._container.path
        self.findings.append(
            Finding(self._rule.name, action, path, *worded, basis=basis, container=at, edits=edits)
        )

    def _value(self, field: str, key: str, quantity: object) -> None:
        """Check a quantity that is set."""
        by_annotation = key.startswith(ANNOTATION)
        no_number = messages.NOT_WHOLE if self._rule.integer else messages.NO_NUMBER
        try:
            value = parse_quantity(quantity)
        except QuantityError:
            self._add(field, key, no_number if by_annotation else messages.NO_QUANTITY, actual=quantity)
            return
        if value < 0:
            self._add(field, key, messages.NOT_POSITIVE, actual=quantity)
        elif by_annotation and not (_WHOLE if self._rule.integer else _NUMBER).fullmatch(str(quantity)):
            self._add_with_value(field, key, no_number, actual=quantity)
        elif self._rule.integer and not isinstance(value, int):
            shares = _shares(key, self._offered)
            fix = messages.WHOLE_OR_SHARE if shares else None
            self._add_with_value(field, key, messages.NOT_WHOLE, fix=fix, actual=quantity, shares=shares)
        elif self._rule.validations and (field == LIMITS or quantity == self._container.request(key)):
            # A request that the limit of an extended resource replaces is denied as such.
            self._validations(field, key, quantity)

    def _validations(self, field: str, key: str, quantity: object) -> None:
        if not self._rule.additional:
            self._inputs.set_value(quantity)
        for validation in self._rule.validations:
            source = validation.expression.source
            try:
                passed = validation.expression.evaluate(self._inputs)
            except UnknownInputError:
                continue  # it is reported once for the pod
            except ExpressionError as error:
                self._not_evaluated(field, key, quantity, validation, error)
                continue
            if not passed:
                expected = validation.message or Text(source)
                words, action = messages.invalid(validation.expression.variables), validation.action
                if self._rule.additional:
                    words = messages.ADDITIONAL
                own_fix = validation.fix
                if self._wrong_variable(validation, expected, own_fix):
                    continue
                self._add_with_value(
                    field,
                    key,
                    words,
                    action=action,
                    fix=messages.OWN_FIX if own_fix else None,
                    actual=quantity,
                    expected=expected,
                    own_fix=own_fix,
                )

    def _wrong_variable(self, validation: Validation, expected: Message, own_fix: Message) -> bool:
        """Add a violation of the variable that a validation names; return whether its value is known."""
        name, container = validation.variable, self._container
        value = Literals(container.variables).get(name) if name else None
        if value is None:
            return False
        path = field_path((*container.variable_path(name), "value"))
        facts = {"variable": name, "actual": value, "expected": expected, "own_fix": own_fix}
        facts |= {"container": container.name}
        fix = messages.OWN_FIX if own_fix else None
        worded = messages.worded(path, messages.VARIABLE, Message(), facts, fix)
        self._add_finding(validation.action, path, worded)
        return True

    def _not_evaluated(
        self, field: str, key: str, quantity: object, validation: Validation, error: ExpressionError
    ) -> None:
        if self._rule.failure_policy is FailurePolicy.FAIL:
            words, source = messages.VALIDATION_ERROR, validation.expression.source
            self._add(
                field, key, words, action=validation.action, actual=quantity, expression=source, error=error
            )
            return
        facts = {"expression": validation.expression.source, "error": str(error), "key": key}
        ignored, rule = messages.VALIDATION_IGNORED, self._rule.name
        self.findings.append(messages.evaluation_error(ignored, rule, self._container, **facts))

    def _add_with_value(
        self,
        field: str,
        key: str,
        words: messages.Words,
        *,
        action: Action | None = None,
        fix: Message | None = None,
        **values: object,
    ) -> None:
        """Add a violation of the value `actual`, which is suggested in the unit of the resource, if known."""
        edits: tuple[Edit, ...] = ()
        if (value := self._in_units(actual := values["actual"])) is not None:
            values |= {"value": value, "unit": self._rule.unit}
            fix = messages.USE_VALUE
            container = self._container
            written = container.written_fields(key, actual)
            edits = tuple([Edit(container.resource_path(at, key), str(actual), str(value)) for at in written])
        self._add(field, key, words, action=action, fix=fix, edits=edits, **values)

    def _in_units(self, quantity: object) -> int | None:
        """Return a quantity with suffix or fraction as a number of the resource, if that satisfies the rule.

        A plain whole number is a number of the resource already.
        """
        if not self._rule.unit or str(quantity).isdecimal():
            return None
        value = Decimal(parse_quantity(quantity)) / Decimal(parse_quantity(self._rule.unit))
        if value != int(value) or _same(int(value), quantity):
            return None
        given = self._inputs
        inputs = ContainerInputs(self._container, given.pod, given.namespace, given.framework)
        inputs.set_value(int(value))
        try:
            satisfied = all(validation.expression.evaluate(inputs) for validation in self._rule.validations)
        except ExpressionError:
            return None
        return int(value) if satisfied else None


def _same(one: object, other: object) -> bool:
    """Return whether two quantities are the same number; what is no quantity is only the same as itself."""
    if one == other:
        return True
    try:
        return parse_quantity(one) == parse_quantity(other)
    except QuantityError:
        return False
