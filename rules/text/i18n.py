"""Messages: an English template and its values, rendered where a response or a line is written.

The texts of system errors are messages here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Self
from unicodedata import east_asian_width

from rules.text.printable import printable

# A file for each language but English, named by its code: the translation of each English
# template. A template without words has none.
CATALOGUES: Final = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.yaml"))}


class Language(StrEnum):
    """The languages of messages: English, and those that have a catalogue."""

    EN = "en"
    vars().update({code.upper(): code for code in CATALOGUES})


class Message(tuple[Any, ...]):  # noqa: SLOT001 - the texts are kept in its __dict__
    """An English template and its values, in no language yet. Immutable.

    The template is a literal, which the catalogue translates; its fields are those of `str.format`. A value
    may be a message itself. Without values, the template is the text, and braces in it are ordinary. A text
    is formatted once: a message of a check is made once for a kind of nodes and shown often.

    one_line: whether what is not printable in its values is shown as it is written in JSON.
    """

    one_line = False

    def __new__(cls, template: str = "", /, **values: Any) -> Self:
        """Return the message. Nothing is formatted."""
        return tuple.__new__(cls, (template, values))

    def __bool__(self) -> bool:
        return bool(self[0])

    def __hash__(self) -> int:
        try:
            return hash((self[0], frozenset(self[1].values())))
        except TypeError:  # a value such as a list: equal messages have the same template
            return hash(self[0])

    def having(self, **values: Any) -> Self:
        """Return the message with further values."""
        template, present = self[:2]
        return tuple.__new__(type(self), (template, present | values if present else values, *self[2:]))

    def in_language(self, language: Language) -> str:
        """Return the text in a language; in English if it has no translation."""
        texts: dict[str, str] = self.__dict__
        code: str = language._value_  # as `value`, which is slow
        if (text := texts.get(code)) is None:
            text = texts[code] = self._formatted(language)
        return text

    @cached_property
    def en(self) -> str:
        """The text in English."""
        return self._formatted(Language.EN)

    @cached_property
    def zh(self) -> str:
        """The text in Chinese."""
        return self._formatted(Language("zh"))

    def _formatted(self, language: Language) -> str:
        text, shown = self._template(language), self[1]
        if shown:
            for name, value in self[1].items():
                if isinstance(value, Message):
                    if shown is self[1]:
                        shown = {**shown}
                    shown[name] = value.in_language(language)
            text = text.format_map(shown)
        return text if not self.one_line or text.isprintable() else printable(text)

    def _template(self, language: Language) -> str:
        template: str = self[0]
        return template if language._value_ == "en" else _catalogue(language).get(template, template)


def located(place: object, problem: Message) -> Message:
    """Return a message after its place."""
    return Message("{place}: {problem}", place=place, problem=problem)


class Text(Message):
    """A text of a rule or table, in some languages; in others, the English one is shown, or the first."""

    def __new__(cls, en: str = "", **others: str) -> Self:
        """Return the text. others: those in other languages, by code."""
        return tuple.__new__(cls, (en, {}, {code: text for code, text in others.items() if text}))

    def __bool__(self) -> bool:
        return bool(self[0] or self[2])

    @property
    def by_language(self) -> Mapping[str, str]:
        """The texts that it has, by the code of their language."""
        return {Language.EN.value: self[0], **self[2]}

    def _template(self, language: Language) -> str:
        en: str
        others: dict[str, str]
        en, _, others = self
        return others.get(language.value) or en or next(iter(others.values()), "")


class MessageError(ValueError):
    """An error whose text is a message; as a `str` in English."""

    def __init__(self, text: Message) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text.en


class Line(Message):
    """A message in one line."""

    one_line = True


class Joined(Message):
    """Messages or other values in one line, joined by a template."""

    one_line = True

    def __new__(cls, separator: str, items: Iterable[Any]) -> Self:
        """Return the line."""
        return tuple.__new__(cls, (separator, {"items": tuple(items)}))

    def __bool__(self) -> bool:
        return bool(self[1]["items"])

    def _formatted(self, language: Language) -> str:
        items = self[1]["items"]
        shown = [item.in_language(language) if isinstance(item, Message) else str(item) for item in items]
        text = self._template(language).join(shown)
        return printable(text) if self.one_line else text


class Lines(Joined):
    """Messages, each in a line of its own, joined by a line break and what begins a line."""

    one_line = False


@cache
def _catalogue(language: Language) -> Mapping[str, str]:
    """Return the templates of a language, which are read for its first text; English needs none."""
    path = CATALOGUES.get(language.value)
    if path is None:
        return {}
    import yaml  # noqa: PLC0415 - English does not need it

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # reads each value as a text
    templates: dict[str, str] = yaml.load(path.read_text("utf-8"), Loader=loader)  # noqa: S506 - texts only
    return templates


def width(text: str) -> int:
    """Return the number of terminal columns of a text; Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


# The texts of the system that users meet; Python asks for them in English in each locale.
_REASONS: Final = (
    Message("No such file or directory"),
    Message("Permission denied"),
    Message("Is a directory"),
    Message("Not a directory"),
    Message("File exists"),
    Message("File name too long"),
    Message("Input/output error"),
    Message("No space left on device"),
    Message("Read-only file system"),
    Message("Address already in use"),
    Message("Cannot assign requested address"),
)


def os_error_reason(error: OSError) -> Message:
    """Return the reason of a system error, without the error number and its file."""
    text = error.strerror or str(error)
    return next((reason for reason in _REASONS if reason.en == text), Text(text))


def os_error_text(error: OSError) -> Message:
    """Return the reason of a system error after its file, if it has one."""
    reason = os_error_reason(error)
    return reason if error.filename is None else Message("{file}: {why}", file=error.filename, why=reason)
