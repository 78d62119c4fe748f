"""Resource stage: sets what a container leaves out, then validates what is set."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from decimal import Decimal
from itertools import islice
from typing import Final, NamedTuple

from rules.cel.syntax_errors import ExpressionError
from rules.decision import messages
from rules.decision.cel_inputs import ContainerInputs
from rules.kube.pod import Container, Pod
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.decision import AdmissionWarning, Violation
from rules.model.rule import (
    Action,
    FailurePolicy,
    LimitsPolicy,
    RequestsPolicy,
    ResourceRule,
    Validation,
)
from rules.text.i18n import Language, Text
from rules.text.paths import field_path

# Fields of `resources` in the order of validation.
LIMITS: Final = "limits"
REQUESTS: Final = "requests"
# Resources that one must not be used with and that are reported of it; a container that uses more is denied
# for these, and a glob that excludes its own matches would report every pair.
_MOST_EXCLUDED: Final = 8


class ResourceRuleResult(NamedTuple):
    """What a rule finds in a container, and warnings about the rule itself."""

    violations: tuple[Violation, ...]
    warnings: tuple[AdmissionWarning, ...]


def complete(rule: ResourceRule, container: Container) -> list[str]:
    """Set what the rule says for a container that uses its group; return what: `main: limits vendor.com/x`.

    The API server copies a limit into an absent request, so an existing request is left alone unless it must
    follow the limit.
    """
    done = []
    if rule.limits is not LimitsPolicy.DISABLED and rule.default and container.limits.get(rule.key) is None:
        container.set_resource(LIMITS, rule.key, rule.default)
        done.append(f"{container.name}: {LIMITS} {rule.key}")
    for key in _keys(rule, container):
        limit, request = container.limits.get(key), container.requests.get(key)
        value = None
        if rule.requests is RequestsPolicy.FROM_LIMITS and limit is not None:
            value = limit
        elif rule.requests is RequestsPolicy.REQUIRED and request is None:
            value = limit if limit is not None else rule.default or None
        if value is not None and not _same(value, request):
            container.set_resource(REQUESTS, key, value)
            done.append(f"{container.name}: {REQUESTS} {key}")
    return done


def requests(rule: ResourceRule, container: Container) -> bool:
    """Return whether a container has a limit of the rule's resource."""
    return any(container.limits.get(key) is not None for key in _keys(rule, container))


def validate(
    rules: Iterable[ResourceRule], container: Container, pod: Pod, namespace: str, language: Language
) -> list[ResourceRuleResult]:
    """Return what each rule finds in a container that uses its group, for those that find something."""
    inputs = ContainerInputs(container, pod, namespace)
    checks = [_ResourceRuleCheck(rule, inputs, language).run() for rule in rules]
    return [each for each in checks if each.violations or each.warnings]


def _keys(rule: ResourceRule, container: Container) -> tuple[str, ...]:
    """Return the names in a container that the rule is about: its key, or those that its glob matches."""
    if not rule.key_pattern:
        return (rule.key,)
    names = {**container.limits, **container.requests}
    return tuple(name for name in names if rule.key_pattern.fullmatch(name))


class _ResourceRuleCheck:
    """The check of one container against one rule."""

    def __init__(self, rule: ResourceRule, inputs: ContainerInputs, language: Language) -> None:
        self._rule = rule
        container = self._container = inputs.container
        self._inputs = inputs
        self._language = language
        self._excluded: Collection[str] = ()
        if not rule.excludes.is_empty:
            found = rule.excludes.find
            self._excluded = dict.fromkeys([name for name in container.names if found(name)])
        self._violations: list[Violation] = []
        self._warnings: list[AdmissionWarning] = []

    def run(self) -> ResourceRuleResult:
        """Return what the rule finds."""
        container, rule = self._container, self._rule
        for key in _keys(rule, container):
            limit, request = container.limits.get(key), container.requests.get(key)
            differs = request is not None and not _same(limit, request)
            self._presence(key, limit, request, differs=differs)
            if limit is not None:
                self._value(LIMITS, key, limit)
            if differs:
                self._value(REQUESTS, key, request)
        return ResourceRuleResult(tuple(self._violations), tuple(self._warnings))

    def _presence(self, key: str, limit: object, request: object, *, differs: bool) -> None:
        """Check what is set and must not be, or is not set and must be. differs: there is another request."""
        rule = self._rule
        if limit is None:
            if rule.limits is LimitsPolicy.REQUIRED:
                self._add(LIMITS, key, messages.LIMIT_MISSING)
        elif rule.limits is LimitsPolicy.DISABLED:
            self._add(LIMITS, key, messages.LIMIT_FORBIDDEN, found=limit)
        if rule.requests is RequestsPolicy.REQUIRED:
            if request is None and limit is None:
                self._add(REQUESTS, key, messages.REQUEST_MISSING)
        elif differs:
            self._own_request(key, limit, request)
        if self._excluded and (limit is not None or request is not None):
            field, found = (LIMITS, limit) if limit is not None else (REQUESTS, request)
            for other in islice((name for name in self._excluded if name != key), _MOST_EXCLUDED):
                self._add(field, key, messages.EXCLUDED, found=found, other=other)

    def _own_request(self, key: str, limit: object, request: object) -> None:
        """Report a request that is not the limit."""
        if limit is not None:
            self._add(REQUESTS, key, messages.REQUEST_DIFFERS, found=request, limit=limit)
        elif self._rule.limits is LimitsPolicy.DISABLED and self._rule.requests is RequestsPolicy.DISABLED:
            self._add(REQUESTS, key, messages.REQUEST_FORBIDDEN, found=request)
        else:
            limit_path = field_path(self._container.resource_path(LIMITS, key))
            self._add(REQUESTS, key, messages.REQUEST_WITHOUT_LIMIT, found=request, limit_path=limit_path)

    def _add(
        self,
        field: str,
        key: str,
        words: messages.Words,
        *,
        action: Action | None = None,
        fix: Text | None = None,
        **found: object,
    ) -> None:
        """Add a violation at `limits` or `requests` of a resource; action, fix: instead of the usual ones."""
        rule = self._rule
        path = field_path(self._container.resource_path(field, key))
        if rule.default and key == rule.key and str(found.get("found")) == rule.default:
            found["found"] = messages.THE_DEFAULT.in_language(self._language).format(found=rule.default)
        facts = {**found, "container": self._container.name, "path": path, "key": key}
        said = messages.violation(self._language, words, rule.description, facts, fix)
        self._violations.append(Violation(rule.name, action or rule.action, path, *said, self._language))

    def _value(self, field: str, key: str, quantity: object) -> None:
        """Check a quantity that is set."""
        try:
            value = parse_quantity(quantity)
        except QuantityError:
            self._add(field, key, messages.NO_QUANTITY, found=quantity)
            return
        if value < 0:
            self._add(field, key, messages.NOT_POSITIVE, found=quantity)
        elif self._rule.integer and not isinstance(value, int):
            self._add_with_value(field, key, messages.NOT_WHOLE, found=quantity)
        elif self._rule.validations:
            self._validations(field, key, quantity)

    def _validations(self, field: str, key: str, quantity: object) -> None:
        self._inputs.set_value(quantity)
        for validation in self._rule.validations:
            source = validation.expression.source
            try:
                passed = validation.expression(self._inputs.__getitem__)
            except ExpressionError as error:
                self._not_evaluated(field, key, quantity, validation, error)
                continue
            if not passed:
                expected = validation.message.in_language(self._language) or source
                words, action = messages.invalid(validation.expression.variables), validation.action
                own_fix = validation.fix.in_language(self._language)
                self._add_with_value(
                    field,
                    key,
                    words,
                    action=action,
                    fix=messages.OWN_FIX if own_fix else None,
                    found=quantity,
                    expected=expected,
                    own_fix=own_fix,
                )

    def _not_evaluated(
        self, field: str, key: str, quantity: object, validation: Validation, error: ExpressionError
    ) -> None:
        if self._rule.failure_policy is FailurePolicy.FAIL:
            words, source = messages.VALIDATION_ERROR, validation.expression.source
            self._add(
                field, key, words, action=validation.action, found=quantity, expression=source, error=error
            )
            return
        facts = {"expression": validation.expression.source, "error": str(error)}
        facts |= {"container": self._container.name, "key": key}
        self._warnings.append(
            messages.evaluation_error(self._language, messages.VALIDATION_IGNORED, self._rule.name, facts)
        )

    def _add_with_value(
        self,
        field: str,
        key: str,
        words: messages.Words,
        *,
        action: Action | None = None,
        fix: Text | None = None,
        **found: object,
    ) -> None:
        """Add a violation of the value `found`, which is suggested in the unit of the resource, if known."""
        if (value := self._in_units(found["found"])) is not None:
            found |= {"value": value, "unit": self._rule.unit}
            fix = messages.USE_VALUE
        self._add(field, key, words, action=action, fix=fix, **found)

    def _in_units(self, quantity: object) -> int | None:
        """Return a quantity with suffix or fraction as a number of the resource, if that satisfies the rule.

        A plain whole number is a number of the resource already.
        """
        if not self._rule.unit or str(quantity).isdecimal():
            return None
        value = Decimal(parse_quantity(quantity)) / Decimal(parse_quantity(self._rule.unit))
        if value != int(value) or value <= 0 or _same(int(value), quantity):
            return None
        inputs = ContainerInputs(self._container, self._inputs.pod, self._inputs.namespace)
        inputs.set_value(int(value))
        try:
            satisfied = all(each.expression(inputs.__getitem__) for each in self._rule.validations)
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
