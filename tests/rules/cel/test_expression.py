"""CEL expressions: what cannot work is refused when rules are loaded, what fails later says so."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.cel.cost_limits import MAX_ENTRIES
from rules.cel.expression import (
    CONDITION_VARIABLES,
    MAX_EXPRESSION_LENGTH,
    VALIDATION_VARIABLES,
    Expression,
    ExpressionError,
)

MIXED = "types do not mix: quantities are int; to reckon with a fraction, write double(value) * 1.5"


def _evaluate(source: str, **values: Any) -> bool:
    return Expression(source, VALIDATION_VARIABLES)(values.__getitem__)


@pytest.mark.parametrize(
    ("source", "value", "result"),
    [
        ("value <= 100 || value % 100 == 0", 100, True),
        ("value <= 100 || value % 100 == 0", 150, False),
        ("value <= 100 || value % 100 == 0", 300, True),
        ("value > 0.5", 1, True),
        ("double(value) * 1.5 <= 3.0", 2, True),
        ("value > 0.5", 0.25, False),
        ("value in [1, 2, 4, 8]", 4, True),
        ("value >= 1 && value < 9223372036854775807", 2**63 - 1, False),
    ],
)
def test_an_expression_is_true_or_false_of_a_value(source: str, value: float, result: bool) -> None:
    """Whole numbers are CEL integers, others doubles; the two compare."""
    assert result == _evaluate(source, value=value)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("limits['a.com/x'] == 2", True),
        ("'a.com/y' in limits", False),
        ("limits.exists(name, name.startsWith('a.com/'))", True),
        ("limits.all(name, limits[name] > 2)", False),
        ("requests == limits", True),
        ("container.name == 'main' && container.image.matches('(?i)PADDLE')", True),
    ],
)
def test_an_expression_names_the_container(source: str, result: bool) -> None:
    """Its limits and requests as numbers, its name and image as text."""
    limits = {"a.com/x": 2}
    container = {"name": "main", "image": "x/paddle:1"}

    assert result == _evaluate(source, limits=limits, requests=limits, container=container)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("vale > 1", "unknown variable 'vale': did you mean 'value'?"),
        ("xyz > 1", "unknown variable 'xyz': there are value, limits, requests, container"),
        ("pod.namespace == ''", "unknown variable 'pod': there are value, limits, requests, container"),
        ("value >", "1:8: Syntax error: mismatched input '<EOF>'"),
        ("", "1:1: Syntax error: mismatched input '<EOF>'"),
        ("value + 1", "the result is int, not true or false"),
        ("'yes'", "the result is str, not true or false"),
        ("null", "the result is NoneType, not true or false"),
        ("1e400 > value", "1:1: invalid double literal"),
        ("value * 1.5 <= 3.0", MIXED),
        ("limits['vendor.com/device'] * 0.5 < 3.0", MIXED),
        ("limits.all(name, 0.5 * limits[name] < 3.0)", MIXED),
    ],
)
def test_an_expression_that_cannot_work_is_refused_when_it_is_read(source: str, message: str) -> None:
    """Not when the first pod meets it."""
    with pytest.raises(ExpressionError) as caught:
        Expression(source, VALIDATION_VARIABLES)

    assert message == str(caught.value)


def test_a_function_that_is_not_there_is_refused_when_the_expression_is_read() -> None:
    """The message names it."""
    with pytest.raises(ExpressionError) as caught:
        Expression("value.isGood()", VALIDATION_VARIABLES)

    assert "Undefined variable or function: 'isGood'" in str(caught.value)


def test_what_an_expression_came_to_counts_for_equal_values_alone() -> None:
    """1 is not 1.0 in CEL, nor is "1" a number that stands as one; and it forgets in time."""
    expression = Expression("type(value) == type(1) && value < 100", ["value"])

    def found(*values: object) -> list[bool]:
        return [expression({"value": value}.__getitem__) for value in values]

    assert [True, False, True, True, False, True] == found(1, 1.0, 1, "1", "1.5", "1")
    assert [number < 100 for number in range(200)] == found(*map(str, range(200)))


def test_quantities_are_numbers_and_the_rest_is_as_it_is() -> None:
    """As text, as an object, and as the items of one; what is no quantity is left out."""
    expression = Expression("limits == {'a.com/x': 1024, 'b.com/y': 0.5}", VALIDATION_VARIABLES)
    limits = {"a.com/x": "1Ki", "b.com/y": "500m", "c.com/z": ["1"]}
    texts = {name: quantity for name, quantity in limits.items() if isinstance(quantity, str)}

    assert [True, True, True, False] == [
        expression({"limits": given}.__getitem__)
        for given in (limits, tuple(limits.items()), tuple(texts.items()), (("a.com/x", "1Ki"),))
    ]


def test_an_expression_is_evaluated_once_for_texts_that_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each time for what may be mistaken for another, as true for 1."""
    asked: list[object] = []
    evaluate = Expression._evaluate

    def noted(expression: Expression, told: tuple[Any, ...]) -> bool:
        asked.append(told)
        return evaluate(expression, told)

    monkeypatch.setattr(Expression, "_evaluate", noted)
    expression = Expression("limits.all(name, limits[name] < 9)", VALIDATION_VARIABLES)
    asked.clear()
    for quantity in ("1", "1", 1, True, "1"):
        expression({"limits": (("a.com/x", quantity),)}.__getitem__)

    assert [((("a.com/x", each),),) for each in ("1", 1, True)] == asked


def test_a_long_expression_is_refused() -> None:
    """The parser's work is bounded."""
    with pytest.raises(ExpressionError) as caught:
        Expression("true" + " " * MAX_EXPRESSION_LENGTH, VALIDATION_VARIABLES)

    assert "longer than 2048 characters" == str(caught.value)


@pytest.mark.parametrize("brackets", ["()", "[]", "{}"])
def test_a_deep_expression_is_refused(brackets: str) -> None:
    """The parser recurses, in a language that cannot catch the end of its stack."""
    with pytest.raises(ExpressionError) as caught:
        Expression(brackets[0] * 65 + "1" + brackets[1] * 65, VALIDATION_VARIABLES)

    assert "nested deeper than 64 brackets" == str(caught.value)


@pytest.mark.parametrize(
    "loop", ["all(NAME,", "exists (NAME,", "exists_one( NAME ,", "filter//,\n(NAME,", "map\t(NAME,"]
)
def test_loops_that_could_be_in_one_another_are_refused_beyond_two(loop: str) -> None:
    """Ten short lists in one another would take hours, and hold the server all the while."""
    lists = "".join(f"[1, 2].{loop.replace('NAME', name)}" for name in "abc")
    with pytest.raises(ExpressionError) as caught:
        Expression(f"{lists} true)))", VALIDATION_VARIABLES)

    assert "more than 2 uses of all, exists and filter; split it into several expressions" == str(
        caught.value
    )


def zeros(count: int) -> str:
    """Return a list of so many numbers."""
    return f"[{','.join('0' * count)}]"


NESTED = "nested all, exists or filter; look up a name with `name in limits`"
TOO_LONG = r"matches takes too long; use smaller repeats, and [0-9A-Za-z_] instead of \w"
NO_TEXT = "the pattern of matches must be a string literal, as in container.image.matches('train')"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"{zeros(480)}.all(x, {zeros(480)}.all(y, true))", NESTED),
        ("limits.all(a, requests.exists(b, a == b))", NESTED),
        ("limits.filter(a, requests.filter(b, a == b).size() > 0).size() > 0", NESTED),
        ("limits.all(a, ')' != a && limits.all(b, true))", NESTED),
        (r"limits.all(a, r'\' != a && limits.all(b, ')' != b))", NESTED),
        (r"limits.all(a, '\')' != a && limits.all(b, true))", NESTED),
        ('limits.all(a, """ " ) """ != a && limits.all(b, true))', NESTED),
        ("limits.all(a, true // )\n && limits.all(b, true))", NESTED),
        (
            f"limits.all(a, {' && '.join(['a in limits'] * 16)})",
            "a loop, and more than 16 uses of limits, requests and pod",
        ),
        (
            f"limits.all(a, [{','.join(['requests'] * 100)}].size() > 0)",
            "a loop, and more than 16 uses of limits, requests and pod",
        ),
        (f"{zeros(480)}.map(x, {zeros(480)}).size() > 0", "map creates a list"),
        ("limits.map(a, container.image + a).size() > 0", "map creates a list"),
        (r"container.name.matches('\\w{100}')", TOO_LONG),
        (r"container.name.matches(r'(?i)\w{100}')", TOO_LONG),
        (r"container.name.matches(r'[\w-]{63}')", TOO_LONG),
        (r"container.name.matches(r'(\w(?i)a){100}')", TOO_LONG),
        (r"container.name.matches(r'\p{L}{50}')", TOO_LONG),
        ("container.name.matches('((a{100}){100}){5}')", TOO_LONG),
        ("container.name.matches('a{10}{10}{10}')", TOO_LONG),
        (" || ".join([r"container.name.matches(r'\w')"] * 2), TOO_LONG),
        (r"limits.exists(a, a.matches(r'\w+'))", TOO_LONG),
        (f"{zeros(480)}.all(x, !'a'.matches('a{{1000}}'))", TOO_LONG),
        ("container.image.matches(container.name)", NO_TEXT),
        ("container.image.matches('a' + 'b')", NO_TEXT),
        ("matches(container.image, 'a')", NO_TEXT),
    ],
)
def test_an_expression_that_could_keep_the_gate_busy_is_refused(source: str, message: str) -> None:
    """An evaluation cannot be broken off: loops of loops, lists of lists, patterns compiled at each call."""
    with pytest.raises(ExpressionError) as caught:
        Expression(source, {*VALIDATION_VARIABLES, *CONDITION_VARIABLES})

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "source",
    [
        f"{zeros(990)}.filter(x, true).size() > 0",
        f"{zeros(450)}.filter(x, true).size() > 0 && {zeros(450)}.exists(x, true)",
        f"{zeros(900)}.all(x, !'a'.matches('a{{90}}'))",
        f"pod.labels.all(a, {' && '.join(['a in pod.labels'] * 15)})",
        f"size([{','.join(['pod.labels'] * 180)}]) > 0",
        " || ".join(["container.image.matches('[ab]*a[ab]{9}c')"] * 40),
        "pod.annotations.all(a, pod.annotations[a].matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'))",
        "pod.annotations.filter(a, pod.annotations[a].contains('b')).size() > 0",
        "container.image.matches('(a*)*b') || container.image.matches('(a|a)*c')",
    ],
)
def test_the_worst_that_is_let_pass_is_done_in_a_moment(source: str) -> None:
    """Of a container with as much as there may be. The bound is ten times what each takes."""
    names = dict.fromkeys((f"example.com/{number}" for number in range(MAX_ENTRIES)), 1)
    texts = dict.fromkeys((f"{number}" for number in range(MAX_ENTRIES)), "ab" * 500)
    given = {
        "limits": names,
        "container": {"name": "main", "image": "ab" * 2000},
        "pod": {"labels": texts, "annotations": texts, "namespace": "default"},
    }
    begun = process_time()
    expression = Expression(source, CONDITION_VARIABLES)
    with suppress(ExpressionError):
        expression(given.__getitem__)

    assert process_time() - begun < 0.5


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_more_entries_than_loops_may_take_are_not_looked_at(part: str) -> None:
    """A pod may have tens of thousands of annotations, and each of its containers is asked about."""
    expression = Expression("pod.namespace == 'default'", CONDITION_VARIABLES)
    pod = {"labels": {}, "annotations": {}, "namespace": "default"}
    entries = dict.fromkeys(map(str, range(MAX_ENTRIES)), "")
    with pytest.raises(ExpressionError) as caught:
        expression({"pod": pod | {part: entries | {"one more": ""}}}.__getitem__)

    assert expression({"pod": pod | {part: entries}}.__getitem__)
    assert f"more than {MAX_ENTRIES} {part}" == str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "limits.exists(x, x == 'a') && !requests.exists(x, x == 'b')",
        "limits.exists(x, x == 'requests.exists(y, true)')",
        "container.name.matches(r'^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
        r"container.name.matches('(?i)\\d+\\.\\w+')",
        "true" + " " * (MAX_EXPRESSION_LENGTH - 4),
        "(" * 64 + "true" + ")" * 64,
        "(value) + " * 99 + "1 > 0",
    ],
)
def test_an_expression_within_the_bounds_is_compiled(source: str) -> None:
    """Length and depth, not the number of brackets."""
    assert source == Expression(source, VALIDATION_VARIABLES).source


@pytest.mark.parametrize("source", ["!" * 2000 + "true", "true" + " || true" * 250, "-" * 2000 + "1 > 0"])
def test_an_expression_of_many_operators_does_not_exhaust_the_stack(source: str) -> None:
    """It is compiled or refused; it does not end the process."""
    try:
        found = str(Expression(source, VALIDATION_VARIABLES))
    except ExpressionError as error:
        found = str(error)

    assert "" != found


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("limits['b.com/y'] > 1", "b.com/y"),
        ("100 % value == 0", "modulo by zero in CEL expression"),
        ("100 / value > 1", "division by zero in CEL expression"),
        ("[1, 2][value + 7] == 1", "index out of bounds: 7"),
        ("value + 9223372036854775807 + 1 > 0", "Arithmetic overflow in 'add' on 9223372036854775807 and 1."),
    ],
)
def test_an_expression_that_cannot_be_evaluated_says_why(source: str, message: str) -> None:
    """Whatever the arithmetic does, the error is the rule's, never a crash."""
    with pytest.raises(ExpressionError) as caught:
        _evaluate(source, value=0, limits={})

    assert message in str(caught.value)


def test_a_missing_key_is_called_so() -> None:
    """A bare name would tell nobody what is wrong."""
    with pytest.raises(ExpressionError) as caught:
        _evaluate("limits['b.com/y'] > 1", limits={})

    assert "no such key: 'b.com/y'" == str(caught.value)


def test_only_what_an_expression_names_is_computed() -> None:
    """Converting values costs more than the evaluation."""
    asked: list[str] = []

    def value(name: str) -> Any:
        asked.append(name)
        return 1

    expression = Expression("value > 0", VALIDATION_VARIABLES)
    expression(value)

    assert (("value",), ["value"]) == (expression.variables, asked)


def test_a_condition_knows_the_pod_and_no_value() -> None:
    """Validations are about a quantity, conditions about a pod."""
    condition = Expression("pod.labels['app'] == 'x'", CONDITION_VARIABLES)
    with pytest.raises(ExpressionError) as caught:
        Expression("value > 0", CONDITION_VARIABLES)

    assert condition({"pod": {"labels": {"app": "x"}}}.__getitem__)
    assert "unknown variable 'value': there are limits, requests, container, pod" == str(caught.value)


def test_an_expression_shows_its_source() -> None:
    """In logs and failing tests."""
    assert "Expression('value > 0')" == repr(Expression("value > 0", VALIDATION_VARIABLES))


def test_the_library_is_loaded_without_its_command_line_and_can_be_imported_beside_that() -> None:
    """A command starts in half the time so."""
    code = """
import sys
from rules.cel.library import cel
assert "prompt_toolkit" not in sys.modules
import cel as whole
assert whole.evaluate("1 + 1") == 2
print(cel.compile("1 + 2").execute({}))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ("3\n", "") == (result.stdout, result.stderr)


@pytest.mark.parametrize(
    ("source", "terms"),
    [
        ("value > 1", ["value > 1"]),
        (
            "value > 1 || value == 0 && container.name == 'a'",
            ["value > 1", "value == 0", "container.name == 'a'"],
        ),
        ("'a || b' in limits || 'c' in limits", ["'a || b' in limits", "'c' in limits"]),
        ("!(value > 1 || value < 0) && true", ["!(value > 1 || value < 0)", "true"]),
        (
            "limits.exists(name, name == 'a' || name == 'b')",
            ["limits.exists(name, name == 'a' || name == 'b')"],
        ),
        ("value > 1 || value < 0 ? true : false", ["value > 1 || value < 0 ? true : false"]),
        ("(value > 1 ? true : false) || value < 0", ["(value > 1 ? true : false)", "value < 0"]),
        ("value > 1 // not || this\n || value < 0", ["value > 1 // not || this", "value < 0"]),
    ],
)
def test_an_expression_has_terms(source: str, terms: list[str]) -> None:
    """Those that stand in no bracket, text or comment; a choice by `?` binds less than they do."""
    found = Expression(source, VALIDATION_VARIABLES).terms()

    assert terms == [term.source.strip() for term in found]


_ATOMS = st.sampled_from(
    ["value > 1", "'||' != ' && '", "value in [1, 2]", "(value > 0 ? true : false)", "!(value == 1)"]
)
_SOURCES = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" || ", "&&"]), inner).map("".join),
        inner.map("({})".format),
        inner.map("!({})".format),
    ),
    max_leaves=5,
)


@settings(max_examples=50)
@given(_SOURCES, st.integers(-1, 3), st.integers(-1, 3))
def test_the_value_of_an_expression_hangs_on_those_of_its_terms(source: str, one: int, other: int) -> None:
    """Where all of them are the same, so is the whole."""
    whole = Expression(source, VALIDATION_VARIABLES)
    values = [[term(lambda _, at=at: at) for term in whole.terms()] for at in (one, other)]  # type: ignore[misc]

    assert values[0] != values[1] or _evaluate(source, value=one) == _evaluate(source, value=other)
