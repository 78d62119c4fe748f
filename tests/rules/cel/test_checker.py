"""Names and types in CEL expressions are checked when they are compiled, as a compiler checks code."""

from __future__ import annotations

import pytest

from rules.cel.expression import Expression
from rules.cel.syntax_errors import ExpressionError
from rules.cel.variables import INPUTS, VALIDATION_VARIABLES, VARIABLES


def _error(source: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        Expression(source, VALIDATION_VARIABLES)
    return caught.value.text.en


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pod.namespce == 'a'", "column 1: unexpected `pod.namespce` – did you mean `pod.namespace`?"),
        ("pod.lables['a'] == 'b'", "column 1: unexpected `pod.lables` – did you mean `pod.labels`?"),
        ("'a' in pod.lables", "column 8: unexpected `pod.lables` – did you mean `pod.labels`?"),
        ("has(pod.lables)", "column 5: unexpected `pod.lables` – did you mean `pod.labels`?"),
        ("pod['lables'].size() > 0", "column 1: unexpected `pod['lables']` – did you mean `pod.labels`?"),
        (
            "value > 1 ||\n  container.nam == 'x'",
            "line 2, column 3: unexpected `container.nam` – did you mean `container.name`?",
        ),
        ("container.img == 'x'", "column 1: unexpected `container.img` – did you mean `container.image`?"),
        (
            "true || container.nam == 'x'",
            "column 9: unexpected `container.nam` – did you mean `container.name`?",
        ),
        (
            "limits.exists(n, n == 'a' && pod.namespce == n)",
            "column 30: unexpected `pod.namespce` – did you mean `pod.namespace`?",
        ),
        (
            "container.securityContext.privilged",
            (
                "column 1: unexpected `container.securityContext.privilged` – "
                "did you mean `container.securityContext.privileged`?"
            ),
        ),
        (
            "pod.tolerations.exists(t, t.keys == 'a')",
            "column 27: unexpected `t.keys` – did you mean `t.key`?",
        ),
        (
            "pod.securityContext.foo == 1",
            (
                "column 1: pod.securityContext has no member 'foo': "
                "there are runAsUser, runAsGroup, runAsNonRoot, fsGroup"
            ),
        ),
        ("container.name.foo == 1", "column 1: `container.name` is a text, which has no members"),
        ("limits.foo > 1", "column 1: unexpected `limits.foo` – did you mean `limits['vendor.com/foo']`?"),
        ("has(limits.foo)", "column 5: unexpected `limits.foo` – did you mean `limits['vendor.com/foo']`?"),
        ("limits.memry > 1", "column 1: unexpected `limits.memry` – did you mean `limits['memory']`?"),
        ("pod == pod", "column 1: name a member of pod: " + ", ".join(VARIABLES["pod"].fields)),
    ],
)
def test_a_name_that_no_pod_has_is_rejected(source: str, message: str) -> None:
    """With its place and what was probably meant: it would fail for each pod."""
    assert message == _error(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("pod.labels == '1'", "column 1: unexpected `pod.labels` – did you mean `pod.labels['key']`?"),
        ("pod.hostIPC == 'yes'", "column 16: unexpected `'yes'` – did you mean `true`?"),
        ("pod.hostNetwork == 0", "column 20: unexpected `0` – did you mean `false`?"),
        ("value == '8'", "column 10: unexpected `'8'` – did you mean `8`?"),
        ("'8Gi' <= limits['memory']", "column 1: unexpected `'8Gi'` – did you mean `8589934592`?"),
        (
            "value in ['1', '2']",
            "column 1: `value` is a number, an entry of `['1', '2']` is a text; they cannot be compared",
        ),
        (
            "container.name < 1",
            "column 1: `container.name` is a text, `1` is a number; they cannot be compared",
        ),
        (
            "pod.labels['a'] == 1",
            "column 1: `pod.labels['a']` is a text, `1` is a number; they cannot be compared",
        ),
        (
            "container.args == 'x'",
            "column 1: `container.args` is a list, `'x'` is a text; they cannot be compared",
        ),
        ("container.args == [1]", "column 1: `container.args` cannot be compared with `[1]`"),
        ("1 in limits", "column 1: `1` is a number, not a text"),
        ("pod.labels[1] == 'a'", "column 12: `1` is a number, not a text"),
        ("container.args['a'] == 'a'", "column 16: `'a'` is a text, not a whole number"),
        ("'a' in pod.namespace", "column 8: `pod.namespace` is a text, not a list or a map"),
        ("pod.namespace.exists(n, true)", "column 1: `pod.namespace` is a text, not a list or a map"),
        ("!pod.namespace", "column 2: `pod.namespace` is a text, not true or false"),
        ("-pod.namespace == 1", "column 2: `pod.namespace` is a text, not a number"),
        ("pod.namespace && true", "column 1: `pod.namespace` is a text, not true or false"),
        ("pod.hostIPC ? 1 : 2", "the result is a number, not true or false"),
        ("value ? true : false", "column 1: `value` is a number, not true or false"),
        ("container.name + 1 == 'a'", "column 1: `container.name` is a text, not a number"),
        ("value.startsWith('1')", "unknown function 'startsWith', or its arguments have other types"),
        ("size(value) > 1", "unknown function 'size', or its arguments have other types"),
        ("true || value.isGood()", "unknown function 'isGood', or its arguments have other types"),
    ],
)
def test_a_value_of_another_type_is_rejected(source: str, message: str) -> None:
    """What compares different things is a mistake, even where CEL says false."""
    assert message == _error(source)


@pytest.mark.parametrize(
    "source",
    [
        "limits['nvidia.com/gpu'] > 0 && limits.cpu > 0 && limits.memory >= 1024",
        "pod.labels.a == '1' && has(pod.labels.b) && 'c' in pod.annotations",
        "pod['labels']['b'] == '2' || pod.labels == {}",
        "limits.filter(n, n.startsWith('nvidia.com/')).size() == 1",
        "limits.exists(n, limits[n] > 1.5) ? value < 0.5 : value % 2 == 0 || -value < 0",
        "container.args.exists(a, a == '--x' || a.contains('y')) && !('z' in container.command)",
        "container.args[0] + '-' + container.command[0] == 'a-b'",
        "'NVIDIA_VISIBLE_DEVICES' in container.envNames && container.cpu >= 500 && container.memory > 0",
        "container.securityContext.privileged || 'IPC_LOCK' in container.securityContext.capabilities.add",
        "pod.tolerations.exists(t, t.key == 'a' && t.operator == 'Exists' && t.tolerationSeconds < 0)",
        "pod.nodeSelector['a'] == 'b' && pod.priorityClassName != '' && pod.serviceAccountName == 'default'",
        "pod.runtimeClassName == '' && !pod.hostNetwork && pod.activeDeadlineSeconds > 0",
        "pod.securityContext.runAsNonRoot && pod.securityContext.runAsUser != 0",
        "int(container.env['A']) <= value && double(value) * 1.5 <= 3.0",
        "string(value) == pod.labels['n'] && duration(pod.labels['d']) < duration('1h')",
        "[1, 2.5, value].exists(x, x == value) && dyn(value) == 'x' || type(value) == type(1)",
        "timestamp(pod.annotations['t']).getFullYear() > 2020",
        "value in {1: 'a'} && {'a': value}['a'] == 1 && 0x10 > 1u && 'a' < 'b' && b'a' == b'a'",
        "!!pod.hostIPC == false // a comment\n && container.name.matches(r'^a') && null == null",
    ],
)
def test_an_expression_of_the_declared_fields_is_compiled(source: str) -> None:
    """In every way that CEL has to write it."""
    assert source == Expression(source, VALIDATION_VARIABLES).source


def test_every_field_is_one_that_an_expression_can_be_given() -> None:
    """Of variables with members, the members."""
    assert {"value", "limits", "container.name", "pod.labels"} <= INPUTS.keys()
    assert not {"pod", "container"} & INPUTS.keys()


@pytest.mark.parametrize(
    ("source", "lookups", "tested"),
    [
        ("pod.labels['a'] == '1'", {("pod.labels", "a")}, set()),
        ("'a' in pod.labels && pod.labels['a'] == '1'", {("pod.labels", "a")}, {("pod.labels", "a")}),
        ("has(pod.labels.a) && pod.labels.a == '1'", {("pod.labels", "a")}, {("pod.labels", "a")}),
        ("limits.all(n, limits[n] > 1)", set(), set()),
    ],
)
def test_an_expression_tells_the_keys_that_it_looks_up_and_tests(
    source: str, lookups: set[tuple[str, str]], tested: set[tuple[str, str]]
) -> None:
    """A key that is not tested makes the evaluation fail for pods without it."""
    expression = Expression(source, VALIDATION_VARIABLES)

    assert [lookups, tested] == [set(expression.lookups), set(expression.tested)]
