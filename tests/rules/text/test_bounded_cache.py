"""What is small is found once; what is not is found again, and not kept."""

from __future__ import annotations

from typing import Any

import pytest

from rules.text.bounded_cache import bounded_cache, length
from tests.support.builders import policy, resource_rule


def test_only_arguments_that_fit_are_remembered() -> None:
    """The answer is the same in either case."""
    asked: list[str] = []

    def find(text: str) -> int:
        asked.append(text)
        return len(text)

    memo = bounded_cache(find, 2, lambda text: len(text) < 3)

    assert [memo(text) for text in ("a", "a", "long", "long")] == [1, 1, 4, 4]
    assert asked == ["a", "long", "long"]


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    """One more than two, and all are found anew."""
    asked: list[int] = []

    def find(number: int) -> int:
        asked.append(number)
        return -number

    memo = bounded_cache(find, 2, lambda _: True)

    assert [memo(number) for number in (1, 2, 1, 3, 3, 1, 2)] == [-1, -2, -1, -3, -3, -1, -2]
    assert asked == [1, 2, 3, 1, 2]


def test_what_raises_is_not_remembered() -> None:
    """It raises again."""
    asked: list[str] = []

    def find(text: str) -> str:
        asked.append(text)
        raise LookupError(text)

    memo = bounded_cache(find, 2, lambda _: True)
    for _ in range(2):
        with pytest.raises(LookupError):
            memo("a")

    assert asked == ["a", "a"]


@pytest.mark.parametrize(
    ("told", "characters"), [("", 0), ("ab", 2), ((), 0), (("ab", ("c", ("d",))), 4), ((("",),), 0)]
)
def test_the_length_of_texts_is_that_of_all_of_them(told: Any, characters: int) -> None:
    """However deep they stand."""
    assert characters == length(told)


@pytest.mark.parametrize("told", [1, True, None, 1.5, ["a"], ("a", 1), ("a", ("b", None))])
def test_what_is_no_text_has_no_length_that_fits(told: Any) -> None:
    """1, 1.0 and true are one key, and must not be taken for each other."""
    assert length(told) > 2**60


def test_a_policy_keeps_no_long_names() -> None:
    """Four thousand sets of names of a megabyte would be four gigabytes."""
    compiled = policy(resource_rule("vendor.com/mig-*"))
    name = f"vendor.com/mig-{'g' * 2**20}"
    found = [compiled.groups_of((given,)) for given in (name, "vendor.com/mig-1g", "vendor.com/mig-1g")]

    assert found[0] == found[1]
    assert found[0] is not compiled.groups_of((name,))
    assert found[1] is found[2]
