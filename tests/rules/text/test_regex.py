"""Bounds of steps: Python's engine takes less time for what they accept."""

from __future__ import annotations

import re

import pytest

from rules.text.regex import most_steps
from tests.support.cpu_time import loops

LONGEST = 100


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        ("abc", 3),
        (r"v?[0-9]+\.[0-9]+(?:\.[0-9]+)*(?:-.*)?", 10_509),
        ("a|ab", 3),
        (".*-cu(?P<cuda>[0-9]+)", 10_806),
        (r"(?!.*x)(a{1,2})\1", 314),
        ("[^a]+a", 300),
        (r"\d+[^\W\d]", 300),
    ],
)
def test_only_what_may_go_on_in_several_ways_multiplies(source: str, steps: int) -> None:
    assert steps == most_steps(source, LONGEST)


@pytest.mark.parametrize(
    "source",
    [
        "(?:a|a)*!",
        "(?:ax|Ax)*!",
        "(?:a|[^b])*!",
        r"(?:a|\w\b)*!",
        r"(?:\D|[^0-9])*!",
        "(?:éx|[à-ü]x)*!",
        "(?:.|a)*!",
        "(a*)*!",
        "(?:a*?)+?!",
        "(?>(?:a|a)*!)",
        "(?:a|a)*+!",
        "(?=(?:a|a)*!)",
        "(?:(?=a)|a)*!",
        "(?:a|)*!",
        r"(?:a*\b)*!",
        "(?:a|a)" * 64,
        "a?" * 64 + "!",
        "a*" * 10 + "!",
        "(a)(?(1)b|c)",
        "(?i:a)",
    ],
)
def test_what_takes_years_has_a_bound_of_years(source: str) -> None:
    """So have conditions and flags of groups, which it does not know."""
    assert 10**15 < most_steps(source, LONGEST)


@pytest.mark.parametrize(
    "source", [r"(?:a*!|a*)*", ".*a.*a.*!|.*", r"(?:\w+\.)*!", "a*a*!", "(?:a|ab|abc)!", "(?:a|a){3}a*!"]
)
@pytest.mark.parametrize("text", ["a" * LONGEST, "abc" * 33, "a." * 50])
def test_a_match_takes_no_more_steps_than_the_bound(source: str, text: str) -> None:
    """A step takes a hundredth of a microsecond; a loop, 300,000 of another kind."""
    pattern, steps = re.compile(source), most_steps(source, LONGEST)

    assert steps > 10**15 or loops(lambda: pattern.fullmatch(text)) < 1 + steps / 100_000


@pytest.mark.parametrize(
    "source", ["(" * 500 + ")" * 500, "a{1,99999999999}", "(", "a" * 1025, "(?P<a>b)(?P<a>c)"]
)
def test_an_expression_that_cannot_be_parsed_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        most_steps(source, LONGEST)


def test_an_expression_with_many_groups_is_bounded_in_time() -> None:
    assert 100 > loops(lambda: most_steps("(?:" * 90 + "a|b" * 150 + ")?" * 90, LONGEST))
