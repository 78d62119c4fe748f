"""Names compared with a glob, and with known names that a misspelt one may be meant to be.

To compare two similar names takes up to 0.1 ms, too long for thousands of names of one object.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
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


# Different names of one object that are compared with known ones: 20 ms with the built-in rules.
MOST_COMPARED: Final = 16


class Comparisons:
    """The names of one object that are compared with known ones: the first MOST_COMPARED different ones."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: set[str] = set()

    def admits(self, name: str) -> bool:
        """Return whether a name may be compared, and count it if so."""
        if name in self._names:
            return True
        if len(self._names) >= MOST_COMPARED:
            return False
        self._names.add(name)
        return True


def similarity(name: str, known: str, least: float) -> float:
    """Return the similarity of two names, 0 to 1, without regard to case; 0 if it is less than `least`."""
    matcher = SequenceMatcher(None, name.lower(), known.lower())
    for upper_bound in (matcher.real_quick_ratio, matcher.quick_ratio):  # take less time
        if upper_bound() < least:
            return 0.0
    ratio = matcher.ratio()
    return ratio if ratio >= least else 0.0
