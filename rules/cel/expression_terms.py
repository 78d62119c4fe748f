"""What an expression is made of: the parts that it joins by `||` and `&&`."""

from __future__ import annotations

import re
from typing import Final

from rules.cel.cost_limits import TEXT

_BRACKETS: Final = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_TOKEN: Final = re.compile(r"[][(){}?]|\|\||&&")


def terms_of(source: str) -> list[str]:
    """Return the operands of the `||` and `&&` that stand in no bracket; the whole where it has none.

    The value of the whole hangs on theirs alone, and is an error only where one of theirs is.
    """
    # As long as before, so that places stay.
    bare = TEXT.sub(lambda found: "\0" * len(found[0]), source)
    depth, start, terms = 0, 0, []
    for token in _TOKEN.finditer(bare):
        depth += _BRACKETS.get(token[0], 0)
        if depth:
            continue
        if token[0] == "?":  # which binds less than they do
            return [source]
        if token[0] in ("||", "&&"):
            terms.append(source[start : token.start()])
            start = token.end()
    return [*terms, source[start:]]
