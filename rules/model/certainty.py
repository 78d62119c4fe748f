"""How sure a statement is: one scale with one meaning, for everything that gpugate says of an object."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from rules.text.i18n import Language, Message


class Certainty(StrEnum):
    """How sure it is that a container does not start, or fails; the most sure first.

    CERTAIN: facts of both sides prove it, of the container and of its node or cluster. LIKELY: one side is
    known to fail in this way, or a rule of the operator forbids it. UNKNOWN: a fact of one side is missing.
    """

    CERTAIN = "certain"
    LIKELY = "likely"
    UNKNOWN = "unknown"

    def in_language(self, language: Language) -> str:
        """Return the word in a language."""
        return _WORDS[self].in_language(language)


_WORDS: Final = {
    Certainty.CERTAIN: Message("certain"),
    Certainty.LIKELY: Message("likely"),
    Certainty.UNKNOWN: Message("unknown"),
}
