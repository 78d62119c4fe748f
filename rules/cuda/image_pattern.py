"""Regular expressions of image references, which people write and users' images are held against.

A pattern that backtracks would let one image stop the gate. So an engine whose time grows with the text alone
(CEL's) says whether a text matches; Python's is asked for the groups of a text that does. A group that
repeats and holds a repeat or a choice, which may take twice as long with each character, is refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

from rules.cel.library import cel

# What stands for more in an engine that knows Unicode, there in ASCII too: to compile it takes a hundredth.
_ASCII: Final = {r"\w": "0-9A-Za-z_", r"\d": "0-9", r"\s": r"\t-\r "}
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
# A part of the syntax: brackets that are escaped, or stand in a class, open no group.
_PART: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\(\?[:!=<>P\w-]*|.", re.DOTALL)
_REPEATS: Final = frozenset("*+{")
_CHOICES: Final = _REPEATS | {"?", "|"}
_MAX_LENGTH: Final = 1024  # references are at most 780 long
_MATCHES: Final = "text.matches(pattern)"


class ImageRegex:
    """A compiled regular expression of whole image references. Immutable: any thread may use it."""

    __slots__ = ("_pattern", "_program", "_searched", "groups", "source")

    def __init__(self, source: str) -> None:
        """Compile source. Raises ValueError where it is no expression, or one that could take for ever."""
        if len(source) > _MAX_LENGTH:
            raise ValueError(f"expected at most {_MAX_LENGTH} characters, got {len(source)}")
        try:
            self._pattern = re.compile(source, re.ASCII)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"expected a regular expression, got {source!r}: {error}") from None
        if _nests(source):
            raise ValueError(
                f"a group that repeats may hold no repeat or choice, which takes too long: {source!r}"
            )
        self.source = source
        self.groups = tuple(self._pattern.groupindex)
        self._program = cel.compile(_MATCHES)
        try:
            self._searched = f"^(?:{_in_ascii(source)})$"
            self._matches("")
        except RuntimeError as error:
            reason = re.sub(r"\s*\n\s*", " ", str(error)).partition(" Check function")[0]
            raise ValueError(
                f"expected a regular expression without looking around or back: {reason}"
            ) from None

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match of a whole text, or None."""
        return self._pattern.fullmatch(text) if self._matches(text) else None

    def __repr__(self) -> str:
        return f"ImageRegex({self.source!r})"

    def _matches(self, text: str) -> Any:
        return self._program.execute({"text": text, "pattern": self._searched})


def _in_ascii(source: str) -> str:
    """Return an expression with letters, digits and spaces written out, as re.ASCII takes them."""
    return "".join(map(_part_in_ascii, _PART.findall(source)))


def _part_in_ascii(part: str) -> str:
    if part.startswith("["):
        return _ESCAPED.sub(lambda found: _ASCII.get(found[0], found[0]), part)
    if letters := _ASCII.get(part.lower()):
        return f"[{letters}]" if part.islower() else f"[^{letters}]"
    return part


def _nests(source: str) -> bool:
    """Tell whether a group that repeats holds a repeat or a choice."""
    parts = _PART.findall(source)
    choices = [False]  # of each open group, whether one was seen in it
    for part, after in zip(parts, [*parts[1:], ""], strict=True):
        if part.startswith("("):
            choices.append(False)
        elif part == ")" and len(choices) > 1:
            inner = choices.pop()
            if inner and after in _REPEATS:
                return True
            choices[-1] |= inner
        elif part in _CHOICES:
            choices[-1] = True
    return False
