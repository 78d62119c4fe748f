"""Each built-in rule with five kinds of errors: each error is located at its line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from rules import load_rules
from tests.support.command import gpugate
from webhook.cli.inputs.files import catalog_path, read_path

RULES = dict(read_path(str(catalog_path())))


def _replaced(pattern: str, by: str) -> Callable[[str], tuple[str, int]]:
    """Return a function that replaces the first matching line, and returns its number, from 1."""

    def replace(text: str) -> tuple[str, int]:
        match = re.search(pattern, text, re.MULTILINE)
        assert match, f"no line like {pattern}"
        return text[: match.start()] + match.expand(by) + text[match.end() :], _line(text, match.start())

    return replace


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _expression(text: str) -> tuple[str, int]:
    """Break the first expression, or add a broken one."""
    for pattern, by, below in (
        (r"^ +(- )?expression: (>-\n +|[\"'])?", r"\g<0>) ", 0),
        (r"^ +conditions:.*\n +- (>-\n +|[\"'])?", r"\g<0>) ", 1),
        (r"^( +)match: \{", r"\1match: {conditions: [')'], ", 0),
        (r"^( +)match:$", r"\1match:\n\1  conditions: [')']", 1),
        (r"^data:$", "data:\n  validations: '[{expression: )}]'", 1),
    ):
        if match := re.search(pattern, text, re.MULTILINE):
            broken = text[: match.start()] + match.expand(by) + text[match.end() :]
            return broken, _line(text, match.start()) + below
    raise AssertionError("a rule without a place for an expression")


def _word(text: str) -> tuple[str, int]:
    """Misspell an enumerated value, or add a misspelt one."""
    for pattern, by in (
        (r"^  limits: \w+", "  limits: somtimes"),
        (r"^    enforcementAction: \w+$", "    enforcementAction: somtimes"),
        (r"^  rule\.yaml: \|\n", "  rule.yaml: |\n    enforcementAction: somtimes\n"),
    ):
        if match := re.search(pattern, text, re.MULTILINE):
            broken = text[: match.start()] + match.expand(by) + text[match.end() :]
            return broken, _line(broken, broken.index("somtimes", match.start()))
    raise AssertionError("a rule without words")


def _label(text: str) -> tuple[str, int]:
    """Remove the label of the rule type; the error is located at `labels`."""
    broken, _ = _replaced(r"^    (?:features\.\w+\.io|gpugate\.dev)/type: \w+\n", "")(text)
    return broken, _line(text, text.index("\n  labels:") + 1)


ERRORS: dict[str, Callable[[str], tuple[str, int]]] = {
    "unknown-key": _replaced(r"^(  data|    matc|    image)(Type|h|s):", r"\1x\2:"),
    "wrong-value": _word,
    "bad-label": _label,
    "bad-expression": _expression,
    "wrong-namespace": _replaced(r"^  namespace: kube-public$", "  namespace: default"),
}


def test_the_built_in_rules_have_no_lint_warnings() -> None:
    """With the checks of each rule and of all rules together."""
    result = gpugate("lint", catalog_path(), "--fail-on", "warn", "-o", "json")

    assert (0, []) == (result.exit_code, json.loads(result.stdout)["findings"])


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("file", RULES)
def test_an_error_in_a_built_in_rule_is_located_at_its_line(file: str, error: str) -> None:
    """A typo in a key, a wrong value, a missing label, invalid CEL, the wrong namespace."""
    broken, line = ERRORS[error](RULES[file])
    loaded = load_rules([(file, broken)])
    problems = [(problem.location.line, problem.code) for problem in (*loaded.errors, *loaded.warnings)]

    assert [(line, error)] == [problem for problem in problems if problem[1] == error]
