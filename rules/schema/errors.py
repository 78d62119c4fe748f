"""Errors of rule files: location, message and suggested fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from rules.text.i18n import Language, Text
from rules.text.paths import Path, field_path
from rules.text.yaml_document import Location

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
