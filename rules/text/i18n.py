"""Texts in English and Chinese."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
