"""Text that neither acts on a terminal nor begins a line of its own."""

from __future__ import annotations

import json


def printable(text: str, keep: str = "") -> str:
    r"""Return a text in one line: with spaces for line breaks, and `\uXXXX` for what else is not printable.

    keep: characters that stay, such as line breaks of a message of several lines. Not printable are control
    characters and marks that change the direction of text.
    """
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() or each in keep else _shown(each) for each in text])


def printable_json(text: str) -> str:
    """Return a JSON text in which strings have only printable characters; their values stay the same."""
    if text.isprintable():
        return text
    # The others are in strings, except line breaks between values.
    return "".join([each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text])


def _shown(character: str) -> str:
    code = ord(character)
    if character.isspace():
        return " "
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
