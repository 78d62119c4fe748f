"""How long Python's engine may try a regular expression of others.

It tries one way after the other, so it takes years for a short text with `(a|a)*b`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from operator import or_
from typing import Any, Final

from msgspec import Struct

from rules.text.i18n import Message

_parser: Final[Any] = import_module("re._parser")  # its nodes are the same since Python 3.11
_Node = tuple[Any, Any]
_MAX_LENGTH: Final = 1024
_ENORMOUS: Final = 1 << 64  # steps, or more

# Sets of characters are bits: one for each ASCII character, for all others, and for the end of the text.
_ASCII: Final = (1 << 128) - 1
_OTHERS: Final = 1 << 128
_END: Final = 1 << 129
_ANY: Final = _ASCII | _OTHERS
_UPPER: Final = ((1 << 26) - 1) << ord("A")


def _members(category: str) -> int:
    return _OTHERS | sum(1 << code for code in range(128) if re.match(category, chr(code), re.ASCII))


_CATEGORIES: Final = {
    "CATEGORY_DIGIT": _members(r"\d"),
    "CATEGORY_NOT_DIGIT": _members(r"\D"),
    "CATEGORY_SPACE": _members(r"\s"),
    "CATEGORY_NOT_SPACE": _members(r"\S"),
    "CATEGORY_WORD": _members(r"\w"),
    "CATEGORY_NOT_WORD": _members(r"\W"),
}


def most_steps(source: str, longest: int) -> int:
    """Return a bound of the steps to match an expression at one place of a text.

    The engine goes on in one way if the next character says which: `[0-9]+` ends at a dot. Otherwise the
    numbers of ways multiply: `.*` may end at each character. longest: characters of the text. Raises
    ValueError if the expression is invalid, longer than 1024 characters, or has flags.
    """
    if len(source) > _MAX_LENGTH:
        raise ValueError(
            Message("expected at most {most} characters, got {length}", most=_MAX_LENGTH, length=len(source))
        )
    try:
        tree = _parser.parse(source)
        if tree.state.flags != re.UNICODE.value:
            raise ValueError(Message("expected no flags such as (?i)"))
        return _Walk(longest, tree.state.groupwidths).through(tree, _END)[1]
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from None


class _Walk(Struct, frozen=True):
    longest: int
    widths: Sequence[tuple[int, int] | None]  # of groups

    def through(self, nodes: Any, after: int) -> tuple[int, int]:
        """Return the most ways through a sequence, and steps of all. after: what follows it."""
        follow = []
        for node in reversed(list(nodes)):
            follow.append(after)
            after = _first(node, after)
        ways, steps = 1, 0
        for node, after in zip(nodes, reversed(follow), strict=True):
            more, cost = self._of(node, after)
            ways, steps = min(ways * more, _ENORMOUS), min(steps + ways * cost, _ENORMOUS)
        return ways, steps

    def _of(self, node: _Node, after: int) -> tuple[int, int]:
        match node[0].name, node[1]:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "AT", _:
                return 1, 1
            case "ASSERT" | "ASSERT_NOT", (_, inner):
                return 1, self.through(inner, _ANY | _END)[1]
            case "GROUPREF", group:
                width = self.widths[group]
                return 1, min(width[1] if width else self.longest, self.longest) + 1
        if (choice := _choice(node)) is None:
            return _ENORMOUS, _ENORMOUS
        least, most, branches = choice
        times = min(most, self.longest)
        start = _first_of_any(branches, after)
        follow = start | after if times > 1 else after
        results = [self.through(branch, follow) for branch in branches]
        firsts = [_first_of(branch, follow) for branch in branches]
        disjoint = sum(firsts) == reduce(or_, firsts)
        ways = (max if disjoint else sum)(ways for ways, _ in results)
        before = min(ways ** min(max(times - 1, 0), 64), _ENORMOUS)  # the last repetition
        ways *= before * (max(times - least, 0) + 1 if start & after else 1)
        return ways, before * sum(steps for _, steps in results) * times + ways


def _choice(node: _Node) -> tuple[int, int, Sequence[Any]] | None:
    """Return the least and the most repetitions of a group, and its branches; None for another node."""
    match node[0].name, node[1]:
        case "SUBPATTERN", (_, 0, 0, inner):
            return 1, 1, [inner]
        case "ATOMIC_GROUP", inner:
            return 1, 1, [inner]
        case "BRANCH", (_, branches):
            return 1, 1, branches
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT", (least, most, inner):
            return least, most, [inner]
    return None


def _first_of(nodes: Any, after: int) -> int:
    """Return the characters that a sequence may start with; if it may be empty, with those after it."""
    return reduce(lambda follow, node: _first(node, follow), reversed(list(nodes)), after)


def _first_of_any(branches: Sequence[Any], after: int) -> int:
    return reduce(or_, (_first_of(branch, after) for branch in branches))


def _first(node: _Node, after: int) -> int:
    if choice := _choice(node):
        least, _, branches = choice
        return _first_of_any(branches, after) | (0 if least else after)
    match node[0].name, node[1]:
        case "LITERAL" | "NOT_LITERAL", _:
            return _characters([node])
        case "IN", members:
            return _characters(members)
        case "ANY", _:
            return _ANY
        case "AT", place if place.name in ("AT_END", "AT_END_STRING"):
            return _END | 1 << ord("\n")
    return _ANY | _END


def _characters(members: Sequence[_Node]) -> int:
    """Return the characters of a class, in both cases."""
    characters = 0
    for name, value in members:
        match name.name:
            case "RANGE":
                characters |= (2 << value[1]) - (1 << value[0])
            case "CATEGORY":
                characters |= _CATEGORIES[value.name]
            case "LITERAL" | "NOT_LITERAL":
                characters |= 1 << value
    if members[0][0].name in ("NEGATE", "NOT_LITERAL"):
        return _ANY & ~(characters & _ASCII)
    others = _ANY if characters > _ANY else characters & _OTHERS
    return others | characters & _ASCII | (characters & _UPPER) << 32 | (characters & _UPPER << 32) >> 32
