"""Globs as regular expressions that match in linear time."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(r"\\.|\(\?>\.\*\?|\.\*|.", re.DOTALL)
# Longer than any name: an image reference has 255 characters, a tag 128 more.
_LONGEST: Final = 512
_STAR: Final = ".*"
_ANY: Final = "."
_UP_TO: Final = "(?>.*?"  # the shortest text up to what follows; never tried again for a longer one


def glob(pattern: str) -> re.Pattern[str]:
    """Compile a glob: `*` matches any text, `?` any one character. Use its fullmatch.

    The text between two stars is matched at its first occurrence, without backtracking; this finds a match
    if there is one. So the time depends on the lengths of pattern and text, not on the number of stars.
    """
    first, *rest = (re.escape(part).replace(r"\?", _ANY) for part in pattern.split("*"))
    if rest:
        first += "".join(f"{_UP_TO}{part})" for part in rest[:-1]) + _STAR + rest[-1]
    return re.compile(first, re.DOTALL)


def glob_tokens(pattern: re.Pattern[str]) -> list[str]:
    """Return the tokens of a compiled glob: `.*` for a star, `.` for `?`, other characters escaped."""
    parts = _TOKEN.findall(pattern.pattern)
    return [_STAR if part == _UP_TO else part for part in parts if part != ")"]


def plain_regex(pattern: re.Pattern[str]) -> str:
    """Return a compiled glob as a regular expression of any dialect, for example CEL's."""
    return "".join(glob_tokens(pattern))


def glob_text(pattern: re.Pattern[str]) -> str:
    """Return a compiled glob as it was written."""
    return "".join({_STAR: "*", _ANY: "?"}.get(token, token[-1]) for token in glob_tokens(pattern))


def overlap(one: re.Pattern[str], other: re.Pattern[str]) -> bool:
    """Return whether some text matches both compiled globs; True for patterns longer than any name."""
    left, right = glob_tokens(one), glob_tokens(other)
    if max(len(left), len(right)) > _LONGEST:
        return True
    seen, todo = set(), [(0, 0)]  # numbers of tokens, of both globs, that match the same text
    while todo:
        at, to = place = todo.pop()
        if place in seen:
            continue
        seen.add(place)
        here, there = left[at : at + 1], right[to : to + 1]
        if not here and not there:
            return True
        if here == [_STAR]:
            todo.append((at + 1, to))
        if there == [_STAR]:
            todo.append((at, to + 1))
        if here and there and (_STAR in here + there or _ANY in here + there or here == there):
            todo.append((at + (here != [_STAR]), to + (there != [_STAR])))
    return False


def covers(wide: re.Pattern[str], narrow: re.Pattern[str]) -> bool:
    """Return whether a compiled glob matches everything that another matches. False may be wrong."""
    if "?" in glob_text(wide) and "*" in glob_text(narrow):
        return False
    return wide.fullmatch(glob_text(narrow)) is not None


def is_glob(pattern: str) -> bool:
    """Return whether a name is a glob."""
    return "*" in pattern or "?" in pattern
