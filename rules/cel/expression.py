"""CEL expressions, compiled when rules are loaded.

An expression is given scalars and small maps, never a whole pod, and only the members that it names: to
convert a pod costs hundreds of times the evaluation. Source: https://github.com/google/cel-spec.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from rules.cel.cost_limits import MAX_ENTRIES, why_unbounded
from rules.cel.library import cel
from rules.cel.syntax_errors import explained, mistyped, unknown_function, unknown_variable
from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.bounded_cache import bounded_cache, length
from rules.text.i18n import Text

# A rule author's expression fits in a line; a bound keeps the parser's recursion bounded.
MAX_EXPRESSION_LENGTH: Final = 2048
_MAX_DEPTH: Final = 64
# Results that an expression remembers, and characters of the values of each: 30 KB at most.
_REMEMBERED: Final = 64
_LONGEST: Final = 512
# Macros that bind a name of their own: limits.exists(name, …).
_MACRO: Final = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*,")
# What the binding raises for an operation that values do not support; it names the operation.
_EVALUATION_ERRORS: Final = (TypeError, ValueError, RuntimeError, IndexError, ArithmeticError)
_ADVICE: Final = " CEL does not coerce"  # begins what the binding adds for people who write CEL
_UNDEFINED: Final = re.compile("Undefined variable or function: '([^']*)'")
_OTHER_TYPES: Final = ("No such overload", "Unsupported operation")
# Quantities of extended resources are whole, or the API server refuses them.
_MIXED: Final = Text(
    "type mismatch: quantities are int; convert first, e.g. double(value) * 1.5",
    "类型不匹配：数量为 int；请先转换，例如 double(value) * 1.5",
)
# What an expression may take for the name of a resource; each is one that the sample has.
_RESOURCE: Final = re.compile(r"""["']([^"'/]+/[^"']+)["']""")
# A value for each input, to find when rules are loaded what would fail for every container.
_SAMPLES: Final[Mapping[str, Any]] = {
    "value": 1,
    "container.name": "main",
    "container.image": "registry.example.com/team/image:1",
    "container.env": {},
    "pod.labels": {"app": "main"},
    "pod.annotations": {},
    "pod.namespace": "default",
    "pod.hostIPC": False,
    "pod.nodeName": "",
    "pod.schedulerName": "default-scheduler",
}
# The inputs that a variable consists of.
_INPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": ("value",),
    "limits": ("limits",),
    "requests": ("requests",),
    "container": ("container.name", "container.image", "container.env"),
    "pod": (
        "pod.labels",
        "pod.annotations",
        "pod.namespace",
        "pod.hostIPC",
        "pod.nodeName",
        "pod.schedulerName",
    ),
}
_MAPS: Final = frozenset({"limits", "requests", "container.env", "pod.labels", "pod.annotations"})
_QUANTITIES: Final = frozenset({"value", "limits", "requests"})
# How an expression names an input: with one key, as pod.labels['a'] does, or as a whole.
_NAMED: Final = re.compile(
    r"""\b(?:(?P<map>limits|requests)|(?:container|pod)\b(?:\s*\.\s*(?P<member>\w+))?)\b"""
    r"""(?:\s*\[\s*(["'])(?P<key>[^"'\\]*)\3\s*\])?"""
)
# `'a' in pod.labels`, if neither operand is part of something longer.
_IN: Final = re.compile(
    r"""(?:^|[(&|?:!])\s*(["'])(?P<key>[^"'\\]*)\1\s+in\s+"""
    r"""(?P<at>limits|requests|container\s*\.\s*env|pod\s*\.\s*(?:labels|annotations))\s*(?=$|[)&|?:])"""
)
VALIDATION_VARIABLES: Final = ("value", "limits", "requests", "container", "pod")
CONDITION_VARIABLES: Final = ("limits", "requests", "container", "pod")


class ExpressionError(ValueError):
    """The expression does not compile, or cannot be evaluated. The fault of the rule's author.

    text: the message; a str is the same in both languages.
    """

    def __init__(self, message: Text | str) -> None:
        self.text = message if isinstance(message, Text) else Text(message)
        super().__init__(self.text)

    def __str__(self) -> str:
        return self.text.en


class _Input(NamedTuple):
    """A value that an expression is given. keys: the only members of a map that it names; None for all."""

    name: str
    keys: tuple[str, ...] | None = None


class Expression:
    """One compiled expression whose value is true or false. Any thread may use it.

    Results are cached by the values of all inputs: the containers of a cluster are similar, and a look-up
    costs a tenth of an evaluation.
    """

    __slots__ = ("_inputs", "_pickers", "_program", "_result", "source", "variables")

    def __init__(self, source: str, variables: Iterable[str]) -> None:
        """Compile source, which may name the given variables. Raises ExpressionError."""
        self.source = source
        self._program = compile_program(source)
        self._result = bounded_cache(self._evaluate, _REMEMBERED, lambda values: length(values) <= _LONGEST)
        known = list(variables)
        named = self._program.variables()
        bound = set(_MACRO.findall(source))
        for name in named:
            if name not in known and name not in bound:
                raise ExpressionError(unknown_variable(source, name, known))
        if text := mistyped(source):
            raise ExpressionError(text)
        self.variables = tuple(name for name in known if name in named)
        self._inputs = tuple(_inputs_of(source, self.variables))
        self._pickers = tuple((each.name, _picker(each)) for each in self._inputs)
        resources = dict.fromkeys(["example.com/device", *self.resources], 1)
        samples = {**_SAMPLES, "limits": resources, "requests": resources}
        try:
            self(samples.__getitem__)
        except ExpressionError as error:
            if any(text in str(error) for text in _OTHER_TYPES):
                raise ExpressionError(_MIXED) from None
            if unknown := _UNDEFINED.match(str(error)):
                raise ExpressionError(unknown_function(source, unknown[1])) from None
            if "true or false" in str(error):
                raise

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs that it names, such as `value`, `container.image`, `pod.labels`."""
        return tuple(each.name for each in self._inputs)

    @property
    def resources(self) -> tuple[str, ...]:
        """The names in its text that may be those of resources."""
        return tuple(dict.fromkeys(_RESOURCE.findall(self.source)))

    def __call__(self, value_of: Callable[[str], Any]) -> bool:
        """Evaluate. Raises ExpressionError.

        value_of: returns an input: `value`, `limits`, `requests` (quantities as written), or a member of
        `container` or `pod` such as `container.env`; see `_INPUTS`.
        """
        values: tuple[Any, ...] = ()
        for name, pick in self._pickers:  # three at most, nearly always
            value = value_of(name)
            values += (pick(value) if pick else value,)
        try:
            return self._result(values)
        except TypeError:  # a quantity that has no hash
            return self._evaluate(values)

    def _evaluate(self, values: tuple[Any, ...]) -> bool:
        given: dict[str, Any] = {}
        for each, value in zip(self._inputs, values, strict=True):
            variable, _, member = each.name.partition(".")
            converted = _converted(each, value)
            if member:
                given.setdefault(variable, {})[member] = converted
            else:
                given[variable] = converted
        try:
            result = self._program.execute(given)
        except KeyError as error:
            raise ExpressionError(f"no such key: {error}") from error
        except _EVALUATION_ERRORS as error:
            raise ExpressionError(str(error).partition(_ADVICE)[0]) from error
        if not isinstance(result, bool):
            found = type(result).__name__
            raise ExpressionError(
                Text(f"the result is {found}, not true or false", f"结果为 {found}，而不是 true 或 false")
            )
        return result

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def _inputs_of(source: str, variables: Iterable[str]) -> Iterator[_Input]:
    """Yield what an expression names: members of its variables, or if that is not plain, all of them."""
    keys: dict[str, set[str | None]] = {}
    in_operands = {found.start("at"): found["key"] for found in _IN.finditer(source)}
    for found in _NAMED.finditer(source):
        variable = found["map"] or found[0].partition(".")[0].partition("[")[0].strip()
        member = f"{variable}.{found['member']}" if found["member"] else ""
        key = found["key"] if found["key"] is not None else in_operands.get(found.start())
        for name in (member,) if member in _INPUTS.get(variable, ()) else _INPUTS.get(variable, ()):
            whole = not found["map"] and not member
            keys.setdefault(name, set()).add(None if whole else key)
    for variable in variables:
        for name in _INPUTS[variable]:
            if name in keys or name == "value":
                named = keys.get(name, {None})
                all_of_it = name not in _MAPS or None in named
                yield _Input(
                    name, None if all_of_it else tuple(sorted(key for key in named if key is not None))
                )


def _picker(each: _Input) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return what makes a tuple of the members of a map that count for an input; None for other inputs.

    It raises ExpressionError for a map of too many members.
    """
    if each.name not in _MAPS:
        return None
    if (keys := each.keys) is not None:
        return lambda members: tuple(map(members.get, keys))

    def all_members(members: Any) -> tuple[Any, ...]:
        if len(members) > MAX_ENTRIES:
            raise ExpressionError(f"more than {MAX_ENTRIES} {each.name.partition('.')[2] or each.name}")
        return tuple(members.items())

    return all_members


def _converted(each: _Input, value: Any) -> Any:
    """Return the value of an input as CEL takes it."""
    if each.name == "value":
        return number(value) if isinstance(value, str) else value
    if each.name not in _MAPS:
        return value
    items = value if each.keys is None else zip(each.keys, value, strict=True)
    if each.name not in _QUANTITIES:
        return {key: text for key, text in items if text is not None}
    return _quantities(items)


def compile_program(source: str, longest: int = MAX_EXPRESSION_LENGTH) -> Any:
    """Return a program of the CEL library whose evaluation takes a bounded time. Raises ExpressionError."""
    if len(source) > longest:
        raise ExpressionError(Text(f"longer than {longest} characters", f"超过 {longest} 个字符"))
    depth = deepest = 0
    for character in source:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > _MAX_DEPTH:
        raise ExpressionError(
            Text(f"nested deeper than {_MAX_DEPTH} brackets", f"括号嵌套超过 {_MAX_DEPTH} 层")
        )
    if why := why_unbounded(source):
        raise ExpressionError(why)
    try:
        return cel.compile(source)
    except ValueError as error:
        raise ExpressionError(explained(source, _first_line(str(error)))) from error


def number(quantity: object) -> int | float:
    """Return a quantity as CEL takes it: an int where it is whole, else a double. Raises QuantityError."""
    value = parse_quantity(quantity)
    return float(value) if isinstance(value, Decimal) else value


def _quantities(items: Iterable[tuple[str, Any]]) -> dict[str, int | float]:
    """Return the quantities of a container as CEL takes them; what is no quantity is left out."""
    result: dict[str, int | float] = {}
    for key, quantity in items:
        try:
            result[key] = number(quantity)
        except QuantityError:
            continue
    return result


def _first_line(message: str) -> str:
    """Return the parser's complaint without the list of every token that it could have taken."""
    line = message.split("ERROR: <input>:", 1)[-1].partition("\n")[0]
    return line.partition(" expecting ")[0]
