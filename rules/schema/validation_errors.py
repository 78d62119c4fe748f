"""Errors of rule files, made from pydantic's errors: position, message and suggested fix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from rules.cel.syntax_errors import ExpressionError
from rules.schema.errors import (
    Code,
    RuleError,
    expected,
    kind_of,
    misplaced_key,
    missing_key,
    one_of,
    reason_of,
    suggested,
    unknown_key,
)
from rules.text.i18n import Message, Text
from rules.text.paths import Path
from rules.text.yaml_document import Document

_EXPECTED: Final = {
    "string_type": kind_of(""),
    "bool_type": kind_of(True),
    "int_type": kind_of(0),
    "dict_type": kind_of({}),
    "list_type": kind_of([]),
    "model_type": kind_of({}),
    "model_attributes_type": kind_of({}),
}
_BLOCK: Final = Message(": write it as a block string (|)")
_QUOTE: Final = Message(": quote it")
_INCLUDE: Final = "include"  # the key of an object whose list may be meant
# Other messages of pydantic, by type of the error and of the field; others are in English.
_MESSAGES: Final = {
    "too_short List": Message(
        "list should have at least {min_length} item after validation, not {actual_length}"
    ),
    "too_short Dictionary": Message(
        "dictionary should have at least {min_length} item after validation, not {actual_length}"
    ),
    "too_long List": Message("list should have at most {max_length} items"),
    "too_long Dictionary": Message("dictionary should have at most {max_length} items"),
    "string_too_short": Message("string should have at least {min_length} character"),
    "string_pattern_mismatch": Message("string should match pattern '{pattern}'"),
    "greater_than_equal": Message("input should be greater than or equal to {ge}"),
    "less_than_equal": Message("input should be less than or equal to {le}"),
}
# Maximum errors of one document; the time to locate one grows with the length of the document.
_MAX_ERRORS: Final = 100


def schema_errors(
    error: ValidationError, schema: type[BaseModel], document: Document, prefix: Path, rule: str
) -> list[RuleError]:
    """Return one error for each mistake in the document below prefix, from the errors of pydantic."""
    errors = []
    details = [*_mistakes(error, schema)]
    for detail, moved in details[:_MAX_ERRORS]:
        path: Path = (*prefix, *detail["loc"])
        value = detail["input"]
        in_key = False
        code = Code.WRONG_VALUE
        match detail["type"]:
            case "extra_forbidden":
                key = str(detail["loc"][-1])
                known = _known_keys(schema, detail["loc"][:-1])
                message = misplaced_key(key, moved) if moved else unknown_key(key, known)
                in_key, code = True, Code.UNKNOWN_KEY
            case "missing":
                message = missing_key(detail["loc"][-1])
                path = path[:-1]
                in_key, code = True, Code.MISSING_KEY
            case "literal_error":
                known = [word for word in re.findall("'([^']*)'", detail["ctx"]["expected"]) if word]
                is_word = isinstance(value, str | int) and not isinstance(value, bool)
                shown = repr(value) if is_word else kind_of(value)
                message = expected(one_of(known), shown, suggested(str(value), known))
            case "value_error":
                cause = detail["ctx"]["error"]
                message = reason_of(cause)
                if isinstance(cause, ExpressionError):
                    message = Message("CEL: {message}", message=message)
                    code = Code.BAD_EXPRESSION
            case kind if kind in _EXPECTED:
                known = _known_keys(schema, detail["loc"])
                message = expected(_EXPECTED[kind], kind_of(value), _remedy(kind, value, known))
                code = Code.WRONG_TYPE
            case kind:
                context = detail.get("ctx", {})
                words = _MESSAGES.get(f"{kind} {context.get('field_type', '')}".rstrip())
                english = Text(detail["msg"][:1].lower() + detail["msg"][1:])
                message = words.having(**context) if words else english
        errors.append(RuleError(document.locate(path, key=in_key), path, message, rule, code))
    errors.sort(key=lambda item: (item.location.line, item.location.column))
    if omitted := len(details) - len(errors):
        more = Message("{omitted} more errors", omitted=omitted)
        errors.append(RuleError(document.locate(prefix), prefix, more, rule))
    return errors


def _mistakes(error: ValidationError, schema: type[BaseModel]) -> Iterator[tuple[Any, str]]:
    """Yield the errors of pydantic, each with the key below which an unknown key belongs, or an empty string.

    A misspelt or misplaced key is one mistake: the key that is missing because of it is not yielded.
    """
    details = error.errors(include_url=False)
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"][:_MAX_ERRORS]
    moved: dict[tuple[int | str, ...], str] = {}
    explained: set[tuple[int | str, ...]] = set()
    for loc in unknown:
        *above, key = loc
        known = _known_keys(schema, (*above,))
        near = get_close_matches(str(key), known, n=1, cutoff=0.6)
        homes = [parent for parent in known if key in _known_keys(schema, (*above, parent))]
        if near:
            explained.add((*above, near[0]))
        elif homes:
            moved[loc] = homes[0]
            explained |= {(*above, homes[0]), (*above, homes[0], str(key))}
    for detail in details:
        absent = detail["type"] == "missing" or (
            detail["input"] is None and detail["type"] != "extra_forbidden"
        )
        if not (absent and detail["loc"] in explained):
            yield detail, moved.get(detail["loc"], "")


def _remedy(kind: str, value: object, known: list[str]) -> Message:
    """Return how to write a value of another type as a string, list or object. known: keys of the object."""
    texts = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
    words = ", ".join(texts) if texts == value else ""
    if words and _INCLUDE in known:
        return _write(f"{{{_INCLUDE}: [{words}]}}")
    if kind == "list_type" and isinstance(value, str) and value:
        items = ", ".join(filter(None, (item.strip() for item in value.split(","))))
        return _write(f"[{items}]")
    if kind != "string_type":
        return Message()
    if words:
        return _write(f'"{words}"')
    return _BLOCK if isinstance(value, dict | list) else _QUOTE


def _write(value: str) -> Message:
    return Message(": write {value}", value=value)


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
