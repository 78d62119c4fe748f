"""Reference implementation of quantities by the documentation: exact fractions, no code of the product.

Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import string
from fractions import Fraction

_SCALES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 10**3), "": Fraction(1)}
_SCALES |= {suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", 1)}
_SCALES |= {f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", 1)}
_GREATEST = Fraction(2**63 - 1)
# Beyond it every number that 64 characters can write is capped, or rounded to a nano.
_FAR = 200


def quantity(text: str) -> Fraction | None:
    """Return the number of a quantity, blanks around which do not count; None for an invalid text."""
    text = text.strip(" ")
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    whole = _digits(rest)
    rest = rest[len(whole) :]
    decimals = ""
    if rest.startswith("."):
        decimals = _digits(rest[1:])
        rest = rest[1 + len(decimals) :]
    if not whole + decimals:
        return None
    scale = _SCALES.get(rest)
    if scale is None:
        scale = _power(rest)
    if scale is None:
        return None
    size = Fraction(int(whole + decimals), 10 ** len(decimals)) * scale
    nanos = -(-size * 10**9 // 1)  # rounded up: away from zero, for the sign comes after
    return sign * min(Fraction(nanos, 10**9), _GREATEST)


def _digits(text: str) -> str:
    """Return the leading digits of a text."""
    end = 0
    while end < len(text) and text[end] in string.digits:
        end += 1
    return text[:end]


def _power(text: str) -> Fraction | None:
    """Return the power of ten of an exponent, such as e3 or E-3; None if it is invalid."""
    digits = text[2:] if text[1:2] in ("+", "-") else text[1:]
    if text[:1] not in ("e", "E") or not digits or _digits(digits) != digits:
        return None
    exponent = min(int(digits), _FAR)
    return Fraction(10) ** (-exponent if text[1:2] == "-" else exponent)
