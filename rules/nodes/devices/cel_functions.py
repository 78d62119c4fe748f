"""The functions that Kubernetes adds to CEL for selectors of devices: versions, quantities, strings.

A version or a quantity is passed to CEL as a map of one entry, whose key is its type. A function returns
FAILURE where Kubernetes has an error: CEL cannot convert it, which is also an error.
Source: https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-cel-libraries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Final

from rules.kube.quantity import QuantityError, parse_quantity
from rules.nodes.devices.devices import Attribute, Scalar
from rules.nodes.devices.semver import Semver, normalized, parse_semver

FAILURE: Final = object()
_SEMVER: Final = "kubernetes.Semver"
_QUANTITY: Final = "kubernetes.Quantity"
_INT64: Final = range(-(2**63), 2**63)
# Maximum characters of a text that `replace` returns or `split` takes. Values of attributes have 64 at most.
_MAX_TEXT: Final = 256
_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
_UPPER: Final = str.maketrans(ascii_lowercase, ascii_uppercase)


class _FailedError(Exception):
    """The arguments are not those that the function takes."""


def of_attribute(attribute: Attribute) -> Any:
    """Return the value of an attribute in the types of CEL."""
    value = attribute.value
    if isinstance(value, tuple) and not isinstance(value, Semver):
        return [_given(scalar) for scalar in value]
    return _given(value)


def _given(value: Scalar) -> Any:
    return {_SEMVER: str(value)} if isinstance(value, Semver) else value


def of_quantity(quantity: int | Decimal) -> dict[str, str]:
    """Return a quantity in the types of CEL; equal quantities are equal there."""
    return {_QUANTITY: f"{Decimal(quantity).normalize():f}"}


def _ordered(value: object) -> Semver | Decimal:
    """Return the value by which a version or a quantity compares."""
    if isinstance(value, dict) and len(value) == 1:
        if version := parse_semver(_text(value.get(_SEMVER, ""))):
            return version
        if text := value.get(_QUANTITY):
            return Decimal(_text(text))
    raise _FailedError


def _quantity(value: object) -> Decimal:
    quantity = _ordered(value)
    if isinstance(quantity, Semver):
        raise _FailedError
    return quantity


def _version(value: object) -> Semver:
    version = _ordered(value)
    if not isinstance(version, Semver):
        raise _FailedError
    return version


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _FailedError
    return value


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _FailedError
    return value


def _compare(one: object, other: object) -> int:
    left, right = _ordered(one), _ordered(other)
    if isinstance(left, Semver) and isinstance(right, Semver):
        return (left > right) - (left < right)
    return (_quantity(one) > _quantity(other)) - (_quantity(one) < _quantity(other))


def _semver(text: object, normalize: object = False) -> dict[str, str]:
    version = parse_semver(normalized(_text(text)) if normalize is True else _text(text))
    if version is None:
        raise _FailedError
    return {_SEMVER: str(version)}


def _parsed(text: object) -> dict[str, str]:
    return of_quantity(parse_quantity(_text(text)))


def _succeeds(read: Callable[..., Any]) -> Callable[..., bool]:
    def try_it(*arguments: object) -> bool:
        _text(arguments[0])
        try:
            read(*arguments)
        except (_FailedError, QuantityError):
            return False
        return True

    return try_it


def _is_whole(value: object) -> bool:
    quantity = _quantity(value)
    return quantity == int(quantity) and int(quantity) in _INT64


def _whole(value: object) -> int:
    if not _is_whole(value):
        raise _FailedError
    return int(_quantity(value))


def _add(one: object, other: object, sign: int = 1) -> dict[str, str]:
    term = _quantity(other) if isinstance(other, dict) else Decimal(_int(other))
    return of_quantity(_quantity(one) + sign * term)


def _sign(value: object) -> int:
    quantity = _quantity(value)
    return (quantity > 0) - (quantity < 0)


def _replace(text: object, old: object, new: object, limit: object = -1) -> str:
    source, before, after = _text(text), _text(old), _text(new)
    if len(source) + source.count(before) * len(after) > _MAX_TEXT:
        raise _FailedError
    return source.replace(before, after, _int(limit))


def _split(text: object, separator: object, limit: object = -1) -> list[str]:
    source, mark, most = _text(text), _text(separator), _int(limit)
    if len(source) > _MAX_TEXT or not mark:
        raise _FailedError
    return [] if most == 0 else source.split(mark, max(most - 1, -1))


def _substring(text: object, start: object, end: object = None) -> str:
    source, first = _text(text), _int(start)
    last = len(source) if end is None else _int(end)
    if not 0 <= first <= last <= len(source):
        raise _FailedError
    return source[first:last]


def _includes(values: object, value: object) -> bool:
    return any(_equal(candidate, value) for candidate in (values if isinstance(values, list) else [values]))


def _equal(one: object, other: object) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns FAILURE instead of raising: the CEL library logs what is raised."""

    def guarded(*arguments: object) -> Any:
        try:
            return function(*arguments)
        except (_FailedError, QuantityError, TypeError, ValueError, ArithmeticError):
            return FAILURE

    return guarded


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "semver": _semver,
    "isSemver": _succeeds(_semver),
    "major": lambda version: _version(version).major,
    "minor": lambda version: _version(version).minor,
    "patch": lambda version: _version(version).patch,
    "quantity": _parsed,
    "isQuantity": _succeeds(_parsed),
    "isInteger": _is_whole,
    "asInteger": _whole,
    "asApproximateFloat": lambda value: float(_quantity(value)),
    "sign": _sign,
    "add": _add,
    "sub": lambda one, other: _add(one, other, -1),
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "includes": _includes,
    "lowerAscii": lambda text: _text(text).translate(_LOWER),
    "upperAscii": lambda text: _text(text).translate(_UPPER),
    "trim": lambda text: _text(text).strip(),
    "replace": _replace,
    "split": _split,
    "substring": _substring,
    "indexOf": lambda text, part: _text(text).find(_text(part)),
    "lastIndexOf": lambda text, part: _text(text).rfind(_text(part)),
}
FUNCTIONS: Final = {name: _guarded(function) for name, function in _FUNCTIONS.items()}
