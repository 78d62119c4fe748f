"""YAML as kubectl prints it: no aliases, texts of several lines as blocks."""

from __future__ import annotations

from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def dump_yaml(value: Any, *, sort_keys: bool = False) -> str:
    """Return a JSON value as YAML."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True, width=1000)
    return text
