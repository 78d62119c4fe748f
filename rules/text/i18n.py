"""Texts in each language."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Language(StrEnum):
    """The languages that messages come in."""

    EN = "en"
    ZH = "zh"


@dataclass(frozen=True, slots=True)
class Text:
    """The same words in each language; an empty one falls back to the other."""

    en: str = ""
    zh: str = ""

    def in_language(self, language: Language) -> str:
        """Return the words in a language."""
        return (self.zh or self.en) if language is Language.ZH else (self.en or self.zh)
