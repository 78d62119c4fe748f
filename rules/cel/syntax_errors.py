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
from rules.text.i18n import Message, Text

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


class ExpressionError(ValueError):
    """The expression does not compile, or cannot be evaluated. The fault of the rule's author.

    text: the message; a str is the same in both languages.
    """

    def __init__(self, message: Message | str) -> None:
        self.text = message if isinstance(message, Message) else Text(message)
        super().__init__(self.text)

    def __str__(self) -> str:
        return self.text.en


class Mistake(NamedTuple):
    """What is wrong at a position, counted from 0, and what was meant; empty if that is unknown."""

    position: int
    found: str
    meant: str


def explained(source: str, error: str) -> Message:
    """Return the message for an expression that does not compile. error: the first one of the CEL library."""
    mistakes = [*_operators(source), *_quantities(source), *_lists(source), *_resources(source)]
    if mistakes:
        return mistake_message(source, min(mistakes))
    found = _POSITION.match(error)
    if found is None:
        return Text(error)
    place, what = _place(int(found[1]), int(found[2])), found[3]
    if missing := _MISSING.match(what):
        return Message("{place}: missing `{missing}`", place=place, missing=missing[1])
    token = _TOKEN.match(what)
    if token is None:
        return Message("{place}: {what}", place=place, what=what)
    if token[1] == _END:
        return Message("{place}: the expression is incomplete", place=place)
    return Message("{place}: unexpected `{token}`", place=place, token=token[1])


def unknown_function(source: str, name: str) -> Message:
    """Return the message for a function that does not exist for its arguments; not(…) is `not`."""
    if name.lower() in _OPERATORS:
        return mistake_message(source, min(_operators(source)))
    return Message("unknown function {name!r}, or its arguments have other types", name=name)


def unknown_variable(source: str, name: str, known: list[str]) -> Message:
    """Return the message for a variable that does not exist; limits.vendor.com/device names `device`."""
    if mistake := misplaced_resource(source):
        return mistake_message(source, mistake)
    hint = Message("there are {known}", known=", ".join(known))
    if similar := get_close_matches(name, known, 1):
        hint = Message("did you mean {similar!r}?", similar=similar[0])
    return Message("unknown variable {name!r}: {hint}", name=name, hint=hint)


def _bare(source: str) -> str:
    """Return the source with its strings and comments blank, so that positions stay."""
    return TEXT.sub(lambda found: " " * len(found[0]), source)


def _operators(source: str) -> Iterator[Mistake]:
    for found in _OPERATOR.finditer(_bare(source)):
        yield Mistake(found.start(), found[0], _OPERATORS[found[0].lower()])


def _quantities(source: str) -> Iterator[Mistake]:
    for found in _QUANTITY.finditer(_bare(source)):
        if meant := number_meant(found[0]):
            yield Mistake(found.start(), found[0], meant)


def number_meant(quantity: str) -> str | None:
    """Return a quantity as CEL writes the number, or None if it is no quantity."""
    try:
        number = parse_quantity(quantity)
    except QuantityError:
        return None
    return str(number) if isinstance(number, int) else f"{number:f}"


def _lists(source: str) -> Iterator[Mistake]:
    bare = _bare(source)
    for found in _IN_BRACKETS.finditer(bare):
        inside = source[found.start(1) : found.end(1)]
        if "," in bare[found.start(1) : found.end(1)]:
            yield Mistake(found.start(1), inside, f"[{inside[1:-1]}]")


def misplaced_resource(source: str) -> Mistake | None:
    """Return the first name of a resource after a point, as in limits.vendor.com/device, or None."""
    return next(_resources(source), None)


def _resources(source: str) -> Iterator[Mistake]:
    for found in _RESOURCE.finditer(_bare(source)):
        yield Mistake(found.start(), found[0], f"{found[1]}['{found[2]}']")


def mistake_message(source: str, mistake: Mistake) -> Message:
    """Return the message for a mistake."""
    message = Message("unexpected `{found}`", found=mistake.found)
    if mistake.meant:
        message = Message("{message} – did you mean `{meant}`?", message=message, meant=mistake.meant)
    return at_position(source, mistake.position, message)


def at_position(source: str, position: int, message: Message) -> Message:
    """Return a message with its place in the expression. position: counted from 0."""
    before = source[:position]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    place = _place(line, column)
    return Message("{place}: {message}", place=place, message=message)


def _place(line: int, column: int) -> Message:
    if line == 1:
        return Message("column {column}", column=column)
    return Message("line {line}, column {column}", line=line, column=column)
