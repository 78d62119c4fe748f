"""Errors of rule files: location, message and suggested fix."""

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
_EXPECTED: Final = {
    "string_type": "a string",
    "bool_type": "a boolean",
    "int_type": "a number",
    "dict_type": "an object",
    "list_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


class Code(StrEnum):
    """The type of an error or lint warning (docs/ci.md). Values are stable: users filter by them."""

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
    # Lint warnings: the rule loads, but may not have the intended effect.
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


# Maximum errors of one document; the time to locate one grows with the length of the document.
_MAX_ERRORS: Final = 100


class RuleError(ValueError):
    """One error in a rule file, or one lint warning. The fault of its author.

    location: in the text. path: in the document, in Kubernetes notation. rule: the ConfigMap's name, if any.
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


def unknown_key(key: str, known: list[str]) -> str:
    """Return the message for an unknown key: what it may have been meant to be, else all known keys."""
    return f"unknown key {key!r}{suggestion(key, known) or '; known keys: ' + ', '.join(known)}"


def describe(value: object) -> str:
    """Return the type of a value for a message: `a number`."""
    return _KINDS.get(type(value), "nothing")


def schema_errors(
    error: ValidationError, schema: type[BaseModel], document: Document, prefix: Path, rule: str
) -> list[RuleError]:
    """Return one error for each validation error of pydantic in the document below prefix."""
    found = []
    details = error.errors(include_url=False)
    for detail in details[:_MAX_ERRORS]:
        path: Path = (*prefix, *detail["loc"])
        value = detail["input"]
        in_key = False
        code = Code.WRONG_VALUE
        match detail["type"]:
            case "extra_forbidden":
                key = str(detail["loc"][-1])
                known = _known_keys(schema, detail["loc"][:-1])
                message = unknown_key(key, known)
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
            case kind if kind in _EXPECTED:
                how = "write it as a block string (|)" if isinstance(value, dict | list) else "quote it"
                remedy = f": {how}" if kind == "string_type" else ""
                message = f"expected {_EXPECTED[kind]}, got {describe(value)}{remedy}"
                code = Code.WRONG_TYPE
            case _:
                message = detail["msg"][:1].lower() + detail["msg"][1:]
        found.append(RuleError(document.locate(path, key=in_key), path, message, rule, code))
    found.sort(key=lambda item: (item.location.line, item.location.column))
    if omitted := len(details) - len(found):
        found.append(RuleError(document.locate(prefix), prefix, f"{omitted} more errors", rule))
    return found


@cache
def _json_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON Schema of a document; generating it takes milliseconds."""
    return schema.model_json_schema(by_alias=True)


def _known_keys(schema: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the schema at a location."""
    node: Any = _json_schema(schema)
    definitions = node.get("$defs", {})
    for step in loc:
        node = node.get("items", {}) if isinstance(step, int) else node.get("properties", {}).get(step, {})
        for option in (node, *node.get("anyOf", ()), *node.get("allOf", ())):
            if "$ref" in option:
                node = definitions[option["$ref"].rpartition("/")[2]]
    return list(node.get("properties", ()))
