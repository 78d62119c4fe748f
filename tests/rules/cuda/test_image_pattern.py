"""Regular expressions for image references: correct, and fast for every image."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.image_catalog import ImageRegex
from rules.schema.errors import reason_of
from tests.support.cpu_time import loops

# References as long as they may be, for which Python's engine alone would take hours.
SLOW = [
    ("(?:.*-).*-.*-.*-.*-.*-X", "-"),
    (".*a.*a.*a.*a.*a.*a.*b", "a"),
    (r"\d*\d*\d*\d*\d*\d*x", "7"),
    ("(?:a|a)" * 64 + ".*b", "a"),
    ("(?:a+)+b", "a"),
    ("(?:a|aa)*c", "a"),
]
TOO_LONG = "reading the group of this regular expression can take too long: "


@given(
    st.sampled_from(
        [
            r".*/base:cu(?P<cuda>\d+\.\d+)-.*",
            "a|b.*",
            r"(?:x\)[)(*|]y){2}",
            "(ab)?c",
            r"[\w.-]+/\W?\d\\w",
            r"[^\d]\S\D",
        ]
    ),
    st.data(),
)
def test_a_text_matches_as_in_pythons_engine(source: str, data: st.DataObject) -> None:
    """With the same groups."""
    text = data.draw(st.from_regex(re.compile(source, re.ASCII)) | st.text("abx/:)*1.", max_size=9))
    actual, expected = ImageRegex(source).fullmatch(text), re.compile(source, re.ASCII).fullmatch(text)

    assert (expected and expected.groupdict()) == (actual and actual.groupdict())


@pytest.mark.parametrize(("source", "letter"), SLOW)
def test_matching_is_fast_for_every_image(source: str, letter: str) -> None:
    """In another process, which can be killed if it takes minutes."""
    call = f"ImageRegex({source!r}).fullmatch({letter * 700!r})"
    code = f"from rules.cuda.image_catalog import ImageRegex; print({call})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert "None\n" == done.stdout


@pytest.mark.parametrize("source", [r"\w{100}", r"[\w-]{200}", r"\W{100}", r"\w" * 300])
def test_letters_and_digits_are_ascii_in_both_engines(source: str) -> None:
    """Unicode classes would take 20 ms to compile for each image."""
    pattern = ImageRegex(source)

    assert loops(lambda: [pattern.fullmatch(f"é{number}") for number in range(50)]) < 20


@pytest.mark.parametrize(
    ("source", "message"),
    [
        *((f"{source}|(?P<cuda>.*)", TOO_LONG) for source, _ in SLOW),
        ("(?:x|(?P<cuda>[0-9]*))*y", TOO_LONG),
        ("(?i)(?P<cuda>x)", "expected no flags such as (?i)"),
        ("a" * 1025, "expected at most 1024 characters, got 1025"),
        ("a(", "expected a regular expression, got 'a('"),
        ("a(?=b)", "look-ahead"),
        (r"(a)\1", "backreferences are not supported"),
    ],
)
def test_a_pattern_with_exponential_time_is_invalid(source: str, message: str) -> None:
    """With a reason on one line."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its message is compared below
        ImageRegex(source)

    reason = reason_of(caught.value).en
    assert message in reason
    assert "\n" not in reason
