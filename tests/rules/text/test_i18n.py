"""Tests of messages, and of their catalogues against the templates in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Final

import pytest
import yaml
from jinja2 import Environment, nodes

from rules.text.i18n import CATALOGUES, Joined, Language, Line, Message, Text
from webhook.cli.terminal.usage_errors import message_of

_ROOT: Final = Path(__file__).parents[3]
_SOURCES: Final = [
    path for package in ("rules", "webhook", "certs") for path in (_ROOT / package).rglob("*.py")
]
_CLASSES: Final = (Message.__name__, Joined.__name__, Line.__name__)
_HAN: Final = re.compile(r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]")


def _arguments(path: Path) -> Iterator[ast.expr]:
    """Yield the template of each message in a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CLASSES:
            yield from node.args[:1]


def _makes_a_message(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in {*_CLASSES, Message.having.__name__}


def _in_pages() -> Iterator[str]:
    """Yield the templates in the pages of reports, whose function for them is `_`."""
    for path in (_ROOT / "webhook" / "cli" / "report" / "templates").glob("*.html"):
        for call in Environment(autoescape=True).parse(path.read_text("utf-8")).find_all(nodes.Call):
            if isinstance(call.node, nodes.Name) and call.node.name == "_":
                yield call.args[0].as_const()


@cache
def _templates() -> set[str]:
    """Return the templates in the code."""
    constants = [
        argument.value
        for path in _SOURCES
        for argument in _arguments(path)
        if isinstance(argument, ast.Constant)
    ]
    return {template for template in (*constants, *_in_pages()) if isinstance(template, str)}


@pytest.fixture(params=CATALOGUES)
def catalogue(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the catalogue of each language."""
    translated: dict[str, str] = yaml.safe_load(CATALOGUES[request.param].read_text("utf-8"))
    return translated


def _has_words(template: str) -> bool:
    return any(re.search(r"[^\W\d_]", text) for text, *_ in Formatter().parse(template))


def _fields(template: str) -> set[str]:
    return {
        f"{name}!{form}:{spec}" for _, name, spec, form in Formatter().parse(template) if name is not None
    }


def test_each_template_is_a_literal() -> None:
    others = [
        (path.name, ast.unparse(argument))
        for path in _SOURCES
        for argument in _arguments(path)
        if not isinstance(argument, ast.Constant)
    ]
    assert [] == others


def test_no_value_of_a_message_has_a_language() -> None:
    """A message as a value is in the language of the whole; its text would stay English."""
    rendered = [
        (path.name, ast.unparse(call))
        for path in _SOURCES
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and _makes_a_message(call)
        for value in (*call.args, *(keyword.value for keyword in call.keywords))
        if any(isinstance(part, ast.Attribute) and part.attr in {"en", "zh"} for part in ast.walk(value))
    ]
    assert [] == rendered


def test_each_template_with_words_has_a_translation(catalogue: dict[str, str]) -> None:
    assert set() == {template for template in _templates() if _has_words(template)} - catalogue.keys()


def test_no_text_of_the_code_is_in_one_language_alone() -> None:
    """A Text holds words of others: of a system, a server or a rule; those of the code are a Message."""
    words = [
        (path.name, ast.unparse(call))
        for path in _SOURCES
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == Text.__name__
        for argument in call.args
        for part in ast.walk(argument)
        if isinstance(part, ast.Constant) and re.search(r"[a-z]{2,} [a-z]{2,}", str(part.value))
    ]
    assert [] == words


def test_each_error_of_certificates_has_a_message() -> None:
    """`certs` raises them as English texts."""
    texts = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in parts)
        for path in [*(_ROOT / "certs").glob("*.py"), _ROOT / "webhook/server/tls.py"]
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") in {"CertificateError", "KubernetesError"}
        for parts in [call.args[0].values if isinstance(call.args[0], ast.JoinedStr) else call.args]
    ]

    assert [] == [text for text in texts if isinstance(message_of(text), Text)]


def test_no_error_of_a_rule_file_is_in_english_alone() -> None:
    """Each is a message: of the documents, and of the expressions, patterns and quantities in them."""
    modules = [*(_ROOT / "rules" / "schema").glob("*.py"), *(_ROOT / "rules" / "cel").glob("*.py")]
    modules += [_ROOT / "rules" / name for name in ("kube/quantity.py", "cuda/image_catalog.py")]
    modules.append(_ROOT / "webhook/cli/test/schema.py")  # a rule test
    assert [] == [
        (path.name, ast.unparse(error))
        for path in modules
        for error in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(error, ast.Raise) and isinstance(error.exc, ast.Call)
        for argument in error.exc.args[:1]
        if isinstance(argument, ast.JoinedStr) or (isinstance(argument, ast.Constant) and argument.value)
    ]


def test_a_catalogue_has_no_other_templates(catalogue: dict[str, str]) -> None:
    assert set() == catalogue.keys() - _templates()


def test_a_translation_has_the_fields_of_its_template(catalogue: dict[str, str]) -> None:
    assert [] == [text for text, translated in catalogue.items() if _fields(text) != _fields(translated)]


def test_the_code_has_no_chinese() -> None:
    lines = [(path.name, line) for path in _SOURCES for line in path.read_text("utf-8").splitlines()]
    assert [] == [(name, line) for name, line in lines if _HAN.search(line)]


NEEDED: Final = Message("the image needs CUDA {cuda}", cuda="12.4")


def test_a_message_has_a_text_in_each_language() -> None:
    """The template is translated, its values are not."""
    message = Message("DeviceClass {name} is not known", name="gpu")

    assert ("DeviceClass gpu is not known", "未知的 DeviceClass gpu") == (message.en, message.zh)
    assert [message.en, message.zh] == [message.in_language(Language(code)) for code in ("en", "zh")]


def test_the_languages_are_english_and_those_of_the_catalogues() -> None:
    assert ["en", *CATALOGUES] == list(Language)


def test_a_text_in_one_language_is_the_same_in_all() -> None:
    """One in several is in its own, and otherwise English."""
    assert [{"un"}, {"eins"}] == [
        {text.in_language(language) for language in Language} for text in (Text("un"), Text(de="eins"))
    ]


def test_a_message_without_translation_is_english() -> None:
    """So is one of a test."""
    assert NEEDED.en == NEEDED.zh == "the image needs CUDA 12.4"


def test_a_value_that_is_a_message_is_in_the_language_of_the_whole() -> None:
    """At any depth."""
    inner = Message("DeviceClass {name} is not known", name="gpu")
    outer = Line("{first}: {second}", first="a", second=Joined(", ", [inner, "b"]))

    assert ("a: DeviceClass gpu is not known, b", "a: 未知的 DeviceClass gpu、b") == (outer.en, outer.zh)


def test_messages_are_equal_if_their_templates_and_values_are() -> None:
    """So they can be keys."""
    same = Message("the image needs CUDA {cuda}").having(cuda="12.4")

    assert {NEEDED: 1}[same] == 1
    assert same != NEEDED.having(cuda="12.5")


def test_braces_are_ordinary_without_values_and_in_values() -> None:
    """Those of users are no templates."""
    assert ("{a}", "b: {a}") == (Message("{a}").en, Message("b: {text}", text="{a}").en)


def test_a_line_has_only_printable_characters() -> None:
    """Whatever its values have."""
    assert r"a b\u0007" == Line("{text}", text="a\nb\a").en


def test_an_empty_message_is_false() -> None:
    """And so are no items."""
    assert [False, False, False, True] == [
        bool(text) for text in (Message(), Text(), Joined(", ", []), Text(zh="一"))
    ]


def test_messages_with_a_list_of_the_user_are_equal_by_their_values() -> None:
    """A quantity of a pod may be one; equal warnings are shown once."""
    assert 1 == len({Message("found {found}", found=[1]), Message("found {found}", found=[1])})
