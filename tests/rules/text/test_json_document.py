"""JSON is read fast, with the same values, locations and errors as by the YAML reader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.text.paths import Path
from rules.text.yaml_document import MAX_DEPTH, MAX_VALUES, Document, Location, SourceError, read

# JSON cannot begin with a comment, so the YAML reader reads the text.
COMMENT = "# YAML\n"

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda members: st.lists(members, max_size=4) | st.dictionaries(st.text(), members, max_size=4),
)


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of a value and the paths of all its members."""
    yield path
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for step, member in members:
        yield from paths(member, (*path, step))


def read_all(text: str, above: int = 0) -> list[str]:
    """Return values, locations and errors of a text; above: lines to subtract."""
    return [line for result in read(text, "f") for line in _told(result, above)]


def _told(outcome: Document | SourceError, above: int) -> Iterator[str]:
    if isinstance(outcome, SourceError):
        yield f"{_counted(outcome.location, above)} {outcome.problem.en}"
        return
    yield repr(outcome.value)
    yield from (_counted(error.location, above) for error in outcome.duplicates)
    for path in paths(outcome.value):
        yield (
            f"{path} {_counted(outcome.locate(path), above)} "
            f"{_counted(outcome.locate(path, key=True), above)}"
        )


def _counted(location: Location, above: int) -> str:
    return f"{location.line - above}:{location.column}"


@given(
    st.lists(VALUES) | st.dictionaries(st.text(), VALUES),
    st.sampled_from([None, 0, 3, "\t"]),
    st.sampled_from([(",", ":"), (" ,  ", " : "), (",\n", ":\n  ")]),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_json_is_read_as_the_yaml_reader_reads_it(
    value: Any, indent: Any, separators: tuple[str, str], escaped: bool, newline: str
) -> None:
    """In any layout."""
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=escaped)
    text = text.replace("\n", newline)

    assert read_all(COMMENT + text, above=1) == read_all(text)


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
def test_text_that_json_and_yaml_read_differently_is_read_as_yaml(text: str) -> None:
    """Exponents without a sign, duplicate keys, and text that is not JSON."""
    assert read_all(COMMENT + text, above=1) == read_all(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"a"\n: {"b": 1}}',
        '\t{"a": {"b": 1}}',
        f'{{"{"k" * 2000}": 1, "a": {{"b": 1}}}}',
        f'{{"{"k" * 2**20}": 1, "a": {{"b": 1}}}}',
    ],
)
def test_json_that_is_invalid_yaml_or_large_is_read_and_located_at_its_beginning(text: str) -> None:
    """A line break before a colon, a leading tab, a key of more than 1,024 characters; a MiB."""
    (result,) = read(text, "f")

    assert isinstance(result, Document)
    assert ({"b": 1}, Location("f", 1, 1)) == (result.value["a"], result.locate(("a", "b")))


def test_json_with_many_values_is_read() -> None:
    """The limit of values is for aliases, which JSON does not have."""
    text = f"[{'0,' * MAX_VALUES}0]"

    assert [MAX_VALUES + 1] == [
        len(result.value) for result in read(text, "f") if isinstance(result, Document)
    ]
