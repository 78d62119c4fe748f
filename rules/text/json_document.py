"""Fast JSON decoding, with the locations of values computed on demand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

import yaml

# Every reader of the values recurses; Kubernetes' own JSON decoder stops at 10,000, and no
# object that an API server accepts is deeper than some forty levels.
MAX_DEPTH: Final = 200

# Characters that the YAML reader rejects or takes as a line break, and escapes of surrogates.
_SPECIAL: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_SURROGATE: Final = ("\\ud", "\\uD")
# Numbers that YAML 1.1 reads as floats too: `1e3` is a string in YAML 1.1.
_FLOAT: Final = re.compile(r"-?[0-9]+\.[0-9]+(?:[eE][-+][0-9]+)?")
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_TEXT: Final = "tag:yaml.org,2002:str"
_BEGIN: Final = yaml.Mark("", 0, 0, 0, None, 0)


class Json(NamedTuple):
    """An object or list, and its PyYAML node tree, each level of which is read on first access."""

    value: Any
    root: yaml.Node


def read_json(text: str) -> Json | None:
    """Return the object or list of a JSON text, with the values that YAML 1.1 gives its members.

    Returns None if the text is not JSON, or if the YAML reader reports it: a duplicate key, a character that
    it does not accept, or nesting deeper than MAX_DEPTH.
    """
    begin = _skip(text, 0)
    if text[begin : begin + 1] not in ("{", "[") or _has_special_characters(text):
        return None
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    if _is_deeper(value, MAX_DEPTH):
        return None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    start = _mark(text, _skip(text, 0))
    end = _mark(text, len(text.rstrip()), start)
    return Json(value, _Object(text, start, end) if isinstance(value, dict) else _List(text, start, end))


def _has_special_characters(text: str) -> bool:
    special = "\x7f" in text if text.isascii() else _SPECIAL.search(text) is not None
    return special or any(escape in text for escape in _SURROGATE)


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        if not level:
            return False
        level = [
            member
            for each in level
            for member in (each.values() if isinstance(each, dict) else each)
            if isinstance(member, dict | list)
        ]
    return bool(level)


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("duplicate key")
    return found


def _float(text: str) -> float | str:
    return float(text) if _FLOAT.fullmatch(text) else text


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def _mark(text: str, index: int, before: yaml.Mark = _BEGIN) -> yaml.Mark:
    """Return the mark of an index, counted from an earlier mark."""
    newline = text.rfind("\n", before.index, index)
    if newline < 0:
        return yaml.Mark("", index, before.line, before.column + index - before.index, None, 0)
    line = before.line + text.count("\n", before.index, index)
    return yaml.Mark("", index, line, index - newline - 1, None, 0)


class _Object(yaml.MappingNode):
    """An object whose members are read on first access."""

    def __init__(self, text: str, start: yaml.Mark, end: yaml.Mark) -> None:
        self.tag, self.start_mark, self.end_mark, self.flow_style = "", start, end, True
        self._text = text

    @cached_property
    def value(self) -> list[tuple[yaml.Node, yaml.Node]]:
        nodes = [*_members(self._text, self.start_mark)]
        return list(zip(nodes[::2], nodes[1::2], strict=True))


class _List(yaml.SequenceNode):
    """A list whose items are read on first access."""

    def __init__(self, text: str, start: yaml.Mark, end: yaml.Mark) -> None:
        self.tag, self.start_mark, self.end_mark, self.flow_style = "", start, end, True
        self._text = text

    @cached_property
    def value(self) -> list[yaml.Node]:
        return [*_members(self._text, self.start_mark)]


def _members(text: str, mark: yaml.Mark) -> Iterator[yaml.Node]:
    """Yield the items of an object or list that begins at a mark; an object's keys and values alternate."""
    at = _skip(text, mark.index + 1)
    while text[at] not in "}]":
        node, mark = _node(text, _mark(text, at, mark))
        yield node
        at = _skip(text, mark.index)
        if text[at] in ",:":
            at = _skip(text, at + 1)


def _node(text: str, start: yaml.Mark) -> tuple[yaml.Node, yaml.Mark]:
    """Return the value that begins at a mark, and the mark of its end."""
    value, index = _DECODER.raw_decode(text, start.index)
    end = _mark(text, index, start)
    if isinstance(value, dict):
        return _Object(text, start, end), end
    if isinstance(value, list):
        return _List(text, start, end), end
    written = value if isinstance(value, str) else text[start.index : index]
    return yaml.ScalarNode(_TEXT, written, start, end), end


def _skip(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # it matches at any position
