"""How long an expression may take: what could keep the gate busy is refused when it is read.

An evaluation cannot be broken off, and keeps all other requests waiting. Its parts take well under a
microsecond each, but for loops in one another and for regular expressions, which are compiled at each call.
Source of the syntax: https://github.com/google/cel-spec, https://docs.rs/regex/latest/regex/#syntax.
"""

from __future__ import annotations

import re
from typing import Final

from rules.cel.library import cel

_MAX_LOOPS: Final = 2
# How often an expression that loops may name what it is given: each time a map is copied, of the most entries
# in 30 microseconds.
_MAX_NAMED: Final = 16
_GIVEN: Final = re.compile(r"\b(?:limits|requests|pod)\b")
# Entries of a map that an expression is given; size_limit.py allows fewer names in one container.
MAX_ENTRIES: Final = 256
# Microseconds that all patterns of an expression may take to compile, and in one that loops.
_MAX_COST: Final = 1000
_MAX_COST_IN_LOOPS: Final = 100
# Texts in quotes, raw ones first, which know no escapes; and comments.
TEXT: Final = re.compile(
    r"""\b(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')"""
    r"""|(?:\b[bB])?(?:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
    r"""|//[^\n]*""",
    re.DOTALL,
)
_LOOP: Final = re.compile(r"\b(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
# Its list is copied, with all that is in it, for each entry that is added.
_MAP: Final = re.compile(r"\bmap\s*\(")
_MATCHES: Final = re.compile(r"\bmatches\s*\(")
_MATCHES_TEXT: Final = re.compile(r"""\.\s*matches\s*\(\s*(?="")""")
_MATCHES_ONLY_TEXT: Final = re.compile(r"""\.\s*matches\s*\(\s*""\s*\)""")
# A part of a regular expression. Microseconds that one takes to compile, measured by a hundred of each.
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


def why_unbounded(source: str) -> str:
    """Return why an expression may take too long, or nothing."""
    texts: list[str] = []
    bare = TEXT.sub(lambda found: _put_by(found[0], texts), source)
    loops = {found.end() - 1 for found in _LOOP.finditer(bare)}
    return _why_loops(bare, loops) or _why_patterns(bare, texts, _MAX_COST_IN_LOOPS if loops else _MAX_COST)


def _why_loops(bare: str, loops: set[int]) -> str:
    """Return what is wrong with loops. bare: without texts; loops: where their brackets open."""
    if len(loops) > _MAX_LOOPS:
        return f"more than {_MAX_LOOPS} of all, exists and filter: make it several expressions"
    if loops and len(_GIVEN.findall(bare)) > _MAX_NAMED:
        return (
            f"a loop, and limits, requests and pod more than {_MAX_NAMED} times: make it several expressions"
        )
    if _MAP.search(bare):
        return "map would make a list, which takes too long: ask by exists, all or filter"
    if _one_in_another(bare, loops):
        return "all, exists and filter in one another: look a name up with `name in limits`"
    return ""


def _why_patterns(bare: str, texts: list[str], most: int) -> str:
    """Return what is wrong with the patterns among texts. most: microseconds that all of them may take."""
    if len(_MATCHES.findall(bare)) != len(_MATCHES_ONLY_TEXT.findall(bare)):
        return "matches takes its pattern in quotes, as in container.image.matches('train')"
    patterns = (texts[bare.count('""', 0, found.end())] for found in _MATCHES_TEXT.finditer(bare))
    if sum(_cost(_said(pattern)) for pattern in patterns) > most:
        return r"matches would take too long: repeat less, and write [0-9A-Za-z_] for \w"
    return ""


def _said(text: str) -> str:
    """Return what a text in quotes says."""
    try:
        return str(cel.compile(text).execute())
    except (ValueError, RuntimeError):  # of which the whole says more when it is compiled
        return ""


def _put_by(text: str, texts: list[str]) -> str:
    """Return what stands for a text, which is put by, or for a comment."""
    if text.startswith("//"):
        return " "
    texts.append(text)
    return '""'


def _one_in_another(bare: str, loops: set[int]) -> bool:
    """Tell whether a loop stands in another."""
    within: list[bool] = []
    for place, character in enumerate(bare):
        if character == "(":
            if place in loops and any(within):
                return True
            within.append(place in loops)
        elif character == ")" and within:
            within.pop()
    return False


def _cost(pattern: str) -> int:
    """Return how many microseconds it takes to compile a regular expression, about."""
    costs = [0]  # of each group that is open
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
