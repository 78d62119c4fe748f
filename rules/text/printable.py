"""Text that neither acts on a terminal nor begins a line of its own."""

from __future__ import annotations

import json


def printable(text: str, keep: str = "") -> str:
    r"""Return a text in one line: line breaks become spaces, other unprintable characters `\uXXXX`.

    keep: characters that stay, such as line breaks of a message of several lines. Unprintable are control
        characters and marks that change the direction of text.
    """
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() or char in keep else _shown(char) for char in text])


def printable_json(text: str) -> str:
    """Return a JSON text in which strings have only printable characters; their values stay the same."""
    if text.isprintable():
        return text
    # Unprintable characters are in strings, except line breaks between values.
    return "".join([char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text])


def _shown(char: str) -> str:
    code = ord(char)
    if char.isspace():
        return " "
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shortened(text: str, length: int) -> str:
    """Return a text for a message: its first characters and `…` if it has more than `length`."""
    return text if len(text) <= length else text[:length] + "…"
