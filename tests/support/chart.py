"""The Helm chart: its values with their descriptions, as its README lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.support.paths import ROOT

CHART: Final = ROOT / "manifests/chart"
VALUES: Final = CHART / "values.yaml"
SCHEMA: Final = CHART / "values.schema.json"
README: Final = CHART / "README.md"
_HEADING: Final = "## Values\n\n"


class Value(NamedTuple):
    """A value of the chart. path: its keys, separated by dots. description: the comment above it."""

    path: str
    default: Any
    description: str


def values() -> list[Value]:
    """Return the values that have a comment, in order, and those without one that are not mappings."""
    text = VALUES.read_text("utf-8")
    return list(_values(yaml.compose(text, yaml.SafeLoader), text.splitlines(), ()))


def _values(node: Any, lines: list[str], path: tuple[str, ...]) -> Iterator[Value]:
    for key, value in node.value:
        at = (*path, key.value)
        if described := _comment(lines, key.start_mark.line):
            yield Value(".".join(at), _default(value), described)
        elif isinstance(value, yaml.MappingNode):
            yield from _values(value, lines, at)
        else:
            yield Value(".".join(at), _default(value), "")


def _comment(lines: list[str], line: int) -> str:
    """Return the comment that ends directly above a line, as one line."""
    found: list[str] = []
    while line and (comment := re.fullmatch(r"\s*# ?(.*)", lines[line - 1])):
        found.insert(0, comment[1])
        line -= 1
    return " ".join(found)


def _default(node: Any) -> Any:
    return yaml.safe_load(yaml.serialize(node))


def readme() -> str:
    """Return the README with the table of the values as they are now."""
    written, _, _ = README.read_text("utf-8").partition(_HEADING)
    rows = [
        f"| `{each.path}` | `{json.dumps(each.default)}` | {_cell(each.description)} |" for each in values()
    ]
    return "\n".join([written + _HEADING + "| value | default | description |", "|---|---|---|", *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def files() -> list[Path]:
    """Return the links to the manifests and rules that the templates read."""
    return sorted((CHART / "files").iterdir())
