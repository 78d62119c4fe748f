"""JSON is read fast, and to the values, places and mistakes that the YAML reader has for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.text.json_document import MAX_DEPTH, read_json
from rules.text.location import Location
from rules.text.paths import Path
from rules.text.yaml_document import MAX_VALUES, Document, SourceError, read

# What no JSON begins with, so that the YAML reader takes the text.
COMMENT = "# YAML\n"

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda members: st.lists(members, max_size=4) | st.dictionaries(st.text(), members, max_size=4),
)


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of a value and those of all that is in it."""
    yield path
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for step, member in members:
        yield from paths(member, (*path, step))


def told(text: str, above: int = 0) -> list[str]:
    """Return all that is read of a text: values, places, mistakes; above: lines to leave out."""
    return [line for found in read(text, "f") for line in _told(found, above)]


def _told(found: Document | SourceError, above: int) -> Iterator[str]:
    if isinstance(found, SourceError):
        yield f"{_counted(found.location, above)} {found.message}"
        return
    yield repr(found.value)
    yield from (_counted(error.location, above) for error in found.duplicates)
    for path in paths(found.value):
        yield f"{path} {_counted(found.locate(path), above)} {_counted(found.locate(path, key=True), above)}"


def _counted(location: Location, above: int) -> str:
    return f"{location.line - above}:{location.column}"


@given(
    st.lists(VALUES) | st.dictionaries(st.text(), VALUES),
    st.sampled_from([None, 0, 3, "\t"]),
    st.sampled_from([(",", ":"), (" ,  ", " : "), (",\n", ":\n  ")]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_json_is_what_yaml_makes_of_it(
    value: Any, indent: Any, separators: tuple[str, str], escaped: bool, newline: str
) -> None:
    """However it is laid out."""
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=escaped)
    text = text.replace("\n", newline)

    assert told(COMMENT + text, above=1) == told(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": {"a": 1, "a": 2}, "a": 3}',
        '{"a": 1e3, "b": 1.5e3, "c": 1.5e+3, "d": 1.0E-2, "e": 1.0e+999, "f": -0, "g": -0.0}',
        '{"a": NaN, "b": Infinity, "c": -Infinity}',
        f"[{'9' * 5000}]",
        '["\\ud83d", "a"]',
        '["\x7f"]',
        '["a\ufeff", "\\ufeff\\u0085\\u2028\\u0000\\/"]',
        '["a\x85b"]',
        '["a\u2028--- b"]',
        '["a\tb"]',
        '{"<<": {"a": 1}, "b": "yes", "1": "="}',
        "{a: 1, b: [x, {y: z}]}",
        '{"a": [1, 2}',
        '{"a": 1} {"b": 2}',
        '{"a": 1}\n---\n{"b": 2}\n',
        '{"a": 1} # a',
        "[" * MAX_DEPTH + "]" * MAX_DEPTH,
        "[1,\n" + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "]",
        "[" * 100_000,
        "{}",
        "[]",
        "\n\n  [ ]\n\n",
    ],
)
def test_what_json_and_yaml_see_differently_is_as_yaml_sees_it(text: str) -> None:
    """Numbers without a sign in their exponent, keys that stand twice, and what is no JSON."""
    assert told(COMMENT + text, above=1) == told(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a"\n: {"b": 1}}', (2, 9)),
        ('\t{"a": {"b": 1}}', (1, 14)),
        (f'{{"{"k" * 2000}": 1, "a": {{"b": 1}}}}', (1, 2020)),
    ],
)
def test_json_that_yaml_cannot_read_is_read(text: str, place: tuple[int, int]) -> None:
    """A key apart from its colon, a tab before it all, a key of more than 1,024 characters."""
    (found,) = read(text, "f")

    assert isinstance(found, Document)
    assert ({"b": 1}, Location("f", *place)) == (found.value["a"], found.locate(("a", "b")))


def test_json_of_many_values_is_not_taken_for_aliases() -> None:
    """It has none: there are no more values than are written."""
    text = f"[{'0,' * MAX_VALUES}0]"

    assert [MAX_VALUES + 1] == [len(found.value) for found in read(text, "f") if isinstance(found, Document)]


def test_a_mark_is_that_of_the_yaml_reader() -> None:
    """Both ends, of keys and of values: what edits a text cuts there."""
    text = '{"a": [1,\n "b"],\n  "c": {}}\n'
    found = read_json(text)

    assert found is not None
    ((a, values), (c, _)) = found.root.value
    assert [(0, 1, 0, 4), (0, 6, 1, 5), (1, 1, 1, 4), (2, 2, 2, 5), (0, 0, 2, 10)] == [
        (node.start_mark.line, node.start_mark.column, node.end_mark.line, node.end_mark.column)
        for node in (a, values, values.value[1], c, found.root)
    ]
