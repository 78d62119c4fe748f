"""The writers of the stored forms of built-in rules and tables of facts; `make chart` calls them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from rules.cel.expression import Expression
from rules.cuda import tables
from rules.cuda.tables import FACTS_FOLDER, read_table
from rules.model.match import ResourceIndex
from rules.model.rule import RuleSet
from rules.schema import built_in
from rules.schema.built_in import CLASS
from rules.text.glob import glob_text
from rules.text.i18n import Text
from rules.text.yaml_document import Location


def stored_tables() -> str:
    """Return the content of STORED for the files of `facts/`. Raises SourceError."""
    lines = []
    for path in sorted(FACTS_FOLDER.glob("*.yaml")):
        head = tables.stored_head(path.stem, path.read_text("utf-8"))
        lines.append(f"{head}{json.dumps(read_table(path.stem), ensure_ascii=False)}]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def built_in_text(files: Iterable[tuple[str, str]], folder: str, rules: RuleSet) -> str:
    """Return the content of FILE for rule files and the rules in them."""
    texts = (json.dumps(_json_of(rule, folder), ensure_ascii=False) for rule in rules)
    return ",\n".join([built_in.stored_head(files, folder), *texts]) + "]\n"


def _json_of(value: Any, folder: str) -> Any:
    """Return a value in the types of JSON."""
    match value:
        case Enum():
            arguments: Any = [value.value]
        case Text():
            arguments = dict(value.by_language)
        case Location():
            arguments = [value.file.removeprefix(folder), value.line, value.column]
        case Expression():
            arguments = [value.source, [*value.variables]]
        case re.Pattern():
            arguments = [glob_text(value)]
        case ResourceIndex():
            arguments = [*value]
        case tuple() if not hasattr(value, "_fields"):
            return [_json_of(item, folder) for item in value]
        case tuple():
            arguments = [*value]
        case frozenset():
            arguments = sorted(value)
        case Struct():
            members = astuple(value)
            required = len(members) - len(value.__struct_defaults__)
            defaults = astuple(type(value)(*members[:required]))
            arguments = {
                name: _json_of(member, folder)
                for place, (name, member) in enumerate(zip(value.__struct_fields__, members, strict=True))
                if place < required or member != defaults[place]
            }
        case _:
            return value
    return {CLASS + type(value).__name__: arguments}
