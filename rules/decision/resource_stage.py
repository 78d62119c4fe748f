"""Resource rules: what a container leaves out is put in, then what stands there is judged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rules.cel.expression import ExpressionError, number
from rules.decision import messages as message
from rules.kube.pod import Container
from rules.kube.quantity import QuantityError, parse_quantity
from rules.model.decision import Violation
from rules.model.rule import Action, LimitsPolicy, RequestsPolicy, ResourceRule
from rules.text.i18n import Language
from rules.text.paths import field_path

# Fields of `resources` in the order in which they are looked at.
LIMITS = "limits"
REQUESTS = "requests"


class ResourceRuleResult(NamedTuple):
    """What a rule finds in a container, and warnings about the rule itself."""

    rule: ResourceRule
    violations: tuple[Violation, ...]
    warnings: tuple[str, ...]


def told(variable: str, container: Container) -> tuple[Any, ...]:
    """Return what a variable of an expression stands for in a container, as expressions take it."""
    if variable == "limits":
        return tuple(container.limits.items())
    if variable == "requests":
        return tuple({**container.limits, **container.requests}.items())
    return ("name", container.name), ("image", container.image)


def complete(rule: ResourceRule, container: Container) -> list[str]:
    """Put in what the rule says of a container that uses its group; return what: `main: limits vendor.com/x`.

    The API server copies a limit into an absent request, so a request that stands is left alone unless it has
    to follow the limit.
    """
    done = []
    if rule.limits is not LimitsPolicy.DISABLED and rule.default and container.limits.get(rule.key) is None:
        container.set_resource(LIMITS, rule.key, rule.default)
        done.append(f"{container.name}: {LIMITS} {rule.key}")
    for key in _keys(rule, container):
        limit, request = container.limits.get(key), container.requests.get(key)
        wanted = None
        if rule.requests is RequestsPolicy.FROM_LIMITS and limit is not None:
            wanted = limit
        elif rule.requests is RequestsPolicy.REQUIRED and request is None:
            wanted = limit if limit is not None else rule.default or None
        if wanted is not None and not _same(wanted, request):
            container.set_resource(REQUESTS, key, wanted)
            done.append(f"{container.name}: {REQUESTS} {key}")
    return done


def asks(rule: ResourceRule, container: Container) -> bool:
    """Tell whether a container has a limit of the rule's resource."""
    return any(container.limits.get(key) is not None for key in _keys(rule, container))


def judge(
    rules: Iterable[ResourceRule], container: Container, language: Language
) -> list[ResourceRuleResult]:
    """Return for each rule that finds something in a container that uses its group what it finds."""
    judged = [_judged(rule, container, language) for rule in rules]
    return [each for each in judged if each.violations or each.warnings]


def _judged(rule: ResourceRule, container: Container, language: Language) -> ResourceRuleResult:
    judging = _ResourceRuleCheck(rule, container, language)
    for key in _keys(rule, container):
        limit, request = container.limits.get(key), container.requests.get(key)
        judging.presence(key, limit, request)
        if limit is not None:
            judging.value(LIMITS, key, limit)
        if request is not None and not _same(limit, request):
            judging.value(REQUESTS, key, request)
    return ResourceRuleResult(rule, tuple(judging.violations), tuple(judging.warnings))


def _keys(rule: ResourceRule, container: Container) -> tuple[str, ...]:
    """Return the names that the rule is about in a container: its key, or those that its glob matches."""
    if not rule.key_pattern:
        return (rule.key,)
    names = {**container.limits, **container.requests}
    return tuple(name for name in names if rule.key_pattern.fullmatch(name))


class _ResourceRuleCheck:
    """What is found of one rule in one container."""

    def __init__(self, rule: ResourceRule, container: Container, language: Language) -> None:
        self._rule = rule
        self._container = container
        self._language = language
        self.violations: list[Violation] = []
        self.warnings: list[str] = []

    def presence(self, key: str, limit: object, request: object) -> None:
        """Judge what stands where it may not, or does not where it must."""
        rule = self._rule
        if limit is None:
            if rule.limits is LimitsPolicy.REQUIRED:
                self.fail(LIMITS, key, message.LIMIT_MISSING)
        elif rule.limits is LimitsPolicy.DISABLED:
            self.fail(LIMITS, key, message.LIMIT_FORBIDDEN, found=limit)
        if rule.requests is RequestsPolicy.REQUIRED:
            if request is None and limit is None:
                self.fail(REQUESTS, key, message.REQUEST_MISSING)
        elif request is not None and not _same(limit, request):
            self._own_request(key, limit, request)
        others = [name for name in self._container.names if name != key and rule.excludes.find(name)]
        if others and not limit is request is None:
            field, found = (LIMITS, limit) if limit is not None else (REQUESTS, request)
            for other in dict.fromkeys(others):
                self.fail(field, key, message.EXCLUDED, found=found, other=other)

    def _own_request(self, key: str, limit: object, request: object) -> None:
        """Judge a request that is not the limit."""
        if limit is not None:
            self.fail(REQUESTS, key, message.REQUEST_DIFFERS, found=request, limit=limit)
        elif self._rule.limits is LimitsPolicy.DISABLED and self._rule.requests is RequestsPolicy.DISABLED:
            self.fail(REQUESTS, key, message.REQUEST_FORBIDDEN, found=request)
        else:
            limit_path = field_path(self._container.resource_path(LIMITS, key))
            self.fail(REQUESTS, key, message.REQUEST_WITHOUT_LIMIT, found=request, limit_path=limit_path)

    def fail(
        self,
        field: str,
        key: str,
        words: message.MessageWriter,
        *,
        action: Action | None = None,
        **facts: object,
    ) -> None:
        """Keep a violation at `limits` or `requests` of a resource; action: instead of the rule's."""
        rule = self._rule
        path = field_path(self._container.resource_path(field, key))
        facts |= {"container": self._container.name, "path": path, "key": key}
        line = message.violation(self._language, words, rule.description, facts)
        self.violations.append(Violation(rule.name, action or rule.action, path, line))

    def value(self, field: str, key: str, quantity: object) -> None:
        """Judge the quantity that stands there."""
        try:
            value = parse_quantity(quantity)
        except QuantityError:
            self.fail(field, key, message.NO_QUANTITY, found=quantity)
            return
        if value < 0:
            self.fail(field, key, message.NOT_POSITIVE, found=quantity)
        elif self._rule.integer and not isinstance(value, int):
            self.fail(field, key, message.NOT_WHOLE, found=quantity)
        elif self._rule.validations:
            self._expressions(field, key, quantity)

    def _expressions(self, field: str, key: str, quantity: object) -> None:
        value = quantity if isinstance(quantity, str) else number(quantity)

        def value_of(variable: str) -> Any:
            return value if variable == "value" else told(variable, self._container)

        for validation in self._rule.validations:
            source = validation.expression.source
            try:
                passed = validation.expression(value_of)
            except ExpressionError as error:
                facts = {"rule": self._rule.name, "container": self._container.name, "key": key}
                facts |= {"expression": source, "error": str(error)}
                self.warnings.append(message.sentence(self._language, message.UNEVALUATED, facts))
                continue
            if not passed:
                wanted = validation.message.in_language(self._language) or source
                words, follows = message.invalid(validation.expression.variables), validation.action
                self.fail(field, key, words, action=follows, found=quantity, wanted=wanted)


def _same(one: object, other: object) -> bool:
    """Tell whether two quantities are the same number; what is no quantity is only the same as itself."""
    if one == other:
        return True
    try:
        return parse_quantity(one) == parse_quantity(other)
    except QuantityError:
        return False
