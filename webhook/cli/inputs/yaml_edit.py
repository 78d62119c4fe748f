"""In-place edits of YAML text; everything else stays as written, including comments and layout."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import yaml
from msgspec import Struct

from rules.text.paths import Path
from rules.text.yaml_document import Document

# Strings that need no quotes: names, paths, JSON Pointers; except words with another meaning in YAML 1.1.
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_/~.-]*")
_NOT_STRINGS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


class Position(NamedTuple):
    """A position in a text: line and column, from 0."""

    line: int
    column: int


class Edit(Struct, frozen=True):
    """A text that replaces the range from start to end."""

    start: Position
    end: Position
    text: str


def scalar_edit(document: Document, path: Path, text: str) -> Edit | None:
    """Return the edit that replaces the scalar at a path; None if it is absent, merged or an alias."""
    nodes = nodes_at(document, path)
    if not nodes or not isinstance(nodes[-1], yaml.ScalarNode):
        return None
    return Edit(start_of(document, nodes[-1]), _end(document, nodes[-1]), text)


def list_edit(document: Document, path: Path, values: Sequence[Any]) -> Edit | None:
    """Return the edit that replaces the value of a key by a list, in block or flow style like its parents.

    None if the value is absent, merged or an alias.
    """
    items = [flow(value) for value in values]
    nodes = nodes_at(document, path)
    if not nodes:
        return None
    *above, key, value = nodes
    if value.start_mark.index < key.end_mark.index:
        return None
    end = _end(document, value)
    block_style = not any(getattr(node, "flow_style", False) for node in above)
    if block_style and items and isinstance(value, yaml.SequenceNode) and not value.flow_style:
        start = start_of(document, value)
        return Edit(start, end, f"\n{' ' * start.column}".join(f"- {item}" for item in items))
    after_colon = Position(document.line + key.end_mark.line, key.end_mark.column + 1)
    if block_style and items:
        indent = " " * (key.start_mark.column + 2)
        return Edit(after_colon, end, "".join(f"\n{indent}- {item}" for item in items))
    return Edit(after_colon, end, f" [{', '.join(items)}]")


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text after edits that do not overlap."""
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    for edit in sorted(set(edits), key=lambda edit: edit.start, reverse=True):
        (first, start), (last, end) = edit.start, edit.end
        inserted = edit.text.replace("\n", newline)
        lines[first : last + 1] = [f"{lines[first][:start]}{inserted}{lines[last][end:]}"]
    return "".join(lines)


def flow(value: Any) -> str:
    """Return a JSON value of printable strings and integers in YAML flow style: JSON with few quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(name)}: {flow(member)}" for name, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_STRINGS:
        return value
    return json.dumps(value, ensure_ascii=False)


def nodes_at(document: Document, path: Iterable[str | int]) -> list[yaml.Node]:
    """Return the nodes from the root to the key and the value at a path; empty if it is absent."""
    nodes: list[yaml.Node] = []
    node = document.tree()
    key: yaml.Node = node
    for step in path:
        nodes.append(node)
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            key = node = node.value[step]
        elif isinstance(node, yaml.MappingNode):
            member = next((pair for pair in reversed(node.value) if pair[0].value == str(step)), None)
            if member is None:
                return []
            key, node = member
        else:
            return []
    return [*nodes, key, node]


def start_of(document: Document, node: yaml.Node) -> Position:
    """Return where the text of a value begins."""
    return Position(document.line + node.start_mark.line, node.start_mark.column)


def _end(document: Document, node: yaml.Node) -> Position:
    """Return the end of a value's text; the end mark of a block is the start of the next token."""
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    line, column = node.end_mark.line, node.end_mark.column
    if not column:  # a block scalar, with the blank lines after it
        above = "".join(document.lines[:line]).rstrip().splitlines()
        line, column = len(above) - 1, len(above[-1])
    return Position(document.line + line, column)
