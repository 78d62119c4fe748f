"""The reference page of rule files has every key of their models, and an example of each kind."""

from __future__ import annotations

import pytest

from rules.lint.rule_set_checks import lint
from rules.schema.json_schema import schemas
from tests.rules.schema.test_json_schema import accepted
from tests.support.pages import fences
from tests.support.paths import ROOT
from tests.support.reference_page import reference


def test_the_reference_page_is_that_of_the_models(request: pytest.FixtureRequest) -> None:
    """`--update-golden` writes it again."""
    page = ROOT / "docs/reference.md"
    if request.config.getoption("--update-golden"):
        page.write_text(reference(), "utf-8")

    assert page.read_text("utf-8") == reference()


def test_every_kind_has_an_example_without_errors_or_warnings() -> None:
    """On the page: each is valid by its schema, and lint of all of them finds nothing."""
    shown = {fence.where: fence.text for fence in fences(reference(), "reference.md")}
    warnings = lint(shown.items(), now=0.0)
    kinds = [kind for kind in schemas() if kind != "config-map"]

    assert [] == [str(problem) for problem in (*warnings.errors, *warnings.warnings)]
    assert len(kinds) == len(shown) == len(list(warnings.rules))
    assert [] == [where for where, text in shown.items() if not accepted(text)]
