"""Bounded caches: small arguments are cached, large ones are not."""

from __future__ import annotations

from typing import Any

import pytest

from rules.text.bounded_cache import bounded_cache, length
from tests.support.builders import policy, resource_rule


def test_only_small_arguments_are_cached() -> None:
    """The result is the same in both cases."""
    computed: list[str] = []

    def find(text: str) -> int:
        computed.append(text)
        return len(text)

    memo = bounded_cache(find, 2, lambda text: len(text) < 3)

    assert [memo(text) for text in ("a", "a", "long", "long")] == [1, 1, 4, 4]
    assert computed == ["a", "long", "long"]


def test_a_full_cache_is_cleared() -> None:
    """After a third key, a cache of two computes all of them again."""
    computed: list[int] = []

    def find(number: int) -> int:
        computed.append(number)
        return -number

    memo = bounded_cache(find, 2, lambda _: True)

    assert [memo(number) for number in (1, 2, 1, 3, 3, 1, 2)] == [-1, -2, -1, -3, -3, -1, -2]
    assert computed == [1, 2, 3, 1, 2]


def test_an_exception_is_not_cached() -> None:
    """It raises again."""
    computed: list[str] = []

    def find(text: str) -> str:
        computed.append(text)
        raise LookupError(text)

    memo = bounded_cache(find, 2, lambda _: True)
    for _ in range(2):
        with pytest.raises(LookupError):
            memo("a")

    assert computed == ["a", "a"]


@pytest.mark.parametrize(
    ("key", "characters"), [("", 0), ("ab", 2), ((), 0), (("ab", ("c", ("d",))), 4), ((("",), None), 0)]
)
def test_the_length_of_a_tuple_is_the_sum_of_its_strings(key: Any, characters: int) -> None:
    """At any depth; an absent value is None."""
    assert characters == length(key)


@pytest.mark.parametrize("key", [1, True, 1.5, ["a"], ("a", 1), ("a", ("b", 1.5))])
def test_other_types_have_a_huge_length(key: Any) -> None:
    """1, 1.0 and True are equal keys of a dict, but different arguments."""
    assert length(key) > 2**60


def test_a_policy_does_not_cache_long_names() -> None:
    """Four thousand sets of names of a megabyte would be four gigabytes."""
    compiled = policy(resource_rule("vendor.com/mig-*"))
    name = f"vendor.com/mig-{'g' * 2**20}"
    plans = [compiled.plan_for((given,)) for given in (name, "vendor.com/mig-1g", "vendor.com/mig-1g")]

    assert plans[0] == plans[1]
    assert plans[0] is not compiled.plan_for((name,))
    assert plans[1] is plans[2]
