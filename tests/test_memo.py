"""What is small is found once; what is not is found again, and not kept."""

from __future__ import annotations

from rules.memo import remembered
from tests.build import policy, resource_rule


def test_only_arguments_that_fit_are_remembered() -> None:
    """The answer is the same in either case."""
    asked: list[str] = []

    def find(text: str) -> int:
        asked.append(text)
        return len(text)

    memo = remembered(find, 2, lambda text: len(text) < 3)

    assert [memo(text) for text in ("a", "a", "long", "long")] == [1, 1, 4, 4]
    assert asked == ["a", "long", "long"]


def test_a_policy_keeps_no_long_names() -> None:
    """Four thousand sets of names of a megabyte would be four gigabytes."""
    compiled = policy(resource_rule("vendor.com/mig-*"))
    name = f"vendor.com/mig-{'g' * 2**20}"
    found = [compiled.groups_of((given,)) for given in (name, "vendor.com/mig-1g", "vendor.com/mig-1g")]

    assert found[0] == found[1]
    assert found[0] is not compiled.groups_of((name,))
    assert found[1] is found[2]
