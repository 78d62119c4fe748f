"""What is wrong with a rule file: where, what, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from rules.text.location import Location
from rules.text.paths import Path, field_path
from rules.text.yaml_document import Document

_KINDS: Final = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    dict: "an object",
    list: "a list",
}
_WANTED: Final = {
    "string_type": "a string",
    "bool_type": "a boolean",
    "int_type": "a number",
    "dict_type": "an object",
    "list_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


class Code(StrEnum):
    """What sort of mistake or doubt; the names stay as they are, for those who filter by them.

    docs/ci.md tells what each is about.
    """

    NOT_YAML = "not-yaml"
    DUPLICATE_KEY = "duplicate-key"
    UNKNOWN_KEY = "unknown-key"
    MISSING_KEY = "missing-key"
    WRONG_TYPE = "wrong-type"
    WRONG_VALUE = "wrong-value"
    BAD_EXPRESSION = "bad-expression"
    BAD_LABEL = "bad-label"
    BAD_NAME = "bad-name"
    WRONG_NAMESPACE = "wrong-namespace"
    CONFLICT = "conflict"
    # What loads, and may not do what was meant.
    NEVER_MATCHES = "never-matches"
    NEVER_SATISFIED = "never-satisfied"
    NO_EFFECT = "no-effect"
    MISSPELT_RESOURCE = "misspelt-resource"
    HALF_GROUP = "half-group"
    MIXED_LABELS = "mixed-labels"
    ODD_NAME = "odd-name"
    MISSING_VOLUME = "missing-volume"
    COMPETING_VALUES = "competing-values"
    EXPIRED = "expired"
    EXEMPTS_NOTHING = "exempts-nothing"
    EXEMPTS_EVERYONE = "exempts-everyone"


# Mistakes of one document; finding the place of each takes longer, the longer the document is.
_MOST_TOLD: Final = 100


class RuleError(ValueError):
    """One mistake in a rule file, or one doubt. The fault of its author.

    location: the place in the text. path: the place in the document, as Kubernetes prints it. rule: the
    ConfigMap's name, where it is known.
    """

    def __init__(
        self, location: Location, path: Path, message: str, rule: str = "", code: Code = Code.WRONG_VALUE
    ) -> None:
        where = field_path(path)
        super().__init__(f"{location}: {where}: {message}" if where else f"{location}: {message}")
        self.location = location
        self.path = where
        self.message = message
        self.rule = rule
        self.code = code


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ` – did you mean 'x'?` for a misspelt word, or nothing."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" – did you mean {near[0]!r}?" if near else ""


def describe(value: object) -> str:
    """Return what a value is, for a message: `a number`."""
    return _KINDS.get(type(value), "nothing")


def schema_errors(
    error: ValidationError, schema: type[BaseModel], document: Document, prefix: Path, rule: str
) -> list[RuleError]:
    """Return a mistake for each that pydantic found in the part of a document below prefix."""
    found = []
    details = error.errors(include_url=False)
    for detail in details[:_MOST_TOLD]:
        path: Path = (*prefix, *detail["loc"])
        value = detail["input"]
        in_key = False
        code = Code.WRONG_VALUE
        match detail["type"]:
            case "extra_forbidden":
                key = str(detail["loc"][-1])
                known = _known_keys(schema, detail["loc"][:-1])
                message = f"unknown key {key!r}{suggestion(key, known) or _list_of(known)}"
                in_key, code = True, Code.UNKNOWN_KEY
            case "missing":
                message = f"required key {detail['loc'][-1]!r} is missing"
                path = path[:-1]
                in_key, code = True, Code.MISSING_KEY
            case "literal_error":
                known = [word for word in re.findall("'([^']*)'", detail["ctx"]["expected"]) if word]
                message = f"expected one of {', '.join(known)}, got {value!r}{suggestion(str(value), known)}"
            case "value_error":
                message = str(detail["ctx"]["error"])
            case kind if kind in _WANTED:
                how = "write it as text, behind a |" if isinstance(value, dict | list) else "quote it"
                remedy = f": {how}" if kind == "string_type" else ""
                message = f"expected {_WANTED[kind]}, got {describe(value)}{remedy}"
                code = Code.WRONG_TYPE
            case _:
                message = detail["msg"][:1].lower() + detail["msg"][1:]
        found.append(RuleError(document.locate(path, key=in_key), path, message, rule, code))
    found.sort(key=lambda item: (item.location.line, item.location.column))
    if untold := len(details) - len(found):
        found.append(RuleError(document.locate(prefix), prefix, f"{untold} more mistakes", rule))
    return found


@cache
def _json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a document; making it takes milliseconds."""
    return schema.model_json_schema(by_alias=True)


def _known_keys(schema: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the schema has at a place."""
    node: Any = _json_schema(schema)
    definitions = node.get("$defs", {})
    for step in loc:
        node = node.get("items", {}) if isinstance(step, int) else node.get("properties", {}).get(step, {})
        for option in (node, *node.get("anyOf", ()), *node.get("allOf", ())):
            if "$ref" in option:
                node = definitions[option["$ref"].rpartition("/")[2]]
    return list(node.get("properties", ()))


def _list_of(known: list[str]) -> str:
    return f"; known are {', '.join(known)}"
