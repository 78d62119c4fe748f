"""Resource rules: what a container leaves out is put in, then what stands there is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rules import message
from rules.expression import ExpressionError
from rules.model import Action, Language, LimitsPolicy, RequestsPolicy, ResourceRule, Violation
from rules.patch import field_path
from rules.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from rules.pod import Container

# Fields of `resources` in the order in which they are looked at.
LIMITS = "limits"
REQUESTS = "requests"


def number(quantity: object) -> int | float:
    """Return a quantity as CEL takes it: an int where it is whole, a double where not."""
    value = parse_quantity(quantity)
    return float(value) if isinstance(value, Decimal) else value


def numbers(quantities: dict[str, Any]) -> dict[str, int | float]:
    """Return the quantities of a container as CEL takes them; what is no quantity is left out."""
    result: dict[str, int | float] = {}
    for key, quantity in quantities.items():
        try:
            result[key] = number(quantity)
        except QuantityError:
            continue
    return result


def variables(container: Container) -> dict[str, Callable[[], Any]]:
    """Return what expressions may name of a container, computed when it is named."""
    return {
        "limits": lambda: numbers(dict(container.limits)),
        "requests": lambda: numbers({**container.limits, **container.requests}),
        "container": lambda: {"name": container.name, "image": container.image},
    }


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


def judge(rule: ResourceRule, container: Container, language: Language) -> tuple[list[Violation], list[str]]:
    """Return what a container that uses the rule's group violates, and warnings about the rule itself."""
    judgement = _Judgement(rule, container, language)
    for key in _keys(rule, container):
        for field, words, facts in _presence(rule, container, key):
            judgement.fail(field, key, words, **facts)
        limit, request = container.limits.get(key), container.requests.get(key)
        if limit is not None:
            judgement.value(LIMITS, key, limit)
        if request is not None and not _same(limit, request):
            judgement.value(REQUESTS, key, request)
    return judgement.violations, judgement.warnings


def _keys(rule: ResourceRule, container: Container) -> tuple[str, ...]:
    """Return the names that the rule is about in a container: its key, or those that its glob matches."""
    if not rule.key_pattern:
        return (rule.key,)
    names = {**container.limits, **container.requests}
    return tuple(name for name in names if rule.key_pattern.fullmatch(name))


def _presence(
    rule: ResourceRule, container: Container, key: str
) -> Iterator[tuple[str, message.Words, dict[str, Any]]]:
    """Yield (field, words, facts) for what stands where it may not, or does not where it must."""
    limit, request = container.limits.get(key), container.request(key)
    own = container.requests.get(key)
    if limit is None and rule.limits is LimitsPolicy.REQUIRED:
        yield LIMITS, message.LIMIT_MISSING, {}
    if limit is not None and rule.limits is LimitsPolicy.DISABLED:
        yield LIMITS, message.LIMIT_FORBIDDEN, {"found": limit}
    match rule.requests:
        case RequestsPolicy.REQUIRED if request is None:
            yield REQUESTS, message.REQUEST_MISSING, {}
        case RequestsPolicy.DISABLED if own is not None and limit is None:
            yield REQUESTS, message.REQUEST_FORBIDDEN, {"found": own}
        case RequestsPolicy.FROM_LIMITS if own is not None and limit is None:
            limit_path = field_path(container.resource_path(LIMITS, key))
            yield REQUESTS, message.REQUEST_WITHOUT_LIMIT, {"found": own, "limit_path": limit_path}
        case RequestsPolicy.DISABLED | RequestsPolicy.FROM_LIMITS if own is not None and not _same(
            limit, own
        ):
            yield REQUESTS, message.REQUEST_DIFFERS, {"found": own, "limit": limit}
    present = limit if limit is not None else own
    if present is not None:
        names = {**container.limits, **container.requests}
        for other in (name for name in names if name != key and rule.excludes.find(name)):
            yield (
                (LIMITS if limit is not None else REQUESTS),
                message.EXCLUDED,
                {"found": present, "other": other},
            )


class _Judgement:
    """What is found of one rule in one container."""

    def __init__(self, rule: ResourceRule, container: Container, language: Language) -> None:
        self._rule = rule
        self._container = container
        self._language = language
        self.violations: list[Violation] = []
        self.warnings: list[str] = []

    def fail(
        self, field: str, key: str, words: message.Words, *, action: Action | None = None, **facts: object
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
        else:
            self._expressions(field, key, quantity)

    def _expressions(self, field: str, key: str, quantity: object) -> None:
        values = variables(self._container) | {"value": lambda: number(quantity)}
        for validation in self._rule.validations:
            source = validation.expression.source
            try:
                passed = validation.expression(values)
            except ExpressionError as error:
                facts = {"rule": self._rule.name, "container": self._container.name, "key": key}
                facts |= {"expression": source, "error": str(error)}
                self.warnings.append(message.sentence(self._language, message.UNEVALUATED, facts))
                continue
            if not passed:
                wanted = validation.message.in_language(self._language) or source
                follows = validation.action
                self.fail(field, key, message.INVALID, action=follows, found=quantity, wanted=wanted)


def _same(one: object, other: object) -> bool:
    """Tell whether two quantities are the same number; what is no quantity is only the same as itself."""
    try:
        return one == other or parse_quantity(one) == parse_quantity(other)
    except QuantityError:
        return False
