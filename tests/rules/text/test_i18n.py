"""Tests of messages, and of their Chinese catalogue against the templates in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Final

import yaml
from jinja2 import Environment, nodes

from rules.text.i18n import CATALOGUE, Joined, Line, Message

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
        each.value for path in _SOURCES for each in _arguments(path) if isinstance(each, ast.Constant)
    ]
    return {template for template in (*constants, *_in_pages()) if isinstance(template, str)}


@cache
def _catalogue() -> dict[str, str]:
    catalogue: dict[str, str] = yaml.safe_load(CATALOGUE.read_text("utf-8"))
    return catalogue


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


def test_each_template_with_words_has_a_translation() -> None:
    assert set() == {template for template in _templates() if _has_words(template)} - _catalogue().keys()


def test_the_catalogue_has_no_other_templates() -> None:
    assert set() == _catalogue().keys() - _templates()


def test_a_translation_has_the_fields_of_its_template() -> None:
    catalogue = _catalogue().items()
    assert [] == [english for english, chinese in catalogue if _fields(english) != _fields(chinese)]


def test_the_code_has_no_chinese() -> None:
    lines = [(path.name, line) for path in _SOURCES for line in path.read_text("utf-8").splitlines()]
    assert [] == [(name, line) for name, line in lines if _HAN.search(line)]
