"""Errors of rule files: location, message and suggested fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from rules.text.i18n import Joined, Language, Message, Text, located
from rules.text.paths import Path, field_path
from rules.text.yaml_document import Location

_STRING: Final = Message("a string")
_BOOLEAN: Final = Message("a boolean")
_NUMBER: Final = Message("a number")
_OBJECT: Final = Message("an object")
_LIST: Final = Message("a list")
_NOTHING: Final = Message("nothing")
_EMPTY: Final = Message()
_KINDS: Final[dict[type, Message]] = {
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
    UNKNOWN_VERSION = "unknown-version"


class RuleError(ValueError):
    """One error in a rule file, or one lint warning. The fault of its author.

    location: in the text.
    path: in the document; the attribute is in Kubernetes notation.
    message: the attribute is in English.
    rule: the ConfigMap's name, if any.
    """

    def __init__(
        self,
        location: Location,
        path: Path,
        message: Message,
        rule: str = "",
        code: Code = Code.WRONG_VALUE,
    ) -> None:
        self.text = message
        self.location = location
        self.path = field_path(path)
        self._steps = path
        self.rule = rule
        self.code = code
        super().__init__(self.line(Language.EN))

    def below(self, path: Path) -> RuleError:
        """Return the error with its path below the path of the text that contains its document."""
        return RuleError(self.location, (*path, *self._steps), self.text, self.rule, self.code)

    @property
    def message(self) -> str:
        """The message in English."""
        return self.text.in_language(Language.EN)

    @property
    def located(self) -> Message:
        """Location, path and message."""
        place = ": ".join(filter(None, (str(self.location), self.path)))
        return located(place, self.text) if place else self.text

    def line(self, language: Language) -> str:
        """Return `located` in a language."""
        return self.located.in_language(language)


def did_you_mean(word: str) -> Message:
    """Return the end of a message that suggests a word: ` – did you mean 'x'?`."""
    return Message(" – did you mean {word!r}?", word=word)


def suggested(word: str, known: Iterable[str]) -> Message:
    """Return `did_you_mean` for a misspelt word, or an empty text."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return did_you_mean(near[0]) if near else Message()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `suggested` in English."""
    return suggested(word, known).en


def unknown_key(key: str, known: list[str]) -> Message:
    """Return the message for an unknown key, with a suggestion, or all known keys."""
    names, near = ", ".join(known), suggested(key, known)
    near = near or Message("; known keys: {names}", names=names)
    return Message("unknown key {key!r}{near}", key=key, near=near)


def missing_key(key: str | int) -> Message:
    """Return the message for a missing key."""
    return Message("required key {key!r} is missing", key=key)


def misplaced_key(key: str, parent: str) -> Message:
    """Return the message for a key next to the key that should contain it."""
    return Message("unknown key {key!r}: it belongs below {parent!r}; indent it", key=key, parent=parent)


def expected(wanted: Message | str, actual: Message | str, near: Message = _EMPTY) -> Message:
    """Return the message for a value other than the expected one. near: a suggestion."""
    wanted, actual = (
        value if isinstance(value, Message) else Message("{word}", word=value) for value in (wanted, actual)
    )
    return Message("expected {what}, got {actual}{near}", what=wanted, actual=actual, near=near)


def one_of(words: Collection[str]) -> Message:
    """Return the expected value for a list of words."""
    return Message("one of {words}", words=Joined(", ", words))


def kind_of(value: object) -> Message:
    """Return the type of a value for a message: `a number`."""
    return _KINDS.get(type(value), _NOTHING)


def reason_of(error: ValueError) -> Message:
    """Return the message of an error whose argument is a Text or an English text."""
    return as_text(error.args[0] if error.args and isinstance(error.args[0], Message) else str(error))


def as_text(message: Message | str) -> Message:
    """Return a text; a str is the same in both languages."""
    return message if isinstance(message, Message) else Text(message)
