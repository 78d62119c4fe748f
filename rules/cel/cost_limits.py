"""Cost limits of CEL expressions, checked when a rule is loaded.

An evaluation cannot be interrupted, and blocks all other requests. Its parts take well under a microsecond
each, except nested loops, and regular expressions, which are compiled at each call.
Source of the syntax: https://github.com/google/cel-spec, https://docs.rs/regex/latest/regex/#syntax.
"""

from __future__ import annotations

import re
from typing import Final

from rules.cel.library import cel
from rules.text.i18n import Message

_MAX_LOOPS: Final = 2
# Maximum references to variables in an expression with a loop: each one copies a map, which takes 30
# microseconds at the maximum size.
_MAX_NAMED: Final = 16
_VARIABLES: Final = re.compile(r"\b(?:limits|requests|pod|container(?!\s*\.\s*(?:name|image)\b))\b")
# Maximum entries of a map variable; size_limit.py allows fewer names in one container.
MAX_ENTRIES: Final = 256
# Maximum microseconds to compile all patterns of an expression, and of an expression with a loop.
_MAX_COST: Final = 1000
_MAX_COST_IN_LOOPS: Final = 100
# String literals (raw ones first, which have no escapes) and comments.
TEXT: Final = re.compile(
    r"""\b(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')"""
    r"""|(?:\b[bB])?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
    r"""|//[^\n]*""",
    re.DOTALL,
)
_LOOP: Final = re.compile(r"\b(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
# The result list is copied for each entry that is added.
_MAP: Final = re.compile(r"\bmap\s*\(")
_MATCHES: Final = re.compile(r"\bmatches\s*\(")
_MATCHES_TEXT: Final = re.compile(r"""\.\s*matches\s*\(\s*(?="")""")
_MATCHES_ONLY_TEXT: Final = re.compile(r"""\.\s*matches\s*\(\s*""\s*\)""")
# A token of a regular expression, and the microseconds to compile it, measured with a hundred of each.
_PART: Final = re.compile(
    r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^]\\])*\]|\(\?[\w-]*[:)]?|\{\d+,?\d*\}|.", re.DOTALL
)
_COSTS: Final = (
    (re.compile(r"\\[wWpP]"), 600),
    (re.compile(r"\\[bB]"), 200),
    (re.compile(r"\\[dD]"), 20),
    (re.compile(r"^(?:\.|\[\^|\\[sS])"), 5),
    (re.compile(""), 1),
)


def why_unbounded(source: str) -> Message | None:
    """Return why an expression may take too long, or None."""
    texts: list[str] = []
    bare = TEXT.sub(lambda match: _placeholder(match[0], texts), source)
    loops = {match.end() - 1 for match in _LOOP.finditer(bare)}
    return _why_loops(bare, loops) or _why_patterns(bare, texts, _MAX_COST_IN_LOOPS if loops else _MAX_COST)


def _why_loops(bare: str, loops: set[int]) -> Message | None:
    """Return the error about loops, or None.

    bare: source without strings.
    loops: indexes of their brackets.
    """
    if len(loops) > _MAX_LOOPS:
        return Message(
            "more than {most} uses of all, exists and filter; split it into several expressions",
            most=_MAX_LOOPS,
        )
    if loops and len(_VARIABLES.findall(bare)) > _MAX_NAMED:
        return Message(
            "a loop, and more than {most} uses of limits, requests, container.env and pod; "
            "split it into several expressions",
            most=_MAX_NAMED,
        )
    if _MAP.search(bare):
        return Message("map creates a list, which takes too long; use exists, all or filter")
    if _nested(bare, loops):
        return Message("nested all, exists or filter; look up a name with `name in limits`")
    return None


def _why_patterns(bare: str, texts: list[str], most: int) -> Message | None:
    """Return the error about regular expressions. most: maximum microseconds to compile all of them."""
    if len(_MATCHES.findall(bare)) != len(_MATCHES_ONLY_TEXT.findall(bare)):
        return Message(
            "the pattern of matches must be a string literal, as in container.image.matches('train')"
        )
    patterns = (texts[bare.count('""', 0, match.end())] for match in _MATCHES_TEXT.finditer(bare))
    if sum(_cost(_literal_value(pattern)) for pattern in patterns) > most:
        return Message(r"matches takes too long; use smaller repeats, and [0-9A-Za-z_] instead of \w")
    return None


def _literal_value(text: str) -> str:
    """Return the value of a string literal."""
    try:
        return str(cel.compile(text).execute())
    except (ValueError, RuntimeError):  # compiling the whole expression reports it
        return ""


def _placeholder(text: str, texts: list[str]) -> str:
    """Return the replacement of a string literal or comment; adds a literal to `texts`."""
    if text.startswith("//"):
        return " "
    texts.append(text)
    return '""'


def _nested(bare: str, loops: set[int]) -> bool:
    """Return whether a loop is nested in another."""
    inside: list[bool] = []
    for place, character in enumerate(bare):
        if character == "(":
            if place in loops and any(inside):
                return True
            inside.append(place in loops)
        elif character == ")" and inside:
            inside.pop()
    return False


def _cost(pattern: str) -> int:
    """Return the estimated microseconds to compile a regular expression."""
    costs = [0]  # of each open group
    last = 0
    for part in _PART.findall(pattern):
        if part.startswith("(") and not part.endswith(")"):
            costs.append(0)
        elif part == ")" and len(costs) > 1:
            last = costs.pop()
            costs[-1] += last
        elif part.startswith("{") and len(part) > 1:
            times = max(map(int, re.findall(r"\d+", part)))
            costs[-1] += last * times
            last *= times + 1
        else:
            last = next(cost for kind, cost in _COSTS if kind.search(part))
            costs[-1] += last
    return sum(costs)
