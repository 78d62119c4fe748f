"""Display width of text on a terminal."""

from __future__ import annotations

from unicodedata import east_asian_width


def width(text: str) -> int:
    """Return the number of terminal columns of a text; Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)
