"""Capacity that a request takes of a device."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given

from rules.kube.quantity import parse_quantity
from rules.nodes.devices.capacity import (
    CapacityRequest,
    RequestPolicy,
    gives,
    most,
    read_policy,
    read_requests,
)
from tests.support.broken_json import JSON

TOTAL: Final = "80Gi"
VALUES: Final = {"default": "10Gi", "validValues": ["10Gi", "20Gi", "40Gi"]}
STEPS: Final = {"default": "10Gi", "validRange": {"min": "10Gi", "max": "70Gi", "step": "20Gi"}}
FREE: Final = {"default": "1Gi", "validRange": {"min": "1Gi"}}
FRACTIONS: Final = {"default": "500m", "validRange": {"min": "500m", "step": "500m"}}


def policy(given: dict[str, Any] | None) -> RequestPolicy | None:
    """Return the policy of a capacity."""
    return read_policy({"value": TOTAL} | ({"requestPolicy": given} if given else {}))


@pytest.mark.parametrize(
    ("of_device", "amount", "total", "expected"),
    [
        (None, "80Gi", TOTAL, True),
        (None, "81Gi", TOTAL, False),
        (None, "500m", "1", True),
        ({"default": "10Gi"}, "33Gi", TOTAL, True),
        (VALUES, "1", TOTAL, True),
        (VALUES, "40Gi", TOTAL, True),
        (VALUES, "41Gi", TOTAL, False),  # also less than the total
        (STEPS, "1", TOTAL, True),
        (STEPS, "70Gi", TOTAL, True),
        (STEPS, "71Gi", TOTAL, False),
        ({"validRange": {"min": "10Gi", "step": "20Gi"}}, "71Gi", TOTAL, False),  # 90Gi after rounding
        ({"validRange": {"min": "10Gi", "step": "20Gi"}}, "69Gi", TOTAL, True),
        (FREE, "79Gi", TOTAL, True),
        (FREE, "81Gi", TOTAL, False),
        ({"validRange": {"min": "0", "max": "1"}}, "2", TOTAL, False),
    ],
)
def test_an_unused_device_gives_what_its_policy_allows_and_its_total_holds(
    of_device: dict[str, Any] | None, amount: str, total: str, expected: bool
) -> None:
    assert expected is gives(parse_quantity(amount), policy(of_device), parse_quantity(total))


@pytest.mark.parametrize(
    ("of_device", "amount", "expected"),
    [
        (FRACTIONS, "700m", True),  # 1 in whole numbers and in thousandths
        (FRACTIONS, "1200m", None),  # 2 or 1500m
        (FRACTIONS, "100", False),
        ({"validRange": {"min": "1", "step": "1"}}, "1500m", True),
        ({"validRange": {"min": "1", "step": "1"}}, "1u", True),
        ({"validRange": {"min": "1", "step": "1"}}, "1000001u", None),
        ({"validRange": {"min": "1", "step": "0"}}, "1", None),
        ({"validRange": {"max": "1"}}, "1", None),
        ({"validRange": "1"}, "1", None),
        ({"validValues": ["1", "x"]}, "1", None),
        ({"validValues": list(map(str, range(1, 12)))}, "1", None),
        ({"validValues": ["1"], "validRange": {"min": "1"}}, "1", None),
        ("all", "1", None),
        ("all", "5", False),
    ],
)
def test_a_policy_that_versions_of_kubernetes_calculate_differently_or_that_is_unreadable_is_unknown(
    of_device: Any, amount: str, expected: bool | None
) -> None:
    """More than the total is too much by every policy."""
    assert expected is gives(parse_quantity(amount), policy(of_device), 4)


@pytest.mark.parametrize(
    ("of_device", "expected"),
    [
        (None, "80Gi"),
        (VALUES, "40Gi"),
        (STEPS, "70Gi"),
        ({"validRange": {"min": "10Gi", "step": "40Gi"}}, "50Gi"),
        (FREE, "80Gi"),
        ({"default": "1"}, "80Gi"),
    ],
)
def test_the_greatest_amount_that_a_device_gives_is_given_and_no_more(
    of_device: dict[str, Any] | None, expected: str
) -> None:
    limit, total = parse_quantity(expected), parse_quantity(TOTAL)
    assert limit == most(policy(of_device), total)
    assert (True, False) == tuple(gives(limit + more, policy(of_device), total) for more in (0, 1))


def test_a_request_names_amounts_of_capacities_in_any_version() -> None:
    requests = read_requests({"requests": {"b/memory": "1Gi", "a": "x"}})
    assert (CapacityRequest("a", None), CapacityRequest("b/memory", 2**30)) == requests
    assert () == read_requests(None) == read_requests({}) == read_requests({"requests": {}})


@pytest.mark.parametrize(
    "capacity", ["x", {"requests": 1}, {"requests": {str(number): "1" for number in range(33)}}]
)
def test_unreadable_or_too_many_requests_are_unreadable(capacity: Any) -> None:
    assert read_requests(capacity) is None


@given(JSON)
def test_any_json_is_read(document: Any) -> None:
    read_policy({"requestPolicy": document})
    read_requests(document)
    gives(1, read_policy({"requestPolicy": {"validRange": document}}), 1)
