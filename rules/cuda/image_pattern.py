"""Regular expressions for image references that match in linear time.

With backtracking, one image could block the process. So the linear-time engine of CEL decides whether a text
matches, and Python's engine only returns the groups of a match. A repeated group that contains a repeat or a
choice is invalid, because its time can double with each character.
"""

from __future__ import annotations

import re
from typing import Any, Final

from rules.cel.library import cel

# Classes that include Unicode in the other engine, in ASCII: they compile in a hundredth of the time.
_ASCII: Final = {r"\w": "0-9A-Za-z_", r"\d": "0-9", r"\s": r"\t-\r "}
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
# A token of the syntax: an escaped bracket, or one in a class, does not open a group.
_PART: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|\(\?[:!=<>P\w-]*|.", re.DOTALL)
_REPEATS: Final = frozenset("*+{")
_CHOICES: Final = _REPEATS | {"?", "|"}
_MAX_LENGTH: Final = 1024  # references are at most 780 long
_MATCHES: Final = "text.matches(pattern)"


class ImageRegex:
    """A compiled regular expression of whole image references. Immutable and thread-safe."""

    __slots__ = ("_pattern", "_program", "_searched", "groups", "source")

    def __init__(self, source: str) -> None:
        """Compile source. Raises ValueError if it is invalid, or if its time could be exponential."""
        if len(source) > _MAX_LENGTH:
            raise ValueError(f"expected at most {_MAX_LENGTH} characters, got {len(source)}")
        try:
            self._pattern = re.compile(source, re.ASCII)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"expected a regular expression, got {source!r}: {error}") from None
        if _nests(source):
            raise ValueError(
                f"a repeated group must not contain a repeat or a choice, which takes too long: {source!r}"
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
                f"expected a regular expression without lookaround or backreferences: {reason}"
            ) from None

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match of a whole text, or None."""
        return self._pattern.fullmatch(text) if self._matches(text) else None

    def __repr__(self) -> str:
        return f"ImageRegex({self.source!r})"

    def _matches(self, text: str) -> Any:
        return self._program.execute({"text": text, "pattern": self._searched})


def _in_ascii(source: str) -> str:
    """Return an expression in which letters, digits and spaces are ASCII classes, as with re.ASCII."""
    return "".join(map(_part_in_ascii, _PART.findall(source)))


def _part_in_ascii(part: str) -> str:
    if part.startswith("["):
        return _ESCAPED.sub(lambda found: _ASCII.get(found[0], found[0]), part)
    if letters := _ASCII.get(part.lower()):
        return f"[{letters}]" if part.islower() else f"[^{letters}]"
    return part


def _nests(source: str) -> bool:
    """Return whether a repeated group contains a repeat or a choice."""
    parts = _PART.findall(source)
    choices = [False]  # of each open group, whether it contains one
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
