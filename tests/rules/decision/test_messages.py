"""Messages: a violation on one line in each language, warnings of one line, denials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rules.decision.messages import (
    LIMIT_MISSING,
    USE_VALUE,
    WARNING_LENGTH,
    WarningLine,
    Words,
    denial,
    invalid,
    worded,
)
from rules.model.finding import Finding, notice
from rules.model.rule import Action
from rules.text.i18n import Language, Message, Text

PATH = "spec.containers[0].resources.limits[a.com/x]"
FACTS = {"container": "main", "path": PATH, "key": "a.com/x"}


def _violation(words: Words, description: Message, facts: Mapping[str, Any], fix: Message | None) -> Finding:
    """Return a violation at the path."""
    return Finding("rule", Action.DENY, PATH, *worded(PATH, words, description, facts, fix))


def test_a_violation_has_container_path_found_expected_and_fix() -> None:
    """The expected value is followed by the description of the rule, each in its language."""
    limit_missing = _violation(LIMIT_MISSING, Text("cards", zh="卡数"), FACTS, None)

    reason = f"container 'main', {PATH}: found nothing, expected a quantity of a.com/x (cards)"
    assert (reason, f"set {PATH}") == (limit_missing.reason.en, limit_missing.fix.en)
    assert f"容器 'main'，{PATH}：当前为 未设置，要求 a.com/x 的数量（卡数）" == limit_missing.reason.zh


@pytest.mark.parametrize(
    ("variables", "fix"),
    [
        (("value",), ""),
        (("value", "limits"), ""),
        (("limits",), f"change the other resource it depends on, or remove {PATH}"),
    ],
)
def test_the_fix_of_an_invalid_value_depends_on_what_the_expression_names(
    variables: tuple[str, ...], fix: str
) -> None:
    """If the expression does not name `value`, no other value helps."""
    facts = FACTS | {"actual": "50", "expected": "a.com/y too"}
    invalid_value = _violation(invalid(variables), Text(), facts, None)

    assert f"container 'main', {PATH}: found 50, expected a.com/y too" == invalid_value.reason.en
    assert fix == invalid_value.fix.en


def test_a_suggested_value_replaces_the_fix() -> None:
    """With the calculation."""
    facts = FACTS | {"actual": "8Gi", "expected": "1 to 64", "value": 32, "unit": "256Mi"}
    suggestion = _violation(invalid(["value"]), Text(), facts, USE_VALUE)

    assert "use 32: 8Gi is 32 units of 256Mi" == suggestion.fix.en


def test_a_violation_of_a_rule_without_description_has_no_empty_brackets() -> None:
    """Descriptions are optional."""
    limit_missing = _violation(LIMIT_MISSING, Text(), FACTS, None)

    assert limit_missing.reason.en.endswith("expected a quantity of a.com/x")


def test_braces_in_values_of_users_stay_as_they_are() -> None:
    """Facts are not templates."""
    words = Words(Message("{actual}"), Message("{expected}"), Message("x"))
    facts = FACTS | {"actual": "{key}", "expected": "{0}", "container": "{}"}

    said = _violation(words, Text("{path}"), facts, None)

    assert f"container '{{}}', {PATH}: found {{key}}, expected {{0}} ({{path}})" == said.reason.en
    assert "x" == said.fix.en


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        (Text("one", zh="一"), Language.EN, "one"),
        (Text("one", zh="一"), Language("zh"), "一"),
        (Text("one"), Language("zh"), "one"),
        (Text(zh="一"), Language.EN, "一"),
        (Text(), Language.EN, ""),
    ],
)
def test_a_missing_language_falls_back_to_the_other(text: Text, language: Language, words: str) -> None:
    """A text in the other language is better than none."""
    assert words == text.in_language(language)


@pytest.mark.parametrize(
    ("language", "found", "line"),
    [
        (
            Language.EN,
            notice("a", Text("wrong"), Text("fix it")),
            "gpugate: wrong; fix it [rule a]",
        ),
        (Language.EN, notice("a", Text("wrong")), "gpugate: wrong [rule a]"),
        (Language.EN, notice("", Text("wrong")), "gpugate: wrong"),
        (
            Language.EN,
            notice("a", Text("two\n  lines"), Text("f")),
            "gpugate: two lines; f [rule a]",
        ),
        (Language("zh"), notice("a", Text("错"), Text("请改")), "gpugate: 错；请改 [规则 a]"),
    ],
)
def test_a_warning_is_one_line_of_reason_fix_and_rule(language: Language, found: Finding, line: str) -> None:
    """It begins with the name of the webhook, as kubectl prints no other sender."""
    assert line == WarningLine(found).in_language(language)


@pytest.mark.parametrize(
    ("language", "end"), [(Language.EN, "…; fix it [rule a]"), (Language("zh"), "…；fix it [规则 a]")]
)
@pytest.mark.parametrize("more", [1, 2, 500])
def test_a_long_warning_loses_the_end_of_its_reason_only(language: Language, end: str, more: int) -> None:
    """API servers cut at 256 characters; the fix and the rule stay."""
    room = WARNING_LENGTH - len("gpugate: ") - len(end) + len("…")
    whole = WarningLine(notice("a", Text("x" * room), Text("fix it"))).in_language(language)
    cut = WarningLine(notice("a", Text("x" * (room + more)), Text("fix it"))).in_language(language)

    assert (256, f"gpugate: {'x' * room}{end.removeprefix('…')}") == (len(whole), whole)
    assert (256, f"gpugate: {'x' * (room - 1)}{end}") == (len(cut), cut)


@pytest.mark.parametrize(
    ("reason", "start"),
    [
        ("x" * 200, f"gpugate: {'x' * 95}…; yyy"),
        ("wrong", "gpugate: wrong; yyy"),
        ("x" * 96, f"gpugate: {'x' * 96}; y"),
    ],
)
def test_a_warning_with_a_long_fix_keeps_the_beginning_of_both_and_the_rule(reason: str, start: str) -> None:
    """A fix without its reason is not understandable."""
    line = WarningLine(notice("a", Text(reason), Text("y" * 300))).en

    assert (256, True, True) == (len(line), line.startswith(start), line.endswith("yyy… [rule a]"))


def test_a_warning_of_a_rule_with_the_longest_name_has_256_characters() -> None:
    """Names of ConfigMaps have up to 253 characters."""
    assert 256 == len(WarningLine(notice("a" * 253, Text("wrong"), Text("fix it"))).en)


def _denied(rule: str, reason: str, fix: str = "", table: str = "") -> Finding:
    return Finding(rule, Action.DENY, "spec", Text(reason), Text(fix), table=Text(table))


@pytest.mark.parametrize(
    ("language", "violations", "text"),
    [
        (Language.EN, [_denied("a", "wrong", "fix it")], "Pod denied by gpugate: wrong; fix it [rule a]"),
        (
            Language.EN,
            [_denied("a", "wrong", "fix it"), _denied("b", "bad"), _denied("c", "worse")],
            (
                "Pod denied by gpugate, 3 violations: 1. wrong; fix it [rule a]\n"
                "  2. bad [rule b]\n"
                "  3. worse [rule c]"
            ),
        ),
        (
            Language.EN,
            [_denied("a", "none fits", "fix it", "nodes  GPU\n    1      T4"), _denied("b", "bad")],
            (
                "Pod denied by gpugate, 2 violations: 1. none fits; fix it [rule a]\n"
                "    nodes  GPU\n    1      T4\n"
                "  2. bad [rule b]"
            ),
        ),
        (Language("zh"), [_denied("a", "错", "请改")], "gpugate 拒绝该 Pod：错；请改 [规则 a]"),
        (
            Language("zh"),
            [_denied("a", "错"), _denied("b", "错")],
            "gpugate 拒绝该 Pod，共 2 处违规：1. 错 [规则 a]\n  2. 错 [规则 b]",
        ),
    ],
)
def test_the_first_line_of_a_denial_has_the_first_violation_with_fix_and_rule(
    language: Language, violations: list[Finding], text: str
) -> None:
    """`kubectl get events` cuts at the first newline; a table follows its violation."""
    assert text == denial("Pod", violations).in_language(language)
