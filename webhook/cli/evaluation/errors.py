"""Errors of changes that a user describes."""

from __future__ import annotations

from rules.text.i18n import Language, Text


class ChangeError(ValueError):
    """A change cannot be applied: nothing has that name, or it is ambiguous. The user's fault."""

    def __init__(self, text: Text, **facts: object) -> None:
        super().__init__(text.en.format(**facts))
        self._text, self._facts = text, facts

    def message(self, language: Language) -> str:
        """Return the message: what is wrong, and what to do."""
        return self._text.in_language(language).format(**self._facts)
