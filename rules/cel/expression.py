"""CEL expressions, compiled when rules are loaded.

An expression gets scalars and small maps, never a whole pod, and only the members that it names: to convert a
pod takes hundreds of times as long as the evaluation. Source: https://github.com/google/cel-spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final, NamedTuple, NoReturn

from rules.cel.checker import check
from rules.cel.cost_limits import MAX_ENTRIES, why_unbounded
from rules.cel.library import cel
from rules.cel.syntax_errors import ExpressionError, explained
from rules.cel.variables import BOOL, INPUTS, INT, VARIABLES
from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.bounded_cache import bounded_cache, length
from rules.text.i18n import Message

# A rule author's expression fits in a line; a bound keeps the parser's recursion bounded.
MAX_EXPRESSION_LENGTH: Final = 2048
_MAX_DEPTH: Final = 64
# Cached results of an expression, and the maximum characters of the values of one result: 30 KB at most.
_REMEMBERED: Final = 64
_LONGEST: Final = 512
# Characters of the values of the last evaluation, which are kept: a list of 256 tolerations has 30,000.
_LONGEST_LAST: Final = 65_536
# What the binding raises for an operation that values do not support; it names the operation.
_EVALUATION_ERRORS: Final = (TypeError, ValueError, RuntimeError, IndexError, ArithmeticError)
_ADVICE: Final = " CEL does not coerce"  # the start of an advice that the binding adds to its message
# String literals that may be names of resources.
_RESOURCE: Final = re.compile(r"""["']([^"'/]+/[^"']+)["']""")
_MAPS: Final = frozenset(name for name, kind in INPUTS.items() if kind.name == "map")
_PARTS: Final = frozenset(name for name, kind in INPUTS.items() if kind.name in ("list", "object"))
# Given as text, whose length is known and which no other type is equal to.
_NUMBERS: Final = {
    name: {"int": int, "bool": bool}[kind.name] for name, kind in INPUTS.items() if kind in (INT, BOOL)
}
_QUANTITIES: Final = frozenset({"value", "limits", "requests"})


class Packed(str):
    """A list or an object as JSON, for an input that several containers share: it is written once.

    widest: the number of entries of its longest list.
    """

    __slots__ = ("widest",)
    widest: int

    @classmethod
    def of(cls, value: Any) -> Packed:
        """Return a value as JSON."""
        packed = cls(json.dumps(value))
        packed.widest = _widest(value)
        return packed


class _Input(NamedTuple):
    """A value that an expression gets."""

    name: str
    keys: tuple[str, ...] | None = None  # the members of a map that it names; None for all


class Inputs(dict[str, Any]):
    """Values by the names of `rules.cel.variables.INPUTS`, as far as an expression has named them.

    They are `value`, `limits`, `requests` (quantities as written), and members of `container` or `pod` such
    as `container.env`. A subclass reads them by `__missing__`.
    """

    __slots__ = ()


class Expression:
    """One compiled expression whose value is true or false. Any thread may use it.

    Results are cached by the values of all inputs: the containers of a cluster are similar, and a look-up
    takes a tenth of the time of an evaluation.

    lookups: (input, key of a map) whose absence makes an evaluation fail.
    tested: (input, key of a map) whose existence the expression tests.
    """

    __slots__ = (
        "_inputs",
        "_last",
        "_pickers",
        "_program",
        "_result",
        "lookups",
        "source",
        "tested",
        "variables",
    )

    def __init__(self, source: str, variables: Iterable[str]) -> None:
        """Compile source, which may name the given variables. Raises ExpressionError."""
        self.source = source
        self._program = compile_program(source)
        self._result = bounded_cache(self._of_long, _REMEMBERED, lambda values: length(values) <= _LONGEST)
        self._last: tuple[tuple[Any, ...], bool] | None = None
        known = {name: VARIABLES[name] for name in variables}
        checked = check(source, known)
        self.lookups, self.tested = checked.lookups, checked.tested
        self._inputs = tuple(
            _Input(name, _keys(name, checked.uses[name])) for name in INPUTS if name in checked.uses
        )
        named = {input_.name.partition(".")[0] for input_ in self._inputs}
        self.variables = tuple(name for name in known if name in named)
        self._pickers = tuple((input_.name, _picker(input_)) for input_ in self._inputs)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that it names, such as `value`, `container.image`, `pod.labels`."""
        return tuple(input_.name for input_ in self._inputs)

    @property
    def resources(self) -> tuple[str, ...]:
        """The string literals that may be names of resources."""
        return tuple(dict.fromkeys(_RESOURCE.findall(self.source)))

    def evaluate(self, inputs: Inputs) -> bool:
        """Return the value for inputs, of which only those are read that it names. Raises ExpressionError."""
        values: tuple[Any, ...] = ()
        for name, pick in self._pickers:  # three at most, nearly always
            values += (pick(inputs[name]) if pick else inputs[name],)
        try:
            return self._result(values)
        except TypeError:  # a quantity that has no hash
            return self._evaluate(values)

    def _of_long(self, values: tuple[Any, ...]) -> bool:
        """Evaluate for values that may be long: those of the last evaluation are known, of one pod mostly."""
        last = self._last
        if last is not None and last[0] == values:
            return last[1]
        result = self._evaluate(values)
        if length(values) <= _LONGEST_LAST:
            self._last = values, result
        return result

    def _evaluate(self, values: tuple[Any, ...]) -> bool:
        given: dict[str, Any] = {}
        for input_, value in zip(self._inputs, values, strict=True):
            variable, _, member = input_.name.partition(".")
            converted = _converted(input_, value)
            if member:
                given.setdefault(variable, {})[member] = converted
            else:
                given[variable] = converted
        reason: Message | str
        try:
            result = self._program.execute(given)
        except KeyError as error:
            reason = Message("no such key: {key}", key=str(error))
        except _EVALUATION_ERRORS as error:
            reason = str(error).partition(_ADVICE)[0]
        else:
            if isinstance(result, bool):
                return result
            kind = Message("{word}", word=type(result).__name__)
            reason = Message("the result is {kind}, not true or false", kind=kind)
        raise ExpressionError(reason)  # without a cause, whose traceback would keep the values

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def _keys(name: str, used: frozenset[str | None]) -> tuple[str, ...] | None:
    """Return the keys of a map that are used; None for the whole map, and for other inputs."""
    keys = sorted(key for key in used if key is not None)
    return tuple(keys) if name in _MAPS and len(keys) == len(used) else None


def _picker(input_: _Input) -> Callable[[Any], Any] | None:
    """Return a function that makes the value of an input hashable, or None if it is.

    A map becomes a tuple of the members that are used. The function raises ExpressionError for a map or list
    of too many members.
    """
    if input_.name in _PARTS:

        def packed(value: Any) -> str:
            known = value if isinstance(value, Packed) else Packed.of(value)
            return known if known.widest <= MAX_ENTRIES else _too_many(input_.name)

        return packed
    if input_.name in _NUMBERS:
        return "{:x}".format
    if input_.name not in _MAPS:
        return None
    if (keys := input_.keys) is not None:
        return lambda members: tuple(map(members.get, keys))

    def all_members(members: Any) -> tuple[Any, ...]:
        return tuple(members.items()) if len(members) <= MAX_ENTRIES else _too_many(input_.name)

    return all_members


def _too_many(name: str) -> NoReturn:
    raise ExpressionError(
        Message("more than {most} {name}", most=MAX_ENTRIES, name=name.partition(".")[2] or name)
    )


def _widest(value: Any) -> int:
    """Return the number of entries of the longest list in a value."""
    if isinstance(value, dict):
        return max(map(_widest, value.values()), default=0)
    return max(len(value), *map(_widest, value)) if isinstance(value, list) and value else 0


def _converted(input_: _Input, value: Any) -> Any:
    """Return the value of an input in the types of CEL."""
    if input_.name == "value":
        return number(value) if isinstance(value, str) else value
    if input_.name in _PARTS:
        return json.loads(value)
    if of_text := _NUMBERS.get(input_.name):
        return of_text(int(value, 16))
    if input_.name not in _MAPS:
        return value
    items = value if input_.keys is None else zip(input_.keys, value, strict=True)
    if input_.name not in _QUANTITIES:
        return {key: text for key, text in items if text is not None}
    return _quantities(items)


def compile_program(source: str, longest: int = MAX_EXPRESSION_LENGTH) -> Any:
    """Return a program of the CEL library whose evaluation takes a bounded time. Raises ExpressionError."""
    if len(source) > longest:
        raise ExpressionError(Message("longer than {most} characters", most=longest))
    depth = deepest = 0
    for character in source:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > _MAX_DEPTH:
        raise ExpressionError(Message("nested deeper than {most} brackets", most=_MAX_DEPTH))
    if why := why_unbounded(source):
        raise ExpressionError(why)
    try:
        return cel.compile(source)
    except ValueError as error:
        raise ExpressionError(explained(source, _first_line(str(error)))) from error


def number(quantity: object) -> int | float:
    """Return a quantity in the types of CEL: an int if it is whole, else a double. Raises QuantityError."""
    value = parse_quantity(quantity)
    return float(value) if isinstance(value, Decimal) else value


def _quantities(items: Iterable[tuple[str, Any]]) -> dict[str, int | float]:
    """Return the valid quantities of a container in the types of CEL."""
    result: dict[str, int | float] = {}
    for key, quantity in items:
        try:
            result[key] = number(quantity)
        except QuantityError:
            continue
    return result


def _first_line(message: str) -> str:
    """Return the parser's error without the list of all possible tokens."""
    line = message.split("ERROR: <input>:", 1)[-1].partition("\n")[0]
    return line.partition(" expecting ")[0]
