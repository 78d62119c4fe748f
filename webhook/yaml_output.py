"""YAML as kubectl prints it: no aliases, texts of several lines as blocks, printable."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

import yaml

# Marks that change the direction of text, line breaks of YAML 1.1; PyYAML escapes control characters itself.
_MARKS: Final = re.compile("[\x85\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# How lines begin that GitHub and Azure Pipelines read as commands, also after spaces.
_COMMAND: Final = re.compile(r"^\s*(?:::|##\[|##vso\[)", re.MULTILINE)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _MARKS.search(text):
        style = '"'
    elif "\n" in text:
        style = '"' if _COMMAND.search(text) else "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
_Dumper.add_multi_representer(str, _text)  # and for members of a StrEnum


def dump_yaml(value: Any, *, sort_keys: bool = False) -> str:
    """Return a JSON value as YAML."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True, width=sys.maxsize)
    return _MARKS.sub(lambda mark: f"\\u{ord(mark[0]):04x}", text)  # all of them are in double quotes
