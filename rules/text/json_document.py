"""JSON text as values, decoded fast, and the places of those values, looked up when somebody asks for one."""

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

# Characters that the YAML reader refuses or takes for a line's end, and escapes of halves of one.
_ODD: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_HALF: Final = ("\\ud", "\\uD")
# What YAML 1.1 reads as a number too: `1e3` is text to it.
_FLOAT: Final = re.compile(r"-?[0-9]+\.[0-9]+(?:[eE][-+][0-9]+)?")
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_TEXT: Final = "tag:yaml.org,2002:str"
_BEGIN: Final = yaml.Mark("", 0, 0, 0, None, 0)


class Json(NamedTuple):
    """An object or list, and its node tree as PyYAML has them, of which a level is read when asked for."""

    value: Any
    root: yaml.Node


def read_json(text: str) -> Json | None:
    """Return the object or list that a text is, with the values that YAML 1.1 gives its members.

    None where it is no JSON, or where the YAML reader has something to say of it: of a key that stands twice,
    of characters that it does not take, of nesting deeper than MAX_DEPTH.
    """
    begin = _skip(text, 0)
    if text[begin : begin + 1] not in ("{", "[") or _is_odd(text):
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


def _is_odd(text: str) -> bool:
    odd = "\x7f" in text if text.isascii() else _ODD.search(text) is not None
    return odd or any(half in text for half in _HALF)


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
        raise ValueError("a key stands twice")
    return found


def _float(text: str) -> float | str:
    return float(text) if _FLOAT.fullmatch(text) else text


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


def _mark(text: str, index: int, before: yaml.Mark = _BEGIN) -> yaml.Mark:
    """Return the mark of a place, counted from one before it."""
    newline = text.rfind("\n", before.index, index)
    if newline < 0:
        return yaml.Mark("", index, before.line, before.column + index - before.index, None, 0)
    line = before.line + text.count("\n", before.index, index)
    return yaml.Mark("", index, line, index - newline - 1, None, 0)


class _Object(yaml.MappingNode):
    """An object whose members are looked for when somebody asks."""

    def __init__(self, text: str, start: yaml.Mark, end: yaml.Mark) -> None:
        self.tag, self.start_mark, self.end_mark, self.flow_style = "", start, end, True
        self._text = text

    @cached_property
    def value(self) -> list[tuple[yaml.Node, yaml.Node]]:
        nodes = [*_members(self._text, self.start_mark)]
        return list(zip(nodes[::2], nodes[1::2], strict=True))


class _List(yaml.SequenceNode):
    """A list, likewise."""

    def __init__(self, text: str, start: yaml.Mark, end: yaml.Mark) -> None:
        self.tag, self.start_mark, self.end_mark, self.flow_style = "", start, end, True
        self._text = text

    @cached_property
    def value(self) -> list[yaml.Node]:
        return [*_members(self._text, self.start_mark)]


def _members(text: str, mark: yaml.Mark) -> Iterator[yaml.Node]:
    """Yield what stands in an object or list that begins at a mark: of an object keys and values by turns."""
    at = _skip(text, mark.index + 1)
    while text[at] not in "}]":
        node, mark = _node(text, _mark(text, at, mark))
        yield node
        at = _skip(text, mark.index)
        if text[at] in ",:":
            at = _skip(text, at + 1)


def _node(text: str, start: yaml.Mark) -> tuple[yaml.Node, yaml.Mark]:
    """Return the value that begins at a mark, and where it ends."""
    value, index = _DECODER.raw_decode(text, start.index)
    end = _mark(text, index, start)
    if isinstance(value, dict):
        return _Object(text, start, end), end
    if isinstance(value, list):
        return _List(text, start, end), end
    written = value if isinstance(value, str) else text[start.index : index]
    return yaml.ScalarNode(_TEXT, written, start, end), end


def _skip(text: str, at: int) -> int:
    return _BLANKS.match(text, at).end()  # type: ignore[union-attr]  # it matches anywhere
