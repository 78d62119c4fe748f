"""Errors of rule files: location, message and suggested fix."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from rules.cel.syntax_errors import ExpressionError
from rules.text.i18n import Language, Text
from rules.text.paths import Path, field_path
from rules.text.yaml_document import Document, Location

_STRING: Final = Text("a string", "字符串")
_BOOLEAN: Final = Text("a boolean", "布尔值")
_NUMBER: Final = Text("a number", "数字")
_OBJECT: Final = Text("an object", "对象")
_LIST: Final = Text("a list", "列表")
_NOTHING: Final = Text("nothing", "空")
_EMPTY: Final = Text()
_KINDS: Final[dict[type, Text]] = {
    str: _STRING,
    bool: _BOOLEAN,
    int: _NUMBER,
    float: _NUMBER,
    dict: _OBJECT,
    list: _LIST,
}
_EXPECTED: Final = {
    "string_type": _STRING,
    "bool_type": _BOOLEAN,
    "int_type": _NUMBER,
    "dict_type": _OBJECT,
    "list_type": _LIST,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
}
_BLOCK: Final = Text(": write it as a block string (|)", "：请写成块字符串（|）")
_QUOTE: Final = Text(": quote it", "：请加引号")
# Other messages of pydantic in Chinese, by type; a type that is absent here has its English message.
_MESSAGES_ZH: Final = {
    "too_short": "要求至少 {min_length} 项，当前为 {actual_length} 项",
    "too_long": "要求最多 {max_length} 项",
    "string_too_short": "要求至少 {min_length} 个字符",
    "string_pattern_mismatch": "要求匹配模式 '{pattern}'",
    "greater_than_equal": "要求大于或等于 {ge}",
    "less_than_equal": "要求小于或等于 {le}",
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
    TOO_LARGE = "too-large"
    # Lint warnings: the rule loads, but may not have the intended effect.
    NEVER_MATCHES = "never-matches"
    NEVER_SATISFIED = "never-satisfied"
    NO_EFFECT = "no-effect"
    UNTESTED_KEY = "untested-key"
    MISSPELT_RESOURCE = "misspelt-resource"
    HALF_GROUP = "half-group"
    MIXED_LABELS = "mixed-labels"
    ODD_NAME = "odd-name"
    NO_NAMESPACE = "no-namespace"
    MISSING_VOLUME = "missing-volume"
    COMPETING_VALUES = "competing-values"
    EXPIRED = "expired"
    EXEMPTS_NOTHING = "exempts-nothing"
    EXEMPTS_EVERYONE = "exempts-everyone"
    EXEMPTS_ANY_TENANT = "exempts-any-tenant"
    CONTRADICTION = "contradiction"
    NOTHING_KNOWN = "nothing-known"


# Maximum errors of one document; the time to locate one grows with the length of the document.
_MAX_ERRORS: Final = 100


class RuleError(ValueError):
    """One error in a rule file, or one lint warning. The fault of its author.

    location: in the text. path: in the document, in Kubernetes notation. message: a str is the same in both
    languages, the attribute is in English. rule: the ConfigMap's name, if any.
    """

    def __init__(
        self,
        location: Location,
        path: Path,
        message: Text | str,
        rule: str = "",
        code: Code = Code.WRONG_VALUE,
    ) -> None:
        self.text = as_text(message)
        self.location = location
        self.path = field_path(path)
        self._steps = path
        self.rule = rule
        self.code = code
        super().__init__(self.line(Language.EN))

    def below(self, path: Path) -> RuleError:
        """Return the error with its path below that of the text in which its document is embedded."""
        return RuleError(self.location, (*path, *self._steps), self.text, self.rule, self.code)

    @property
    def message(self) -> str:
        """The message in English."""
        return self.text.in_language(Language.EN)

    def line(self, language: Language) -> str:
        """Return location, path and message."""
        return ": ".join(filter(None, (str(self.location), self.path, self.text.in_language(language))))


def did_you_mean(word: str) -> Text:
    """Return the end of a message that suggests a word: ` – did you mean 'x'?`."""
    return Text(f" – did you mean {word!r}?", f"；是否应为 {word!r}？")


def suggested(word: str, known: Iterable[str]) -> Text:
    """Return `did_you_mean` for a misspelt word, or an empty text."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return did_you_mean(near[0]) if near else Text()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `suggested` in English."""
    return suggested(word, known).en


def unknown_key(key: str, known: list[str]) -> Text:
    """Return the message for an unknown key: what it may have been meant to be, else all known keys."""
    names, near = ", ".join(known), suggested(key, known)
    return Text(
        f"unknown key {key!r}{near.en or f'; known keys: {names}'}",
        f"未知的键 {key!r}{near.zh or f'；已知的键：{names}'}",
    )


def missing_key(key: str | int) -> Text:
    """Return the message for a missing key."""
    return Text(f"required key {key!r} is missing", f"缺少必需的键 {key!r}")


def misplaced_key(key: str, parent: str) -> Text:
    """Return the message for a key that stands at the level of the key that should contain it."""
    return Text(
        f"unknown key {key!r}: it belongs below {parent!r}; indent it",
        f"未知的键 {key!r}：它属于 {parent!r} 之下；请缩进",
    )


def expected(what: Text | str, found: Text | str, near: Text = _EMPTY) -> Text:
    """Return the message for a value other than the expected one. near: a suggestion."""
    what, found = as_text(what), as_text(found)
    words = (_spaced(each.in_language(Language.ZH)) for each in (what, found))
    zh = "要求{}，当前为{}".format(*words)
    return Text(f"expected {what.en}, got {found.en}{near.en}", zh + near.zh)


def _spaced(text: str) -> str:
    """Return a text that follows a Chinese word: with a space before a Latin letter, digit or quote."""
    return f" {text}" if text[:1].isascii() else text


def one_of(words: Collection[str]) -> Text:
    """Return the expected value for a list of words."""
    return Text(f"one of {', '.join(words)}", f"{'、'.join(words)} 之一")


def kind_of(value: object) -> Text:
    """Return the type of a value for a message: `a number`."""
    return _KINDS.get(type(value), _NOTHING)


def describe(value: object) -> str:
    """Return `kind_of` in English."""
    return kind_of(value).en


def reason_of(error: ValueError) -> Text:
    """Return the message of an error whose argument is a Text or an English text."""
    return as_text(error.args[0] if error.args and isinstance(error.args[0], Text) else str(error))


def as_text(message: Text | str) -> Text:
    """Return a text; a str is the same in both languages."""
    return message if isinstance(message, Text) else Text(message)


def schema_errors(
    error: ValidationError, schema: type[BaseModel], document: Document, prefix: Path, rule: str
) -> list[RuleError]:
    """Return one error for each mistake in the document below prefix, from the errors of pydantic."""
    found = []
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
                    message = Text(f"CEL: {message.en}", f"CEL: {message.zh or message.en}")
                    code = Code.BAD_EXPRESSION
            case kind if kind in _EXPECTED:
                message = expected(_EXPECTED[kind], kind_of(value), _remedy(kind, value))
                code = Code.WRONG_TYPE
            case kind:
                english = detail["msg"][:1].lower() + detail["msg"][1:]
                message = Text(english, _MESSAGES_ZH.get(kind, "").format_map(detail.get("ctx", {})))
        found.append(RuleError(document.locate(path, key=in_key), path, message, rule, code))
    found.sort(key=lambda item: (item.location.line, item.location.column))
    if omitted := len(details) - len(found):
        more = Text(f"{omitted} more errors", f"另有 {omitted} 个错误")
        found.append(RuleError(document.locate(prefix), prefix, more, rule))
    return found


def _mistakes(error: ValidationError, schema: type[BaseModel]) -> Iterator[tuple[Any, str]]:
    """Yield the errors of pydantic, each with the key below which an unknown key belongs, or an empty string.

    A misspelt or misplaced key is one mistake: that another key is missing because of it is not yielded.
    """
    details = error.errors(include_url=False)
    unknown = [each["loc"] for each in details if each["type"] == "extra_forbidden"][:_MAX_ERRORS]
    moved: dict[tuple[int | str, ...], str] = {}
    explained: set[tuple[int | str, ...]] = set()
    for loc in unknown:
        *above, key = loc
        known = _known_keys(schema, (*above,))
        near = get_close_matches(str(key), known, n=1, cutoff=0.6)
        homes = [each for each in known if key in _known_keys(schema, (*above, each))]
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


def _remedy(kind: str, value: object) -> Text:
    """Return how to write a value of another type as a string or list."""
    if kind == "list_type" and isinstance(value, str) and value:
        items = ", ".join(filter(None, (item.strip() for item in value.split(","))))
        return _write(f"[{items}]")
    if kind != "string_type":
        return _EMPTY
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return _write(f'"{", ".join(value)}"')
    return _BLOCK if isinstance(value, dict | list) else _QUOTE


def _write(value: str) -> Text:
    return Text(f": write {value}", f"：请写成 {value}")


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
