"""Kubernetes resource quantities as exact numbers.

Source: the grammar in the documentation of `k8s.io/apimachinery/pkg/api/resource.Quantity`
(https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
"""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal
from functools import lru_cache

from rules.text.i18n import Message

_NO_QUANTITY = Message(
    "{value!r} is not a quantity; a quantity is a string or a number, such as 2, 500m or 8Gi"
)

# [eE] followed by digits is an exponent; a bare E is the suffix exa.
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?:[eE](?P<exponent>[+-]?\d+)|(?P<suffix>[KMGTPE]i|[numkMGTPE]))?",
    re.ASCII,
)
_SCALE: dict[str, Decimal] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
# Kubernetes stores quantities as int64 and rounds to multiples of one nano, away from zero.
MAX_QUANTITY = 2**63 - 1
_NANO = Decimal("1e-9")
# The further digits of a longer text do not change a number that is limited to int64 and nano. The limit also
# bounds the time for malicious input.
_MAX_LENGTH = 64
# So many digits, plus the 19 of the greatest suffix (Ei): no digit is lost before rounding.
_CONTEXT = Context(prec=_MAX_LENGTH + 19)


class QuantityError(ValueError):
    """The text is not a quantity. The fault of the author of the pod or the rule."""

    def __init__(self, message: Message) -> None:
        super().__init__(message)

    def __str__(self) -> str:
        text: str = self.args[0].en
        return text


@lru_cache(maxsize=4096)
def _parse(text: str) -> int | Decimal:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise QuantityError(
            Message("{text!r} is not a quantity; write it as 2, 500m, 1k or 8Gi", text=text[:_MAX_LENGTH])
        )
    value = Decimal(match["number"])
    if match["suffix"]:
        value = _CONTEXT.multiply(value, _SCALE[match["suffix"]])
    elif match["exponent"] and value:
        exponent = int(match["exponent"])
        if abs(exponent) > 2 * _MAX_LENGTH:  # no mantissa of that length compensates it
            value = Decimal(MAX_QUANTITY if exponent > 0 else _NANO).copy_sign(value)
        else:
            value = value.scaleb(exponent, context=_CONTEXT)
    if abs(value) >= MAX_QUANTITY:
        return MAX_QUANTITY if value > 0 else -MAX_QUANTITY
    value = value.quantize(_NANO, rounding=ROUND_UP, context=_CONTEXT)
    whole = int(value)
    return whole if whole == value else value


def is_zero(value: object) -> bool:
    """Return whether a value is a quantity of 0."""
    try:
        return parse_quantity(value) == 0
    except QuantityError:
        return False


def parse_quantity(value: object) -> int | Decimal:
    """Return the number of a quantity: an int if it is whole, else a Decimal.

    value: a string (`"8Gi"`), without regard to blanks around it as in the API server's JSON, or a number.
    Values compare as numbers: `parse_quantity("1k") == parse_quantity("1e3") == 1000`.
    Raises QuantityError for anything else.
    """
    if isinstance(value, str):
        return _parse(value.strip(" ") if " " in value else value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QuantityError(_NO_QUANTITY.having(value=value))
    return _parse(repr(value)) if isinstance(value, float) else max(-MAX_QUANTITY, min(value, MAX_QUANTITY))
