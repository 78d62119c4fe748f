"""Quantities are exactly the numbers of Kubernetes."""

from __future__ import annotations

from decimal import Decimal

import pytest

from rules.kube.quantity import MAX_QUANTITY, QuantityError, is_zero, parse_quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("20", 20),
        ("+20", 20),
        ("-20", -20),
        ("007", 7),
        ("5.", 5),
        (".5", Decimal("0.5")),
        ("1.50", Decimal("1.5")),
        ("1.0", 1),
        ("500m", Decimal("0.5")),
        ("2000m", 2),
        ("3000000u", 3),
        ("4000000000n", 4),
        ("1n", Decimal("0.000000001")),
        ("1k", 1_000),
        ("1M", 1_000_000),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 1_024),
        ("1Mi", 1_048_576),
        ("8Gi", 8_589_934_592),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1.5Gi", 1_610_612_736),
        ("1e3", 1_000),
        ("1E3", 1_000),
        ("1e+3", 1_000),
        ("25e-1", Decimal("2.5")),
        ("0e999", 0),
    ],
)
def test_a_quantity_is_its_number(text: str, number: int | Decimal) -> None:
    """Decimal and binary suffixes, exponents, and fractions."""
    assert number == parse_quantity(text)


@pytest.mark.parametrize("text", ["1", "1000m", "1.0", "1e0", "10e-1", "+1", "1000000u", " 1 "])
def test_a_whole_number_is_an_int_in_every_notation(text: str) -> None:
    """Whether a quantity is whole depends on its value, not on its notation."""
    amount = parse_quantity(text)

    assert (int, 1) == (type(amount), amount)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one",
        "1.2.3",
        "1,5",
        "1i",
        "1ki",
        "1mi",
        "1K",
        "1Kib",
        "0x10",
        "--1",
        "1e",
        "1e1.5",
        ".",
        "1_000",
        "½",
        "१",
        "NaN",
        "inf",
        "1\n",
        "1 2",
    ],
)
def test_an_invalid_quantity_is_an_error(text: str) -> None:
    """The message shows valid examples."""
    with pytest.raises(QuantityError) as caught:
        parse_quantity(text)

    assert f"{text!r} is not a quantity; write it as 2, 500m, 1k or 8Gi" == str(caught.value)


@pytest.mark.parametrize(
    ("value", "number"),
    [(2, 2), (-2, -2), (0.5, Decimal("0.5")), (2.0, 2), (1e22, MAX_QUANTITY), (1e-3, Decimal("0.001"))],
)
def test_a_number_in_json_is_a_quantity(value: float, number: int | Decimal) -> None:
    """Files omit the quotes; the API server accepts that too."""
    assert number == parse_quantity(value)


@pytest.mark.parametrize(("value", "shown"), [(True, "True"), (None, "None"), ([1], "[1]"), ({}, "{}")])
def test_other_types_are_not_quantities(value: object, shown: str) -> None:
    """A boolean is not a number here, unlike in Python."""
    with pytest.raises(QuantityError) as caught:
        parse_quantity(value)

    assert f"{shown} is not a quantity; a quantity is a string or a number, such as 2, 500m or 8Gi" == str(
        caught.value
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9223372036854775807", MAX_QUANTITY),
        ("9223372036854775808", MAX_QUANTITY),
        ("9Ei", MAX_QUANTITY),
        ("1e999999999", MAX_QUANTITY),
        ("-1e40", -MAX_QUANTITY),
        ("9" * 64, MAX_QUANTITY),
        (f"0.{'0' * 57}1e65", 10**7),
    ],
)
def test_a_number_beyond_64_bits_becomes_the_greatest_quantity(text: str, number: int) -> None:
    """Kubernetes caps quantities in the same way; the time does not depend on the exponent."""
    assert number == parse_quantity(text)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_of_any_length_is_capped_too(sign: int) -> None:
    """Python cannot convert integers of more than 4300 digits to strings."""
    assert sign * MAX_QUANTITY == parse_quantity(sign * 10**5000)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.0000000001", Decimal("0.000000001")),
        ("1e-999999999", Decimal("0.000000001")),
        ("-0.1n", Decimal("-0.000000001")),
        ("1.0000000001", Decimal("1.000000001")),
        (f"1.{'0' * 59}1Mi", Decimal("1048576.000000001")),
    ],
)
def test_a_fraction_below_one_nano_is_rounded_away_from_zero(text: str, number: Decimal) -> None:
    """As in Kubernetes, so that a positive request never becomes zero."""
    assert number == parse_quantity(text)


def test_a_text_too_long_for_a_quantity_is_an_error() -> None:
    """The message contains only its beginning."""
    with pytest.raises(QuantityError) as caught:
        parse_quantity("1" * 65)

    assert f"{'1' * 64!r} is not a quantity; write it as 2, 500m, 1k or 8Gi" == str(caught.value)


@pytest.mark.parametrize(
    ("value", "zero"),
    [
        *[(quantity, True) for quantity in ("0", " 0 ", "0m", "+0", "-0.0Gi", ".0", 0, 0.0)],
        *[
            (quantity, False)
            for quantity in ("1", "0.1", "-1", "1n", 1, 0.5, "", " ", "0x", "-", None, [], ["0"])
        ],
    ],
)
def test_zero_is_known_in_every_notation(value: object, zero: bool) -> None:
    """What is no quantity is not zero."""
    assert zero == is_zero(value)
