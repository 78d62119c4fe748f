"""CEL expressions, compiled when rules are loaded.

What goes in is scalars and small maps, never a whole pod, and only what the expression names: converting a
pod costs hundreds of times the evaluation. Source: https://github.com/google/cel-spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final

from rules.cel.cost_limits import MAX_ENTRIES, why_unbounded
from rules.cel.expression_terms import terms_of
from rules.cel.library import cel
from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.bounded_cache import bounded_cache, length

# A rule author's expression fits in a line; a bound keeps the parser's recursion bounded.
MAX_EXPRESSION_LENGTH: Final = 2048
_MAX_DEPTH: Final = 64
# Results that an expression remembers, and characters of what each is about: 30 KB at most.
_REMEMBERED: Final = 64
_LONGEST: Final = 512
# Macros that bind a name of their own: limits.exists(name, …).
_MACRO: Final = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*,")
# What the binding raises for an operation that values do not support; it names the operation.
_EVALUATION_ERRORS: Final = (TypeError, ValueError, RuntimeError, IndexError, ArithmeticError)
_ADVICE: Final = " CEL does not coerce"  # begins what the binding adds for people who write CEL
_OTHER_TYPES: Final = ("No such overload", "Unsupported operation")
# Quantities of extended resources are whole, or the API server refuses them.
_MIXED: Final = "types do not mix: quantities are int; to reckon with a fraction, write double(value) * 1.5"
# What an object may be given as.
_MAPS: Final = (tuple, dict)
# What an expression may take for the name of a resource; each is one that the sample has.
_RESOURCE: Final = re.compile(r"""["']([^"'/]+/[^"']+)["']""")
# A value for each variable, to find at load what would fail for every container.
_SAMPLES: Final[Mapping[str, Any]] = {
    "value": 1,
    "container": {"name": "main", "image": "registry.example.com/team/image:1"},
    "pod": {"labels": {"app": "main"}, "annotations": {}, "namespace": "default"},
}
VALIDATION_VARIABLES: Final = ("value", "limits", "requests", "container")
CONDITION_VARIABLES: Final = ("limits", "requests", "container", "pod")


class ExpressionError(ValueError):
    """The expression does not compile, or cannot be evaluated. The fault of the rule's author."""


class Expression:
    """One compiled expression whose value is true or false. Any thread may use it.

    It remembers what it came to: the containers of a cluster are much alike, and a look costs a tenth.
    """

    __slots__ = ("_found", "_program", "source", "variables")

    def __init__(self, source: str, variables: Iterable[str]) -> None:
        """Compile source, which may name the given variables. Raises ExpressionError."""
        self.source = source
        self._program = _compile(source)
        self._found = bounded_cache(self._evaluate, _REMEMBERED, lambda told: length(told) <= _LONGEST)
        known = list(variables)
        named = self._program.variables()
        bound = set(_MACRO.findall(source))
        for name in named:
            if name not in known and name not in bound:
                near = get_close_matches(name, known, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
                raise ExpressionError(f"unknown variable {name!r}: {hint}")
        self.variables = tuple(name for name in known if name in named)
        resources = dict.fromkeys(["example.com/device", *_RESOURCE.findall(source)], 1)
        samples = {**_SAMPLES, "limits": resources, "requests": resources}
        try:
            self(samples.__getitem__)
        except ExpressionError as error:
            if any(told in str(error) for told in _OTHER_TYPES):
                raise ExpressionError(_MIXED) from None
            if "Undefined" in str(error) or "true or false" in str(error):
                raise

    def __call__(self, value_of: Callable[[str], Any]) -> bool:
        """Evaluate; value_of gives the value of a variable that is named. Raises ExpressionError.

        A value is text where it is a quantity, else an object or, to be remembered, the tuple of its items.
        """
        told = self._told(value_of)
        try:
            return self._found(told)
        except TypeError:  # an object has no hash
            return self._evaluate(told)

    def afresh(self, value_of: Callable[[str], Any]) -> bool:
        """Evaluate likewise, for values that hardly come again: nothing is looked up or remembered."""
        return self._evaluate(self._told(value_of))

    def _told(self, value_of: Callable[[str], Any]) -> tuple[Any, ...]:
        return tuple([_bounded(name, value_of(name)) for name in self.variables])

    def terms(self) -> tuple[Expression, ...]:
        """Compile what it joins by `||` and `&&`, on whose values its own hangs; itself, where it is one."""
        try:
            terms = tuple([Expression(source, self.variables) for source in terms_of(self.source)])
        except ExpressionError:  # such as one that is neither true nor false
            terms = ()
        return terms if len(terms) > 1 else (self,)

    def _evaluate(self, told: tuple[Any, ...]) -> bool:
        given = {name: _VALUES[name](value) for name, value in zip(self.variables, told, strict=True)}
        try:
            result = self._program.execute(given)
        except KeyError as error:
            raise ExpressionError(f"no such key: {error}") from error
        except _EVALUATION_ERRORS as error:
            raise ExpressionError(str(error).partition(_ADVICE)[0]) from error
        if not isinstance(result, bool):
            raise ExpressionError(f"the result is {type(result).__name__}, not true or false")
        return result

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def _compile(source: str) -> Any:
    if len(source) > MAX_EXPRESSION_LENGTH:
        raise ExpressionError(f"longer than {MAX_EXPRESSION_LENGTH} characters")
    depth = deepest = 0
    for character in source:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > _MAX_DEPTH:
        raise ExpressionError(f"nested deeper than {_MAX_DEPTH} brackets")
    if why := why_unbounded(source):
        raise ExpressionError(why)
    try:
        return cel.compile(source)
    except ValueError as error:
        raise ExpressionError(_first_line(str(error))) from error


def _bounded(name: str, value: Any) -> Any:
    """Return a value that has no more entries than a loop may take. Raises ExpressionError."""
    if isinstance(value, _MAPS):
        if len(value) > MAX_ENTRIES:
            raise ExpressionError(f"more than {MAX_ENTRIES} {name}")
        if name == "pod":
            for part, entries in value.items() if isinstance(value, dict) else value:
                _bounded(part, entries)
    return value


def number(quantity: object) -> int | float:
    """Return a quantity as CEL takes it: an int where it is whole, else a double. Raises QuantityError."""
    value = parse_quantity(quantity)
    return float(value) if isinstance(value, Decimal) else value


def _value(quantity: object) -> Any:
    return number(quantity) if isinstance(quantity, str) else quantity


def _quantities(items: Any) -> dict[str, int | float]:
    """Return the quantities of a container as CEL takes them; what is no quantity is left out."""
    result: dict[str, int | float] = {}
    for key, quantity in dict(items).items():
        try:
            result[key] = number(quantity)
        except QuantityError:
            continue
    return result


def _facts(items: Any) -> dict[str, Any]:
    """Return an object of texts and objects; an object may be the tuple of its items."""
    return {name: dict(value) if isinstance(value, tuple) else value for name, value in dict(items).items()}


# How CEL takes what a variable stands for.
_VALUES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "value": _value,
    "limits": _quantities,
    "requests": _quantities,
    "container": _facts,
    "pod": _facts,
}


def _first_line(message: str) -> str:
    """Return the parser's complaint without the list of every token that it could have taken."""
    line = message.split("ERROR: <input>:", 1)[-1].partition("\n")[0]
    return line.partition(" expecting ")[0]
