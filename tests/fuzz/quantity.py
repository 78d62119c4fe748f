"""Text to a quantity: the number of the reference implementation, or an error."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from rules.kube.quantity import QuantityError, parse_quantity
from tests.support import reference_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

# Characters. Longer ones are refused, whatever they say: a bound on the work.
_LONGEST = 64


def seeds() -> Iterator[bytes]:
    """Yield one quantity of each form."""
    yield from b"0 20 -1.5Gi +.5 5. 500m 1e3 1E-3 9Ei 3n 1k 9223372036854775807 0.0000000001 ++1 1Kib".split()


def words() -> Iterator[str]:
    """Yield parts of quantities."""
    yield from ("0", "1", "9", "00", "9223372036854775807", ".", "+", "-", "e", "E", "_", "\u0661", "i")
    yield from ("n", "u", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def check(data: bytes) -> None:
    """Both agree on validity and number; a whole number is an int."""
    text = data.decode("utf-8", "replace")
    expected = reference_quantity.quantity(text) if len(text.strip(" ")) <= _LONGEST else None
    try:
        amount = parse_quantity(text)
    except QuantityError:
        assert expected is None, expected
        return
    assert expected == Fraction(amount)
    assert isinstance(amount, int) == (Fraction(amount).denominator == 1)
