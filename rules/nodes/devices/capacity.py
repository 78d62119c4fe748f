"""Capacity that a request takes of a device, and whether an unused device has it.

A device that several claims may share gives each of them a part of its capacity; its request policy says
which amounts it gives. Other devices only must have the requested amount.
Source: `CapacityRequirements` and `CapacityRequestPolicy` of
https://kubernetes.io/docs/reference/generated/kubernetes-api/v1.36/, and `CmpRequestOverCapacity` in
https://pkg.go.dev/k8s.io/dynamic-resource-allocation/structured.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final, NamedTuple

from rules.kube.quantity import MAX_QUANTITY, QuantityError, parse_quantity

Amount = int | Decimal

# Limits of the API: values of a policy, and capacities of one request, which are those of a device.
_MAX_VALUES: Final = 10
_MAX_REQUESTS: Final = 32
_MILLI: Final = Decimal("0.001")


class RequestPolicy(NamedTuple):
    """The amounts of a capacity that a device gives; without values and a minimum, it gives any amount."""

    values: tuple[Amount, ...] = ()  # ascending
    minimum: Amount | None = None
    maximum: Amount | None = None
    step: Amount | None = None
    readable: bool = True
    default: Amount | None = None  # for a request that does not name the capacity; None: the total


class CapacityRequest(NamedTuple):
    """An amount that a request names. amount: None if it is unreadable."""

    name: str  # as it is written: a device that writes its domain differently does not have it
    amount: Amount | None


def read_policy(capacity: object) -> RequestPolicy | None:
    """Return the request policy of a capacity of a device, as JSON; None if it has none."""
    given = capacity.get("requestPolicy") if isinstance(capacity, Mapping) else None
    if given is None:
        return None
    try:
        values, of_range = given.get("validValues") or (), given.get("validRange")
        default = None if given.get("default") is None else parse_quantity(given["default"])
        if of_range is None:
            readable, amounts = len(values) <= _MAX_VALUES, tuple(map(parse_quantity, values))
            return RequestPolicy(amounts, readable=readable, default=default)
        minimum, maximum, step = (
            None if of_range.get(key) is None else parse_quantity(of_range[key])
            for key in ("min", "max", "step")
        )
    except (AttributeError, TypeError, QuantityError):
        return RequestPolicy(readable=False)
    sound = minimum is not None and minimum >= 0 and (step is None or step > 0)
    return RequestPolicy((), minimum, maximum, step, sound and not values, default)


def read_requests(capacity: object) -> tuple[CapacityRequest, ...] | None:
    """Return the amounts of `capacity` of a request, as JSON; None if it is unreadable."""
    given: Any = {} if capacity is None else capacity
    requests = given.get("requests") or {} if isinstance(given, Mapping) else None
    if not isinstance(requests, Mapping) or len(requests) > _MAX_REQUESTS:
        return None
    return tuple(CapacityRequest(str(name), _amount(value)) for name, value in sorted(requests.items()))


def _amount(value: object) -> Amount | None:
    try:
        return parse_quantity(value)
    except QuantityError:
        return None


def taken(amount: Amount, policy: RequestPolicy | None) -> Amount | None:
    """Return what a request for an amount takes of a device; None if that is unknown.

    The amount is rounded up to what the policy gives. What is more than the policy gives stays as it is.
    """
    if policy is None:
        return amount
    if not policy.readable:
        return None
    if policy.minimum is None:
        return next((value for value in policy.values if value >= amount), amount)
    if amount < policy.minimum or policy.step is None:
        return max(amount, policy.minimum)
    if amount >= MAX_QUANTITY or amount % _MILLI:
        return None  # newer versions refuse to calculate with it, older ones round it
    # Since 1.37 in thousandths, before in whole numbers, which a feature gate also sets.
    exact, whole = (_stepped(amount, policy.minimum, policy.step, unit) for unit in (_MILLI, Decimal(1)))
    return exact if exact == whole else None


def _stepped(amount: Amount, minimum: Amount, step: Amount, unit: Decimal) -> Amount:
    """Return the least sum of the minimum and steps that reaches an amount; all are rounded up to units."""
    of_step, first = _ceiling(step, unit), _ceiling(minimum, unit)
    return first + _ceiling(_ceiling(amount, unit) - first, of_step)


def _ceiling(amount: Amount, unit: Decimal) -> Decimal:
    return (amount / unit).to_integral_value(ROUND_CEILING) * unit


def gives(amount: Amount, policy: RequestPolicy | None, total: Amount) -> bool | None:
    """Return whether an unused device with this total gives an amount; None if that is unknown."""
    needed = taken(amount, policy)
    if needed is None:
        return False if amount > total else None
    if policy is not None:
        if policy.values and needed not in policy.values:
            return False
        if policy.maximum is not None and needed > policy.maximum:
            return False
    return needed <= total


def most(policy: RequestPolicy | None, total: Amount) -> Amount:
    """Return the greatest amount that an unused device with this total gives by a readable policy."""
    if policy is None:
        return total
    if policy.values:
        return policy.values[-1]
    limit = total if policy.maximum is None else min(policy.maximum, total)
    if policy.minimum is None or policy.step is None:
        return limit
    return limit - (limit - policy.minimum) % policy.step
