"""Errors of CEL expressions that do not compile: the column, what is there, and what was probably meant.

People write operators of SQL, Python or JavaScript, and quantities with their suffixes.
Source of the syntax: https://github.com/google/cel-spec/blob/master/doc/langdef.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final, NamedTuple

from rules.cel.cost_limits import TEXT
from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.i18n import Text

_POSITION: Final = re.compile(r"(\d+):(\d+): (.*)", re.DOTALL)
_TOKEN: Final = re.compile(
    r"Syntax error: (?:mismatched input|extraneous input|token recognition error at:|no viable alternative at"
    r" input) '(.*?)\s*'"
)
_MISSING: Final = re.compile(r"Syntax error: missing '(.+)' at ")
_END: Final = "<EOF>"
# Operators of other languages, with those of CEL.
_OPERATORS: Final = {
    "=": "==",
    "===": "==",
    "!==": "!=",
    "<>": "!=",
    "=<": "<=",
    "=>": ">=",
    "&": "&&",
    "|": "||",
    "and": "&&",
    "or": "||",
    "not": "!",
}
_OPERATOR: Final = re.compile(
    r"!==|===|=<|=>|<>|(?<![=!<>])=(?!=)|(?<!&)&(?!&)|(?<!\|)\|(?!\|)|\b(?:and|or|not)\b", re.IGNORECASE
)
# A quantity as Kubernetes writes it. Source: rules/kube/quantity.py
_QUANTITY: Final = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:[KMGTPE]i|[kMGTPE])\b")
_IN_BRACKETS: Final = re.compile(r"\bin\s*(\([^()]*\))")
_RESOURCE: Final = re.compile(r"\b(limits|requests)\.([A-Za-z0-9.-]+/[\w.-]+)")
# A quantity compared with a text, which is false or fails.
_QUOTED_NUMBER: Final = re.compile(
    r"""(?:\bvalue|\b(?:limits|requests)\s*\[[^\]]*\])\s*(?:[=!<>]=|[<>])\s*((["'])(\d[\w.]*)\2)"""
)
_CALL: Final = re.compile(r"""\bquantity\s*\(\s*(["'])([^"']*)\1\s*\)""")


class _Mistake(NamedTuple):
    """What is wrong at a position, counted from 0, and what was meant."""

    position: int
    found: str
    meant: str


def explained(source: str, error: str) -> Text:
    """Return the message for an expression that does not compile. error: the first one of the CEL library."""
    mistakes = [*_operators(source), *_quantities(source), *_lists(source), *_resources(source)]
    if mistakes:
        return _message(source, min(mistakes))
    found = _POSITION.match(error)
    if found is None:
        return Text(error)
    place, what = _place(int(found[1]), int(found[2])), found[3]
    if missing := _MISSING.match(what):
        return Text(f"{place.en}: missing `{missing[1]}`", f"{place.zh}：缺少 `{missing[1]}`")
    token = _TOKEN.match(what)
    if token is None:
        return Text(f"{place.en}: {what}", f"{place.zh}：{what}")
    if token[1] == _END:
        return Text(f"{place.en}: the expression is incomplete", f"{place.zh}：表达式不完整")
    return Text(f"{place.en}: unexpected `{token[1]}`", f"{place.zh}：此处不应有 `{token[1]}`")


def mistyped(source: str) -> Text | None:
    """Return the message for an expression that compares a quantity with a text or a function, or None."""
    found = [*_calls(source), *_quoted_numbers(source)]
    return _message(source, min(found)) if found else None


def unknown_function(source: str, name: str) -> Text:
    """Return the message for a function that does not exist for its arguments; not(…) is `not`."""
    if name.lower() in _OPERATORS:
        return _message(source, min(_operators(source)))
    return Text(
        f"unknown function {name!r}, or its arguments have other types",
        f"未知的函数 {name!r}，或其参数类型不符",
    )


def unknown_variable(source: str, name: str, known: list[str]) -> Text:
    """Return the message for a variable that does not exist; limits.vendor.com/device names `device`."""
    if members := [*_resources(source)]:
        return _message(source, members[0])
    hint = Text(f"there are {', '.join(known)}", f"可用的变量有 {', '.join(known)}")
    if similar := get_close_matches(name, known, 1):
        hint = Text(f"did you mean {similar[0]!r}?", f"是否应为 {similar[0]!r}？")
    return Text(f"unknown variable {name!r}: {hint.en}", f"未知的变量 {name!r}：{hint.zh}")


def _bare(source: str) -> str:
    """Return the source with its strings and comments blank, so that positions stay."""
    return TEXT.sub(lambda found: " " * len(found[0]), source)


def _operators(source: str) -> Iterator[_Mistake]:
    for found in _OPERATOR.finditer(_bare(source)):
        yield _Mistake(found.start(), found[0], _OPERATORS[found[0].lower()])


def _quantities(source: str) -> Iterator[_Mistake]:
    for found in _QUANTITY.finditer(_bare(source)):
        yield from _number(found.start(), found[0], found[0])


def _calls(source: str) -> Iterator[_Mistake]:
    for found in _CALL.finditer(source):
        yield from _number(found.start(), found[0], found[2])


def _quoted_numbers(source: str) -> Iterator[_Mistake]:
    for found in _QUOTED_NUMBER.finditer(source):
        yield from _number(found.start(1), found[1], found[3])


def _number(position: int, found: str, quantity: str) -> Iterator[_Mistake]:
    try:
        number = parse_quantity(quantity)
    except QuantityError:
        return
    yield _Mistake(position, found, str(number) if isinstance(number, int) else f"{number:f}")


def _lists(source: str) -> Iterator[_Mistake]:
    bare = _bare(source)
    for found in _IN_BRACKETS.finditer(bare):
        inside = source[found.start(1) : found.end(1)]
        if "," in bare[found.start(1) : found.end(1)]:
            yield _Mistake(found.start(1), inside, f"[{inside[1:-1]}]")


def _resources(source: str) -> Iterator[_Mistake]:
    for found in _RESOURCE.finditer(_bare(source)):
        yield _Mistake(found.start(), found[0], f"{found[1]}['{found[2]}']")


def _message(source: str, mistake: _Mistake) -> Text:
    before = source[: mistake.position]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    place = _place(line, column)
    return Text(
        f"{place.en}: unexpected `{mistake.found}` – did you mean `{mistake.meant}`?",
        f"{place.zh}：此处不应有 `{mistake.found}`；是否应为 `{mistake.meant}`？",
    )


def _place(line: int, column: int) -> Text:
    if line == 1:
        return Text(f"column {column}", f"第 {column} 列")
    return Text(f"line {line}, column {column}", f"第 {line} 行第 {column} 列")
