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
    """Compile a glob: `*` is any text, `?` any one character, all else itself. Use its fullmatch.

    What stands between two stars is taken where it first occurs, once and for all, which finds a match where
    there is one. So the time is bounded by the lengths of pattern and text, however many the stars.
    """
    first, *rest = (re.escape(part).replace(r"\?", _ANY) for part in pattern.split("*"))
    if rest:
        first += "".join(f"{_UP_TO}{part})" for part in rest[:-1]) + _STAR + rest[-1]
    return re.compile(first, re.DOTALL)


def glob_tokens(pattern: re.Pattern[str]) -> list[str]:
    """Return the characters of a compiled glob, with `.*` for each star, `.` for each `?`; others escaped."""
    parts = _TOKEN.findall(pattern.pattern)
    return [_STAR if part == _UP_TO else part for part in parts if part != ")"]


def plain_regex(pattern: re.Pattern[str]) -> str:
    """Return a compiled glob as a regular expression of any dialect, such as CEL's."""
    return "".join(glob_tokens(pattern))


def glob_text(pattern: re.Pattern[str]) -> str:
    """Return a compiled glob as it was written."""
    return "".join({_STAR: "*", _ANY: "?"}.get(token, token[-1]) for token in glob_tokens(pattern))


def overlap(one: re.Pattern[str], other: re.Pattern[str]) -> bool:
    """Tell whether some text matches both of two compiled globs; of long ones it is taken for granted."""
    left, right = glob_tokens(one), glob_tokens(other)
    if max(len(left), len(right)) > _LONGEST:
        return True
    seen, todo = set(), [(0, 0)]  # how far both are used up by the same text
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
    """Tell whether a compiled glob matches all that another does; False where that is not plain to see."""
    if "?" in glob_text(wide) and "*" in glob_text(narrow):
        return False
    return wide.fullmatch(glob_text(narrow)) is not None


def is_glob(pattern: str) -> bool:
    """Tell whether a name is a pattern."""
    return "*" in pattern or "?" in pattern
