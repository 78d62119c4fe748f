"""Errors of CEL expressions that do not compile: the column, the wrong text and a suggestion.

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
# Operators of other languages, and CEL's operators.
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
    """The expression does not compile, or cannot be evaluated. The fault of the rule's author."""

    def __init__(self, message: Message | str) -> None:
        self.text = message if isinstance(message, Message) else Text(message)  # a str has no translation
        super().__init__(self.text)

    def __str__(self) -> str:
        return self.text.en


class UnknownInputError(ExpressionError):
    """What an expression names is unknown here, so neither it nor its negation is true. Nobody's fault."""


class Mistake(NamedTuple):
    """A wrong text in an expression, and a suggestion."""

    position: int  # counted from 0
    text: str
    meant: str  # the suggestion; empty if unknown


def explained(source: str, error: str) -> Message:
    """Return the message for an expression that does not compile. error: the CEL library's first error."""
    mistakes = [*_operators(source), *_quantities(source), *_lists(source), *_resources(source)]
    if mistakes:
        return mistake_message(source, min(mistakes))
    match = _POSITION.match(error)
    if match is None:
        return Text(error)
    place, problem = _place(int(match[1]), int(match[2])), match[3]
    if missing := _MISSING.match(problem):
        return Message("{place}: missing `{missing}`", place=place, missing=missing[1])
    token = _TOKEN.match(problem)
    if token is None:
        return Message("{place}: {what}", place=place, what=problem)
    if token[1] == _END:
        return Message("{place}: the expression is incomplete", place=place)
    return Message("{place}: unexpected `{token}`", place=place, token=token[1])


def unknown_function(source: str, name: str) -> Message:
    """Return the message for a function that does not exist with these arguments; not(…) is the operator."""
    if name.lower() in _OPERATORS:
        return mistake_message(source, min(_operators(source)))
    return Message("unknown function {name!r}, or its arguments have other types", name=name)


def unknown_variable(source: str, name: str, known: list[str]) -> Message:
    """Return the message for an unknown variable; CEL reads `device` in limits.vendor.com/device as one."""
    if mistake := misplaced_resource(source):
        return mistake_message(source, mistake)
    hint = Message("there are {known}", known=", ".join(known))
    if similar := get_close_matches(name, known, 1):
        hint = Message("did you mean {similar!r}?", similar=similar[0])
    return Message("unknown variable {name!r}: {hint}", name=name, hint=hint)


def _bare(source: str) -> str:
    """Return the source with blanks for its strings and comments; positions stay the same."""
    return TEXT.sub(lambda match: " " * len(match[0]), source)


def _operators(source: str) -> Iterator[Mistake]:
    for match in _OPERATOR.finditer(_bare(source)):
        yield Mistake(match.start(), match[0], _OPERATORS[match[0].lower()])


def _quantities(source: str) -> Iterator[Mistake]:
    for match in _QUANTITY.finditer(_bare(source)):
        if meant := number_meant(match[0]):
            yield Mistake(match.start(), match[0], meant)


def number_meant(quantity: str) -> str | None:
    """Return a quantity as CEL writes the number, or None if it is no quantity."""
    try:
        number = parse_quantity(quantity)
    except QuantityError:
        return None
    return str(number) if isinstance(number, int) else f"{number:f}"


def _lists(source: str) -> Iterator[Mistake]:
    bare = _bare(source)
    for match in _IN_BRACKETS.finditer(bare):
        inside = source[match.start(1) : match.end(1)]
        if "," in bare[match.start(1) : match.end(1)]:
            yield Mistake(match.start(1), inside, f"[{inside[1:-1]}]")


def misplaced_resource(source: str) -> Mistake | None:
    """Return the first name of a resource after a point, as in limits.vendor.com/device, or None."""
    return next(_resources(source), None)


def _resources(source: str) -> Iterator[Mistake]:
    for match in _RESOURCE.finditer(_bare(source)):
        yield Mistake(match.start(), match[0], f"{match[1]}['{match[2]}']")


def mistake_message(source: str, mistake: Mistake) -> Message:
    """Return the message for a mistake."""
    message = Message("unexpected `{text}`", text=mistake.text)
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
