"""Semantic versions."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rules.nodes.devices.semver import normalized, parse_semver


def test_versions_are_ordered_by_precedence() -> None:
    """The example of semver.org, section 11."""
    before = "1.0.0-alpha 1.0.0-alpha.1 1.0.0-alpha.beta 1.0.0-beta 1.0.0-beta.2 1.0.0-beta.11 1.0.0-rc.1"
    versions = [parse_semver(text) for text in f"{before} 1.0.0 1.0.1 1.2.0 1.10.0 2.0.0".split()]
    assert all(one < other for one, other in pairwise(versions) if one and other)
    assert None not in versions


WRONG = [
    "",
    "1",
    "1.2",
    "v1.2.3",
    "01.2.3",
    "1.02.3",
    "1.2.3-",
    "1.2.3-01",
    "1.2.3+",
    "1.2.3-é",
    "1.2.x",
    " 1.2.3",
]


@pytest.mark.parametrize("text", [*WRONG, "99999999999999999999.0.0", "1.2.3-" + "a" * 64])
def test_other_texts_are_no_versions(text: str) -> None:
    assert parse_semver(text) is None


def test_build_metadata_does_not_count() -> None:
    assert parse_semver("1.2.3+b.1") == parse_semver("1.2.3")


@pytest.mark.parametrize("text", ["1.2.3", "1.2.3-rc.1", "0.0.0-0.a"])
def test_a_version_is_printed_as_it_was_read(text: str) -> None:
    assert text == str(parse_semver(text))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.0", "1.0.0"),
        ("01.01.01", "1.1.1"),
        ("1", "1.0.0"),
        ("1.2.3-rc.1", "1.2.3-rc.1"),
        ("0.00.0", "0.0.0"),
        ("1.2-rc", "1.2-rc"),
        ("", ".0.0"),
    ],
)
def test_a_short_version_is_completed(text: str, version: str) -> None:
    assert version == normalized(text)
