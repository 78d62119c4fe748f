"""CEL expressions: errors that are certain are found when rules are loaded, others when they happen."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest

from rules.cel.cost_limits import MAX_ENTRIES
from rules.cel.expression import MAX_EXPRESSION_LENGTH, Expression, Inputs, Packed
from rules.cel.syntax_errors import ExpressionError
from rules.cel.variables import CONDITION_VARIABLES, VALIDATION_VARIABLES
from tests.support.cpu_time import loops

MIXED = "type mismatch: quantities are int; convert first, e.g. double(value) * 1.5"


def _evaluate(source: str, **values: Any) -> bool:
    return Expression(source, VALIDATION_VARIABLES).evaluate(Inputs(values))


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
    container = {"container.name": "main", "container.image": "x/paddle:1"}

    assert result == _evaluate(source, limits=limits, requests=limits, **container)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("vale > 1", "unknown variable 'vale': did you mean 'value'?"),
        ("xyz > 1", "unknown variable 'xyz': there are value, limits, requests, container, pod"),
        ("value >", "column 8: the expression is incomplete"),
        ("", "column 1: the expression is incomplete"),
        ("value > 1 &&\n  (value < 3", "line 2, column 13: missing `)`"),
        ("value > 1;", "column 10: unexpected `;`"),
        ("value = 8", "column 7: unexpected `=` – did you mean `==`?"),
        ("value > 1 &&\n  value = 8", "line 2, column 9: unexpected `=` – did you mean `==`?"),
        ("value === 8", "column 7: unexpected `===` – did you mean `==`?"),
        ("value =< 8", "column 7: unexpected `=<` – did you mean `<=`?"),
        ("value <> 8", "column 7: unexpected `<>` – did you mean `!=`?"),
        ("value > 1 and value < 8", "column 11: unexpected `and` – did you mean `&&`?"),
        ("value > 1 & value < 8", "column 11: unexpected `&` – did you mean `&&`?"),
        ("'a or b' in limits OR value < 8", "column 20: unexpected `OR` – did you mean `||`?"),
        ("not (value > 1)", "column 1: unexpected `not` – did you mean `!`?"),
        ("value in (1, 2)", "column 10: unexpected `(1, 2)` – did you mean `[1, 2]`?"),
        ("value <= 8Gi", "column 10: unexpected `8Gi` – did you mean `8589934592`?"),
        ("value <= 1.5k", "column 10: unexpected `1.5k` – did you mean `1500`?"),
        ("value <= 8Gib", "column 11: unexpected `Gib`"),
        ("value <= '8Gi'", "column 10: unexpected `'8Gi'` – did you mean `8589934592`?"),
        ('value == "8"', 'column 10: unexpected `"8"` – did you mean `8`?'),
        ('limits["a.com/b"] > "8"', 'column 21: unexpected `"8"` – did you mean `8`?'),
        ('value <= quantity("8Gi")', 'column 10: unexpected `quantity("8Gi")` – did you mean `8589934592`?'),
        ("limits.a.com/b > 1", "column 1: unexpected `limits.a.com/b` – did you mean `limits['a.com/b']`?"),
        ("value + 1", "the result is a number, not true or false"),
        ("'yes'", "the result is a text, not true or false"),
        ("null", "the result is null, not true or false"),
        ("1e400 > value", "column 1: invalid double literal"),
        ("value * 1.5 <= 3.0", MIXED),
        ("limits['vendor.com/device'] * 0.5 < 3.0", MIXED),
        ("limits.all(name, 0.5 * limits[name] < 3.0)", MIXED),
    ],
)
def test_an_expression_that_always_fails_is_rejected_when_it_is_compiled(source: str, message: str) -> None:
    """Not at the first pod."""
    with pytest.raises(ExpressionError) as caught:
        Expression(source, VALIDATION_VARIABLES)

    assert message == str(caught.value)


def test_a_text_is_compared_with_a_text() -> None:
    """A number in quotes is a mistake only where it is compared with a quantity."""
    assert Expression("pod.labels['gpus'] == '8'", VALIDATION_VARIABLES).evaluate(
        Inputs({"pod.labels": {"gpus": "8"}})
    )


def test_an_unknown_function_is_rejected_when_the_expression_is_compiled() -> None:
    """The message names it."""
    with pytest.raises(ExpressionError) as caught:
        Expression("value.isGood()", VALIDATION_VARIABLES)

    assert "unknown function 'isGood', or its arguments have other types" == str(caught.value)


def test_a_result_is_cached_for_equal_values_only() -> None:
    """1 is not 1.0 in CEL, nor is the text "1" a number of another type; and the cache is bounded."""
    expression = Expression("type(value) == type(1) && value < 100", ["value"])

    def found(*values: object) -> list[bool]:
        return [expression.evaluate(Inputs({"value": value})) for value in values]

    assert [True, False, True, True, False, True] == found(1, 1.0, 1, "1", "1.5", "1")
    assert [number < 100 for number in range(200)] == found(*map(str, range(200)))


def test_quantities_are_numbers() -> None:
    """What is no quantity is left out."""
    expression = Expression("limits == {'a.com/x': 1024, 'b.com/y': 0.5}", VALIDATION_VARIABLES)
    limits = {"a.com/x": "1Ki", "b.com/y": "500m", "c.com/z": ["1"]}

    assert [True, True, False] == [
        expression.evaluate(Inputs({"limits": given}))
        for given in (limits, {"b.com/y": "500m", "a.com/x": "1024"}, {"a.com/x": "1Ki"})
    ]


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the values of which expressions were evaluated, in order."""
    values_in_order: list[object] = []
    evaluate = Expression._evaluate

    def counting(expression: Expression, values: tuple[Any, ...]) -> bool:
        values_in_order.append(values)
        return evaluate(expression, values)

    monkeypatch.setattr(Expression, "_evaluate", counting)
    return values_in_order


def test_an_expression_is_evaluated_once_for_equal_texts(evaluated: list[object]) -> None:
    """And each time for values that Python confuses with others, as True with 1."""
    expression = Expression("limits.all(name, limits[name] < 9)", VALIDATION_VARIABLES)
    evaluated.clear()
    for quantity in ("1", "1", 1, True, "1"):
        expression.evaluate(Inputs({"limits": {"a.com/x": quantity}}))

    assert [((("a.com/x", compared),),) for compared in ("1", 1, True)] == evaluated


def test_numbers_and_what_containers_share_are_evaluated_once(evaluated: list[object]) -> None:
    """Of a list of any length only the last evaluation is known, which is of the same pod mostly."""
    source = "container.gpus > 0 && pod.requiredNodeLabels.exists(l, l == 'a')"
    expression = Expression(source, VALIDATION_VARIABLES)
    labels = [[f"label-{number}" for number in range(200)], ["a"]]
    results = [
        expression.evaluate(Inputs({"container.gpus": gpus, "pod.requiredNodeLabels": Packed.of(names)}))
        for gpus, names in ((1, labels[0]), (1, labels[0]), (1, labels[1]), (0, labels[1]), (1, labels[1]))
    ]

    assert [False, False, True, False, True] == results
    assert 3 == len(evaluated)


def test_a_long_expression_is_rejected() -> None:
    """The parser's work is bounded."""
    with pytest.raises(ExpressionError) as caught:
        Expression("true" + " " * MAX_EXPRESSION_LENGTH, VALIDATION_VARIABLES)

    assert "longer than 2048 characters" == str(caught.value)


@pytest.mark.parametrize("brackets", ["()", "[]", "{}"])
def test_a_deeply_nested_expression_is_rejected(brackets: str) -> None:
    """The parser recurses, in a language that cannot catch the end of its stack."""
    with pytest.raises(ExpressionError) as caught:
        Expression(brackets[0] * 65 + "1" + brackets[1] * 65, VALIDATION_VARIABLES)

    assert "nested deeper than 64 brackets" == str(caught.value)


@pytest.mark.parametrize(
    "loop", ["all(NAME,", "exists (NAME,", "exists_one( NAME ,", "filter//,\n(NAME,", "map\t(NAME,"]
)
def test_more_than_two_loops_that_may_be_nested_are_rejected(loop: str) -> None:
    """Ten short nested lists would take hours and block the server."""
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
            "a loop, and more than 16 uses of limits, requests, container.env and pod",
        ),
        (
            f"limits.all(a, [{','.join(['requests'] * 100)}].size() > 0)",
            "a loop, and more than 16 uses of limits, requests, container.env and pod",
        ),
        (
            f"container.env.all(a, {' && '.join(['a in container . env'] * 16)})",
            "a loop, and more than 16 uses of limits, requests, container.env and pod",
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
def test_an_expression_that_may_take_too_long_is_rejected(source: str, message: str) -> None:
    """An evaluation cannot be interrupted: loops of loops, lists of lists, patterns compiled at each call."""
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
        f"container.env.all(a, {' && '.join(['a in container.env'] * 15)})",
        f"size([{','.join(['pod.labels'] * 180)}]) > 0",
        " || ".join(["container.image.matches('[ab]*a[ab]{9}c')"] * 40),
        "pod.annotations.all(a, pod.annotations[a].matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'))",
        "pod.annotations.filter(a, pod.annotations[a].contains('b')).size() > 0",
        "container.image.matches('(a*)*b') || container.image.matches('(a|a)*c')",
    ],
)
def test_the_slowest_accepted_expression_takes_less_than_half_a_second(source: str) -> None:
    """For a container with as many entries as allowed. The bound is ten times what each takes."""
    names = dict.fromkeys((f"example.com/{number}" for number in range(MAX_ENTRIES)), 1)
    texts = dict.fromkeys((f"{number}" for number in range(MAX_ENTRIES)), "ab" * 500)
    given = {
        "limits": names,
        "container.name": "main",
        "container.image": "ab" * 2000,
        "pod.labels": texts,
        "pod.annotations": texts,
        "pod.namespace": "default",
        "pod.hostIPC": False,
        "pod.nodeName": "",
        "pod.schedulerName": "",
        "container.env": texts,
    }

    def evaluated() -> None:
        with suppress(ExpressionError):
            Expression(source, CONDITION_VARIABLES).evaluate(Inputs(given))

    assert loops(evaluated) < 50


@pytest.mark.parametrize("name", ["pod.labels", "pod.annotations", "container.env", "limits", "requests"])
def test_an_expression_fails_if_it_names_a_whole_map_of_too_many_entries(name: str) -> None:
    """A pod may have tens of thousands of annotations, and a loop over them takes too long."""
    expression = Expression(f"{name}.size() > 0", CONDITION_VARIABLES)
    entries = dict.fromkeys(map(str, range(MAX_ENTRIES)), "1")
    with pytest.raises(ExpressionError) as caught:
        expression.evaluate(Inputs({name: entries | {"one more": "1"}}))

    assert expression.evaluate(Inputs({name: entries}))
    assert f"more than {MAX_ENTRIES} {name.rpartition('.')[2]}" == str(caught.value)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("pod.labels['a'] == '1'", "pod.labels"),
        ('pod.annotations["a"] == "1"', "pod.annotations"),
        ("pod . labels [ 'a' ] == '1'", "pod.labels"),
        ("'a' in pod.labels && pod.labels['a'] == '1'", "pod.labels"),
        ("!('b' in pod.labels) && 'a' in pod.labels", "pod.labels"),
        ("limits['a'] == 1", "limits"),
        ("'a' in requests", "requests"),
        ("'a' in container.env && container.env['a'] == '1'", "container.env"),
    ],
)
def test_an_expression_that_names_single_members_is_evaluated_whatever_the_number_of_others(
    source: str, name: str
) -> None:
    """It is given only those members."""
    expression = Expression(source, CONDITION_VARIABLES)
    entries = dict.fromkeys(map(str, range(MAX_ENTRIES + 1)), "x")

    assert expression.evaluate(Inputs({name: entries | {"a": "1"}}))


@pytest.mark.parametrize(
    "source",
    [
        "pod.labels.size() == 3",
        "pod.labels.exists(key, key == 'b')",
        "pod.labels.a == '1' && pod.labels.size() == 3",
        "[pod.labels].exists(map, map['b'] == '2')",
        "pod['labels']['b'] == '2'",
        "pod.labels['a'] == '1' && pod['labels']['b'] == '2'",
        "pod.labels['a' + ''] == '1' && 'b' in pod.labels",
        "'a' + 'b' in pod.labels",
        "pod.labels[r'b'] == '2'",
        "pod.labels['\\x62'] == '2'",
        "('a' in pod.labels) == ('b' in pod.labels)",
        "pod.labels['a'] < pod.labels['b']",
        "pod // all of it\n.labels['b'] == '2'",
        "pod.namespace == 'default' && 'b' in pod.labels",
    ],
)
def test_an_expression_is_given_everything_that_it_names(source: str) -> None:
    """In any way of writing it; if that is not plain, the whole map."""
    given = {
        "pod.labels": {"a": "1", "b": "2", "ab": "3"},
        "pod.annotations": {"c": "3"},
        "pod.namespace": "default",
        "pod.hostIPC": False,
        "pod.nodeName": "",
        "pod.schedulerName": "",
    }

    assert Expression(source, CONDITION_VARIABLES).evaluate(Inputs(given))


@pytest.mark.parametrize(
    ("source", "inputs"),
    [
        ("value > 0", ["value"]),
        ("limits['a'] > 0 || 'pod.labels' == ''", ["limits"]),
        ("container.name == 'x'", ["container.name"]),
        ("container.image == 'x' && pod.namespace == 'y'", ["container.image", "pod.namespace"]),
        ("pod.labels['a'] == '1'", ["pod.labels"]),
        ("pod.nodeName == '' || pod.schedulerName == 'z'", ["pod.nodeName", "pod.schedulerName"]),
        ("int(container.env['A']) <= value", ["value", "container.env"]),
    ],
)
def test_only_the_inputs_that_an_expression_names_are_computed(source: str, inputs: list[str]) -> None:
    """To convert values takes longer than the evaluation."""
    values = {
        "value": 1,
        "limits": {"a": "1"},
        "container.name": "x",
        "container.image": "x",
        "pod.labels": {"a": "1"},
        "pod.annotations": {},
        "pod.namespace": "y",
        "pod.hostIPC": True,
        "pod.nodeName": "n",
        "pod.schedulerName": "z",
        "container.env": {"A": "1"},
    }
    expression = Expression(source, VALIDATION_VARIABLES)
    expression.evaluate(Inputs({name: values[name] for name in inputs}))  # any other one raises KeyError

    assert inputs == list(expression.inputs)


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
    """It is compiled or rejected; the process survives."""
    try:
        outcome = str(Expression(source, VALIDATION_VARIABLES))
    except ExpressionError as error:
        outcome = str(error)

    assert "" != outcome


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
    """Arithmetic errors are errors of the rule, never a crash."""
    with pytest.raises(ExpressionError) as caught:
        _evaluate(source, value=0, limits={})

    assert message in str(caught.value)


def test_an_absent_resource_is_an_error_that_names_it() -> None:
    """`x in limits` asks whether it is there."""
    with pytest.raises(ExpressionError) as caught:
        _evaluate("limits['b.com/y'] > 1", limits={})

    assert "no such key: 'b.com/y'" == str(caught.value)


def test_a_condition_has_the_pod_and_no_value() -> None:
    """Validations are about a quantity, conditions about a pod."""
    condition = Expression("pod.labels['app'] == 'x'", CONDITION_VARIABLES)
    with pytest.raises(ExpressionError) as caught:
        Expression("value > 0", CONDITION_VARIABLES)

    assert condition.evaluate(Inputs({"pod.labels": {"app": "x"}}))
    assert "unknown variable 'value': there are limits, requests, container, pod" == str(caught.value)


def test_an_expression_shows_its_source() -> None:
    """In logs and failing tests."""
    assert "Expression('value > 0')" == repr(Expression("value > 0", VALIDATION_VARIABLES))


def test_the_library_is_loaded_without_its_command_line_and_can_still_be_imported() -> None:
    """This halves the time in which a command starts."""
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
