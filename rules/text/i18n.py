"""Texts in English and Chinese, and their width on a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from unicodedata import east_asian_width


class Language(StrEnum):
    """The languages of messages."""

    EN = "en"
    ZH = "zh"


@dataclass(frozen=True, slots=True)
class Text:
    """A text in each language; an empty one falls back to the other."""

    en: str = ""
    zh: str = ""

    def in_language(self, language: Language) -> str:
        """Return the text in a language."""
        return (self.zh or self.en) if language is Language.ZH else (self.en or self.zh)


def width(text: str) -> int:
    """Return the number of terminal columns of a text; Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
