"""Texts that a regular expression of a table matches: each choice once, and the shortest repeats."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, product
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_MAX_SAMPLES = 400
_ANY = "x"
_DIGIT = "1"


def samples(expression: str) -> list[str]:
    """Return texts that an expression without lookaround matches."""
    return list(dict.fromkeys(islice(_texts(parser.parse(expression)), _MAX_SAMPLES)))


def _texts(tokens: Iterable[Any]) -> Iterable[str]:
    return map("".join, product(*[list(_of_token(*token)) for token in tokens]))


def _of_token(code: Any, argument: Any) -> Iterable[str]:
    if code is codes.LITERAL:
        yield chr(argument)
    elif code is codes.ANY:
        yield _ANY
    elif code is codes.IN:
        yield from _of_set(argument)
    elif code is codes.BRANCH:
        for branch in argument[1]:
            yield from _texts(branch)
    elif code is codes.SUBPATTERN:
        yield from _texts(argument[-1])
    elif code is codes.MAX_REPEAT:
        lowest, highest, tokens = argument
        for count in sorted({lowest, min(highest, lowest + 1)}):
            yield from map("".join, product(list(_texts(tokens)), repeat=count))
    else:
        raise NotImplementedError(f"{code} is in no table")


def _of_set(members: Iterable[Any]) -> Iterable[str]:
    for code, argument in members:
        if code is codes.LITERAL:
            yield chr(argument)
        elif code is codes.RANGE:
            yield from map(chr, range(argument[0], argument[1] + 1))
        elif argument is codes.CATEGORY_DIGIT:
            yield _DIGIT
        else:
            raise NotImplementedError(f"{code} is in no table")
