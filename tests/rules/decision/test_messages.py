"""What people read: one line a violation, in their language, with what to do about it."""

from __future__ import annotations

import string

import pytest

from rules.decision import messages as message
from rules.decision.messages import LIMIT_MISSING, denial, invalid, sentence, violation
from rules.text.i18n import Language, Text

FACTS = {
    "container": "main",
    "path": "spec.containers[0].resources.limits[a.com/x]",
    "key": "a.com/x",
}


def _texts() -> list[Text]:
    """Return every text that the module has."""
    found: list[Text] = []
    for value in vars(message).values():
        found += [
            text for text in (value if isinstance(value, tuple) else (value,)) if isinstance(text, Text)
        ]
    return found


def _names(words: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(words)} - {None}


def test_every_message_is_there_in_both_languages() -> None:
    """Nobody is told half of it."""
    texts = _texts()

    assert len(texts) > 30
    assert [] == [text for text in texts if not (text.en and text.zh)]


def test_both_languages_tell_the_same_facts() -> None:
    """But for the plural, which Chinese has not."""
    differing = {text.en: _names(text.en) ^ _names(text.zh) for text in _texts()}

    assert {"gpugate refuses this {kind}: {count} {noun} to change": {"noun"}} == {
        words: names for words, names in differing.items() if names
    }


@pytest.mark.parametrize(
    ("language", "line"),
    [
        (
            Language.EN,
            (
                "container 'main', spec.containers[0].resources.limits[a.com/x]: found nothing,"
                " wanted a quantity of "
                "a.com/x (cards); set spec.containers[0].resources.limits[a.com/x]"
            ),
        ),
        (
            Language.ZH,
            (
                "容器 'main'，spec.containers[0].resources.limits[a.com/x]：当前为 未设置，要求"
                " a.com/x 的数量（卡数）；"
                "请设置 spec.containers[0].resources.limits[a.com/x]"
            ),
        ),
    ],
)
def test_a_violation_says_where_what_was_found_what_was_wanted_and_what_to_do(
    language: Language, line: str
) -> None:
    """With the rule's own description."""
    assert line == violation(language, LIMIT_MISSING, Text("cards", "卡数"), FACTS)


@pytest.mark.parametrize(
    ("variables", "english", "chinese"),
    [
        (("value",), "write a value that suits", "请改为符合要求的值"),
        (
            ("value", "limits"),
            "write a value that suits, or change what stands beside it",
            "请改为符合要求的值，或调整与之并列的设置",
        ),
        (
            ("limits",),
            f"change what stands beside it, or remove {FACTS['path']}",
            f"请调整与之并列的设置，或删除 {FACTS['path']}",
        ),
    ],
)
def test_what_to_do_about_a_value_that_is_not_valid_is_about_what_was_read(
    variables: tuple[str, ...], english: str, chinese: str
) -> None:
    """No other value helps where another resource has to stand beside it."""
    facts = FACTS | {"found": "50", "wanted": "a.com/y beside it"}
    lines = [violation(language, invalid(variables), Text(), facts) for language in Language]

    assert [f"wanted a.com/y beside it; {english}", f"要求 a.com/y beside it；{chinese}"] == [
        line[line.index(word) :] for line, word in zip(lines, ("wanted", "要求"), strict=True)
    ]


def test_a_violation_of_a_rule_without_description_has_no_empty_brackets() -> None:
    """Descriptions are optional."""
    found = violation(Language.EN, LIMIT_MISSING, Text(), FACTS)

    assert "wanted a quantity of a.com/x; set" in found


def test_braces_in_what_people_wrote_stand_as_they_are() -> None:
    """Facts are not templates."""
    words = (Text("{found}", "{found}"), Text("{wanted}", "{wanted}"), Text("x", "x"))
    found = violation(
        Language.EN, words, Text("{path}"), FACTS | {"found": "{key}", "wanted": "{0}", "container": "{}"}
    )

    assert (
        "container '{}', spec.containers[0].resources.limits[a.com/x]: found {key}, wanted {0} ({path}); x"
        == found
    )


@pytest.mark.parametrize(
    ("text", "language", "words"),
    [
        (Text("one", "一"), Language.EN, "one"),
        (Text("one", "一"), Language.ZH, "一"),
        (Text("one"), Language.ZH, "one"),
        (Text(zh="一"), Language.EN, "一"),
        (Text(), Language.EN, ""),
    ],
)
def test_a_language_that_is_missing_falls_back_to_the_other(
    text: Text, language: Language, words: str
) -> None:
    """Some words are better than none."""
    assert words == text.in_language(language)


def test_a_sentence_has_its_facts_in_their_places() -> None:
    """In the language that was asked for."""
    assert "规则 a" == sentence(Language.ZH, Text("rule {rule}", "规则 {rule}"), {"rule": "a"})


@pytest.mark.parametrize(
    ("language", "reasons", "text"),
    [
        (Language.EN, [("a", "wrong")], "gpugate refuses this Pod: 1 thing to change\n  1. wrong [rule a]"),
        (
            Language.EN,
            [("a", "wrong"), ("b", "bad")],
            "gpugate refuses this Pod: 2 things to change\n  1. wrong [rule a]\n  2. bad [rule b]",
        ),
        (Language.ZH, [("a", "错")], "gpugate 拒绝该 Pod：有 1 处需要修改\n  1. 错 [规则 a]"),
    ],
)
def test_a_refusal_counts_its_reasons_and_names_their_rules(
    language: Language, reasons: list[tuple[str, str]], text: str
) -> None:
    """All of them at once, a line each."""
    assert text == denial(language, "Pod", reasons)
